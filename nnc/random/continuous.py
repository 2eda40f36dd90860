"""Draws of real numbers. All are written with commands, so they trace, batch and compile; parameters may be traced.

They have the same bits however they run. Values agree with jax.random for the same key up to rounding, but for 16-bit floats: of
these only `uniform` does, the others are draws of float32, rounded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import apply, astype, broadcast_to_shape
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.commands.draws import normal_quantile, portable_log, portable_log1p, truncated_normal_quantile
from nnc.numpy import elementwise as el
from nnc.random.exact import finfo, times
from nnc.random.keys import Shape, draw_bits, read_key, split
from nnc.random.parameters import check_order, float_dtype, in_single, inexact_dtype, joint_shape, read_parameter
from nnc.typing import ArrayLike, DTypeLike, ShapeLike

__all__ = ["exponential", "gumbel", "laplace", "normal", "truncated_normal", "uniform"]


def _is_number(x: Array) -> bool:
    """Whether a parameter that was read is a number that is known."""
    return isinstance(x, np.generic)


def _unit(key: Array, shape: Shape, dtype: dtypes.DType) -> Array:
    """Multiples of 2^-m in [0, 1), where m is the number of fraction bits of `dtype`."""
    fraction = finfo(dtype).nmant
    width = 8 if fraction < 8 else 8 * dtype.itemsize
    drawn = draw_bits(key, shape, width)
    numbers = ew.convert(drawn >> drawn.dtype.type(width - fraction), dtype=dtype)
    return numbers * dtype.type(2.0**-fraction)


@spelled
def uniform(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike = dtypes.float32,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
) -> Array:
    """Numbers that are uniform in [minval, maxval).

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: a floating-point dtype.
        minval: lower bound, which is included; broadcasts to `shape`.
        maxval: upper bound, which is left out, also where a sum is rounded up to it; broadcasts to `shape`.

    Raises:
        DTypeError: dtype is not floating-point.
        ShapeError: the bounds do not broadcast to `shape`.
        ArgumentError: the bounds are numbers in the wrong order.

    Example:
        >>> nnc.random.uniform(nnc.random.key(0), (2,))
        Array([0.94..., 0.97...], dtype=float32)
    """
    where = "nnc.random.uniform"
    key, dtype = read_key(key, where), float_dtype(dtype, where)
    low, high = read_parameter(minval, dtype, where, "minval"), read_parameter(maxval, dtype, where, "maxval")
    check_order(where, minval=low, maxval=high)
    shape = joint_shape(shape, where, minval=low, maxval=high)
    unit = _unit(key, shape, dtype)
    if _is_number(low) and _is_number(high) and low == 0 and high == 1:
        return unit
    if _is_number(low) and _is_number(high) and float(high) - float(low) <= float(finfo(dtype).max):
        x = times(unit, high - low) + low
    else:  # the width may overflow
        width, half = apply(ew.sub, high, low), apply(ew.mul, low, dtype.type(0.5))
        is_wide = apply(ew.isinf, width)
        by_halves = (times(unit, apply(ew.mul, high, dtype.type(0.5)) - half) + half) * 2
        x = el.where(is_wide, by_halves, times(unit, el.where(is_wide, dtype.type(0), width)) + low)
    # the sum may be rounded up to the bound
    below = apply(ew.nextafter, apply(ew.stop_gradient, high), dtype.type(-np.inf))
    return apply(ew.maximum, broadcast_to_shape(low, shape), apply(ew.minimum, x, below))


@in_single
def normal(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of the standard normal distribution; complex ones have parts of variance 1/2 each.

    x = √2 erfinv(u), u uniform in (−1, 1)

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: a floating-point or complex dtype.

    Raises:
        DTypeError: dtype is not floating-point or complex.

    Example:
        >>> nnc.random.normal(nnc.random.key(0), (2, 3)).shape
        (2, 3)
    """
    where = "nnc.random.normal"
    dtype = inexact_dtype(dtype, where)
    if dtypes.is_complex(dtype):
        parts = (normal(part, shape, dtypes.real_dtype(dtype)) for part in split(key))
        return ew.complex_(*(times(x, 1 / math.sqrt(2)) for x in parts))
    low = np.nextafter(dtype.type(-1), dtype.type(0), dtype=dtype)
    return normal_quantile(uniform(read_key(key, where), shape, dtype, low, dtype.type(1)))


