"""Places tensors with known live ranges in one arena, as small as possible.

A portfolio of greedy planners, each cheap and good at another kind of graph; the first that meets the lower bound (the
largest live set) wins, else the smallest. The dive always places the tensor that can go lowest; the best fit takes the
tightest gap for each tensor of a fixed order. Each costs O(n) vector work a tensor. Where none meets the bound and there
are not too many tensors, a search of bounded length follows. Same input, same plan, in every process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnc.lower.alloc.search import Ints, improve

ALIGNMENT = 64
_FAR = np.iinfo(np.int64).max // 4
_SEARCHED = 2000  # tensors
_PLACEMENTS = 20_000  # of the search: about half a second


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Offsets of the tensors, the arena's size, and the largest live set, which no plan can beat; all in bytes."""

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int


def plan_arena(first: Sequence[int], end: Sequence[int], size: Sequence[int], alignment: int = ALIGNMENT) -> ArenaPlan:
    """Offsets for tensors that live in [first, end) and take `size` bytes, such that no two live ones overlap.

    Every offset and the peak are multiples of `alignment`; tensors without bytes lie at 0.

    Example:
        >>> plan_arena([0, 1, 2], [2, 3, 4], [256, 512, 256])
        ArenaPlan(offsets=(512, 0, 512), peak=768, lower_bound=768)
    """
    units = -(-np.asarray(size, np.int64) // alignment)
    lo, hi = np.asarray(first, np.int64), np.asarray(end, np.int64)
    offsets = np.zeros(len(units), np.int64)
    placed = np.flatnonzero((units > 0) & (lo < hi))
    if placed.size == 0:
        return ArenaPlan((0,) * len(units), 0, 0)
    by_start = placed[np.lexsort((placed, -units[placed], lo[placed]))]
    problem = _Problem.of(lo[by_start], hi[by_start], units[by_start])
    bound = int(problem.load.max())
    best_peak = _FAR
    for candidate in _portfolio(problem):
        peak = int((candidate + problem.size).max())
        if peak < best_peak:
            offsets[by_start], best_peak = candidate, peak
        if peak == bound:
            break
    if best_peak > bound and placed.size <= _SEARCHED:
        found, best_peak = improve(
            problem.lo,
            problem.hi,
            problem.size,
            _search_ranks(problem),
            offsets[by_start],
            best_peak,
            bound,
            _PLACEMENTS,
        )
        offsets[by_start] = found
    return ArenaPlan(tuple(int(x) * alignment for x in offsets), best_peak * alignment, bound * alignment)


def max_live(first: Sequence[int], end: Sequence[int], size: Sequence[int]) -> int:
    """The largest number of bytes that are live in one step."""
    lo, hi = np.asarray(first, np.int64), np.asarray(end, np.int64)
    return int(_section_loads(lo, hi, np.asarray(size, np.int64))[1].max(initial=0))


@dataclass(frozen=True, slots=True)
class _Problem:
    """Tensors by first step, sizes in units of the alignment; `load`: live size of each section between events."""

    lo: Ints
    hi: Ints
    size: Ints
    load: Ints
    section: tuple[Ints, Ints]  # of each tensor: its first section and the one after its last
    later: Ints  # of each tensor: how many tensors begin before it ends

    @classmethod
    def of(cls, lo: Ints, hi: Ints, size: Ints) -> _Problem:
        times, load = _section_loads(lo, hi, size)
        section = np.searchsorted(times, lo), np.searchsorted(times, hi)
        return cls(lo, hi, size, load, section, np.searchsorted(lo, hi, side="left"))

    def overlapping(self, t: int) -> tuple[slice, Any]:
        """The tensors that may live together with t, and which of them do."""
        near = slice(0, int(self.later[t]))
        return near, self.hi[near] > self.lo[t]


def _section_loads(lo: Ints, hi: Ints, size: Ints) -> tuple[Ints, Ints]:
    """The steps at which the live set changes, and the live size from each on."""
    times, where = np.unique(np.concatenate([lo, hi]), return_inverse=True)
    change = np.zeros(len(times), np.int64)
    np.add.at(change, where[: len(lo)], size)
    np.subtract.at(change, where[len(lo) :], size)
    return times, np.cumsum(change)


def _portfolio(p: _Problem) -> Iterator[Ints]:
    """Plans, the most promising first."""
    tight = _largest_load(p)
    duration = p.hi - p.lo
    area = p.size * duration
    yield _dive(p, tight, area, duration)
    yield _dive(p, tight, duration, area)
    yield _dive(p, p.hi, duration)
    yield _best_fit(p, p.size, duration)
    yield _best_fit(p, tight, p.size)  # by breadth: the fullest steps first
    yield _dive(p, area, duration)
    yield _dive(p, -p.lo, duration)
    yield _dive(p, p.size, duration)
    yield _best_fit(p, duration, p.size)


def _search_ranks(p: _Problem) -> list[Ints]:
    """The orders in which the search tries tensors that can lie equally low."""
    tight, duration = _largest_load(p), p.hi - p.lo
    area = p.size * duration
    return [
        _rank(*keys)
        for keys in ((tight, duration, area), (duration, area, tight), (tight, area, duration), (p.hi, duration))
    ]


def _rank(*keys: Ints) -> Ints:
    """The place of each tensor in the order by `keys`."""
    rank = np.empty(len(keys[0]), np.int64)
    rank[_order(*keys)] = np.arange(len(rank))
    return rank


def _order(*keys: Ints) -> Ints:
    """The tensors by falling keys, the first of which counts most; ties in order of their start."""
    return np.lexsort(tuple(-key for key in reversed(keys)))


def _largest_load(p: _Problem) -> Ints:
    """For each tensor the largest load of a section that it lives in, by a table of maxima over powers of two."""
    table = [p.load]
    while 2 ** len(table) <= len(p.load):
        half = 2 ** (len(table) - 1)
        table.append(np.maximum(table[-1][:-half], table[-1][half:]))
    begin, end = p.section
    level = np.frexp(np.maximum(end - begin, 1).astype(np.float64))[1].astype(np.int64) - 1
    result = np.zeros(len(p.lo), np.int64)
    for k, maxima in enumerate(table):
        chosen = np.flatnonzero(level == k)
        result[chosen] = np.maximum(maxima[begin[chosen]], maxima[end[chosen] - 2**k])
    return result


def _dive(p: _Problem, *keys: Ints) -> Ints:
    """Places at every turn the tensor that can lie lowest (ties: by `keys`), as low as it can."""
    n = len(p.lo)
    rank = _rank(*keys)
    lowest = np.zeros(n, np.int64)
    shift = max(n, 1)
    key = rank.copy()  # lowest · n + rank, and far away once placed
    for _ in range(n):
        t = int(key.argmin())
        key[t] = _FAR
        near, together = p.overlapping(t)
        raised = np.flatnonzero(together & (lowest[near] < lowest[t] + p.size[t]) & (key[near] < _FAR))
        if raised.size:
            lowest[raised] = lowest[t] + p.size[t]
            key[raised] = lowest[raised] * shift + rank[raised]
    return lowest


def _best_fit(p: _Problem, *keys: Ints) -> Ints:
    """Takes the tensors by `keys` and puts each into the tightest gap between those that live at the same time."""
    n = len(p.lo)
    offset = np.zeros(n, np.int64)
    lo, hi, start, stop = (np.empty(n, np.int64) for _ in range(4))  # the placed ones, by offset
    for count, t in enumerate(_order(*keys)):
        together = np.flatnonzero((lo[:count] < p.hi[t]) & (hi[:count] > p.lo[t]))
        ends = np.maximum.accumulate(np.concatenate([[0], stop[together]]))
        gaps = start[together] - ends[:-1]
        fitting = np.flatnonzero(gaps >= p.size[t])
        at = ends[fitting[gaps[fitting].argmin()]] if fitting.size else ends[-1]
        offset[t] = at
        place = int(np.searchsorted(start[:count], at))
        for column, value in ((lo, p.lo[t]), (hi, p.hi[t]), (start, at), (stop, at + p.size[t])):
            column[place + 1 : count + 1] = column[place:count].copy()
            column[place] = value
    return offset
