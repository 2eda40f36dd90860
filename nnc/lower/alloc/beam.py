"""Searches for low plans breadth first: many partial plans at once, of which each turn keeps the most promising.

A partial plan is judged by how high each set of blocks that live together must become at least: its top, or the lowest place
that an unplaced block of it has, and all that is left on it. High sets count most. Everything is one array operation for all
partial plans, so this looks at as many placements a second as a depth-first search, and spends few on early mistakes.
"""

from __future__ import annotations

import numpy as np

from nnc.lower.alloc.cliques import Cliques
from nnc.lower.alloc.greedy import FAR
from nnc.lower.alloc.problem import Ints, Problem

_CHILDREN = 5  # that a partial plan may have
_CELLS = 4_000_000  # of the largest array
_KEEN = 400.0  # the power by which the height of a set counts


class BeamSearch:
    """What all searches of one problem share."""

    def __init__(self, p: Problem, cliques: Cliques) -> None:
        n, count = len(p.size), len(cliques.begin) - 1
        self.p, self.cliques = p, cliques
        self.together = (p.lo[:, None] < p.hi) & (p.lo < p.hi[:, None])
        places = np.arange(count)
        self.spans = (cliques.span[0][:, None] <= places) & (places < cliques.span[1][:, None])
        self.load = np.add.reduceat(p.size[cliques.members], cliques.begin[:-1])
        self.names = np.random.default_rng(0).integers(1, 2**62, n)  # partial plans with equal sums are equal

    @property
    def widest(self) -> int:
        """The largest number of partial plans whose arrays stay small."""
        return max(1, _CELLS // (_CHILDREN * len(self.cliques.members)))

    def cost(self, width: int) -> int:
        """How many placements of the depth-first search take about as long as one run."""
        return width * len(self.p.size) * (1 + len(self.cliques.members) // 1000)

    def run(self, rank: Ints, width: int, cap: int) -> Ints | None:
        """Offsets below `cap`; None where none are found.

        Args:     rank: which block comes first of those that can lie equally low. width: how many partial plans are kept.
        """
        p, n = self.p, len(self.p.size)
        lowest = np.zeros((1, n), np.int64)  # far away once placed
        offset = np.zeros((1, n), np.int64)
        top, left = np.zeros((1, len(self.load)), np.int64), self.load[None].copy()
        name = np.zeros(1, np.int64)
        for _ in range(n):
            parent, t = self._children(lowest, rank)
            at = lowest[parent, t]
            end = (at + p.size[t])[:, None]
            low = lowest[parent]
            np.maximum(low, end, out=low, where=self.together[t])
            low[np.arange(len(t)), t] = FAR
            spans = self.spans[t]
            high = np.where(spans, end, top[parent])
            rest = left[parent] - spans * p.size[t][:, None]
            least = np.minimum.reduceat(low[:, self.cliques.members], self.cliques.begin[:-1], axis=1)
            height = np.where(rest > 0, np.maximum(high, least), high) + rest
            names = name[parent] + self.names[t] * (at + 1)
            chosen = self._best(height, names, width, cap)
            if not chosen.size:
                return None
            lowest, top, left, name = low[chosen], high[chosen], rest[chosen], names[chosen]
            offset = offset[parent[chosen]]
            offset[np.arange(len(chosen)), t[chosen]] = at[chosen]
        return np.asarray(offset[0])

    def _children(self, lowest: Ints, rank: Ints) -> tuple[Ints, Ints]:
        """(partial plan, block) of placements that leave no room below for another block; the lowest of each plan."""
        n = lowest.shape[1]
        limit = (lowest + self.p.size).min(axis=1)
        key = np.where(lowest < limit[:, None], lowest * n + rank, FAR)
        many = min(_CHILDREN, n)
        first = np.sort(np.argpartition(key, many - 1, axis=1)[:, :many], axis=1)
        parent, place = np.nonzero(np.take_along_axis(key, first, axis=1) < FAR)
        return parent, first[parent, place]

    def _best(self, height: Ints, names: Ints, width: int, cap: int) -> Ints:
        """The most promising partial plans that can stay below the cap, each once."""
        _, different = np.unique(names, return_index=True)
        different = different[(height[different] <= cap).all(axis=1)]
        score = ((height[different] / cap) ** _KEEN).sum(axis=1)
        return different[np.lexsort((different, score))[:width]]
