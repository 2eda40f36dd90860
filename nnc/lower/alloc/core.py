"""Plans that begin with the fullest steps: the blocks that live there leave the least freedom, so all else is placed around them.

The *core* are the blocks that live in a step whose load is close to the bound. Blocks that live in all of these steps are stacked
at the bottom, where none of them leaves a gap at such a step; greedy planners put the rest of the core on top. Blocks outside
the core have more room than they need at most steps and go into the gaps that are left, large ones first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nnc.lower.alloc.greedy import FAR, Numbers, Planner, best_fit, dive, lowest_plan, order_of, order_rank
from nnc.lower.alloc.problem import Ints, Problem, make_problem

_SHARES = (0.025, 0.006, 0.001)  # of the bound, by which a step may be less full


def core_plans(p: Problem, peak: int) -> Iterator[Planner]:
    """Yields planners whose plans may be lower than `peak`."""
    order = order_of(p.size, p.duration)
    for share in _SHARES:
        for bottom in (p.end, p.duration):
            inside, offsets = _core(p, share, bottom)
            if int((offsets + p.size)[inside].max()) < peak:
                given = np.where(inside, offsets, -1)
                first = np.concatenate([np.flatnonzero(inside), order[~inside[order]]])
                yield partial(best_fit, p, first, given=given)
                yield partial(best_fit, p, first, given=given, lowest=True)


def _core(p: Problem, share: float, bottom: Ints) -> tuple[Numbers, Ints]:
    """Chooses the blocks in the core, and their offsets: blocks that live in all full steps by falling `bottom`, the rest above."""
    full = np.cumsum(np.concatenate([[0], p.load >= (1 - share) * p.bound]))
    first, end = p.section
    steps = np.zeros(len(p.size), np.int64)
    np.add.at(steps, p.owner, full[end] - full[first])
    everywhere = np.flatnonzero(steps == full[-1])
    stack = everywhere[order_of(bottom[everywhere])]
    offsets = np.zeros(len(p.size), np.int64)
    offsets[stack] = np.cumsum(p.size[stack]) - p.size[stack]
    above = np.flatnonzero((steps > 0) & (steps < full[-1]))
    if above.size:
        number = np.full(len(p.size), -1)
        number[above] = np.arange(len(above))
        rows = np.flatnonzero(number[p.owner] >= 0)
        rest, placed = make_problem(p.size[above], p.lo[rows], p.hi[rows], number[p.owner[rows]])
        offsets[above[placed]] = int(p.size[stack].sum()) + lowest_plan(rest, _dives(rest), rest.size, FAR)[0]
    return steps > 0, offsets


def _dives(p: Problem) -> Iterator[Planner]:
    tight, duration = p.largest_load(), p.duration
    for keys in ((tight, p.size * duration, duration), (p.end, duration), (tight, duration), (p.size, duration)):
        yield partial(dive, p, order_rank(*keys))
