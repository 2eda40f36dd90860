"""Threads for rows along one axis, where a kernel is no nest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.device.target import GpuTarget, Grids
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Value
from nnc.lower.plan.stages import View


@dataclass(frozen=True, slots=True)
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
