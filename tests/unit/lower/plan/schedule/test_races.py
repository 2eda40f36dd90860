from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import nnc
import nnc.numpy as nnp
from nnc.base.options import Options
from nnc.compiled.pipeline import plan
from nnc.errors import InternalError
from nnc.lower.plan.schedule.accesses import Access
from nnc.lower.plan.schedule.make import make_schedule
from nnc.lower.plan.schedule.races import check_schedule, find_race, happened_before
from nnc.lower.plan.schedule.types import Schedule, Signal
from nnc.lower.plan.stages import Kind, Planned
from nnc.run.program import Program
from nnc.trace.core.named import stage_named
from tests.unit.lower.plan.schedule.tools import compiled, random_schedule, two_chains


def training_step() -> Program:
    """Loss, gradients and update of two layers: many steps, memory used many times."""

    def step(w: Any, v: Any, x: Any, y: Any) -> Any:
        loss, (dw, dv) = nnc.value_and_grad(lambda w, v: nnp.mean((nnp.tanh(x @ w) @ v - y) ** 2), argnums=(0, 1))(w, v)
        return w - 0.1 * dw, v - 0.1 * dv, loss

    shapes = [(8, 8), (8, 8), (16, 8), (16, 8)]
    graph = nnc.make_graph(step)(*(nnc.ShapeDtypeStruct(shape, "float32") for shape in shapes))
    return compiled(graph, 2)


def test_without_any_signal_the_race_is_named() -> None:
    program = compiled(two_chains(iterations=1), 2)
    assert len(program.schedule.streams) == 2
    check_schedule(program.planned, program.schedule)
    with pytest.raises(
        InternalError, match=r"race: nothing orders step \d+ \(tanh\) of stream \d before step \d+ \(add\)"
    ):
        check_schedule(program.planned, replace(program.schedule, signals=()))


@pytest.mark.parametrize("seed", range(5))
def test_every_signal_is_needed_so_a_dropped_one_is_a_race(seed: int) -> None:
    planned = training_step().planned
    schedule = random_schedule(planned, 3, seed)
    check_schedule(planned, schedule)
    assert len(schedule.signals) > 3
    for dropped in schedule.signals:
        with pytest.raises(InternalError, match="race"):
            check_schedule(planned, replace(schedule, signals=tuple(s for s in schedule.signals if s != dropped)))


def moved(planned: Planned, number: int, offset: int) -> Planned:
    offsets = list(planned.offsets)
    offsets[number] = offset
    return replace(planned, offsets=tuple(offsets))


def test_a_buffer_moved_onto_another_streams_memory_is_a_race() -> None:
    program = compiled(two_chains(iterations=2), 2)
    planned, schedule = program.planned, program.schedule
    used: list[set[int]] = [
        {v.buffer for i in stream for v in (*planned.bound.steps[i].inputs, *planned.bound.steps[i].outputs)}
        for stream in schedule.streams
    ]
    arena = {i for i, buffer in enumerate(planned.bound.buffers) if buffer.kind is Kind.ARENA}
    mine, theirs = sorted(used[1] & arena - used[0]), sorted(used[0] & arena - used[1])
    assert mine and theirs
    offset = planned.offsets[theirs[0]]
    assert offset is not None
    for at in (offset, offset + 8, max(0, offset - 8)):
        with pytest.raises(InternalError, match="race"):
            check_schedule(moved(planned, mine[0], at), schedule)


def test_a_schedule_that_reverses_a_conflict_is_a_race_though_everything_is_ordered() -> None:
    program = compiled(two_chains(), 1)
    steps = tuple(reversed(program.schedule.streams[0]))
    with pytest.raises(InternalError, match="race"):
        check_schedule(program.planned, replace(program.schedule, streams=(steps,)))


def test_streams_that_wait_for_each_other_are_found() -> None:
    program = compiled(two_chains(), 2)
    first, second = program.schedule.streams
    circle = (Signal(first[-1], second[0]), Signal(second[-1], first[0]))
    assert happened_before(replace(program.schedule, signals=circle)) is None
    with pytest.raises(InternalError, match="wait for each other"):
        check_schedule(program.planned, replace(program.schedule, signals=circle))


def test_a_schedule_without_a_step_is_refused() -> None:
    program = compiled(two_chains(), 1)
    short = Schedule((program.schedule.streams[0][:-1],), (), program.schedule.planned[:-1])
    with pytest.raises(InternalError, match="each of"):
        check_schedule(program.planned, short)


