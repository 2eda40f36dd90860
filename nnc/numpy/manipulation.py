"""Functions that rearrange, join, split and repeat elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from nnc.array import indexing
from nnc.array.array import Array
from nnc.array.operators import array_method
from nnc.array.promote import broadcast, broadcast_to_shape
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import shape as commands
from nnc.commands.rules import check_axes
from nnc.commands.shape import slice_axis
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy.operands import Axis, static_int, to_axes, to_axis, to_shape, to_value
from nnc.typing import ArrayLike, DTypeLike, ShapeLike

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "diagonal", "expand_dims",
    "flip", "fliplr", "flipud", "iscomplexobj", "isrealobj", "isscalar", "matrix_transpose", "moveaxis", "ndim", "permute_dims",
    "ravel", "reshape", "roll", "rollaxis", "rot90", "shape", "size", "squeeze", "swapaxes", "trace", "transpose",
]  # fmt: skip

# -- shape -------------------------------------------------------------------------------------------------------------


@specialised(1)
def reshape(x: ArrayLike, shape: ShapeLike, order: str = "C", *, copy: bool | None = None) -> Array:
    """Returns the elements of `x` in another shape.

    Args:
        x: any shape.
        shape: the new sizes; one may be -1, which stands for the rest.
        order: "C" reads and fills the last axis first, "F" the first one.
        copy: has no effect, since arrays are immutable.

    Raises:
        ShapeError: the number of elements differs.

    Example:
        >>> reshape(np.arange(6), (2, -1)).shape
        (2, 3)
    """
    x = to_value(x, "reshape")
    sizes = [static_int(n, "reshape", "shape") for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    if sizes.count(-1) > 1:
        problem = f"shape {tuple(sizes)} leaves {sizes.count(-1)} sizes open."
        raise user_error(ShapeError, "reshape", problem, operands={"x": x.spec}, fix="give -1 for one size at most.")
    if -1 in sizes:
        known = math.prod(n for n in sizes if n != -1)
        if known == 0 or x.spec.size % known:
            problem = f"{x.spec.size} elements do not fit into shape {tuple(sizes)}."
            fix = "choose sizes whose product divides the number of elements."
            raise user_error(ShapeError, "reshape", problem, operands={"x": x.spec}, fix=fix)
        sizes[sizes.index(-1)] = x.spec.size // known
    if _is_columns_first("reshape", order):
        return commands.reshape(x.T, shape=tuple(reversed(sizes))).T
    return commands.reshape(x, shape=tuple(sizes))


def _is_columns_first(where: str, order: str) -> bool:
    if order not in ("C", "F"):
        problem = f"order={order!r} is unknown."
        raise user_error(ArgumentError, where, problem, fix='use "C" (last axis first) or "F" (first axis first).')
    return order == "F"


@array_method
def ravel(x: ArrayLike, /, order: str = "C") -> Array:
    """Returns the elements of `x` in one axis: the last axis runs fastest, or with `order="F"` the first.

    Args:
        x: any shape.
        order: "C": the last axis runs fastest; "F": the first.

    Example:
        >>> nnp.ravel(nnp.asarray([[1, 2], [3, 4]]))
        Array([1, 2, 3, 4], dtype=int64)
    """
    x = to_value(x, "ravel")
    x = x.T if _is_columns_first("ravel", order) else x
    return commands.reshape(x, shape=(x.spec.size,))


@specialised(1)
def transpose(x: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Returns `x` with its axes in the order `axes`; by default reversed.

    Args:
        x: any shape.
        axes: each axis once, in the order of the result; reversed by default.

    Raises:
        ShapeError: `axes` does not name each axis once.

    Example:
        >>> transpose(np.ones((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    x = to_value(x, "transpose")
    order = tuple(reversed(range(x.spec.ndim))) if axes is None else to_axes("transpose", axes, x.spec.ndim)
    return commands.transpose(x, permutation=order)


@spelled
def permute_dims(x: ArrayLike, /, axes: Sequence[int]) -> Array:
    """Returns `x` with its axes in the order `axes`.

    Args:
        x: any shape.
        axes: each axis once, in the order of the result.

    Example:
        >>> permute_dims(nnp.ones((2, 3, 4)), (2, 0, 1)).shape
        (4, 2, 3)
    """
    return transpose(x, axes)


@spelled
def matrix_transpose(x: ArrayLike, /) -> Array:
    """Returns `x` with its last two axes swapped.

    Args:
        x: (..., m, n).

    Returns:
        (..., n, m).

    Example:
        >>> nnp.linalg.matrix_transpose(nnp.ones((2, 3))).shape
        (3, 2)
    """
    return to_value(x, "matrix_transpose").mT


@specialised(1)
def moveaxis(x: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Array:
    """Returns `x` with the axes `source` moved to the places `destination`; the others keep their order.

    Args:
        x: any shape.
        source: axis or axes of `x`.
        destination: their places in the result.

    Raises:
        ArgumentError: unequal numbers of axes.
        ShapeError: there is no such axis.

    Example:
        >>> moveaxis(np.ones((2, 3, 4)), 0, -1).shape
        (3, 4, 2)
    """
    x = to_value(x, "moveaxis")
    from_, to = (to_axes("moveaxis", axes, x.spec.ndim) for axes in (source, destination))
    if len(from_) != len(to):
        problem = f"{len(from_)} axes are moved to {len(to)} places."
        raise user_error(ArgumentError, "moveaxis", problem, fix="name as many places as axes.")
    order = [axis for axis in range(x.spec.ndim) if axis not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        order.insert(place, axis)
    return x if order == sorted(order) else commands.transpose(x, permutation=tuple(order))


@spelled
def rollaxis(x: ArrayLike, axis: int, start: int = 0) -> Array:
    """Returns `x` with one axis moved before the axis `start`; `moveaxis` is easier to read.

    Args:
        x: any shape.
        axis: axis to move.
        start: axis before which it comes to stand.

    Example:
        >>> nnp.rollaxis(nnp.ones((2, 3, 4)), 2).shape
        (4, 2, 3)
    """
    x = to_value(x, "rollaxis")
    at, ndim = to_axis("rollaxis", axis, x.spec.ndim), x.spec.ndim
    before = ndim if start == ndim else to_axis("rollaxis", start, ndim)
    return moveaxis(x, at, before - 1 if at < before else before)


@array_method
def swapaxes(x: ArrayLike, axis1: int, axis2: int) -> Array:
    """Returns `x` with two axes swapped.

    Args:
        x: any shape.
        axis1: first of the two axes.
        axis2: second of the two axes.

    Example:
        >>> nnp.swapaxes(nnp.ones((2, 3)), 0, 1).shape
        (3, 2)
    """
    x = to_value(x, "swapaxes")
    order = list(range(x.spec.ndim))
    a, b = (to_axis("swapaxes", axis, x.spec.ndim) for axis in (axis1, axis2))
    order[a], order[b] = b, a
    return commands.transpose(x, permutation=tuple(order))


@specialised(1)
def expand_dims(x: ArrayLike, /, axis: int | Sequence[int] = 0) -> Array:
    """Returns `x` with axes of size 1 at the places `axis` of the result.

    Args:
        x: any shape.
        axis: place or places of the new axes in the result.

    Example:
        >>> expand_dims(np.ones(3), (0, -1)).shape
        (1, 3, 1)
    """
    x = to_value(x, "expand_dims")
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    places = to_axes("expand_dims", axis, x.spec.ndim + count)
    sizes = iter(x.spec.shape)
    return commands.reshape(x, shape=tuple(1 if i in places else next(sizes) for i in range(x.spec.ndim + count)))


@array_method
def squeeze(x: ArrayLike, /, axis: Axis = None) -> Array:
    """Returns `x` without axes of size 1: without the ones in `axis`, or without all of them.

    Args:
        x: any shape.
        axis: axis or axes of size 1 to remove; None all of them.

    Raises:
        ShapeError: an axis to remove has another size.

    Example:
        >>> squeeze(np.ones((1, 3, 1))).shape
        (3,)
    """
    x = to_value(x, "squeeze")
    axes = [i for i, n in enumerate(x.spec.shape) if n == 1] if axis is None else to_axes("squeeze", axis, x.spec.ndim)
    for i in axes:
        if x.spec.shape[i] != 1:
            problem = f"axis {i} has size {x.spec.shape[i]}, not 1."
            fix = "name axes of size 1, or reduce the axis, for example with x.sum(axis)."
            raise user_error(ShapeError, "squeeze", problem, operands={"x": x.spec}, fix=fix)
    return commands.reshape(x, shape=tuple(n for i, n in enumerate(x.spec.shape) if i not in axes))


def _atleast(name: str, ndim: int, arrays: tuple[Any, ...]) -> Any:
    values = [to_value(x, name) for x in arrays]
    results = [_with_axes(x, ndim) if x.spec.ndim < ndim else x for x in values]
    return results[0] if len(results) == 1 else tuple(results)


def _with_axes(x: Array, ndim: int) -> Array:
    shape = x.spec.shape
    if ndim == 3:  # NumPy centres a vector and appends an axis to a matrix
        shape = (1, *shape, 1) if len(shape) == 1 else (*shape, 1) if len(shape) == 2 else (1, 1, 1)
    return commands.reshape(x, shape=(1,) * (ndim - len(shape)) + shape)


@overload
def atleast_1d(x: ArrayLike, /) -> Array: ...
@overload
def atleast_1d(*arrays: ArrayLike) -> Array | tuple[Array, ...]: ...
@spelled
def atleast_1d(*arrays: ArrayLike) -> Any:
    """Returns each array with at least one axis.

    Args:
        *arrays: arrays or numbers.

    Example:
        >>> atleast_1d(3)
        Array([3], dtype=int64)
    """
    return _atleast("atleast_1d", 1, arrays)


@overload
def atleast_2d(x: ArrayLike, /) -> Array: ...
@overload
def atleast_2d(*arrays: ArrayLike) -> Array | tuple[Array, ...]: ...
@spelled
def atleast_2d(*arrays: ArrayLike) -> Any:
    """Returns each array with at least two axes; a vector becomes a row.

    Args:
        *arrays: arrays or numbers.

    Example:
        >>> atleast_2d(nnp.asarray([1, 2]))
        Array([[1, 2]], dtype=int64)
    """
    return _atleast("atleast_2d", 2, arrays)


@overload
def atleast_3d(x: ArrayLike, /) -> Array: ...
@overload
def atleast_3d(*arrays: ArrayLike) -> Array | tuple[Array, ...]: ...
@spelled
def atleast_3d(*arrays: ArrayLike) -> Any:
    """Returns each array with at least three axes; a vector becomes (1, n, 1), a matrix (m, n, 1).

    Args:
        *arrays: arrays or numbers.

    Example:
        >>> atleast_3d(nnp.ones((2, 3))).shape
        (2, 3, 1)
    """
    return _atleast("atleast_3d", 3, arrays)


# -- broadcast ---------------------------------------------------------------------------------------------------------


@specialised(1)
def broadcast_to(x: ArrayLike, /, shape: ShapeLike) -> Array:
    """Returns `x` repeated along axes of size 1 and new leading axes to fill `shape`.

    Args:
        x: any shape.
        shape: an integer or a sequence of integers.

    Raises:
        ShapeError: it does not fit.

    Example:
        >>> broadcast_to(np.ones((2, 1)), (3, 2, 4)).shape
        (3, 2, 4)
    """
    return broadcast_to_shape(to_value(x, "broadcast_to"), to_shape(shape, "broadcast_to"))


@spelled
def broadcast_arrays(*arrays: ArrayLike) -> list[Array]:
    """Returns the arrays broadcast to one shape.

    Args:
        *arrays: arrays or numbers whose shapes broadcast.

    Example:
        >>> [x.shape for x in broadcast_arrays(nnp.ones((2, 1)), nnp.ones(3))]
        [(2, 3), (2, 3)]
    """
    return broadcast(*[to_value(x, "broadcast_arrays") for x in arrays], where="broadcast_arrays")


@spelled
def broadcast_shapes(*shapes: ArrayLike) -> tuple[int, ...]:
    """Returns the shape that arrays of these shapes broadcast to.

    Args:
        *shapes: integers or sequences of integers.

    Raises:
        ShapeError: they do not.

    Example:
        >>> broadcast_shapes((2, 1), (3,))
        (2, 3)
    """
    sizes = [to_shape(shape, "broadcast_shapes") for shape in shapes]
    return np.shape(broadcast(*[np.broadcast_to(np.False_, s) for s in sizes], np.False_, where="broadcast_shapes")[0])


# -- order -------------------------------------------------------------------------------------------------------------


@specialised(1)
def flip(x: ArrayLike, /, axis: Axis = None) -> Array:
    """Returns `x` with the order of elements reversed along `axis`, by default along all axes.

    Args:
        x: any shape.
        axis: axis or axes to reverse; None all.

    Example:
        >>> flip(np.arange(3))
        Array([2, 1, 0], dtype=int64)
    """
    x = to_value(x, "flip")
    return commands.flip(x, axes=to_axes("flip", axis, x.spec.ndim))


@spelled
def fliplr(x: ArrayLike) -> Array:
    """Returns `x` reversed along axis 1.

    Args:
        x: at least two axes.

    Example:
        >>> nnp.fliplr(nnp.asarray([[1, 2], [3, 4]]))
        Array([[2, 1],
               [4, 3]], dtype=int64)
    """
    return flip(x, axis=1)


@spelled
def flipud(x: ArrayLike) -> Array:
    """Returns `x` reversed along axis 0.

    Args:
        x: at least one axis.

    Example:
        >>> nnp.flipud(nnp.asarray([[1, 2], [3, 4]]))
        Array([[3, 4],
               [1, 2]], dtype=int64)
    """
    return flip(x, axis=0)


@spelled
def rot90(x: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Returns `x` turned by `k` quarter turns in the plane of two axes, from the first towards the second.

    Args:
        x: any shape.
        k: number of quarter turns; negative ones turn the other way.
        axes: the two axes of the plane.

    Example:
        >>> rot90(nnp.asarray([[1, 2], [3, 4]]))
        Array([[2, 4],
               [1, 3]], dtype=int64)
    """
    x = to_value(x, "rot90")
    a, b = to_axes("rot90", tuple(axes), x.spec.ndim)
    k = static_int(k, "rot90", "k") % 4
    if k in (0, 2):
        return flip(x, axis=(a, b)) if k else x
    return swapaxes(flip(x, axis=b), a, b) if k == 1 else flip(swapaxes(x, a, b), axis=b)


