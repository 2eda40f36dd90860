"""Joins few updates in one launch: the thread of the first update of a place walks over all behind it.

A thread takes a vector of one update, and reads the places of all updates, which neighbours share. Results have the bits of the
reference.

Cost: for n updates n² places are read, nearly all from the nearest cache.
"""

from __future__ import annotations

from collections.abc import Callable

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.series import Series
from nnc.backends.cuda.kernels.units import either, in_vectors, places_of, unsigned
from nnc.backends.cuda.kernels.writes import Writes
from nnc.base import dtypes
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Carried, Value
from nnc.lower.kernels.indexed import COMBINE


def write_few(series: Series, writes: Writes, op: str) -> None:
    """Adds the launch that writes all updates.

    Args:
        op: the operation that combines updates; "set": the last one stays.
    """
    columns, lanes = in_vectors(
        writes.columns, writes.target.spec.dtype.itemsize, (0, 1), writes.row_alignment, writes.machine
    )
    width, count = columns.size, writes.count
    with writes.each(series, "few", count * width) as (code, unit):
        n = code.convert(code.div(unit, code.like(unit, width)), dtypes.int64)
        _Walk(code, writes, columns, lanes, code.rem(unit, code.like(unit, width))).write(n, op)


class _Walk:
    """The work of a thread on a vector of one update.

    Args:
        columns: vectors of a row, of updates and of the result.
        lanes: the number of lanes of a vector.
        column: the number of the vector, unsigned.
    """

    def __init__(self, code: GpuCode, writes: Writes, columns: Axes, lanes: int, column: Value) -> None:
        self.code, self.writes, self.lanes = code, writes, lanes
        self.of_update, self.of_target = places_of(code, columns, column)
        self.dtype = writes.target.spec.dtype

    def write(self, n: Value, op: str) -> None:
        """Writes the place of an update, if this is the thread to do so."""
        code, writes = self.code, self.writes
        mine, inside = writes.row(code, n)
        if inside is not None and writes.status:
            code.refuse(writes.status, code.not_(inside))
        kept = code.compare("lt", mine, code.integer(writes.rows))
        if op == "set":
            with code.when(code.and_(kept, self._is_alone(mine, code.add(n, code.integer(1)), writes.count))):
                code.store(self._target(mine), self._update(n), align=self._aligned)
            return
        with code.when(code.and_(kept, self._is_alone(mine, 0, n))):
            wide = dtypes.accumulator(self.dtype)

            def join(x: Value, i: Value) -> Value:
                return COMBINE[op](code, x, code.convert(self._update(i), wide))

            old = code.load(self._target(mine), self.dtype, self._lanes, align=self._aligned)
            total = self._walk(mine, n, join(code.convert(old, wide), n), join)
            code.store(self._target(mine), code.convert(total, self.dtype), align=self._aligned)

    def _is_alone(self, row: Value, first: Value | int, end: Value | int) -> Value:
        """Whether none of some updates has this row."""
        code = self.code
        alone = Carried([code.constant(True, dtypes.bool_)])
        with code.loop(first, end, 1, [alone]) as i:
            other, _ = self.writes.row(code, i)
            alone.values = [code.and_(alone.values[0], code.compare("ne", other, row))]
        return alone.values[0]

    def _walk(self, row: Value, n: Value, first: Value, join: Callable[[Value, Value], Value]) -> Value:
        """Joins the updates of a row behind its first one."""
        code, total = self.code, Carried([first])
        with code.loop(code.add(n, code.integer(1)), self.writes.count, 1, [total]) as i:
            other, _ = self.writes.row(code, i)
            old = total.values[0]
            joined = either(code, code.compare("eq", other, row), lambda: join(old, i), old)
            total.values = [joined]
        return total.values[0]

    @property
    def _lanes(self) -> int:
        return self.lanes if self.lanes > 1 else 0

    @property
    def _aligned(self) -> int:
        return self.lanes * self.dtype.itemsize

    def _update(self, n: Value) -> Value:
        """Returns the vector of an update."""
        code = self.code
        place = self.writes.update_at(code, unsigned(code, n, self.writes.count))
        return code.load(code.offset(place, self.of_update), self.dtype, self._lanes, align=self._aligned)

    def _target(self, row: Value) -> str:
        """Returns the address of the vector of a row."""
        code = self.code
        place = self.writes.target_at(code, unsigned(code, row, self.writes.rows))
        return code.offset(place, self.of_target)
