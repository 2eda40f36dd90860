"""Searches for a plan below the best greedy one, where none of those meets the lower bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnc.lower.alloc.beam import BeamSearch, drawn_style
from nnc.lower.alloc.greedy import search_keys
from nnc.lower.alloc.problem import Ints, Problem
from nnc.lower.alloc.turns import LiveSets, Style

# tight or not, and how many partial plans are kept
_LANES = ((False, 4), (False, 32), (True, 16), (True, 64), (True, 256), (True, 1024))
_LOOSE = 4  # tight ones get so many times as many cells
_RUNS = 4  # of the widest beams, at least
_AGAIN = 0.5  # of the turns take the style of the last plan that was found
_GAP = (1.0, 0.5, 0.25, 0.1, 0.0)  # between the bound and the wanted height


def improve(p: Problem, best: Ints, peak: int, budget: int) -> tuple[Ints, int]:
    """Returns a plan that is at most as high as `best`, and its height.

    Beams of random styles and of several widths share the budget of array cells, until that is spent: the same number in each
    process, however long it takes. Tight ones aim lower at once, since they fail fast; half of them are in the style that has
    found the last plan.
    """
    beam = BeamSearch(LiveSets.of(p), budget)
    keys = search_keys(p)
    widest = min(beam.widest, max(beam.budget // (_RUNS * beam.cost), _LANES[0][1]))
    spent = {lane: 0 for lane in _LANES if lane[1] <= widest}
    good: dict[bool, Style] = {}  # the style that has led to a lower plan, tight or not
    rng = np.random.default_rng(0)
    turn = 0
    while p.bound < peak and beam.budget > 0:
        lane = tight, width = min(spent, key=lambda lane: spent[lane])
        gap = (peak - 1 - p.bound) * (rng.choice(_GAP) if tight else 1)
        left = beam.budget
        style = drawn_style(rng, turn, keys, width, p.bound + int(gap), tight=tight)
        if tight in good and rng.random() < _AGAIN:
            known = good[tight]
            style = replace(style, children=known.children, keen=known.keen, bulk=known.bulk)
        found = beam.search(style, peak - 1)
        turn += 1
        spent[lane] += (left - beam.budget) * (1 if tight else _LOOSE)
        if found is not None:
            best, peak, good[tight] = found, int((found + p.size).max()), style
    return best, peak
