"""Reductions: one value of each group of elements, and running sums and products.

`axis` is an axis, several, or None for all; `keepdims` leaves axes of size 1 in their place; `where` says which elements count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.array.array import Array
from nnc.array.operators import array_method
from nnc.array.promote import astype, broadcast_to_shape, is_weak, promote, with_weakness
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import elementwise as ew
from nnc.commands import reduce as commands
from nnc.commands.elementwise import NUMERIC, ORDERED, Accepts
from nnc.commands.rules import check_dtype
from nnc.commands.shape import concatenate
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import Command, TensorSpec
from nnc.numpy import elementwise as el
from nnc.numpy.operands import Axis, converted, in_dtype, keep, ravel_for, static_int, to_axes, to_axis, to_value
from nnc.typing import ArrayLike, DTypeLike

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cummax", "cummin", "cumprod", "cumsum",
    "cumulative_prod", "cumulative_sum", "diff", "max", "min", "prod", "ptp", "sum",
]  # fmt: skip


def apply_reduction(
    name: str, command: Command, accepts: Accepts, x: Array, axis: Axis, keepdims: bool, where: Any = None, fill: Any = None,
    needs_elements: bool = False,
) -> Array:  # fmt: skip
    """Returns a reduction of the elements that `where` chooses; `fill` is the neutral element."""
    spec: TensorSpec = x.spec
    check_dtype(name, spec, *accepts)
    axes = to_axes(name, axis, spec.ndim)
    if needs_elements and 0 in [spec.shape[i] for i in axes]:
        fix = "reduce a non-empty axis, or pass initial=... for the empty case."
        raise user_error(ShapeError, name, "it has no value over an axis of size 0.", operands={"x": spec}, fix=fix)
    if where is not None:
        x = ew.select(mask_of(where, spec, name), x, constants.full_like(x, fill))
    return keep(command(x, axes=axes), spec, axes, keepdims)


def mask_of(where: Any, spec: TensorSpec, name: str) -> Array:
    return broadcast_to_shape(el.as_bool(where, name), spec.shape)


def _wide(x: Array, dtype: Any, where: str) -> Array:
    """Returns the operand of a sum or product: small integers and bools become 64 bits wide."""
    own = x.spec.dtype
    if dtype is not None:
        return converted(x, dtype, where)
    if dtypes.is_bool(own) or own in dtypes.SIGNED:
        return astype(x, dtypes.int64)
    return astype(x, dtypes.uint64) if own in dtypes.UNSIGNED else x


# -- sums and products -------------------------------------------------------------------------------------------------


@array_method
def sum(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the sum of the elements over `axis`.

    out[j] = initial + sum over i of x[i, j]

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype of the sum; by default integers become 64 bits wide and floats stay (16-bit ones accumulate in
            float32).
        keepdims: keep the axes with size 1.
        initial: a number that is added to the result.
        where: bools that broadcast to `x`: which elements count.

    Raises:
        ShapeError: there is no such axis.

    Example:
        >>> sum(np.ones((2, 3)), axis=0).shape
        (3,)
    """
    x = _wide(to_value(x, "sum"), dtype, "sum")
    result = apply_reduction("sum", commands.reduce_sum, NUMERIC, x, axis, keepdims, where, 0)
    return result if initial is None else result + initial


