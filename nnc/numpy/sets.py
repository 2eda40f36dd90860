"""Distinct elements, and vectors as sets.

How many distinct elements there are depends on values; `size=` fixes the shape, so that traced values work, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple, overload

import numpy as np

from nnc.array import indexing
from nnc.array.array import Array, as_value
from nnc.array.promote import (
    as_operand,
    as_operands,
    astype,
    broadcast_to_shape,
    dtype_of,
    promote,
    promote_compared,
)
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands import sort as commands
from nnc.commands.elementwise import ORDERED
from nnc.commands.rules import check_dtype
from nnc.numpy import elementwise as el
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import moveaxis, ravel, reshape
from nnc.numpy.operands import SIZED, at_once, known, ravel_for, to_axis, to_size, to_value
from nnc.numpy.reductions import any as any_
from nnc.numpy.reductions import count_nonzero, cumsum
from nnc.numpy.searching import argsort, flatnonzero, lexsort, sort
from nnc.typing import ArrayLike, No, Yes

__all__ = [
    "intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse",
    "unique_values",
]  # fmt: skip


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


def _unique(x: Any, where: str, axis: int | None, equal_nan: bool) -> UniqueAll:
    value = to_value(x, where)
    data = value.concrete(where, "use nnp.unique with size=n, how many elements to return, so that the shape is known.")
    axis = None if axis is None else to_axis(where, axis, data.ndim)
    comparable = data.astype(dtypes.accumulator(data.dtype), copy=False)
    options: Any = {"axis": axis, "equal_nan": equal_nan}
    _, first, inverse, counts = np.unique(
        comparable, return_index=True, return_inverse=True, return_counts=True, **options
    )
    flat, at = ravel_for(axis, value)
    return UniqueAll(indexing.take(flat, first, at), *(as_value(np.asarray(a)) for a in (first, inverse, counts)))


def _unique_of_size(x: Any, axis: int | None, equal_nan: bool, size: int, fill_value: Any) -> UniqueAll:
    """`unique` in a known shape: missing rows in the end are `fill_value` (by default the first element), occurring 0 times."""
    original = to_value(x, "unique")
    flat, at = ravel_for(axis, original)
    at = to_axis("unique", at, flat.spec.ndim)
    n, size = flat.spec.shape[at], to_size(size, "unique", "size")
    if not n:
        fill = 0 if fill_value is None else fill_value
        values = broadcast_to_shape(
            astype(as_operand(fill), flat.spec.dtype), (*flat.spec.shape[:at], size, *flat.spec.shape[at + 1 :])
        )
        nothing = constants.full(shape=(size,), dtype=dtypes.int64, value=0)
        return UniqueAll(
            to_value(values, "unique"), nothing, constants.full(shape=(0,), dtype=dtypes.int64, value=0), nothing
        )
    rows = reshape(moveaxis(flat, at, 0), (n, -1))
    keys = [rows[:, i] for i in reversed(range(rows.spec.shape[1]))]
    order = argsort(keys[0]) if len(keys) == 1 else lexsort(keys)
    first = _starts(indexing.take(rows, order, 0), equal_nan)
    places = flatnonzero(first, size=size)
    found = count_nonzero(first)
    there = constants.iota(shape=(size,), dtype=dtypes.int64, axis=0) < found
    indices = indexing.take(order, places)
    values = indexing.take(flat, indices, at)
    if fill_value is not None:
        mask = reshape(there, tuple(size if i == at else 1 for i in range(flat.spec.ndim)))
        values = astype(el.where(mask, values, fill_value), flat.spec.dtype)
    group = cumsum(first) - 1
    inverse = constants.full(shape=(n,), dtype=dtypes.int64, value=0).at[order].set(group)
    counts = constants.full(shape=(size,), dtype=dtypes.int64, value=0).at[group].add(1, mode="drop")
    return UniqueAll(values, indices, reshape(inverse, original.spec.shape) if axis is None else inverse, counts)


def _starts(rows: Array, equal_nan: bool) -> Array:
    """Where, in sorted rows, one differs from the row before."""
    differ = el.not_equal(rows[1:], rows[:-1])
    if equal_nan:
        differ = el.logical_and(differ, ~el.logical_and(el.isnan(rows[1:]), el.isnan(rows[:-1])))
    return concatenate([constants.full(shape=(1,), dtype=dtypes.bool_, value=True), any_(differ, 1)])


@overload
def unique(
    x: ArrayLike, return_index: No = False, return_inverse: No = False, return_counts: No = False, axis: int | None = None,
    *, equal_nan: bool = True, size: int | None = None, fill_value: ArrayLike | None = None,
) -> Array: ...  # fmt: skip
@overload
def unique(
    x: ArrayLike, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None,
    *, equal_nan: bool = True, size: int | None = None, fill_value: ArrayLike | None = None,
) -> tuple[Array, ...]: ...  # fmt: skip
@spelled
def unique(
    x: ArrayLike, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None,
    *, equal_nan: bool = True, size: int | None = None, fill_value: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """Returns the distinct elements of `x` (or slices along `axis`), sorted.

    Args:
        x: any shape.
        return_index: return, too, where each occurs first.
        return_inverse: return, too, which of them each element is.
        return_counts: return, too, how often each occurs.
        axis: axis whose slices are compared; None compares elements of the flattened array.
        equal_nan: NaNs are one element.
        size: how many to return, so that traced values work: further ones are left out.
        fill_value: stands for missing ones where `size` is greater than their number; the least element by default.

    Raises:
        TraceError: `x` is traced and `size` not given.

    Example:
        >>> unique(np.asarray([3, 1, 3]), return_counts=True)
        (Array([1, 3], dtype=int64), Array([1, 2], dtype=int64))
    """
    found = (
        _unique(x, "unique", axis, equal_nan) if size is None else _unique_of_size(x, axis, equal_nan, size, fill_value)
    )
    wanted = (True, return_index, return_inverse, return_counts)
    results = tuple(part for part, on in zip(found, wanted, strict=True) if on)
    return results[0] if len(results) == 1 else results


@spelled
def unique_all(x: ArrayLike, /) -> UniqueAll:
    """Returns the distinct elements, where each occurs first, which of them each element is, and how often each occurs.

    Args:
        x: any shape.

    Example:
        >>> unique_all(nnp.asarray([2, 1, 2])).indices
        Array([1, 0], dtype=int64)
    """
    return _unique(x, "unique_all", None, False)


@spelled
def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """Returns the distinct elements and how often each occurs.

    Args:
        x: any shape.

    Example:
        >>> unique_counts(nnp.asarray([2, 1, 2])).counts
        Array([1, 2], dtype=int64)
    """
    found = _unique(x, "unique_counts", None, False)
    return UniqueCounts(found.values, found.counts)


@spelled
def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """Returns the distinct elements and which of them each element is.

    Args:
        x: any shape.

    Example:
        >>> unique_inverse(nnp.asarray([2, 1, 2])).inverse_indices
        Array([1, 0, 1], dtype=int64)
    """
    found = _unique(x, "unique_inverse", None, False)
    return UniqueInverse(found.values, found.inverse_indices)


@spelled
def unique_values(x: ArrayLike, /) -> Array:
    """Returns the distinct elements, sorted.

    Args:
        x: any shape.

    Example:
        >>> unique_values(nnp.asarray([2, 1, 2]))
        Array([1, 2], dtype=int64)
    """
    return _unique(x, "unique_values", None, False).values


# -- vectors as sets ---------------------------------------------------------------------------------------------------


@spelled
def isin(x: ArrayLike, test_elements: ArrayLike, *, assume_unique: bool = False, invert: bool = False) -> Array:
    """Returns whether each element of `x` is one of `test_elements`; with `invert`, whether it is none.

    Args:
        x: any shape.
        test_elements: any shape, flattened.
        assume_unique: a promise that no element occurs twice; it is not needed.
        invert: return whether it is none of them.

    Example:
        >>> isin(np.asarray([1, 2, 3]), [3, 1])
        Array([ True, False,  True], dtype=bool)
    """
    x, tests = promote_compared(x, test_elements, where="isin")
    spec = to_value(x, "isin").spec
    check_dtype("isin", spec, *ORDERED)
    tests = sort(tests, axis=None)
    n = tests.spec.size
    if not n:
        found = constants.full(shape=spec.shape, dtype=dtypes.bool_, value=False)
    else:
        place = el.minimum(commands.searchsorted(tests, x, side="left"), n - 1)
        found = el.equal(indexing.take(tests, place), x)
    return ew.bitwise_not(found) if invert else found


def _distinct(
    where: str, x: Any, y: Any, keep: Callable[[Array, Array, Array], Any], both: bool, size: Any, fill_value: Any,
    keeps_integers: bool = False,
) -> Array:  # fmt: skip
    """Returns the distinct elements, sorted, of `x` (with `both` also of y) for which `keep(elements, x, y)` is true; with
    `keeps_integers`, integers stay in their own dtypes.
    """
    given = as_operands((x, y), where)
    with at_once(*given) if size is None else nullcontext():
        are_integers = all(dtypes.is_integer(dtype_of(v)) for v in given)
        x, y = (ravel(v) for v in (given if keeps_integers and are_integers else promote(*given, where=where)))
        return _chosen(where, x, y, keep, both, size, fill_value)


def _chosen(
    where: str, x: Array, y: Array, keep: Callable[[Array, Array, Array], Any], both: bool, size: Any, fill_value: Any
) -> Array:
    elements = sort(concatenate([x, y]) if both else x)
    if not elements.spec.size:
        fill = 0 if fill_value is None else fill_value
        return broadcast_to_shape(to_value(astype(as_operand(fill), elements.spec.dtype), where), (size or 0,))
    chosen = el.logical_and(_starts(elements[:, None], True), keep(elements, x, y))
    if size is None:
        return indexing.take(elements, np.flatnonzero(known(chosen, where, SIZED)))
    values = indexing.take(elements, flatnonzero(chosen, size=size))
    there = constants.iota(shape=values.spec.shape, dtype=dtypes.int64, axis=0) < count_nonzero(chosen)
    fill = values[:1] if fill_value is None else fill_value
    return astype(el.where(there, values, fill), elements.spec.dtype)


@spelled
def union1d(x1: ArrayLike, x2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Returns the distinct elements of both, sorted; `size` and `fill_value` as in `unique`.

    Args:
        x1: any shape, flattened.
        x2: any shape, flattened.
        size: how many to return, so that traced values work; see `unique`.
        fill_value: stands for missing elements; see `unique`.

    Example:
        >>> union1d([3, 1], [2, 1])
        Array([1, 2, 3], dtype=int64)
    """
    return _distinct("union1d", x1, x2, lambda elements, x, y: True, True, size, fill_value)


