"""Means and deviations, also of numbers whose sums or squares leave the range, and of numbers far from 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nnc.array.array import Array, array_method_by_value
from nnc.array.promote import astype, is_weak, to_dtype, with_weakness
from nnc.base import dtypes
from nnc.base.records import record
from nnc.base.traced_size import float_of
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.elementwise import NUMERIC
from nnc.commands.reduce import reduce_sum
from nnc.commands.rules import check_dtype
from nnc.commands.shape import reshape
from nnc.numpy import elementwise as el
from nnc.numpy.operands import Axis, Shape, keeps_weakness, to_axes, to_value
from nnc.numpy.reductions import apply_reduction, mask_of
from nnc.numpy.scaling import may_be_differentiated, squared_sizes, unusual_squares, usual
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["mean", "std", "var"]


def with_range(dtype: dtypes.DType) -> dtypes.DType:
    """Returns the dtype in which sums of a dtype do not overflow: float64 for floats of fewer bits."""
    if not dtypes.is_inexact(dtype):
        return dtype
    return dtypes.complex128 if dtypes.is_complex(dtype) else dtypes.float64


@record
class _Rows:
    """The elements of an array that are summed to one of the result; `where` chooses some of them."""

    name: str
    x: Array
    axes: Shape
    keepdims: bool
    where: Any

    def sum(self, terms: Array, keepdims: bool | None = None) -> Array:
        """Returns the sums of terms, one for each element."""
        keepdims = self.keepdims if keepdims is None else keepdims
        return apply_reduction(self.name, reduce_sum, NUMERIC, terms, self.axes, keepdims, self.where, 0)

    def most(self) -> int:
        """Returns the number of elements of a row, of those, too, that are not chosen."""
        return math.prod(self.x.spec.shape[axis] for axis in self.axes)

    def count(self, keepdims: bool | None = None) -> Any:
        """Counts the elements of a row: a number, or an array of numbers where a mask chooses; an array of 0, which gives NaN or an
        infinity instead of an error, where there are none.
        """
        dtype = dtypes.real_dtype(self.x.spec.dtype)
        if self.where is None:
            most = self.most()
            return float_of(float, most) if most else constants.full(shape=(), dtype=dtype, value=0)
        mask = astype(mask_of(self.where, self.x.spec, self.name), dtype)
        keepdims = self.keepdims if keepdims is None else keepdims
        found = apply_reduction(self.name, reduce_sum, NUMERIC, mask, self.axes, keepdims)
        return with_weakness(found, is_weak(self.x))

    def means(self, *terms: Array) -> tuple[Array, ...]:
        """Returns the means of terms over axes that stay with size 1."""
        count = self.count(True)
        return tuple(self.sum(x, True) / count for x in terms)


class Moments(NamedTuple):
    """Statistics of values that are scaled, by a power of two that is mostly 1, so that their squares stay in range.

    Attributes:
        apart: the scaled values less a number near their mean.
        rest: the mean of these, which is about the rounding error of that number; centred values are apart - rest.
        variance: the variance of the scaled values.
        near: the number near the mean, not scaled.
        factor: the scale.
    """

    apart: Array
    rest: Array
    variance: Array
    near: Array
    factor: Array


Means = Callable[..., tuple[Array, ...]]  # the means of each of some arrays of terms


def _share(most: int) -> float:
    return 2.0 ** -math.ceil(math.log2(max(most, 1)))


def mean_in_range(x: Array, means: Means, most: int) -> Array:
    """Returns a mean of at most `most` numbers: by their sum, or, where that overflows, by the sum of small parts of them."""
    (plain,) = means(x)
    if not dtypes.is_inexact(x.spec.dtype) or usual(plain, 0, math.inf):
        return plain
    share = float_of(_share, most)  # of which no sum overflows, and which rounds nothing
    careful = means(ew.stop_gradient(x) * share)[0] / share
    return ew.with_slope(el.where(el.isfinite(plain), plain, careful), plain)


def moments_in_range(x: Array, means: Means, most: int, least: float = 0) -> Moments:
    """Returns the moments of at most `most` numbers a row; the variance is used with `least` added to it.

    Squares of differences from a number near the mean may be summed before their own mean is known (Chan, Golub and LeVeque, 1983).
    Rows whose squares leave the range are scaled, and summed once more. Derivatives keep `apart` alone.
    """
    some = ew.stop_gradient(x)
    near = mean_in_range(some, means, most)
    apart = some - near
    rest, square = means(apart, squared_sizes(apart))
    factor, cases = constants.full_like(square, 1), unusual_squares(square, max(most, 1), least)
    for is_case, scale in cases:
        scaled = some * scale - near * scale
        pairs = zip(means(scaled, squared_sizes(scaled)), (rest, square), strict=True)
        rest, square = (el.where(is_case, *pair) for pair in pairs)
        factor = el.where(is_case, scale, factor)
    if cases or may_be_differentiated(x):
        apart = x * factor - near * factor
    if may_be_differentiated(x):
        pairs = zip((rest, square), means(apart, squared_sizes(apart)), strict=True)
        rest, square = (ew.with_slope(value, slope) for value, slope in pairs)
    variance = square - squared_sizes(rest)
    variance = el.where(variance < 0, 0, variance)  # maximum would halve the derivative of a variance of 0
    return Moments(apart, rest, variance, near, factor)


@array_method_by_value
@spelled
def mean(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the arithmetic mean over `axis`; integers become float32, 16-bit floats accumulate in float32.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype of the mean; by default integers become float32 and others stay.
        keepdims: keep the axes with size 1.
        where: bools that broadcast to `x`: which elements count.

    Example:
        >>> mean(np.asarray([1, 2, 4, 5]))
        Array(3., dtype=float32)
    """
    x = to_value(x, "mean")
    result_dtype = dtypes.to_float(x.spec.dtype) if dtype is None else to_dtype(dtype, "mean")
    x = astype(x, dtypes.accumulator(result_dtype))
    rows = _Rows("mean", x, to_axes("mean", axis, x.spec.ndim), keepdims, where)
    return astype(mean_in_range(x, lambda terms: (rows.sum(terms) / rows.count(),), rows.most()), result_dtype)


