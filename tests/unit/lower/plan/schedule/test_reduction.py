from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import nnc
from nnc.backends.choose import choose_kernel
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.errors import InternalError
from nnc.graph import Graph
from nnc.lower.plan.schedule.reduction import forked_streams, joined_streams
from nnc.lower.plan.schedule.types import Schedule, Signal
from tests.fuzz.programs.test_passes import graphs
from tests.golden.programs import PROGRAMS, Program
from tests.unit.lower.plan.schedule.tools import compiled, implied_signals, random_schedule, two_chains

Edge = tuple[Any, Any]
BEGIN, END = "begin", "end"


def edges_of(schedule: Schedule) -> set[Edge]:
    """The order of a schedule, with the beginning and the end of a call, which stand in the first stream."""
    found: set[Edge] = {(signal.before, signal.after) for signal in schedule.signals}
    for steps in (s for k, s in enumerate(schedule.streams) if k):
        found |= set(pairwise(steps))
    first = [BEGIN, *schedule.streams[0], END]
    return found | set(pairwise(first))


def closure(edges: Iterable[Edge]) -> set[Edge]:
    """All pairs of which the second is reached from the first."""
    following: dict[Any, set[Any]] = {}
    for first, second in edges:
        following.setdefault(first, set()).add(second)

    def reached(start: Any) -> set[Any]:
        found, todo = set[Any](), [start]
        while todo:
            fresh = following.get(todo.pop(), set()) - found
            found |= fresh
            todo += fresh
        return found

    return {(start, end) for start in following for end in reached(start)}


def random_streams(seed: int) -> Schedule:
    """Up to ten steps on up to four streams with any signals, many of which follow from others."""
    draw = random.Random(seed)
    count, streams = draw.randrange(1, 11), draw.randrange(1, 5)
    stream_of = [draw.randrange(streams) for _ in range(count)]
    pairs = [(i, j) for i, j in combinations(range(count), 2) if draw.random() < 0.3]
    lists = tuple(tuple(i for i in range(count) if stream_of[i] == k) for k in range(streams))
    return Schedule(lists, tuple(Signal(*pair) for pair in pairs), ((0.0, 0.0),) * count)


@pytest.mark.parametrize("seed", range(300))
def test_a_signal_is_implied_where_the_order_is_the_same_without_it_and_nowhere_else(seed: int) -> None:
    schedule = random_streams(seed)
    wanted = []
    for k, signal in enumerate(schedule.signals):
        fewer = replace(schedule, signals=schedule.signals[:k] + schedule.signals[k + 1 :])
        if (signal.before, signal.after) in closure(edges_of(fewer)):
            wanted.append(signal)
    assert sorted(implied_signals(schedule)) == sorted(wanted)


@pytest.mark.parametrize("seed", range(300))
def test_forks_and_joins_hold_all_steps_within_a_call_and_none_is_superfluous(seed: int) -> None:
    schedule = random_streams(seed)
    outer: list[Edge] = [(BEGIN, schedule.streams[k][0]) for k in forked_streams(schedule)]
    outer += [(schedule.streams[k][-1], END) for k in joined_streams(schedule)]
    order = edges_of(schedule)
    steps = [i for stream in schedule.streams for i in stream]
    wanted = {edge for i in steps for edge in ((BEGIN, i), (i, END))}
    assert wanted <= closure(order | set(outer))
    for edge in outer:
        assert edge not in closure(order | set(outer) - {edge})


def test_a_signal_that_stands_twice_or_within_a_stream_is_implied() -> None:
    schedule = Schedule(((0, 1), (2,)), (Signal(0, 1), Signal(1, 2), Signal(1, 2)), ((0.0, 0.0),) * 3)
    assert implied_signals(schedule) == [Signal(0, 1), Signal(1, 2), Signal(1, 2)]
    assert implied_signals(replace(schedule, signals=(Signal(1, 2),))) == []


def test_streams_that_wait_for_each_other_have_no_reduction() -> None:
    schedule = compiled(two_chains(), 2).schedule
    first, second = schedule.streams
    circle = replace(schedule, signals=(Signal(first[-1], second[0]), Signal(second[-1], first[0])))
    with pytest.raises(InternalError, match="wait for each other"):
        joined_streams(circle)


# -- schedules of programs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_no_signal_of_a_network_is_implied(make: Callable[[], Program]) -> None:
    program = make()
    graph = nnc.make_graph(program.fun)(*program.arguments)
    found = 0
    for streams in (2, 3, 8):
        lowered = lower(graph, Options(streams=streams, native=False), choose_kernel)
        assert implied_signals(lowered.schedule) == []
        found += len(lowered.schedule.signals)
    for seed in range(5):
        schedule = random_schedule(lowered.planned, 3, seed)
        assert implied_signals(schedule) == []
        found += len(schedule.signals)
    assert found > 10


@given(graphs(), st.integers(2, 4), st.integers(0, 99))
def test_no_signal_of_a_generated_graph_is_implied(graph: Graph, streams: int, seed: int) -> None:
    lowered = lower(graph, Options(streams=streams, native=False), choose_kernel)
    assert implied_signals(lowered.schedule) == []
    assert implied_signals(random_schedule(lowered.planned, streams, seed)) == []
