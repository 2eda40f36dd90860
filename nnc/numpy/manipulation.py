"""Functions that rearrange, join, split and repeat elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.array import array_method
from nnc.commands import elementwise as ew
from nnc.commands import shape as commands
from nnc.commands.promote import as_operand, broadcast, broadcast_to_shape, promote
from nnc.commands.rules import Value, check_axes
from nnc.commands.shape import slice_axis
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy.operands import Axis, ravel_for, static_int, to_axes, to_axis, to_shape, to_value
from nnc.numpy.spelling import spelled

# -- shape -------------------------------------------------------------------------------------------------------------


@spelled
def reshape(x: Any, shape: Any, *, copy: bool | None = None) -> Value:
    """Returns the elements of `x` in another shape.

    Args:     shape: sizes, of which one may be -1: what remains. copy: as arrays are immutable it makes no difference.
    Raises:   ShapeError: the number of elements differs.
    Example:  >>> reshape(np.arange(6), (2, -1)).shape
              (2, 3)
    """
    x = to_value(x, "reshape")
    sizes = [static_int(n, "reshape", "shape") for n in (shape if isinstance(shape, (tuple, list)) else (shape,))]
    if sizes.count(-1) > 1:
        raise user_error(
            ShapeError, "reshape", f"shape {tuple(sizes)} leaves {sizes.count(-1)} sizes open.", operands={"x": x.spec},
            fix="give -1 for one size at most.",
        )  # fmt: skip
    if -1 in sizes:
        known = math.prod(n for n in sizes if n != -1)
        if known == 0 or x.spec.size % known:
            raise user_error(
                ShapeError, "reshape", f"{x.spec.size} elements do not fit into shape {tuple(sizes)}.", operands={"x": x.spec},
                fix="choose sizes whose product divides the number of elements.",
            )  # fmt: skip
        sizes[sizes.index(-1)] = x.spec.size // known
    return commands.reshape(x, shape=tuple(sizes))


@array_method
def ravel(x: Any, /) -> Value:
    """Returns the elements of `x` in one axis."""
    x = to_value(x, "ravel")
    return commands.reshape(x, shape=(x.spec.size,))


@spelled
def transpose(x: Any, axes: Sequence[int] | None = None) -> Value:
    """Returns `x` with its axes in the order `axes`; by default reversed.

    Raises:   ShapeError: `axes` does not name each axis once.
    Example:  >>> transpose(np.ones((2, 3, 4)), (2, 0, 1)).shape
              (4, 2, 3)
    """
    x = to_value(x, "transpose")
    order = tuple(reversed(range(x.spec.ndim))) if axes is None else to_axes("transpose", tuple(axes), x.spec.ndim)
    return commands.transpose(x, permutation=order)


@spelled
def permute_dims(x: Any, /, axes: Sequence[int]) -> Value:
    """Returns `x` with its axes in the order `axes`."""
    return transpose(x, axes)


def matrix_transpose(x: Any, /) -> Value:
    """Returns `x` with its last two axes swapped."""
    return to_value(x, "matrix_transpose").mT


@spelled
def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Value:
    """Returns `x` with the axes `source` moved to the places `destination`; the others keep their order.

    Raises:   ArgumentError: unequal numbers of axes. ShapeError: there is no such axis.
    Example:  >>> moveaxis(np.ones((2, 3, 4)), 0, -1).shape
              (3, 4, 2)
    """
    x = to_value(x, "moveaxis")
    from_, to = (to_axes("moveaxis", axes, x.spec.ndim) for axes in (source, destination))
    if len(from_) != len(to):
        raise user_error(
            ArgumentError, "moveaxis", f"{len(from_)} axes are moved to {len(to)} places.", fix="name as many places as axes."
        )
    order = [axis for axis in range(x.spec.ndim) if axis not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        order.insert(place, axis)
    return x if order == sorted(order) else commands.transpose(x, permutation=tuple(order))


@array_method
@spelled
def swapaxes(x: Any, axis1: int, axis2: int) -> Value:
    """Returns `x` with two axes swapped."""
    x = to_value(x, "swapaxes")
    order = list(range(x.spec.ndim))
    a, b = (to_axis("swapaxes", axis, x.spec.ndim) for axis in (axis1, axis2))
    order[a], order[b] = b, a
    return commands.transpose(x, permutation=tuple(order))


@spelled
def expand_dims(x: Any, /, axis: int | Sequence[int] = 0) -> Value:
    """Returns `x` with axes of size 1 at the places `axis` of the result.

    Example:  >>> expand_dims(np.ones(3), (0, -1)).shape
              (1, 3, 1)
    """
    x = to_value(x, "expand_dims")
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    places = to_axes("expand_dims", axis, x.spec.ndim + count)
    sizes = iter(x.spec.shape)
    return commands.reshape(x, shape=tuple(1 if i in places else next(sizes) for i in range(x.spec.ndim + count)))


@array_method
@spelled
def squeeze(x: Any, /, axis: Axis = None) -> Value:
    """Returns `x` without axes of size 1: those in `axis`, or all of them.

    Raises:   ShapeError: an axis to remove has another size.
    Example:  >>> squeeze(np.ones((1, 3, 1))).shape
              (3,)
    """
    x = to_value(x, "squeeze")
    axes = [i for i, n in enumerate(x.spec.shape) if n == 1] if axis is None else to_axes("squeeze", axis, x.spec.ndim)
    for i in axes:
        if x.spec.shape[i] != 1:
            raise user_error(
                ShapeError, "squeeze", f"axis {i} has size {x.spec.shape[i]}, not 1.", operands={"x": x.spec},
                fix="name axes of size 1, or reduce the axis, for example with x.sum(axis).",
            )  # fmt: skip
    return commands.reshape(x, shape=tuple(n for i, n in enumerate(x.spec.shape) if i not in axes))


def _atleast(name: str, ndim: int, arrays: tuple[Any, ...]) -> Any:
    values = [to_value(x, name) for x in arrays]
    results = [_with_axes(x, ndim) if x.spec.ndim < ndim else x for x in values]
    return results[0] if len(results) == 1 else tuple(results)


def _with_axes(x: Value, ndim: int) -> Value:
    shape = x.spec.shape
    if ndim == 3:  # NumPy centres a vector and appends an axis to a matrix
        shape = (1, *shape, 1) if len(shape) == 1 else (*shape, 1) if len(shape) == 2 else (1, 1, 1)
    return commands.reshape(x, shape=(1,) * (ndim - len(shape)) + shape)


def atleast_1d(*arrays: Any) -> Any:
    """Returns each array with at least one axis."""
    return _atleast("atleast_1d", 1, arrays)


def atleast_2d(*arrays: Any) -> Any:
    """Returns each array with at least two axes; a vector becomes a row."""
    return _atleast("atleast_2d", 2, arrays)


def atleast_3d(*arrays: Any) -> Any:
    """Returns each array with at least three axes; a vector becomes (1, n, 1), a matrix (m, n, 1)."""
    return _atleast("atleast_3d", 3, arrays)


# -- broadcast ---------------------------------------------------------------------------------------------------------


@spelled
def broadcast_to(x: Any, /, shape: Any) -> Value:
    """Returns `x` repeated along axes of size 1 and new leading axes to fill `shape`.

    Raises:   ShapeError: it does not fit.
    Example:  >>> broadcast_to(np.ones((2, 1)), (3, 2, 4)).shape
              (3, 2, 4)
    """
    return broadcast_to_shape(to_value(x, "broadcast_to"), to_shape(shape, "broadcast_to"))


def broadcast_arrays(*arrays: Any) -> list[Value]:
    """Returns the arrays broadcast to one shape."""
    return broadcast(*[to_value(x, "broadcast_arrays") for x in arrays], where="broadcast_arrays")


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Returns the shape that arrays of these shapes broadcast to.

    Raises:   ShapeError: they do not.
    Example:  >>> broadcast_shapes((2, 1), (3,))
              (2, 3)
    """
    sizes = [to_shape(shape, "broadcast_shapes") for shape in shapes]
    return np.shape(broadcast(*[np.broadcast_to(np.False_, s) for s in sizes], np.False_, where="broadcast_shapes")[0])


