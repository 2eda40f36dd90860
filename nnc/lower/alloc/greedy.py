"""Greedy planners, each cheap and good at another kind of graph, and the order in which they are tried.

The dive always places the block that can lie lowest; the best fit takes the tightest gap for each block of a fixed order.
Both cost O(n) vector work a block, and leave a plan unfinished as soon as it is as high as one that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np

from nnc.lower.alloc.problem import Ints, Problem

Numbers = np.ndarray[Any, Any]
FAR = np.iinfo(np.int64).max // 4
_MANY = 4000  # blocks; above, the planners that rarely win are left out


class Planner(Protocol):
    """Makes a plan."""

    def __call__(self, *, below: int) -> Ints:
        """Returns the offsets; a plan that is not lower than `below` may be unfinished, but shows that it is not."""


def portfolio(p: Problem) -> Iterator[Planner]:
    """Yields planners, the most promising first."""
    tight, duration = p.largest_load(), p.duration
    area = p.size * duration
    yield partial(dive, p, order_rank(tight, area, duration))
    yield partial(dive, p, order_rank(tight, duration, area))
    yield partial(best_fit, p, order_of(p.size, duration))
    if len(p.size) > _MANY:
        return
    yield partial(best_fit, p, order_of(p.size), lowest=True)
    yield partial(dive, p, order_rank(p.end, duration))
    yield partial(best_fit, p, order_of(tight, p.size))  # by breadth: the fullest steps first
    yield partial(dive, p, order_rank(area, duration))
    yield partial(dive, p, order_rank(-p.start, duration))
    yield partial(dive, p, order_rank(p.size, duration))
    yield partial(best_fit, p, order_of(duration, p.size))


def lowest_plan(p: Problem, planners: Iterable[Planner], best: Ints, peak: int) -> tuple[Ints, int]:
    """Returns the lowest of `best` and of the plans, as far as the first that meets the bound, and its height."""
    for make in planners:
        plan = make(below=peak)
        height = int((plan + p.size).max())
        if height < peak:
            best, peak = plan, height
        if peak == p.bound:
            break
    return best, peak


def search_keys(p: Problem) -> list[tuple[Ints, ...]]:
    """Returns the orders in which the search tries blocks that can lie equally low."""
    tight, duration = p.largest_load(), p.duration
    area = p.size * duration
    return [(tight, duration, area), (duration, area, tight), (tight, area, duration), (p.end, duration)]


def order_rank(*keys: Numbers) -> Ints:
    """Returns the place of each block in the order by `keys`."""
    rank = np.empty(len(keys[0]), np.int64)
    rank[order_of(*keys)] = np.arange(len(rank))
    return rank


def order_of(*keys: Numbers) -> Ints:
    """Sorts the blocks by falling keys, the first key first; ties in order of their start."""
    return np.lexsort(tuple(-key for key in reversed(keys)))


def dive(p: Problem, rank: Ints, *, below: int = FAR) -> Ints:
    """Places, one after the other, the block that can lie lowest (ties: by `rank`), on top of the placed blocks that live at
    the same time.

    Args:
        below: the search stops once a block ends at this offset or higher.
    """
    n = len(p.size)
    lo, hi, owner, simple = p.lo, p.hi, p.owner, p.is_simple
    begin, later, start, size = p.begin.tolist(), p.later.tolist(), lo.tolist(), p.size.tolist()
    offset = [0] * n
    key = rank.copy()  # lowest place · n + rank, and far away once placed
    for _ in range(n):
        t = int(key.argmin())
        offset[t] = at = int(key[t]) // n
        top = at + size[t]
        if top >= below:
            break
        key[t] = FAR
        floor = top * n
        for row in (t,) if simple else p.rows_of(t).tolist():
            near = slice(begin[row], later[row])
            keys = key[near] if simple else key[owner[near]]
            (raised,) = ((keys < floor) & (hi[near] > start[row])).nonzero()
            if raised.size:
                raised += begin[row]
                if not simple:
                    raised = owner[raised]
                key[raised] = rank[raised] + floor
    return np.array(offset, np.int64)


def best_fit(p: Problem, order: Ints, lowest: bool = False, given: Ints | None = None, *, below: int = FAR) -> Ints:
    """Places the blocks in order, each in the tightest gap between the blocks that live at the same time.

    Args:
        lowest: whether the lowest gap is taken instead.
        given: the offsets of blocks that are placed already, -1 of others.
        below: the search stops once a block ends at this offset or higher.
    """
    fixed = [-1] * len(order) if given is None else given.tolist()
    sizes, offset = p.size.tolist(), [0] * len(p.size)
    all_rows, first_row, los, his = p.rows.tolist(), p.first_row.tolist(), p.lo.tolist(), p.hi.tolist()
    placed = np.empty((4, len(los)), np.int64)  # the placed rows, by offset
    lo, hi, start, stop = placed
    count = 0
    for t in order.tolist():
        rows, size, at = all_rows[first_row[t] : first_row[t + 1]], sizes[t], fixed[t]
        if at < 0:
            first, end = lo[:count], hi[:count]
            together = (first < his[rows[0]]) & (end > los[rows[0]])
            for row in rows[1:]:
                together |= (first < his[row]) & (end > los[row])
            (found,) = together.nonzero()
            ends = np.zeros(len(found) + 1, np.int64)
            np.maximum.accumulate(stop[found], out=ends[1:])
            gaps = start[found] - ends[:-1]
            (fitting,) = (gaps >= size).nonzero()
            at = int(ends[fitting[0 if lowest else gaps[fitting].argmin()]] if fitting.size else ends[-1])
        offset[t], top = at, at + size
        if top >= below:
            break
        place = int(start[:count].searchsorted(at))
        for row in rows:
            if place < count:
                placed[:, place + 1 : count + 1] = placed[:, place:count]
            lo[place], hi[place], start[place], stop[place] = los[row], his[row], at, top
            place, count = place + 1, count + 1
    return np.array(offset, np.int64)