@array_method
def prod(
    x: ArrayLike,
    /,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the product of the elements over `axis`; arguments as in `sum`.

    Its derivative needs no division, so zeros are no trouble.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        dtype: dtype of the product; by default integers become 64 bits wide and floats stay.
        keepdims: keep the axes with size 1.
        initial: a number that is multiplied with the result.
        where: bools that broadcast to `x`: which elements count.

    Example:
        >>> prod(np.asarray([[1.0, 2.0], [3.0, 4.0]]), axis=1)
        Array([ 2., 12.], dtype=float64)
    """
    x = _wide(to_value(x, "prod"), dtype, "prod")
    result = apply_reduction("prod", commands.reduce_prod, NUMERIC, x, axis, keepdims, where, 1)
    return result if initial is None else result * initial


# -- extremes ----------------------------------------------------------------------------------------------------------


def _extreme(
    name: str, command: Command, pick: Any, x: Any, axis: Axis, keepdims: bool, initial: Any, where: Any
) -> Array:
    x = to_value(x, name)
    if dtypes.is_bool(x.spec.dtype):
        command = commands.reduce_or if name == "max" else commands.reduce_and
    if initial is None:
        if where is not None:
            problem = "where= may leave no element at all."
            raise user_error(ArgumentError, name, problem, fix=f"pass initial=..., the {name} of nothing, too.")
        return apply_reduction(name, command, ORDERED, x, axis, keepdims, needs_elements=True)
    check_dtype(name, x.spec, *ORDERED)
    axes = to_axes(name, axis, x.spec.ndim)
    start = with_weakness(in_dtype(initial, x.spec.dtype, name, "initial"), is_weak(x) if is_weak(initial) else False)
    if where is not None:
        x = ew.select(mask_of(where, x.spec, name), x, broadcast_to_shape(start, x.spec.shape))
    if 0 in [x.spec.shape[i] for i in axes]:
        kept = tuple(1 if i in axes else n for i, n in enumerate(x.spec.shape) if keepdims or i not in axes)
        return broadcast_to_shape(start, kept)
    return pick(keep(command(x, axes=axes), x.spec, axes, keepdims), start)


@array_method
def max(
    x: ArrayLike,
    /,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the largest element over `axis`, NaN where one is. Equal ones share the derivative.

    Args:
        x: bool or real, any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.
        initial: a number that counts as one more element, so that there always is one.
        where: bools that broadcast to `x`: which elements count; needs `initial`.

    Raises:
        ShapeError: an axis is empty and `initial` is not given.

    Example:
        >>> max(np.asarray([[1, 5], [7, 2]]), axis=1)
        Array([5, 7], dtype=int64)
    """
    return _extreme("max", commands.reduce_max, el.maximum, x, axis, keepdims, initial, where)


@array_method
def min(
    x: ArrayLike,
    /,
    axis: Axis = None,
    *,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Returns the smallest element over `axis`; see `max`.

    Args:
        x: bool or real, any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.
        initial: a number that counts as one more element, so that there always is one.
        where: bools that broadcast to `x`: which elements count; needs `initial`.

    Example:
        >>> min(np.asarray([[1, 5], [7, 2]]), axis=1)
        Array([1, 2], dtype=int64)
    """
    return _extreme("min", commands.reduce_min, el.minimum, x, axis, keepdims, initial, where)


amax, amin = max, min


@array_method
def ptp(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Returns the largest minus the smallest element over `axis`.

    Args:
        x: real, any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.

    Example:
        >>> nnp.ptp(nnp.asarray([1, 7, 3]))
        Array(6, dtype=int64)
    """
    return el.subtract(max(x, axis, keepdims=keepdims), min(x, axis, keepdims=keepdims))


def _arg_extreme(name: str, command: Command, x: Any, axis: int | None, keepdims: bool) -> Array:
    original = to_value(x, name)
    check_dtype(name, original.spec, *ORDERED)
    x, at = ravel_for(axis, original)
    at = to_axis(name, at, x.spec.ndim)
    if x.spec.shape[at] == 0:
        problem = "there is no element to name."
        raise user_error(ShapeError, name, problem, operands={"x": original.spec}, fix="pass a non-empty axis.")
    axes = (at,) if axis is not None else tuple(range(original.spec.ndim))
    return keep(command(x, axis=at), original.spec, axes, keepdims)


@array_method
def argmax(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Returns the index (int64) of the first largest element along `axis`; None means in the flattened array.

    Args:
        x: bool or real, any shape.
        axis: axis to remove; None searches the flattened array.
        keepdims: keep the axes with size 1.

    Raises:
        ShapeError: the axis is empty or does not exist.

    Example:
        >>> argmax(np.asarray([3, 9, 9]))
        Array(1, dtype=int64)
    """
    return _arg_extreme("argmax", commands.argmax, x, axis, keepdims)


@array_method
def argmin(x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Returns the index (int64) of the first smallest element along `axis`; None means in the flattened array.

    Args:
        x: bool or real, any shape.
        axis: axis to remove; None searches the flattened array.
        keepdims: keep the axes with size 1.

    Example:
        >>> nnp.argmin(nnp.asarray([3, 1, 2]))
        Array(1, dtype=int64)
    """
    return _arg_extreme("argmin", commands.argmin, x, axis, keepdims)


# -- truth -------------------------------------------------------------------------------------------------------------

ANY_DTYPE: Accepts = (lambda dtype: True, "any dtype")


@array_method
def any(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False, where: ArrayLike | None = None) -> Array:
    """Returns whether an element is true (not 0) over `axis`; False of none.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.
        where: bools that broadcast to `x`: which elements count.

    Example:
        >>> any(np.asarray([[0, 1], [0, 0]]), axis=1)
        Array([ True, False], dtype=bool)
    """
    return apply_reduction("any", commands.reduce_or, ANY_DTYPE, el.as_bool(x, "any"), axis, keepdims, where, False)


@array_method
def all(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False, where: ArrayLike | None = None) -> Array:
    """Returns whether all elements are true (not 0) over `axis`; True of none.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.
        where: bools that broadcast to `x`: which elements count.

    Example:
        >>> nnp.all(nnp.asarray([True, False]))
        Array(False, dtype=bool)
    """
    return apply_reduction("all", commands.reduce_and, ANY_DTYPE, el.as_bool(x, "all"), axis, keepdims, where, True)


@spelled
def count_nonzero(x: ArrayLike, /, axis: Axis = None, *, keepdims: bool = False) -> Array:
    """Returns how many elements differ from 0 over `axis`.

    Args:
        x: any shape.
        axis: axis or axes to remove; None all.
        keepdims: keep the axes with size 1.

    Example:
        >>> nnp.count_nonzero(nnp.asarray([0, 3, 4]))
        Array(2, dtype=int64)
    """
    return sum(el.as_bool(x, "count_nonzero"), axis, keepdims=keepdims)


# -- running -----------------------------------------------------------------------------------------------------------


def _running(name: str, command: Command, x: Any, axis: int | None, dtype: Any, wide: bool) -> tuple[Array, int]:
    x, at = ravel_for(axis, to_value(x, name))
    x = _wide(x, dtype, name) if wide else x
    check_dtype(name, x.spec, *(NUMERIC if wide else ORDERED))
    at = to_axis(name, at, x.spec.ndim)
    return command(x, axis=at), at


@array_method
def cumsum(x: ArrayLike, /, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """Returns the sums of the elements up to each one along `axis`; None flattens first. Dtypes as in `sum`.

    Args:
        x: any shape.
        axis: axis to run along; None flattens first.
        dtype: dtype of the sums; by default as in `sum`.

    Example:
        >>> cumsum(np.asarray([1, 2, 3]))
        Array([1, 3, 6], dtype=int64)
    """
    return _running("cumsum", commands.cumsum, x, axis, dtype, True)[0]


@array_method
def cumprod(x: ArrayLike, /, axis: int | None = None, dtype: DTypeLike | None = None) -> Array:
    """Returns the products of the elements up to each one along `axis`; None flattens first. Dtypes as in `prod`.

    Args:
        x: any shape.
        axis: axis to run along; None flattens first.
        dtype: dtype of the products; by default as in `prod`.

    Example:
        >>> cumprod(nnp.asarray([1, 2, 3]))
        Array([1, 2, 6], dtype=int64)
    """
    return _running("cumprod", commands.cumprod, x, axis, dtype, True)[0]


@spelled
def cummax(x: ArrayLike, /, axis: int | None = None) -> Array:
    """Returns the largest of the elements up to each one along `axis`; None flattens first.

    Args:
        x: bool or real, any shape.
        axis: axis to run along; None flattens first.

    Example:
        >>> cummax(np.asarray([1, 3, 2]))
        Array([1, 3, 3], dtype=int64)
    """
    return _running("cummax", commands.cummax, x, axis, None, False)[0]


@spelled
def cummin(x: ArrayLike, /, axis: int | None = None) -> Array:
    """Returns the smallest of the elements up to each one along `axis`; None flattens first.

    Args:
        x: bool or real, any shape.
        axis: axis to run along; None flattens first.

    Example:
        >>> cummin(nnp.asarray([3, 1, 2]))
        Array([3, 1, 1], dtype=int64)
    """
    return _running("cummin", commands.cummin, x, axis, None, False)[0]


def _cumulative(
    name: str, command: Command, x: Any, axis: int | None, dtype: Any, include_initial: bool, first: int
) -> Array:
    x = to_value(x, name)
    if axis is None and x.spec.ndim != 1:
        problem = f"axis must be given for an array of {x.spec.ndim} axes."
        raise user_error(ArgumentError, name, problem, operands={"x": x.spec}, fix="pass axis=...")
    result, at = _running(name, command, x, axis, dtype, True)
    if not include_initial:
        return result
    shape = tuple(1 if i == at else n for i, n in enumerate(result.spec.shape))
    return concatenate(constants.full(shape=shape, dtype=result.spec.dtype, value=first), result, axis=at)


@spelled
def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Returns running sums along `axis`, which vectors need not name; `include_initial` starts them with 0.

    Args:
        x: any shape.
        axis: axis to run along; a vector needs none.
        dtype: dtype of the sums; by default as in `sum`.
        include_initial: begin with 0, so that the axis is one longer.

    Example:
        >>> cumulative_sum(nnp.asarray([1, 2, 3]), include_initial=True)
        Array([0, 1, 3, 6], dtype=int64)
    """
    return _cumulative("cumulative_sum", commands.cumsum, x, axis, dtype, include_initial, 0)


@spelled
def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Array:
    """Returns running products along `axis`, which vectors need not name; `include_initial` starts them with 1.

    Args:
        x: any shape.
        axis: axis to run along; a vector needs none.
        dtype: dtype of the products; by default as in `prod`.
        include_initial: begin with 1, so that the axis is one longer.

    Example:
        >>> cumulative_prod(nnp.asarray([1, 2, 3]), include_initial=True)
        Array([1, 1, 2, 6], dtype=int64)
    """
    return _cumulative("cumulative_prod", commands.cumprod, x, axis, dtype, include_initial, 1)


@spelled
def diff(
    x: ArrayLike, /, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Array:
    """Returns the differences of neighbours along `axis`, `n` times over.

    Args:
        x: any shape.
        n: how often differences are taken.
        axis: axis to run along.
        prepend: joined before `x`: an array that fits, or a number, which stands for a slice of size 1.
        append: joined behind `x`: an array that fits, or a number, which stands for a slice of size 1.

    Example:
        >>> diff(np.asarray([1, 4, 9]))
        Array([3, 5], dtype=int64)
    """
    y: Array = to_value(x, "diff")
    at = to_axis("diff", axis, y.spec.ndim)
    if prepend is not None or append is not None:
        ends = (prepend, y, append)
        values = promote(*(end for end in ends if end is not None), where="diff")
        one = tuple(1 if i == at else size for i, size in enumerate(y.spec.shape))
        y = concatenate(*(v if np.ndim(v) else broadcast_to_shape(v, one) for v in values), axis=at)
    times = static_int(n, "diff", "n")
    if times < 0:
        raise user_error(ArgumentError, "diff", f"n is {times}.", fix="take differences 0 or more times.")
    for _ in range(times):
        size = y.spec.shape[at]
        later, earlier = _part(y, at, 1, size), _part(y, at, 0, size - 1)
        y = el.not_equal(later, earlier) if dtypes.is_bool(y.spec.dtype) else ew.sub(later, earlier)
    return y


def _part(x: Array, axis: int, start: int, stop: int) -> Array:
    stop = stop if stop > 0 else 0
    return x[(slice(None),) * axis + (slice(start if start < stop else stop, stop),)]
