"""Printed kernels of pooling: the greatest element of windows, its place, sums, and the gradients of these.

Where the elements of some batch axis are neighbours in all operands (channels last), vectors run along that axis. Else vectors of
neighbouring windows are read from rows, every second element where windows lie two apart; windows at the borders, and all others,
are done one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import nnc.commands.pool  # noqa: F401  (registers the commands)
from nnc.backends.cpu.kernels.moves.indexed import convert_whole
from nnc.backends.printer import Bound, Printer, add_native, grain_of, minus, times
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.commands.windows import spatial_axes
from nnc.graph import TensorSpec, command, infer_specs
from nnc.lower.kernels.builder import Code, Slot, Value, has_code
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View, row_major

_VECTOR = 64  # bytes
_UNROLLED = 8  # places of a row of a window
_LEAST_LANES = 4


@dataclass(frozen=True)
class _WindowAxis:
    """An axis on which windows move: `n` elements, `count` windows; bytes between elements of the larger operand, and between
    windows in each of the smaller ones.
    """

    n: int
    count: int
    window: int
    stride: int
    low: int
    dilation: int
    step: int
    steps: tuple[int, ...]

    @property
    def is_inside(self) -> bool:
        """Whether all windows lie inside."""
        return self.low == 0 and (self.count - 1) * self.stride + self.dilation * (self.window - 1) < self.n

    def inner(self) -> tuple[int, int]:
        """Returns the windows that lie inside, from the first to behind the last."""
        first = -(-self.low // self.stride)
        reach = self.n - 1 + self.low - self.dilation * (self.window - 1)
        end = min(self.count, reach // self.stride + 1) if reach >= 0 else 0
        return (first, end) if first < end else (0, 0)

    def places(self, code: Code, o: Bound) -> tuple[Bound, Bound]:
        """Returns the places of window `o` that are no padding, from the first to behind the last."""
        if self.is_inside:
            return 0, self.window
        start = minus(code, self.low, times(code, o, self.stride))  # elements of padding before which the window begins
        if isinstance(start, int):
            known = max(0, -(-start // self.dilation))
            return known, max(known, min(self.window, (self.n - 1 + start) // self.dilation + 1))
        least, gap, reach = (code.integer(k) for k in (0, self.dilation, self.n - 1 + self.dilation))
        rounded = code.add(start, code.integer(self.dilation - 1))
        first = code.div(code.intrinsic("smax", rounded, least), gap)
        end = code.div(code.intrinsic("smax", code.add(start, reach), least), gap)
        return first, code.intrinsic("smin", end, code.integer(self.window))

    def start(self, code: Code, o: Bound) -> Bound:
        """Bytes from the first element to where window `o` begins, which may be before it."""
        return times(code, minus(code, times(code, o, self.stride), self.low), self.step)


class _Batch(NamedTuple):
    """A batch axis: its size, and bytes between its elements in the larger operand and in each of the smaller ones."""

    n: int
    step: int
    steps: tuple[int, ...]


class _PoolForm(NamedTuple):
    """A pooling with its views: the operand that windows move on, and the views with an element for each window."""

    batches: tuple[_Batch, ...]
    axes: tuple[_WindowAxis, ...]
    vector: _Batch | None  # neighbours in all operands

    @classmethod
    def of(cls, step: Step, large: View, small: Sequence[View]) -> _PoolForm:
        """The form of a step."""
        params = step.params
        rank = len(params["window"])
        where = spatial_axes(large.spec.ndim, rank, params.get("channels_last", False))
        axes = []
        for i, axis in enumerate(range(where.start, where.stop)):
            window, stride, (low, _), dilation = (
                params[name][i] for name in ("window", "stride", "padding", "dilation")
            )
            n, count = large.spec.shape[axis], small[0].spec.shape[axis]
            steps = tuple(view.strides[axis] for view in small)
            axes.append(_WindowAxis(n, count, window, stride, low, dilation, large.strides[axis], steps))
        others = [axis for axis in range(large.spec.ndim) if not where.start <= axis < where.stop]
        batches = [
            _Batch(large.spec.shape[axis], large.strides[axis], tuple(view.strides[axis] for view in small))
            for axis in others
            if large.spec.shape[axis] != 1
        ]
        sizes = tuple(view.spec.dtype.itemsize for view in small)
        dense = [b for b in batches if b.step == large.spec.dtype.itemsize and b.steps == sizes and b.n >= _LEAST_LANES]
        vector = dense[0] if dense else None
        return cls(tuple(b for b in batches if b is not vector), tuple(axes), vector)

    @contextmanager
    def over_batches(self, code: Code, pointers: Sequence[str], part: tuple[int, Bound, Bound]) -> Iterator[list[str]]:
        """Loops over the batch axes, of one only over a part; yields the pointers of the operands, the large one first."""
        with ExitStack() as stack:
            moved = list(pointers)
            for number, batch in enumerate(self.batches):
                begin, end = part[1:] if number == part[0] else (0, batch.n)
                i = stack.enter_context(code.loop(begin, end))
                moved = [
                    code.offset(p, times(code, i, s)) for p, s in zip(moved, (batch.step, *batch.steps), strict=True)
                ]
            yield moved

    def split(self) -> tuple[int, int]:
        """Returns the loop that threads share, counted through batches and axes, and its length."""
        axes = self.axes if self.vector is not None else self.axes[:-1]  # vectors run along the last one
        sizes = [batch.n for batch in self.batches] + [axis.count for axis in axes]
        return (sizes.index(max(sizes)), max(sizes)) if sizes else (-1, 1)


def _windows_at(code: Code, axes: Sequence[_WindowAxis], o: Sequence[Bound], pointers: Sequence[str]) -> list[str]:
    """The pointers where the windows `o` begin."""
    moved = list(pointers)
    for axis, i in zip(axes, o, strict=True):
        shifts = [axis.start(code, i), *(times(code, i, step) for step in axis.steps)]
        moved = [code.offset(pointer, shift) for pointer, shift in zip(moved, shifts, strict=True)]
    return moved


@contextmanager
def _over_places(
    code: Code, axes: Sequence[_WindowAxis], o: Sequence[Bound], pointer: str
) -> Iterator[tuple[str, Bound]]:
    """Loops over the places of a window that are no padding; yields the pointer there and the number of the place."""
    with ExitStack() as stack:
        number: Bound = 0
        for axis, i in zip(axes, o, strict=True):
            k = stack.enter_context(code.loop(*axis.places(code, i)))
            pointer = code.offset(pointer, times(code, k, axis.dilation * axis.step))
            number = _plus(code, times(code, number, axis.window), k)
        yield pointer, number


def _plus(code: Code, x: Bound, y: Bound) -> Bound:
    """x + y, folded where known."""
    return x + y if isinstance(x, int) and isinstance(y, int) else code.add(code.integer(x), code.integer(y))


def _first_place(code: Code, axes: Sequence[_WindowAxis], o: Sequence[Bound]) -> Bound:
    """The number of a window's first place that is no padding."""
    number: Bound = 0
    for axis, i in zip(axes, o, strict=True):
        number = _plus(code, times(code, number, axis.window), axis.places(code, i)[0])
    return number


