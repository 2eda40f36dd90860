"""Places blocks with known live ranges in one arena, as small as possible.

Greedy planners come first; the first plan that meets the lower bound (the largest live set) wins, else the smallest. Where
none meets the bound and there are not too many blocks, searches of bounded length follow. Same input, same plan, in every
process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nnc.base.later import later
from nnc.base.options import Allocator
from nnc.errors import UnsupportedError, user_error
from nnc.lower.alloc.greedy import FAR, lowest_plan, portfolio
from nnc.lower.alloc.problem import Block, Ints, Problem, block_rows, make_problem

core_plans = later(f"{__package__}.core", "core_plans")
plan_groups = later(f"{__package__}.article", "plan_groups")
improve = later(f"{__package__}.search", "improve")

ALIGNMENT = 64
THOROUGH = 6_000_000_000  # array cells: 12 seconds at most on a quiet processor
_EFFORT = 200_000  # array cells a block, by default
_MOST_EFFORT = 60_000_000  # by default: a fifth of a second
_SEARCHED = 2000  # blocks
_PAIRED = 2000  # blocks


class ArenaPlan(NamedTuple):
    """Offsets of the tensors, the arena's size, and the largest live set, which no plan can beat; all in bytes."""

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int


def plan_arena(
    first: Sequence[int],
    end: Sequence[int],
    size: Sequence[int],
    alignment: int = ALIGNMENT,
    *,
    algorithm: Allocator = "portfolio",
    effort: int | None = None,
) -> ArenaPlan:
    """Plans offsets for tensors that live in [first, end) and take `size` bytes, so that no two live ones overlap.

    Every offset and the peak are multiples of `alignment`; tensors without bytes lie at 0.

    Args:
        algorithm: "article" is the published algorithm of libnnc, "article-size" its variant that takes large tensors first;
            both serve comparisons, "article" up to 2000 tensors.
        effort: how many array cells the search may visit where no greedy plan meets the bound; None: as many as take a fifth of
            a second.

    Example:
        >>> plan_arena([0, 1, 2], [2, 3, 4], [256, 512, 256])
        ArenaPlan(offsets=(512, 0, 512), peak=768, lower_bound=768)
    """
    lo, hi, nbytes = (np.asarray(column, np.int64) for column in (first, end, size))
    return _plan(nbytes, lo, hi, np.arange(len(nbytes)), alignment, algorithm, effort)


def plan_blocks(
    blocks: Sequence[Block],
    alignment: int = ALIGNMENT,
    *,
    algorithm: Allocator = "portfolio",
    effort: int | None = None,
) -> ArenaPlan:
    """Offsets for blocks, such that no two that live in the same step overlap; see `plan_arena`.

    Example:
        >>> plan_blocks([Block(128, ((0, 2), (5, 7))), Block(128, ((2, 5),)), Block(64, ((1, 6),))])
        ArenaPlan(offsets=(0, 0, 128), peak=192, lower_bound=192)
    """
    return _plan(*block_rows(blocks), alignment, algorithm, effort)


def _plan(
    nbytes: Ints,
    lo: Ints,
    hi: Ints,
    owner: Ints,
    alignment: int,
    algorithm: Allocator,
    effort: int | None,
) -> ArenaPlan:
    units = -(-nbytes // alignment)
    offsets = np.zeros(len(units), np.int64)
    problem, placed = make_problem(units, lo, hi, owner)
    if placed.size == 0:
        return ArenaPlan((0,) * len(units), 0, 0)
    if algorithm == "article" and len(placed) > _PAIRED:
        trouble = f"the article's algorithm tries pairs of {len(placed)} tensors, which takes minutes; {_PAIRED} are the most."
        fix = 'choose "article-size", which tries no pairs, or "portfolio", the default.'
        raise user_error(UnsupportedError, "allocator", trouble, fix=fix)
    if algorithm == "portfolio":
        cells = min(_EFFORT * len(placed), _MOST_EFFORT) if effort is None else effort
        offsets[placed], peak = _best(problem, cells)
    else:
        groups = plan_groups(problem, size_first=algorithm == "article-size")
        offsets[placed], peak = groups.offsets, groups.total
    return ArenaPlan(tuple((offsets * alignment).tolist()), peak * alignment, problem.bound * alignment)


def _best(p: Problem, effort: int) -> tuple[Ints, int]:
    """Returns the smallest plan found, and its height."""
    best, peak = lowest_plan(p, portfolio(p), p.size, FAR)
    if peak == p.bound or len(p.size) > _SEARCHED:
        return best, peak
    best, peak = lowest_plan(p, core_plans(p, peak), best, peak)
    if peak > p.bound:
        best, peak = improve(p, best, peak, effort)
    return best, peak
