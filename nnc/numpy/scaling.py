"""Computations whose steps would leave the range of a dtype although their results do not: lengths, means, deviations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.assume import Range, assume, assumes
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.parts import exponent
from nnc.commands.reduce import reduce_max, reduce_sum
from nnc.numpy.operands import Shape, keep

# Sums of sizes, below and above which squares lose digits or overflow, and the factors for these. The square of a factor above 1
# is finite, since second derivatives hold it.
_SAFE: Mapping[Any, tuple[float, float, float, float]] = MappingProxyType(
    {
        dtypes.float32: (2.0**-32, 2.0**63, 2.0**63, 2.0**-84),
        dtypes.float64: (2.0**-256, 2.0**511, 2.0**511, 2.0**-580),
    }
)


def largest_part(sizes: Array, axes: Shape) -> Array:
    """Returns the largest of sizes over axes, which are kept; 0 of none. It has no derivative."""
    if 0 in [sizes.spec.shape[axis] for axis in axes]:
        return sum_of_sizes(sizes, axes)
    return keep(reduce_max(ew.stop_gradient(sizes), axes=axes), sizes.spec, axes, True)


def sum_of_sizes(x: Array, axes: Shape) -> Array:
    """Returns the sum of |x| over axes, which are kept; of complex numbers that of the sizes of both parts. It has no
    derivative.
    """
    x = ew.stop_gradient(x)
    is_complex = dtypes.is_complex(x.spec.dtype)
    sizes = ew.add(ew.abs_(ew.real(x)), ew.abs_(ew.imag(x))) if is_complex else ew.abs_(x)
    return keep(reduce_sum(sizes, axes=axes), sizes.spec, axes, True)


def factor_for_squares(sizes: Array) -> Array:
    """Returns a power of two for each size, by which numbers up to it can be multiplied so that sums of their squares stay in
    range.

    It is 1 where they do so anyway: then no bit of a result changes. `sizes` are float32 or float64: the sum of all numbers, or
    another bound on the largest.
    """
    low, high, grow, shrink = (constants.full_like(sizes, value) for value in _SAFE[sizes.spec.dtype])
    zero, one = (constants.full_like(sizes, value) for value in (0, 1))
    below = ew.select(ew.less(sizes, low), ew.select(ew.greater(sizes, zero), grow, one), one)
    return ew.select(ew.greater(sizes, high), shrink, below)


# Sums of squares, below and above which squares may have lost digits or overflown; there the factors do for all of them.
SAFE_SQUARES: Mapping[Any, tuple[float, float]] = MappingProxyType(
    {dtypes.float32: (2.0**-64, 2.0**126), dtypes.float64: (2.0**-512, 2.0**1022)}
)


def scaled_sum_of_squares(x: Array, axes: Shape, least: float = 0) -> tuple[Array, Array]:
    """Returns the sum of |x · factor|² over axes, and the factor: a power of two by which no square leaves the range, mostly 1.

    Args:
        x: real or complex, of an accumulator's dtype.
        axes: axes to remove.
        least: a number that is added to the sum, beside which smaller squares need no digits.
    """
    total = reduce_sum(squared_sizes(x), axes=axes)
    factor = constants.full_like(total, 1)
    for is_case, scale in unusual_squares(total, 1, least):
        total = ew.select(is_case, reduce_sum(squared_sizes(x * scale), axes=axes), total)
        factor = ew.select(is_case, constants.full_like(factor, scale), factor)
    return total, factor


def unusual_squares(means: Array, count: int, least: float = 0) -> list[tuple[Array, float]]:
    """Returns the cases in which squares left the range: which of their means, and a power of two to multiply the numbers by.

    A kernel sums once more where a case holds. `count` squares are summed for a mean, to which `least` is added.
    """
    (low, high), (_, _, grow, shrink) = SAFE_SQUARES[means.spec.dtype], _SAFE[means.spec.dtype]
    if usual(means, low / count, high / count):
        return []
    cases = [(ew.bitwise_not(ew.less_equal(means, constants.full_like(means, high / count))), shrink)]
    if least < low:
        cases.append((ew.less(means, constants.full_like(means, low / count)), grow))
    return cases


def squared_sizes(x: Array) -> Array:
    """|x|², smooth also at 0."""
    return ew.real(x * ew.conj(x)) if dtypes.is_complex(x.spec.dtype) else ew.square(x)


def usual(numbers: Array, low: float, high: float) -> bool:
    """Whether the sizes of numbers surely lie from `low` to below `high`, so that no other way need be gone: they are known, on
    the host, or a specialised call assumes it.
    """
    within = Range(low, high)
    return within.holds(numbers.data) if type(numbers) is Array else assume(numbers, within)


def may_be_differentiated(x: Any) -> bool:
    """Whether an array is being differentiated, or is a tracer of a graph that may be differentiated later.

    The graphs of specialised calls never are.
    """
    return getattr(x, "owner", None) is not None and not assumes()


def binary_exponent(sizes: Array) -> Array:
    """Returns the exponents of two of sizes, such that 2^-exponent is a float; in their dtype."""
    limit = constants.full_like(sizes, 126 if sizes.spec.dtype == dtypes.float32 else 1022)
    n = ew.convert(exponent(sizes), dtype=sizes.spec.dtype)
    return ew.maximum(ew.minimum(n, limit), ew.neg(limit))
