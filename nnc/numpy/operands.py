"""How the functions of nnc.numpy read their arguments: arrays, dtypes, axes, shapes and static numbers."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

from nnc import tree
from nnc.array.array import Array, as_value
from nnc.array.operators import ArrayMethods
from nnc.array.promote import (
    WIDE,
    Listed,
    as_operand,
    as_operands,
    astype,
    dtype_of,
    is_weak,
    to_dtype,
    with_weakness,
)
from nnc.base import dtypes
from nnc.base.context import set_context
from nnc.calls.spelling import spelled
from nnc.commands.rules import check_axes, check_axis
from nnc.commands.shape import reshape
from nnc.errors import ArgumentError, ArgumentTypeError, NncError, TraceError, user_error
from nnc.errors.tracebacks import arguments_misfit
from nnc.graph import TensorSpec
from nnc.trace.core.flat import call_function

STATIC = (
    "take sizes from x.shape, which is known while tracing; or pass a Python integer, declared with static_argnums if it is "
    "an argument of the traced function."
)
SIZED = (
    "pass size=n, how many elements to return, so that the shape is known; or leave this out of the traced function."
)
Axis = int | Sequence[int] | None
Shape = tuple[int, ...]


def to_value(x: Any, where: str, name: str = "x") -> Array:
    """Returns an array or a tracer of `x`; Python numbers become weak arrays."""
    if hasattr(x, "spec"):
        return x
    x = as_operand(x, where, name)
    if dtypes.is_scalar(x):
        return Array(np.asarray(astype(x, dtypes.exact_dtype(x), where)), weak=dtypes.weakness_of(x))
    return x if hasattr(x, "spec") else as_value(x)


def to_values(where: str, **operands: Any) -> list[Array]:
    """Returns the operands as arrays, None as it is. Python numbers and lists of them have 64 bits where an array of floats has."""
    names = [name for name, x in operands.items() if x is not None]
    given = dict(zip(names, as_operands([operands[name] for name in names], where, names), strict=True))
    strong = [dtype_of(x) for x in given.values() if not isinstance(x, Listed) and not is_weak(x)]
    widen: Any = (lambda x: x) if WIDE.isdisjoint(strong) else _widened
    arrays: Any = {name: to_value(widen(x), where, name) for name, x in given.items()}
    return [arrays.get(name) for name in operands]


def _widened(x: Any) -> Any:
    if not (dtypes.is_scalar(x) or isinstance(x, Listed)) or not dtypes.is_inexact(dtype_of(x)):
        return x
    return astype(x, dtypes.complex128 if dtypes.is_complex(dtype_of(x)) else dtypes.float64)


def in_dtype(x: Any, dtype: dtypes.DType, where: str, name: str) -> Array:
    """Returns an array of a dtype. Python numbers, and lists of them, keep all digits that it has; floats become integers as
    arrays do.
    """
    value = as_operand(x, where, name, dtype if dtypes.is_integer(dtype) else None)
    if dtypes.is_scalar(value) and dtypes.is_inexact(dtype_of(value)) and not dtypes.is_inexact(dtype):
        value = to_value(value, where, name)
    return with_weakness(as_value(astype(value, dtype, where)), False)


def strong_dtype(x: Any) -> dtypes.DType:
    """Returns the dtype of a new array of the values of `x`: of weak floats and complex numbers the default one."""
    own = dtype_of(x)
    if not is_weak(x) or not dtypes.is_inexact(own):
        return own
    return dtypes.DEFAULT_COMPLEX if dtypes.is_complex(own) else dtypes.DEFAULT_FLOAT


def strong(x: Array, where: str) -> Array:
    """Returns a new array of the values of `x`, which keeps its dtype where it meets others; `x` itself where it does so."""
    return with_weakness(astype(x, strong_dtype(x), where), False)


def check_not_inplace(inplace: bool, where: str) -> None:
    """Raises ArgumentError for a function that is told to write into its argument."""
    if inplace:
        raise user_error(ArgumentError, where, "arrays are immutable.", fix="use the value that is returned.")


def converted(x: Array, dtype: Any, where: str) -> Array:
    """`x` in `dtype`, or as it is where `dtype` is None."""
    return x if dtype is None else with_weakness(astype(x, to_dtype(dtype, where), where), False)


def to_axes(where: str, axis: Axis, ndim: int) -> Shape:
    """Returns the axes that `axis` names, counted from the front; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, (tuple, list)):
        return check_axes(where, [static_int(a, where, "axis") for a in axis], ndim)
    return (to_axis(where, axis, ndim),)