@specialised(1)
def roll(x: ArrayLike, shift: int | Sequence[int], axis: Axis = None) -> Array:
    """Returns `x` with elements shifted along `axis`; those pushed out at the end come in at the start.

    Args:
        x: any shape.
        shift: how far: an integer, or one for each axis, also as an array; it may be traced.
        axis: None shifts the flattened array.

    Raises:
        ArgumentTypeError: a shift is no integer.
        ArgumentError: there are not as many shifts as axes.

    Example:
        >>> roll(np.arange(4), 1)
        Array([3, 0, 1, 2], dtype=int64)
    """
    x = to_value(x, "roll")
    shifts = _shifts(shift)
    if axis is None:
        return reshape(roll(ravel(x), shifts, (0,) * len(shifts)), x.spec.shape)
    axes: Sequence[int] = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = tuple(shifts) * len(axes) if len(shifts) == 1 else shifts
    if len(axes) != len(shifts):
        problem = f"{len(shifts)} shifts are given for {len(axes)} axes."
        raise user_error(ArgumentError, "roll", problem, fix="give one shift for each axis.")
    for at, steps in zip(axes, shifts, strict=True):
        x = _roll_axis(x, steps, to_axis("roll", at, x.spec.ndim))
    return x


def _shifts(shift: Any) -> Sequence[Any]:
    """Returns the distances to shift by, one after the other: a number, several, or the elements of an array."""
    if isinstance(shift, (tuple, list)):
        return shift
    shape: Sequence[int] = getattr(shift, "shape", ())
    return [shift[i] for i in range(shape[0])] if len(shape) == 1 else [shift]


