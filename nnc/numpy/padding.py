"""`pad`, with the modes whose values are computed; modes that repeat elements or a constant are in `repetition`."""

from __future__ import annotations

from collections.abc import Callable

from nnc.array.array import Array
from nnc.array.promote import astype, broadcast_to_shape
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.commands import elementwise as ew
from nnc.commands.shape import slice_axis
from nnc.errors import ArgumentError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy import moments, repetition
from nnc.numpy import reductions as red
from nnc.numpy.creation import linspace
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import broadcast_to, flip
from nnc.numpy.operands import in_dtype, keeps_weakness, static_int, to_value
from nnc.numpy.repetition import PAD_MODES, pad_widths
from nnc.numpy.statistics import median
from nnc.typing import ArrayLike

__all__ = ["pad"]

STATISTICS: dict[str, Callable[..., Array]] = {
    "maximum": red.max, "mean": moments.mean, "median": median, "minimum": red.min,
}  # fmt: skip


@specialised(1)
@keeps_weakness
def pad(
    x: ArrayLike,
    pad_width: ArrayLike,
    mode: str = "constant",
    *,
    constant_values: ArrayLike = 0,
    end_values: ArrayLike = 0,
    stat_length: ArrayLike | None = None,
    reflect_type: str = "even",
) -> Array:
    """Returns `x` with elements added before and after each axis.

    Args:
        x: any shape.
        pad_width: a number for all, (before, after) for all, one such pair for each axis, or {axis: number or pair}.
        mode: "constant"; "edge" repeats the outermost element; "reflect" mirrors at it, "symmetric" mirrors with it;
            "wrap" continues from the other end; "linear_ramp" falls or rises to `end_values`; "maximum", "mean",
            "median", "minimum" of the axis; "empty" leaves the values open.
        constant_values: the number to pad with, or as pad_width one for each side.
        end_values: the numbers at the outer ends with "linear_ramp", given like `constant_values`.
        stat_length: the number of elements at the ends that the statistics are taken of, given like `pad_width`; None: all.
        reflect_type: "odd" mirrors values at the edge's value, too.

    Raises:
        ArgumentError: another mode or width.

    Example:
        >>> pad(np.arange(3), (2, 1), mode="reflect")
        Array([2, 1, 0, 1, 2, 1], dtype=int64)
    """
    x = to_value(x, "pad")
    if mode not in (*PAD_MODES, *STATISTICS, "linear_ramp"):
        modes = ", ".join((*PAD_MODES, *STATISTICS, "linear_ramp"))
        raise user_error(ArgumentError, "pad", f"there is no mode {mode!r}.", fix=f"use one of {modes}.")
    check_choice("pad", "reflect_type", reflect_type, ("even", "odd"))
    mirrored = mode in ("reflect", "symmetric") and reflect_type == "odd"
    if mode in PAD_MODES and not mirrored:
        return repetition.pad(x, pad_width, mode, constant_values=constant_values)
    sides = pad_widths(pad_width, x.spec.ndim)
    ramp_ends = broadcast_to(in_dtype(end_values, x.spec.dtype, "pad", "end_values"), (x.spec.ndim, 2))
    lengths = None if stat_length is None else pad_widths(stat_length, x.spec.ndim)
    for axis, widths in enumerate(sides):
        if not x.spec.shape[axis] and any(widths):
            problem = f"axis {axis} is empty, so mode {mode!r} has nothing to pad with."
            raise user_error(ArgumentError, "pad", problem, operands={"x": x.spec}, fix='use mode="constant".')
        grown = x
        for side, width in enumerate(widths):
            if not width:
                continue
            if mirrored:
                grown = _point_reflection(grown, axis, side, width, x.spec.shape[axis], mode == "symmetric")
                continue
            if mode == "linear_ramp":
                part = _ramp(x, axis, side, width, ramp_ends[axis, side])
            else:
                count = None if lengths is None else lengths[axis][side]
                part = _statistic(x, axis, side, width, mode, count)
            grown = _joined(grown, part, axis, side)
        x = grown
    return x


def _joined(x: Array, part: Array, axis: int, side: int) -> Array:
    return concatenate([x, part] if side else [part, x], axis)


def _outermost(x: Array, axis: int, side: int, count: int) -> Array:
    n = x.spec.shape[axis]
    return slice_axis(x, axis, n - count, n) if side else slice_axis(x, axis, 0, count)


def _ramp(x: Array, axis: int, side: int, width: int, end: Array) -> Array:
    """Numbers from `end`, which is outermost, up to and without the edge of x."""
    edge = _outermost(x, axis, side, 1)
    steps = linspace(end, edge, width, endpoint=False, dtype=x.spec.dtype, axis=axis)
    steps = steps.reshape(tuple(width if i == axis else n for i, n in enumerate(x.spec.shape)))
    return flip(steps, axis=axis) if side else steps


def _statistic(x: Array, axis: int, side: int, width: int, mode: str, count: int | None) -> Array:
    n = x.spec.shape[axis]
    part = x if count is None else _outermost(x, axis, side, min(static_int(count, "pad", "stat_length"), n))
    value = STATISTICS[mode](part, axis, keepdims=True)
    if not dtypes.is_inexact(x.spec.dtype) and dtypes.is_inexact(value.spec.dtype):
        value = ew.round_(value)
    shape = tuple(width if i == axis else m for i, m in enumerate(x.spec.shape))
    return broadcast_to_shape(astype(value, x.spec.dtype), shape)


def _point_reflection(x: Array, axis: int, side: int, width: int, period: int, with_edge: bool) -> Array:
    """`x` continued by its reflection in the point at its edge, as often as the width needs."""
    while width:
        edge = _outermost(x, axis, side, 1)
        if period == 1 and not with_edge:
            part, count = edge, 1
        else:
            count = min(width, period if with_edge else period - 1)
            near = _outermost(x, axis, side, count if with_edge else count + 1)
            inner = near if with_edge else _outermost(near, axis, 1 - side, count)
            part = edge * 2 - flip(inner, axis=axis)
        x, width = _joined(x, part, axis, side), width - count
    return x