def to_axis(where: str, axis: Any, ndim: int) -> int:
    """One axis, counted from the front."""
    return check_axis(where, static_int(axis, where, "axis"), ndim)


def known(x: Any, where: str, fix: str) -> np.ndarray[Any, Any]:
    """Returns the value of `x` as a NumPy array.

    Raises:
        TraceError: it is an abstract tracer; the remedy is `fix`.
    """
    value: np.ndarray[Any, Any] = to_value(x, where).concrete(where, fix)
    return value


def at_once(*operands: Any) -> AbstractContextManager[Any]:
    """A block within which commands on known values run at once, so that their results are known, too, while a function is traced.

    Args:
        operands: the operands of the block. Where one is traced, the block changes nothing.
    """
    is_traced = any(hasattr(x, "spec") and not isinstance(x, Array) for x in operands)
    return nullcontext() if is_traced else set_context(staging=None)


def known_or_none(x: Array) -> np.ndarray[Any, Any] | None:
    """Returns the value of `x`; None for an abstract tracer."""
    try:
        return known(x, "", "pass a known value.")  # no remedy is sought, since nobody sees the error
    except TraceError:
        return None


def to_size(x: Any, where: str, name: str) -> int:
    """`x` as a Python integer of 0 or more.

    Raises:
        ArgumentError: it is negative.
        TraceError, ArgumentTypeError: see `static_int`.
    """
    n = static_int(x, where, name)
    if n < 0:
        raise user_error(ArgumentError, where, f"{name} is {n}.", fix="give 0 or more.")
    return n


_AXIS_FIXES: Mapping[str, str] = MappingProxyType(  # for a second array where the axis belongs
    {
        **{name: f"pass the arrays as one list: {name}([x, y])." for name in ("concatenate", "stack")},
        **{name: f"compare two arrays with nnp.{name}imum(x, y)." for name in ("max", "min")},
        "sum": "add two arrays with nnp.add(x, y).",
        "prod": "multiply two arrays with nnp.multiply(x, y).",
    }
)


def static_int(x: Any, where: str, name: str) -> int:
    """`x` as a Python integer.

    Raises:
        TraceError: it is a traced value.
        ArgumentTypeError: it is no integer.
    """
    if hasattr(x, "spec"):
        x.concrete(f"{where}({name})", STATIC)
        if x.ndim and name in ("axis", "axes"):
            problem = f"{name} is an array of shape {tuple(x.shape)}, not an integer."
            fix = _AXIS_FIXES.get(where, f"pass a Python integer for {name}.")
            raise user_error(ArgumentTypeError, where, problem, operands={name: x.spec}, fix=fix)
    try:
        return operator.index(x)
    except NncError:
        raise
    except TypeError:
        problem = f"{name} is {x!r} ({type(x).__name__}), not an integer."
        raise user_error(ArgumentTypeError, where, problem, fix=f"pass a Python integer for {name}.") from None


def to_shape(shape: Any, where: str) -> Shape:
    """Returns a shape given as an integer or a sequence of integers.

    Raises:
        ArgumentError: a size is negative.
    """
    sizes = shape if isinstance(shape, (tuple, list)) or (isinstance(shape, np.ndarray) and shape.ndim) else (shape,)
    result = tuple(static_int(n, where, "shape") for n in sizes)
    if any(n < 0 for n in result):
        raise user_error(ArgumentError, where, f"shape {result} has a negative size.", fix="give sizes of 0 or more.")
    return result