# -- joins -------------------------------------------------------------------------------------------------------------


def _several(arrays: Any, where: str) -> list[Value]:
    if hasattr(arrays, "spec") or isinstance(arrays, np.ndarray):
        arrays = list(to_value(arrays, where))
    if not isinstance(arrays, (tuple, list)):
        raise user_error(
            ArgumentTypeError, where, f"the arrays are given as {type(arrays).__name__}, not as a sequence.",
            fix=f"write {where}([x, y]).",
        )  # fmt: skip
    if not arrays:
        raise user_error(ArgumentError, where, "there is nothing to join.", fix="pass at least one array.")
    return promote(*arrays, where=where)


@spelled
def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Value:
    """Returns the arrays joined along `axis`.

    Args:     arrays: a sequence of arrays of one shape but for that axis; dtypes are promoted. axis: None flattens them first.
    Raises:   ShapeError: shapes differ elsewhere. ArgumentError: there is no array.
    Example:  >>> concatenate([np.zeros((2, 3)), np.zeros((1, 3))]).shape
              (3, 3)
    """
    values = _several(arrays, "concatenate")
    if dtype is not None:
        values = [to_value(x, "concatenate").astype(dtype) for x in values]
    if axis is None:
        values, axis = [ravel(x) for x in values], 0
    if np.ndim(values[0]) == 0:
        raise user_error(ShapeError, "concatenate", "0-d arrays have no axis to join.", fix="use stack, or axis=None.")
    return commands.concatenate(*values, axis=to_axis("concatenate", axis, np.ndim(values[0])))


