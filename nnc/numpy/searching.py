"""Sorting, searching, selecting and counting elements.

Functions whose result's shape depends on values (`nonzero`, `unique` …) need values that are known: traced values raise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from nnc.array import indexing
from nnc.array.array import Array, as_value
from nnc.array.operators import array_method
from nnc.array.promote import astype, broadcast, promote, promote_compared
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands import sort as commands
from nnc.commands.elementwise import INTEGER
from nnc.commands.rules import check_dtype
from nnc.commands.shape import slice_axis
from nnc.errors import ArgumentError, OutOfBoundsError, ShapeError, user_error
from nnc.numpy import elementwise as el
from nnc.numpy import manipulation
from nnc.numpy.creation import arange
from nnc.numpy.joining import concatenate, stack
from nnc.numpy.operands import (
    SIZED,
    STATIC,
    at_once,
    check_not_inplace,
    in_dtype,
    keeps_weakness,
    known,
    known_or_none,
    ravel_for,
    static_int,
    to_axis,
    to_shape,
    to_size,
    to_value,
    to_values,
)
from nnc.numpy.reductions import count_nonzero, cumsum
from nnc.numpy.repetition import pad, pick
from nnc.typing import ArrayLike, ShapeLike

__all__ = [
    "argpartition", "argsort", "argwhere", "bincount", "choose", "compress", "delete", "digitize", "extract", "flatnonzero",
    "insert", "lexsort", "nonzero", "partition", "place", "put", "put_along_axis", "putmask", "ravel_multi_index",
    "searchsorted", "select", "sort", "sort_complex", "take", "take_along_axis", "top_k", "unravel_index",
]  # fmt: skip

KEPT = (
    "use nnp.where(condition, x, 0), which keeps the shape, or take the elements at nnp.nonzero(condition, size=n); or make the "
    "places known while tracing."
)

# -- order -------------------------------------------------------------------------------------------------------------


@array_method
def sort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """Returns `x` sorted along `axis`, NaN last; None flattens it first. The sort is always stable.

    Args:
        x: any shape.
        axis: axis to sort along; None flattens first.
        descending: whether to sort from the largest to the smallest.
        stable: accepted as in NumPy; equal elements keep their order anyway.

    Raises:
        ShapeError: there is no such axis.

    Example:
        >>> sort(np.asarray([3, 1, 2]), descending=True)
        Array([3, 2, 1], dtype=int64)
    """
    x, at = ravel_for(axis, to_value(x, "sort"))
    return commands.sort(x, axis=to_axis("sort", at, x.spec.ndim), descending=bool(descending))


@array_method
def argsort(x: ArrayLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Array:
    """Returns the indices (int64) that sort `x` along `axis`; see `sort`.

    Args:
        x: any shape.
        axis: axis to sort along; None flattens first.
        descending: whether to sort from the largest to the smallest.
        stable: accepted as in NumPy; equal elements keep their order anyway.

    Example:
        >>> argsort(np.asarray([3, 1, 2]))
        Array([1, 2, 0], dtype=int64)
    """
    x, at = ravel_for(axis, to_value(x, "argsort"))
    return commands.argsort(x, axis=to_axis("argsort", at, x.spec.ndim), descending=bool(descending), stable=True)


@spelled
def lexsort(keys: ArrayLike, axis: int = -1) -> Array:
    """Returns the indices that sort by several keys: by the last one first, ties by the one before, ….

    Args:
        keys: a sequence of arrays of one shape, or an array whose rows they are; the last is the most important.
        axis: axis to sort along.

    Example:
        >>> lexsort(([1, 0, 2], [5, 5, 4]))
        Array([2, 1, 0], dtype=int64)
    """
    rows = keys if isinstance(keys, (tuple, list)) else list(to_value(keys, "lexsort", "keys"))
    values = [to_value(key, "lexsort", "keys") for key in rows]
    if not values:
        raise user_error(ArgumentError, "lexsort", "there is no key.", fix="pass at least one key.")
    order = argsort(values[0], axis)
    for key in values[1:]:
        step = argsort(indexing.take_along_axis(key, order, axis), axis)
        order = indexing.take_along_axis(order, step, axis)
    return order


@array_method
def partition(x: ArrayLike, kth: ArrayLike, axis: int | None = -1) -> Array:
    """Returns `x` with the element `kth` of the sorted order in its place along `axis`, smaller ones before it.

    The others are in some order; it is the sorted one.

    Args:
        x: any shape.
        kth: an integer or several: places whose elements come to stand where they do in the sorted order.
        axis: axis to order; None flattens first.

    Raises:
        OutOfBoundsError: there is no such place.

    Example:
        >>> partition(nnp.asarray([3, 1, 2]), 1)
        Array([1, 2, 3], dtype=int64)
    """
    values = sort(x, axis)
    _check_places("partition", kth, values, axis)
    return values


@array_method
def argpartition(x: ArrayLike, kth: ArrayLike, axis: int | None = -1) -> Array:
    """Returns the indices that order `x` as `partition` does.

    Args:
        x: any shape.
        kth: an integer or several: places whose elements come to stand where they do in the sorted order.
        axis: axis to order; None flattens first.

    Example:
        >>> argpartition(nnp.asarray([3, 1, 2]), 1)
        Array([1, 2, 0], dtype=int64)
    """
    order = argsort(x, axis)
    _check_places("argpartition", kth, order, axis)
    return order


def _check_places(where: str, kth: Any, x: Array, axis: int | None) -> None:
    n = x.spec.shape[-1 if axis is None else axis]
    for k in kth if isinstance(kth, (tuple, list)) else np.ravel(known(kth, where, STATIC)).tolist():
        if not -n <= static_int(k, where, "kth") < n:
            problem = f"kth is {k}, the axis has {n} elements."
            fix = f"choose a place from {-n} to {n - 1}."
            raise user_error(OutOfBoundsError, where, problem, operands={"x": x.spec}, fix=fix)


@keeps_weakness
def sort_complex(x: ArrayLike) -> Array:
    """Returns `x` as complex numbers, sorted along the last axis by real part, then by imaginary part.

    Args:
        x: any shape.

    Example:
        >>> sort_complex(nnp.asarray([2 + 0j, 1 + 2j, 1 + 1j]))
        Array([1.+1.j, 1.+2.j, 2.+0.j], dtype=complex64)
    """
    x = to_value(x, "sort_complex")
    return sort(x.astype(dtypes.complex_dtype(x.spec.dtype)))


@partial(keeps_weakness, counts=True)
def top_k(x: ArrayLike, k: int, *, axis: int = -1) -> tuple[Array, Array]:
    """Returns the `k` largest elements along `axis`, in falling order, and their indices.

    Args:
        x: any shape.
        k: how many, known while tracing.
        axis: axis to search along.

    Returns:
        values and their indices (int64); the axis has size `k`.

    Raises:
        ShapeError: the axis has fewer elements.

    Example:
        >>> top_k(np.asarray([3, 9, 5]), 2)
        (Array([9, 5], dtype=int64), Array([1, 2], dtype=int64))
    """
    x, k = to_value(x, "top_k"), static_int(k, "top_k", "k")
    at = to_axis("top_k", axis, x.spec.ndim)
    values, places = commands.top_k(manipulation.moveaxis(x, at, -1), k=k)
    return manipulation.moveaxis(values, -1, at), manipulation.moveaxis(places, -1, at)


@array_method
def searchsorted(x1: ArrayLike, x2: ArrayLike, /, side: str = "left", sorter: ArrayLike | None = None) -> Array:
    """Returns where elements of `x2` would be inserted in the sorted vector `x1`.

    Args:
        x1: (n,), sorted.
        x2: any shape.
        side: "left": before equal elements, "right": behind them.
        sorter: indices that sort x1, if it is not sorted.

    Raises:
        ShapeError: x1 is no vector.

    Example:
        >>> searchsorted(np.asarray([1, 3, 5]), [3, 4])
        Array([1, 2], dtype=int64)
    """
    steps, values = promote_compared(x1, x2, where="searchsorted")
    if np.ndim(steps) != 1:
        problem = f"x1 has {np.ndim(steps)} axes."
        raise user_error(ShapeError, "searchsorted", problem, fix="pass a sorted vector; use nnc.vmap for rows.")
    if sorter is not None:
        steps = indexing.take(steps, sorter)
    return commands.searchsorted(steps, values, side=side)


@spelled
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False) -> Array:
    """Returns the number of the bin that holds each element: bins[i - 1] <= x < bins[i], or with `right` < and <=.

    Where bins fall, bins[i - 1] > x >= bins[i], or with `right` >= and >.

    Args:
        x: real, any shape.
        bins: a vector that rises or falls; traced ones fall where the last is less than the first.
        right: the right edge of a bin belongs to it, not the left one.

    Raises:
        ArgumentError: bins are known to do neither.

    Example:
        >>> digitize(np.asarray([0.5, 2.5]), [3.0, 2.0, 1.0])
        Array([3, 1], dtype=int64)
    """
    x, bins = to_values("digitize", x=x, bins=bins)
    side = "left" if right else "right"
    values = known_or_none(bins)
    if bins.spec.ndim != 1 or bins.spec.size < 2:
        return searchsorted(bins, x, side=side)
    if values is not None and is_rising(values):
        return searchsorted(bins, x, side=side)
    reversed_ = bins.spec.size - searchsorted(manipulation.flip(bins), x, side=side)
    if values is None:
        return el.where(bins[0] > bins[-1], reversed_, searchsorted(bins, x, side=side))
    if not is_rising(values[::-1]):
        problem = "bins neither rise nor fall."
        raise user_error(ArgumentError, "digitize", problem, operands={"bins": bins.spec}, fix="sort the bins.")
    return reversed_


def is_rising(values: np.ndarray[Any, Any]) -> bool:
    """Whether no element is less than the one before it."""
    return bool((values[:-1] <= values[1:]).all())


# -- taking and putting ------------------------------------------------------------------------------------------------


@array_method
def take(
    x: ArrayLike,
    indices: ArrayLike,
    /,
    axis: int | None = None,
    *,
    mode: str = "error",
    fill_value: complex | None = None,
) -> Array:
    """Returns the elements at `indices` along `axis`; of the flattened array where it is None.

    Args:
        x: any shape.
        indices: integers, any shape; negative ones count from the end.
        axis: axis to take from; None flattens first.
        mode: treatment of an index out of range: "error" raises, "clip" takes the nearest, "wrap" counts modulo the size,
            "fill" reads `fill_value` (by default NaN, or the number of an integer dtype that is farthest from 0).
        fill_value: stands for an index out of range, with mode "fill".

    Raises:
        IndexError: an index is out of range.

    Example:
        >>> take(np.asarray([10, 20, 30]), [2, 0])
        Array([30, 10], dtype=int64)
    """
    x = to_value(x, "take")
    if fill_value is None:
        return indexing.take(x, indices, axis, mode)
    x, at = ravel_for(axis, x)
    index = (slice(None),) * to_axis("take", at, x.spec.ndim) + (indexing.integer_indices(indices, "take"),)
    return x.at[index].get(mode=mode, fill_value=fill_value)


@specialised(2)
def take_along_axis(x: ArrayLike, indices: ArrayLike, /, axis: int | None = -1, *, mode: str = "error") -> Array:
    """Returns, in each row along `axis`, the elements at that row's indices.

    out[i, j] = x[i, indices[i, j]]

    Args:
        x: any shape.
        indices: integers, of as many axes as `x`; broadcast with it but for `axis`.
        axis: axis to take from; None flattens first.
        mode: treatment of an index out of range, as for `take`.

    Example:
        >>> take_along_axis(np.asarray([[1, 2], [3, 4]]), np.asarray([[1], [0]]))
        Array([[2],
               [3]], dtype=int64)
    """
    return indexing.take_along_axis(to_value(x, "take_along_axis"), indices, axis, mode)


@keeps_weakness
def put_along_axis(
    x: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None = -1,
    *,
    mode: str = "error",
    inplace: bool = False,
) -> Array:
    """Returns `x` with `values` at each row's indices along `axis` (NumPy writes into `x` instead).

    Args:
        x: any shape.
        indices: integers, of as many axes as `x`; broadcast with it but for `axis`.
        values: broadcast to the shape of `indices`.
        axis: axis to write along; None flattens `x` first.
        mode: treatment of an index out of range: "error" raises, "clip" takes the nearest, "wrap" counts modulo the size,
            "drop" writes nothing.
        inplace: must be False, as arrays are immutable.

    Example:
        >>> put_along_axis(nnp.zeros((2, 2)), nnp.asarray([[0], [1]]), 5.0, axis=1)
        Array([[5., 0.],
               [0., 5.]], dtype=float32)
    """
    check_not_inplace(inplace, "put_along_axis")
    return indexing.put_along_axis(to_value(x, "put_along_axis"), indices, values, axis, mode)


@spelled
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """Returns, for each element, the choice of the first condition that holds, else `default`.

    Args:
        condlist: conditions, any shapes; they and the choices broadcast together.
        choicelist: an array or number for each condition.
        default: stands where no condition holds.

    Raises:
        ArgumentError: unequal numbers of conditions and choices.

    Example:
        >>> x = nnp.arange(4)
        >>> select([x < 1, x > 2], [-x - 1, x * 10], default=7)
        Array([-1,  7,  7, 30], dtype=int64)
    """
    if len(condlist) != len(choicelist):
        problem = f"{len(condlist)} conditions go with {len(choicelist)} choices."
        raise user_error(ArgumentError, "select", problem, fix="pass as many of either.")
    result = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = el.where(condition, choice, result)
    return to_value(result, "select")


@array_method
def choose(x: ArrayLike, choices: Sequence[Any], *, mode: str = "error") -> Array:
    """Returns, for each element of `x`, the element of the choice which it numbers; all broadcast together.

    Args:
        x: integers, any shape: numbers of choices.
        choices: arrays or numbers; they and `x` broadcast together.
        mode: treatment of a number out of range: "error" raises, "clip" takes the nearest, "wrap" counts modulo.

    Raises:
        IndexError: there is no such choice.

    Example:
        >>> choose(np.asarray([1, 0]), [[10, 20], [30, 40]])
        Array([30, 20], dtype=int64)
    """
    options = [to_value(choice, "choose", "choices") for choice in promote(*choices, where="choose")]
    number, *options = broadcast(to_value(x, "choose"), *options, where="choose")
    n = len(options)
    if mode == "clip":
        number = el.clip(number, 0, n - 1)
    elif mode != "wrap":
        number = el.where(el.less(number, 0), n, number)  # out of range: choices are not counted from the end
    return indexing.take_along_axis(stack(options), number[None], 0, mode)[0]


@keeps_weakness
def put(x: ArrayLike, ind: ArrayLike, v: ArrayLike, *, mode: str = "error", inplace: bool = False) -> Array:
    """Returns `x` with the elements at `ind`, places in the flattened array, replaced by `v`, repeated as often as needed.

    NumPy writes into x instead.

    Args:
        x: any shape.
        ind: integers: places in the flattened array.
        v: numbers to write, repeated as often as needed.
        mode: treatment of an index out of range: "error" raises, "clip" takes the nearest, "wrap" counts modulo the size,
            "drop" writes nothing.
        inplace: must be False, as arrays are immutable.

    Example:
        >>> put(np.zeros(3), [0, 2], [5.0])
        Array([5., 0., 5.], dtype=float64)
    """
    check_not_inplace(inplace, "put")
    x, values = to_values("put", x=x, v=v)
    places, values = manipulation.ravel(ind), manipulation.ravel(values)
    if not values.spec.size or not places.spec.size:
        return x
    news = values[np.arange(places.spec.size) % values.spec.size]
    return manipulation.reshape(manipulation.ravel(x).at[places].set(news, mode=mode), x.spec.shape)


@keeps_weakness
def place(x: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = False) -> Array:
    """Returns `x` with the elements where `mask` is true replaced by `vals`, one after the other, repeated as needed.

    Args:
        x: any shape.
        mask: an array with as many bools as `x` has elements.
        vals: numbers to write, repeated as often as needed.
        inplace: must be False, as arrays are immutable.

    Example:
        >>> place(nnp.arange(4), nnp.asarray([True, False, True, False]), nnp.asarray([7, 8]))
        Array([7, 1, 8, 3], dtype=int64)
    """
    check_not_inplace(inplace, "place")
    x, values = to_values("place", x=x, vals=vals)
    values = manipulation.ravel(values)
    true = el.as_bool(mask, "place")
    if true.spec.size != x.spec.size or not values.spec.size:
        problem = "mask must have the size of x, and vals an element."
        operands = {"x": x.spec, "mask": true.spec, "vals": values.spec}
        fix = "use nnp.where for masks that broadcast."
        raise user_error(ShapeError, "place", problem, operands=operands, fix=fix)
    number = cumsum(true) - 1
    news = indexing.take(values, el.remainder(el.maximum(number, 0), values.spec.size))
    fitting = indexing.fit_values(x, news, "place")
    return el.where(manipulation.reshape(true, x.spec.shape), manipulation.reshape(fitting, x.spec.shape), x)


@keeps_weakness
def putmask(x: ArrayLike, mask: ArrayLike, values: ArrayLike) -> Array:
    """Returns `x` with elements of `values`, repeated to the size of x, where `mask` is true (NumPy writes into x instead).

    Args:
        x: any shape.
        mask: bools that broadcast to `x`.
        values: numbers to write; repeated to the size of `x`.

    Example:
        >>> putmask(nnp.arange(4), nnp.asarray([True, False, True, False]), nnp.asarray([5, 6, 7, 8]))
        Array([5, 1, 7, 3], dtype=int64)
    """
    x, news = to_values("putmask", x=x, values=values)
    news = manipulation.ravel(news)
    repeated = news[np.arange(x.spec.size) % max(1, news.spec.size)]
    fitting = indexing.fit_values(x, repeated, "putmask")
    return el.where(mask, manipulation.reshape(fitting, x.spec.shape), x)


@spelled
def compress(condition: ArrayLike, x: ArrayLike, axis: int | None = None) -> Array:
    """Returns the slices of `x` along `axis` for which `condition`, a vector known while tracing, is true.

    Args:
        condition: (n,) bools, known while tracing.
        x: any shape.
        axis: axis to choose along; None flattens first.

    Example:
        >>> compress([True, False, True], nnp.asarray([1, 2, 3]))
        Array([1, 3], dtype=int64)
    """
    x, at = ravel_for(axis, to_value(x, "compress"))
    places = np.flatnonzero(known(condition, "compress", KEPT))
    return pick(x, places, to_axis("compress", at, x.spec.ndim))


@spelled
def extract(condition: ArrayLike, x: ArrayLike) -> Array:
    """Returns the elements of `x` where `condition`, which must be known while tracing, is true.

    Args:
        condition: bools, flattened as `x` is, known while tracing.
        x: any shape.

    Example:
        >>> extract(nnp.asarray([True, False, True]), nnp.asarray([1, 2, 3]))
        Array([1, 3], dtype=int64)
    """
    return compress(known(condition, "extract", KEPT).ravel(), x)


@spelled
def delete(x: ArrayLike, obj: ArrayLike | slice, axis: int | None = None) -> Array:
    """Returns `x` without the elements at `obj` (an index, a slice or indices, known while tracing) along `axis`.

    Args:
        x: any shape.
        obj: an index, a slice or indices, known while tracing.
        axis: axis to shorten; None flattens first.

    Example:
        >>> delete(np.asarray([1, 2, 3]), 1)
        Array([1, 3], dtype=int64)
    """
    x, at = ravel_for(axis, to_value(x, "delete"))
    at = to_axis("delete", at, x.spec.ndim)
    index = obj if isinstance(obj, slice) else known(obj, "delete", KEPT)
    places = np.arange(x.spec.shape[at])
    try:
        return pick(x, np.delete(places, index), at)
    except IndexError as error:
        fix = "name elements that are there."
        raise user_error(OutOfBoundsError, "delete", f"{error}.", operands={"x": x.spec}, fix=fix) from None


@keeps_weakness
def insert(x: ArrayLike, obj: int, values: ArrayLike, axis: int | None = None) -> Array:
    """Returns `x` with `values` inserted before the index `obj` along `axis`; None flattens it first.

    Args:
        x: any shape.
        obj: index before which the values come to stand.
        values: broadcast to the shape of `x` but for `axis`.
        axis: axis to lengthen; None flattens first.

    Example:
        >>> insert(nnp.asarray([1, 3]), 1, 2)
        Array([1, 2, 3], dtype=int64)
    """
    x, at = ravel_for(axis, to_value(x, "insert"))
    at = to_axis("insert", at, x.spec.ndim)
    n, place = x.spec.shape[at], static_int(obj, "insert", "obj")
    place = place + n if place < 0 else place
    news = in_dtype(values, x.spec.dtype, "insert", "values")
    if news.spec.ndim < x.spec.ndim:
        count = news.spec.shape[-1] if news.spec.ndim and x.spec.ndim == 1 else 1
        sizes = tuple(count if i == at else m for i, m in enumerate(x.spec.shape))
        news = manipulation.broadcast_to(news, sizes)
    return concatenate([slice_axis(x, at, 0, place), news, slice_axis(x, at, place, n)], at)


# -- places and counts -------------------------------------------------------------------------------------------------


@array_method
def nonzero(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike = 0) -> tuple[Array, ...]:
    """Returns the indices of the elements that are not 0: an array for each axis.

    Args:
        x: any shape.
        size: how many to return, so that traced values work: further ones are left out, missing ones are `fill_value`.
        fill_value: stands for missing indices.

    Raises:
        TraceError: `x` is traced and `size` not given.
        ArgumentError: `x` is 0-d.

    Example:
        >>> nonzero(np.asarray([0, 5, 0, 6]))
        (Array([1, 3], dtype=int64),)
    """
    value = to_value(x, "nonzero")
    if not value.spec.ndim:
        problem = "a 0-d array has no indices."
        raise user_error(ArgumentError, "nonzero", problem, fix="use nnp.atleast_1d(x), or x != 0.")
    if size is None:
        return tuple(as_value(np.ascontiguousarray(i)) for i in np.nonzero(value.concrete("nonzero", SIZED)))
    size = to_size(size, "nonzero", "size")
    true = manipulation.ravel(el.as_bool(value, "nonzero"))
    order = commands.argsort(ew.bitwise_not(true), axis=0, descending=False, stable=True)
    taken = slice_axis(order, 0, 0, min(size, true.spec.size))
    if size > true.spec.size:
        taken = pad(taken, (0, size - true.spec.size))
    there = arange(size) < count_nonzero(true)
    return tuple(el.where(there, i, fill_value) for i in unravel_index(taken, value.spec.shape))


@spelled
def flatnonzero(x: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0) -> Array:
    """Returns the indices, in the flattened array, of the elements that are not 0; see `nonzero`.

    Args:
        x: any shape.
        size: how many to return, so that traced values work; see `nonzero`.
        fill_value: stands for missing indices.

    Example:
        >>> nnp.flatnonzero(nnp.asarray([0, 3, 4]))
        Array([1, 2], dtype=int64)
    """
    value = to_value(x, "flatnonzero")
    with at_once(value):
        flat = manipulation.ravel(value)
    return nonzero(flat, size=size, fill_value=fill_value)[0]


@spelled
def argwhere(x: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0) -> Array:
    """Returns the indices of the elements that are not 0, one row for each; see `nonzero`.

    Args:
        x: any shape.
        size: how many to return, so that traced values work; see `nonzero`.
        fill_value: stands for missing indices.

    Example:
        >>> argwhere(nnp.asarray([[0, 1], [2, 0]]))
        Array([[0, 1],
               [1, 0]], dtype=int64)
    """
    return stack(nonzero(x, size=size, fill_value=fill_value), axis=1)


def _places(x: Any, where: str, size: int) -> Array:
    """Converts indices to int64, which holds the indices of every array.

    Raises:
        OutOfBoundsError: one is known not to be in 0..size - 1.
    """
    x = to_value(x, where, "indices")
    check_dtype(where, x.spec, *INTEGER, "indices")
    data = known_or_none(x)
    wrong = None if data is None else data[(data < 0) | (data >= size)]
    if wrong is not None and wrong.size:
        problem = f"index {wrong[0]} is out of range for size {size}."
        fix = f"give indices from 0 to {size - 1}; take those of negative ones modulo the size yourself."
        raise user_error(OutOfBoundsError, where, problem, operands={"indices": x.spec}, fix=fix)
    return x.astype(dtypes.int64)


@spelled
def unravel_index(indices: ArrayLike, shape: ShapeLike) -> tuple[Array, ...]:
    """Returns the index along each axis of `shape` for indices of the flattened array.

    Args:
        indices: integers, any shape.
        shape: an integer or a sequence of integers.

    Raises:
        IndexError: an index is known to be negative or too large; traced ones are not looked at.

    Example:
        >>> unravel_index(5, (2, 3))
        (Array(1, dtype=int64), Array(2, dtype=int64))
    """
    sizes = to_shape(shape, "unravel_index")
    rest = _places(indices, "unravel_index", math.prod(sizes))
    found = []
    for n in reversed(sizes[1:]):
        found.append(rest % n)
        rest = rest // n
    return (rest, *reversed(found)) if sizes else ()


@spelled
def ravel_multi_index(multi_index: Sequence[Any], dims: ArrayLike) -> Array:
    """Returns the index in the flattened array for an index along each axis of `dims`.

    Args:
        multi_index: an array of integers for each axis.
        dims: size of each axis.

    Raises:
        IndexError: an index is known to be negative or too large; traced ones are not looked at.

    Example:
        >>> ravel_multi_index((nnp.asarray([0, 1]), nnp.asarray([2, 0])), (2, 3))
        Array([2, 3], dtype=int64)
    """
    sizes = to_shape(dims, "ravel_multi_index")
    if len(multi_index) != len(sizes):
        problem = f"{len(multi_index)} indices go with {len(sizes)} axes."
        raise user_error(ArgumentError, "ravel_multi_index", problem, fix="give one for each.")
    total: Any = 0
    for i, index in enumerate(multi_index):
        place = _places(index, "ravel_multi_index", sizes[i])
        total = el.add(total, el.multiply(place, math.prod(sizes[i + 1 :])))
    return to_value(total, "ravel_multi_index")


# -- counting ----------------------------------------------------------------------------------------------------------


@spelled
def bincount(x: ArrayLike, weights: ArrayLike | None = None, minlength: int = 0, *, length: int | None = None) -> Array:
    """Returns how often each of 0, 1, 2, … occurs in a vector of integers, or the sum of its weights.

    Args:
        x: (n,) integers of 0 or more.
        weights: (n,), added in place of 1.
        minlength: least size of the result.
        length: size of the result, so that traced values work; else the largest element + 1, at least `minlength`.

    Raises:
        IndexError: an element is not below `length`, or a traced one is negative.
        DTypeError: `x` holds no integers.
        ArgumentError: an element or a length is known to be negative.

    Example:
        >>> bincount(np.asarray([1, 1, 3]))
        Array([0, 2, 0, 1], dtype=int64)
    """
    x = to_value(x, "bincount")
    if dtypes.is_bool(x.spec.dtype):
        x = astype(x, dtypes.int64)
    check_dtype("bincount", x.spec, *INTEGER, "x")
    data = known_or_none(x)
    if data is not None and data.size and data.min() < 0:
        problem = f"element {data.min()} is negative."
        raise user_error(ArgumentError, "bincount", problem, operands={"x": x.spec}, fix="count numbers of 0 or more.")
    least = to_size(minlength, "bincount", "minlength")
    if length is None:
        values = known(x, "bincount", "pass length=n, the number of counts, so that the shape of the result is known.")
        n = max(least, int(values.max()) + 1 if values.size else 0)
    else:
        n = to_size(length, "bincount", "length")
    if data is None and x.spec.dtype in dtypes.SIGNED:
        x = astype(x, dtypes.int64)
        x = el.where(x < 0, x - n, x)  # as far before the first count as it says, where nothing is
    dtype = dtypes.int64 if weights is None else to_value(weights, "bincount").spec.dtype
    counts = constants.full(shape=(n,), dtype=dtype, value=0)
    return counts.at[x].add(1 if weights is None else weights)