def keep(x: Array, spec: TensorSpec, axes: Shape, keepdims: bool) -> Array:
    """Returns the result of a reduction of `spec`, with size-1 axes in place of the removed ones where `keepdims`."""
    if not keepdims:
        return x
    return reshape(x, shape=tuple(1 if i in axes else n for i, n in enumerate(spec.shape)))


def ravel_for(axis: int | None, x: Array) -> tuple[Array, int]:
    """NumPy's convention for functions along one axis: None means the flattened array."""
    if axis is not None:
        return x, axis
    return (x if x.spec.ndim == 1 else reshape(x, shape=(x.spec.size,))), 0


# -- weakness: see docs/arrays.md -------------------------------------------------------------------------------------

F = TypeVar("F", bound=Callable[..., Any])


def keeps_weakness(function: F, counts: bool = False) -> F:
    """Lets a function of weak floats compute them in 64 bits, and makes its results weak, integers of weak integers too. The
    function is `spelled`.

    Elementwise functions and commands do so by themselves. This is for functions that convert their operands, or join them with
    constants.

    Args:
        function: its first argument is an operand, and so are the arrays among the others; numbers there are settings.
        counts: whether its integers are counts, places or exponents, which are strong.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            weak = _weakness_of_results(args, kwargs)
            return _in_64_bits(function, weak, args, kwargs, counts) if weak else function(*args, **kwargs)
        except TypeError as error:
            other = arguments_misfit(error, function, function.__name__, args, kwargs)
            if other is None:
                raise
            raise other from None

    return spelled(cast(F, call))


def _in_64_bits(
    function: Any, weak: dtypes.Weakness, args: tuple[Any, ...], kwargs: dict[str, Any], counts: bool
) -> Any:
    """Returns the result of a function of weak operands, with weak floats, and weak integers unless it counts."""
    first, *rest = _array(args[0]), *map(_strong, args[1:])
    named = {name: _strong(x) for name, x in kwargs.items()}
    result = call_function(function, (first, *rest), named)
    if not _is_float(first) and any(map(_is_float, tree.leaves(result))):  # a formula of integers has 64 bits, too
        result = function(_in_float64(first), *rest, **named)

    def weakened(x: Any) -> Any:
        if _is_float(x):
            return with_weakness(x, weak)
        is_number = isinstance(x, ArrayMethods) and dtypes.is_integer(x.dtype) and not counts
        return with_weakness(x, True) if is_number else x

    return tree.map(weakened, result)


def _is_weak(x: Any) -> bool:
    """Whether a first argument is weak: an array or a number. A list is a new array, and strong."""
    weak = getattr(x, "weak", None)
    return isinstance(x, (int, float, complex)) if weak is None else bool(weak)


def _leaves(values: Sequence[Any]) -> list[Any]:
    return [leaf for value in values for leaf in (tree.leaves(value) if isinstance(value, (list, tuple)) else (value,))]


def _weakness_of_results(args: Sequence[Any], kwargs: dict[str, Any]) -> dtypes.Weakness:
    """Returns the weakness of float results; False where an operand is a strong float, or an array beside an integer."""
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
        if place >= len(first) and own and not x.ndim:
            continue  # a number, which is a setting there
        if not own and not dtypes.is_bool(x.dtype) and (not has_floats or dtypes.is_inexact(x.dtype)):
            return False
        if own is True and x.dtype in WIDE:
            weak = True
    return weak


def _array(x: Any) -> Any:
    """Returns the first operand with strong floats; a float as an array that has all of its digits."""
    return np.asarray(x) if isinstance(x, (float, complex)) else _strong(x)


def _strong(x: Any) -> Any:
    """Returns an operand, or a list of them, with weak floats as strong ones."""
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
