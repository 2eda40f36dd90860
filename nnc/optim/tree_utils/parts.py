"""Parts of trees by name: the hyperparameters, counts and moments within the state of an optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.errors.tracebacks import api_boundary

__all__ = ["tree_get", "tree_get_all_with_path", "tree_set"]

Path = tuple[Any, ...]
Filter = Callable[[Path, Any], bool]


def _children(node: Any) -> list[tuple[Any, Any]]:
    """Returns the parts of a node with their names: fields, keys or places."""
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return list(zip(node._fields, node, strict=True))
    if isinstance(node, dict):
        return list(node.items())
    if isinstance(node, (list, tuple)):
        return list(enumerate(node))
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    return []


def _rebuilt(node: Any, parts: list[tuple[Any, Any]]) -> Any:
    if isinstance(node, dict):
        return type(node)(parts)
    if hasattr(node, "_fields"):
        return node._replace(**dict(parts))
    if isinstance(node, (list, tuple)):
        return type(node)([part for _, part in parts])
    return dataclasses.replace(node, **dict(parts))


def _found(node: Any, key: str, filtering: Filter | None, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for name, part in _children(node):
        here = (*path, name)
        if name == key and (filtering is None or filtering(here, part)):
            yield here, part
        else:
            yield from _found(part, key, filtering, here)


@spelled
def tree_get_all_with_path(tree: Any, key: str, filtering: Filter | None = None) -> list[tuple[Path, Any]]:
    """Lists all parts of a tree that have a name: fields of NamedTuples and dataclasses, and keys of dicts.

    Args:
        tree: a pytree, such as the state of an optimizer.
        key: the name.
        filtering: (path, part) -> bool; parts for which it is False are left out.

    Returns:
        Pairs of a path, a tuple of names and places, and a part.

    Example:
        >>> state = nnc.optim.chain(nnc.optim.adam(0.1), nnc.optim.ema(0.9)).init(nnp.ones(1))
        >>> [path for path, _ in tree_get_all_with_path(state, "count")]
        [(0, 0, 'count'), (1, 'count')]
    """
    return list(_found(tree, key, filtering))


@spelled
def tree_get(tree: Any, key: str, default: Any = None, filtering: Filter | None = None) -> Any:
    """Returns the part of a tree that has a name.

    Args:
        tree: a pytree, such as the state of an optimizer.
        key: the name of a field of a NamedTuple or dataclass, or of a key of a dict.
        default: returned where there is none.
        filtering: (path, part) -> bool; parts for which it is False are left out.

    Raises:
        ArgumentError: several parts have it.

    Example:
        >>> state = nnc.optim.inject_hyperparams(nnc.optim.sgd)(learning_rate=0.5).init(nnp.ones(1))
        >>> tree_get(state, "learning_rate")
        Array(0.5, dtype=float32)
    """
    found = tree_get_all_with_path(tree, key, filtering)
    if len(found) > 1:
        problem = f"{len(found)} parts are called {key!r}, at {', '.join(str(path) for path, _ in found)}."
        fix = "choose one with filtering=lambda path, part: ..., or list them with tree_get_all_with_path."
        raise user_error(ArgumentError, "tree_get", problem, fix=fix)
    return found[0][1] if found else default


@api_boundary
def tree_set(tree: Any, filtering: Filter | None = None, /, **kwargs: Any) -> Any:
    """Returns the tree with other parts in place of all those that have a name.

    Args:
        tree: a pytree, such as the state of an optimizer.
        filtering: (path, part) -> bool; parts for which it is False stay.
        **kwargs: the new parts by name.

    Raises:
        ArgumentError: no part has such a name.

    Example:
        >>> state = nnc.optim.inject_hyperparams(nnc.optim.sgd)(learning_rate=0.5).init(nnp.ones(1))
        >>> tree_get(tree_set(state, learning_rate=nnp.asarray(0.25)), "learning_rate")
        Array(0.25, dtype=float32)
    """
    for key in kwargs:
        if not tree_get_all_with_path(tree, key, filtering):
            problem = f"no part is called {key!r}."
            raise user_error(ArgumentError, "tree_set", problem, fix="see the fields of the state for their names.")
    return _replaced(tree, filtering, kwargs, ())


def _replaced(node: Any, filtering: Filter | None, new: dict[str, Any], path: Path) -> Any:
    parts, changed = [], False
    for name, part in _children(node):
        here = (*path, name)
        is_meant = name in new and (filtering is None or filtering(here, part))
        other = new[name] if is_meant else _replaced(part, filtering, new, here)
        changed |= other is not part
        parts.append((name, other))
    return _rebuilt(node, parts) if changed else node