concat = concatenate


@spelled
def stack(arrays: Any, axis: int = 0, dtype: Any = None) -> Value:
    """Returns the arrays, all of one shape, joined along a new axis.

    Raises:   ShapeError: shapes differ.
    Example:  >>> stack([np.zeros(3), np.ones(3)], axis=-1).shape
              (3, 2)
    """
    values = _several(arrays, "stack")
    shapes = [np.shape(x) for x in values]
    if any(shape != shapes[0] for shape in shapes):
        raise user_error(
            ShapeError, "stack", f"shapes differ: {', '.join(map(str, shapes))}.", fix="give all arrays one shape, or use concatenate."
        )
    at = to_axis("stack", axis, len(shapes[0]) + 1)
    return concatenate([expand_dims(x, at) for x in values], at, dtype)


def hstack(arrays: Any) -> Value:
    """Returns the arrays joined side by side: along axis 1, vectors along axis 0."""
    values = [atleast_1d(x) for x in _several(arrays, "hstack")]
    return concatenate(values, 0 if values[0].spec.ndim == 1 else 1)


def vstack(arrays: Any) -> Value:
    """Returns the arrays joined one below the other, vectors as rows."""
    return concatenate([atleast_2d(x) for x in _several(arrays, "vstack")])


def dstack(arrays: Any) -> Value:
    """Returns the arrays joined along the third axis."""
    return concatenate([atleast_3d(x) for x in _several(arrays, "dstack")], 2)


def column_stack(arrays: Any) -> Value:
    """Returns the arrays joined side by side, vectors as columns."""
    return concatenate([x if np.ndim(x) > 1 else reshape(x, (-1, 1)) for x in _several(arrays, "column_stack")], 1)


@spelled
def append(x: Any, values: Any, axis: int | None = None) -> Value:
    """Returns `x` with `values` joined at its end; both flattened where `axis` is None."""
    return concatenate([x, values], axis)


def block(arrays: Any) -> Value:
    """Returns a matrix put together of blocks: inner lists are joined along the last axis, outer ones along the axes before."""
    depth, probe = 0, arrays
    while isinstance(probe, list):
        depth, probe = depth + 1, probe[0]

    def join(part: Any, axis: int) -> Value:
        if isinstance(part, list):
            return concatenate([join(p, axis + 1) for p in part], axis)
        x = to_value(part, "block")
        return x if x.spec.ndim >= depth else commands.reshape(x, shape=(1,) * (depth - x.spec.ndim) + x.spec.shape)

    return join(arrays, -depth) if depth else to_value(arrays, "block")