# -- results of a window -----------------------------------------------------------------------------------------------


class _WindowSum:
    """The sum of a window's elements."""

    def __init__(self, code: Code, dtype: DType, lanes: int, first: Bound) -> None:
        wide = dtypes.accumulator(dtype)
        self.code, self.total = code, code.slot(code.constant(0, wide, lanes))

    def take(self, x: Value, place: Bound) -> None:
        """Looks at one element."""
        code = self.code
        code.write(self.total, code.add(code.read(self.total), code.convert(x, self.total.dtype)))

    def results(self, outs: Sequence[DType]) -> list[Value]:
        """Returns the sum."""
        return [self.code.convert(self.code.read(self.total), outs[0])]


class _Maximum:
    """The greatest element; NaN, which processors' own maximum drops, is noted apart."""

    def __init__(self, code: Code, dtype: DType, lanes: int, first: Bound) -> None:
        wide = dtypes.accumulator(dtype)
        self.code, self.best = code, code.slot(code.constant(_lowest(wide), wide, lanes))
        self.lost = code.slot(code.constant(False, dtypes.bool_, lanes))

    def take(self, x: Value, place: Bound) -> None:
        """Looks at one element."""
        code, best = self.code, self.code.read(self.best)
        x = code.convert(x, best.dtype)
        code.write(self.best, code.select(code.compare("gt", best, x), best, x))
        if dtypes.is_float(x.dtype):
            code.write(self.lost, code.or_(code.read(self.lost), code.compare("uno", x, x)))

    def results(self, outs: Sequence[DType]) -> list[Value]:
        """Returns the greatest element, or NaN if there was one."""
        code, best = self.code, self.code.read(self.best)
        if dtypes.is_float(best.dtype):
            best = code.select(code.read(self.lost), code.like(best, math.nan), best)
        return [code.convert(best, outs[0])]


