from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from nnc.lower.alloc import Block, find_block_overlap, plan_blocks
from nnc.lower.alloc.core import core_plans
from nnc.lower.alloc.greedy import FAR, Planner, best_fit, portfolio
from nnc.lower.alloc.instances import read_instance
from nnc.lower.alloc.problem import Problem, block_rows, make_problem

INSTANCES = Path(__file__).parent / "instances"


def problem_of(blocks: list[Block]) -> tuple[Problem, np.ndarray]:
    return make_problem(*block_rows(blocks))


def height(p: Problem, offsets: np.ndarray) -> int:
    return int((offsets + p.size).max())


def heights(p: Problem, planners: Iterable[Planner]) -> list[int]:
    return [height(p, make(below=FAR)) for make in planners]


def test_a_compiled_training_step_meets_the_bound_only_where_its_fullest_steps_come_first() -> None:
    rows = read_instance(INSTANCES / "resnet18.compiled.csv")
    blocks = [Block(n, ((a, b),)) for a, b, n in zip(rows.lower, rows.upper, rows.size, strict=True)]
    p, _ = problem_of(blocks)
    assert min(heights(p, portfolio(p))) > p.bound
    assert min(heights(p, core_plans(p, FAR))) == p.bound
    assert plan_blocks(blocks, effort=0).peak == plan_blocks(blocks).lower_bound


def test_plans_around_the_fullest_steps_never_overlap() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 10, 60):
        first, length = rng.integers(0, 40, (count, 2)), rng.integers(1, 25, (count, 2))
        blocks = [
            Block(int(n), tuple(zip(a.tolist(), (a + d).tolist(), strict=True)))
            for n, a, d in zip(rng.integers(1, 99, count), first, length, strict=True)
        ]
        p, placed = problem_of(blocks)
        plans = [make(below=FAR) for make in core_plans(p, FAR)]
        assert plans
        for offsets in plans:
            assert find_block_overlap([blocks[i] for i in placed], offsets.tolist()) is None


def test_a_plan_is_left_unfinished_only_where_it_is_not_lower() -> None:
    rng = np.random.default_rng(1)
    blocks = [Block(int(n), ((int(a), int(a + d)),)) for n, a, d in rng.integers(1, 30, (80, 3))]
    p, _ = problem_of(blocks)
    for make in (*portfolio(p), *core_plans(p, FAR)):
        plan = make(below=FAR)
        assert (make(below=height(p, plan) + 1) == plan).all()
        for below in (p.bound // 2, height(p, plan)):
            assert height(p, make(below=below)) >= below


def test_no_plan_is_made_around_a_core_that_is_as_high_as_a_known_plan() -> None:
    p, _ = problem_of([Block(3, ((0, 2),)), Block(2, ((1, 3),))])
    assert list(core_plans(p, p.bound)) == []


def test_best_fit_leaves_given_blocks_where_they_are() -> None:
    p, placed = problem_of([Block(4, ((0, 2),)), Block(4, ((0, 2),)), Block(2, ((1, 2),))])
    assert placed.tolist() == [0, 1, 2]
    assert best_fit(p, np.arange(3), given=np.array([0, 6, -1])).tolist() == [0, 6, 4]
