"""Printed kernels of Fourier transforms: `fft`, `rfft` and `irfft`.

As many transforms as a vector has lanes run at once (`passes`). Their points are read into a buffer, where a real transform of an
even number of points is a complex one of half as many, and written from there. A long transform along neighbours in memory is two
rounds of short ones, whose lanes are points of the same transform (Bailey, 1990).

rfft   [4096, 256]    256 groups of 16 rows, each: 128 complex points in passes of 8, 4 and 4
fft    [1, 4096]      4 groups of 16 of its 64 columns, then of its 64 rows
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import nnc.commands.fft  # noqa: F401  (registers the commands)
from nnc.backends.cpu.kernels.transforms.groups import Placing, SideBySide
from nnc.backends.cpu.kernels.transforms.passes import (
    Points,
    entry,
    is_smooth,
    mul,
    roots,
    table,
    transform,
)
from nnc.backends.cpu.kernels.transforms.reals import Transform, convert_bins, convert_row, mirror_bins
from nnc.backends.printer import Bound, Printer, add_native, grain_of, over, times
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View

_BUFFER_BYTES = 1 << 17  # of each of the two buffers on a thread's stack
_LONG = 256  # points from which on a transform along neighbours is done in two rounds
_MOST_POINTS = 1 << 10  # of one of the two rounds
_LEAST_LANES = 4
_MOVES = 16  # times that the work of a point is that of moving it
_Shape = tuple[int, ...]
_Axes = Callable[[_Shape, Mapping[str, Any]], list[tuple[int, Transform]]]


# -- one round ---------------------------------------------------------------------------------------------------------


class _GroupRange(NamedTuple):
    """Groups of transforms, one for each lane of a vector, of which so many are filled."""

    first: int
    end: int
    filled: int


@dataclass(frozen=True)
class TransformRound:
    """Transforms along one axis, of which `lanes` lie side by side, for each position of the other axes.

    `twiddles` turns the results of a first round for the second one.
    """

    kind: Transform
    real: DType
    others: Axes
    lanes: int
    sides: tuple[Placing, Placing]
    twiddles: Callable[[Code, Points, Bound], None] | None = None

    def width(self, machine: Target) -> int:
        """Lanes of a vector, so that a buffer fits; 0 if the points are too many."""
        room = self.kind.held * 2 * self.real.itemsize
        width = machine.vector_bytes // self.real.itemsize
        while width > _LEAST_LANES and width * room > _BUFFER_BYTES:
            width //= 2
        return width if width * room <= _BUFFER_BYTES else 0

    def print(self, printer: Printer, pointers: tuple[str, str]) -> None:
        """The loops, in threads where there is much to do."""
        width = self.width(printer.machine)
        full, rest = divmod(self.lanes, width)
        self._groups(printer, pointers, width, _GroupRange(0, full, width))
        if rest:
            self._groups(printer, pointers, width, _GroupRange(full, full + 1, rest))

    def _groups(self, printer: Printer, pointers: tuple[str, str], width: int, groups: _GroupRange) -> None:
        sizes = (*self.others.shape, groups.end - groups.first)
        axis = sizes.index(max(sizes))
        nbytes = math.prod(sizes) * groups.filled * _MOVES * self.kind.points * self.real.itemsize

        def body(code: Code, begin: Bound, end: Bound) -> None:
            self._part(SideBySide(code, self.real, width), pointers, (axis, begin, end), groups)

        grain = grain_of(sizes[axis], nbytes, printer.machine)
        printer.parts(sizes[axis] if math.prod(sizes) else 0, grain, body)

    def _part(
        self, group: SideBySide, pointers: tuple[str, str], part: tuple[int, Bound, Bound], groups: _GroupRange
    ) -> None:
        code, buffers = group.code, group.buffers(self.kind.held)
        bounds = part[1:] if part[0] == len(self.others.shape) else (0, groups.end - groups.first)
        with over(code, self.others, pointers, part) as (source, target), code.loop(*bounds) as i:
            number = code.add(i, code.integer(groups.first))
            lane = times(code, number, group.lanes)
            places = [
                code.offset(p, times(code, lane, side.lane))
                for p, side in zip((source, target), self.sides, strict=True)
            ]
            self._group(group, places, buffers, groups.filled, number)

    def _group(
        self, group: SideBySide, places: list[str], buffers: tuple[Points, Points], filled: int, number: Value
    ) -> None:
        code, kind = group.code, self.kind
        group.read(places[0], self.sides[0], kind.moved("in"), buffers[0], filled)
        if kind.real == "out":
            if kind.packed:
                convert_bins(code, kind, buffers[0])
            else:
                mirror_bins(code, kind.n, buffers[0])
        result = transform(code, kind.points, kind.sign, buffers)
        if kind.real == "in" and kind.packed:
            convert_bins(code, kind, result)
        if self.twiddles is not None:
            self.twiddles(code, result, number)
        group.write(places[1], self.sides[1], kind.moved("out"), result, filled)


def _in_one_round(kind: Transform, real: DType, views: tuple[View, View], axis: int) -> TransformRound:
    """The transforms of a whole axis at once."""
    size = real.itemsize
    axes = Axes(views[0].spec.shape, tuple(view.strides for view in views)).without(axis).merged()
    elements = [size if kind.real == name else 2 * size for name in ("in", "out")]
    long = [i for i, n in enumerate(axes.shape) if n >= _LEAST_LANES]
    dense = [i for i in long if [strides[i] for strides in axes.strides] == elements]
    count, steps, others = 1, [0, 0], axes
    if axes.shape:
        lane = dense[0] if dense else axes.shape.index(max(axes.shape))
        count, steps, others = axes.shape[lane], [strides[lane] for strides in axes.strides], axes.without(lane)
    first, second = (
        kind.side(name, view.strides[axis], step, size)
        for name, view, step in zip(("in", "out"), views, steps, strict=True)
    )
    return TransformRound(kind, real, others, count, (first, second))


# -- two rounds --------------------------------------------------------------------------------------------------------


def _split(kind: Transform) -> tuple[int, int] | None:
    """The points of the two rounds of a long transform; None for one round."""
    n = kind.points
    if n <= _LONG or (kind.real and not kind.packed):
        return None
    pairs = [(k, n // k) for k in range(math.isqrt(n), 1, -1) if n % k == 0]
    return next((pair for pair in pairs if max(pair) <= _MOST_POINTS and all(map(is_smooth, pair))), None)


@dataclass(frozen=True)
class _Long:
    """Transforms of n1 · n2 neighbouring points, by way of a workspace."""

    kind: Transform
    n1: int
    n2: int
    shape: _Shape  # of the other axes
    real: DType

    def print(self, printer: Printer, source: str, source_strides: _Shape, target: str, target_strides: _Shape) -> None:
        """The rounds, and the change from or to real numbers."""
        kind, element, n = self.kind, 2 * self.real.itemsize, self.kind.points
        steps = tuple(n * element * math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))
        if kind.real == "out":
            self._convert_rows(printer, (source, "%workspace"), (source_strides, steps))
            source, source_strides = "%workspace", steps
        size, real = self.real.itemsize, self.real
        columns = Placing(self.n2 * element, element, size)
        axes = Axes(self.shape, (source_strides, steps)).merged()
        first = TransformRound(Transform(self.n1, kind.sign), real, axes, self.n2, (columns, columns), self._twiddle)
        first.print(printer, (source, "%workspace"))
        sides = Placing(element, self.n2 * element, size), Placing(self.n1 * element, element, size)
        axes = Axes(self.shape, (steps, target_strides)).merged()
        TransformRound(Transform(self.n2, kind.sign), real, axes, self.n1, sides).print(printer, ("%workspace", target))
        if kind.real == "in":
            self._convert_rows(printer, (target, target), (target_strides, target_strides))

    def _twiddle(self, code: Code, buffer: Points, group: Bound) -> None:
        """Multiplies the results k of column j by exp(sign · 2πi · j · k / n), the product of two numbers of tables."""
        n, ks, width = self.kind.points, np.arange(self.n1), buffer.lanes
        groups = np.arange(-(-self.n2 // width)) * width
        by_group = table(code, "groups", roots(n, np.outer(groups, ks), self.kind.sign), self.real)
        by_lane = roots(n, np.outer(ks, np.arange(width)), self.kind.sign)
        lanes = Points(code, table(code, "lanes", by_lane, self.real, 1), self.real, width)
        start = times(code, group, self.n1)
        with code.loop(1, self.n1) as k:
            factor = mul(code, lanes.load(k), entry(code, by_group, code.add(code.integer(start), k), self.real))
            buffer.store(k, mul(code, buffer.load(k), factor))

    def _convert_rows(self, printer: Printer, pointers: tuple[str, str], strides: tuple[_Shape, _Shape]) -> None:
        """Turns bins of packed numbers into those of real numbers, or back, row by row."""
        axes = Axes(self.shape, strides).merged()
        axis = axes.shape.index(max(axes.shape)) if axes.shape else -1
        count = axes.shape[axis] if axes.shape else 1
        lanes = printer.machine.vector_bytes // self.real.itemsize

        def body(code: Code, begin: Bound, end: Bound) -> None:
            with over(code, axes, pointers, (axis, begin, end)) as (source, target):
                convert_row(code, self.kind, self.real, source, target, lanes)

        nbytes = 2 * axes.size * self.kind.n * self.real.itemsize
        printer.parts(count if axes.size else 0, grain_of(count, nbytes, printer.machine), body)


# -- kernels -----------------------------------------------------------------------------------------------------------


def _complex(shape: _Shape, params: Mapping[str, Any]) -> list[tuple[int, Transform]]:
    """The axes along which `fft` transforms one after the other, the last one first."""
    sign = 1 if params.get("inverse") else -1
    return [(axis % len(shape), Transform(shape[axis], sign)) for axis in reversed(params["axes"])]


def _to_bins(shape: _Shape, params: Mapping[str, Any]) -> list[tuple[int, Transform]]:
    return [(params["axis"] % len(shape), Transform(shape[params["axis"]], -1, "in"))]


def _from_bins(shape: _Shape, params: Mapping[str, Any]) -> list[tuple[int, Transform]]:
    return [(params["axis"] % len(shape), Transform(params["points"], 1, "out"))]


def _is_long(axis: int, kind: Transform, shape: _Shape) -> bool:
    """Whether a transform is done in two rounds where its axis has neighbours in memory."""
    return axis == len(shape) - 1 and _split(kind) is not None


def _workspace(axes: _Axes, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target) -> int:
    shape, size = specs[0].shape, dtypes.real_dtype(specs[0].dtype).itemsize
    kinds = axes(shape, params)
    points = kinds[0][1].points * math.prod(n for axis, n in enumerate(shape) if axis != kinds[0][0])
    return 2 * size * points if any(_is_long(axis, kind, shape) for axis, kind in kinds) else 0


def _native(axes: _Axes, step: Step, machine: Target) -> Native | None:
    source, target = step.inputs[0], step.outputs[0]
    real = dtypes.real_dtype(source.spec.dtype)
    shape, size = source.spec.shape, real.itemsize
    printer = Printer(step, machine, workspace=len(step.outputs) > 1)
    at = "%in0"
    for axis, kind in axes(shape, step.params):
        elements = tuple(size if kind.real == side else 2 * size for side in ("in", "out"))
        parts = _split(kind) if _is_long(axis, kind, shape) else None
        if parts is not None and (source.strides[axis], target.strides[axis]) == elements:
            others = [tuple(v.strides[:axis] + v.strides[axis + 1 :]) for v in (source, target)]
            long = _Long(kind, *parts, shape[:axis] + shape[axis + 1 :], real)
            long.print(printer, at, others[0], "%out0", others[1])
        else:
            once = _in_one_round(kind, real, (source, target), axis)
            if not once.width(machine):
                return None
            once.print(printer, (at, "%out0"))
        source, at = target, "%out0"
    return printer.native()


def _add(name: str, axes: _Axes) -> None:
    add_native(name, partial(_native, axes), workspace=partial(_workspace, axes))


_add("fft", _complex)
_add("rfft", _to_bins)
_add("irfft", _from_bins)