class _Place:
    """The place of the greatest element, the first of equal ones and of NaN."""

    def __init__(self, code: Code, dtype: DType, lanes: int, first: Bound) -> None:
        wide = dtypes.accumulator(dtype)
        self.code, self.best = code, code.slot(code.constant(_lowest(wide), wide, lanes))
        place = code.convert(code.integer(first), dtypes.int32)
        self.place: Slot = code.slot(code.splat(place, lanes) if lanes else place)

    def take(self, x: Value, place: Bound) -> None:
        """Looks at one element."""
        code, best = self.code, self.code.read(self.best)
        x = code.convert(x, best.dtype)
        wins = code.compare("gt", x, best)
        if dtypes.is_float(x.dtype):
            wins = code.or_(wins, code.and_(code.compare("uno", x, x), code.compare("eq", best, best)))
        number = code.convert(code.integer(place), dtypes.int32)
        code.write(self.best, code.select(wins, x, best))
        code.write(self.place, code.select(wins, number, code.read(self.place)))

    def results(self, outs: Sequence[DType]) -> list[Value]:
        """Returns the place of the greatest element."""
        return [self.code.convert(self.code.read(self.place), outs[-1])]


def _lowest(dtype: DType) -> float | int:
    return int(np.iinfo(dtype).min) if dtypes.is_integer(dtype) else -math.inf


class _Both(_Place):
    """The greatest element and its place."""

    def results(self, outs: Sequence[DType]) -> list[Value]:
        """Returns all that was found."""
        return [self.code.convert(self.code.read(self.best), outs[0]), *super().results(outs)]


_Found = _WindowSum | _Maximum | _Place
_Finder = Callable[[Code, DType, int, Bound], _Found]


# -- forward -----------------------------------------------------------------------------------------------------------


def _forward(finder: _Finder) -> Callable[[Step, Target], Native | None]:
    """Returns the kernel that finds something of each window."""

    def native(step: Step, machine: Target) -> Native | None:
        (x,), outs = step.inputs, step.outputs
        form, printer = _PoolForm.of(step, x, outs), Printer(step, machine)
        if outs[0].spec.size:
            loop, count = form.split()
            grain = grain_of(count, x.spec.nbytes + sum(out.spec.nbytes for out in outs), machine)
            kernel = _Forward(form, finder, x.spec.dtype, tuple(out.spec.dtype for out in outs))
            printer.parts(count, grain, lambda code, begin, end: kernel.print(code, (loop, begin, end)))
        return printer.native()

    return native


