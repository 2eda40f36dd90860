"""Errors for trees that should have one structure: every path on which they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.errors import ArgumentTypeError, TreeError, user_error
from nnc.tree.flattening import leaves_with_path, structure


def tree_mismatch(
    where: str, left_name: str, left: Any, right_name: str, right: Any, fix: str | None = None,
    operands: Mapping[str, Any] | None = None,
) -> TreeError:  # fmt: skip
    """The error for two trees that should have one structure; it lists every path on which they differ, both sides.

    Args:
        where: the function the user called, for messages.
        left_name: the first tree's name in messages.
        left: a pytree.
        right_name: the second tree's name in messages.
        right: a pytree.
        fix: the remedy.
        operands: name -> spec or value, shown on lines of their own.
    """
    return user_error(
        TreeError, where, f"{left_name} and {right_name} differ in structure:\n" + "\n".join(differences(left, right)),
        operands=operands, fix=fix or "give both the same containers, keys and lengths.",
    )  # fmt: skip


def differences(left: Any, right: Any) -> list[str]:
    """One line for each path on which two trees differ in structure.

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
    return lines or [f"  {structure(left)} on the left, {structure(right)} on the right"]


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
        raise user_error(
            ArgumentTypeError, where, f"static argument {name} is a {type(value).__name__}, which has no hash.",
            fix="pass a hashable value (a tuple instead of a list), or an array as an ordinary argument.",
        ) from None  # fmt: skip
