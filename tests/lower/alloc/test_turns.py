"""Turns of the search for low plans: NumPy's and the compiled ones give the same numbers, and the search finds the optimum."""

from __future__ import annotations

from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packings import packing
from nnc.device import load_kernels
from nnc.lower.alloc import find_overlap, plan_arena
from nnc.lower.alloc.beam import BeamSearch
from nnc.lower.alloc.compiled import NativeTurns, native_turns
from nnc.lower.alloc.greedy import order_rank, search_keys
from nnc.lower.alloc.problem import Block, Problem, block_rows, make_problem
from nnc.lower.alloc.turns import ArrayTurns, LiveSets, Moves, Style, nothing_placed
from tests.lower.alloc.elsewhere import printed_elsewhere

ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=3)
blocks = st.lists(st.tuples(st.integers(1, 40), ranges), min_size=1, max_size=25)


def compiled(sets: LiveSets) -> NativeTurns:
    pytest.importorskip("llvmlite")
    turns = native_turns(sets)
    assert turns is not None
    return turns


def problem_of(drawn: list[tuple[int, list[tuple[int, int]]]]) -> Problem:
    made = [Block(size, tuple((a, a + d) for a, d in lives)) for size, lives in drawn]
    return make_problem(*block_rows(made))[0]


def style_of(p: Problem, slack: float, width: int = 24, children: int = 4, tight: bool = True) -> Style:
    rank = order_rank(*search_keys(p)[0])
    return Style(rank, width, children, keen=60.0, bulk=1.0, cap=int(p.bound * (1 + slack)), tight=tight)


def gapless(seed: int, count: int, width: int = 24, height: int = 64) -> Problem:
    first, end, size = packing(seed, count, width, height)
    return make_problem(size, first, end, np.arange(len(size)))[0]


@given(blocks, st.sampled_from([0.0, 0.1, 0.5]), st.booleans(), st.integers(0, 9))
def test_compiled_turns_give_the_numbers_of_numpy(
    drawn: list[tuple[int, list[tuple[int, int]]]], slack: float, tight: bool, seed: int
) -> None:
    p = problem_of(drawn)
    sets = LiveSets.of(p)
    numpy, native, style = ArrayTurns(sets), compiled(sets), style_of(p, slack, tight=tight)
    rng = np.random.default_rng(seed)
    plans = nothing_placed(sets, style)
    for _ in range(3 * sets.blocks):
        moves, others = numpy.moves(plans, style), native.moves(plans, style)
        for mine, other in zip(columns(moves), columns(others), strict=True):
            np.testing.assert_array_equal(mine, other)
        if not len(moves.move):
            break
        kept = np.sort(rng.permutation(len(moves.move))[: style.width])
        chosen = Moves(*(column[kept] for column in columns(moves)))
        made = numpy.made(plans, chosen, style)
        np.testing.assert_array_equal(made.rows, native.made(plans, chosen, style).rows)
        plans = made


def columns(moves: Moves) -> tuple[np.ndarray, ...]:
    return moves.parent, moves.move, moves.penalty, moves.name


def test_a_compiled_search_ends_as_that_of_numpy_does() -> None:
    p = gapless(2, 50)
    sets = LiveSets.of(p)
    for slack, tight in ((0.02, True), (0.1, True), (0.1, False)):
        style = style_of(p, slack, tight=tight)
        ways = (ArrayTurns(sets), compiled(sets))
        found, other = (BeamSearch(sets, turns, 10**10).run(style) for turns in ways)
        assert (found is None) == (other is None)
        if found is not None and other is not None:
            np.testing.assert_array_equal(found, other)


def test_a_narrow_search_that_aims_too_low_ends_with_a_plan_where_its_cap_may_rise() -> None:
    p = gapless(4, 80)
    sets = LiveSets.of(p)
    style, limit = style_of(p, 0.0, width=2), int(1.3 * p.bound)
    assert BeamSearch(sets, ArrayTurns(sets), 10**12).run(style) is None
    found = BeamSearch(sets, ArrayTurns(sets), 10**12).run(style, limit)
    assert found is not None
    assert p.bound < int((found + p.size).max()) <= limit
    assert find_overlap(p.lo, p.hi, p.size, found) is None


@given(st.integers(0, 10**6), st.integers(5, 14))
def test_a_wide_search_finds_every_plan_without_a_gap(seed: int, count: int) -> None:
    p = gapless(seed, count, 12, 24)
    sets = LiveSets.of(p)
    style = style_of(p, 0.0, width=2000, children=len(p.size))
    found = BeamSearch(sets, ArrayTurns(sets), 10**12).run(style)
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
    sets = LiveSets.of(p)
    found = BeamSearch(sets, ArrayTurns(sets), 10**12).run(style)
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
    pytest.importorskip("llvmlite")
    first, end, size = packing(100, 200, 1024, 1024)
    plan = plan_arena(first, end, size, effort=1_000_000_000)
    assert find_overlap(first, end, size, plan.offsets) is None
    assert plan.peak == plan.lower_bound
    greedy = plan_arena(first, end, size, effort=0)
    assert greedy.peak > 1.1 * greedy.lower_bound


def test_without_a_compiler_numpy_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    first, end, size = packing(1, 60, 24, 512)
    alone = plan_arena(first, end, size, effort=150_000_000, native=False)
    monkeypatch.setattr(load_kernels("cpu"), "load_function", lambda native: None)
    plan = plan_arena(first, end, size, effort=150_000_000)
    assert plan == alone
    assert plan.peak < plan_arena(first, end, size, effort=0).peak


def test_long_searches_give_the_same_plan_in_another_process() -> None:
    program = (
        "from benchmarks.packings import packing; from nnc.lower.alloc import plan_arena; "
        "print(plan_arena(*packing(1, 60, 24, 512), effort=150_000_000).offsets)"
    )
    assert len(printed_elsewhere(program)) > 100