class _Forward(NamedTuple):
    """Prints the loops over all windows."""

    form: _PoolForm
    finder: _Finder
    dtype: DType
    outs: tuple[DType, ...]

    def print(self, code: Code, part: tuple[int, Bound, Bound]) -> None:
        """The loops, of one only over a part."""
        form = self.form
        *outer, last = form.axes
        names = ["%in0", *(f"%out{i}" for i in range(len(self.outs)))]
        with ExitStack() as stack:
            pointers = stack.enter_context(form.over_batches(code, names, part))
            o: list[Bound] = []
            for number, axis in enumerate(outer, len(form.batches)):
                o.append(stack.enter_context(code.loop(*_part_of(part, number, axis.count))))
            pointers = _windows_at(code, outer, o, pointers)
            if form.vector is not None:
                begin, end = _part_of(part, len(form.batches) + len(outer), last.count)
                i = stack.enter_context(code.loop(begin, end))
                moved = _windows_at(code, [last], [i], pointers)

                def neighbours(at: Bound, lanes: int) -> None:
                    """One window of neighbouring batches."""
                    pairs = zip(moved, (self.dtype, *self.outs), strict=True)
                    places = [code.offset(pointer, times(code, at, dtype.itemsize)) for pointer, dtype in pairs]
                    self._window(code, [*o, i], places, lanes)

                _in_vectors(code, form.vector.n, self._most_lanes(), neighbours)
            else:
                self._row(code, o, pointers)

    def _most_lanes(self) -> int:
        return _VECTOR // dtypes.accumulator(self.dtype).itemsize

    def _window(self, code: Code, o: list[Bound], pointers: Sequence[str], lanes: int) -> None:
        axes = self.form.axes
        found = self.finder(code, self.dtype, lanes, _first_place(code, axes, o))
        x, *outs = pointers
        with _over_places(code, axes, o, x) as (pointer, place):
            found.take(code.load(pointer, self.dtype, lanes), place)
        self._store(code, outs, found)

    def _store(self, code: Code, pointers: Sequence[str], found: _Found) -> None:
        for pointer, result in zip(pointers, found.results(self.outs), strict=True):
            code.store(pointer, result)

    def _row(self, code: Code, o: list[Bound], pointers: Sequence[str]) -> None:
        """A row of windows: those at the borders one by one, those inside in vectors."""
        last = self.form.axes[-1]
        first, stop = last.inner()
        lanes = min(self._most_lanes(), 1 << max(stop - first, 1).bit_length() - 1)
        dense = (
            last.step == self.dtype.itemsize and last.steps == tuple(d.itemsize for d in self.outs) and last.stride <= 2
        )
        if not dense or lanes < _LEAST_LANES:
            self._one_by_one(code, o, pointers, 0, last.count)
            return
        self._one_by_one(code, o, pointers, 0, first)
        middle = first + (stop - first) // lanes * lanes
        with code.loop(first, middle, lanes) as i:
            self._neighbours(code, o, pointers, i, lanes)
        if middle < stop:  # some windows once more
            self._neighbours(code, o, pointers, stop - lanes, lanes)
        self._one_by_one(code, o, pointers, stop, last.count)

    def _one_by_one(self, code: Code, o: list[Bound], pointers: Sequence[str], begin: int, end: int) -> None:
        if begin == end:
            return
        with code.loop(begin, end) as i:
            self._window(code, [*o, i], _windows_at(code, self.form.axes[-1:], [i], pointers), 0)

    def _neighbours(self, code: Code, o: list[Bound], pointers: Sequence[str], i: Bound, lanes: int) -> None:
        """Neighbouring windows that all lie inside on the last axis."""
        *outer, last = self.form.axes
        x, *outs = _windows_at(code, [last], [i], pointers)
        first = times(code, _first_place(code, outer, o), last.window)
        found = self.finder(code, self.dtype, lanes, first)
        with _over_places(code, outer, o, x) as (row, number):
            base = times(code, number, last.window)
            if last.window <= _UNROLLED:
                for place in range(last.window):
                    found.take(self._load(code, row, place, lanes), _plus(code, base, place))
            else:
                with code.loop(0, last.window) as k:
                    found.take(self._load(code, row, k, lanes), _plus(code, base, k))
        self._store(code, outs, found)

    def _load(self, code: Code, row: str, k: Bound, lanes: int) -> Value:
        """Returns the elements that neighbouring windows have at a place."""
        last = self.form.axes[-1]
        pointer = code.offset(row, times(code, k, last.dilation * last.step))
        if last.stride == 1:
            return code.load(pointer, self.dtype, lanes)
        low = code.load(pointer, self.dtype, lanes)
        high = code.load(code.offset(pointer, (lanes - 1) * self.dtype.itemsize), self.dtype, lanes)
        chosen = [2 * j if 2 * j < lanes else 2 * j + 1 for j in range(lanes)]  # the second vector begins one earlier
        return code.shuffle(low, chosen, high)


