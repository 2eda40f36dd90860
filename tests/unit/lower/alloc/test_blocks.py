from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc.lower.alloc import Block, find_block_overlap, plan_arena, plan_blocks

ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda r: (r[0], r[0] + r[1])), max_size=4)
block_lists = st.lists(st.builds(Block, st.integers(0, 500), ranges.map(tuple)), max_size=20)


def live(block: Block) -> set[int]:
    return {step for first, end in block.intervals for step in range(first, end)}


def clashes(blocks: list[Block], offsets: list[int]) -> set[tuple[int, int]]:
    """Compares every pair, step by step."""
    return {
        (i, j)
        for i, j in combinations(range(len(blocks)), 2)
        if live(blocks[i]) & live(blocks[j])
        and max(offsets[i], offsets[j]) < min(offsets[i] + blocks[i].size, offsets[j] + blocks[j].size)
    }


@given(block_lists)
def test_blocks_that_live_together_never_overlap(blocks: list[Block]) -> None:
    plan = plan_blocks(blocks)
    assert not clashes(blocks, list(plan.offsets))
    assert find_block_overlap(blocks, plan.offsets) is None
    loads = [sum(-(-b.size // 64) * 64 for b in blocks if step in live(b)) for step in range(45)]
    assert plan.lower_bound == max(loads) <= plan.peak


@given(block_lists, st.lists(st.integers(0, 30), min_size=20, max_size=20))
def test_the_checker_of_blocks_finds_overlaps_exactly(blocks: list[Block], places: list[int]) -> None:
    offsets = [30 * place for place in places[: len(blocks)]]
    expected, found = clashes(blocks, offsets), find_block_overlap(blocks, offsets)
    assert (found is None) == (not expected)
    if found is not None:
        assert (min(found), max(found)) in expected


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(0, 999)), max_size=20))
def test_blocks_of_one_range_are_planned_like_tensors(rows: list[tuple[int, int, int]]) -> None:
    first, end, size = ([row[0] for row in rows], [row[0] + row[1] for row in rows], [row[2] for row in rows])
    assert plan_blocks([Block(n, ((a, b),)) for a, b, n in zip(first, end, size, strict=True)]) == plan_arena(
        first, end, size
    )


def test_the_ranges_of_a_block_may_overlap_and_come_in_any_order() -> None:
    assert plan_blocks([Block(64, ((5, 9), (0, 3), (2, 4), (6, 7))), Block(64, ((4, 5),))]).peak == 64


@pytest.mark.parametrize("copies", [1, 2, 3, 5])
def test_the_rings_of_unrolled_loops_take_no_more_than_is_live(copies: int) -> None:
    """A carried value lives at the begin of the first copy of the round and at the end of the last, in one block."""
    steps = 3 * copies
    blocks = [Block(1024, ((0, 2), (steps - 1, steps)))]
    blocks += [Block(1024, ((3 * i - 1, 3 * i + 2),)) for i in range(1, copies)]
    blocks += [Block(512, ((3 * i, 3 * i + 3),)) for i in range(copies)]
    plan = plan_blocks(blocks)
    assert plan.peak == plan.lower_bound
    assert find_block_overlap(blocks, plan.offsets) is None


def test_blocks_of_several_ranges_are_searched_for_too() -> None:
    """Greedy planners alone, which no effort is, leave gaps that the search closes."""
    rng = np.random.default_rng(0)
    improved = 0
    for _ in range(6):
        first = rng.integers(0, 100, (60, 2))
        length, size = rng.integers(1, 10, (60, 2)), rng.integers(1, 99, 60) * 64
        blocks = [
            Block(int(n), tuple(zip(a.tolist(), (a + d).tolist(), strict=True)))
            for n, a, d in zip(size, first, length, strict=True)
        ]
        greedy, searched = plan_blocks(blocks, effort=0), plan_blocks(blocks, effort=320_000_000)
        assert find_block_overlap(blocks, searched.offsets) is None
        assert searched.lower_bound <= searched.peak <= greedy.peak
        improved += searched.peak < greedy.peak
    assert improved >= 3
