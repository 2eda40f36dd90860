"""Flattening of pytrees into leaves and a structure, and the paths of leaves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import optree

from nnc.errors import ArgumentTypeError, TreeError, user_error
from nnc.tree.registration import NAMESPACE, Settings, is_array, register_dataclass

if TYPE_CHECKING:
    from nnc.array.array import Array

TreeDef = optree.PyTreeSpec
IsLeaf = Callable[[Any], bool] | None


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Array], TreeDef]:
    """Returns the leaves of `tree` in order, and its structure.

    Args:
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.

    Returns:
        the leaves in order, and the structure.

    Example:
        >>> flatten({"b": 2, "a": [1, None]})[0]
        [1, 2]
    """
    while True:
        try:
            leaves, treedef = optree.tree_flatten(tree, is_leaf=is_leaf, namespace=NAMESPACE)
        except RecursionError:
            _check_depth(tree)
            raise
        kinds = {kind for kind in {type(leaf) for leaf in leaves} if dataclasses.is_dataclass(kind)}
        met = [leaf for leaf in leaves if type(leaf) in kinds] if kinds else []
        new = {type(leaf) for leaf in met if not is_array(leaf) and not (is_leaf and is_leaf(leaf))}
        if not new:
            return leaves, treedef
        for cls in new:
            register_dataclass(cls)


def _check_depth(tree: Any) -> None:
    """Raises TreeError for a tree that holds itself, or is deeper than optree walks."""
    pending: list[tuple[Any, str, tuple[int, ...]]] = [(tree, "", ())]
    while pending:
        value, path, around = pending.pop()
        if id(value) in around:
            problem = f"the {type(value).__name__} at {path} holds itself, so it has no end."
            fix = "leave the reference to itself out, or pass the tree that it stands for."
            raise user_error(TreeError, "pytree", problem, fix=fix)
        if len(around) > optree.MAX_RECURSION_DEPTH:
            problem = f"containers are nested more than {optree.MAX_RECURSION_DEPTH} deep: {path[:40]}..."
            raise user_error(TreeError, "pytree", problem, fix="put the arrays into one list, or stack them.")
        if isinstance(value, (list, tuple)):
            pending += [(x, f"{path}[{i}]", (*around, id(value))) for i, x in enumerate(value)]
        elif isinstance(value, dict):
            pending += [(x, f"{path}[{key!r}]", (*around, id(value))) for key, x in value.items()]
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(item.name, getattr(value, item.name, None)) for item in dataclasses.fields(value)]
            pending += [(x, f"{path}.{name}", (*around, id(value))) for name, x in fields]


def unflatten(treedef: TreeDef, leaves: Iterable[Any]) -> Any:
    """Returns the tree of structure `treedef` with these leaves.

    Args:
        treedef: a structure.
        leaves: as many values as it has leaves.

    Raises:
        ArgumentTypeError: `treedef` is no structure.
        TreeError: there are more or fewer leaves.

    Example:
        >>> nnc.tree.unflatten(nnc.tree.structure({"a": 0, "b": 0}), [1, 2])
        {'a': 1, 'b': 2}
    """
    if not isinstance(treedef, TreeDef):
        problem = f"treedef is a {type(treedef).__name__}, not a structure."
        fix = "write nnc.tree.unflatten(nnc.tree.structure(tree), leaves): the structure comes first."
        raise user_error(ArgumentTypeError, "nnc.tree.unflatten", problem, fix=fix)
    given = list(leaves)
    if len(given) != treedef.num_leaves:
        problem = f"there are {len(given)} leaves for a structure of {treedef.num_leaves}."
        fix = "give one value for each leaf, in the order of nnc.tree.leaves."
        raise user_error(TreeError, "nnc.tree.unflatten", problem, fix=fix)
    return treedef.unflatten(given)


def unflatten_like(tree: Any, leaves: Sequence[Any]) -> Any:
    """Returns a tree of the structure of `tree` with these leaves.

    Args:
        tree: a pytree whose structure is taken.
        leaves: as many values as it has leaves.
    """
    return unflatten(structure(tree), leaves)


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Array]:
    """Returns the leaves of `tree` in order: arrays, and any other leaves, which types leave out.

    Args:
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.

    Example:
        >>> nnc.tree.leaves({"b": 1, "a": [2, 3]})
        [2, 3, 1]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: IsLeaf = None) -> TreeDef:
    """Returns the structure of `tree`.

    Args:
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.

    Example:
        >>> nnc.tree.structure({"a": 1}) == nnc.tree.structure({"a": 2})
        True
    """
    return flatten(tree, is_leaf)[1]


