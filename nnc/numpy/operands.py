"""How the functions of nnc.numpy read their arguments: arrays, dtypes, axes, shapes and static numbers."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

import numpy as np

from nnc.array.array import Array, as_value
from nnc.base import dtypes
from nnc.base.context import set_context
from nnc.commands.promote import (
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
from nnc.commands.rules import check_axes, check_axis
from nnc.commands.shape import reshape
from nnc.errors import ArgumentError, ArgumentTypeError, NncError, TraceError, user_error
from nnc.graph import TensorSpec

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
    """An array or a tracer of `x`; Python numbers become weak arrays."""
    if hasattr(x, "spec"):
        return x
    x = as_operand(x, where, name)
    if dtypes.is_scalar(x):
        return Array(np.asarray(astype(x, dtypes.exact_dtype(x), where)), weak=dtypes.weakness_of(x))
    return x if hasattr(x, "spec") else as_value(x)


def to_values(where: str, **operands: Any) -> list[Array]:
    """The operands as arrays, None as it is. Python numbers and lists of them have 64 bits where an array of floats has."""
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
    """An array of a dtype. Python numbers, and lists of them, keep all digits that it has; floats become integers as arrays do."""
    value = as_operand(x, where, name, dtype if dtypes.is_integer(dtype) else None)
    if dtypes.is_scalar(value) and dtypes.is_inexact(dtype_of(value)) and not dtypes.is_inexact(dtype):
        value = to_value(value, where, name)
    return with_weakness(as_value(astype(value, dtype, where)), False)


def strong_dtype(x: Any) -> dtypes.DType:
    """The dtype of a new array of the values of `x`: of weak floats and complex numbers the default one."""
    own = dtype_of(x)
    if not is_weak(x) or not dtypes.is_inexact(own):
        return own
    return dtypes.DEFAULT_COMPLEX if dtypes.is_complex(own) else dtypes.DEFAULT_FLOAT


def strong(x: Array, where: str) -> Array:
    """A new array of the values of `x`, which keeps its dtype where it meets others; `x` itself where it does so."""
    return with_weakness(astype(x, strong_dtype(x), where), False)


def check_not_inplace(inplace: bool, where: str) -> None:
    """Raises ArgumentError for a function that is told to write into its argument."""
    if inplace:
        raise user_error(ArgumentError, where, "arrays are immutable.", fix="use the value that is returned.")


def converted(x: Array, dtype: Any, where: str) -> Array:
    """`x` in `dtype`, or as it is where `dtype` is None."""
    return x if dtype is None else with_weakness(astype(x, to_dtype(dtype, where), where), False)


def to_axes(where: str, axis: Axis, ndim: int) -> Shape:
    """The axes that `axis` names, counted from the front; all of them for None."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, (tuple, list)):
        return check_axes(where, [static_int(a, where, "axis") for a in axis], ndim)
    return (to_axis(where, axis, ndim),)


def to_axis(where: str, axis: Any, ndim: int) -> int:
    """One axis, counted from the front."""
    return check_axis(where, static_int(axis, where, "axis"), ndim)


def known(x: Any, where: str, fix: str) -> np.ndarray[Any, Any]:
    """The value of `x` as a NumPy array.

    Raises:
        TraceError: it is an abstract tracer; the remedy is `fix`.
    """
    value: np.ndarray[Any, Any] = to_value(x, where).concrete(where, fix)
    return value


def at_once(*operands: Any) -> AbstractContextManager[Any]:
    """A block within which commands on known values run at once, so that their results are known, too, while a function is traced.

    Args:
        operands: of the block. Where one is traced, the block changes nothing.
    """
    is_traced = any(hasattr(x, "spec") and not isinstance(x, Array) for x in operands)
    return nullcontext() if is_traced else set_context(staging=None)


def known_or_none(x: Array) -> np.ndarray[Any, Any] | None:
    """The value of `x`; None for an abstract tracer."""
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
    """A shape given as an integer or a sequence of integers.

    Raises:
        ArgumentError: a size is negative.
    """
    sizes = shape if isinstance(shape, (tuple, list)) or (isinstance(shape, np.ndarray) and shape.ndim) else (shape,)
    result = tuple(static_int(n, where, "shape") for n in sizes)
    if any(n < 0 for n in result):
        raise user_error(ArgumentError, where, f"shape {result} has a negative size.", fix="give sizes of 0 or more.")
    return result


def keep(x: Array, spec: TensorSpec, axes: Shape, keepdims: bool) -> Array:
    """The result of a reduction of `spec`, with size-1 axes in place of the removed ones where `keepdims`."""
    if not keepdims:
        return x
    return reshape(x, shape=tuple(1 if i in axes else n for i, n in enumerate(spec.shape)))


def ravel_for(axis: int | None, x: Array) -> tuple[Array, int]:
    """NumPy's convention for functions along one axis: None means the flattened array."""
    if axis is not None:
        return x, axis
    return (x if x.spec.ndim == 1 else reshape(x, shape=(x.spec.size,))), 0
