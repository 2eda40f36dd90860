"""Selection of a model's leaves by their paths: patterns, predicates, and their negation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypeGuard

import numpy as np

from nnc import tree
from nnc.errors import ArgumentError, ArgumentTypeError, user_error
from nnc.errors.errors import shorten
from nnc.nn.module import Module

Predicate = Callable[[str, Any], bool]  # (path, leaf) -> whether it is selected
Selection = str | Predicate | Sequence[str | Predicate]


def is_selection(value: object) -> TypeGuard[Selection]:
    """Whether a value is a pattern, a predicate or a sequence of them, and no tree of bools; modules are trees."""
    if isinstance(value, (tuple, list)):
        return all(isinstance(x, str) or _is_predicate(x) for x in value)
    return isinstance(value, str) or _is_predicate(value)


def _is_predicate(value: Any) -> bool:
    return callable(value) and not isinstance(value, Module) and tree.all_leaves([value])


def select(
    where: str, selection: Selection, leaves: Mapping[str, Any], asked: Collection[str] | None = None
) -> set[str]:
    """Returns the paths that a selection selects: each item adds some, in order, and an item with "!" takes some away.

    A pattern selects the paths that it matches, and those below a path that it matches. Where the first item is negative, all
    paths are selected before it.

    Args:
        where: the function the user called, for messages.
        selection: patterns and predicates.
        leaves: path -> leaf.
        asked: the paths that predicates are called with; all by default.

    Raises:
        ArgumentError: a pattern or a predicate selects nothing.
        ArgumentTypeError: an item is neither, or a predicate returns no bool.
    """
    items = selection if isinstance(selection, (tuple, list)) else (selection,)
    found: set[str] = set()
    for i, item in enumerate(items):
        if isinstance(item, str):
            is_negative, pattern = item.startswith("!"), item.removeprefix("!")
            matched = _matching(where, pattern, leaves)
        elif _is_predicate(item):
            is_negative, matched = False, _satisfying(where, item, leaves, leaves if asked is None else asked)
        else:
            problem = f"the pattern {shorten(item)} is a {type(item).__name__}."
            fix = 'pass paths as strings, such as "encoder.*.weight", or a function (path, leaf) -> bool.'
            raise user_error(ArgumentTypeError, where, problem, fix=fix)
        if is_negative:
            found = (found if i else set(leaves)) - matched
        else:
            found |= matched
    return found


def _matching(where: str, pattern: str, names: Collection[str]) -> set[str]:
    matched = {name for name in names if any(fnmatchcase(part, pattern) for part in _parts(name))}
    if not matched:
        near = get_close_matches(pattern, [part for name in names for part in _parts(name)], 1) or list(names)[:1]
        fix = f'nnc.nn.parameters(model) lists the paths; "{near[0]}" is one.' if near else "the model has no arrays."
        raise user_error(ArgumentError, where, f"no path of the model matches {pattern!r}.", fix=fix)
    return matched


def _satisfying(where: str, predicate: Any, leaves: Mapping[str, Any], asked: Collection[str]) -> set[str]:
    matched = set()
    for name in leaves:
        if name in asked:
            answer = predicate(name, leaves[name])
            if not isinstance(answer, (bool, np.bool_)):
                problem = f"the predicate returns {shorten(answer)} for {name}, not a bool."
                fix = "return True or False from (path, leaf), such as leaf.ndim > 1."
                raise user_error(ArgumentTypeError, where, problem, fix=fix)
            if answer:
                matched.add(name)
    if not matched:
        fix = "nnc.nn.parameters(model) lists the paths and arrays that it is asked about."
        raise user_error(ArgumentError, where, f"the predicate selects none of {len(asked)} leaves.", fix=fix)
    return matched


def _parts(name: str) -> list[str]:
    """Returns a path, and the paths of the containers around it."""
    return [name, *(name[:i] for i, letter in enumerate(name) if letter == ".")]
