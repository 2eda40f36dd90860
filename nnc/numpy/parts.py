"""Numbers taken apart and put together: fraction and exponent, bits, common divisors."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import astype, broadcast, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands import parts as commands
from nnc.commands.elementwise import FLOAT, INTEGER
from nnc.commands.rules import check_dtype
from nnc.errors import DTypeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy.manipulation import moveaxis
from nnc.numpy.operands import keeps_weakness, ravel_for, static_int, to_axis, to_value
from nnc.numpy.reductions import sum as sum_
from nnc.numpy.repetition import pad
from nnc.typing import ArrayLike

__all__ = ["bitwise_count", "frexp", "gcd", "lcm", "ldexp", "modf", "packbits", "spacing", "unpackbits"]

# -- floats ------------------------------------------------------------------------------------------------------------


def _float(x: Any, where: str) -> Array:
    (x,) = promote(x, where=where, to=dtypes.to_float)
    x = to_value(x, where)
    check_dtype(where, x.spec, *FLOAT)
    return x


@spelled
def modf(x: ArrayLike, /) -> tuple[Array, Array]:
    """Returns the fraction and the whole part of `x`, both with its sign.

    Args:
        x: real, any shape.

    Example:
        >>> modf(-2.5)
        (Array(-0.5, dtype=float32), Array(-2., dtype=float32))
    """
    x = _float(x, "modf")
    whole = ew.trunc(x)
    return el.copysign(el.where(el.isinf(x), 0, x - whole), x), whole


@partial(keeps_weakness, counts=True)
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Returns the mantissa, from 0.5 to 1, and the exponent (int32) of `x` = mantissa · 2**exponent; 0 of 0.

    Args:
        x: real, any shape.

    Example:
        >>> frexp(6.0)
        (Array(0.75, dtype=float32), Array(3, dtype=int32))
    """
    x = _float(x, "frexp")
    exponent = commands.exponent(x)
    return commands.ldexp(x, astype(-exponent, x.spec.dtype)), exponent


@keeps_weakness
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns `x1` · 2**`x2` for integers `x2`, also where 2**x2 by itself would overflow.

    Args:
        x1: real, any shape; broadcasts with `x2`.
        x2: integers, any shape.

    Raises:
        DTypeError: x2 is no integer.

    Example:
        >>> ldexp(0.75, 3)
        Array(6., dtype=float32)
    """
    x, n = _float(x1, "ldexp"), to_value(x2, "ldexp", "x2")
    check_dtype("ldexp", n.spec, *INTEGER, "x2")
    x, n = broadcast(
        x, astype(el.clip(n, -(2**12), 2**12) if n.spec.dtype.itemsize > 1 else n, x.spec.dtype), where="ldexp"
    )
    return commands.ldexp(x, n)


@spelled
def spacing(x: ArrayLike, /) -> Array:
    """Returns the distance from `x` to the next float that is farther from 0, with the sign of x.

    Args:
        x: real, any shape.

    Example:
        >>> spacing(np.float32(1)) == nnp.finfo("float32").eps
        Array(True, dtype=bool)
    """
    x = _float(x, "spacing")
    return el.nextafter(x, el.where(el.less(x, 0), -math.inf, math.inf)) - x


# -- integers ----------------------------------------------------------------------------------------------------------


@spelled
def gcd(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the greatest common divisor of |x1| and |x2|; the one of 0 and n is |n|.

    Args:
        x1: integers, any shape; broadcasts with `x2`.
        x2: integers, any shape.

    Example:
        >>> gcd(np.asarray([12, 7]), 18)
        Array([6, 1], dtype=int64)
    """
    return el.call("gcd", commands.gcd, INTEGER, None, x1, x2)