# -- splits ------------------------------------------------------------------------------------------------------------


@spelled
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    """Returns parts of `x` along `axis`.

    Args:     indices_or_sections: how many equal parts, or where to cut.
    Raises:   ShapeError: the axis has no equal parts.
    Example:  >>> [part.shape for part in split(np.ones(6), [1, 3])]
              [(1,), (2,), (3,)]
    """
    x = to_value(x, "split")
    at = to_axis("split", axis, x.spec.ndim)
    n = x.spec.shape[at]
    if not _is_sequence(indices_or_sections):
        parts = static_int(indices_or_sections, "split", "indices_or_sections")
        if parts < 1 or n % parts:
            raise user_error(
                ShapeError, "split", f"axis {at} of size {n} has no {parts} equal parts.", operands={"x": x.spec},
                fix="use array_split for unequal parts, or give the places to cut.",
            )  # fmt: skip
    return array_split(x, indices_or_sections, at)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, (tuple, list)) or bool(np.ndim(x) if isinstance(x, np.ndarray) else getattr(x, "ndim", 0))


@spelled
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Value]:
    """Returns parts of `x` along `axis`, whose sizes may differ by one; see `split`."""
    x = to_value(x, "array_split")
    at = to_axis("array_split", axis, x.spec.ndim)
    n = x.spec.shape[at]
    if _is_sequence(indices_or_sections):
        cuts = [static_int(i, "split", "indices_or_sections") for i in indices_or_sections]
        cuts = [min(n, i if i >= 0 else max(0, i + n)) for i in cuts]
    else:
        parts = static_int(indices_or_sections, "array_split", "indices_or_sections")
        if parts < 1:
            raise user_error(ArgumentError, "array_split", f"{parts} is no number of parts.", fix="ask for at least one part.")
        small, larger = divmod(n, parts)
        cuts = [i * small + min(i, larger) for i in range(1, parts)]
    return [slice_axis(x, at, a, max(a, b)) for a, b in zip([0, *cuts], [*cuts, n], strict=True)]


def hsplit(x: Any, indices_or_sections: Any) -> list[Value]:
    """Returns parts along axis 1, of vectors along axis 0."""
    return split(x, indices_or_sections, 0 if np.ndim(to_value(x, "hsplit")) == 1 else 1)


def vsplit(x: Any, indices_or_sections: Any) -> list[Value]:
    """Returns parts along axis 0."""
    return split(x, indices_or_sections, 0)


def dsplit(x: Any, indices_or_sections: Any) -> list[Value]:
    """Returns parts along axis 2."""
    return split(x, indices_or_sections, 2)


@spelled
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Value, ...]:
    """Returns the slices of `x` along `axis`, without that axis.

    Example:  >>> [part.shape for part in unstack(np.ones((2, 3)))]
              [(3,), (3,)]
    """
    x = to_value(x, "unstack")
    at = to_axis("unstack", axis, x.spec.ndim)
    return tuple(squeeze(slice_axis(x, at, i, i + 1), axis=at) for i in range(x.spec.shape[at]))


# -- order -------------------------------------------------------------------------------------------------------------


@spelled
def flip(x: Any, /, axis: Axis = None) -> Value:
    """Returns `x` with the order of elements reversed along `axis`, by default along all axes.

    Example:  >>> flip(np.arange(3))
              Array([2, 1, 0], dtype=int64)
    """
    x = to_value(x, "flip")
    return commands.flip(x, axes=to_axes("flip", axis, x.spec.ndim))


def fliplr(x: Any) -> Value:
    """Returns `x` reversed along axis 1."""
    return flip(x, axis=1)


def flipud(x: Any) -> Value:
    """Returns `x` reversed along axis 0."""
    return flip(x, axis=0)


