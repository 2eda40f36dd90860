"""How a block of threads is dealt out to the rows of a nest."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nnc.backends.cuda.operands import Operands
from nnc.devices.targets.gpu import GPU_GRIDS
from nnc.dtypes import accumulator


@dataclass(frozen=True, slots=True)
class Layout:
    """The threads of a block, as so many rows that each have so many threads.

    Attributes:
        across: whether neighbouring threads take neighbouring rows (columns of memory) instead of parts of one row.
        width: elements that a thread takes at once, along the vector loop.
        members: threads of one row; a power of two.
        rows: rows of a block, or vectors of neighbouring rows; a power of two.
        count: vectors, or elements, of a row.
        units: rows, or vectors of neighbouring rows, of the nest.
        kept: vectors of a row that each thread keeps in registers; 0: it reads them anew in each phase.
        parts: parts into which each row is cut, for blocks of their own.
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
        operands: of a nest with a row.
        parts: into which rows are cut.
    """
    nest, width = operands.nest, operands.lanes()
    across = not nest.in_row
    outer, row = (math.prod(nest.sizes[loop] for loop in loops) for loops in (nest.outer, nest.row))
    units, count = (outer // width, row) if across else (outer, row // width)
    length = -(-count // parts)
    members, kept = (
        (_members_across(units * parts, length), 0) if across else _members_along(operands, width, units, length)
    )
    if parts > 1:
        kept = 0
    if across:
        rows = min(GPU_GRIDS.threads // members, max(_at_least(units), 1))
        rows = max(rows, GPU_GRIDS.lanes // members, 1)
    else:
        rows = min(max(GPU_GRIDS.threads // members, 1), _at_least(units))
        rows = max(rows, GPU_GRIDS.lanes // members, 1)
    return Layout(across, width, members, rows, count, units, kept, parts)


def _at_least(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << max(count - 1, 0).bit_length()


def _members_along(operands: Operands, width: int, rows: int, length: int) -> tuple[int, int]:
    """Threads of a row along memory, and how many vectors each of them keeps."""
    most = _most_kept(operands, width)
    members = 1
    while members < GPU_GRIDS.most_threads and -(-length // members) > most:
        members *= 2
    while members < GPU_GRIDS.threads and rows * members < GPU_GRIDS.busy_threads and 2 * members <= _at_least(length):
        members *= 2
    kept = -(-length // members)
    if kept > (most if members < GPU_GRIDS.most_threads else max(most // 2, 1)):
        members, kept = GPU_GRIDS.most_threads // 2, 0
    return members, kept


def _most_kept(operands: Operands, width: int) -> int:
    """Vectors of a row for which a thread has registers."""
    nest = operands.nest
    values = [symbol for symbol in nest.operands if nest.phases.varies.get(symbol)]
    words = sum(max(accumulator(symbol.dtype).itemsize // 4, 1) for symbol in values) * width
    return max(min(GPU_GRIDS.kept_words // max(words, 1), GPU_GRIDS.kept_vectors), 1)


def _members_across(units: int, length: int) -> int:
    """Threads that share a row across memory, beside neighbours for whole sectors."""
    columns = min(_at_least(units), GPU_GRIDS.lanes)
    members = 1
    while members * columns < GPU_GRIDS.threads and 4 * members <= length:
        members *= 2
    return members