@spelled
def setdiff1d(
    x1: ArrayLike,
    x2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Returns the distinct elements of `x1` that are not in `x2`, sorted; `size` and `fill_value` as in `unique`.

    Args:
        x1: any shape, flattened.
        x2: any shape, flattened.
        assume_unique: a promise that no element occurs twice; it is not needed.
        size: how many to return, so that traced values work; see `unique`.
        fill_value: stands for missing elements; see `unique`.

    Example:
        >>> nnp.setdiff1d([1, 2, 3], [2])
        Array([1, 3], dtype=int64)
    """
    return _distinct("setdiff1d", x1, x2, lambda elements, x, y: ~isin(elements, y), False, size, fill_value, True)


@spelled
def setxor1d(
    x1: ArrayLike,
    x2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Returns the distinct elements that are in just one of both, sorted; `size` and `fill_value` as in `unique`.

    Args:
        x1: any shape, flattened.
        x2: any shape, flattened.
        assume_unique: a promise that no element occurs twice; it is not needed.
        size: how many to return, so that traced values work; see `unique`.
        fill_value: stands for missing elements; see `unique`.

    Example:
        >>> setxor1d(nnp.asarray([1, 2, 3]), nnp.asarray([2, 3, 4]))
        Array([1, 4], dtype=int64)
    """
    return _distinct(
        "setxor1d", x1, x2, lambda elements, x, y: ~el.logical_and(isin(elements, x), isin(elements, y)), True, size,
        fill_value,
    )  # fmt: skip


@overload
def intersect1d(
    x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False, return_indices: No = False, *, size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array: ...  # fmt: skip
@overload
def intersect1d(
    x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False, *, return_indices: Yes, size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> tuple[Array, Array, Array]: ...  # fmt: skip
@spelled
def intersect1d(
    x1: ArrayLike, x2: ArrayLike, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:  # fmt: skip
    """Returns the distinct elements that are in both, sorted; `size` and `fill_value` as in `unique`.

    Args:
        x1: any shape, flattened.
        x2: any shape, flattened.
        assume_unique: a promise that no element occurs twice; it is not needed.
        return_indices: return, too, where each occurs first in the flattened `x1` and in `x2`.
        size: how many to return, so that traced values work; see `unique`.
        fill_value: stands for missing elements; see `unique`.

    Example:
        >>> intersect1d([3, 1, 2], [2, 3])
        Array([2, 3], dtype=int64)
    """
    values = _distinct("intersect1d", x1, x2, lambda elements, x, y: isin(elements, y), False, size, fill_value)
    return (values, _first_place(x1, values), _first_place(x2, values)) if return_indices else values


def _first_place(x: Any, values: Array) -> Array:
    """Returns the first place of each of `values` in the flattened `x`."""
    flat = ravel(x)
    order = argsort(flat)
    return indexing.take(
        order, commands.searchsorted(*promote(indexing.take(flat, order), values), side="left"), mode="clip"
    )