def _part_of(part: tuple[int, Bound, Bound], number: int, count: int) -> tuple[Bound, Bound]:
    return part[1:] if part[0] == number else (0, count)


def _in_vectors(code: Code, n: int, most: int, body: Callable[[Bound, int], None]) -> None:
    """Runs `body(at, lanes)` for vectors that cover 0..n, of fewer lanes at the end."""
    lanes, at = most, 0
    while at < n:
        if lanes == 1:
            with code.loop(at, n) as i:
                body(i, 0)
            return
        end = at + (n - at) // lanes * lanes
        if end - at > lanes:
            with code.loop(at, end, lanes) as i:
                body(i, lanes)
        elif end > at:
            body(at, lanes)
        at, lanes = end, lanes // 2


# -- gradients ---------------------------------------------------------------------------------------------------------


def _backward(step: Step, machine: Target) -> Native | None:
    """Returns the kernel that adds to each element its share of the windows' values: `sum_pool_input_grad`,
    `pick_pool_input_grad`. Sums of 16-bit floats are formed in a workspace.
    """
    out = target = step.outputs[0]
    name, wide = "%out0", out.spec.update(dtype=dtypes.accumulator(out.spec.dtype))
    rounded = wide != out.spec and out.spec.size > 0
    if rounded:
        target, name = View(0, wide, 0, row_major(wide)), "%workspace"
    form, printer = _PoolForm.of(step, target, step.inputs), Printer(step, machine, workspace=rounded)
    if out.spec.size:
        sizes = [batch.n for batch in form.batches]
        loop, count = (sizes.index(max(sizes)), max(sizes)) if sizes else (-1, 1)
        kernel = _Backward(form, name, wide.dtype, [view.spec.dtype for view in step.inputs])
        grain = grain_of(count, wide.nbytes + sum(view.spec.nbytes for view in step.inputs), machine)
        printer.parts(count, grain, lambda code, begin, end: kernel.print(code, (loop, begin, end)))
    if rounded:
        convert_whole(printer, target, name, out, "%out0")
    return printer.native()


def _workspace(name: str, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target) -> int:
    (out,) = infer_specs(command(name), specs, params)
    wide = out.update(dtype=dtypes.accumulator(out.dtype))
    return wide.nbytes if wide != out else 0