def test_clocks_count_the_finished_steps_of_every_stream() -> None:
    schedule = Schedule(((0, 2), (1, 3)), (Signal(0, 1), Signal(1, 2)), ((0.0, 0.0),) * 4)
    clocks = happened_before(schedule)
    assert clocks is not None
    np.testing.assert_array_equal(clocks, [[0, 0], [1, 0], [1, 1], [1, 1]])


def test_reading_the_same_bytes_is_no_race() -> None:
    graph = nnc.make_graph(lambda x: (nnp.exp(x) @ x, nnp.tanh(x) @ x))(nnc.ShapeDtypeStruct((4, 4), "float32"))
    planned = compiled(graph).planned
    for seed in range(5):
        check_schedule(planned, random_schedule(planned, 2, seed))


@st.composite
def touching_steps(draw: st.DrawFn) -> tuple[list[list[Access]], Schedule]:
    """Up to eight steps on up to three streams, some signals between them, and the bytes that each touches."""
    count, streams = draw(st.integers(2, 8)), draw(st.integers(1, 3))
    stream_of = [draw(st.integers(0, streams - 1)) for _ in range(count)]
    pairs = [(i, j) for i, j in combinations(range(count), 2) if stream_of[i] != stream_of[j]]
    signals = tuple(Signal(i, j) for i, j in pairs if draw(st.integers(0, 2)) == 0)
    accesses = []
    for _ in range(count):
        begins = [draw(st.integers(0, 3)) for _ in range(draw(st.integers(0, 2)))]
        touched = [Access(0, at, at + draw(st.integers(1, 2)), draw(st.booleans())) for at in begins]
        accesses.append(sorted(touched, key=lambda access: not access.writes))  # as in `step_accesses`
    lists = tuple(tuple(i for i in range(count) if stream_of[i] == k) for k in range(streams))
    return accesses, Schedule(lists, signals, ((0.0, 1.0),) * count)


def conflicts(first: list[Access], second: list[Access]) -> bool:
    pairs = [(a, b) for a in first for b in second if a.writes or b.writes]
    return any(a.first < b.end and b.first < a.end for a, b in pairs)


@given(touching_steps())
def test_a_race_is_found_where_no_path_of_signals_leads_from_a_step_to_a_conflicting_one(
    drawn: tuple[list[list[Access]], Schedule],
) -> None:
    accesses, schedule = drawn
    count = len(accesses)
    follows = np.zeros((count, count), bool)
    for steps in schedule.streams:
        for i, j in combinations(steps, 2):
            follows[i, j] = True
    for signal in schedule.signals:
        follows[signal.before, signal.after] = True
    for k in range(count):  # Warshall's closure
        follows |= follows[:, k : k + 1] & follows[k : k + 1]
    racing = {
        (i, j) for i, j in combinations(range(count), 2) if conflicts(accesses[i], accesses[j]) and not follows[i, j]
    }
    clocks = happened_before(schedule)
    assert clocks is not None
    found = find_race(accesses, schedule, clocks)
    assert found in racing if racing else found is None


def data_parallel_step() -> Planned:
    """The plan of a step of one of two processes, whose gradients travel one by one."""
    sizes = [64, 800, 800, 800, 10]

    def step(*values: Any) -> Any:
        x, y, *w = values

        def loss(w: Any) -> Any:
            h = x
            for each in w[:-1]:
                h = nnp.tanh(h @ each)
            return nnp.mean((h @ w[-1] - y) ** 2)

        return [a - 0.1 * b for a, b in zip(w, nnc.grad(loss)(w), strict=True)]

    arrays = [nnp.zeros((2, 16, 64)), nnp.zeros((2, 16, 10)), *map(nnp.zeros, pairwise(sizes))]
    staged, _ = stage_named(step, "data", 2, arrays, [True, True] + [False] * 4, means=True, stride=1)
    return plan(staged.graph, Options(streams=2, verify_passes=True))


def test_messages_travel_while_the_backward_pass_goes_on_and_every_wait_is_needed() -> None:
    planned = data_parallel_step()
    schedule = make_schedule(planned, Options(streams=2))
    check_schedule(planned, schedule)
    names = [step.command.name for step in planned.bound.steps]
    messages = [i for i, name in enumerate(names) if name == "psum"]
    assert schedule.streams[1] == tuple(messages) and len(messages) == 4
    end = max(schedule.planned[i][1] for i, name in enumerate(names) if name == "dot")
    assert [schedule.planned[i][0] < end for i in messages[:-1]] == [True] * 3
    for i in messages:
        waits = [s for s in schedule.signals if s.before == i]
        assert waits
        for dropped in waits:
            with pytest.raises(InternalError, match="race"):
                check_schedule(planned, replace(schedule, signals=tuple(s for s in schedule.signals if s != dropped)))
