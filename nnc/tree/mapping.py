"""Functions of all leaves: map, reduce, prefixes, and the settings that structures hold."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

import optree

from nnc.errors import TreeError, user_error
from nnc.errors.errors import shorten
from nnc.errors.tracebacks import api_boundary
from nnc.tree.flattening import IsLeaf, TreeDef, flatten, flatten_with_path, leaves, structure, unflatten
from nnc.tree.mismatches import tree_mismatch
from nnc.tree.registration import CONTAINERS, NAMESPACE, is_array, is_dataclass, is_opaque

if TYPE_CHECKING:
    from nnc.array.array import Array

_ABSENT: Any = object()
T = TypeVar("T")
S = TypeVar("S")


@overload
def map(f: Callable[[Array], Array], tree: T, *, is_leaf: IsLeaf = None) -> T: ...
@overload
def map(f: Callable[..., Array], tree: T, other: object, /, *rest: object, is_leaf: IsLeaf = None) -> T: ...
@overload
def map(f: Callable[..., object], tree: object, *rest: object, is_leaf: IsLeaf = None) -> object: ...
@api_boundary
def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Applies `f` to the leaves of `tree` and the corresponding leaves of `rest`, which must have the same structure.

    Args:
        f: takes a leaf of each tree.
        tree: a pytree.
        *rest: more trees of that structure.
        is_leaf: whether a node is a leaf although it is a container.

    Raises:
        TreeError: a tree of `rest` has another structure; every differing path is listed.

    Example:
        >>> map(lambda x, y: x + y, {"a": 1}, {"a": 10})
        {'a': 11}
    """
    first, treedef = flatten(tree, is_leaf)
    columns = [first, *_columns("tree.map", treedef, tree, rest, is_leaf)]
    return unflatten(treedef, [f(*row) for row in zip(*columns, strict=True)])


@overload
def map_with_path(f: Callable[[str, Array], Array], tree: T, *, is_leaf: IsLeaf = None) -> T: ...
@overload
def map_with_path(f: Callable[..., object], tree: object, *rest: object, is_leaf: IsLeaf = None) -> object: ...
@api_boundary
def map_with_path(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Applies `f` to the path of each leaf of `tree`, the leaf, and the corresponding leaves of `rest`.

    Args:
        f: (path, leaf, *more) -> new leaf; paths are those of `leaves_with_path`.
        tree: a pytree.
        *rest: more trees of that structure.
        is_leaf: whether a node is a leaf although it is a container.

    Raises:
        TreeError: a tree of `rest` has another structure; every differing path is listed.

    Example:
        >>> map_with_path(lambda path, x: 0 if path.endswith('["bias"]') else x, [{"bias": 1, "weight": 2}])
        [{'bias': 0, 'weight': 2}]
    """
    pairs, treedef = flatten_with_path(tree, is_leaf)
    columns = _columns("tree.map_with_path", treedef, tree, rest, is_leaf)
    return unflatten(treedef, [f(*pair, *more) for pair, *more in zip(pairs, *columns, strict=True)])


def _columns(where: str, treedef: TreeDef, tree: Any, rest: tuple[Any, ...], is_leaf: IsLeaf) -> list[list[Any]]:
    """Returns the leaves of each tree of `rest`, whose structures must be `treedef`, that of `tree`."""
    found = []
    for i, other in enumerate(rest):
        leaves, structure = flatten(other, is_leaf)
        if structure != treedef:
            raise tree_mismatch(where, "the first tree", tree, f"tree {i + 2}", other)
        found.append(leaves)
    return found


@api_boundary
def reduce(
    function: Callable[[S, Array], S],
    tree: object,
    initializer: S = _ABSENT,
    is_leaf: IsLeaf = None,
) -> S:
    """Folds `function` over the leaves of `tree`, starting from `initializer`, or else from the first leaf.

    Args:
        function: (value so far, leaf) -> value.
        tree: a pytree.
        initializer: value before the first leaf.
        is_leaf: whether a node is a leaf although it is a container.

    Raises:
        TreeError: there is no leaf and no `initializer`.

    Example:
        >>> reduce(lambda a, b: a + b, {"a": 1, "b": [2, 3]})
        6
    """
    values = iter(leaves(tree, is_leaf))
    result: Any = next(values, _ABSENT) if initializer is _ABSENT else initializer
    if result is _ABSENT:
        raise user_error(TreeError, "nnc.tree.reduce", "the tree has no leaves.", fix="pass an initializer.")
    folded: S = functools.reduce(function, values, result)
    return folded


def broadcast_prefix(prefix: Any, tree: Any, is_leaf: IsLeaf = None, where: str = "tree") -> list[Any]:
    """Returns a value of `prefix` for each leaf of `tree`; `prefix` has the structure of `tree` or of a part of it from the
    root.

    Args:
        prefix: a tree that ends where values stand.
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.
        where: the function the user called, for messages.

    Raises:
        TreeError: `prefix` is no prefix of `tree`.

    Example:
        >>> broadcast_prefix([1, 2], ["x", ("y", "z")])
        [1, 2, 2]
    """
    flatten(tree)  # registers the dataclasses in it
    values, treedef = flatten(prefix, is_leaf)
    try:
        parts = treedef.flatten_up_to(tree)
        return [value for value, part in zip(values, parts, strict=True) for _ in range(structure(part).num_leaves)]
    except ValueError as error:
        # in_axes stand beside a prefix of the arguments by name, and optree shows the whole tree
        is_call = where.endswith(": in_axes")
        shown, reason = (
            shorten(prefix[0] if is_call else prefix),
            (str(error).rpartition("; ")[0] or str(error)).rstrip("."),
        )
        fix = "give one value for the whole tree, or a tree of values of its structure."
        raise user_error(TreeError, where, f"the prefix {shown} does not fit the tree: {reason}.", fix=fix) from None


@api_boundary
def transpose(outer: TreeDef, inner: TreeDef, tree: Any) -> Any:
    """Turns a tree of structure `outer` whose leaves have structure `inner` inside out.

    Args:
        outer: structure of the trees to turn inside out.
        inner: structure of each of their leaves.
        tree: a tree of structure outer, of trees of structure inner.

    Example:
        >>> nnc.tree.transpose(nnc.tree.structure([0, 0]), nnc.tree.structure({"a": 0}), [{"a": 1}, {"a": 2}])
        {'a': [1, 2]}
    """
    return optree.tree_transpose(outer, inner, tree)


def settings(tree: Any) -> list[tuple[Any, str]]:
    """Returns the values that dataclasses in `tree` hold besides children, and the names of the fields.

    Args:
        tree: a pytree.
    """
    found: list[tuple[Any, str]] = []
    for leaf in optree.tree_leaves(tree, is_leaf=is_dataclass, namespace=NAMESPACE):
        if is_dataclass(leaf):
            _add_settings(found, leaf)
    return found


def _add_settings(found: list[tuple[Any, str]], x: Any) -> None:
    """Adds the settings of a dataclass, and of the dataclasses in its fields."""
    for item in dataclasses.fields(x):
        value = getattr(x, item.name, None)
        if value is None or is_array(value):
            continue
        if type(value) not in CONTAINERS and is_opaque(value):
            found.append((value, item.name))
        elif is_dataclass(value):
            _add_settings(found, value)
        else:
            found += settings(value)
