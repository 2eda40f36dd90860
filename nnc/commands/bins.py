"""Sums over bins, which lie along an axis as evenly as can be: bin i of k over n places goes from ⌊i n / k⌋ up to ⌈(i + 1) n / k⌉.

The transpose sums over bins, too: a place reads those that hold it, which stand in a row. So nothing is scattered, and an infinity
stays where it is.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full_like
from nnc.commands.elementwise import INEXACT, in_dtype, select
from nnc.commands.index import gather
from nnc.commands.reduce import reduce_sum
from nnc.commands.rules import check_dtype, expansion, register_linear
from nnc.commands.shape import broadcast_to, concatenate, reshape, slice_axis, transpose
from nnc.errors import ArgumentError, user_error
from nnc.graph import Command, TensorSpec
from nnc.graph.rules import Value

NDArray = np.ndarray[Any, Any]
Intervals = tuple[NDArray, NDArray]  # where each begins, and the place after its last

_MATRIX = 1 << 16  # elements of a matrix that sums by a product; a larger one takes longer than to add one by one
_FEW = 8  # intervals; so many slices take a third of the time of a gather (14 to 50 places)


@lru_cache(maxsize=256)
def bin_intervals(size: int, bins: int) -> Intervals:
    """Returns where the bins over `size` places begin and end."""
    numbers = np.arange(bins)
    return numbers * size // bins, -(-(numbers + 1) * size // bins)


@lru_cache(maxsize=256)
def _bins_of_places(size: int, bins: int) -> Intervals:
    """Returns the first bin that holds each place, and the one after the last."""
    starts, ends = bin_intervals(size, bins)
    places = np.arange(size)
    return np.searchsorted(ends, places, "right"), np.searchsorted(starts, places, "right")


def _resized(name: str, x: TensorSpec, axis: int, size: int) -> TensorSpec:
    check_dtype(name, x, *INEXACT)
    if not 0 <= axis < x.ndim or size < 1 or x.shape[axis] < 1:
        problem = f"there are no bins along axis {axis} of {x.shape}, or places of them: {size}."
        fix = "name an axis that is not empty, counted from the front, and a size of 1 or more."
        raise user_error(ArgumentError, name, problem, operands={"x": x}, fix=fix)
    return x.update(shape=(*x.shape[:axis], size, *x.shape[axis + 1 :]))


def _sums(x: NDArray, axis: int, intervals: Intervals) -> NDArray:
    """Sums over intervals, as a product with a small matrix of zeros and ones where that is finite: then the summands are, too."""
    wide = x.astype(dtypes.accumulator(x.dtype), copy=False)
    with np.errstate(all="ignore"):
        total = _by_product(wide, axis, intervals) if intervals[0].size * x.shape[axis] <= _MATRIX else None
        if total is None or not np.isfinite(total).all():
            total = _one_by_one(wide, axis, intervals)
        return total.astype(x.dtype, copy=False)


def _by_product(x: NDArray, axis: int, intervals: Intervals) -> NDArray:
    """Sums over intervals; infinities and NaNs spread to other intervals."""
    starts, ends = intervals
    places, shape = np.arange(x.shape[axis]), x.shape
    held = ((places >= starts[:, None]) & (places < ends[:, None])).astype(x.dtype)
    inner = math.prod(shape[axis + 1 :])
    rows = x.reshape(math.prod(shape[:axis]), places.size, inner)
    total = rows[..., 0] @ held.T if inner == 1 else held @ rows
    return total.reshape(*shape[:axis], starts.size, *shape[axis + 1 :])


def _one_by_one(x: NDArray, axis: int, intervals: Intervals) -> NDArray:
    """Sums over intervals: first elements, then second ones of those that have one, and so on."""
    starts, ends = intervals
    total, widths = x.take(starts, axis), ends - starts
    for i in range(1, int(widths.max(initial=0))):
        there = widths > i
        term = x.take(np.where(there, starts + i, 0), axis)
        beyond: tuple[Any, ...] = (*(slice(None),) * axis, ~there)
        term[beyond] = 0
        total += term
    return total


def _expanded(x: Value, axis: int, intervals: Intervals) -> Value:
    """Returns the sums by slices where there are few, else of elements that are gathered side by side."""
    starts, ends = intervals
    shape, dtype = x.spec.shape, x.spec.dtype
    wide = in_dtype(x, dtypes.accumulator(dtype))
    if len(starts) <= _FEW:
        parts = [slice_axis(wide, axis, int(first), int(end)) for first, end in zip(starts, ends, strict=True)]
        one = (*shape[:axis], 1, *shape[axis + 1 :])
        total = concatenate(*(reshape(reduce_sum(part, axes=(axis,)), shape=one) for part in parts), axis=axis)
    else:
        widest = np.arange(int((ends - starts).max()))
        index = np.minimum(starts[:, None] + widest, ends[:, None] - 1)
        rows = gather(wide, index, axes=(axis,), batch=0, mode="clip")  # (intervals, widest, other axes)
        there = broadcast_to(widest < (ends - starts)[:, None], shape=rows.spec.shape, axes=(0, 1))
        total = reduce_sum(select(there, rows, full_like(rows, 0)), axes=(1,))
        total = transpose(total, permutation=(*range(1, axis + 1), 0, *range(axis + 1, len(shape))))
    return in_dtype(total, dtype)


bin_sums: Command = register_linear(
    "bin_sums",
    lambda x, *, axis, bins: _resized("bin_sums", x, axis, bins),
    lambda x, *, axis, bins: _sums(x, axis, bin_intervals(x.shape[axis], bins)),
    lambda ct, x, axis, bins: bin_sums_input_grad(ct, axis=axis, places=x.spec.shape[axis]),
    cost=lambda x, axis, bins: 2 * max(x.size, x.size // max(x.shape[axis], 1) * bins),
)
bin_sums_input_grad: Command = register_linear(
    "bin_sums_input_grad",
    lambda ct, *, axis, places: _resized("bin_sums_input_grad", ct, axis, places),
    lambda ct, *, axis, places: _sums(ct, axis, _bins_of_places(places, ct.shape[axis])),
    lambda g, ct, axis, places: bin_sums(g, axis=axis, bins=ct.spec.shape[axis]),
    cost=lambda ct, axis, places: 2 * max(ct.size, ct.size // max(ct.shape[axis], 1) * places),
)
expansion.set(bin_sums, lambda x, *, axis, bins: _expanded(x, axis, bin_intervals(x.spec.shape[axis], bins)))
expansion.set(
    bin_sums_input_grad, lambda ct, *, axis, places: _expanded(ct, axis, _bins_of_places(places, ct.spec.shape[axis]))
)