@spelled
def truncated_normal(
    key: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = dtypes.float32,
) -> Array:
    """Numbers of the standard normal distribution that lie in (lower, upper), as exact far from 0 as near it.

    Args:
        key: a key that is used for nothing else.
        lower: lower bound; broadcasts with `upper`.
        upper: upper bound.
        shape: by default the shape of the bounds together.
        dtype: a floating-point dtype.

    Raises:
        DTypeError: dtype is not floating-point.
        ShapeError: the bounds do not broadcast to `shape`.
        ArgumentError: the bounds are numbers in the wrong order.

    Example:
        >>> bool(abs(nnc.random.truncated_normal(nnc.random.key(0), -1, 1, (100,))).max() < 1)
        True
    """
    where = "nnc.random.truncated_normal"
    key, dtype = read_key(key, where), float_dtype(dtype, where)
    noise = dtypes.accumulator(dtype)
    low, high = read_parameter(lower, dtype, where, "lower"), read_parameter(upper, dtype, where, "upper")
    check_order(where, lower=low, upper=high)
    shape = joint_shape(shape, where, lower=low, upper=high)
    # to the middle of the interval that a number stands for: 0 would be an infinite bound
    half = noise.type(2.0 ** -(finfo(noise).nmant + 1))
    bounds = (astype(x, noise) for x in (low, high))
    x = astype(apply(truncated_normal_quantile, _unit(key, shape, noise) + half, *bounds), dtype)
    least = apply(ew.nextafter, ew.stop_gradient(low), dtype.type(np.inf))
    most = apply(ew.nextafter, ew.stop_gradient(high), dtype.type(-np.inf))
    return apply(ew.minimum, apply(ew.maximum, x, least), most)


@in_single
def exponential(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of the exponential distribution with mean 1.

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: a floating-point dtype.

    Example:
        >>> bool((nnc.random.exponential(nnc.random.key(0), (10,)) >= 0).all())
        True
    """
    where = "nnc.random.exponential"
    return ew.abs_(portable_log(1 - uniform(read_key(key, where), shape, float_dtype(dtype, where))))


@in_single
def gumbel(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike = dtypes.float32) -> Array:
    """Numbers of the standard Gumbel distribution: -log(-log u); the greatest of `logits + gumbel` is a categorical draw.

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.gumbel(nnc.random.key(0), (3,)).shape
        (3,)
    """
    where = "nnc.random.gumbel"
    dtype = float_dtype(dtype, where)
    tiny = dtype.type(finfo(dtype).tiny)
    return -portable_log(-portable_log(uniform(read_key(key, where), shape, dtype, tiny, dtype.type(1))))


@in_single
def laplace(key: Any, shape: Any = (), dtype: Any = dtypes.float32) -> Array:
    """Numbers of the Laplace distribution with mean 0 and scale 1.

    Args:
        key: a key that is used for nothing else.
        shape: shape of the draw.
        dtype: a floating-point dtype.

    Example:
        >>> nnc.random.laplace(nnc.random.key(0), (3,)).shape
        (3,)
    """
    where = "nnc.random.laplace"
    dtype = float_dtype(dtype, where)
    low = dtype.type(-1) + dtype.type(finfo(dtype).epsneg)
    u = uniform(read_key(key, where), shape, dtype, low, dtype.type(1))
    return ew.sign(u) * portable_log1p(-ew.abs_(u))
