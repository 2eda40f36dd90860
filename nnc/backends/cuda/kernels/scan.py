"""Cumulative commands for CUDA, by `Prefixes`.

Few long rows are cut into a fixed number of parts, for blocks of their own: one launch leaves the total of each part in the
workspace, the next one begins with the totals of all parts in front.

Sums and products of floats in a tree may overflow, and products may lose all digits, where the ones in their order do not. The
kernels notice this; one thread then makes such a row again in its order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.layout import choose_row_threads
from nnc.backends.cuda.kernels.prefixes import Prefixes, memory_dtype
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.base import dtypes
from nnc.base.target import GpuTarget
from nnc.commands.rules import cumulative
from nnc.graph import Command, TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Carried, Value
from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.kernels.reductions import combined, has_reduction
from nnc.lower.plan.stages import Step, View

_FLAG = dtypes.uint32  # of a row that must be made again
_TOTALS, _RESULTS, _AGAIN, _WHOLE = "totals", "results", "again", "whole"


def _scan(step: Step, machine: GpuTarget) -> DeviceKernel:
    (x,), out = step.inputs, step.outputs[0]
    axis = step.params["axis"] % x.spec.ndim
    if not x.spec.size:
        return DeviceKernel("", ())
    parts = _parts(x.spec, axis, machine) if len(step.outputs) > 1 else 1
    printers = [
        _Scan(step.command, x, out, axis, machine, parts, phase)
        for phase in ((_TOTALS, _RESULTS) if parts > 1 else (_WHOLE,))
    ]
    texts, launches = [each.text() for each in printers], [each.launch() for each in printers]
    if parts > 1 and printers[0].may_overflow:
        last = _Scan(step.command, x, out, axis, machine, parts, _AGAIN)
        texts.append(last.again())
        blocks = -(-last.axes.size // last.warp)
        launches.append(Launch(f"@{last.code.name}", (blocks, 1, 1), (last.warp, 1, 1), (0, 1, 2)))
    return DeviceKernel("\n".join(texts), tuple(launches))


def _rows_of(x: View, out: View, axis: int) -> Axes:
    return Axes(x.spec.shape, (x.strides, out.strides)).without(axis).ordered(0)


def _parts(spec: TensorSpec, axis: int, machine: GpuTarget) -> int:
    """Into how many parts rows are cut; only sizes count, since the workspace is planned before operands have places."""
    x = View.whole(0, spec)
    axes = _rows_of(x, x, axis)
    layout, grids = choose_row_threads([x, x], axis, axes, machine), machine.grids
    wanted = grids.busy_threads // (-(-axes.size // layout.rows) * layout.threads)
    least = grids.part_rows * layout.members if layout.across else grids.part_elements
    parts = min(wanted, spec.shape[axis] // least, grids.parts)
    return parts if parts >= grids.least_parts else 1


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: GpuTarget) -> int:
    """Returns the bytes of the totals of all parts, and of a flag for each row."""
    (x,), axis = specs, params["axis"] % specs[0].ndim
    parts = _parts(x, axis, machine) if x.size else 1
    rows = x.size // max(x.shape[axis], 1)
    return rows * (parts * dtypes.accumulator(x.dtype).itemsize + _FLAG.itemsize) if parts > 1 else 0


class _Scan(Prefixes):
    """Prints one launch of a cumulative command.

    Args:
        axis: the axis along which rows lie.
        parts: the number of parts into which each row is cut.
        phase: the launch: the totals of parts, the results that begin with these totals, the rows that are computed again, or
            all in one.
    """

    def __init__(
        self, command: Command, x: View, out: View, axis: int, machine: GpuTarget, parts: int, phase: str
    ) -> None:
        self.phase, self.parts, self.axes = phase, parts, _rows_of(x, out, axis)
        layout = choose_row_threads([x, out], axis, self.axes, machine, parts)
        pointers = ["noalias readonly", "noalias"] + ["noalias"] * (parts > 1)
        code = GpuCode(f"KERNEL_{phase}", pointers, machine.grids.lanes if phase == _AGAIN else layout.threads)
        count = x.spec.shape[axis] // layout.lanes  # vectors of a row
        super().__init__(
            code, cumulative[command], x.spec.dtype, layout, -(-count // parts), (x.strides[axis], out.strides[axis])
        )
        self.n, self.count = x.spec.shape[axis], count

    def launch(self) -> Launch:
        """Describes the launch of this function."""
        blocks, operands = -(-self.axes.size // self.layout.rows), tuple(range(2 + (self.parts > 1)))
        return Launch(f"@{self.code.name}", (blocks, self.parts, 1), (self.layout.threads, 1, 1), operands)

    # -- functions -----------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Returns the function of threads that share rows."""
        code, layout = self.code, self.layout
        given = code.add(code.mul(code.special("ctaid.x"), code.integer(layout.rows)), self.row)
        last = code.integer(self.axes.size - 1)
        number, is_row = code.intrinsic("smin", given, last), code.compare("le", given, last)
        source, target = self.axes.at(code, ["%p0", "%p1"], number)
        part = code.special("ctaid.y") if self.parts > 1 else code.integer(0)
        first = code.mul(part, code.integer(self.length))
        end = code.intrinsic("smin", code.add(first, code.integer(self.length)), code.integer(self.count))
        is_first = code.and_(is_row, code.compare("eq", self.member, code.integer(0)))
        flag = self._new_flag(is_first, number)
        carry = self._totals_before(number, part) if self.phase == _RESULTS else self.neutral()
        scan = self.runs if layout.across else self.tiles
        stored = None if self.phase == _TOTALS else is_row
        total, lost = scan(source, target, first, end, carry, stored)
        if self.phase == _TOTALS:
            with code.when(is_first):
                code.store(self._total_at(number, part), total)
        elif flag:
            self._make_again(flag, lost, is_first, source, target)
        code.ret()
        return code.module()

    def _make_again(self, flag: str, lost: Value, is_first: Value, source: str, target: str) -> None:
        """Notes that values of a row are lost; where no other block has a part of it, its first thread makes it again."""
        code = self.code
        code.refuse(flag, lost)
        if self.phase == _WHOLE:
            code.barrier()
            is_lost = code.compare("ne", code.load(flag, _FLAG), code.constant(0, _FLAG))
            with code.when(code.and_(is_first, is_lost)):
                self._in_order(source, target)

    def again(self) -> str:
        """Returns the function in which a thread makes a row again whose flag is set."""
        code = self.code
        number = code.add(code.mul(code.special("ctaid.x"), code.integer(self.warp)), code.special("tid.x"))
        with code.when(code.compare("lt", number, code.integer(self.axes.size))):
            flag = code.load(self._flag_at(number), _FLAG)
            with code.when(code.compare("ne", flag, code.constant(0, _FLAG))):
                source, target = self.axes.at(code, ["%p0", "%p1"], number)
                self._in_order(source, target)
        code.ret()
        return code.module()

    def _in_order(self, source: str, target: str) -> None:
        """A whole row, element by element."""
        code, total = self.code, Carried([self.neutral()])
        with code.loop(0, self.n, carried=[total]) as i:
            total.values = [combined(code, self.by.combine, total.values[0], self.load(source, i))]
            self.store(target, i, total.values[0])

    # -- flags and totals ----------------------------------------------------------------------------------------------

    def _new_flag(self, is_first: Value, number: Value) -> str:
        """Returns the address of a row's flag, which is cleared in the first launch; "" where nothing is lost."""
        code = self.code
        if not self.may_overflow or (self.phase == _WHOLE and self.layout.across and self.layout.members == 1):
            return ""
        if self.phase == _WHOLE:
            flags = code.shared(self.layout.rows * _FLAG.itemsize)
            flag = code.offset(flags, code.mul(self.row, code.integer(_FLAG.itemsize)))
            with code.when(code.compare("eq", self.member, code.integer(0))):
                code.store(flag, code.constant(0, _FLAG))
            code.barrier()
            return flag
        flag = self._flag_at(number)
        if self.phase == _TOTALS:
            is_part = code.compare("eq", code.special("ctaid.y"), code.integer(0))
            with code.when(code.and_(is_first, is_part)):
                code.store(flag, code.constant(0, _FLAG))
        return flag

    def _flag_at(self, number: Value) -> str:
        """Returns the address of a row's flag, behind the totals of all rows."""
        begin = self.axes.size * self.parts * self.wide.itemsize
        code = self.code
        return code.offset("%p2", code.add(code.mul(number, code.integer(_FLAG.itemsize)), code.integer(begin)))

    def _total_at(self, number: Value, part: Value) -> str:
        code = self.code
        place = code.add(code.mul(number, code.integer(self.parts)), part)
        return code.offset("%p2", code.mul(place, code.integer(self.wide.itemsize)))

    def _totals_before(self, number: Value, part: Value) -> Value:
        """Returns the totals of all parts in front, added up in their order."""
        code, together = self.code, 2 * self.layout.grids.vectors_at_once
        total = Carried([self.neutral(), code.constant(False, dtypes.bool_)])
        with code.loop(0, part, together, [total]) as i:
            places = [code.add(i, code.integer(k)) for k in range(together)]
            last = code.sub(part, code.integer(1))
            read = [code.load(self._total_at(number, code.intrinsic("smin", at, last)), self.wide) for at in places]
            found, lost = total.values
            for at, x in zip(places, read, strict=True):
                there = code.select(code.compare("le", at, last), x, self.neutral())
                found, lost_here = self.both(found, there)
                lost = code.or_(lost, lost_here)
            total.values = [found, lost]
        self.lost.append(total.values[1])
        return total.values[0]


def _add(target: Command) -> None:
    def supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
        return has_reduction(cumulative[target], memory_dtype(specs[0].dtype))

    add_printed(target, _scan, supports, _workspace)


cumulative.follow(_add)
