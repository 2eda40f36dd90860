"""Functions that repeat elements and pad arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnc.array import indexing
from nnc.array.array import Array
from nnc.array.operators import array_method
from nnc.array.promote import broadcast_to_shape
from nnc.calls.spelling import spelled
from nnc.commands import constants
from nnc.commands import shape as commands
from nnc.commands.shape import slice_axis
from nnc.commands.sort import searchsorted
from nnc.errors import ArgumentError, TraceError, user_error
from nnc.numpy.operands import in_dtype, known, ravel_for, static_int, to_axis, to_shape, to_value
from nnc.numpy.reductions import cumsum
from nnc.typing import ArrayLike

__all__ = ["repeat", "resize", "tile"]

# -- repetition and padding --------------------------------------------------------------------------------------------


@spelled
def tile(x: ArrayLike, repetitions: ArrayLike, /) -> Array:
    """Returns `x` repeated as a whole along each axis.

    Args:
        x: any shape.
        repetitions: how often along each axis: an integer or a sequence; counted from the last axis.

    Example:
        >>> tile(np.arange(2), (2, 2))
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


@spelled
def resize(x: ArrayLike, new_shape: ArrayLike) -> Array:
    """Returns the elements of `x` in another shape, repeated from the start or left out at the end where it has another size.

    Args:
        x: any shape.
        new_shape: an integer or a sequence of integers.

    Example:
        >>> resize(np.arange(3), (2, 2))
        Array([[0, 1],
               [2, 0]], dtype=int64)
    """
    x, shape = to_value(x, "resize"), to_shape(new_shape, "resize")
    n, wanted = x.spec.size, math.prod(shape)
    if not n:
        return constants.full(shape=shape, dtype=x.spec.dtype, value=0)
    return commands.reshape(slice_axis(tile(x.ravel(), -(-wanted // n)), 0, 0, wanted), shape=shape)


@array_method
def repeat(
    x: ArrayLike, repeats: ArrayLike, axis: int | None = None, *, total_repeat_length: int | None = None
) -> Array:
    """Returns `x` with each element repeated along `axis`; None flattens it first.

    Args:
        x: any shape.
        repeats: how often: a number for all, or one for each element.
        axis: axis to repeat along; None flattens first.
        total_repeat_length: the size of the result, with which `repeats` may be traced; it must agree.

    Raises:
        ArgumentError: the number of `repeats` or the total does not fit.

    Example:
        >>> repeat(np.arange(3), [1, 0, 2])
        Array([0, 2, 2], dtype=int64)
    """
    x, at = ravel_for(axis, to_value(x, "repeat"))
    at = to_axis("repeat", at, x.spec.ndim)
    n = x.spec.shape[at]
    given = to_value(repeats, "repeat", "repeats")
    try:
        counts = known(
            given, "repeat(repeats)", "pass total_repeat_length=n, so that the shape of the result is known."
        )
    except TraceError:
        if total_repeat_length is None:
            raise
        return _repeat_traced(x, given, at, static_int(total_repeat_length, "repeat", "total_repeat_length"))
    if counts.ndim > 1 or counts.size not in (1, n) or counts.dtype.kind not in "iu" or (counts < 0).any():
        problem = f"repeats must be a number, or {n} of them, of 0 or more; they are {counts}."
        fix = "give an integer for each element of the axis."
        raise user_error(ArgumentError, "repeat", problem, operands={"x": x.spec}, fix=fix)
    total = int(counts.sum()) * (n if counts.size == 1 != n else 1)
    if total_repeat_length not in (None, total):
        problem = f"the result has {total} elements along the axis, not {total_repeat_length}."
        raise user_error(ArgumentError, "repeat", problem, fix="leave total_repeat_length out.")
    if counts.size == 1:
        times = int(counts.reshape(()))
        shape = x.spec.shape
        wide = (*shape[: at + 1], times, *shape[at + 1 :])
        spread = commands.broadcast_to(x, shape=wide, axes=tuple(i for i in range(len(wide)) if i != at + 1))
        return commands.reshape(spread, shape=(*shape[:at], n * times, *shape[at + 1 :]))
    return pick(x, np.repeat(np.arange(n), counts), at)


def _repeat_traced(x: Array, repeats: Array, axis: int, total: int) -> Array:
    """`repeat` with traced numbers. Where these do not make up `total`, indices are out of range, so that it raises when run."""
    n = x.spec.shape[axis]
    ends = cumsum(broadcast_to_shape(repeats, (n,)))
    places = searchsorted(ends, to_value(np.arange(total), "repeat").astype(ends.spec.dtype), side="right")
    excess = (slice_axis(ends, 0, n - 1, n) != total) * n
    return indexing.take(x, places + excess, axis)


def pick(x: Array, index: np.ndarray[Any, Any], axis: int) -> Array:
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


def pad(x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Array:
    """`x` with elements added before and after each axis: its own, or constants; `nnp.pad` has all modes."""
    x = to_value(x, "pad")
    widths = pad_widths(pad_width, x.spec.ndim)
    if mode not in ("constant", "empty"):
        for axis, (before, after) in enumerate(widths):
            n = x.spec.shape[axis]
            if n == 0 and before + after:
                problem = f"axis {axis} is empty, so mode {mode!r} has nothing to pad with."
                raise user_error(ArgumentError, "pad", problem, fix='use mode="constant".')
            if before + after:
                x = pick(x, np.pad(np.arange(n), (before, after), mode=mode), axis)  # type: ignore[call-overload]
        return x
    value = in_dtype(constant_values, x.spec.dtype, "pad", "constant_values")
    if value.spec.ndim:
        return _pad_axis_by_axis(x, widths, value)
    low, high = tuple(a for a, _ in widths), tuple(b for _, b in widths)
    return commands.pad(x, value, low=low, high=high, interior=(0,) * x.spec.ndim)


def _pad_axis_by_axis(x: Array, widths: list[tuple[int, int]], values: Array) -> Array:
    """Constants that differ by side: (before, after) for all axes or a pair for each."""
    pairs = broadcast_to_shape(values, (len(widths), 2))
    for axis, ends in enumerate(widths):
        for side in (0, 1):
            amount = tuple(ends[side] if i == axis else 0 for i in range(x.spec.ndim))
            none = (0,) * x.spec.ndim
            low, high = (amount, none) if side == 0 else (none, amount)
            x = commands.pad(x, pairs[axis, side], low=low, high=high, interior=none)
    return x


def pad_widths(pad_width: Any, ndim: int) -> list[tuple[int, int]]:
    """(before, after) for each axis."""
    if isinstance(pad_width, dict):
        table = dict.fromkeys(range(ndim), (0, 0))
        for axis, width in pad_width.items():
            ends = width if isinstance(width, (tuple, list)) else (width, width)
            table[to_axis("pad", axis, ndim)] = (
                static_int(ends[0], "pad", "pad_width"),
                static_int(ends[1], "pad", "pad_width"),
            )
        widths = np.asarray(list(table.values()), dtype=np.int64).reshape(ndim, 2)
    else:
        try:
            widths = np.broadcast_to(np.asarray(pad_width), (ndim, 2))
        except ValueError:
            problem = f"pad_width {pad_width!r} does not fit an array of {ndim} axes."
            fix = "give a number, a pair, or a pair for each axis."
            raise user_error(ArgumentError, "pad", problem, fix=fix) from None
    if widths.dtype.kind not in "iu" or (widths < 0).any():
        problem = f"pad_width {pad_width!r} is not made of integers of 0 or more."
        raise user_error(ArgumentError, "pad", problem, fix="slice the array to shorten it.")
    return [(int(a), int(b)) for a, b in widths]
