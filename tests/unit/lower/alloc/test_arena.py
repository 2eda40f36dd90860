from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packings import packing
from nnc.lower.alloc import ALIGNMENT, find_overlap, plan_arena
from nnc.lower.alloc.instances import read_instance
from nnc.lower.plan.liveness import max_live
from tests.unit.lower.alloc.elsewhere import printed_elsewhere

Tensors = list[tuple[int, int, int]]
tensors = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(0, 2000)), max_size=40)


def columns(rows: Tensors) -> tuple[list[int], list[int], list[int]]:
    return [a for a, _, _ in rows], [a + d for a, d, _ in rows], [n for _, _, n in rows]


def is_valid(first: Sequence[int], end: Sequence[int], size: Sequence[int], offset: Sequence[int]) -> bool:
    """Compares every pair, byte range by byte range."""
    return not any(
        first[i] < end[j] and first[j] < end[i] and offset[i] < offset[j] + size[j] and offset[j] < offset[i] + size[i]
        for i in range(len(size))
        for j in range(i)
        if size[i] and size[j]
    )


def greedy_by_size(first: Sequence[int], end: Sequence[int], size: Sequence[int]) -> int:
    """The peak of the simplest planner: largest first, each at the lowest place where it fits."""
    placed: list[tuple[int, int, int, int]] = []
    for i in sorted(range(len(size)), key=lambda i: (-size[i], first[i] - end[i], first[i], i)):
        n = -(-size[i] // ALIGNMENT) * ALIGNMENT
        live = sorted((at, at + m) for a, b, at, m in placed if a < end[i] and first[i] < b)
        gaps, top = [], 0
        for begin, stop in live:
            if begin - top >= n:
                gaps.append((begin - top, top))
            top = max(top, stop)
        placed.append((first[i], end[i], min(gaps)[1] if gaps else top, n))
    return max((at + n for _, _, at, n in placed), default=0)


@given(tensors)
def test_live_tensors_never_overlap(rows: Tensors) -> None:
    first, end, size = columns(rows)
    plan = plan_arena(first, end, size)
    assert is_valid(first, end, size, plan.offsets)
    assert find_overlap(first, end, size, plan.offsets) is None
    assert all(
        offset % ALIGNMENT == 0 and offset + n <= plan.peak for offset, n in zip(plan.offsets, size, strict=True)
    )


@given(tensors)
def test_the_peak_is_at_least_the_largest_live_set_and_at_most_that_of_greedy_by_size(rows: Tensors) -> None:
    first, end, size = columns(rows)
    plan = plan_arena(first, end, size)
    rounded = [-(-n // ALIGNMENT) * ALIGNMENT for n in size]
    loads = [sum(n for a, b, n in zip(first, end, rounded, strict=True) if a <= t < b) for t in range(52)]
    assert plan.lower_bound == max(loads) == max_live(first, end, rounded)
    assert plan.lower_bound <= plan.peak <= greedy_by_size(first, end, size)


@given(tensors, st.lists(st.integers(0, 40), min_size=40, max_size=40))
def test_the_checker_finds_overlaps_exactly(rows: Tensors, places: list[int]) -> None:
    first, end, size = columns(rows)
    offset = [50 * place for place in places[: len(rows)]]
    clash = find_overlap(first, end, size, offset)
    assert (clash is None) == is_valid(first, end, size, offset)
    if clash is not None:
        i, j = clash
        assert not is_valid(*([column[i], column[j]] for column in (first, end, size, offset)))


@pytest.mark.parametrize(
    ("rows", "peak"),
    [
        ([(0, 2, 256), (1, 2, 512), (2, 2, 256)], 768),  # the ends of a chain share their place
        ([(0, 1, 64)] * 5, 320),
        ([(i, 1, 640) for i in range(9)], 640),
        ([(i, 2, 64) for i in range(100)], 128),
        ([(0, 9, 64), (1, 2, 64), (3, 2, 128), (6, 2, 192)], 256),
        ([(0, 3, 1000), (3, 3, 1)], 1024),
        ([], 0),
        ([(0, 5, 0)], 0),
    ],
)
def test_small_cases_meet_the_bound(rows: Tensors, peak: int) -> None:
    plan = plan_arena(*columns(rows))
    assert plan.peak == plan.lower_bound == peak


def test_a_deep_network_meets_the_bound() -> None:
    """Forward and backward of 200 layers: activations of growing life, gradients that chase them."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 1000, 200) * 64
    rows = [(i, 400 - 2 * i, int(n)) for i, n in enumerate(sizes)]
    rows += [(400 - i, 2, int(n)) for i, n in enumerate(sizes)]
    plan = plan_arena(*columns(rows))
    assert plan.peak == plan.lower_bound


def test_sizes_beyond_32_bits_are_planned() -> None:
    plan = plan_arena([0, 1, 2], [2, 3, 4], [2**40, 2**41, 2**40])
    assert plan.peak == plan.lower_bound == 2**40 + 2**41


def test_the_same_tensors_get_the_same_plan_in_another_process() -> None:
    program = (
        "import numpy as np; from nnc.lower.alloc import plan_arena; rng = np.random.default_rng(1); "
        "lo, n, size = rng.integers(0, 90, 300), rng.integers(1, 30, 300), rng.integers(1, 9999, 300); "
        "print(plan_arena(lo, lo + n, size).offsets)"
    )
    assert len(printed_elsewhere(program)) > 300


def test_plans_that_greedy_planners_miss_are_searched_for() -> None:
    rng = np.random.default_rng(3)
    improved = 0
    for _ in range(20):
        lo = rng.integers(0, 150, 150)
        hi, size = lo + rng.integers(1, 40, 150), rng.integers(1, 100, 150) * ALIGNMENT
        plan = plan_arena(lo.tolist(), hi.tolist(), size.tolist())
        assert is_valid(lo, hi, size, plan.offsets)
        improved += plan.peak == plan.lower_bound < greedy_by_size(lo.tolist(), hi.tolist(), size.tolist())
    assert improved >= 10


@pytest.mark.parametrize(("seed", "count", "ratio"), [(0, 30, 1.0), (1, 60, 1.04), (2, 90, 1.1)])
def test_packings_without_a_gap_are_nearly_found(seed: int, count: int, ratio: float) -> None:
    first, end, size = packing(seed, count, 24, 512)
    plan = plan_arena(first, end, size, effort=300_000_000)
    assert is_valid(first, end, size, plan.offsets)
    assert plan.lower_bound == 512 * ALIGNMENT
    assert plan.peak <= ratio * plan.lower_bound < greedy_by_size(first, end, size)


def test_more_effort_never_makes_a_plan_worse() -> None:
    first, end, size = packing(3, 60, 24, 512)
    peaks = [plan_arena(first, end, size, effort=effort).peak for effort in (0, 5_000_000, 50_000_000)]
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent / "instances").glob("*.csv")), ids=lambda path: path.stem
)
def test_real_networks_meet_the_bound(path: Path) -> None:
    instance = read_instance(path)
    plan = plan_arena(instance.lower, instance.upper, instance.size)
    assert plan.peak == plan.lower_bound
    assert find_overlap(instance.lower, instance.upper, instance.size, plan.offsets) is None


def test_many_tensors_are_planned_near_the_bound() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 10_000, 10_000)
    end, size = first + rng.integers(1, 300, 10_000), rng.integers(1, 10_000, 10_000) * ALIGNMENT
    plan = plan_arena(first, end, size)
    assert find_overlap(first, end, size, plan.offsets) is None
    assert plan.peak <= 1.05 * plan.lower_bound
