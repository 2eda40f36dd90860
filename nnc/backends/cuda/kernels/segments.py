"""Joins updates that lie in the order of their places: each place with its updates is a segment.

Of updates that replace one another, the last of each segment is written. Others are joined in chunks: a thread takes one
element of the rows of some updates that follow one another. A segment within one chunk is joined in the order of the reference. The
chunks of a longer one leave partial results in the workspace, which the next launch joins in order. So all runs have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.ordered import Order, load_key, row_of, update_of
from nnc.backends.cuda.kernels.registry import Series
from nnc.backends.cuda.kernels.units import count_below, either, in_vectors, places_of, unsigned
from nnc.backends.cuda.kernels.writes import Writes
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Carried, Value
from nnc.lower.kernels.indexed import COMBINE


def write_last(series: Series, writes: Writes, order: Order) -> None:
    """Writes the last of the sorted updates of each place: a thread writes a vector of one row."""
    item = writes.target.spec.dtype.itemsize
    columns, lanes = in_vectors(writes.columns, item, (0, 1), writes.row_alignment, writes.machine)
    width = columns.size
    with writes.each(series, "last", order.count * width) as (code, unit):
        n = code.convert(code.div(unit, code.like(unit, width)), dtypes.int64)
        join = _Join(code, writes, order, "set", code.rem(unit, code.like(unit, width)), columns)
        key = join.key(n)
        row = join.row(key)
        following = code.add(n, code.integer(1))
        is_inner = code.compare("lt", following, code.integer(order.count))
        other = either(code, is_inner, lambda: join.row(join.key(following)), code.like(row, order.rows))
        with code.when(code.compare("ne", row, other)):  # dropped updates stand last, in the row behind all
            aligned = lanes * item
            new = code.load(join.update_at(key), join.dtype, lanes if lanes > 1 else 0, align=aligned)
            code.store(join.target_at(row), new, align=aligned)


def join_updates(series: Series, writes: Writes, order: Order) -> None:
    """Combines the sorted updates of each place with its element."""
    op = writes.step.params["op"]
    columns = writes.columns
    for name, count in (("join", order.chunks), ("finish", order.chunks - 1)):
        with writes.each(series, name, count * order.width) as (code, unit):
            chunk = code.convert(code.div(unit, code.like(unit, order.width)), dtypes.int64)
            join = _Join(code, writes, order, op, code.rem(unit, code.like(unit, order.width)), columns)
            (join.chunk if name == "join" else join.finish)(chunk)


@dataclass(slots=True)
class _Run:
    """The present segment of a chunk: its row, the element joined so far, and whether it began within the chunk."""

    row: Value
    total: Value
    is_begun: Value


class _Join:
    """The work of a thread on one element of rows.

    Args:
        op: the operation that combines updates.
        column: the number of the element within its row, unsigned.
        columns: elements of a row, of updates and of the result.
    """

    def __init__(self, code: GpuCode, writes: Writes, order: Order, op: str, column: Value, columns: Axes) -> None:
        self.code, self.writes, self.order, self.op = code, writes, order, op
        self.column = code.convert(column, dtypes.int64)
        self.of_update, self.of_target = places_of(code, columns, column)
        self.dtype: DType = writes.target.spec.dtype
        self.wide = dtypes.accumulator(self.dtype)

    # -- memory --------------------------------------------------------------------------------------------------------

    def key(self, n: Value) -> Value:
        """Returns the key at a position."""
        return load_key(self.code, self.writes, self.order, self.order.passes, n)

    def row(self, key: Value) -> Value:
        """Returns the row of a key."""
        return row_of(self.code, self.order, key)

    def update_at(self, key: Value) -> str:
        """Returns the address of an update's element."""
        code = self.code
        place = self.writes.update_at(code, update_of(code, self.order, key))
        return code.offset(place, self.of_update)

    def target_at(self, row: Value) -> str:
        """Returns the address of an element of a row of the result."""
        return self.code.offset(self.writes.target_at(self.code, row), self.of_target)

    def sum_at(self, number: int, chunk: Value) -> str:
        """Returns the address of a chunk's partial result; see `Order.sums`."""
        code, order = self.code, self.order
        element = code.add(code.mul(chunk, code.integer(order.width)), self.column)
        place = code.mul(element, code.integer(self.wide.itemsize))
        return code.offset(self.writes.workspace, code.add(place, code.integer(order.sums(number))))

    def load(self, place: str) -> Value:
        """Returns an element of the updates or of the result, as it is joined."""
        return self.code.convert(self.code.load(place, self.dtype), self.wide)

    def combine(self, x: Value, y: Value) -> Value:
        """Combines two elements, in this order."""
        return COMBINE[self.op](self.code, x, y)

    def put(self, run: _Run) -> None:
        """Writes the element of a whole segment."""
        code = self.code
        with code.when(self.is_row(run.row)):
            code.store(self.target_at(run.row), code.convert(run.total, self.dtype))

    def is_row(self, row: Value) -> Value:
        """Whether a row is one of the result, and not that of dropped updates."""
        return self.code.compare("lt", row, self.code.like(row, self.order.rows))

    # -- chunks --------------------------------------------------------------------------------------------------------

    def chunk(self, chunk: Value) -> None:
        """Joins the updates of a chunk."""
        code, order = self.code, self.order
        first = code.mul(chunk, code.integer(order.chunk))
        end = code.intrinsic("smin", code.add(first, code.integer(order.chunk)), code.integer(order.count))
        key = self.key(first)
        row = self.row(key)
        is_begun = code.compare("ne", self._row_at(code.sub(first, code.integer(1)), chunk), row)
        run = _Run(row, self._begun(is_begun, row, self.load(self.update_at(key))), is_begun)
        carried = Carried([run.row, run.total, run.is_begun])
        with code.loop(code.add(first, code.integer(1)), end, 1, [carried]) as i:
            run = _Run(*carried.values)
            key = self.key(i)
            row, update = self.row(key), self.load(self.update_at(key))
            is_new = code.compare("ne", row, run.row)
            with code.when(is_new):
                self._leave(run, chunk)
            fresh = self._begun(is_new, row, update)
            total = code.select(is_new, fresh, self.combine(run.total, update))
            carried.values = [row, total, code.or_(run.is_begun, is_new)]
        run = _Run(*carried.values)
        self._leave_last(run, chunk, end)

    def _row_at(self, n: Value, chunk: Value) -> Value:
        """Returns the row of the update in front of a chunk; one that there is not where the chunk is the first."""
        code = self.code
        is_later = code.compare("gt", chunk, code.integer(0))
        other = code.constant(self.order.rows + 1, dtypes.uint64)
        return either(code, is_later, lambda: self.row(self.key(n)), other)

    def _begun(self, begins: Value, row: Value, update: Value) -> Value:
        """Joins the first update of a segment with the element of its place; the update alone where a segment goes on."""
        code = self.code
        known = code.and_(begins, self.is_row(row))
        return either(code, known, lambda: self.combine(self.load(self.target_at(row)), update), update)

    def _leave(self, run: _Run, chunk: Value) -> None:
        """Writes a segment that ends within the chunk."""
        code = self.code
        with code.when(run.is_begun):
            self.put(run)
        with code.when(code.not_(run.is_begun)):
            code.store(self.sum_at(0, chunk), run.total)

    def _leave_last(self, run: _Run, chunk: Value, end: Value) -> None:
        """Writes the last segment of a chunk, which may go on behind it."""
        code, order = self.code, self.order
        is_inner = code.compare("lt", end, code.integer(order.count))
        other = code.constant(order.rows + 1, dtypes.uint64)
        goes_on = code.compare("eq", either(code, is_inner, lambda: self.row(self.key(end)), other), run.row)
        with code.when(code.and_(goes_on, run.is_begun)):
            code.store(self.sum_at(1, chunk), run.total)
        with code.when(code.and_(goes_on, code.not_(run.is_begun))):
            code.store(self.sum_at(0, chunk), run.total)
        with code.when(code.not_(goes_on)):
            self._leave(run, chunk)

    def finish(self, chunk: Value) -> None:
        """Joins the partial results of a long segment, where it begins in this chunk and goes on behind it."""
        code, order = self.code, self.order
        first, following = code.mul(chunk, code.integer(order.chunk)), code.add(chunk, code.integer(1))
        end = code.mul(following, code.integer(order.chunk))
        row = self.row(self.key(code.sub(end, code.integer(1))))
        goes_on = code.compare("eq", self.row(self.key(end)), row)
        begins = code.compare("ne", self._row_at(code.sub(first, code.integer(1)), chunk), row)
        with code.when(code.and_(self.is_row(row), code.and_(goes_on, begins))):
            last = code.mul(code.add(row, code.like(row, 1)), code.like(row, order.count))  # beyond the keys of the row
            more = count_below(
                code, partial(self._first_key, following), code.sub(code.integer(order.chunks), following),
                order.chunks, last,
            )  # fmt: skip
            total = Carried([code.load(self.sum_at(1, chunk), self.wide)])
            with code.loop(following, code.add(following, more), 1, [total]) as other:
                total.values = [self.combine(total.values[0], code.load(self.sum_at(0, other), self.wide))]
            self.put(_Run(row, total.values[0], begins))

    def _first_key(self, chunk: Value, number: Value) -> Value:
        """Returns the first key of a chunk that stands so many behind another."""
        code = self.code
        return self.key(code.mul(code.add(chunk, number), code.integer(self.order.chunk)))


# -- few updates -------------------------------------------------------------------------------------------------------


def write_few(series: Series, writes: Writes, op: str) -> None:
    """Adds the one launch that writes few updates: the thread of the first update of a place walks over all behind it.

    A thread takes a vector of one update, and reads the places of all updates, which neighbours share. Results have the bits of the
    reference. Of n updates n² places are read, nearly all from the nearest cache.

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
