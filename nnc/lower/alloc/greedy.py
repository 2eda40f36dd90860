"""Greedy planners, each cheap and good at another kind of graph, and the order in which they are tried.

The dive always places the block that can lie lowest; the best fit takes the tightest gap for each block of a fixed order.
Both cost O(n) vector work a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnc.lower.alloc.problem import Ints, Problem

Numbers = np.ndarray[Any, Any]
FAR = np.iinfo(np.int64).max // 4
_MANY = 4000  # blocks; above, the planners that rarely win are left out


def portfolio(p: Problem) -> Iterator[Ints]:
    """Plans, the most promising first."""
    tight, duration = p.largest_load(), p.duration
    area = p.size * duration
    yield dive(p, order_rank(tight, area, duration))
    yield dive(p, order_rank(tight, duration, area))
    yield best_fit(p, order_of(p.size, duration))
    if len(p.size) > _MANY:
        return
    yield best_fit(p, order_of(p.size), lowest=True)
    yield dive(p, order_rank(p.end, duration))
    yield best_fit(p, order_of(tight, p.size))  # by breadth: the fullest steps first
    yield dive(p, order_rank(area, duration))
    yield dive(p, order_rank(-p.start, duration))
    yield dive(p, order_rank(p.size, duration))
    yield best_fit(p, order_of(duration, p.size))


def search_keys(p: Problem) -> list[tuple[Ints, ...]]:
    """The orders in which the search tries blocks that can lie equally low."""
    tight, duration = p.largest_load(), p.duration
    area = p.size * duration
    return [(tight, duration, area), (duration, area, tight), (tight, area, duration), (p.end, duration)]


def order_rank(*keys: Numbers) -> Ints:
    """The place of each block in the order by `keys`."""
    rank = np.empty(len(keys[0]), np.int64)
    rank[order_of(*keys)] = np.arange(len(rank))
    return rank


def order_of(*keys: Numbers) -> Ints:
    """The blocks by falling keys, the first of which counts most; ties in order of their start."""
    return np.lexsort(tuple(-key for key in reversed(keys)))


def dive(p: Problem, rank: Ints) -> Ints:
    """Places at every turn the block that can lie lowest (ties: by `rank`), on top of those placed at the same time."""
    n = len(p.size)
    lo, hi, owner, simple = p.lo, p.hi, p.owner, p.is_simple
    begin, later, start, size = p.begin.tolist(), p.later.tolist(), lo.tolist(), p.size.tolist()
    offset = [0] * n
    key = rank.copy()  # lowest place · n + rank, and far away once placed
    for _ in range(n):
        t = int(key.argmin())
        offset[t] = at = int(key[t]) // n
        key[t] = FAR
        floor = (at + size[t]) * n
        for row in (t,) if simple else p.rows_of(t).tolist():
            near = slice(begin[row], later[row])
            keys = key[near] if simple else key[owner[near]]
            raised = np.flatnonzero((keys < floor) & (hi[near] > start[row]))
            if raised.size:
                raised += begin[row]
                if not simple:
                    raised = owner[raised]
                key[raised] = rank[raised] + floor
    return np.array(offset, np.int64)


def best_fit(p: Problem, order: Ints, lowest: bool = False, given: Ints | None = None) -> Ints:
    """Takes the blocks in order and puts each into the tightest gap between those that live at the same time.

    Args:     lowest: take the lowest gap instead. given: offsets of blocks that have their places, -1 of others.
    """
    fixed = [-1] * len(order) if given is None else given.tolist()
    offset = np.zeros(len(p.size), np.int64)
    lo, hi, start, stop = (np.empty(len(p.lo), np.int64) for _ in range(4))  # the placed rows, by offset
    count = 0
    for t in order.tolist():
        rows, size = p.rows_of(t), p.size[t]
        at = fixed[t]
        if at < 0:
            together = np.zeros(count, bool)
            for row in rows:
                together |= (lo[:count] < p.hi[row]) & (hi[:count] > p.lo[row])
            found = np.flatnonzero(together)
            ends = np.maximum.accumulate(np.concatenate([[0], stop[found]]))
            gaps = start[found] - ends[:-1]
            fitting = np.flatnonzero(gaps >= size)
            at = int(ends[fitting[0 if lowest else gaps[fitting].argmin()]] if fitting.size else ends[-1])
        offset[t] = at
        place = int(np.searchsorted(start[:count], at))
        for column, values in ((lo, p.lo[rows]), (hi, p.hi[rows]), (start, at), (stop, at + size)):
            column[place + len(rows) : count + len(rows)] = column[place:count].copy()
            column[place : place + len(rows)] = values
        count += len(rows)
    return offset