class _Backward(NamedTuple):
    """Prints the loops over all windows, which add to elements that were set to 0."""

    form: _PoolForm
    target: str  # the pointer to the sums
    dtype: DType
    given: list[DType]  # of the cotangent, and of the places

    def print(self, code: Code, part: tuple[int, Bound, Bound]) -> None:
        """The loops, of one only over a part."""
        form = self.form
        names = [self.target, *(f"%in{i}" for i in range(len(self.given)))]
        with form.over_batches(code, names, part) as pointers:
            self._clear(code, pointers[0])
            with ExitStack() as stack:
                o = [stack.enter_context(code.loop(0, axis.count)) for axis in form.axes]
                moved = _windows_at(code, form.axes, o, pointers)
                if form.vector is None:
                    self._one(code, o, moved)
                else:
                    lanes = _VECTOR // self.dtype.itemsize
                    _in_vectors(code, form.vector.n, lanes, lambda at, lanes: self._many(code, o, moved, at, lanes))

    def _clear(self, code: Code, pointer: str) -> None:
        form = self.form
        sizes = [(axis.n, axis.step) for axis in form.axes]
        if form.vector is not None:
            sizes.append((form.vector.n, form.vector.step))
        order = sorted(sizes, key=lambda pair: -abs(pair[1]))
        with ExitStack() as stack:
            for n, step in order[:-1]:
                pointer = code.offset(pointer, times(code, stack.enter_context(code.loop(0, n)), step))
            n, step = order[-1]
            lanes = _VECTOR // self.dtype.itemsize if step == self.dtype.itemsize else 1

            def zero(at: Bound, lanes: int) -> None:
                code.store(code.offset(pointer, times(code, at, step)), code.constant(0, self.dtype, lanes))

            _in_vectors(code, n, lanes, zero)

    def _many(self, code: Code, o: Sequence[Bound], pointers: Sequence[str], at: Bound, lanes: int) -> None:
        """Adds one window's share for neighbouring batches."""
        sizes = (self.dtype.itemsize, *(dtype.itemsize for dtype in self.given))
        x, *given = (code.offset(p, times(code, at, size)) for p, size in zip(pointers, sizes, strict=True))
        share, *places = (code.load(p, dtype, lanes) for p, dtype in zip(given, self.given, strict=True))
        share = code.convert(share, self.dtype)
        wanted = code.convert(places[0], dtypes.int32) if places else None
        with _over_places(code, self.form.axes, o, x) as (pointer, number):
            part = share
            if wanted is not None:
                here = code.compare("eq", wanted, code.convert(code.integer(number), dtypes.int32))
                part = code.select(here, share, code.like(share, 0))
            code.store(pointer, code.add(code.load(pointer, self.dtype, lanes), part))

    def _one(self, code: Code, o: Sequence[Bound], pointers: Sequence[str]) -> None:
        """Adds one window's share: to all its elements, or to the one at the place."""
        x, *given = pointers
        share, *places = (code.load(p, dtype) for p, dtype in zip(given, self.given, strict=True))
        share = code.convert(share, self.dtype)
        if not places:
            with _over_places(code, self.form.axes, o, x) as (pointer, _):
                code.store(pointer, code.add(code.load(pointer, self.dtype), share))
            return
        rest = code.convert(places[0], dtypes.int64)
        inside = code.constant(True, dtypes.bool_)
        for number in reversed(range(len(self.form.axes))):
            axis, i = self.form.axes[number], o[number]
            window = code.integer(axis.window)
            k, rest = (code.rem(rest, window), code.div(rest, window)) if number else (rest, rest)
            low, high = map(code.integer, axis.places(code, i))
            ok = code.and_(code.compare("ge", k, low), code.compare("lt", k, high))
            inside = code.and_(inside, ok)
            x = code.offset(x, times(code, k, axis.dilation * axis.step))
        with code.when(inside):
            code.store(x, code.add(code.load(x, self.dtype), share))


def _computes(specs: tuple[TensorSpec, ...], params: object) -> bool:
    return has_code(specs[0].dtype)


add_native("max_pool", _forward(_Maximum), _computes)
add_native("max_pool_places", _forward(_Place), _computes)
add_native("max_pool_both", _forward(_Both), _computes)
add_native("sum_pool", _forward(_WindowSum), _computes)
add_native("sum_pool_input_grad", _backward, _computes, partial(_workspace, "sum_pool_input_grad"))
add_native("pick_pool_input_grad", _backward, _computes, partial(_workspace, "pick_pool_input_grad"))
