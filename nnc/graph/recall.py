"""Public functions on concrete arrays, called again: what was found out in the first calls is not asked a second time.

A function of nnc.numpy reads dtypes, shapes and settings, says what is wrong with them, and calls a few commands. Of the same specs
and settings the same commands follow, so after some calls alike only these are run (a *recipe*). The recipes are made one layer up,
where functions can be traced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from types import NoneType
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from nnc import dtypes
from nnc.context import AT_REST, get_context
from nnc.graph.registry import REGISTRY
from nnc.graph.spec import TensorSpec
from nnc.tracebacks import leave

F = TypeVar("F", bound=Callable[..., Any])

_PATIENCE = 2  # calls alike before a recipe is made of them, which takes as long as fifty calls without one;
_GROWTH = 8  # one more for so many keys: a loop over x[i] with each i twice gains nothing
_ROOM = 4096  # keys remembered for one function
_NUMBERS = frozenset((bool, int, float, complex))
_EXACT = frozenset((int, str, NoneType, type, type(...)))


class Recipe(Protocol):
    """The commands that a call runs. Values are the operands, in the order of the arguments."""

    @property
    def run(self) -> Callable[[Sequence[Any]], Any]:
        """From arrays and numbers to the function's result."""


@dataclass(slots=True)
class _Recall:
    """The types of what runs at once, and the maker of recipes, which stand above this module."""

    array: Any = NoneType
    variable: Any = object  # its `owner.follow(recipe, values)` runs a recipe on variables and records it
    make: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], Sequence[int]], Recipe | None] | None = None
    trace: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any] = lambda f, args, kwargs: f(
        *args, **kwargs
    )


_RECALL = _Recall()


@dataclass(slots=True)
class _Known:
    """What is known of one function: the recipe of each key, or how often it was met before it has one (inf: it has none)."""

    version: int = 0
    recipes: dict[tuple[Any, ...], Recipe] = field(default_factory=dict)
    counts: dict[tuple[Any, ...], float] = field(default_factory=dict)

    def is_due(self, key: tuple[Any, ...]) -> bool:
        """Counts a call; whether there were enough alike to make their recipe."""
        if self.version != REGISTRY.version or len(self.counts) > _ROOM:
            self.version, self.recipes, self.counts = REGISTRY.version, {}, {}
        count = self.counts[key] = self.counts.get(key, 0) + 1
        return _PATIENCE + len(self.counts) // _GROWTH < count < inf

    def keep(self, key: tuple[Any, ...], recipe: Recipe | None) -> None:
        """Keeps a recipe, or that there is none."""
        self.counts[key] = inf
        if recipe is not None:
            self.recipes[key] = recipe


def set_recall(array: type, make: Callable[..., Recipe | None]) -> None:
    """Installs the type of concrete arrays and what makes a recipe of a call: (function, args, kwargs, places of operands)."""
    _RECALL.array, _RECALL.make = array, make


def set_recall_of_variables(variable: type) -> None:
    """Installs the type of variables of dynamic graphs."""
    _RECALL.variable = variable


def set_recall_of_traces(trace: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Installs what calls a function while something is staged: (function, args, kwargs)."""
    _RECALL.trace = trace


def recalled(operands: int) -> Callable[[F], F]:
    """Lets eager calls of a function be answered by recipes, and traced calls by what was recorded before.

    The function must be one of the specs of its arrays and of its settings alone, and return one array.

    Args:     operands: how many arguments, from the first, are arrays, numbers or lists of arrays; others are arrays or settings.
    Example:
        >>> @recalled(1)
        ... def double(x, /):
        ...     return x + x
        >>> [double(nnp.ones(2) * n).sum().item() for n in range(4)]
        [0.0, 4.0, 8.0, 12.0]
    """

    def decorate(function: F) -> F:
        known = _Known()

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                context = get_context()
                if context is not AT_REST:
                    if context.staging is not None:
                        return _RECALL.trace(function, args, kwargs)
                    if any(type(mode) is str for mode in context.modes):  # no dynamic graph, which would record nothing
                        return function(*args, **kwargs)
                key: list[Any] = []
                values, array, left, owner = [], _RECALL.array, operands, None
                for arg in args:
                    kind = type(arg)
                    if kind is array:
                        key.append(arg.spec)
                        if arg.weak:
                            key.append(True)  # no setting: those of bools are pairs
                        values.append(arg)
                    elif kind is _RECALL.variable and owner in (None, arg.owner):
                        owner = arg.owner
                        key.append(arg.spec)
                        if arg.weak:
                            key.append(True)
                        values.append(arg)
                    elif left > 0:
                        if kind in _NUMBERS:
                            values.append(arg)
                            key.append(kind)
                        elif kind is np.ndarray and dtypes.is_known(arg.dtype):
                            values.append(array(arg))
                            key.append(TensorSpec(arg.shape, arg.dtype))
                        elif kind is np.float64 or kind is np.complex128:
                            return call(*[_weak_array(x) if i < operands else x for i, x in enumerate(args)], **kwargs)
                        elif kind is list and all(type(x) is array and not x.weak for x in arg):
                            values += arg
                            key += [x.spec for x in arg]
                            key.append(kind)
                        else:
                            return function(*args, **kwargs)
                    else:
                        key.append(exact_setting(arg))
                    left -= 1
                if kwargs:
                    key.append(exact_setting(tuple(kwargs.items())))
                try:
                    recipe = known.recipes.get(tuple(key))
                except TypeError:  # a setting without a hash
                    return function(*args, **kwargs)
                if recipe is not None and known.version == REGISTRY.version:
                    try:
                        return recipe.run(values) if owner is None else owner.follow(recipe, values)
                    except Exception:  # whatever it is: the function itself does as it should, or words the mistake
                        return function(*args, **kwargs)
                result = function(*args, **kwargs)
                if known.is_due(tuple(key)) and _RECALL.make is not None:
                    places = [i for i, arg in enumerate(args) if i < operands or type(arg) in (array, _RECALL.variable)]
                    known.keep(tuple(key), _RECALL.make(function, args, kwargs, places))
                return result
            except BaseException as error:
                other = leave(error, function, function.__name__, args, kwargs)
                if other is None:
                    raise
                raise other from None

        return cast(F, call)

    return decorate


def _weak_array(x: Any) -> Any:
    """`x`; a NumPy scalar whose type is a Python type, too, as a weak array."""
    return _RECALL.array(np.asarray(x), weak=True) if isinstance(x, (np.float64, np.complex128)) else x


def exact_setting(value: Any) -> Any:
    """A setting as part of a key: equal only to what no function can tell from it (1, 1.0 and True; 0.0 and -0.0)."""
    kind = type(value)
    if kind in _EXACT:
        return value
    if kind is tuple:
        return tuple([exact_setting(x) for x in value])
    if kind is slice:
        return slice, exact_setting(value.start), exact_setting(value.stop), exact_setting(value.step)
    if kind is float or kind is complex or isinstance(value, np.generic):
        return kind, repr(value)
    if kind is bool or isinstance(value, (np.dtype, dtypes.NamedDType)):
        return kind, value
    return _UNKNOWN


_UNKNOWN: list[Any] = []  # has no hash, so that calls with such a setting have no key