def _roll_axis(x: Array, steps: Any, at: int) -> Array:
    n = x.spec.shape[at]
    if not hasattr(steps, "spec"):
        cut = -static_int(steps, "roll", "shift") % n if n else 0
        return commands.concatenate(slice_axis(x, at, cut, n), slice_axis(x, at, 0, cut), axis=at) if cut else x
    spec = steps.spec
    if spec.shape or not (dtypes.is_integer(spec.dtype) or dtypes.is_bool(spec.dtype)):
        problem = f"shift is {spec}, not an integer."
        fix = "give an integer, or one for each axis."
        raise user_error(ArgumentTypeError, "roll", problem, operands={"shift": spec}, fix=fix)
    return indexing.take(x, (np.arange(n) - steps) % n, at) if n else x


# -- diagonals ---------------------------------------------------------------------------------------------------------


@array_method
def diagonal(x: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Returns the diagonal of the matrices in two axes, as the last axis of the result.

    Args:
        x: any shape.
        offset: the diagonal, counted from the main one; positive ones lie above it.
        axis1: first of the two axes.
        axis2: second of the two axes.

    Raises:
        ShapeError: x has fewer than two axes.

    Example:
        >>> diagonal(np.arange(6).reshape(2, 3), 1)
        Array([1, 5], dtype=int64)
    """
    x = to_value(x, "diagonal")
    if x.spec.ndim < 2:
        problem = "a diagonal needs a matrix."
        raise user_error(ShapeError, "diagonal", problem, operands={"x": x.spec}, fix="pass at least two axes.")
    a, b = check_axes("diagonal", (axis1, axis2), x.spec.ndim)
    x = moveaxis(x, (a, b), (-2, -1))
    rows, columns = x.spec.shape[-2:]
    offset = static_int(offset, "diagonal", "offset")
    top, left = max(-offset, 0), max(offset, 0)
    n = max(0, min(rows - top, columns - left))
    rest = x.spec.shape[:-2]
    if n == 0:
        return constants.full(shape=(*rest, 0), dtype=x.spec.dtype, value=0)
    square = slice_axis(slice_axis(x, x.spec.ndim - 2, top, top + n), x.spec.ndim - 1, left, left + n)
    flat = commands.reshape(square, shape=(*rest, n * n))
    stride = (*(1 for _ in rest), n + 1)
    return commands.slice_(flat, start=(0,) * (len(rest) + 1), limit=(*rest, n * n), stride=stride)


@array_method
def trace(x: ArrayLike, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None) -> Array:
    """Returns the sum of a diagonal of the matrices in two axes.

    Args:
        x: any shape.
        offset: number of the diagonal; positive ones lie above the main one.
        axis1: first of the two axes.
        axis2: second of the two axes.
        dtype: dtype of the sum; by default as in `sum`.

    Example:
        >>> trace(np.eye(3))
        Array(3., dtype=float64)
    """
    return diagonal(x, offset, axis1, axis2).sum(-1, dtype=dtype)


@spelled
def size(x: ArrayLike, axis: int | None = None) -> int:
    """Returns the number of elements of `x`, or the size of an axis.

    Args:
        x: any shape.
        axis: axis to measure; None counts all elements.

    Example:
        >>> size(nnp.ones((2, 3))), size(nnp.ones((2, 3)), 1)
        (6, 3)
    """
    spec = spec_of(to_value(x, "size"))
    return spec.size if axis is None else spec.shape[to_axis("size", axis, spec.ndim)]


@spelled
def ndim(x: ArrayLike) -> int:
    """Returns the number of axes of `x`.

    Args:
        x: any shape.

    Example:
        >>> ndim(nnp.ones((2, 3)))
        2
    """
    return spec_of(to_value(x, "ndim")).ndim


@spelled
def shape(x: ArrayLike) -> tuple[int, ...]:
    """Returns the shape of `x`.

    Args:
        x: any shape.

    Example:
        >>> shape(nnp.ones((2, 3)))
        (2, 3)
    """
    return spec_of(to_value(x, "shape")).shape


@spelled
def iscomplexobj(x: ArrayLike) -> bool:
    """Returns whether the dtype of `x` is complex.

    Args:
        x: array or number.

    Example:
        >>> iscomplexobj(nnp.asarray([1.0])), iscomplexobj(nnp.asarray([1j]))
        (False, True)
    """
    return dtypes.is_complex(to_value(x, "iscomplexobj").spec.dtype)


@spelled
def isrealobj(x: ArrayLike) -> bool:
    """Returns whether the dtype of `x` is not complex.

    Args:
        x: array or number.

    Example:
        >>> isrealobj(nnp.asarray([1.0])), isrealobj(nnp.asarray([1j]))
        (True, False)
    """
    return not iscomplexobj(x)


@spelled
def isscalar(x: ArrayLike) -> bool:
    """Returns whether `x` is a Python or NumPy number, or a 0-d array.

    Args:
        x: any object.

    Example:
        >>> isscalar(3.0), isscalar(nnp.asarray([3.0]))
        (True, False)
    """
    return isinstance(x, (bool, int, float, complex, np.generic)) or (hasattr(x, "spec") and x.spec.ndim == 0)
