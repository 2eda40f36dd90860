"""Searches the fullest steps alone and fits all else around them: real programs are as full as their peak at few steps only.

The core begins with the blocks that live at the fullest steps. A beam places them below the bound, and all other blocks go into
the gaps that are left. Where one of those does not fit, the fullest step of its life joins the core's steps, and the core is
searched anew: it grows by blocks that turn out to be hard, and mostly stays small.
"""

from __future__ import annotations

import numpy as np

from nnc.lower.alloc.beam import BeamSearch, drawn_style
from nnc.lower.alloc.greedy import Numbers, best_fit, order_of, search_keys
from nnc.lower.alloc.problem import Ints, Problem, make_problem
from nnc.lower.alloc.turns import CALLS, LiveSets

_SHARE = 0.02  # of the bound, by which a step of the first core may be less full
_MOST = 0.9  # of the blocks: larger cores are left to searches of all blocks
_NARROW = 4  # partial plans that are kept at first
_WIDER = 16  # runs, after which twice as many are
_FITS = 4  # blocks that are fit into gaps in the time of a turn's calls


def search_fullest(p: Problem, best: Ints, peak: int, budget: int) -> tuple[Ints, int, int]:
    """Returns the lowest of `best` and the plans found, its height, and the rest of the budget."""
    rng = np.random.default_rng(0)
    full = p.load >= (1 - _SHARE) * p.bound
    core = _Core(p, full)
    run = 0
    while p.bound < peak and budget > 0 and core.blocks.size < _MOST * len(p.size):
        width = _NARROW << run // _WIDER
        style = drawn_style(rng, run // 2, core.keys, width, p.bound, tight=run % 2 == 0)
        core.beam.budget = budget
        found = core.beam.search(style)
        budget = core.beam.budget
        if found is None:
            run += 1
            continue
        budget -= CALLS * len(p.size) // _FITS
        offsets = core.completed(found)
        top = offsets + p.size
        if int(top.max()) < peak:
            best, peak = offsets, int(top.max())
        full[core.fullest(np.flatnonzero(top > p.bound))] = True
        if p.bound < peak:
            core = _Core(p, full)
    return best, peak, budget


class _Core:
    """The blocks that live at some sections, and the search for places of theirs."""

    def __init__(self, p: Problem, full: Numbers) -> None:
        self._problem = p
        before = np.cumsum(np.concatenate([[0], full]))
        first, end = p.section
        self._inside = np.zeros(len(p.size), bool)
        self._inside[p.owner[before[end] > before[first]]] = True
        number = np.cumsum(self._inside) - 1
        rows = np.flatnonzero(self._inside[p.owner])
        inside = np.flatnonzero(self._inside)
        core, placed = make_problem(p.size[inside], p.lo[rows], p.hi[rows], number[p.owner[rows]])
        self.blocks: Ints = inside[placed]
        self.keys = search_keys(core)
        self.beam = BeamSearch(LiveSets.of(core), 0)

    def completed(self, found: Ints) -> Ints:
        """Returns a plan with the core at these offsets and all else in the gaps, large blocks first."""
        p = self._problem
        given = np.full(len(p.size), -1)
        given[self.blocks] = found
        order = order_of(p.size, p.duration)
        first = np.concatenate([self.blocks, order[~self._inside[order]]])
        plans = [best_fit(p, first, given=given, lowest=lowest) for lowest in (False, True)]
        return min(plans, key=lambda offsets: int((offsets + p.size).max()))

    def fullest(self, blocks: Ints) -> Ints:
        """Returns the fullest section of each block's first life."""
        p = self._problem
        rows = p.rows[p.first_row[blocks]]
        first, end = (column[rows].tolist() for column in p.section)
        return np.array([a + int(p.load[a:b].argmax()) for a, b in zip(first, end, strict=True)], np.int64)