def all_leaves(leaves: Iterable[Any]) -> bool:
    """Whether every element is a leaf.

    Args:
        leaves: any objects.

    Example:
        >>> nnc.tree.all_leaves([1, 2.0]), nnc.tree.all_leaves([1, [2]])
        (True, False)
    """
    return all(structure(leaf).is_leaf() for leaf in leaves)


def flatten_with_path(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[tuple[str, Array]], TreeDef]:
    """Returns the leaves of `tree` in order, each with its path, and its structure; see `leaves_with_path`.

    Args:
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.

    Returns:
        pairs (path, leaf), and the structure.

    Example:
        >>> pairs, treedef = flatten_with_path({"w": 1, "b": [2]})
        >>> pairs, unflatten(treedef, [10, 20])
        ([('["b"][0]', 2), ('["w"]', 1)], {'w': 20, 'b': [10]})
    """
    values, treedef = flatten(tree, is_leaf)
    return list(zip(("".join(path) for path in paths(treedef)), values, strict=True)), treedef


def leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[str, Array]]:
    """Pairs (path, leaf), a path written as in Python: `["layers"][0].weight`.

    Args:
        tree: a pytree.
        is_leaf: whether a node is a leaf although it is a container.

    Example:
        >>> leaves_with_path({"layers": [1, 2]})
        [('["layers"][0]', 1), ('["layers"][1]', 2)]
    """
    return flatten_with_path(tree, is_leaf)[0]


def paths(treedef: TreeDef) -> list[list[str]]:
    """Returns the path of each leaf, entry by entry: `["layers"]`, `[0]`, `.weight`.

    Args:
        treedef: a structure.

    Example:
        >>> _, treedef = nnc.tree.flatten({"a": [1, 2]})
        >>> paths(treedef)
        [['["a"]', '[0]'], ['["a"]', '[1]']]
    """
    return [[_written(entry) for entry in accessor] for accessor in optree.treespec_accessors(treedef)]


def containers_of_leaves(treedef: TreeDef) -> list[tuple[Any, list[type]]]:
    """Returns, for each leaf of the arguments of a call, the argument that holds it, and the classes of the containers around it.

    Args:
        treedef: the structure of the pair of positional and named arguments.

    Example:
        >>> _, treedef = nnc.tree.flatten((({"a": [1, 2]},), {}))
        >>> containers_of_leaves(treedef)[0]
        ((0, 0), [<class 'tuple'>, <class 'tuple'>, <class 'dict'>, <class 'list'>])
    """
    rows = optree.treespec_accessors(treedef)
    return [(tuple(entry.entry for entry in row[:2]), [entry.type for entry in row]) for row in rows]


@dataclasses.dataclass(frozen=True, slots=True)
class Container:
    """A container of a structure: its path, entry by entry; its class; its settings by name, where it is a dataclass."""

    path: tuple[str, ...]
    kind: type | None
    settings: dict[str, Any]


def containers(treedef: TreeDef) -> list[Container]:
    """Returns the containers of a structure, from the root on.

    Args:
        treedef: a structure.

    Example:
        >>> [(found.path, found.kind) for found in containers(nnc.tree.structure({"a": [1, 2]}))]
        [((), <class 'dict'>), (('["a"]',), <class 'list'>)]
    """
    found: list[Container] = []

    def visit(node: Any, path: tuple[str, ...]) -> None:
        if node.is_leaf():
            return
        about: list[Any] = []
        node.one_level().walk([None] * node.num_children, lambda kind, data, children: about.append(data))
        fields = (
            about[0][1] if isinstance(about[0], tuple) and about[0] and isinstance(about[0][-1], Settings) else None
        )
        found.append(Container(path, node.type, dict(fields.items) if fields is not None else {}))
        entries = [accessor[0] for accessor in node.one_level().accessors()]
        for entry, child in zip(entries, node.children(), strict=True):
            visit(child, (*path, _written(entry)))

    visit(treedef, ())
    return found


def _written(entry: Any) -> str:
    key = entry.entry
    if isinstance(key, str) and not isinstance(entry, optree.GetAttrEntry):
        return f"[{json.dumps(key, ensure_ascii=False)}]"
    return str(entry.codify(""))
