from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnc.lower.plan.ordering import OperationGraph
from nnc.lower.plan.rematerialize import RunOrder, TimedOperations, fit, squeeze
from tests.unit.lower.plan.test_ordering import training_step


def problem(graph: OperationGraph, once: frozenset[int] = frozenset()) -> TimedOperations:
    """Operations that take as long as they move bytes; operations in `once` must not be repeated."""
    nbytes = graph.nbytes
    seconds = [
        1e-6 + 1e-10 * sum(nbytes[s] for s in (*reads, *writes))
        for reads, writes in zip(graph.reads, graph.writes, strict=True)
    ]
    repeatable = [i not in once for i in range(len(seconds))]
    return TimedOperations(graph, seconds, repeatable, [0] * len(seconds))


def there_and_back(length: int, nbytes: int = 64) -> TimedOperations:
    """Values made one from the other, and read once more in the opposite order, as backpropagation does."""
    reads: list[tuple[int, ...]] = [()] + [(i,) for i in range(length - 1)]
    reads += [(length - 1,)] + [(length + k, length - 2 - k) for k in range(length - 1)]
    writes = [(i,) for i in range(2 * length)]
    nothing: list[tuple[Any, ...]] = [()] * (2 * length)
    kept = frozenset({2 * length - 1})
    return problem(OperationGraph([nbytes] * (2 * length), reads, writes, nothing, nothing, kept))


def replay(case: TimedOperations, schedule: RunOrder) -> int:
    """The largest live set of a schedule, without operands that are overwritten; checks that it computes all values read."""
    graph = case.graph
    runs = Counter(schedule.operations)
    assert list(dict.fromkeys(schedule.operations)) == list(range(len(graph.reads)))
    assert all(case.repeatable[i] for i, count in runs.items() if count > 1)
    version: dict[int, int] = {}
    lives: list[list[int]] = []  # storage, first, last
    for at, i in enumerate(schedule.operations):
        for s in graph.reads[i]:
            if graph.writer[s] >= 0:
                lives[version[s]][2] = at
        for s in graph.writes[i]:
            if s not in graph.kept or s not in version:  # a storage that is kept is kept as it was first computed
                version[s] = len(lives)
            lives.append([s, at, len(schedule.operations) if s in graph.kept and version[s] == len(lives) else at])
    live = [0] * (len(schedule.operations) + 1)
    for s, first, last in lives:
        for at in range(first, last + 1):
            live[at] += graph.nbytes[s]
    assert sum(case.seconds[i] * (count - 1) for i, count in runs.items()) == pytest.approx(schedule.seconds)
    return max(live)


def test_nothing_is_repeated_where_all_fits() -> None:
    case = there_and_back(20)
    cheapest = fit(case, case.peak)[0]
    assert cheapest.operations == tuple(range(40))
    assert cheapest.seconds == 0.0


@pytest.mark.parametrize("values", [20, 8, 6])
def test_a_chain_and_its_way_back_fit_into_a_few_values(values: int) -> None:
    case = there_and_back(20)
    schedule = fit(case, values * 64)[0]
    assert replay(case, schedule) <= schedule.peak <= values * 64
    assert schedule.seconds > 0


def test_less_memory_takes_more_time() -> None:
    case = there_and_back(64)
    seconds = [fit(case, part * case.peak // 8)[0].seconds for part in (8, 6, 4, 2)]
    assert seconds == sorted(seconds)
    assert len(set(seconds)) == 4


def test_the_square_root_of_a_chain_is_enough_for_one_more_pass() -> None:
    case = there_and_back(100)
    schedule = fit(case, 24 * 64)[0]
    assert len(schedule.operations) <= 200 + 110


def test_cheap_values_are_repeated_rather_than_expensive_ones() -> None:
    case = there_and_back(16)
    dear = TimedOperations(case.graph, [1e-6 if i % 2 else 1e-3 for i in range(32)], case.repeatable, case.extra)
    schedule = fit(dear, 13 * 64)[0]
    again = {i for i, count in Counter(schedule.operations).items() if count > 1}
    assert again
    assert all(i % 2 for i in again)


def test_operations_that_are_not_repeatable_run_once_and_their_results_are_kept() -> None:
    case = there_and_back(20)
    once = problem(case.graph, once=frozenset({0, 7, 12}))
    schedule = fit(once, 9 * 64)[0]
    assert replay(once, schedule) <= 9 * 64
    assert (
        problem(case.graph, once=frozenset(range(40))).peak
        == squeeze(problem(case.graph, once=frozenset(range(40)))).peak
    )


def test_results_take_the_place_of_operands_that_are_computed_again() -> None:
    graph = OperationGraph(
        [64, 64, 64], [(), (0,), (1,), (0,)], [(0,), (1,), (), (2,)], [()] * 4, [(), ((0, 1),), (), ()], frozenset({2})
    )
    schedule = fit(problem(graph), 128)[0]
    assert schedule.operations == (0, 1, 2, 3)
    tight = fit(TimedOperations(graph, [1.0] * 4, [True] * 4, [0, 0, 64, 0]), 128)[0]
    assert tight.operations == (0, 1, 2, 0, 3)


def test_workspace_of_an_operation_counts() -> None:
    case = there_and_back(6)
    heavy = TimedOperations(case.graph, case.seconds, case.repeatable, [64 * 3 if i == 4 else 0 for i in range(12)])
    assert heavy.peak == 64 * 8
    schedule = fit(heavy, 64 * 6)[0]
    assert schedule.seconds > 0
    assert not fit(heavy, 64 * 4)


@pytest.mark.parametrize(
    ("name", "part", "time"), [("resnet18", 0.5, 0.3), ("resnet50", 0.5, 0.2), ("transformer12", 0.5, 0.3)]
)
def test_training_steps_fit_into_half_their_memory(name: str, part: float, time: float) -> None:
    case = problem(training_step(name))
    schedule = fit(case, int(part * case.peak))[0]
    assert replay(case, schedule) <= part * case.peak
    assert schedule.seconds <= time * sum(case.seconds)


@st.composite
def problems(draw: Any) -> TimedOperations:
    count = draw(st.integers(1, 16))
    nbytes: list[int] = [64]
    reads, writes, kept = [], [], set()
    for _ in range(count):
        reads.append(tuple(draw(st.lists(st.integers(0, len(nbytes) - 1), max_size=3))))
        results = draw(st.integers(1, 2))
        writes.append(tuple(range(len(nbytes), len(nbytes) + results)))
        nbytes += [64 * draw(st.integers(0, 4)) for _ in range(results)]
        kept |= {s for s in writes[-1] if draw(st.integers(0, 5)) == 0}
    nothing: list[tuple[Any, ...]] = [()] * count
    once = draw(st.frozensets(st.integers(0, count - 1), max_size=3))
    return problem(OperationGraph(nbytes, reads, writes, nothing, nothing, frozenset(kept)), once)


@given(problems(), st.floats(0.2, 1.0))
def test_every_schedule_keeps_to_its_limit(case: TimedOperations, part: float) -> None:
    limit = int(part * case.peak)
    for schedule in fit(case, limit):
        assert replay(case, schedule) <= schedule.peak <= limit
    least = squeeze(case)
    assert replay(case, least) <= least.peak <= case.peak
