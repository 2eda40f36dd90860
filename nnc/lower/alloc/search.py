"""Searches for a plan below the best greedy one, where none of those meets the lower bound."""

from __future__ import annotations

import numpy as np

from nnc.lower.alloc.beam import BeamSearch, Style
from nnc.lower.alloc.greedy import order_rank, search_keys
from nnc.lower.alloc.problem import Ints, Problem

_NARROWEST = 4  # partial plans of the first beams
_NOISE = (0.0, 0.1, 0.3, 0.6)  # of orders: the spread of the logarithm of their first key
_SHARES = (1.0, 0.5, 0.75, 0.25, 0.0)  # where between the bound and the best height a cap is
_KEEN = (60.0, 200.0, 500.0)
_BULK = (0.0, 0.5, 1.0, 2.0)


def improve(p: Problem, best: Ints, peak: int, budget: int) -> tuple[Ints, int]:
    """A plan that is at most as high as `best`, and its height.

    Beams of several styles, which become wider, by orders with more and more noise, until the budget of array cells is spent.
    """
    n, keys = len(p.size), search_keys(p)
    beam = BeamSearch(p, budget)
    rng = np.random.default_rng(0)
    turn, width = 0, _NARROWEST
    while p.bound < peak and beam.budget > 0:
        noise = _NOISE[turn // len(keys) % len(_NOISE)]
        first, *others = keys[turn % len(keys)]
        rank = order_rank(first * rng.lognormal(0, noise, n), *others)
        filling = turn // 2 % 2 == 0
        keen, bulk = rng.choice(_KEEN), rng.choice(_BULK)
        cap = peak - 1
        found = beam.run(Style(rank, width, filling, float(keen), float(bulk)), cap)
        if found is not None:
            import os
            if os.environ.get('DBG'): print((peak/p.bound).__round__(4), noise, filling, keen, bulk, width, turn%4, _SHARES[turn%5])
            best, peak = found, int((found + p.size).max())
        turn += 1
        if turn % 8 == 0:
            width = min(2 * width, beam.widest)
    return best, peak
