"""Last accesses to each granule of memory: which threads made them, and whether a barrier lies in between.

A granule is as wide as the narrowest access of the kernel, so each access covers whole ones. A thread's access comes after an
earlier one if it is the same thread's, or if a barrier of the block (or of the warp) lies between them; nothing orders blocks.
"""

from __future__ import annotations

import numpy as np

from nnc.testing.devices.ptx.counts import WARP
from nnc.testing.devices.ptx.values import Array

_NONE, _THREAD, _WARP, _BLOCK, _GRID = range(5)  # the threads that an access stands for


class Order:
    """The time of a wave of blocks, which advances with each barrier.

    Args:
        row: threads of a block, rounded up to whole warps.
        first: the number of the wave's first block.
        blocks: the number of blocks in the wave.
    """

    def __init__(self, row: int, first: int, blocks: int) -> None:
        self.row, self.first, self.now = row, first, 1
        self.block_times = np.zeros(blocks, np.int32)  # of the last barrier
        self.warp_times = np.zeros(blocks * row // WARP, np.int32)

    def pass_barrier(self, blocks: Array) -> None:
        """Notes a barrier at which these blocks of the wave arrive."""
        self.now += 1
        self.block_times[blocks] = self.now

    def pass_warp_barrier(self, warps: Array) -> None:
        """Notes a barrier at which these warps of the wave arrive."""
        self.now += 1
        self.warp_times[warps] = self.now


class Accesses:
    """The last read, or the last write, of each granule of memory."""

    def __init__(self, count: int) -> None:
        self.threads = np.full(count, -1, np.int32)
        self.times = np.zeros(count, np.int32)
        self.levels = np.zeros(count, np.uint8)

    def unordered(self, at: Array, threads: Array, order: Order) -> Array:
        """Returns whether a present access could come before or after the last one.

        Args:
            at: the granules that each thread accesses, one row a thread.
            threads: the threads' numbers in the grid, as a column.
        """
        levels, earlier = self.levels[at], self.threads[at]
        found = (levels != _NONE) & ((levels != _THREAD) | (earlier != threads))
        if not found.any():
            return found
        times = self.times[at]
        blocks = threads // order.row
        same_block = (earlier // order.row == blocks) & (levels <= _BLOCK)
        same_warp = (earlier // WARP == threads // WARP) & (levels <= _WARP)
        ordered = same_block & (times < order.block_times[blocks - order.first])
        ordered |= same_warp & (times < order.warp_times[threads // WARP - order.first * order.row // WARP])
        return found & ~ordered

    def replace(self, at: Array, threads: Array, order: Order) -> Array:
        """Notes accesses that come after all earlier ones.

        Returns:
            the granules that more than one of the threads accesses.
        """
        self.threads[at], self.times[at], self.levels[at] = threads, order.now, _THREAD
        return self.threads[at] != threads

    def add(self, at: Array, threads: Array, order: Order) -> None:
        """Notes accesses beside earlier ones that nothing orders."""
        beside = self.unordered(at, threads, order)
        levels = np.where(beside, np.maximum(self.levels[at], _relation(self.threads[at], threads, order)), _THREAD)
        self.threads[at], self.times[at], self.levels[at] = threads, order.now, _THREAD
        levels = np.maximum(levels, _relation(self.threads[at], threads, order))
        for level in range(_WARP, int(levels.max(initial=0)) + 1):
            self.levels[at[levels >= level]] = level


def _relation(some: Array, others: Array, order: Order) -> Array:
    """Returns the smallest group that holds both threads."""
    relation = np.where(some // order.row == others // order.row, _BLOCK, _GRID)
    return np.where(some == others, _THREAD, np.where(some // WARP == others // WARP, _WARP, relation)).astype(np.uint8)
