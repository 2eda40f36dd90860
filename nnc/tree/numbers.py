"""Numbers in the fields of dataclasses, which are settings of their structure: another tree has arrays in their places."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from itertools import count
from typing import Any

import optree

from nnc.tree.registration import NAMESPACE, Settings


def change_numbers(tree: Any, change: Callable[[int, int | float], Any]) -> Any:
    """Returns the tree with other values in place of ints and floats that are settings; fields declared static stay as they
    are.

    Args:
        tree: a pytree that was flattened before.
        change: returns the new value, which is a leaf, or the number itself, which stays a setting. It is given the count of the
            numbers before it, too.

    Example:
        >>> class Scaled(nnc.nn.Module):
        ...     by: float
        >>> nnc.tree.leaves(change_numbers([Scaled(2.0), Scaled(3.0)], lambda i, x: nnp.asarray(x) if i else x))
        [Array(3., dtype=float32)]
    """
    places = count()

    def visit(value: Any) -> Any:
        if value is None or optree.tree_is_leaf(value, namespace=NAMESPACE):
            return value
        children, metadata, _, rebuild = optree.tree_flatten_one_level(value, namespace=NAMESPACE)
        changed: dict[str, Any] = {}
        names: tuple[str, ...] = ()
        settings = Settings((), frozenset())
        match metadata:
            case (tuple() as names, Settings() as settings):
                pass
        declared = _declared_static(type(value)) if settings.items else frozenset()
        for name, x in settings.items:
            if type(x) in (int, float) and name not in declared:
                new = change(next(places), x)
                if new is not x:
                    changed[name] = new
        visited = [visit(child) for child in children]
        if not changed:
            return value if all(map(operator.is_, visited, children)) else rebuild(metadata, visited)
        left = Settings(tuple(pair for pair in settings.items if pair[0] not in changed), settings.unsaved)
        return rebuild(((*names, *changed), left), [*visited, *changed.values()])

    return visit(tree)


def _find_declared_static(kind: Any) -> frozenset[str]:
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)
    return frozenset(field.name for field in fields if field.metadata.get("static"))


# classes: more than programs have
_declared_static: Callable[[type], frozenset[str]] = functools.lru_cache(maxsize=4096)(_find_declared_static)
