"""Streams as a property: in every schedule, and however long its streams take, a program computes the same bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nnc.graph import Graph
from nnc.lower.plan.schedule.races import check_schedule
from tests.figures import with_figures
from tests.fuzz.programs import test_graphs, test_graphs_of_loops
from tests.unit.lower.plan.schedule.tools import Delays, check_same_bits, compiled, random_schedule, rescheduled


def check(graph: Graph, inputs: list[list[np.ndarray]], streams: int, seed: int, donated: tuple[int, ...] = ()) -> None:
    """Random schedules and the list schedule, with random delays, against the recorded order."""
    one = compiled(graph, 1, donated=donated)
    at_once = with_figures("schedule", signal_seconds=0.0)  # else small steps would stay together
    many = compiled(graph, streams, donated=donated, machine=at_once)
    schedule = random_schedule(one.planned, streams, seed)
    check_schedule(one.planned, schedule)
    for k, arrays in enumerate(inputs):
        expected = one.run([x.copy() for x in arrays])
        for program in (many, rescheduled(one, schedule)):
            delays = Delays(seed + k)
            check_same_bits(program.watched(delays).run([x.copy() for x in arrays]), expected)
            assert sorted(position for _, position in delays.ran) == list(range(len(one.bound.steps)))


@given(test_graphs.graphs(), st.sampled_from([2, 3]), st.integers(0, 99), st.sets(st.integers(0, 2)))
def test_random_graphs_on_streams_compute_the_same_bits(
    graph: Graph, streams: int, seed: int, given_up: set[int]
) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1, 1, spec.shape).astype(spec.dtype) for spec in graph.input_specs]
    check(graph, [arrays], streams, seed, tuple(sorted(i for i in given_up if i < len(arrays))))


@given(test_graphs_of_loops.graphs(), st.sampled_from([2, 3]), st.integers(0, 99))
def test_random_loops_and_branches_on_streams_compute_the_same_bits(graph: Graph, streams: int, seed: int) -> None:
    check(graph, [test_graphs_of_loops.arguments(graph, iterations) for iterations in (0, 3)], streams, seed)
