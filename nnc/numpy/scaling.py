"""Computations whose steps would leave the range of a dtype although their results do not: lengths, means, deviations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.array import Array
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.parts import exponent
from nnc.commands.reduce import reduce_max
from nnc.numpy.operands import Shape, keep

# sizes of which squares are exact enough and sums of squares finite, and the factors for those below and above
_SAFE = {
    dtypes.float32: (2.0**-40, 2.0**48, 2.0**88, 2.0**-80),
    dtypes.float64: (2.0**-450, 2.0**480, 2.0**600, 2.0**-560),
}
_WIDE = {
    dtypes.bfloat16: dtypes.float64, dtypes.float32: dtypes.float64, dtypes.complex64: dtypes.complex128,
    dtypes.float16: dtypes.float32,
}  # fmt: skip


def with_range(dtype: dtypes.DType) -> dtypes.DType:
    """A dtype that holds the squares, and sums of squares, of all numbers of a dtype; float64 and complex128 have only themselves.

    Example:
        >>> with_range(dtypes.float16).name, with_range(dtypes.float32).name
        ('float32', 'float64')
    """
    return _WIDE.get(dtype, dtype)


def largest_part(x: Array, axes: Shape) -> Array:
    """The largest size of an element, or of a part of a complex one, over axes that are kept; 0 of none. It has no derivative."""
    x = ew.stop_gradient(x)
    is_complex = dtypes.is_complex(x.spec.dtype)
    sizes = ew.maximum(ew.abs_(ew.real(x)), ew.abs_(ew.imag(x))) if is_complex else ew.abs_(x)
    if 0 in [x.spec.shape[axis] for axis in axes]:
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.spec.shape))
        return constants.full(shape=shape, dtype=sizes.spec.dtype, value=0)
    return keep(reduce_max(sizes, axes=axes), sizes.spec, axes, True)


def factor_for_squares(sizes: Array) -> Array:
    """A power of two for each size, by which numbers up to it can be multiplied so that sums of their squares stay in range.

    It is 1 where they do so anyway: then no bit of a result changes. `sizes` are float32 or float64: the largest number, or the sum
    of all, which costs less to find.
    """
    low, high, grow, shrink = (constants.full_like(sizes, value) for value in _SAFE[sizes.spec.dtype])
    below = ew.select(ew.less(sizes, low), grow, constants.full_like(sizes, 1))
    return ew.select(ew.greater(sizes, high), shrink, below)


def binary_exponent(sizes: Array) -> Array:
    """The exponents of two of sizes, such that 2^-exponent is a float; in their dtype."""
    limit = constants.full_like(sizes, 126 if sizes.spec.dtype == dtypes.float32 else 1022)
    n = ew.convert(exponent(sizes), dtype=sizes.spec.dtype)
    return ew.maximum(ew.minimum(n, limit), ew.neg(limit))


def unless(is_safe: Callable[[Any], Any], value: Array, careful: Callable[[], Array]) -> Array:
    """`value`, where it is an array in memory that is safe in all elements; else what the careful, slower way gives.

    So eager calls take the slow way only where they need it, and traced ones, which see no numbers, always do.
    """
    return value if type(value) is Array and np.all(is_safe(np.asarray(value))) else careful()
