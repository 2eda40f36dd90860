"""Flattens trees of a known structure: the arguments of a function that is called again and again.

optree finds and describes the structure of a tree, which costs more than most small programs. A pattern only confirms a
structure, container by container, and takes neighbouring leaves at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter, is_, itemgetter
from typing import Any

import optree

from nnc import tree

Take = Callable[[Any, list[Any]], None]  # appends the leaves of a tree to a list; raises where its structure is another
Parts = Callable[[Any], Sequence[Any]]

MISMATCHES = (ValueError, KeyError, AttributeError)  # the error that a pattern raises


def make_pattern(value: Any) -> Take | None:
    """Makes a function that flattens trees of the structure of `value`; None where it holds containers of unusual types.

    Where `value` has a leaf, a tree may have anything: the caller compares the two.

    Example:
        >>> leaves = []
        >>> make_pattern({"b": 2, "a": [1, None]})({"a": [10, None], "b": 20}, leaves)
        >>> leaves
        [10, 20]
    """
    kind: type[Any] = type(value)
    if value is None:
        return _take_none
    if kind is dict:
        try:
            keys = sorted(value)
        except TypeError:  # keys of several kinds, which optree sorts by their types' names
            return None
        return _take_parts(kind, [value[key] for key in keys], _each(itemgetter, keys))
    if kind is tuple or kind is list or (isinstance(value, tuple) and optree.is_namedtuple(value)):
        return _take_parts(kind, list(value), None)
    if optree.tree_is_leaf(value, namespace=tree.NAMESPACE):
        return _take_leaf
    children, metadata, *_ = optree.tree_flatten_one_level(value, namespace=tree.NAMESPACE)
    match metadata:
        case (tuple() as names, tree.Settings() as settings):
            return _take_fields(value, list(children), names, settings)
    return None


def _take_none(value: Any, leaves: list[Any]) -> None:
    if value is not None:
        raise ValueError


def _take_leaf(value: Any, leaves: list[Any]) -> None:
    leaves.append(value)


def _each(getter: Callable[..., Any], names: Sequence[Any]) -> Parts:
    """Makes a function that gets the parts of these names, always as a tuple."""
    if len(names) > 1:
        parts: Parts = getter(*names)
        return parts
    get = getter(names[0]) if names else None
    return lambda value: () if get is None else (get(value),)


def _take_parts(kind: type[Any], children: list[Any], parts: Parts | None) -> Take | None:
    """Makes the function that takes apart a container; another one matches if it has the kind, length and names."""
    takes, count = _takes_of(children), len(children)

    def take(value: Any, leaves: list[Any]) -> None:
        if value.__class__ is not kind or len(value) != count:
            raise ValueError
        found: Sequence[Any] = value if parts is None else parts(value)
        if not takes:
            leaves += found
            return
        for take_child, child in zip(takes, found, strict=True):
            take_child(child, leaves)

    return take if takes is not None else None


def _take_fields(value: Any, children: list[Any], names: tuple[str, ...], settings: tree.Settings) -> Take | None:
    """Makes the function that takes apart a dataclass: names of children, and settings, must equal the ones of `value`."""
    kind, takes = type(value), _takes_of(children)
    get_children, get_settings = _each(attrgetter, names), _each(attrgetter, [name for name, _ in settings.items])
    expected = tuple([x for _, x in settings.items])
    if takes is None or len(names) + len(expected) != len(dataclasses.fields(value)):
        return None  # a field without a value, which it may have in the next call

    def take(value: Any, leaves: list[Any]) -> None:
        if type(value) is not kind or getattr(value, tree.CHILDREN, names) != names:
            raise ValueError
        if expected:
            found = get_settings(value)
            if not all(map(is_, found, expected)) and not tree.same_settings(found, expected):
                raise ValueError
        if not takes:
            leaves += get_children(value)
            return
        for take_child, child in zip(takes, get_children(value), strict=True):
            take_child(child, leaves)

    return take


def _takes_of(children: Sequence[Any]) -> list[Take] | None:
    """Returns the functions that take each child apart; an empty list where all are leaves, None where one has no pattern."""
    takes = [take for child in children if (take := make_pattern(child)) is not None]
    if len(takes) < len(children):
        return None
    return [] if all(take is _take_leaf for take in takes) else takes