@array_method_by_value
@keeps_weakness
def var(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    *,
    ddof: float = 0,
    correction: float | None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the variance over `axis`, of centred values: sum |x - mean|² / (n - ddof).

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype to compute in; by default integers become float32 and others stay.
        ddof: subtracted from the number of elements; 1 estimates the variance of a population. Where nothing is left,
            the result is NaN.
        correction: the same as `ddof`, over which it takes precedence.
        keepdims: keep the axes with size 1.
        where: bools that broadcast to `x`: which elements count.

    Example:
        >>> var(np.asarray([1.0, 3.0])), var(np.asarray([1.0, 3.0]), ddof=1)
        (Array(1., dtype=float64), Array(2., dtype=float64))
    """
    freedom = ddof if correction is None else correction
    variance, factor, result = _variance("var", x, axis, dtype, freedom, keepdims, where)
    return astype(variance if factor is None else variance / factor / factor, result)


def _variance(
    name: str, x: Any, axis: Axis, dtype: Any, ddof: float, keepdims: bool, where: Any
) -> tuple[Array, Array | None, dtypes.DType]:
    """Returns the variance of x times a factor, by which its squares stay in range, that factor, None for 1, and the dtype of the
    result.
    """
    x = to_value(x, name)
    check_dtype(name, x.spec, *NUMERIC) if not dtypes.is_bool(x.spec.dtype) else None
    work = dtypes.to_float(x.spec.dtype) if dtype is None else to_dtype(dtype, name)
    x = astype(x, dtypes.accumulator(work))
    rows = _Rows(name, x, to_axes(name, axis, x.spec.ndim), keepdims, where)
    count = rows.count()
    freedom: Any = math.nan
    if where is not None:
        freedom = el.where(el.greater(count, ddof), count - ddof, math.nan)
    elif isinstance(count, float) and count > ddof:
        freedom = count - ddof if ddof else count
    work = dtypes.real_dtype(work)
    variance, factor = _scaled_variance(x, rows.means, rows.most())
    if not keepdims:
        shape = tuple(n for i, n in enumerate(x.spec.shape) if i not in rows.axes)
        variance, factor = reshape(variance, shape=shape), None if factor is None else reshape(factor, shape=shape)
    is_whole = isinstance(count, float) and freedom is count
    return variance if is_whole else variance * (count / freedom), factor, work


_LONGEST_CHAIN = 1024  # terms that a sum of float32 adds one after the other


def _scaled_variance(x: Array, means: Means, most: int) -> tuple[Array, Array | None]:
    """Returns the variance of numbers times a factor, and that factor, None for 1.

    Of numbers that are known to be usual it takes fewer steps: all squares stay in range, and the mean is so exact that the numbers
    need not be centred once more.
    """
    if not may_be_differentiated(x) and most:
        (near,) = means(x)
        apart = x - near
        (square,) = means(squared_sizes(apart))
        if not unusual_squares(square, most):
            # the mean's error is at most unit · chain · √(mean² + variance), and its square is to be below unit / 4 of the variance
            unit = float(np.finfo(square.spec.dtype).eps) / 2
            chain = 64 + (min(most, _LONGEST_CHAIN) if square.spec.dtype == dtypes.float32 else most)
            if usual(squared_sizes(near) / square, 0, 1 / (4 * unit * chain**2) - 1):
                return square, None
            variance = square - squared_sizes(means(apart)[0])
            return el.where(variance < 0, 0, variance), None
    found = moments_in_range(x, means, most)
    return found.variance, found.factor


@array_method_by_value
@keeps_weakness
def std(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    *,
    ddof: float = 0,
    correction: float | None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the standard deviation over `axis`, the square root of `var`. Where it is 0, so is its derivative.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype to compute in; by default integers become float32 and others stay.
        ddof: subtracted from the number of elements; 1 estimates the variance of a population. Where nothing is left,
            the result is NaN.
        correction: the same as `ddof`, over which it takes precedence.
        keepdims: keep the axes with size 1.
        where: bools that broadcast to `x`: which elements count.

    Example:
        >>> std(np.asarray([1.0, 3.0]))
        Array(1., dtype=float64)
    """
    freedom = ddof if correction is None else correction
    variance, factor, result = _variance("std", x, axis, dtype, freedom, keepdims, where)
    deviation = ew.length(variance)
    return astype(deviation if factor is None else deviation / factor, result)
