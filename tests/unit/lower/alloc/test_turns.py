"""Turns of the search for low plans, and that the search finds the optimum."""

from __future__ import annotations

from itertools import permutations
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packings import packing
from nnc.lower.alloc import find_overlap, plan_arena
from nnc.lower.alloc.beam import BeamSearch
from nnc.lower.alloc.greedy import order_rank, search_keys
from nnc.lower.alloc.problem import Block, Problem, block_rows, make_problem
from nnc.lower.alloc.turns import LiveSets, Style
from tests.unit.lower.alloc.elsewhere import printed_elsewhere

ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=3)
blocks = st.lists(st.tuples(st.integers(1, 40), ranges), min_size=1, max_size=25)


def problem_of(drawn: list[tuple[int, list[tuple[int, int]]]]) -> Problem:
    made = [Block(size, tuple((a, a + d) for a, d in lives)) for size, lives in drawn]
    return make_problem(*block_rows(made))[0]


def style_of(p: Problem, slack: float, width: int = 24, children: int = 4, tight: bool = True) -> Style:
    rank = order_rank(*search_keys(p)[0])
    return Style(rank, width, children, keen=60.0, bulk=1.0, cap=int(p.bound * (1 + slack)), tight=tight)


def gapless(seed: int, count: int, width: int = 24, height: int = 64) -> Problem:
    first, end, size = packing(seed, count, width, height)
    return make_problem(size, first, end, np.arange(len(size)))[0]


def test_a_narrow_search_that_aims_too_low_ends_with_a_plan_where_its_cap_may_rise() -> None:
    p = gapless(4, 80)
    style, limit = style_of(p, 0.0, width=2), int(1.3 * p.bound)
    assert BeamSearch(LiveSets.of(p), 10**12).search(style) is None
    found = BeamSearch(LiveSets.of(p), 10**12).search(style, limit)
    assert found is not None
    assert p.bound < int((found + p.size).max()) <= limit
    assert find_overlap(p.lo, p.hi, p.size, found) is None


@given(st.integers(0, 10**6), st.integers(5, 14))
def test_a_wide_search_finds_every_plan_without_a_gap(seed: int, count: int) -> None:
    p = gapless(seed, count, 12, 24)
    style = style_of(p, 0.0, width=2000, children=len(p.size))
    found = BeamSearch(LiveSets.of(p), 10**12).search(style)
    assert found is not None
    assert int((found + p.size).max()) == p.bound
    assert find_overlap(p.lo, p.hi, p.size, found) is None


few = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=5)


@given(few, st.integers(0, 3), st.randoms(use_true_random=False))
def test_a_wide_loose_search_finds_a_plan_exactly_where_there_is_one(
    rows: list[tuple[int, int, int]], slack: int, random: Random
) -> None:
    lo, length, size = np.array(rows).T
    hi = lo + length
    p, placed = make_problem(size, lo, hi, np.arange(len(rows)))
    cap = p.bound + slack
    rank = np.array(random.sample(range(len(rows)), len(rows)))
    style = Style(rank, width=1000, children=len(rows), keen=200.0, bulk=1.0, cap=cap, tight=False)
    found = BeamSearch(LiveSets.of(p), 10**12).search(style)
    assert (found is not None) == (smallest_peak(lo.tolist(), hi.tolist(), size.tolist()) <= cap)
    if found is not None:
        assert int((found + p.size).max()) <= cap
        assert find_overlap(lo[placed], hi[placed], size[placed], found) is None


def smallest_peak(first: list[int], end: list[int], size: list[int]) -> int:
    """The height of the best plan: some order, each tensor on top of those below it, gives it."""

    def peak(order: tuple[int, ...]) -> int:
        top: dict[int, int] = {}
        for i in order:
            below = [top[j] for j in top if first[i] < end[j] and first[j] < end[i]]
            top[i] = max(below, default=0) + size[i]
        return max(top.values())

    return min(map(peak, permutations(range(len(size)))))


def test_a_packing_of_two_hundred_blocks_without_a_gap_is_found() -> None:
    first, end, size = packing(100, 200, 1024, 1024)
    plan = plan_arena(first, end, size, effort=1_000_000_000)
    assert find_overlap(first, end, size, plan.offsets) is None
    assert plan.peak == plan.lower_bound
    greedy = plan_arena(first, end, size, effort=0)
    assert greedy.peak > 1.1 * greedy.lower_bound


def test_long_searches_give_the_same_plan_in_another_process() -> None:
    program = (
        "from benchmarks.packings import packing; from nnc.lower.alloc import plan_arena; "
        "print(plan_arena(*packing(1, 60, 24, 512), effort=150_000_000).offsets)"
    )
    assert len(printed_elsewhere(program)) > 100
