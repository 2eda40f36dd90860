"""Searches for a plan below the best greedy one, where none of those meets the lower bound."""

from __future__ import annotations

import numpy as np

from nnc.lower.alloc.beam import BeamSearch, Style
from nnc.lower.alloc.greedy import order_rank, search_keys
from nnc.lower.alloc.problem import Ints, Problem

_NARROWEST = 4  # partial plans of the first beams
_NOISE = (0.0, 0.1, 0.3, 0.6)  # of orders: the spread of the logarithm of their first key
_KEEN = (60.0, 200.0, 500.0)
_BULK = (0.0, 0.5, 1.0, 2.0)


def improve(p: Problem, best: Ints, peak: int, budget: int) -> tuple[Ints, int]:
    """A plan that is at most as high as `best`, and its height.

    Beams of several styles, which become wider, by orders with more and more noise, until the budget of array cells is spent:
    the same number in each process, whatever the time that it takes.
    """
    keys = search_keys(p)
    beam = BeamSearch(p, budget)
    rng = np.random.default_rng(0)
    turn, width = 0, _NARROWEST
    while p.bound < peak and beam.budget > 0:
        first, *others = keys[turn % len(keys)]
        noise = _NOISE[turn // len(keys) % len(_NOISE)]
        rank = order_rank(first * rng.lognormal(0, noise, len(first)), *others)
        keen, bulk = float(rng.choice(_KEEN)), float(rng.choice(_BULK))
        found = beam.run(Style(rank, width, turn // 2 % 2 == 0, keen, bulk), peak - 1)
        if found is not None:
            best, peak = found, int((found + p.size).max())
        turn += 1
        if turn % 8 == 0:
            width = min(2 * width, beam.widest)
    return best, peak
