"""Trees with other nodes in some places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import optree

from nnc.errors import ArgumentError, ArgumentTypeError, NncError, TreeError, user_error
from nnc.errors.errors import shorten
from nnc.errors.tracebacks import api_boundary
from nnc.tree.flattening import IsLeaf, flatten, unflatten
from nnc.tree.registration import NAMESPACE

T = TypeVar("T")
WHERE = "nnc.tree.at"
_ABSENT = object()


class _Mark:
    """The place of a leaf: leaves may be one object in two places, marks are not.

    Args:
        number: position among the leaves.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    @property
    def spec(self) -> NoReturn:
        """Nothing, but its name tells that marks are children of dataclasses, as arrays are."""
        raise AttributeError("spec")


@api_boundary
def at(
    where: Callable[[T], Any],
    tree: T,
    replace: Any = _ABSENT,
    replace_fn: Callable[[Any], Any] = _ABSENT,  # type: ignore[assignment]
    is_leaf: IsLeaf = None,
) -> T:
    """Returns `tree` with other nodes in some places; the tree itself stays as it is.

    A node is a leaf or a container with all that is in it, and may be replaced by any tree. To replace None, pass
    `is_leaf=lambda x: x is None`.

    Args:
        where: from the tree to a node of it, or to a tuple or list of nodes. It sees the containers with marks for leaves, so it
            may look at the structure alone.
        tree: a pytree.
        replace: the new node, or as many new nodes as `where` returns.
        replace_fn: makes each new node of the old one; pass either this or `replace`.
        is_leaf: whether a node is a leaf although it is a container, or None.

    Raises:
        TreeError: `where` returns something that is no node of the tree, a node twice, or reads leaves.
        ArgumentError: there are more or fewer new nodes than `where` returns.
        ArgumentTypeError: both or none of `replace` and `replace_fn` are given.

    Example:
        >>> at(lambda t: t["layers"][0], {"layers": [1, 2]}, replace=10)
        {'layers': [10, 2]}
        >>> at(lambda t: (t["a"], t["b"]), {"a": 1, "b": 2, "c": 3}, replace_fn=lambda x: -x)
        {'a': -1, 'b': -2, 'c': 3}
    """
    _check_arguments(where, replace, replace_fn)
    leaves, treedef = flatten(tree, lambda x: _is_empty(x) or (is_leaf is not None and is_leaf(x)))
    marks = [_Mark(i) for i in range(len(leaves))]
    marked = unflatten(treedef, marks)
    found = _found(where, tree, marked)
    is_one = not isinstance(found, (tuple, list)) or _stand_in(marked, [found])
    nodes = [found] if is_one else list(found)
    if not _stand_in(marked, nodes):
        raise _no_node(marked, nodes)

    def restored(node: Any) -> Any:
        inner, structure = flatten(node)
        return unflatten(structure, [leaves[mark.number] for mark in inner])  # type: ignore[attr-defined]

    if replace is _ABSENT:
        new = [replace_fn(restored(node)) for node in nodes]
    else:
        new = [replace] if is_one else _new_nodes(replace, len(nodes))
    by_node = {id(node): x for node, x in zip(nodes, new, strict=True)}
    parts, around = flatten(marked, lambda x: id(x) in by_node)
    return unflatten(  # type: ignore[no-any-return]
        around,
        [by_node[id(x)] if id(x) in by_node else leaves[x.number] for x in parts],  # type: ignore[attr-defined]
    )


def _is_empty(x: Any) -> bool:
    """Whether `x` is the empty tuple, which is one object wherever it stands."""
    return type(x) is tuple and not x


def _check_arguments(where: Any, replace: Any, replace_fn: Any) -> None:
    if not callable(where):
        fix = "pass a function from the tree to a node: nnc.tree.at(lambda t: t[0], tree, replace=...)."
        raise user_error(ArgumentTypeError, WHERE, f"where is {shorten(where)}, which cannot be called.", fix=fix)
    if (replace is _ABSENT) == (replace_fn is _ABSENT):
        given = "neither" if replace is _ABSENT else "both"
        problem = f"{given} of replace and replace_fn {'is' if given == 'neither' else 'are'} given."
        fix = "pass replace= a new node, or replace_fn= a function of the old one."
        raise user_error(ArgumentTypeError, WHERE, problem, fix=fix)
    if replace_fn is not _ABSENT and not callable(replace_fn):
        problem = f"replace_fn is {shorten(replace_fn)}, which cannot be called."
        raise user_error(ArgumentTypeError, WHERE, problem, fix="pass it as replace=.")


def _found(where: Callable[[Any], Any], tree: Any, marked: Any) -> Any:
    """Returns the result of `where` for the tree of marks; its mistakes are those that it makes with the tree itself."""
    where(tree)
    try:
        return where(marked)
    except NncError:
        raise
    except Exception as error:
        problem = f"where reads the leaves of the tree, not its structure alone: {type(error).__name__}: {error}."
        fix = "choose nodes by fields, places and keys; to choose leaves by their values, use nnc.tree.map."
        raise user_error(TreeError, WHERE, problem, fix=fix) from error


def _stand_in(marked: Any, nodes: Sequence[Any]) -> bool:
    """Whether each of the nodes stands in the tree, none twice, and none within another."""
    wanted = {id(node) for node in nodes if node is not None}
    parts = optree.tree_leaves(marked, is_leaf=lambda x: id(x) in wanted, namespace=NAMESPACE)
    return sum(id(x) in wanted for x in parts) == len(nodes)


def _no_node(marked: Any, nodes: Sequence[Any]) -> TreeError:
    """Returns the error for nodes that `_stand_in` refuses."""
    for i, node in enumerate(nodes):
        if node is None:
            problem, fix = "is None, which is no leaf", "pass is_leaf=lambda x: x is None."
        elif not _stand_in(marked, [node]):
            problem = f"is a new {type(node).__name__}" if _has_marks(node) else f"is {shorten(node)}"
            problem += ", no node of the tree"
            fix = "return leaves and containers that stand in the tree; .replace changes settings of a module."
        elif any(node is other for other in nodes[:i]):
            problem, fix = "is a node that where returns twice", "name each node once."
        else:
            continue
        which = "where(tree)" if len(nodes) == 1 else f"where(tree)[{i}]"
        return user_error(TreeError, WHERE, f"{which} {problem}.", fix=fix)
    advice = "name the outer node alone, or call nnc.tree.at once for each."
    return user_error(TreeError, WHERE, "where returns a node and a part of it.", fix=advice)


def _has_marks(node: Any) -> bool:
    return any(isinstance(x, _Mark) for x in flatten(node)[0])


def _new_nodes(replace: Any, count: int) -> list[Any]:
    if not isinstance(replace, (tuple, list)) or len(replace) != count:
        got = f"{len(replace)}" if isinstance(replace, (tuple, list)) else shorten(replace)
        fix = "pass a tuple with a new node for each, or replace_fn=lambda node: ...."
        raise user_error(ArgumentError, WHERE, f"where returns {count} nodes, replace is {got}.", fix=fix)
    return list(replace)
