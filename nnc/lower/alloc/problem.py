"""The input of planners: sizes and live ranges as arrays, in order of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int64]]
Intervals = tuple[tuple[int, int], ...]


class Block(NamedTuple):
    """Memory of `size` bytes at one place, live in each of the half-open ranges (first, end) of steps.

    Between its ranges other blocks may use the bytes. Tensors that share memory (an in-place chain, the carried values of a
    loop) are one block with the ranges of all; the ranges may come in any order and overlap.
    """

    size: int
    intervals: Intervals


class Problem(NamedTuple):
    """Blocks by first step, sizes in units of the alignment.

    A row is one live range; rows are sorted by their start. Row r can only meet rows `begin[r]` to `later[r]`: the ones before
    have ended, the ones after start too late. `rows[first_row[b]:first_row[b + 1]]` belong to block b.
    """

    size: Ints
    start: Ints
    end: Ints
    duration: Ints
    lo: Ints
    hi: Ints
    owner: Ints
    begin: Ints
    later: Ints
    rows: Ints
    first_row: Ints
    load: Ints  # live size of each section between two events
    section: tuple[Ints, Ints]  # of each row: its first section and the one after its last

    @classmethod
    def of(cls, size: Ints, lo: Ints, hi: Ints, owner: Ints) -> Problem:
        """Returns the problem of rows [lo, hi), none empty, of the blocks `owner`; blocks are numbered by their first start."""
        order = np.lexsort((owner, lo))
        lo, hi, owner = lo[order], hi[order], owner[order]
        n = len(size)
        start, end = np.full(n, np.iinfo(np.int64).max), np.zeros(n, np.int64)
        np.minimum.at(start, owner, lo)
        np.maximum.at(end, owner, hi)
        duration = np.zeros(n, np.int64)
        np.add.at(duration, owner, hi - lo)
        rows = np.argsort(owner, kind="stable")
        first_row = np.searchsorted(owner[rows], np.arange(n + 1))
        times, load = section_loads(lo, hi, size[owner])
        return cls(
            size, start, end, duration, lo, hi, owner,
            begin=np.searchsorted(np.maximum.accumulate(hi), lo, side="right"),
            later=np.searchsorted(lo, hi, side="left"),
            rows=rows, first_row=first_row, load=load, section=(np.searchsorted(times, lo), np.searchsorted(times, hi)),
        )  # fmt: skip

    @property
    def is_simple(self) -> bool:
        """Whether each block has one row; then they have the same numbers."""
        return len(self.lo) == len(self.size)

    def rows_of(self, block: int) -> Ints:
        """Returns the rows of a block."""
        return self.rows[self.first_row[block] : self.first_row[block + 1]]

    @property
    def bound(self) -> int:
        """The largest live set: no plan is lower."""
        return int(self.load.max())

    def largest_load(self) -> Ints:
        """For each block the largest load of a section that it lives in, by a table of maxima over powers of two."""
        table = [self.load]
        while 2 ** len(table) <= len(self.load):
            half = 2 ** (len(table) - 1)
            table.append(np.maximum(table[-1][:-half], table[-1][half:]))
        first, end = self.section
        level = np.frexp((end - first).astype(np.float64))[1].astype(np.int64) - 1
        result = np.zeros(len(self.size), np.int64)
        for k, maxima in enumerate(table):
            chosen = np.flatnonzero(level == k)
            np.maximum.at(result, self.owner[chosen], np.maximum(maxima[first[chosen]], maxima[end[chosen] - 2**k]))
        return result


def make_problem(size: Ints, lo: Ints, hi: Ints, owner: Ints) -> tuple[Problem, Ints]:
    """Returns the problem of the blocks that have bytes and live at all, and which those are: `size` in units, rows [lo, hi)."""
    keep = np.flatnonzero((lo < hi) & (size[owner] > 0))
    lo, hi, owner = lo[keep], hi[keep], owner[keep]
    start = np.full(len(size), np.iinfo(np.int64).max)
    np.minimum.at(start, owner, lo)
    placed = distinct(owner)
    placed = placed[np.lexsort((placed, -size[placed], start[placed]))]
    number = np.zeros(len(size), np.int64)
    number[placed] = np.arange(len(placed))
    return Problem.of(size[placed], lo, hi, number[owner]), placed


def distinct(values: Ints) -> Ints:
    """Returns the values in order, each once. NumPy's `unique` would load numpy.ma, which takes as long as a small plan."""
    ordered = np.sort(values)
    once: Ints = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return once


def merged(intervals: Intervals) -> Iterator[tuple[int, int]]:
    """Disjoint ranges that cover the same steps, in order."""
    current: tuple[int, int] | None = None
    for first, end in sorted(pair for pair in intervals if pair[0] < pair[1]):
        if current is not None and first <= current[1]:
            current = current[0], max(current[1], end)
        else:
            if current is not None:
                yield current
            current = first, end
    if current is not None:
        yield current


def block_rows(blocks: Sequence[Block]) -> tuple[Ints, Ints, Ints, Ints]:
    """Sizes of blocks, and (first, end, block) of their disjoint live ranges."""
    rows = [(*pair, number) for number, block in enumerate(blocks) for pair in merged(block.intervals)]
    lo, hi, owner = np.array(rows, np.int64).reshape(-1, 3).T
    return np.array([block.size for block in blocks], np.int64), lo, hi, owner


def section_loads(lo: Ints, hi: Ints, size: Ints) -> tuple[Ints, Ints]:
    """Returns the steps at which the live set changes, and the live size from each on."""
    times, where = np.unique(np.concatenate([lo, hi]), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, where[: len(lo)], size)
    np.subtract.at(change, where[len(lo) :], size)
    return times, np.cumsum(change)
