"""Searches for low plans breadth first: many partial plans at once, of which each turn keeps the most promising.

A partial plan is judged by how high each set of blocks that live together must become at least: its top, or the lowest place
that an unplaced block of it has, and all that is left on it. High sets count most. Everything is one array operation for all
partial plans, so that little is spent on early mistakes. Partial plans that place the same blocks below the same tops are one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnc.lower.alloc.greedy import FAR, Numbers
from nnc.lower.alloc.problem import Ints, Problem

_CELLS = 1_000_000  # of the partial plans that are kept
_TURN = 100_000  # cells that take as long as the calls of one turn


@dataclass(frozen=True, slots=True)
class Style:
    """How one run decides.

    `rank`: which block comes first of those that can lie equally low. `width`: how many partial plans are kept. `filling`: only
    what covers the lowest place comes next, else whatever leaves no room below it for another block. `keen`: the larger, the
    more the highest sets count. `bulk`: how much plans are preferred that have placed large blocks. `children`: how many
    continuations of a partial plan are looked at.
    """

    rank: Ints
    width: int
    filling: bool
    keen: float
    bulk: float
    children: int = 3


@dataclass(frozen=True, slots=True)
class _Plans:
    """Partial plans, a row each."""

    lowest: Ints  # place that each block can take; far away once placed
    top: Ints  # of each clique
    left: Ints  # on each clique
    offset: Ints
    name: Ints  # the sum of the names of the placed blocks
    volume: Numbers  # the sum of the logarithms of the areas of the placed blocks


class BeamSearch:
    """What all searches of one problem share, and the array cells that they may still visit."""

    def __init__(self, p: Problem, budget: int) -> None:
        self.p, self.budget = p, budget
        sets = [p.owner[rows] for rows in _cliques(p.lo, p.hi)]
        n, count = len(p.size), len(sets)
        lengths = [len(members) for members in sets]
        self.members = np.concatenate(sets)
        self.begin = np.cumsum([0, *lengths[:-1]])
        self.spans = np.zeros((n, count), bool)
        self.spans[self.members, np.repeat(np.arange(count), lengths)] = True
        self.inside = np.ascontiguousarray(self.spans.T)
        self.together = self.spans.astype(np.float32) @ self.inside.astype(np.float32) > 0
        self.load = np.add.reduceat(p.size[self.members], self.begin)
        rng = np.random.default_rng(0)
        self.names, self.places = (rng.integers(1, 2**62, k) for k in (n, count))
        self.volumes = np.log(p.size * self.spans.sum(axis=1))
        self.cells = n + len(self.members) + 4 * count  # of one partial plan

    @property
    def widest(self) -> int:
        """The largest number of partial plans whose arrays stay small."""
        return max(1, _CELLS // self.cells)

    def run(self, style: Style, cap: int) -> Ints | None:
        """Offsets below `cap`; None where none are found, or not within the budget."""
        n = len(self.p.size)
        first = np.zeros((1, n), np.int64)
        plans = _Plans(
            first, np.zeros((1, len(self.load)), np.int64), self.load[None], first, np.zeros(1, np.int64), np.zeros(1)
        )
        for turn in range(n):
            parent, t = self._children(plans, style)
            self.budget -= _TURN + len(t) * self.cells
            if self.budget < 0:
                return None
            plans = self._placed(plans, parent, t, turn, style, cap)
            if not len(plans.name):
                return None
        return np.asarray(plans.offset[0])

    def _children(self, plans: _Plans, style: Style) -> tuple[Ints, Ints]:
        """(partial plan, block) of what may come next; the lowest of each plan."""
        lowest, n = plans.lowest, len(self.p.size)
        if style.filling:
            top = np.where(plans.left > 0, plans.top, FAR)
            place = top.argmin(axis=1)
            allowed = self.inside[place] & (lowest == top[np.arange(len(top)), place][:, None])
        else:
            allowed = lowest < (lowest + self.p.size).min(axis=1)[:, None]
        key = np.where(allowed, lowest * n + style.rank, FAR)
        many = min(style.children, n)
        first = np.sort(np.argpartition(key, many - 1, axis=1)[:, :many], axis=1)
        parent, place = np.nonzero(np.take_along_axis(key, first, axis=1) < FAR)
        return parent, first[parent, place]

    def _placed(self, plans: _Plans, parent: Ints, t: Ints, turn: int, style: Style, cap: int) -> _Plans:
        """The most promising of the partial plans that come from placing block t[i] in plan parent[i]."""
        p = self.p
        rows = np.arange(len(t))
        at = plans.lowest[parent, t]
        end = (at + p.size[t])[:, None]
        lowest = plans.lowest[parent]
        np.maximum(lowest, end, out=lowest, where=self.together[t])
        lowest[rows, t] = FAR
        spans = self.spans[t]
        top = plans.top[parent]
        np.copyto(top, end, where=spans)
        left = plans.left[parent] - spans * p.size[t][:, None]
        least = np.minimum.reduceat(lowest[:, self.members], self.begin, axis=1)
        np.maximum(top, least, out=top, where=left > 0)
        height = top + left
        name = plans.name[parent] + self.names[t]
        _, kept = np.unique(name + top @ self.places, return_index=True)
        kept = np.sort(kept)
        kept = kept[height[kept].max(axis=1) <= cap]
        volume = plans.volume[parent] + self.volumes[t]
        score = np.log(np.exp((height[kept] / cap - 1) * style.keen).sum(axis=1)) - style.bulk * volume[kept] / (
            turn + 1
        )
        kept = kept[np.argsort(score, kind="stable")[: style.width]]
        offset = plans.offset[parent[kept]]
        offset[rows[: len(kept)], t[kept]] = at[kept]
        return _Plans(lowest[kept], top[kept], left[kept], offset, name[kept], volume[kept])


def _cliques(lo: Ints, hi: Ints) -> list[Ints]:
    """The maximal sets of rows that live in one step, in time."""
    times, ends = np.unique(lo), np.unique(hi)
    until = ends[np.searchsorted(ends, times, side="right")]  # the first death after each birth
    last_births = np.flatnonzero(np.append(until[1:] != until[:-1], True))
    return [np.flatnonzero((lo <= step) & (hi > step)) for step in times[last_births]]
