"""argmax and argmin for CUDA: the first of the greatest or smallest elements, or the first NaN.

The threads of a row each take every so many vectors of it and keep the best element with its position; they then exchange these
in pairs. Neighbouring threads take neighbouring vectors of a row, or neighbouring rows, where neighbours in memory belong to
different rows. If neither of two elements beats the other, the first one wins, so that the grouping does not matter.

Cost: each element is read once. A row is never cut into parts for several blocks, so one row alone is read by 1,024 threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.layout import choose_row_threads
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.base import dtypes
from nnc.base.target import GpuTarget
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Carried, Value
from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.kernels.records import Record, record_of
from nnc.lower.plan.stages import Step, View

_SHORT = 1 << 31  # positions that 32 bits count


def _arg_reduce(predicate: str, step: Step, machine: GpuTarget) -> DeviceKernel:
    """Returns the kernel for a step, where one element beats another by this predicate."""
    (x,), (out,) = step.inputs, step.outputs
    axis = step.params["axis"] % x.spec.ndim
    kept = [k for k in range(x.spec.ndim) if k != axis]
    shape, strides = tuple(x.spec.shape[k] for k in kept), tuple(x.strides[k] for k in kept)
    axes = Axes(shape, (strides, out.strides)).ordered(0)
    if not axes.size:
        return DeviceKernel("", ())
    printer = _ArgReduce(record_of(x.spec.dtype, predicate), x, axis, axes, machine)
    layout = printer.layout
    launch = Launch("@KERNEL_arg", (-(-axes.size // layout.rows), 1, 1), (layout.threads, 1, 1), (0, 1))
    return DeviceKernel(printer.text(), (launch,))


class _ArgReduce:
    """Prints the kernel of one step.

    Args:
        record: the rule that chooses an element.
        axis: the axis along which rows lie.
        axes: the other axes, of the operand and of the result.
    """

    def __init__(self, record: Record, x: View, axis: int, axes: Axes, machine: GpuTarget) -> None:
        self.record, self.axes = record, axes
        self.layout = layout = choose_row_threads([x], axis, axes, machine)
        self.count, self.step = x.spec.shape[axis] // layout.lanes, x.strides[axis]
        self.index = dtypes.int32 if x.spec.shape[axis] < _SHORT else dtypes.int64
        self.code = GpuCode("KERNEL_arg", ["noalias readonly", "noalias"], layout.threads)

    def text(self) -> str:
        """Returns the function with its declarations."""
        code, layout = self.code, self.layout
        thread = code.special("tid.x")
        row, member = layout.split(code, thread)
        number = code.add(code.mul(code.special("ctaid.x"), code.integer(layout.rows)), row)
        last = code.integer(self.axes.size - 1)
        source, target = self.axes.at(code, ["%p0", "%p1"], code.intrinsic("smin", number, last))
        _, place = self._exchange(thread, self._best_of_thread(source, member))
        is_row, is_first = code.compare("le", number, last), code.compare("eq", member, code.integer(0))
        with code.when(code.and_(is_row, is_first)):
            code.store(target, code.convert(place, dtypes.int64))
        code.ret()
        return code.module()

    # -- the elements of a thread --------------------------------------------------------------------------------------

    def _best_of_thread(self, source: str, member: Value) -> tuple[Value, Value]:
        """Returns the best of a thread's elements and its position; threads without elements take the last vector of the row."""
        code, members = self.code, self.layout.members
        first = code.intrinsic("smin", member, code.integer(self.count - 1))
        best, *others = self._load(source, first)
        positions = self._positions(first)
        found = Carried([best, positions[0]])
        self._improve(found, others, positions[1:])
        together = self.layout.grids.vectors_at_once
        place = Carried([code.add(member, code.integer(members))])
        if self.count >= 2 * together * members:
            until = code.integer(self.count - (together - 1) * members)
            with code.loop(place.values[0], until, together * members, [found, place]) as i:
                at = [code.add(i, code.integer(k * members)) for k in range(together)]
                vectors = [self._load(source, each) for each in at]  # all are read before the first is compared
                for each, vector in zip(at, vectors, strict=True):
                    self._improve(found, vector, self._positions(each))
                place.values = [code.add(i, code.integer(together * members))]
        if self.count > members:
            with code.loop(place.values[0], code.integer(self.count), members, [found]) as i:
                self._improve(found, self._load(source, i), self._positions(i))
        best, position = found.values
        return best, position

    def _load(self, source: str, i: Value) -> list[Value]:
        """Returns the elements of a vector; float32 stands for the shorter floats."""
        code, kind, lanes = self.code, self.record.kind, self.layout.lanes
        pointer = code.offset(source, code.mul(i, code.integer(self.step * lanes)))
        x = code.load(pointer, kind, lanes if lanes > 1 else 0, align=lanes * kind.itemsize)
        x = code.convert(x, dtypes.accumulator(kind))
        return [code.lane(x, lane) for lane in range(lanes)]

    def _positions(self, i: Value) -> list[Value]:
        """Returns the positions of the elements of a vector within the row."""
        code, lanes = self.code, self.layout.lanes
        first = code.convert(code.mul(i, code.integer(lanes)), self.index)
        return [code.add(first, code.like(first, lane)) for lane in range(lanes)]

    def _improve(self, found: Carried, elements: Sequence[Value], positions: Sequence[Value]) -> None:
        """Holds later elements against the best so far."""
        for x, position in zip(elements, positions, strict=True):
            best, place = found.values
            better = self.record.better(self.code, x, best)
            found.values = [self.code.select(better, x, best), self.code.select(better, position, place)]

    # -- exchange ------------------------------------------------------------------------------------------------------

    def _exchange(self, thread: Value, mine: tuple[Value, Value]) -> tuple[Value, Value]:
        """Returns the best element of a row and its position, in each of its threads."""
        layout, by = self.layout, self.layout.members // 2
        apart = layout.rows if layout.across else 1  # threads of neighbouring members
        rooms = [self.code.shared(layout.threads * x.dtype.itemsize) for x in mine if by * apart >= layout.grids.lanes]
        while by:
            if by * apart >= layout.grids.lanes:
                mine = self._better_of(mine, self._through_memory(rooms, thread, by * apart, mine))
            else:
                other = [self.code.exchange("bfly", x, by * apart) for x in mine]
                mine = self._better_of(mine, (other[0], other[1]))
            by //= 2
        return mine

    def _through_memory(
        self, rooms: Sequence[str], thread: Value, distance: int, mine: tuple[Value, Value]
    ) -> tuple[Value, Value]:
        """Returns the record of the thread whose number differs in one bit, by shared memory."""
        code = self.code
        partner = code.xor(thread, code.integer(distance))
        for room, x in zip(rooms, mine, strict=True):
            code.store(code.offset(room, code.mul(thread, code.integer(x.dtype.itemsize))), x)
        code.barrier()
        value, place = (
            code.load(code.offset(room, code.mul(partner, code.integer(x.dtype.itemsize))), x.dtype)
            for room, x in zip(rooms, mine, strict=True)
        )
        code.barrier()
        return value, place

    def _better_of(self, mine: tuple[Value, Value], other: tuple[Value, Value]) -> tuple[Value, Value]:
        """Chooses between two records; neither need stand in front."""
        code, better = self.code, self.record.better
        (x, at), (y, place) = mine, other
        loses, wins = better(code, x, y), better(code, y, x)
        wins = code.or_(wins, code.and_(code.not_(loses), code.compare("lt", place, at)))
        return code.select(wins, y, x), code.select(wins, place, at)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return not dtypes.is_complex(specs[0].dtype)


add_printed("argmax", partial(_arg_reduce, "gt"), _supports)
add_printed("argmin", partial(_arg_reduce, "lt"), _supports)
