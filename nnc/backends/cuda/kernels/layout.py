"""How a block of threads is dealt out to the rows of a nest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.operands import Operands
from nnc.base.dtypes import accumulator
from nnc.base.records import record
from nnc.base.target import GpuTarget, Grids
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.domain import is_reduction
from nnc.lower.plan.stages import View


@record
class Layout:
    """Divides the threads of a block among rows: each row has the same number of threads.

    Attributes:
        across: whether neighbouring threads have neighbouring rows (columns of memory) instead of parts of one row.
        width: elements that a thread processes at once, along the vector loop.
        members: threads of one row; a power of two.
        rows: rows of a block, or vectors of neighbouring rows; a power of two.
        count: vectors, or elements, of a row.
        units: rows, or vectors of neighbouring rows, of the nest.
        kept: vectors of a row that each thread keeps in registers; 0: each phase reads them again.
        parts: the number of parts of each row; each part has blocks of its own.
    """

    across: bool
    width: int
    members: int
    rows: int
    count: int
    units: int
    kept: int
    parts: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.members * self.rows

    @property
    def blocks(self) -> int:
        """Blocks for all rows, for each of their parts."""
        return -(-self.units // self.rows)

    @property
    def length(self) -> int:
        """Vectors of a part of a row."""
        return -(-self.count // self.parts)


def choose_layout(operands: Operands, parts: int) -> Layout:
    """Chooses how threads traverse the rows of a nest.

    Args:
        parts: the number of parts into which rows are cut.
    """
    nest = operands.nest
    return _along(operands, parts) if nest.in_row else _across(operands, parts)


def _along(operands: Operands, parts: int) -> Layout:
    """Returns the layout where rows lie along memory."""
    width = operands.lanes()
    units, row = _sizes(operands)
    count = row // width
    members, kept = _members_along(operands, width, units, -(-count // parts))
    rows = max(min(operands.grids.threads // members, at_least(units)), operands.grids.lanes // members, 1)
    return Layout(False, width, members, rows, count, units, kept if parts == 1 else 0, parts)


def _across(operands: Operands, parts: int) -> Layout:
    """Returns the layout where rows lie across memory: the sums of all threads of a block must have room in its shared memory."""
    width = operands.lanes()
    columns, count = _sizes(operands)
    members = _members_across(operands, columns // width, -(-count // parts))
    sums = [accumulator(node.inputs[0].dtype).itemsize for node in operands.graph.nodes if is_reduction(node)]
    while members > 1 and operands.grids.threads * width * sum(sums) > operands.grids.shared_bytes:
        width, members = (width // 2, members) if width > 1 else (width, members // 2)
    units = columns // width
    rows = max(min(operands.grids.threads // members, at_least(units)), operands.grids.lanes // members, 1)
    return Layout(True, width, members, rows, count, units, 0, parts)


def _sizes(operands: Operands) -> tuple[int, int]:
    """Returns the number of rows of a nest, and the elements of each."""
    nest = operands.nest
    rows, row = (math.prod(nest.sizes[loop] for loop in loops) for loops in (nest.outer, nest.row))
    return rows, row


def _members_along(operands: Operands, width: int, rows: int, length: int) -> tuple[int, int]:
    """Threads of a row along memory, and how many vectors each of them keeps."""
    most, members = _most_kept(operands, width), 1
    while members < operands.grids.most_threads and -(-length // members) > most:
        members *= 2
    if -(-length // members) > (most if members < operands.grids.most_threads else max(most // 2, 1)):
        return operands.grids.most_threads // 2, 0
    while (
        members < operands.grids.most_threads
        and rows * members < operands.grids.busy_threads
        and 2 * members <= at_least(length)
    ):
        members *= 2
    return members, -(-length // members)


def _most_kept(operands: Operands, width: int) -> int:
    """Vectors of a row for which a thread has registers."""
    nest = operands.nest
    values = [symbol for symbol in nest.operands if nest.phases.varies.get(symbol)]
    words = sum(max(accumulator(symbol.dtype).itemsize // 4, 1) for symbol in values) * width
    return max(min(operands.grids.kept_words // max(words, 1), operands.grids.kept_vectors), 1)


def _members_across(operands: Operands, units: int, length: int) -> int:
    """Threads that share a row across memory, beside neighbours for whole sectors."""
    columns = min(at_least(units), operands.grids.lanes)
    members = 1
    while members * columns < operands.grids.threads and 4 * members <= length:
        members *= 2
    return members


# -- rows of other kernels ---------------------------------------------------------------------------------------------


@record
class RowThreads:
    """Divides the threads of a block among rows: each row has the same number of threads.

    Attributes:
        grids: the shapes of launches.
        across: whether neighbouring threads have neighbouring rows.
        lanes: elements that a thread reads at once.
        members: threads of a row; a power of two.
        rows: rows of a block; a power of two.
    """

    grids: Grids
    across: bool
    lanes: int
    members: int
    rows: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.members * self.rows

    def split(self, code: GpuCode, thread: Value) -> tuple[Value, Value]:
        """Returns the row within the block and the number within the row of a thread."""
        by = self.rows if self.across else self.members
        low = code.and_(thread, code.integer(by - 1))
        high = code.shr(thread, code.integer(by.bit_length() - 1))
        return (low, high) if self.across else (high, low)


def choose_row_threads(views: Sequence[View], axis: int, axes: Axes, machine: GpuTarget, parts: int = 1) -> RowThreads:
    """Chooses the threads for rows.

    Args:
        views: views of one shape, which a thread reads and writes at the same positions of a row; the first decides the order.
        axis: the axis along which rows lie.
        axes: the other axes; the views see them first.
        parts: the number of parts into which rows are cut, each with blocks of its own.
    """
    x, count, grids = views[0], len(views), machine.grids
    n, step, size = x.spec.shape[axis], x.strides[axis], x.spec.dtype.itemsize
    across = bool(axes.shape) and abs(axes.strides[0][-1]) < abs(step)
    dense = all(view.strides[axis] == size == view.spec.dtype.itemsize for view in views)
    lanes = 1 if across or not dense else grids.vector_bytes // size
    places = [place for view in views for place in (view.offset, *(nbytes for _, nbytes in view.advances))]
    alignment = math.gcd(grids.aligned_bytes, *places, *(s for strides in axes.strides[:count] for s in strides))
    while n % lanes or alignment % (lanes * size):
        lanes //= 2
    length, members, least = -(-(n // lanes) // parts), 1, at_least(axes.size)
    if across:
        while members * min(least, grids.lanes) < grids.threads and 4 * members <= length:
            members *= 2
    else:
        most = min(grids.most_threads, at_least(length))
        while members < most and (members < grids.lanes or axes.size * members < grids.busy_threads):
            members *= 2
    rows = max(min(grids.threads // members, least), grids.lanes // members, 1)
    return RowThreads(grids, across, lanes, members, rows)


def at_least(count: int) -> int:
    """Returns the least power of two that is no less."""
    return 1 << max(count - 1, 0).bit_length()
