"""Public functions whose float results are weak where their float operands are: see docs/arrays.md."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from nnc import tree
from nnc.array.array import ArrayMethods
from nnc.base import dtypes
from nnc.commands.promote import WIDE, with_weakness
from nnc.errors.tracebacks import arguments_misfit
from nnc.trace.core.flat import call_function

F = TypeVar("F", bound=Callable[..., Any])


def keeps_weakness(function: F) -> F:
    """Lets a function of weak floats compute them in 64 bits, and makes its float results weak.

    Elementwise functions and commands do so by themselves. This is for functions that convert their operands, or join them with
    constants.

    Args:
        function: its first argument is an operand, and so are the arrays among the others; numbers there are settings.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            weak = _weakness_of_results(args, kwargs)
            return _in_64_bits(function, weak, args, kwargs) if weak else function(*args, **kwargs)
        except TypeError as error:
            other = arguments_misfit(error, function, function.__name__, args, kwargs)
            if other is None:
                raise
            raise other from None

    return cast(F, call)


def _in_64_bits(function: Any, weak: dtypes.Weakness, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a function of weak operands, with weak floats."""
    first, *rest = _array(args[0]), *map(_strong, args[1:])
    named = {name: _strong(x) for name, x in kwargs.items()}
    result = call_function(function, (first, *rest), named)
    if not _is_float(first) and any(map(_is_float, tree.leaves(result))):  # a formula of integers has 64 bits, too
        result = function(_in_float64(first), *rest, **named)
    return tree.map(lambda x: with_weakness(x, weak) if _is_float(x) else x, result)


def _is_weak(x: Any) -> bool:
    """Whether a first argument is weak: an array, a number, a list that holds a weak array."""
    weak = getattr(x, "weak", None)
    if weak is not None:
        return bool(weak)
    if isinstance(x, (list, tuple)):
        return any(getattr(leaf, "weak", False) for leaf in tree.leaves(x))
    return isinstance(x, (int, float, complex))


def _leaves(values: Sequence[Any]) -> list[Any]:
    return [leaf for value in values for leaf in (tree.leaves(value) if isinstance(value, (list, tuple)) else (value,))]


def _weakness_of_results(args: Sequence[Any], kwargs: dict[str, Any]) -> dtypes.Weakness:
    """The weakness of float results; False where an operand is a strong float, or an array beside an integer."""
    if not args or not _is_weak(args[0]) or kwargs.get("dtype") is not None:
        return False
    first, others = _leaves([args[0]]), _leaves([*args[1:], *kwargs.values()])
    has_floats, weak = False, cast(dtypes.Weakness, dtypes.NUMBER)
    for x in first:
        dtype = dtypes.exact_dtype(x) if isinstance(x, (int, float, complex)) else x.dtype
        has_floats |= dtypes.is_inexact(dtype)
    for place, x in enumerate((*first, *others)):
        if not isinstance(x, (ArrayMethods, np.ndarray, np.generic)):
            continue
        own = getattr(x, "weak", isinstance(x, (np.float64, np.complex128)))
        if place >= len(first) and isinstance(x, np.generic) and own:
            continue  # a setting
        if not own and (not has_floats or dtypes.is_inexact(x.dtype)):
            return False
        if own is True and x.dtype in WIDE:
            weak = True
    return weak


def _array(x: Any) -> Any:
    """The first operand with strong floats; a float as an array that has all of its digits."""
    return np.asarray(x) if isinstance(x, (float, complex)) else _strong(x)


def _strong(x: Any) -> Any:
    """An operand, or a list of them, with weak floats as strong ones."""
    if isinstance(x, ArrayMethods):
        return x.as_weak(False) if x.weak and dtypes.is_inexact(x.spec.dtype) else x
    if type(x) in (list, tuple):
        return type(x)(map(_strong, x))
    return x


def _in_float64(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return [_in_float64(each) for each in x]
    return x.astype("float64") if isinstance(x, ArrayMethods) else np.asarray(x, np.float64)


def _is_float(x: Any) -> bool:
    return isinstance(x, (ArrayMethods, np.ndarray)) and dtypes.is_inexact(x.dtype)
