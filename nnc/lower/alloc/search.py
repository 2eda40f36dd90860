"""Searches for a plan below the best greedy one, where none of those meets the lower bound."""

from __future__ import annotations

import numpy as np

from nnc.lower.alloc.beam import BeamSearch
from nnc.lower.alloc.compiled import SPEED, native_turns
from nnc.lower.alloc.greedy import order_rank, search_keys
from nnc.lower.alloc.problem import Ints, Problem
from nnc.lower.alloc.turns import ArrayTurns, LiveSets, Style

_WORTHWHILE = 100_000_000  # array cells; below, it takes longer to start the compiler
# tight or not, and how many partial plans are kept
_LANES = ((False, 4), (False, 32), (True, 16), (True, 64), (True, 256), (True, 1024))
_LOOSE = 4  # tight ones get so many times as many cells
_RUNS = 4  # of the widest beams, at least
_NOISE = (0.0, 0.1, 0.3, 0.6)  # of orders: the spread of the logarithm of their first key
_KEEN = (30.0, 60.0, 120.0, 200.0, 500.0)
_BULK = (0.0, 0.5, 1.0, 2.0)
_CHILDREN = (3, 5, 8)
_GAP = (1.0, 0.5, 0.25, 0.1, 0.0)  # between the bound and what is wanted


def improve(p: Problem, best: Ints, peak: int, budget: int, *, native: bool) -> tuple[Ints, int]:
    """A plan that is at most as high as `best`, and its height.

    Beams of random styles and of several widths, which share the budget of array cells, until that is spent: the same number in
    each process, whatever the time that it takes. Where there is a compiler they are given more cells in about the same time.
    Tight ones aim lower at once, since they fail fast.
    """
    keys = search_keys(p)
    sets = LiveSets.of(p)
    compiled = native_turns(sets) if native and budget >= _WORTHWHILE else None
    beam = BeamSearch(sets, compiled or ArrayTurns(sets), budget * SPEED if compiled else budget)
    widest = min(beam.widest, max(beam.budget // (_RUNS * beam.cost), _LANES[0][1]))
    spent = {lane: 0 for lane in _LANES if lane[1] <= widest}
    rng = np.random.default_rng(0)
    turn = 0
    while p.bound < peak and beam.budget > 0:
        lane = tight, width = min(spent, key=lambda lane: spent[lane])
        first, *others = keys[turn % len(keys)]
        noise = _NOISE[turn // len(keys) % len(_NOISE)]
        rank = order_rank(first * rng.lognormal(0, noise, len(first)), *others)
        gap = (peak - 1 - p.bound) * (rng.choice(_GAP) if tight else 1)
        children, keen, bulk = int(rng.choice(_CHILDREN)), float(rng.choice(_KEEN)), float(rng.choice(_BULK))
        left = beam.budget
        found = beam.run(Style(rank, width, children, keen, bulk, p.bound + int(gap), tight))
        turn += 1
        spent[lane] += (left - beam.budget) * (1 if tight else _LOOSE)
        if found is not None:
            best, peak = found, int((found + p.size).max())
    return best, peak
