"""Averages, quantiles, reductions that leave NaN out, and products of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import as_operand, astype, broadcast_to_shape, dtype_of, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands.sort import sort
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy import moments
from nnc.numpy import reductions as red
from nnc.numpy.comparisons import isneginf, isposinf
from nnc.numpy.contractions import matmul
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import moveaxis, ravel, reshape
from nnc.numpy.operands import Axis, keeps_weakness, to_axes, to_axis, to_value, to_values
from nnc.numpy.scaling import factor_for_squares, sum_of_sizes
from nnc.numpy.searching import argsort, searchsorted, take, take_along_axis
from nnc.typing import ArrayLike, DTypeLike

__all__ = [
    "average", "corrcoef", "cov", "cross", "interp", "kron", "median", "nanargmax", "nanargmin", "nancumprod", "nancumsum",
    "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar",
    "percentile", "quantile", "trapezoid",
]  # fmt: skip

# -- averages ----------------------------------------------------------------------------------------------------------


@overload
def average(
    x: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    returned: Literal[False] = False,
    *,
    keepdims: bool = False,
) -> Array: ...
@overload
def average(
    x: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    *,
    returned: Literal[True],
    keepdims: bool = False,
) -> tuple[Array, Array]: ...
@spelled
def average(
    x: ArrayLike, axis: Axis = None, weights: ArrayLike | None = None, returned: bool = False, *, keepdims: bool = False
) -> Any:
    """Returns the weighted mean over `axis`.

    out[j] = sum over i of w[i, j] · x[i, j] / sum over i of w[i, j]

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        weights: an array of the shape of `x`, or a vector along one axis.
        returned: return the sum of the weights, too.
        keepdims: keep the axes with size 1.

    Raises:
        ShapeError: the weights fit neither.

    Example:
        >>> average(np.asarray([1.0, 4.0]), weights=[2, 1])
        Array(2., dtype=float64)
    """
    x, w = to_values("average", x=x, weights=weights)
    if w is None:
        mean = moments.mean(x, axis, keepdims=keepdims)
        count = constants.full_like(mean, x.spec.size // max(1, mean.spec.size))
        return (mean, count) if returned else mean
    if w.spec.shape != x.spec.shape:
        axes = to_axes("average", axis, x.spec.ndim)
        if axis is None or tuple(x.spec.shape[i] for i in axes) != w.spec.shape:
            problem = "the weights have neither the shape of x nor that of its axis."
            fix = "give a weight for each element, or pass axis=... for a vector."
            raise user_error(ShapeError, "average", problem, operands={"x": x.spec, "weights": w.spec}, fix=fix)
        order = sorted(range(len(axes)), key=axes.__getitem__)
        rising = w.transpose(order)
        w = reshape(rising, tuple(n if i in axes else 1 for i, n in enumerate(x.spec.shape)))
    x, w = promote(x, w, where="average", to=dtypes.to_float)
    w = broadcast_to_shape(to_value(w, "average"), np.shape(x))
    dtype, wide = dtype_of(x), moments.with_range(dtype_of(x))  # products and sums may leave the range of x
    total = red.sum(astype(w, wide), axis, keepdims=keepdims)
    mean = astype(red.sum(astype(x, wide) * astype(w, wide), axis, keepdims=keepdims) / total, dtype)
    return (mean, astype(total, dtype)) if returned else mean


@spelled
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
) -> Array:
    """Returns the covariance matrix of variables, one in each row (each column unless `rowvar`).

    Args:
        m: (variables, observations), or (observations,) of one variable.
        y: more variables.
        rowvar: variables are rows; else columns.
        bias: divide by the number of observations n, else by n - 1.
        ddof: divide by n - ddof instead.
        fweights: how often each observation counts.
        aweights: how much it weighs.

    Example:
        >>> cov(np.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
        Array([[ 1., -1.],
               [-1.,  1.]], dtype=float64)
    """
    m, y, fweights, aweights = to_values("cov", m=m, y=y, fweights=fweights, aweights=aweights)
    x = _variables(m, y, rowvar)
    lost = (0 if bias else 1) if ddof is None else ddof
    if fweights is None and aweights is None:
        n = x.spec.shape[1] - lost
        centred = x - moments.mean(x, 1, keepdims=True)
        product = matmul(centred, el.conj(centred).T) * (1 / n if n > 0 else math.nan)
    else:
        each = dtypes.real_dtype(x.spec.dtype)
        weights = [astype(to_value(1 if v is None else v, "cov"), each) for v in (fweights, aweights)]
        w = broadcast_to_shape(weights[0] * weights[1], (x.spec.shape[1],))
        total = red.sum(w)
        divisor = total - lost * red.sum(w * weights[1]) / total
        centred = x - average(x, 1, weights=w)[:, None]
        product = matmul(centred * w, el.conj(centred).T) / el.where(el.greater(divisor, 0), divisor, math.nan)
    return reshape(product, ()) if product.spec.size == 1 else product


def _variables(m: Any, y: Any, rowvar: bool) -> Array:
    """Returns the variables of both arguments as rows."""
    rows = [_rows(values, rowvar) for values in (m, y) if values is not None]
    return rows[0] if len(rows) == 1 else concatenate(rows)


def _rows(m: Any, rowvar: bool) -> Array:
    (x,) = promote(m, where="cov", to=dtypes.to_float)
    x = to_value(x, "cov")
    if x.spec.ndim > 2:
        problem = "there are more than two axes."
        raise user_error(ShapeError, "cov", problem, operands={"m": x.spec}, fix="pass a matrix.")
    if x.spec.ndim < 2:
        return reshape(x, (1, -1)) if x.spec.size else reshape(x, (1, 0))
    return x if rowvar else x.T


@keeps_weakness
def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True) -> Array:
    """Returns the correlation coefficients of variables; arguments as in `cov`.

    Args:
        x: (variables, observations), or (observations,) of one variable.
        y: more variables.
        rowvar: variables are rows; else columns.

    Example:
        >>> corrcoef(nnp.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
        Array([[ 1., -1.],
               [-1.,  1.]], dtype=float32)
    """
    x, y = to_values("corrcoef", x=x, y=y)
    rows = _variables(x, y, rowvar)
    c = cov(rows * factor_for_squares(sum_of_sizes(rows, (1,))))
    if not c.spec.ndim:
        return c / c
    deviation = el.sqrt(el.real(c.diagonal()))
    return c / deviation[:, None] / deviation[None, :]


# -- quantiles ---------------------------------------------------------------------------------------------------------

_PLOTTING = {  # alpha and beta of the place n · q + alpha + q · (1 - alpha - beta) - 1 (Hyndman and Fan, 1996)
    "interpolated_inverted_cdf": (0.0, 1.0), "hazen": (0.5, 0.5), "weibull": (0.0, 0.0), "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip
_OF_STEPS = {"inverted_cdf": -1.0, "averaged_inverted_cdf": -1.0, "closest_observation": -1.5}  # added to n · q
METHODS = ("linear", "lower", "higher", "nearest", "midpoint", *_PLOTTING, *_OF_STEPS)


def _neighbours(method: str, n: Array, q: Array) -> tuple[Array, Array]:
    """Returns the place below each quantile among n sorted elements, and the weight of the next one; places may lie outside."""
    if method in _PLOTTING:
        alpha, beta = _PLOTTING[method]
        place = n * q + (alpha + q * (1 - alpha - beta)) - 1
    elif method in _OF_STEPS:
        place = n * q + _OF_STEPS[method]
    else:
        place = q * el.maximum(n - 1, 0.0)
    low = el.floor(place)
    gap = place - low
    weights: dict[str, Callable[[], Array]] = {
        "lower": lambda: gap * 0,
        "higher": lambda: el.ceil(gap),
        "nearest": lambda: el.round(place) - low,
        "midpoint": lambda: el.ceil(gap) / 2,
        "inverted_cdf": lambda: el.ceil(gap),
        "averaged_inverted_cdf": lambda: el.where(el.equal(gap, 0), 0.5, gap * 0 + 1),
        "closest_observation": lambda: el.where(
            el.logical_and(el.equal(gap, 0), el.equal(low % 2, 1)), 0.0, gap * 0 + 1
        ),
    }
    return low, weights.get(method, lambda: gap)()


def _numbers(q: Any, where: str) -> Any:
    """Python numbers as float64, which lists of them would not be by themselves."""
    as_operand(q, where, "q")  # refuses objects that hold no numbers
    return np.asarray(q)


def _quantile(
    name: str, x: Any, q: Any, axis: Axis, method: str, keepdims: bool, skip_nan: bool = False, unit: float = 1.0
) -> Array:
    """Sorts and interpolates between the neighbours of the place q · (n - 1); n counts elements that are not NaN where `skip_nan`.

    Places are float64, so that they are exact for long axes, too.
    """
    check_choice(name, "method", method, METHODS)
    (x,) = promote(x, where=name, to=dtypes.to_float)
    x = to_value(x, name)
    if not dtypes.is_float(x.spec.dtype):
        problem = f"{x.spec.dtype.name} has no order."
        raise user_error(ArgumentError, name, problem, operands={"x": x.spec}, fix="pass real numbers.")
    dtype, shape = x.spec.dtype, x.spec.shape
    x = astype(x, dtypes.accumulator(dtype))
    q = ew.convert(q if hasattr(q, "spec") else _numbers(q, name), dtype=dtypes.float64) / unit
    if isinstance(q, Array) and bool(red.any(el.logical_or(q < 0, q > 1))):
        problem = f"q lies outside of 0 to {unit:g}: {q * unit}."
        raise user_error(ArgumentError, name, problem, fix=f"choose numbers from 0 to {unit:g}.")
    axes = to_axes(name, axis, len(shape))
    rest = [i for i in range(len(shape)) if i not in axes]
    outer = tuple(shape[i] for i in rest)
    n = math.prod(shape[i] for i in axes)
    if not n:
        problem = "it has no value over an axis of size 0."
        raise user_error(ShapeError, name, problem, operands={"x": x.spec}, fix="pass elements.")
    rows = sort(reshape(x.transpose((*rest, *axes)), (*outer, n)), axis=len(outer), descending=False)
    nans = red.count_nonzero(ew.isnan(rows), -1)
    flat_q = ravel(q)
    counted = astype(n - nans if skip_nan else nans * 0 + n, dtypes.float64)[..., None]
    low, weight = _neighbours(method, counted, flat_q)
    last = el.maximum(counted - 1, 0.0)
    below, above = (
        take_along_axis(rows, astype(el.clip(place, 0, last), dtypes.int64), axis=-1, mode="clip")
        for place in (low, low + 1)
    )
    weight = astype(weight, x.spec.dtype)
    found = below + el.where(el.equal(below, above), 0, above - below) * weight
    found = el.where(el.logical_and(isneginf(below), ~isposinf(above)), below, found)  # between -inf and a number
    # also where both are infinite
    found = el.where(el.equal(weight, 1), above, el.where(el.equal(weight, 0), below, found))
    bad = el.equal(nans, n) if skip_nan else el.greater(nans, 0)
    found = astype(el.where(bad[..., None], math.nan, found), dtype)
    kept = tuple(1 if i in axes else m for i, m in enumerate(shape)) if keepdims else outer
    return reshape(moveaxis(found, -1, 0), (*q.spec.shape, *kept))


@keeps_weakness
def quantile(x: ArrayLike, q: ArrayLike, axis: Axis = None, *, method: str = "linear", keepdims: bool = False) -> Array:
    """Returns quantiles over `axis`; NaN where an element is.

    Args:
        x: real, any shape.
        q: numbers from 0 (least) to 1 (greatest); its axes come first in the result.
        axis: axis or axes to remove; None all.
        method: "linear" between the two neighbours, "lower", "higher", "nearest" or "midpoint" of them, or another of NumPy's:
            "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
            "median_unbiased" and "normal_unbiased".
        keepdims: keep the axes with size 1.

    Raises:
        ArgumentError: q lies outside [0, 1].

    Example:
        >>> quantile(np.asarray([1.0, 2.0, 4.0]), [0.0, 0.75])
        Array([1., 3.], dtype=float64)
    """
    return _quantile("quantile", x, q, axis, method, keepdims)


@keeps_weakness
def percentile(
    x: ArrayLike, q: ArrayLike, axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """Returns percentiles over `axis`: quantiles with q from 0 to 100.

    Args:
        x: real, any shape.
        q: percentages, from 0 to 100: a number or an array.
        axis: axis or axes to remove; None all.
        method: how to choose between two elements, as for `quantile`.
        keepdims: keep the axes with size 1.

    Example:
        >>> percentile(nnp.asarray([1.0, 2.0, 3.0, 4.0]), 50)
        Array(2.5, dtype=float32)
    """
    return _quantile("percentile", x, q, axis, method, keepdims, unit=100.0)


@keeps_weakness
def median(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Returns the middle of the sorted elements over `axis`, or the mean of the two middle ones.

    Args:
        x: real, any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.

    Example:
        >>> median(np.asarray([1, 9, 3, 4]))
        Array(3.5, dtype=float32)
    """
    return _quantile("median", x, 0.5, axis, "linear", keepdims)


@keeps_weakness
def nanquantile(
    x: ArrayLike, q: ArrayLike, axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """Returns quantiles of the elements that are not NaN; see `quantile`.

    Args:
        x: real, any shape.
        q: shares, from 0 to 1: a number or an array.
        axis: axis or axes to remove; None all.
        method: how to choose between two elements, as for `quantile`.
        keepdims: keep the axes with size 1.

    Example:
        >>> nanquantile(nnp.asarray([1.0, nnp.nan, 3.0]), 0.5)
        Array(2., dtype=float32)
    """
    return _quantile("nanquantile", x, q, axis, method, keepdims, True)


@keeps_weakness
def nanpercentile(
    x: ArrayLike, q: ArrayLike, axis: Axis = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """Returns percentiles of the elements that are not NaN; see `percentile`.

    Args:
        x: real, any shape.
        q: percentages, from 0 to 100: a number or an array.
        axis: axis or axes to remove; None all.
        method: how to choose between two elements, as for `quantile`.
        keepdims: keep the axes with size 1.

    Example:
        >>> nanpercentile(nnp.asarray([1.0, nnp.nan, 3.0]), 50)
        Array(2., dtype=float32)
    """
    return _quantile("nanpercentile", x, q, axis, method, keepdims, True, 100.0)


@keeps_weakness
def nanmedian(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Returns the median of the elements that are not NaN; see `median`.

    Args:
        x: real, any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.

    Example:
        >>> nanmedian(nnp.asarray([1.0, nnp.nan, 3.0]))
        Array(2., dtype=float32)
    """
    return _quantile("nanmedian", x, 0.5, axis, "linear", keepdims, True)


# -- without NaN -------------------------------------------------------------------------------------------------------


def _without_nan(x: Any, where: str, fill: Any) -> tuple[Array, Array | None]:
    """`x` with `fill` for NaN, and which elements are none (None: all of them, as of integers)."""
    x = to_value(x, where)
    if not dtypes.is_inexact(x.spec.dtype):
        return x, None
    bad = ew.isnan(x)
    return ew.select(bad, constants.full_like(x, fill), x), ew.bitwise_not(bad)


@keeps_weakness
def nansum(x: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, *, keepdims: bool = False) -> Array:
    """Returns the sum of the elements that are not NaN.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype of the sum; by default as in `sum`.
        keepdims: keep the axes with size 1.

    Example:
        >>> nansum(np.asarray([1.0, np.nan]))
        Array(1., dtype=float64)
    """
    return red.sum(_without_nan(x, "nansum", 0)[0], axis, dtype, keepdims=keepdims)


@keeps_weakness
def nanprod(x: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, *, keepdims: bool = False) -> Array:
    """Returns the product of the elements that are not NaN.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype of the product; by default as in `prod`.
        keepdims: keep the axes with size 1.

    Example:
        >>> nanprod(nnp.asarray([2.0, nnp.nan, 3.0]))
        Array(6., dtype=float32)
    """
    return red.prod(_without_nan(x, "nanprod", 1)[0], axis, dtype, keepdims=keepdims)


@keeps_weakness
def nanmean(x: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, *, keepdims: bool = False) -> Array:
    """Returns the mean of the elements that are not NaN; NaN of none.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype of the mean; by default as in `mean`.
        keepdims: keep the axes with size 1.

    Example:
        >>> nnp.nanmean(nnp.asarray([1.0, nnp.nan]))
        Array(1., dtype=float32)
    """
    values, there = _without_nan(x, "nanmean", 0)
    return moments.mean(values, axis, dtype, keepdims=keepdims, where=there)


@keeps_weakness
def nanvar(
    x: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, *, ddof: float = 0, keepdims: bool = False
) -> Array:
    """Returns the variance of the elements that are not NaN.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype to compute in; by default as in `var`.
        ddof: subtracted from the number of elements.
        keepdims: keep the axes with size 1.

    Example:
        >>> nnp.nanvar(nnp.asarray([1.0, 3.0, nnp.nan]))
        Array(1., dtype=float32)
    """
    values, there = _without_nan(x, "nanvar", 0)
    return moments.var(values, axis, dtype, ddof=ddof, keepdims=keepdims, where=there)


@keeps_weakness
def nanstd(
    x: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, *, ddof: float = 0, keepdims: bool = False
) -> Array:
    """Returns the standard deviation of the elements that are not NaN.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype to compute in; by default as in `std`.
        ddof: subtracted from the number of elements.
        keepdims: keep the axes with size 1.

    Example:
        >>> nnp.nanstd(nnp.asarray([1.0, 3.0, nnp.nan]))
        Array(1., dtype=float32)
    """
    values, there = _without_nan(x, "nanstd", 0)
    return moments.std(values, axis, dtype, ddof=ddof, keepdims=keepdims, where=there)


def _nan_extreme(name: str, x: Any, axis: Axis, keepdims: bool, fill: float) -> Array:
    values, there = _without_nan(x, name, fill)
    reduce = red.max if name == "nanmax" else red.min
    result = reduce(values, axis, keepdims=keepdims)
    return result if there is None else el.where(red.any(there, axis, keepdims=keepdims), result, math.nan)


@keeps_weakness
def nanmax(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Returns the largest of the elements that are not NaN; NaN of none.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.

    Example:
        >>> nnp.nanmax(nnp.asarray([1.0, nnp.nan]))
        Array(1., dtype=float32)
    """
    return _nan_extreme("nanmax", x, axis, keepdims, -math.inf)


@keeps_weakness
def nanmin(x: ArrayLike, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Returns the smallest of the elements that are not NaN; NaN of none.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.

    Example:
        >>> nnp.nanmin(nnp.asarray([1.0, nnp.nan]))
        Array(1., dtype=float32)
    """
    return _nan_extreme("nanmin", x, axis, keepdims, math.inf)


@spelled
def nanargmax(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Returns the index of the largest of the elements that are not NaN; 0 of none.

    Args:
        x: any shape.
        axis: axis to remove; None searches the flattened array.
        keepdims: keep the axes with size 1.

    Example:
        >>> nanargmax(nnp.asarray([1.0, nnp.nan, 3.0]))
        Array(2, dtype=int64)
    """
    return red.argmax(_without_nan(x, "nanargmax", -math.inf)[0], axis, keepdims=keepdims)


@spelled
def nanargmin(x: ArrayLike, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Returns the index of the smallest of the elements that are not NaN; 0 of none.

    Args:
        x: any shape.
        axis: axis to remove; None searches the flattened array.
        keepdims: keep the axes with size 1.

    Example:
        >>> nanargmin(nnp.asarray([nnp.nan, 1.0, 3.0]))
        Array(1, dtype=int64)
    """
    return red.argmin(_without_nan(x, "nanargmin", math.inf)[0], axis, keepdims=keepdims)


@keeps_weakness
def nancumsum(x: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """Returns running sums in which NaN counts as 0.

    Args:
        x: any shape.
        axis: axis to run along; None flattens first.
        dtype: dtype of the sums; by default as in `sum`.

    Example:
        >>> nancumsum(nnp.asarray([1.0, nnp.nan, 3.0]))
        Array([1., 1., 4.], dtype=float32)
    """
    return red.cumsum(_without_nan(x, "nancumsum", 0)[0], axis, dtype)


@keeps_weakness
def nancumprod(x: ArrayLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """Returns running products in which NaN counts as 1.

    Args:
        x: any shape.
        axis: axis to run along; None flattens first.
        dtype: dtype of the products; by default as in `prod`.

    Example:
        >>> nancumprod(nnp.asarray([2.0, nnp.nan, 3.0]))
        Array([2., 2., 6.], dtype=float32)
    """
    return red.cumprod(_without_nan(x, "nancumprod", 1)[0], axis, dtype)


# -- curves and products -------------------------------------------------------------------------------------------------


@spelled
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """Returns the values at `x` of the broken line through the points (xp, fp).

    Args:
        x: any shape.
        xp: rising.
        fp: (n,), values at the points.
        left: value below the first point; its value by default.
        right: value above the last point; its value by default.
        period: the period, for a periodic line; xp may then be in any order, and left and right are not used.

    Example:
        >>> interp(np.asarray([0.5, 9.0]), np.asarray([0.0, 1.0]), np.asarray([10.0, 20.0]))
        Array([15., 20.], dtype=float64)
    """
    x, xp, fp = (to_value(v, "interp") for v in promote(x, xp, fp, where="interp", to=dtypes.to_float))
    if xp.spec.ndim != 1 or fp.spec.shape != xp.spec.shape or not xp.spec.size:
        problem = "xp and fp must be vectors of one length, not empty."
        fix = "give one value for each point."
        raise user_error(ShapeError, "interp", problem, operands={"xp": xp.spec, "fp": fp.spec}, fix=fix)
    if period is not None:
        length = el.abs(period)
        x, xp = el.remainder(x, length), el.remainder(xp, length)
        order = argsort(xp)
        xp, fp = take(xp, order), take(fp, order)
        xp = concatenate([xp[-1:] - length, xp, xp[:1] + length])
        fp = concatenate([fp[-1:], fp, fp[:1]])
    n = xp.spec.size
    above = el.clip(searchsorted(xp, x, side="right"), 1, max(n - 1, 1)) if n > 1 else searchsorted(xp, x) * 0
    below = el.maximum(above - 1, 0)
    x0, x1, y0, y1 = take(xp, below), take(xp, above), take(fp, below), take(fp, above)
    flat, part = el.equal(x1, x0), el.where(el.isinf(x1 - x0), 0.5, 1)  # a part of the distance, where that overflows
    share = el.where(flat, 0, (x * part - x0 * part) / el.where(flat, 1, x1 * part - x0 * part))
    # elsewhere infinities would give NaN
    inside = el.not_equal(share, 0) & el.not_equal(share, 1) & el.not_equal(y0, y1)
    rise = el.where(inside, y1 - y0, 0)
    between = el.where(el.isinf(rise), y0 * (1 - share) + y1 * share, y0 + share * rise)
    value = el.where(inside, between, el.where(el.equal(share, 1), y1, y0))
    value = el.where(el.less(x, xp[0]), fp[0] if left is None else left, value)
    return el.where(el.greater(x, xp[-1]), fp[-1] if right is None else right, value)


@spelled
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """Returns the area below the broken line `y` along `axis`.

    Args:
        y: heights, any shape.
        x: the places of the points; by default they are `dx` apart.
        dx: distance of neighbours, where there is no `x`.
        axis: axis to sum along.

    Example:
        >>> trapezoid(nnp.asarray([0.0, 1.0, 4.0]), dx=0.5)
        Array(1.5, dtype=float32)
    """
    y, places = to_values("trapezoid", y=y, x=x)
    y = moveaxis(y, to_axis("trapezoid", axis, y.spec.ndim), -1)
    if places is not None:
        dx = red.diff(places if places.spec.ndim == 1 else moveaxis(places, axis, -1))
    return red.sum((y[..., 1:] + y[..., :-1]) * dx / 2, -1)


@spelled
def cross(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Array:
    """Returns the cross product of vectors of three elements along `axis`.

    Args:
        a: any shape, of size 3 along `axis`; broadcasts with `b`.
        b: any shape, of size 3 along `axis`.
        axis: axis of both that holds the elements of a vector.

    Raises:
        ShapeError: the axis has another size.

    Example:
        >>> cross(np.asarray([1, 0, 0]), np.asarray([0, 1, 0]))
        Array([0, 0, 1], dtype=int64)
    """
    values = [to_value(x, "cross") for x in promote(a, b, where="cross")]
    for x in values:
        if x.spec.shape[to_axis("cross", axis, x.spec.ndim)] != 3:
            problem = f"axis {axis} must have size 3."
            raise user_error(ShapeError, "cross", problem, operands={"x": x.spec}, fix="pass 3-vectors.")
    (a0, a1, a2), (b0, b1, b2) = ([take(x, i, axis=axis) for i in (0, 1, 2)] for x in values)
    parts = (a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0)
    return moveaxis(concatenate([part[None] for part in parts]), 0, axis)


@spelled
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Returns the Kronecker product: each element of `a` times all of `b`, as blocks.

    Args:
        a: any shape.
        b: any shape.

    Example:
        >>> kron(np.asarray([1, 2]), np.asarray([1, 1]))
        Array([1, 1, 2, 2], dtype=int64)
    """
    a, b = (to_value(x, "kron") for x in promote(a, b, where="kron"))
    ndim = max(a.spec.ndim, b.spec.ndim)
    of_a, of_b = ((1,) * (ndim - x.spec.ndim) + x.spec.shape for x in (a, b))
    wide_a = reshape(a, tuple(n for size in of_a for n in (size, 1)))
    wide_b = reshape(b, tuple(n for size in of_b for n in (1, size)))
    return reshape(wide_a * wide_b, tuple(m * n for m, n in zip(of_a, of_b, strict=True)))
