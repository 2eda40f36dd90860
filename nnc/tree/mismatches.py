"""Errors for trees that should have one structure: every path on which they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nnc.errors import ArgumentTypeError, TreeError, user_error
from nnc.errors.errors import shorten
from nnc.tree.flattening import TreeDef, containers, leaves_with_path, structure
from nnc.tree.registration import same_settings


def tree_mismatch(
    where: str, left_name: str, left: Any, right_name: str, right: Any, fix: str | None = None,
    operands: Mapping[str, Any] | None = None,
) -> TreeError:  # fmt: skip
    """Returns the error for two trees that should have one structure; it lists every path on which they differ, both sides.

    Args:
        where: the function the user called, for messages.
        left_name: the first tree's name in messages.
        left: a pytree.
        right_name: the second tree's name in messages.
        right: a pytree.
        fix: the remedy.
        operands: name -> spec or value, shown on lines of their own.
    """
    lines = differences(left, right)
    if not lines:
        found = changes_of_containers(structure(left), structure(right))
        lines = [change.line for change in found]
        if found and all(change.is_setting for change in found):
            fix = "make the field an array, for example nnp.asarray(0), if it changes: settings are part of the structure."
    problem = f"{left_name} and {right_name} differ in structure:\n" + "\n".join(lines)
    advice = fix or "give both the same containers, keys and lengths."
    return user_error(TreeError, where, problem, operands=operands, fix=advice)


def differences(left: Any, right: Any) -> list[str]:
    """One line for each path at which one of two trees has a leaf, and the other has none.

    Args:
        left: a pytree.
        right: a pytree.
    """
    a, b = dict(leaves_with_path(left)), dict(leaves_with_path(right))
    lines = [
        f"  {path or '(root)'}: {_describe(a[path])} on the left, nothing on the right" for path in a if path not in b
    ]
    lines += [
        f"  {path or '(root)'}: nothing on the left, {_describe(b[path])} on the right" for path in b if path not in a
    ]
    return lines


class Change(NamedTuple):
    """A difference between containers with leaves at the same paths.

    Args:
        path: entry by entry.
        old: the setting of a dataclass on the left, or the class of the container.
        new: the same on the right.
        is_setting: whether it is a setting.
    """

    path: tuple[str, ...]
    old: Any
    new: Any
    is_setting: bool

    @property
    def line(self) -> str:
        """The line of a message."""
        old, new = (shorten(x) if self.is_setting else f"a {x.__name__}" for x in (self.old, self.new))
        return f"  {''.join(self.path) or '(root)'}: {old} on the left, {new} on the right"


def changes_of_containers(left: TreeDef, right: TreeDef) -> list[Change]:
    """Returns the settings, and classes of containers, in which two structures with leaves at the same paths differ.

    Args:
        left: a structure.
        right: a structure.
    """
    found = []
    for a, b in zip(containers(left), containers(right), strict=False):
        if a.path != b.path or a.kind is not b.kind:
            found.append(Change(a.path, a.kind, b.kind, False))
            break
        names = (name for name in dict.fromkeys((*a.settings, *b.settings)))
        pairs = [(name, a.settings.get(name), b.settings.get(name)) for name in names]
        found += [Change((*a.path, f".{name}"), x, y, True) for name, x, y in pairs if not same_settings(x, y)]
    return found


def _describe(leaf: Any) -> str:
    return str(getattr(leaf, "spec", None) or repr(leaf))


def check_same_structure(where: str, left_name: str, left: Any, right_name: str, right: Any) -> None:
    """Raises TreeError, listing every differing path, unless both trees have one structure.

    Args:
        where: the function the user called, for messages.
        left_name: the first tree's name in messages.
        left: a pytree.
        right_name: the second tree's name in messages.
        right: a pytree.
    """
    if structure(left) != structure(right):
        raise tree_mismatch(where, left_name, left, right_name, right)


def check_hashable(where: str, name: str, value: Any) -> None:
    """Raises ArgumentTypeError unless `value` can be part of a cache key.

    Args:
        where: the function the user called, for messages.
        name: the argument's name in messages.
        value: the argument.
    """
    try:
        hash(value)
    except TypeError:
        problem = f"static argument {name} is a {type(value).__name__}, which has no hash."
        fix = "pass a hashable value (a tuple instead of a list), or an array as an ordinary argument."
        raise user_error(ArgumentTypeError, where, problem, fix=fix) from None
