"""Steps of draws whose bits do not depend on how they run: powers, sums in one order, and uniform numbers of 52 bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes

from nnc.array.array import Array
from nnc.array.promote import apply, astype
from nnc.base import dtypes
from nnc.commands.draws import portable_exp, portable_log, product, unit_of_words
from nnc.commands.shape import concatenate, slice_axis
from nnc.numpy import elementwise as el
from nnc.random.keys import Shape, draw_bits

finfo: Any = ml_dtypes.finfo  # which knows bfloat16, too


def times(x: Any, y: Any) -> Array:
    """x · y, rounded also where products are joined with sums; they broadcast, and Python's numbers take the other's dtype."""
    return apply(product, x, y)


def power(x: Array, y: Array) -> Array:
    """x^y for x >= 0, in float64, in the dtype of x."""
    wide, exponent = (astype(value, dtypes.float64) for value in (x, y))
    wide = el.maximum(wide, dtypes.float64.type(finfo(dtypes.float64).tiny))  # so that its logarithm is finite
    return astype(portable_exp(product(exponent, portable_log(wide))), x.spec.dtype)


def sum_last(x: Array) -> Array:
    """Returns the sum over the last axis, of at least one element, by halves: the first with the second, and so on."""
    axis = x.spec.ndim - 1
    while (size := x.spec.shape[axis]) > 1:
        half = size // 2
        pairs = slice_axis(x, axis, 0, half) + slice_axis(x, axis, half, 2 * half)
        x = concatenate(pairs, slice_axis(x, axis, 2 * half, size), axis=axis) if size % 2 else pairs
    return x[..., 0]


def fine_unit(key: Array, shape: Shape) -> Array:
    """Uniform numbers of 52 bits in (0, 1), in float64; the upper 23 bits are those that `uniform` draws in float32."""
    return unit_of_words(draw_bits(key, shape, 64))
