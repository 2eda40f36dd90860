"""Means and deviations, also of numbers whose sums or squares leave the range, and of numbers far from 0."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from nnc.array.array import Array, array_method_by_value
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.elementwise import NUMERIC
from nnc.commands.promote import astype, to_dtype
from nnc.commands.reduce import reduce_sum
from nnc.commands.rules import check_dtype
from nnc.commands.shape import reshape
from nnc.numpy import elementwise as el
from nnc.numpy.operands import Axis, Shape, keeps_weakness, to_axes, to_value
from nnc.numpy.reductions import apply_reduction, mask_of
from nnc.numpy.scaling import SAFE_SQUARES, factor_for_squares, sum_of_sizes, usual
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["mean", "std", "var"]


def with_range(dtype: dtypes.DType) -> dtypes.DType:
    """The dtype in which sums of a dtype do not overflow: float64 for floats of fewer bits."""
    if not dtypes.is_inexact(dtype):
        return dtype
    return dtypes.complex128 if dtypes.is_complex(dtype) else dtypes.float64


@dataclass(frozen=True, slots=True)
class _Rows:
    """The elements of an array that are summed to one of the result; `where` chooses some of them."""

    name: str
    x: Array
    axes: Shape
    keepdims: bool
    where: Any

    def sum(self, terms: Array, keepdims: bool | None = None) -> Array:
        """The sums of terms, one for each element."""
        keepdims = self.keepdims if keepdims is None else keepdims
        return apply_reduction(self.name, reduce_sum, NUMERIC, terms, self.axes, keepdims, self.where, 0)

    def most(self) -> int:
        """The number of elements of a row, of those, too, that are not chosen."""
        return math.prod(self.x.spec.shape[axis] for axis in self.axes)

    def count(self, keepdims: bool | None = None) -> Any:
        """Counts the elements of a row: a number, or an array of numbers where a mask chooses; an array of 0, which gives NaN or an
        infinity instead of an error, where there are none.
        """
        dtype = dtypes.real_dtype(self.x.spec.dtype)
        if self.where is None:
            return float(self.most()) or constants.full(shape=(), dtype=dtype, value=0)
        mask = astype(mask_of(self.where, self.x.spec, self.name), dtype)
        keepdims = self.keepdims if keepdims is None else keepdims
        return apply_reduction(self.name, reduce_sum, NUMERIC, mask, self.axes, keepdims)

    def share(self) -> float:
        """A power of two by which terms are multiplied so that their sum is no larger than the largest of them."""
        return 2.0 ** -math.ceil(math.log2(max(self.most(), 1)))


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
    return astype(_mean(rows, x), result_dtype)


def _mean(rows: _Rows, x: Array) -> Array:
    """The total by the count, or, where the total overflows, that of small parts of the terms. Slopes are those of the first."""
    total, count = rows.sum(x), rows.count()
    plain = total / count
    if not dtypes.is_inexact(x.spec.dtype) or usual(total, 0, math.inf):
        return plain
    share = rows.share()
    careful = rows.sum(ew.stop_gradient(x) * share) / count / share
    return ew.with_slope(el.where(el.isfinite(total), plain, careful), plain)


@array_method_by_value
@spelled
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
        correction: the same as `ddof`, which it goes before.
        keepdims: keep the axes with size 1.
        where: bools that broadcast to `x`: which elements count.

    Example:
        >>> var(np.asarray([1.0, 3.0])), var(np.asarray([1.0, 3.0]), ddof=1)
        (Array(1., dtype=float64), Array(2., dtype=float64))
    """
    freedom = ddof if correction is None else correction
    variance, factor, result = _variance("var", x, axis, dtype, freedom, keepdims, where)
    return astype(variance / factor / factor, result)


def _variance(
    name: str, x: Any, axis: Axis, dtype: Any, ddof: float, keepdims: bool, where: Any
) -> tuple[Array, Array, dtypes.DType]:
    """The variance of x times a factor, by which its squares stay in range, that factor, and the dtype of the result."""
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
        freedom = count - ddof
    work = dtypes.real_dtype(work)
    variance, factor = _variance_in_range(rows)
    return variance * (count / freedom), factor, work


def _squares(x: Array) -> Array:
    """|x|²."""
    if not dtypes.is_complex(x.spec.dtype):
        return ew.square(x)
    return ew.square(ew.real(x)) + ew.square(ew.imag(x))


def _chosen(rows: _Rows, x: Array) -> Array:
    """x with 0 for elements that are not chosen."""
    return x if rows.where is None else el.where(mask_of(rows.where, x.spec, rows.name), x, 0)


def _variance_in_range(rows: _Rows) -> tuple[Array, Array]:
    """The variance over the number of elements, of numbers relative to one near their mean, and scaled; and the factor.

    Squares of differences from a number near the mean may be summed before their own mean is known (Chan, Golub and LeVeque, 1983).
    """
    some, share, count = ew.stop_gradient(rows.x), rows.share(), rows.count(True)
    variance, factor = _usual_variance(rows, count)
    if variance is None:
        factor = factor_for_squares(sum_of_sizes(_chosen(rows, some), rows.axes))
        near = rows.sum(some * share, True) / count / share
        variance = _variance_about(rows, near * factor, rows.x * factor, count)
    if rows.keepdims:
        return variance, factor
    kept = tuple(n for i, n in enumerate(rows.x.spec.shape) if i not in rows.axes)
    return reshape(variance, shape=kept), reshape(factor, shape=kept)


def _variance_about(rows: _Rows, near: Array, x: Array, count: Any) -> Array:
    """The variance over the number of elements, of numbers near others."""
    apart = x - near
    rest = rows.sum(apart, True) / count
    variance = rows.sum(_squares(apart), True) / count - _squares(rest)
    return el.where(variance < 0, 0, variance)  # maximum would halve the derivative of a variance of 0


def _usual_variance(rows: _Rows, count: Any) -> tuple[Array | None, Any]:
    """The variance and a factor of 1, where numbers are known and their squares stay in range; the first is None elsewhere."""
    if type(rows.x) is not Array or not rows.most():
        return None, 1
    near = rows.sum(rows.x, True) / count
    low, high = SAFE_SQUARES[dtypes.real_dtype(rows.x.spec.dtype)]
    if not usual(near, 0, high):
        return None, 1
    variance = _variance_about(rows, near, rows.x, count)
    return (variance, constants.full_like(variance, 1)) if usual(variance, low, high / rows.most()) else (None, 1)


@array_method_by_value
@spelled
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
        correction: the same as `ddof`, which it goes before.
        keepdims: keep the axes with size 1.
        where: bools that broadcast to `x`: which elements count.

    Example:
        >>> std(np.asarray([1.0, 3.0]))
        Array(1., dtype=float64)
    """
    freedom = ddof if correction is None else correction
    variance, factor, result = _variance("std", x, axis, dtype, freedom, keepdims, where)
    return astype(ew.length(variance) / factor, result)