@spelled
def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Value:
    """Returns `x` turned by `k` quarter turns in the plane of two axes, from the first towards the second."""
    x = to_value(x, "rot90")
    a, b = to_axes("rot90", tuple(axes), x.spec.ndim)
    k = static_int(k, "rot90", "k") % 4
    if k in (0, 2):
        return flip(x, axis=(a, b)) if k else x
    return swapaxes(flip(x, axis=b), a, b) if k == 1 else flip(swapaxes(x, a, b), axis=b)


@spelled
def roll(x: Any, shift: int | Sequence[int], axis: Axis = None) -> Value:
    """Returns `x` with elements shifted along `axis`; those pushed out at the end come in at the start.

    Args:     shift: how far, for each axis. axis: None shifts the flattened array.
    Example:  >>> roll(np.arange(4), 1)
              Array([3, 0, 1, 2], dtype=int64)
    """
    x = to_value(x, "roll")
    if axis is None:
        steps = sum(shift) if isinstance(shift, (tuple, list)) else shift
        return reshape(roll(ravel(x), steps, 0), x.spec.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(axes) != len(shifts):
        raise user_error(
            ArgumentError, "roll", f"{len(shifts)} shifts are given for {len(axes)} axes.", fix="give one shift for each axis."
        )
    for at, steps in zip(axes, shifts, strict=True):
        at = to_axis("roll", at, x.spec.ndim)
        n = x.spec.shape[at]
        cut = -static_int(steps, "roll", "shift") % n if n else 0
        if cut:
            x = commands.concatenate(slice_axis(x, at, cut, n), slice_axis(x, at, 0, cut), axis=at)
    return x


# -- repetition and padding --------------------------------------------------------------------------------------------


@spelled
def tile(x: Any, repetitions: Any, /) -> Value:
    """Returns `x` repeated as a whole along each axis.

    Example:  >>> tile(np.arange(2), (2, 2))
              Array([[0, 1, 0, 1],
                     [0, 1, 0, 1]], dtype=int64)
    """
    x, times = to_value(x, "tile"), to_shape(repetitions, "tile")
    ndim = max(x.spec.ndim, len(times))
    times = (1,) * (ndim - len(times)) + times
    sizes = (1,) * (ndim - x.spec.ndim) + x.spec.shape
    pairs = tuple(n for pair in zip(times, sizes, strict=True) for n in pair)
    kept = tuple(2 * i + 1 for i in range(ndim - x.spec.ndim, ndim))
    spread = commands.broadcast_to(x, shape=pairs, axes=kept)
    return commands.reshape(spread, shape=tuple(a * b for a, b in zip(times, sizes, strict=True)))


@array_method
@spelled
def repeat(x: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None) -> Value:
    """Returns `x` with each element repeated along `axis`; None flattens it first.

    Args:     repeats: how often: a number for all, or one for each element, known while tracing. total_repeat_length: the
              size of the result, which must agree.
    Raises:   ArgumentError: the number of `repeats` or the total does not fit.
    Example:  >>> repeat(np.arange(3), [1, 0, 2])
              Array([0, 2, 2], dtype=int64)
    """
    x, at = ravel_for(axis, to_value(x, "repeat"))
    at = to_axis("repeat", at, x.spec.ndim)
    n = x.spec.shape[at]
    given = as_operand(repeats, "repeat", "repeats")
    counts = given.concrete("repeat(repeats)") if hasattr(given, "spec") else np.asarray(given)
    if counts.ndim > 1 or counts.size not in (1, n) or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise user_error(
            ArgumentError, "repeat", f"repeats must be a number, or {n} of them, of 0 or more; they are {counts}.",
            operands={"x": x.spec}, fix="give an integer for each element of the axis.",
        )  # fmt: skip
    total = int(counts.sum()) * (n if counts.size == 1 != n else 1)
    if total_repeat_length not in (None, total):
        raise user_error(
            ArgumentError, "repeat", f"the result has {total} elements along the axis, not {total_repeat_length}.",
            fix="leave total_repeat_length out.",
        )  # fmt: skip
    if counts.size == 1:
        times = int(counts.reshape(()))
        shape = x.spec.shape
        wide = (*shape[: at + 1], times, *shape[at + 1 :])
        spread = commands.broadcast_to(x, shape=wide, axes=tuple(i for i in range(len(wide)) if i != at + 1))
        return commands.reshape(spread, shape=(*shape[:at], n * times, *shape[at + 1 :]))
    return pick(x, np.repeat(np.arange(n), counts), at)


def pick(x: Value, index: np.ndarray[Any, Any], axis: int) -> Value:
    """x[index] along an axis for indices known now: runs of them are slices, reversed slices or broadcasts, joined."""
    parts, at = [], 0
    while at < len(index):
        first, step, end = int(index[at]), 0, at + 1
        if end < len(index):
            step = int(index[end]) - first
            step = step if step in (-1, 0, 1) else 0
        while end < len(index) and int(index[end]) == first + step * (end - at):
            end += 1
        last = first + step * (end - 1 - at)
        part = slice_axis(x, axis, min(first, last), max(first, last) + 1)
        if step == 0 and end - at > 1:
            part = broadcast_to_shape(part, tuple(end - at if i == axis else n for i, n in enumerate(x.spec.shape)))
        elif step == -1:
            part = commands.flip(part, axes=(axis,))
        parts.append(part)
        at = end
    if not parts:
        return slice_axis(x, axis, 0, 0)
    return parts[0] if len(parts) == 1 else commands.concatenate(*parts, axis=axis)


PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap", "empty")


@spelled
def pad(x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Value:
    """Returns `x` with elements added before and after each axis.

    Args:     pad_width: a number for all, (before, after) for all, one such pair for each axis, or {axis: number or pair}.
              mode: "constant"; "edge" repeats the outermost element; "reflect" mirrors at it, "symmetric" mirrors with it;
              "wrap" continues from the other end; "empty" leaves the values open. constant_values: the number to pad with.
    Raises:   ArgumentError: another mode or width.
    Example:  >>> pad(np.arange(3), (2, 1), mode="reflect")
              Array([2, 1, 0, 1, 2, 1], dtype=int64)
    """
    x = to_value(x, "pad")
    widths = _pad_widths(pad_width, x.spec.ndim)
    if mode not in PAD_MODES:
        raise user_error(ArgumentError, "pad", f"there is no mode {mode!r}.", fix=f"use one of {', '.join(PAD_MODES)}.")
    if mode not in ("constant", "empty"):
        for axis, (before, after) in enumerate(widths):
            n = x.spec.shape[axis]
            if n == 0 and before + after:
                raise user_error(
                    ArgumentError, "pad", f"axis {axis} is empty, so mode {mode!r} has nothing to pad with.", fix='use mode="constant".'
                )
            if before + after:
                x = pick(x, np.pad(np.arange(n), (before, after), mode=mode), axis)  # type: ignore[call-overload]
        return x
    value = to_value(constant_values, "pad", "constant_values")
    if value.spec.ndim:
        return _pad_axis_by_axis(x, widths, value)
    low, high = tuple(a for a, _ in widths), tuple(b for _, b in widths)
    return commands.pad(x, _as(value, x), low=low, high=high, interior=(0,) * x.spec.ndim)


def _as(value: Value, x: Value) -> Value:
    return ew.convert(value, dtype=x.spec.dtype) if value.spec.dtype != x.spec.dtype else value


def _pad_axis_by_axis(x: Value, widths: list[tuple[int, int]], values: Value) -> Value:
    """Constants that differ by side: (before, after) for all axes or a pair for each."""
    pairs = broadcast_to_shape(values, (len(widths), 2))
    for axis, ends in enumerate(widths):
        for side in (0, 1):
            amount = tuple(ends[side] if i == axis else 0 for i in range(x.spec.ndim))
            none = (0,) * x.spec.ndim
            low, high = (amount, none) if side == 0 else (none, amount)
            x = commands.pad(x, _as(pairs[axis, side], x), low=low, high=high, interior=none)
    return x


def _pad_widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    if isinstance(pad_width, dict):
        table = dict.fromkeys(range(ndim), (0, 0))
        for axis, width in pad_width.items():
            ends = width if isinstance(width, (tuple, list)) else (width, width)
            table[to_axis("pad", axis, ndim)] = (static_int(ends[0], "pad", "pad_width"), static_int(ends[1], "pad", "pad_width"))
        widths = np.asarray(list(table.values()), dtype=np.int64).reshape(ndim, 2)
    else:
        try:
            widths = np.broadcast_to(np.asarray(pad_width), (ndim, 2))
        except ValueError:
            raise user_error(
                ArgumentError, "pad", f"pad_width {pad_width!r} does not fit an array of {ndim} axes.",
                fix="give a number, a pair, or a pair for each axis.",
            ) from None  # fmt: skip
    if widths.dtype.kind not in "iu" or (widths < 0).any():
        raise user_error(
            ArgumentError, "pad", f"pad_width {pad_width!r} is not made of integers of 0 or more.", fix="slice the array to shorten it."
        )
    return [(int(a), int(b)) for a, b in widths]


# -- diagonals ---------------------------------------------------------------------------------------------------------


@array_method
@spelled
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """Returns the diagonal of the matrices in two axes, as the last axis of the result.

    Args:     offset: above the main diagonal where positive.
    Raises:   ShapeError: x has fewer than two axes.
    Example:  >>> diagonal(np.arange(6).reshape(2, 3), 1)
              Array([1, 5], dtype=int64)
    """
    x = to_value(x, "diagonal")
    if x.spec.ndim < 2:
        raise user_error(
            ShapeError, "diagonal", "a diagonal needs a matrix.", operands={"x": x.spec}, fix="pass at least two axes."
        )
    a, b = check_axes("diagonal", (axis1, axis2), x.spec.ndim)
    x = moveaxis(x, (a, b), (-2, -1))
    rows, columns = x.spec.shape[-2:]
    offset = static_int(offset, "diagonal", "offset")
    top, left = max(-offset, 0), max(offset, 0)
    n = max(0, min(rows - top, columns - left))
    rest = x.spec.shape[:-2]
    if n == 0:
        return ew.full(shape=(*rest, 0), dtype=x.spec.dtype, value=0)
    square = slice_axis(slice_axis(x, x.spec.ndim - 2, top, top + n), x.spec.ndim - 1, left, left + n)
    flat = commands.reshape(square, shape=(*rest, n * n))
    stride = (*(1 for _ in rest), n + 1)
    return commands.slice_(flat, start=(0,) * (len(rest) + 1), limit=(*rest, n * n), stride=stride)


@array_method
@spelled
def trace(x: Any, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Value:
    """Returns the sum of a diagonal of the matrices in two axes.

    Example:  >>> trace(np.eye(3))
              Array(3., dtype=float64)
    """
    return diagonal(x, offset, axis1, axis2).sum(-1, dtype=dtype)


def size(x: Any, axis: int | None = None) -> int:
    """Returns the number of elements of `x`, or the size of an axis."""
    spec = spec_of(to_value(x, "size"))
    return spec.size if axis is None else spec.shape[to_axis("size", axis, spec.ndim)]


def ndim(x: Any) -> int:
    """Returns the number of axes of `x`."""
    return spec_of(to_value(x, "ndim")).ndim


def shape(x: Any) -> tuple[int, ...]:
    """Returns the shape of `x`."""
    return spec_of(to_value(x, "shape")).shape


def iscomplexobj(x: Any) -> bool:
    """Returns whether the dtype of `x` is complex."""
    return dtypes.is_complex(to_value(x, "iscomplexobj").spec.dtype)


def isscalar(x: Any) -> bool:
    """Returns whether `x` is a Python or NumPy number, or a 0-d array."""
    return isinstance(x, (bool, int, float, complex, np.generic)) or (hasattr(x, "spec") and x.spec.ndim == 0)