@spelled
def lcm(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Returns the least common multiple of |x1| and |x2|; the one of 0 and n is 0.

    Args:
        x1: integers, any shape; broadcasts with `x2`.
        x2: integers, any shape.

    Example:
        >>> lcm(np.asarray([4, 6]), 10)
        Array([20, 30], dtype=int64)
    """
    return el.call("lcm", commands.lcm, INTEGER, None, x1, x2)


@spelled
def bitwise_count(x: ArrayLike, /) -> Array:
    """Returns the number of ones in |x| written in binary, as uint8.

    Args:
        x: integers, any shape.

    Example:
        >>> bitwise_count(np.asarray([7, 8]))
        Array([3, 1], dtype=uint8)
    """
    return el.call("bitwise_count", commands.bit_count, INTEGER, None, x)


# -- bits --------------------------------------------------------------------------------------------------------------

_ORDERS = ("big", "little")


def _weights(bitorder: str, where: str) -> np.ndarray[Any, Any]:
    """Returns the shift of the bit at each place of a byte."""
    check_choice(where, "bitorder", bitorder, _ORDERS)
    shifts = np.arange(8, dtype=np.uint8)
    return shifts if bitorder == "little" else shifts[::-1].copy()


@spelled
def packbits(x: ArrayLike, /, axis: int | None = None, bitorder: str = "big") -> Array:
    """Packs elements into bits, 1 where they are not 0: each byte (uint8) holds eight elements along `axis`; None flattens
    first.

    Args:
        x: bools or integers, any shape.
        axis: axis along which eight elements make a byte; None flattens first.
        bitorder: "big": the first element is the highest bit; "little": the lowest. The last byte is filled with zeros.

    Raises:
        DTypeError: floats or complex numbers.

    Example:
        >>> packbits(np.asarray([True, False, True]))
        Array([160], dtype=uint8)
    """
    x = to_value(x, "packbits")
    if dtypes.is_inexact(x.spec.dtype):
        problem = f"{x.spec.dtype.name} has no bits to pack."
        raise user_error(DTypeError, "packbits", problem, operands={"x": x.spec}, fix="pass x != 0.")
    x, at = ravel_for(axis, x)
    at = to_axis("packbits", at, x.spec.ndim)
    bits = astype(moveaxis(el.as_bool(x, "packbits"), at, -1), dtypes.uint8)
    n = bits.spec.shape[-1]
    bits = pad(bits, [(0, 0)] * (bits.spec.ndim - 1) + [(0, -n % 8)])
    rows = bits.reshape(*bits.spec.shape[:-1], -(-n // 8), 8)
    return moveaxis(sum_(ew.shift_left(rows, _spread(_weights(bitorder, "packbits"), rows)), -1, dtypes.uint8), -1, at)


@spelled
def unpackbits(x: ArrayLike, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """Returns the bits of bytes (uint8) as elements 0 and 1 along `axis`; None flattens first.

    Args:
        x: uint8, any shape.
        axis: axis along which the bits of a byte are laid out; None flattens first.
        count: how many bits to return, filled with zeros; a negative number leaves so many out at the end.
        bitorder: "big": the first element is the highest bit; "little": the lowest.

    Raises:
        DTypeError: x is not uint8.

    Example:
        >>> unpackbits(np.asarray([160], np.uint8), count=3)
        Array([1, 0, 1], dtype=uint8)
    """
    x = to_value(x, "unpackbits")
    check_dtype("unpackbits", x.spec, lambda dtype: dtype == dtypes.uint8, "uint8")
    x, at = ravel_for(axis, x)
    at = to_axis("unpackbits", at, x.spec.ndim)
    rows = moveaxis(x, at, -1)[..., None]
    rows = rows.repeat(8, -1)
    bits = ew.bitwise_and(
        ew.shift_right(rows, _spread(_weights(bitorder, "unpackbits"), rows)), constants.full_like(rows, 1)
    )
    bits = bits.reshape(*bits.spec.shape[:-2], bits.spec.shape[-2] * 8)
    if count is not None:
        n, wanted = bits.spec.shape[-1], static_int(count, "unpackbits", "count")
        wanted = wanted if wanted >= 0 else max(0, n + wanted)
        bits = pad(bits, [(0, 0)] * (bits.spec.ndim - 1) + [(0, max(0, wanted - n))])[..., :wanted]
    return moveaxis(bits, -1, at)


def _spread(weights: np.ndarray[Any, Any], like: Array) -> Array:
    return to_value(np.broadcast_to(weights, like.spec.shape), "bits")
