"""Prefixes of a range of each row, made by the threads of the row: each element combined with all in front of it.

Where rows lie along memory, the threads of a row take a tile of neighbouring vectors, form prefixes in fixed trees (lanes, warps by
shuffles, then the warps of a row by shared memory; Hillis and Steele, 1986), and go on to the next tile. Where rows lie across
memory, each thread of a row takes a run of it, whose total it forms first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.layout import RowThreads
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.commands.rules import Reduction
from nnc.lower.kernels.builder import Carried, Value
from nnc.lower.kernels.reductions import combined


class Prefixes:
    """Prints the work of threads that compute prefixes (a scan).

    Args:
        by: the rule that combines elements.
        dtype: the dtype of the elements.
        length: the greatest number of vectors of a range.
        steps: bytes from one element of a row to the next, in the operand and in the result.

    Attributes:
        may_overflow: whether values may be lost that are not lost when elements are combined one by one.
        lost: the conditions under which a value was lost.
        thread: the number of the thread in its block.
        row: the number of its row in the block.
        member: the number of the thread in its row.
        warp: threads of a warp.
    """

    def __init__(
        self, code: GpuCode, by: Reduction, dtype: DType, layout: RowThreads, length: int, steps: tuple[int, int]
    ) -> None:
        self.code, self.by, self.layout, self.length, self.steps = code, by, layout, length, steps
        self.kind = memory_dtype(dtype)
        self.wide = dtypes.accumulator(self.kind)
        self.may_overflow = dtypes.is_float(self.wide) and not by.idempotent
        self.lost: list[Value] = []
        self.thread = code.special("tid.x")
        self.row, self.member = layout.split(code, self.thread)
        self.warp = layout.grids.lanes

    # -- values --------------------------------------------------------------------------------------------------------

    def neutral(self) -> Value:
        """Returns the value that changes no other."""
        return self.code.constant(self.by.identity(self.wide), self.wide)

    def load(self, source: str, i: Value) -> Value:
        """Returns the element at a position of a row."""
        place = self.code.offset(source, self.code.mul(i, self.code.integer(self.steps[0])))
        return self.code.convert(self.code.load(place, self.kind), self.wide)

    def store(self, target: str, i: Value, x: Value) -> None:
        """Writes an element at a position of a row."""
        place = self.code.offset(target, self.code.mul(i, self.code.integer(self.steps[1])))
        self.code.store(place, self.code.convert(x, self.kind))

    def both(self, x: Value, y: Value) -> tuple[Value, Value]:
        """Two values as one, and whether this loses digits that the order would not: a sum becomes infinite, or a product 0."""
        code = self.code
        found = combined(code, self.by.combine, x, y)
        if not self.may_overflow:
            return found, code.constant(False, dtypes.bool_)
        infinite = code.like(x, np.inf)
        near = [code.compare("lt", code.intrinsic("fabs", each), infinite) for each in (x, y, found)]
        lost = code.and_(code.and_(near[0], near[1]), code.not_(near[2]))
        if self.by.ordered:
            small = code.compare("lt", code.intrinsic("fabs", found), code.like(x, np.finfo(self.wide).smallest_normal))
            nonzero = [code.compare("ne", each, code.like(x, 0)) for each in (x, y)]
            lost = code.or_(lost, code.and_(small, code.and_(*nonzero)))
        return found, lost

    def _take(self, condition: Value, before: Value, x: Value) -> Value:
        """`x` behind a value that counts only under a condition."""
        code = self.code
        found, lost = self.both(before, x)
        self.lost.append(code.and_(condition, lost))
        return code.select(condition, found, x)

    def _any_lost(self) -> Value:
        """Whether a value was lost since this was asked."""
        found, self.lost = reduce(self.code.or_, self.lost, self.code.constant(False, dtypes.bool_)), []
        return found

    # -- rows along memory ---------------------------------------------------------------------------------------------

    def tiles(
        self, source: str, target: str, first: Value, end: Value, carry: Value, stored: Value | None
    ) -> tuple[Value, Value]:
        """Scans vectors of a row, tile by tile. Returns the total, and whether a value was lost.

        Args:
            source: the address of the operand's row.
            target: the address of the result's row.
            first: the number of the first vector.
            end: the number behind the last one.
            carry: the combined value of all elements in front.
            stored: the condition under which results are written; None: only the total is wanted.
        """
        code, members = self.code, self.layout.members
        state = Carried([carry, self._any_lost()])
        room = code.shared(2 * self.layout.threads // self.warp * self.wide.itemsize) if members > self.warp else ""
        with code.loop(first, end, members, [state]) as base:
            total, lost = state.values
            i = code.add(base, self.member)
            inside = code.compare("lt", i, end)
            at = code.intrinsic("smin", i, code.sub(end, code.integer(1)))
            prefixes = self._prefixes([code.select(inside, x, self.neutral()) for x in self._vector(source, at)])
            before, whole = self._exchange(prefixes[-1], base, first, room)
            start, lost_here = self.both(total, before)
            self.lost.append(lost_here)
            results = []
            for x in prefixes:
                found, lost_here = self.both(start, x)
                self.lost.append(lost_here)
                results.append(found)
            if stored is not None:
                with code.when(code.and_(stored, inside)):
                    self._write_vector(target, i, results)
            following, lost_here = self.both(total, whole)
            self.lost.append(lost_here)
            state.values = [following, code.or_(lost, self._any_lost())]
        return state.values[0], state.values[1]

    def _vector(self, source: str, i: Value) -> list[Value]:
        """Returns the elements of a vector."""
        code, lanes, size = self.code, self.layout.lanes, self.kind.itemsize
        place = code.offset(source, code.mul(i, code.integer(self.steps[0] * lanes)))
        x = code.convert(code.load(place, self.kind, lanes if lanes > 1 else 0, align=lanes * size), self.wide)
        return [code.lane(x, lane) for lane in range(lanes)]

    def _write_vector(self, target: str, i: Value, results: Sequence[Value]) -> None:
        code, lanes = self.code, self.layout.lanes
        place = code.offset(target, code.mul(i, code.integer(self.steps[1] * lanes)))
        joined = code.join(results) if lanes > 1 else results[0]
        code.store(place, code.convert(joined, self.kind), align=lanes * self.kind.itemsize)

    def _prefixes(self, elements: Sequence[Value]) -> list[Value]:
        """Each element of a thread with those in front of it."""
        found = [elements[0]]
        for x in elements[1:]:
            both, lost = self.both(found[-1], x)
            self.lost.append(lost)
            found.append(both)
        return found

    def _exchange(self, x: Value, base: Value, first: Value, room: str) -> tuple[Value, Value]:
        """Returns the values of all threads of the row in front of this one, and those of all its threads, as one each."""
        code, members = self.code, self.layout.members
        lane = code.and_(self.member, code.integer(self.warp - 1))
        width = min(members, self.warp)
        x = self._along_warp(x, lane, width)
        is_behind = code.compare("gt", lane, code.integer(0))
        before = code.select(is_behind, code.exchange("up", x, 1), self.neutral()) if width > 1 else self.neutral()
        if members <= self.warp:
            in_warp = code.and_(self.thread, code.integer(self.warp - 1))
            return before, code.exchange("idx", x, code.or_(in_warp, code.integer(width - 1))) if width > 1 else x
        warps = members // self.warp
        size, own = self.wide.itemsize, code.shr(self.member, code.integer(5))
        turn = code.and_(code.div(code.sub(base, first), code.integer(members)), code.integer(1))
        half = code.add(code.mul(turn, code.integer(self.layout.rows)), self.row)
        totals = code.offset(room, code.mul(half, code.integer(warps * size)))
        with code.when(code.compare("eq", lane, code.integer(self.warp - 1))):
            code.store(code.offset(totals, code.mul(own, code.integer(size))), x)
        code.barrier()
        number = code.intrinsic("smin", lane, code.integer(warps - 1))
        warp = self._along_warp(
            code.load(code.offset(totals, code.mul(number, code.integer(size))), self.wide), lane, warps
        )
        in_front = code.exchange("idx", warp, code.intrinsic("smax", code.sub(own, code.integer(1)), code.integer(0)))
        whole = code.exchange("idx", warp, warps - 1)
        return self._take(code.compare("gt", own, code.integer(0)), in_front, before), whole

    def _along_warp(self, x: Value, lane: Value, width: int) -> Value:
        """Each thread's value with those in front of it, of so many threads of a warp."""
        code, distance = self.code, 1
        is_one = code.compare("lt", lane, code.integer(width))
        while distance < width:
            other = code.exchange("up", x, distance)
            x = self._take(code.and_(is_one, code.compare("ge", lane, code.integer(distance))), other, x)
            distance *= 2
        return x

    # -- rows across memory --------------------------------------------------------------------------------------------

    def runs(
        self, source: str, target: str, first: Value, end: Value, carry: Value, stored: Value | None
    ) -> tuple[Value, Value]:
        """Does the same as `tiles` with elements; each thread takes a run of them. The total is right where no results are
        wanted.
        """
        code, layout = self.code, self.layout
        run = -(-self.length // layout.members)
        begin = code.add(first, code.mul(self.member, code.integer(run)))
        stop = code.intrinsic("smin", code.add(begin, code.integer(run)), end)
        if layout.members > 1 or stored is None:
            before = self._share(self._print_run(source, "", begin, stop, self.neutral(), None), stored is None)
            if stored is None:
                return before, self._any_lost()
            carry, lost = self.both(carry, before)
            self.lost.append(lost)
        total = self._print_run(source, target, begin, stop, carry, stored)
        return total, self._any_lost()

    def _print_run(
        self, source: str, target: str, first: Value, end: Value, carry: Value, stored: Value | None
    ) -> Value:
        """Elements one after the other, several of which are read at once."""
        code, together = self.code, self.layout.grids.vectors_at_once
        state = Carried([carry, code.constant(False, dtypes.bool_)])
        place = Carried([first])

        def several(places: Sequence[Value]) -> None:
            elements, results = [self.load(source, i) for i in places], list[Value]()
            total, lost = state.values
            for x in elements:
                total, lost_here = self.both(total, x)
                lost = code.or_(lost, lost_here)
                results.append(total)
            if stored is not None:
                with code.when(stored):
                    for i, result in zip(places, results, strict=True):
                        self.store(target, i, result)
            state.values = [total, lost]

        with code.loop(first, code.sub(end, code.integer(together - 1)), together, [state, place]) as i:
            several([code.add(i, code.integer(k)) for k in range(together)])
            place.values = [code.add(i, code.integer(together))]
        with code.loop(place.values[0], end, 1, [state]) as i:
            several([i])
        self.lost.append(state.values[1])
        return state.values[0]

    def _share(self, own: Value, is_all: bool) -> Value:
        """Returns the totals of the runs of a row in front of this thread's, or of all of them."""
        code, layout, size = self.code, self.layout, self.wide.itemsize
        if layout.members == 1:
            return own
        room = code.shared(layout.threads * size)
        code.store(code.offset(room, code.mul(self.thread, code.integer(size))), own)
        code.barrier()
        column = code.offset(room, code.mul(self.row, code.integer(size)))
        total = Carried([self.neutral(), code.constant(False, dtypes.bool_)])
        with code.loop(0, code.integer(layout.members) if is_all else self.member, carried=[total]) as j:
            x = code.load(code.offset(column, code.mul(j, code.integer(layout.rows * size))), self.wide)
            found, lost = self.both(total.values[0], x)
            total.values = [found, code.or_(total.values[1], lost)]
        self.lost.append(total.values[1])
        return total.values[0]


def memory_dtype(dtype: DType) -> DType:
    """Returns the dtype as which elements are read: bools are bytes."""
    return dtypes.uint8 if dtypes.is_bool(dtype) else dtype
