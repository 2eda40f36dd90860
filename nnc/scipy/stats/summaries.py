"""Statistics of data along an axis, which nnc.scipy.stats shows: modes, ranks, standard errors."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import UnsupportedError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import elementwise as el
from nnc.numpy import moments
from nnc.numpy import reductions as red
from nnc.numpy.creation import full, zeros
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import atleast_1d, broadcast_to, expand_dims, flip, moveaxis, ravel
from nnc.numpy.operands import Axis, static_int, to_axes, to_axis, to_value
from nnc.numpy.searching import argsort, sort, take_along_axis
from nnc.numpy.statistics import nanstd
from nnc.typing import ArrayLike

__all__ = ["ModeResult", "mode", "rankdata", "sem"]

_METHODS = ("average", "min", "max", "dense", "ordinal")


class ModeResult(NamedTuple):
    """The most common value, and how often it occurs.

    Args:
        mode: dtype of the data.
        count: integers.

    Example:
        >>> nnc.scipy.stats.mode(nnp.asarray([1, 2, 2])).count
        Array(2, dtype=int64)
    """

    mode: Array
    count: Array  # type: ignore[assignment]  # the method of tuples is hidden, as in SciPy


def _check_policy(where: str, nan_policy: str) -> None:
    if nan_policy == "raise":
        fix = 'check the data with nnp.isnan before, or use nan_policy="propagate" or "omit".'
        raise user_error(UnsupportedError, where, "whether there is a NaN is not known while tracing.", fix=fix)
    check_choice(where, "nan_policy", nan_policy, ("propagate", "omit"))


def _last_axis(where: str, a: ArrayLike, axis: int | None) -> tuple[Array, int | None]:
    """Returns the data with the axis in question at the end, and that axis; None for flattened data."""
    x = atleast_1d(to_value(a, where, "a"))
    if axis is None:
        return ravel(x), None
    axis = to_axis(where, axis, x.spec.ndim)
    return moveaxis(x, axis, -1), axis


def _is_nan(x: Array) -> Array:
    return el.isnan(x) if dtypes.is_inexact(x.spec.dtype) else zeros(x.spec.shape, dtypes.bool_)


def _starts(ordered: Array) -> Array:
    """Whether elements of sorted data differ from the one before; NaNs are equal."""
    before, own = ordered[..., :-1], ordered[..., 1:]
    same = el.logical_or(el.equal(own, before), el.logical_and(_is_nan(own), _is_nan(before)))
    return concatenate([full((*ordered.spec.shape[:-1], 1), True), ~same], axis=-1)


@spelled
def mode(a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """Returns the most common value along an axis, the least one of several, and how often it occurs.

    Args:
        a: real, any shape.
        axis: axis to remove; None flattens.
        nan_policy: "propagate" counts NaNs as one value, "omit" leaves them out.
        keepdims: keep the axis with size 1.

    Returns:
        (mode, count): NaN and 0 where there is no value.

    Raises:
        ArgumentError: no such policy.
        UnsupportedError: nan_policy is "raise".

    Example:
        >>> mode(np.asarray([3, 1, 3, 2, 2]))
        ModeResult(mode=Array(2, dtype=int64), count=Array(2, dtype=int64))
    """
    _check_policy("mode", nan_policy)
    ndim = atleast_1d(to_value(a, "mode", "a")).spec.ndim
    x, place = _last_axis("mode", a, axis)
    *rest, n = x.spec.shape
    if n:
        ordered = sort(x)
        index = np.arange(n)
        first = red.cummax(el.where(_starts(ordered), index, 0), axis=-1)
        length = 1 - first + index
        if nan_policy == "omit":
            length = el.where(_is_nan(ordered), 0, length)
        value = take_along_axis(ordered, red.argmax(length, axis=-1, keepdims=True))[..., 0]
        count = red.max(length, axis=-1)
        if nan_policy == "omit" and dtypes.is_inexact(x.spec.dtype):
            value = el.where(el.equal(count, 0), math.nan, value)
    else:
        value, count = full(rest, math.nan, dtypes.to_float(x.spec.dtype)), zeros(rest, dtypes.int64)
    if keepdims:
        axes = tuple(range(ndim)) if place is None else (place,)
        value, count = expand_dims(value, axes), expand_dims(count, axes)
    return ModeResult(value, count)


@spelled
def rankdata(a: ArrayLike, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """Returns the places of elements in the sorted data, from 1 on.

    Args:
        a: real, any shape.
        method: the rank of equal elements: "average", "min" or "max" of their places; "dense" counts different values; "ordinal"
            gives each its own place, in the order of the data.
        axis: axis to rank along; None flattens the data, and the result.
        nan_policy: "propagate" makes all ranks NaN where there is one, "omit" the ranks of NaNs alone.

    Returns:
        ranks, in the dtype of `a`; 16-bit floats and integers become float32.

    Raises:
        ArgumentError: no such method or policy.
        UnsupportedError: nan_policy is "raise".

    Example:
        >>> rankdata(np.asarray([10.0, 30.0, 20.0, 30.0]))
        Array([1. , 3.5, 2. , 3.5], dtype=float64)
    """
    _check_policy("rankdata", nan_policy)
    check_choice("rankdata", "method", method, _METHODS)
    x, place = _last_axis("rankdata", a, axis)
    dtype = dtypes.accumulator(dtypes.to_float(x.spec.dtype))
    if not x.spec.size:
        ranks = zeros(x.spec.shape, dtype)
    else:
        order = argsort(x)
        ordered = _ranks(take_along_axis(x, order), method).astype(dtype)
        ranks = take_along_axis(ordered, argsort(order))
        lost = _is_nan(x)
        ranks = el.where(lost if nan_policy == "omit" else red.any(lost, axis=-1, keepdims=True), math.nan, ranks)
    return ranks if place is None else moveaxis(ranks, -1, place)


def _ranks(ordered: Array, method: str) -> Array:
    """Returns the ranks of sorted elements."""
    n = ordered.spec.shape[-1]
    index, starts = np.arange(n), _starts(ordered)
    if method == "ordinal":
        return broadcast_to(index + 1, ordered.spec.shape)
    if method == "dense":
        return red.cumsum(starts, axis=-1, dtype=dtypes.int64)
    least = red.cummax(el.where(starts, index, 0), axis=-1) + 1
    if method == "min":
        return least
    ends = concatenate([starts[..., 1:], full((*ordered.spec.shape[:-1], 1), True)], axis=-1)
    largest = flip(red.cummin(flip(el.where(ends, index, n - 1), axis=-1), axis=-1), axis=-1) + 1
    return largest if method == "max" else (least + largest).astype(dtypes.float64) / 2


@spelled
def sem(a: ArrayLike, axis: Axis = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Array:
    """Returns the standard error of the mean: the standard deviation, divided by √n.

    Args:
        a: any shape; integers become float32.
        axis: axes to remove; None is all of them.
        ddof: the variance is the sum of squares, divided by n − ddof.
        nan_policy: "propagate" makes the result NaN where there is one, "omit" leaves NaNs out.
        keepdims: keep the axes with size 1.

    Raises:
        ArgumentError: no such policy.
        UnsupportedError: nan_policy is "raise".

    Example:
        >>> sem(np.asarray([1.0, 2.0, 3.0]))
        Array(0.57735027, dtype=float64)
    """
    _check_policy("sem", nan_policy)
    ddof = static_int(ddof, "sem", "ddof")
    x = atleast_1d(to_value(promote(a, where="sem", to=dtypes.to_float)[0], "sem", "a"))
    axes = to_axes("sem", axis, x.spec.ndim)
    if nan_policy == "omit":
        count = red.sum(~_is_nan(x), axis=axes, keepdims=keepdims).astype(dtypes.real_dtype(x.spec.dtype))
        return nanstd(x, axis=axes, ddof=ddof, keepdims=keepdims) / el.sqrt(count)
    n = math.prod(x.spec.shape[i] for i in axes)
    return moments.std(x, axis=axes, ddof=ddof, keepdims=keepdims) * (1 / math.sqrt(n) if n else math.nan)
