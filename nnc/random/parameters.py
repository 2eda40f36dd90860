"""How draws read their arguments: dtypes, parameters that broadcast together, and shapes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from nnc.array.array import Array
from nnc.array.promote import apply, as_operand, astype, broadcast_shapes, broadcast_to_shape, dtype_of, to_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.numpy.operands import to_shape, to_value
from nnc.random.keys import Shape

finfo: Any = ml_dtypes.finfo  # which knows bfloat16, too
F = TypeVar("F", bound=Callable[..., Any])


def float_dtype(dtype: Any, where: str) -> dtypes.DType:
    """Returns the dtype of a draw of real numbers.

    Raises:
        DTypeError: it is no real floating-point dtype.
    """
    wanted = to_dtype(dtype, where)
    if not dtypes.is_float(wanted):
        problem = f"dtype is {wanted.name}."
        raise user_error(DTypeError, where, problem, fix="draw in a floating-point dtype, such as 'float32'.")
    return wanted


def read_parameter(x: Any, dtype: dtypes.DType, where: str, name: str) -> Array:
    """Returns a parameter of a distribution in the dtype of the draw; numbers become NumPy scalars."""
    return astype(as_operand(x, where, name), dtype, where)


def check_order(where: str, **bounds: Any) -> None:
    """Raises where two bounds are known numbers, and the first is above the second.

    Raises:
        ArgumentError: it is.
    """
    low, high = bounds.values()
    if isinstance(low, np.floating) and isinstance(high, np.floating) and low > high:
        problem = " and ".join(f"{name} is {value}" for name, value in bounds.items()) + "."
        raise user_error(ArgumentError, where, problem, fix="give the lower bound first.")


def joint_shape(shape: Any, where: str, **parameters: Array) -> Shape:
    """Returns the shape of a draw: `shape`, or where it is None the shape of the parameters together.

    Raises:
        ArgumentError: a size is negative.
        ShapeError: the parameters do not broadcast to it.
    """
    shapes = [np.shape(x) for x in parameters.values()]
    given = None if shape is None else to_shape(shape, where)
    try:
        joint = broadcast_shapes(*shapes)
        wanted = joint if given is None else given
        fits = broadcast_shapes(joint, wanted) == wanted
    except ValueError:
        fits = False
    if not fits:
        problem = f"parameters of shapes {' and '.join(map(str, shapes))} do not broadcast to shape {shape}."
        raise user_error(ShapeError, where, problem, fix="give a shape that ends with the shape of the parameters.")
    return wanted


def inexact_dtype(dtype: Any, where: str) -> dtypes.DType:
    """Returns the dtype of a draw of real or complex numbers.

    Raises:
        DTypeError: it is an integer or bool dtype.
    """
    wanted = to_dtype(dtype, where)
    return wanted if dtypes.is_complex(wanted) else float_dtype(wanted, where)


def integer_dtype(dtype: Any, where: str) -> dtypes.DType:
    """Returns the dtype of a draw of integers.

    Raises:
        DTypeError: it is no integer dtype.
    """
    wanted = to_dtype(dtype, where)
    if not dtypes.is_integer(wanted):
        problem = f"dtype is {wanted.name}."
        raise user_error(DTypeError, where, problem, fix="draw in an integer dtype, such as 'int32'.")
    return wanted


def read_together(where: str, dtype: Any, shape: Any, **parameters: Any) -> tuple[list[Array], Shape, dtypes.DType]:
    """Returns the parameters in the dtype of the draw, broadcast to its shape, that shape and dtype; see `joint_shape`.

    Raises:
        DTypeError: the dtype is no real floating-point dtype.
    """
    dtype = float_dtype(dtype, where)
    values = {name: read_parameter(x, dtype, where, name) for name, x in parameters.items()}
    wanted = joint_shape(shape, where, **values)
    return [to_value(broadcast_to_shape(x, wanted), where) for x in values.values()], wanted, dtype


def own_dtype(x: Any, where: str, name: str) -> dtypes.DType:
    """Returns the floating-point dtype of a parameter: an array's own, float32 for integers and Python numbers."""
    dtype = dtypes.to_float(dtype_of(as_operand(x, where, name)))
    return float_dtype(dtype, where)


def is_narrow(dtype: dtypes.DType) -> bool:
    """Whether a dtype is a 16-bit float: these are so few that noise in them follows no distribution."""
    return dtypes.accumulator(dtype) != dtype


def rounded(x: Array, dtype: dtypes.DType) -> Array:
    """Numbers in a dtype of fewer digits; those beyond its range become its largest."""
    most = dtype.type(float(finfo(dtype).max))
    limit = astype(most, x.spec.dtype)
    return astype(apply(ew.maximum, apply(ew.minimum, x, limit), -limit), dtype)


def in_single(draw: F) -> F:
    """Makes draws of 16-bit floats those of float32, rounded; `dtype` is a parameter of the function, which is `spelled`."""
    place = list(inspect.signature(draw).parameters).index("dtype")

    @functools.wraps(draw)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = args[place] if len(args) > place else kwargs.get("dtype")
        dtype = None if given is None else to_dtype(given, f"nnc.random.{draw.__name__}")
        if dtype is None or not is_narrow(dtype):
            return draw(*args, **kwargs)
        if len(args) > place:
            args = (*args[:place], dtypes.float32, *args[place + 1 :])
        else:
            kwargs["dtype"] = dtypes.float32
        return rounded(draw(*args, **kwargs), dtype)

    return spelled(call)  # type: ignore[return-value]
