"""Operands of special functions, which are computed in float64 and rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.array import Array
from nnc.commands.elementwise import FLOAT
from nnc.commands.promote import as_operand, astype, broadcast, is_weak_result, promote
from nnc.commands.rules import check_dtype
from nnc.commands.shape import broadcast_to
from nnc.errors import ArgumentError, user_error
from nnc.graph import spec_of
from nnc.numpy import elementwise as el
from nnc.numpy.operands import static_int


def in_float64(where: str, function: Callable[..., Array], *operands: Any) -> Array:
    """`function` of the operands, promoted to a floating-point dtype, which its result has, and to one shape.

    Raises:
        DTypeError: an operand is complex.
        ShapeError: the shapes do not broadcast.
    """
    given = [as_operand(x, where) for x in operands]
    promoted = promote(*given, where=where, to=dtypes.to_float)
    spec = spec_of(promoted[0])
    check_dtype(where, spec, *FLOAT)
    arrays = [astype(x, dtypes.float64) for x in broadcast(*promoted, where=where)]
    result = astype(function(*arrays), spec.dtype)
    return result.as_weak() if is_weak_result(spec.dtype, given) else result


def order_of(where: str, n: Any, name: str = "n") -> int:
    """A static order of 0 or more.

    Raises:
        ArgumentError: it is negative.
        TraceError, ArgumentTypeError: it is traced, or no integer.
    """
    order = static_int(n, where, name)
    if order < 0:
        raise user_error(ArgumentError, where, f"{name} is {order}.", fix=f"give an integer {name} of 0 or more.")
    return order


def column(values: Any, like: Array) -> Array:
    """A vector of float64 numbers along a new last axis behind those of `like`."""
    vector = np.asarray(values, np.float64)
    return broadcast_to(vector.reshape((1,) * like.ndim + vector.shape), shape=(*like.shape, *vector.shape))


def keep(condition: Array, x: Array, otherwise: float) -> Array:
    """`x` where the condition holds; elsewhere a harmless number, so that branches that are not taken have no bad derivatives."""
    return el.where(condition, x, otherwise)
