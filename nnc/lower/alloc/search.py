"""Searches for a plan below a given height, where no greedy planner has met the lower bound.

Depth first: tensors are placed at the lowest offset that the placed ones leave, in the order of their offsets (equal ones: of
their ranks), so each plan is reached along one path. A path ends where some set of tensors that live together no
longer fits. (The pruning follows the search of the MiniMalloc paper.) Budgets count placements, never seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnc.lower.alloc.greedy import search_ranks
from nnc.lower.alloc.problem import Ints, Problem

_FAR = np.iinfo(np.int64).max // 4


@dataclass(frozen=True, slots=True)
class Cliques:
    """The maximal sets of tensors that live in one step, in time; clique c is members[begin[c]:begin[c + 1]]."""

    members: Ints
    begin: Ints
    span: tuple[Ints, Ints]  # of each tensor: its first clique and the one after its last

    @classmethod
    def of(cls, lo: Ints, hi: Ints) -> Cliques:
        """The cliques of live ranges."""
        times = np.unique(lo)
        ends = np.unique(hi)
        until = ends[np.searchsorted(ends, times, side="right")]  # the first death after each birth
        last_births = np.flatnonzero(np.append(until[1:] != until[:-1], True))
        steps = times[last_births]
        sets = [np.flatnonzero((lo <= step) & (hi > step)) for step in steps]
        begin = np.concatenate([[0], np.cumsum([len(found) for found in sets])])
        span = np.searchsorted(steps, lo), np.searchsorted(steps, hi)
        return cls(np.concatenate(sets), begin, span)


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

    Tries the bound itself, then bisects the caps between it and the best height, with each of the ranks in turn.
    """
    if not p.is_simple:
        return best, peak
    lo, hi, size, ranks = p.lo, p.hi, p.size, search_ranks(p)
    cliques = Cliques.of(lo, hi)
    low, turn = p.bound, 0
    share = max(budget // 16, 2 * len(size))
    while low < peak and budget > 0:
        cap = (low + peak) // 2 if turn else p.bound
        found = None
        for rank in ranks:
            found = search(lo, hi, size, cliques, rank, cap, min(share, budget))
            budget -= share
            if found is not None or budget <= 0:
                break
        if found is None:
            low = cap + 1
        else:
            best, peak = found, int((found + size).max())
        turn += 1
    return best, peak
