"""The search behind the greedy plans: its finds, and that it never makes a plan worse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc.lower.alloc import Block, find_block_overlap, plan_arena
from nnc.lower.alloc.instances import read_instance
from nnc.lower.alloc.problem import Problem, block_rows, make_problem
from nnc.lower.alloc.search import improve

INSTANCES = Path(__file__).parent / "instances"

ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=1, max_size=3)
blocks = st.lists(st.tuples(st.integers(1, 40), ranges), min_size=1, max_size=25)


def stacked(p: Problem) -> np.ndarray:
    """All blocks on top of each other."""
    return np.cumsum(p.size) - p.size


def disturbed(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A network of which some tensors are larger or smaller than they were."""
    rows = read_instance(INSTANCES / f"{name}.csv")
    rng = np.random.default_rng(seed)
    size = np.array(rows.size)
    factor = np.where(rng.random(len(size)) < 0.15, rng.choice([0.5, 0.75, 1.25, 1.5, 2.0], len(size)), 1.0)
    return np.array(rows.lower), np.array(rows.upper), (size * factor).astype(np.int64)


@given(blocks, st.integers(0, 3_000_000))
def test_its_plans_never_overlap_and_are_as_high_as_it_says(
    drawn: list[tuple[int, list[tuple[int, int]]]], budget: int
) -> None:
    made = [Block(size, tuple((a, a + d) for a, d in lives)) for size, lives in drawn]
    p, placed = make_problem(*block_rows(made))
    offsets, peak = improve(p, stacked(p), int(p.size.sum()), budget)
    assert p.bound <= peak == int((offsets + p.size).max()) <= int(p.size.sum())
    assert find_block_overlap([made[i] for i in placed], offsets.tolist()) is None


def test_a_plan_stays_where_nothing_is_lower_or_no_budget_is_given() -> None:
    p, _ = make_problem(np.array([3, 2]), np.array([0, 1]), np.array([2, 3]), np.arange(2))
    for given_plan, height, budget in (([0, 3], 5, 1_000_000), ([0, 9], 11, 0)):
        offsets, peak = improve(p, np.array(given_plan), height, budget)
        assert (offsets.tolist(), peak) == (given_plan, height)


@pytest.mark.parametrize(("seed", "meets"), [(4, True), (8, False)])
def test_networks_whose_greedy_plans_miss_the_bound_are_planned_lower(seed: int, meets: bool) -> None:
    first, end, size = disturbed("resnet18.compiled", seed)
    greedy = plan_arena(first, end, size, effort=0)
    assert greedy.peak > greedy.lower_bound
    found = plan_arena(first, end, size, effort=1_000_000_000)
    assert found.peak < greedy.peak
    assert (found.peak == found.lower_bound) == meets
