"""Searches for a plan below a given height, where no greedy planner has met the lower bound.

Depth first: tensors are placed at the lowest offset that the placed ones leave, in the order of their offsets (equal ones: of
their ranks), so each plan is reached along one path. A path ends where some set of tensors that live together no
longer fits. (The pruning follows the search of the MiniMalloc paper.) Budgets count placements, never seconds.
"""

from __future__ import annotations

import numpy as np

from nnc.lower.alloc.beam import BeamSearch
from nnc.lower.alloc.cliques import Cliques
from nnc.lower.alloc.greedy import order_rank, search_keys
from nnc.lower.alloc.problem import Ints, Problem

_NARROWEST = 4  # partial plans of the first beams
_NOISE = (0.0, 0.05, 0.2, 0.5)  # of orders: the spread of the logarithm of their first key
_SHARES = (0.0, 0.5, 0.75, 0.9, 1.0)  # where between the bound and the best height a cap is
_FAR = np.iinfo(np.int64).max // 4


def search(lo: Ints, hi: Ints, size: Ints, cliques: Cliques, rank: Ints, cap: int, budget: int) -> Ints | None:
    """Offsets below `cap`, or None where there are none or `budget` placements did not find them."""
    state = _State(lo, hi, size, cliques, rank, cap)
    stack = [state.candidates(0, -1)]
    while stack:
        if not stack[-1]:
            stack.pop()
            if stack:
                state.undo()
            continue
        t = stack[-1].pop()
        budget -= 1
        if budget < 0:
            return None
        at = int(state.lowest[t])
        has_neighbours = state.place(t)
        if not state.fits(t, at):
            state.undo()
            continue
        if state.unplaced == 0:
            return state.offset
        if not has_neighbours:  # then placing another tensor first changes nothing for this one
            stack[-1].clear()
        stack.append(state.candidates(at, int(rank[t])))
    return None


class _State:
    """Where the search is: what is placed, how low the others can go, and how to take placements back."""

    def __init__(self, lo: Ints, hi: Ints, size: Ints, cliques: Cliques, rank: Ints, cap: int) -> None:
        self.lo, self.hi, self.size, self.cliques, self.rank, self.cap = lo, hi, size, cliques, rank, cap
        n, count = len(size), len(cliques.begin) - 1
        self.unplaced = n
        self.offset = np.zeros(n, np.int64)
        self.lowest = np.zeros(n, np.int64)  # far away once placed
        self.top = np.zeros(count, np.int64)
        self.left = np.add.reduceat(size[cliques.members], cliques.begin[:-1])
        self.log: list[tuple[int, Ints, Ints, Ints]] = []

    def candidates(self, at: int, rank: int) -> list[int]:
        """The tensors that may come next, best last."""
        lowest = self.lowest
        limit = int((lowest + self.size).min())  # what lies above this leaves room for another tensor below it
        found = np.flatnonzero((lowest < limit) & ((lowest > at) | ((lowest == at) & (self.rank > rank))))
        order = np.lexsort((self.rank[found], lowest[found]))
        return [int(t) for t in found[order[::-1]]]

    def place(self, t: int) -> bool:
        """Places t as low as it goes; says whether unplaced tensors live together with it."""
        at = self.lowest[t]
        self.offset[t] = at
        self.lowest[t] = _FAR
        near = (self.lo < self.hi[t]) & (self.hi > self.lo[t]) & (self.lowest < _FAR)
        raised = np.flatnonzero(near & (self.lowest < at + self.size[t]))
        span = slice(int(self.cliques.span[0][t]), int(self.cliques.span[1][t]))
        self.log.append((t, raised, self.lowest[raised], self.top[span].copy()))
        self.lowest[raised] = at + self.size[t]
        self.top[span] = at + self.size[t]
        self.left[span] -= self.size[t]
        self.unplaced -= 1
        return bool(near.any())

    def undo(self) -> None:
        """Takes the last placement back."""
        t, raised, lowest, top = self.log.pop()
        self.lowest[raised] = lowest
        self.lowest[t] = self.offset[t]
        span = slice(int(self.cliques.span[0][t]), int(self.cliques.span[1][t]))
        self.top[span] = top
        self.left[span] += self.size[t]
        self.unplaced += 1

    def fits(self, t: int, at: int) -> bool:
        """Whether every clique can still end below the cap, now that nothing more goes below `at`."""
        if at + int(self.left.max()) > self.cap:
            return False
        raised = self.log[-1][1]
        first = int(min(self.cliques.span[0][t], self.cliques.span[0][raised].min(initial=_FAR)))
        end = int(max(self.cliques.span[1][t], self.cliques.span[1][raised].max(initial=0)))
        begin = self.cliques.begin[first : end + 1]
        least = np.minimum.reduceat(self.lowest[self.cliques.members[begin[0] : begin[-1]]], begin[:-1] - begin[0])
        left = self.left[first:end]
        height = (
            np.maximum(np.maximum(np.where(left > 0, least, 0), self.top[first:end]), np.where(left > 0, at, 0)) + left
        )
        return bool((height <= self.cap).all())


def improve(p: Problem, best: Ints, peak: int, budget: int) -> tuple[Ints, int]:
    """A plan that is at most as high as `best`, and its height.

    Alternates short searches at caps between the bound and the best height with beams that become wider, by orders with more and
    more noise, until the budget of placements is spent.
    """
    if not p.is_simple:
        return best, peak
    n, keys = len(p.size), search_keys(p)
    cliques = Cliques.of(p.lo, p.hi)
    beam = BeamSearch(p, cliques)
    rng = np.random.default_rng(0)
    turn, width = 0, _NARROWEST
    while p.bound < peak and budget > 0:
        noise = _NOISE[turn // len(keys) % len(_NOISE)]
        first, *others = keys[turn % len(keys)]
        rank = order_rank(first * rng.lognormal(0, noise, n), *others) if noise else order_rank(first, *others)
        share = _SHARES[turn % len(_SHARES)]
        cap = p.bound + int((peak - 1 - p.bound) * share)
        limit = min(budget, (2 if share else 10) * n)
        found = search(p.lo, p.hi, p.size, cliques, rank, cap, limit)
        budget -= limit
        if found is None and beam.cost(width) <= budget:
            budget -= beam.cost(width)
            found = beam.run(rank, width, peak - 1)
        if found is not None:
            best, peak = found, int((found + p.size).max())
        turn += 1
        if turn % len(keys) == 0:
            width = min(2 * width, beam.widest)
    return best, peak
