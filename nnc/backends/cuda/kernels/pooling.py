"""Pooling for CUDA: a thread goes over the elements of one window, or over the windows that hold one element.

Nothing is scattered: the transposes gather, too, so that sums are formed in the order of the places in a window, as the references
do. Places in the padding are never visited. Neighbouring threads take neighbouring windows, or channels where these lie innermost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.points import place, print_points
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.base import dtypes
from nnc.base.records import record
from nnc.base.target import GpuTarget
from nnc.commands.windows import Padding, Shape, spatial_axes
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Carried, Value, has_code
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.records import record_of
from nnc.lower.plan.stages import Step, View

Index = list[Value]


@record
class _Windows:
    """Windows over an array, which give an array with one element for each window.

    Attributes:
        axes: the axes along which windows move.
        sizes: the array's sizes along these.
        counts: the number of windows along each of these.
        window: the window's size along each axis.
        stride: the distance from one window to the next.
        padding: the padding in front and behind.
        dilation: the distance between two elements of a window.
    """

    axes: slice
    sizes: Shape
    counts: Shape
    window: Shape
    stride: Shape
    padding: Padding
    dilation: Shape

    @staticmethod
    def of(step: Step, array: TensorSpec, pooled: TensorSpec) -> _Windows:
        """Returns the windows of a step."""
        p = step.params
        axes = spatial_axes(array.ndim, len(p["window"]), p.get("channels_last", False))
        sizes, counts = array.shape[axes], pooled.shape[axes]
        return _Windows(axes, sizes, counts, p["window"], p["stride"], p["padding"], p["dilation"])

    def element(self, code: GpuCode, axis: int, window: Value, k: Value) -> Value:
        """Returns the position of a place of a window in the array: below 0 and beyond the size in the padding."""
        first = code.mul(window, code.integer(self.stride[axis]))
        return code.sub(
            code.add(first, code.mul(k, code.integer(self.dilation[axis]))), code.integer(self.padding[axis][0])
        )

    def places(self, code: GpuCode, axis: int, window: Value) -> tuple[Value, Value]:
        """Returns the first place of a window that is no padding, and the one behind the last."""
        n, size, low, step = self.window[axis], self.sizes[axis], self.padding[axis][0], self.dilation[axis]
        first = code.mul(window, code.integer(self.stride[axis]))
        begin, end = code.integer(0), code.integer(n)
        if low:
            outside = code.intrinsic("smax", code.sub(code.integer(low), first), code.integer(0))
            begin = code.div(code.add(outside, code.integer(step - 1)), code.integer(step))
        if (self.counts[axis] - 1) * self.stride[axis] + (n - 1) * step - low >= size:
            beyond = code.sub(code.integer(size - 1 + low + step), first)
            inside = code.div(code.intrinsic("smax", beyond, code.integer(0)), code.integer(step))
            end = code.intrinsic("smin", inside, end)
        return begin, end

    def holders(self, code: GpuCode, axis: int, i: Value) -> _Holders:
        """Returns the windows that hold an element: those for which position + padding = window · stride + place · dilation."""
        stride, step, n = self.stride[axis], self.dilation[axis], self.window[axis]
        common = math.gcd(stride, step)
        apart = stride // common  # places from one window to the one in front
        t = code.add(i, code.integer(self.padding[axis][0]))
        beyond = code.sub(t, code.integer((self.counts[axis] - 1) * stride))
        least = code.intrinsic("smax", code.add(beyond, code.integer(step - 1)), code.integer(0))
        least = code.div(least, code.integer(step))
        end = code.intrinsic("smin", code.add(code.div(t, code.integer(step)), code.integer(1)), code.integer(n))
        reduced = code.mul(code.div(t, code.integer(common)), code.integer(pow(step // common, -1, apart)))
        wanted = code.rem(reduced, code.integer(apart))
        ahead = code.sub(code.add(wanted, code.integer(apart)), code.rem(least, code.integer(apart)))
        first = code.add(least, code.rem(ahead, code.integer(apart)))
        many = code.add(code.sub(end, first), code.integer(apart - 1))
        many = code.div(code.intrinsic("smax", many, code.integer(0)), code.integer(apart))
        if common > 1:
            fits = code.compare("eq", code.rem(t, code.integer(common)), code.integer(0))
            many = code.select(fits, many, code.integer(0))
        window = code.div(code.sub(t, code.mul(first, code.integer(step))), code.integer(stride))
        return _Holders(many, first, apart, window, step // common)

    def number(self, code: GpuCode, places: Sequence[Value]) -> Value:
        """Returns the number of a place, counted in row-major order."""
        found = code.integer(0)
        for k, n in zip(places, self.window, strict=True):
            found = code.add(code.mul(found, code.integer(n)), k)
        return found


@record
class _Holders:
    """The windows that hold an element, along one axis, in the order of its places in them."""

    count: Value
    first: Value  # the least place
    apart: int  # of places
    window: Value  # in which it has the least place
    back: int  # windows from one to the next

    def at(self, code: GpuCode, j: Value) -> tuple[Value, Value]:
        """Returns the place in window number j, and the window."""
        k = code.add(self.first, code.mul(j, code.integer(self.apart)))
        return k, code.add(self.window, code.mul(j, code.integer(-self.back)))


def _visit(
    code: GpuCode,
    bounds: Sequence[tuple[Value | int, Value]],
    carried: Carried,
    visit: Callable[[Sequence[Value]], None],
) -> None:
    """Nests a loop for each axis, whose innermost iterations replace the carried values."""
    with ExitStack() as loops:
        visit([loops.enter_context(code.loop(first, end, carried=[carried])) for first, end in bounds])


def _load(code: GpuCode, position: int, view: View, index: Sequence[Value]) -> Value:
    """Returns an element of an input in the dtype in which it is accumulated."""
    kind = view.spec.dtype
    return code.convert(code.load(place(code, f"%p{position}", index, view.strides), kind), dtypes.accumulator(kind))


def _replaced(index: Index, axes: slice, by: Sequence[Value]) -> Index:
    found = list(index)
    found[axes] = by
    return found


def _max(step: Step, machine: GpuTarget, wanted: Callable[[Value, Value], Sequence[Value]]) -> DeviceKernel:
    """Finds the greatest element of each window, its place, or both."""
    x = step.inputs[0]
    windows, record = _Windows.of(step, x.spec, step.outputs[0].spec), record_of(x.spec.dtype, "gt")
    wide = dtypes.accumulator(x.spec.dtype)
    lowest = np.iinfo(wide).min if dtypes.is_integer(wide) else -np.inf

    def body(code: GpuCode, index: Index) -> Sequence[Value]:
        own = index[windows.axes]
        bounds = [windows.places(code, axis, i) for axis, i in enumerate(own)]

        # an element that does not beat the lowest number equals it, so that the first one has the place
        best = Carried([code.constant(lowest, wide), windows.number(code, [begin for begin, _ in bounds])])

        def visit(places: Sequence[Value]) -> None:
            at = [windows.element(code, axis, i, k) for axis, (i, k) in enumerate(zip(own, places, strict=True))]
            value, (found, number) = _load(code, 0, x, _replaced(index, windows.axes, at)), best.values
            wins = record.better(code, value, found)
            best.values = [code.select(wins, value, found), code.select(wins, windows.number(code, places), number)]

        _visit(code, bounds, best, visit)
        return wanted(*best.values)

    return print_points("max_pool", step, machine, body)


def _sum_pool(step: Step, machine: GpuTarget) -> DeviceKernel:
    (x,), (out,) = step.inputs, step.outputs
    windows = _Windows.of(step, x.spec, out.spec)

    def body(code: GpuCode, index: Index) -> Sequence[Value]:
        own = index[windows.axes]
        total = Carried([code.constant(0, dtypes.accumulator(x.spec.dtype))])

        def visit(places: Sequence[Value]) -> None:
            at = [windows.element(code, axis, i, k) for axis, (i, k) in enumerate(zip(own, places, strict=True))]
            total.values = [code.add(total.values[0], _load(code, 0, x, _replaced(index, windows.axes, at)))]

        _visit(code, [windows.places(code, axis, i) for axis, i in enumerate(own)], total, visit)
        return total.values

    return print_points("sum_pool", step, machine, body)


def _pick_pool(step: Step, machine: GpuTarget) -> DeviceKernel:
    (x, given), (out,) = step.inputs, step.outputs
    windows = _Windows.of(step, x.spec, out.spec)

    def body(code: GpuCode, index: Index) -> Sequence[Value]:
        number = code.load(place(code, "%p1", index, given.strides), given.spec.dtype)
        rest, at, own = code.convert(number, dtypes.int64), list[Value](), index[windows.axes]
        inside = code.and_(
            code.compare("ge", rest, code.integer(0)), code.compare("lt", rest, code.integer(math.prod(windows.window)))
        )
        for axis in reversed(range(len(own))):
            n = code.integer(windows.window[axis])
            i = windows.element(code, axis, own[axis], code.rem(rest, n))
            rest = code.div(rest, n)
            there = code.compare("ge", i, code.integer(0)), code.compare("lt", i, code.integer(windows.sizes[axis]))
            inside = code.and_(inside, code.and_(*there))
            at.append(i)
        source = place(code, "%p0", _replaced(index, windows.axes, at[::-1]), x.strides)
        return [code.guarded(inside, lambda: code.load(source, x.spec.dtype))]

    return print_points("pick_pool", step, machine, body)


def _input_grad(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Returns the sum over the windows that hold an element; of those whose place it is, where places are given."""
    ct, (out,) = step.inputs[0], step.outputs
    windows = _Windows.of(step, out.spec, ct.spec)

    def body(code: GpuCode, index: Index) -> Sequence[Value]:
        holders = [windows.holders(code, axis, i) for axis, i in enumerate(index[windows.axes])]
        total = Carried([code.constant(0, dtypes.accumulator(ct.spec.dtype))])

        def visit(numbers: Sequence[Value]) -> None:
            pairs = [each.at(code, j) for each, j in zip(holders, numbers, strict=True)]
            at = _replaced(index, windows.axes, [window for _, window in pairs])
            share = _load(code, 0, ct, at)
            for places in step.inputs[1:]:
                given = code.load(place(code, "%p1", at, places.strides), places.spec.dtype)
                number = windows.number(code, [k for k, _ in pairs])
                wins = code.compare("eq", code.convert(given, dtypes.int64), number)
                share = code.select(wins, share, code.like(share, 0))
            total.values = [code.add(total.values[0], share)]

        _visit(code, [(0, each.count) for each in holders], total, visit)
        return total.values

    return print_points("pool_grad", step, machine, body)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return has_code(specs[0].dtype)


add_printed("max_pool", partial(_max, wanted=lambda best, at: [best]), _supports)
add_printed("max_pool_places", partial(_max, wanted=lambda best, at: [at]), _supports)
add_printed("max_pool_both", partial(_max, wanted=lambda best, at: [best, at]), _supports)
add_printed("sum_pool", _sum_pool, _supports)
add_printed("pick_pool", _pick_pool, _supports)
add_printed("sum_pool_input_grad", _input_grad, _supports)
add_printed("pick_pool_input_grad", _input_grad, _supports)
