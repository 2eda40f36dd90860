"""How a block of threads is dealt out to the rows of a nest."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nnc.backends.cuda.kernels.operands import Operands
from nnc.backends.cuda.kernels.row_threads import at_least
from nnc.base.dtypes import accumulator
from nnc.lower.kernels.domain import is_reduction


@dataclass(frozen=True, slots=True)
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
