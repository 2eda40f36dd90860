from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.base.options import Options
from nnc.lower.plan.schedule import assign as assign_module
from nnc.lower.plan.schedule.accesses import Access
from nnc.lower.plan.schedule.assign import MESSAGES, assign, choose_streams, find_signals
from nnc.lower.plan.schedule.dependencies import find_dependencies
from nnc.lower.plan.schedule.types import Schedule, Signal
from tests.figures import HERE, with_figures
from tests.unit.lower.plan.schedule.tools import compiled, two_chains

FREE: list[int | None] = [None] * 20
SIGNAL = HERE.schedule.signal_seconds


def fork_and_join(length: int) -> list[tuple[int, ...]]:
    """Step 0, then two chains in turn, then a step that reads both ends."""
    chains = [(max(i - 2, 0),) for i in range(1, 2 * length + 1)]
    return [(), *chains, (2 * length - 1, 2 * length)]


def test_chains_run_side_by_side_and_meet_with_few_signals() -> None:
    schedule = assign(fork_and_join(3), [1.0] * 8, FREE, 2, SIGNAL)
    assert sorted(map(len, schedule.streams)) == [4, 4]
    assert len(schedule.signals) == 2
    assert schedule.seconds == pytest.approx(5, abs=0.01)


def test_the_longest_chain_goes_first() -> None:
    before = [
        (),
        (),
        (),
        (),
        (2,),
        (4,),
        (5,),
    ]  # three single steps, and a chain of four that the recorded order begins last
    schedule = assign([(), (), (), (), (3,), (4,), (5,)], [1.0] * 7, FREE, 2, SIGNAL)
    assert schedule.planned[3] == (0.0, 1.0)
    assert schedule.seconds == pytest.approx(4, abs=0.01)
    assert assign(before, [1.0] * 7, FREE, 1, SIGNAL).seconds == 7


def test_short_steps_are_not_worth_a_signal() -> None:
    assert len(assign([(), (0,), (0,), (1, 2)], [1e-6] * 4, FREE, 2, SIGNAL).streams) == 1


def test_steps_that_must_stay_run_in_the_first_stream() -> None:
    pinned = [None, 0, 0, 0, 0, 0, 0, None]
    schedule = assign(fork_and_join(3), [1.0] * 8, pinned, 2, SIGNAL)
    assert all(schedule.stream_of[i] == 0 for i in range(1, 7))


def test_messages_travel_in_a_stream_of_their_own_while_the_next_gradient_is_computed() -> None:
    # a backward pass: errors 0, 1, 2, each with its gradient 3, 4, 5, then messages 6, 7, 8 and updates 9, 10, 11
    before = [(), (0,), (1,), (0,), (1,), (2,), (3,), (4, 6), (5, 7), (6,), (7,), (8,)]
    pinned = [None] * 6 + [MESSAGES] * 3 + [None] * 3
    two = assign(before, [1.0] * 12, pinned, 2, SIGNAL)
    assert two.streams == ((0, 3, 1, 4, 2, 5, 9, 10, 11), (6, 7, 8))
    assert two.planned[6][0] == pytest.approx(2, abs=0.01) and two.seconds == pytest.approx(9, abs=0.01)
    assert {(s.before, s.after) for s in two.signals} == {(3, 6), (4, 7), (5, 8), (6, 9), (7, 10), (8, 11)}
    three = assign(before, [1.0] * 12, pinned, 3, SIGNAL)
    assert three.streams[1] == (6, 7, 8) and len(three.streams) == 3 and three.seconds < two.seconds
    assert len(assign(before, [1.0] * 12, pinned, 1, SIGNAL).streams) == 1


@st.composite
def problems(draw: Any) -> tuple[list[tuple[int, ...]], list[float]]:
    count = draw(st.integers(0, 14))
    before = [tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=3)))) if i else () for i in range(count)]
    return before, [draw(st.sampled_from([1e-6, 1e-4, 1.0])) for _ in before]


def reached(schedule: Schedule) -> list[set[int]]:
    """Finds for each step the steps that are done when it begins, by a search."""
    edges: list[set[int]] = [set() for _ in schedule.planned]
    for steps in schedule.streams:
        for a, b in pairwise(steps):
            edges[b].add(a)
    for signal in schedule.signals:
        edges[signal.after].add(signal.before)
    found = []
    for step in range(len(edges)):
        seen, stack = set(), [step]
        while stack:
            new = edges[stack.pop()] - seen
            seen |= new
            stack += new
        found.append(seen)
    return found


@given(problems(), st.integers(1, 4))
def test_every_step_runs_once_and_follows_those_before_it(
    problem: tuple[list[tuple[int, ...]], list[float]], streams: int
) -> None:
    before, seconds = problem
    schedule = assign(before, seconds, [None] * len(before), streams, SIGNAL)
    assert 1 <= len(schedule.streams) <= streams
    assert sorted(i for steps in schedule.streams for i in steps) == list(range(len(before)))
    for step, done in enumerate(reached(schedule)):
        assert set(before[step]) <= done
        assert all(schedule.planned[i][1] <= schedule.planned[step][0] for i in before[step])
    for k, signal in enumerate(schedule.signals):  # none is implied by the others
        signals = schedule.signals[:k] + schedule.signals[k + 1 :]
        fewer = Schedule(schedule.streams, signals, schedule.planned)
        assert signal.before not in reached(fewer)[signal.after]
        assert schedule.stream_of[signal.before] != schedule.stream_of[signal.after]
    assert schedule == assign(before, seconds, [None] * len(before), streams, SIGNAL)


def test_a_signal_that_follows_from_others_is_left_out() -> None:
    before = [(), (0,), (0, 1), (0, 2)]
    assert find_signals(before, [[0], [1, 2], [3]], [0, 1, 2, 3]) == (Signal(0, 1), Signal(2, 3))


# -- which bytes ---------------------------------------------------------------------------------------------------------


def read(first: int, end: int, memory: int = 0) -> Access:
    return Access(memory, first, end, False)


def write(first: int, end: int, memory: int = 0) -> Access:
    return Access(memory, first, end, True)


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        ([[write(0, 8)], [read(0, 8)]], [(), (0,)]),
        ([[write(0, 8)], [read(8, 16)]], [(), ()]),
        ([[write(0, 8)], [read(7, 9)]], [(), (0,)]),
        ([[write(0, 8)], [write(4, 6)], [read(0, 4)], [read(5, 8)]], [(), (0,), (0,), (1,)]),
        ([[write(0, 8)], [read(0, 8)], [read(0, 8)], [write(0, 8)]], [(), (0,), (0,), (1, 2)]),
        ([[write(0, 8)], [write(0, 8, memory=1)], [read(0, 8), read(0, 8, memory=1)]], [(), (), (0, 1)]),
        ([[write(0, 8)], [write(0, 8), read(0, 8)], [read(0, 8)]], [(), (0,), (1,)]),
        ([[write(0, 8)], [read(0, 2)], [read(6, 8)], [write(1, 7)], [read(0, 8)]], [(), (0,), (0,), (1, 2), (0, 3)]),
    ],
)
def test_steps_depend_on_those_that_touch_the_same_bytes(
    steps: Sequence[Sequence[Access]], wanted: Sequence[tuple[int, ...]]
) -> None:
    assert find_dependencies(steps) == wanted


ACCESSES = st.builds(lambda a, n, w: Access(0, a, a + n, w), st.integers(0, 9), st.integers(1, 6), st.booleans())


@given(st.lists(st.lists(ACCESSES, max_size=3), max_size=9))
def test_dependencies_are_those_of_all_pairs_of_conflicts(steps: list[list[Access]]) -> None:
    ordered = [sorted(accesses, key=lambda a: not a.writes) for accesses in steps]
    found = find_dependencies(ordered)
    closed: list[set[int]] = []
    for i, before in enumerate(found):
        closed.append(set(before).union(*(closed[j] for j in before)))
        pairs = {
            j for j in range(i) for x in steps[j] for y in steps[i]
            if (x.writes or y.writes) and x.first < y.end and y.first < x.end
        }  # fmt: skip
        assert set(before) <= pairs <= closed[i]


# -- how many streams ----------------------------------------------------------------------------------------------------


def auto(seconds: float, processors: int = 4, **changes: Any) -> int:
    """The number of streams for two chains of three steps that each take so long."""
    options = Options(kernel_threads=1, machine=replace(HERE, cores=processors)).update(**changes)
    return len(choose_streams(lambda: fork_and_join(3), [seconds] * 8, FREE[:8], options).streams)


def test_auto_takes_several_streams_only_where_long_independent_steps_pay() -> None:
    assert auto(5e-3) == 2
    assert auto(9e-4) == 1  # too short to leave the first stream
    assert auto(5e-3, processors=1) == 1
    assert auto(5e-3, kernel_threads=4) == 1  # kernels use all processors themselves
    assert auto(5e-3, kernel_threads=None) == 1
    assert auto(5e-3, kernel_threads=2) == 2
    assert auto(5e-3, memory_budget=1 << 40) == 1
    assert auto(9e-4, streams=2) == 2  # a number is an order


def test_auto_leaves_a_single_chain_alone() -> None:
    chain = [(), (0,), (1,), (2,)]
    options = Options(kernel_threads=1, machine=replace(HERE, cores=4))
    assert len(choose_streams(lambda: chain, [1.0] * 4, FREE[:4], options).streams) == 1
    uneven = [1.0, 1e-3, 1e-3, 1e-3]  # all else beside one long step
    assert len(choose_streams(lambda: [(), (), (), ()], uneven, FREE[:4], options).streams) == 1
    assert len(choose_streams(list, [], [], options).streams) == 1


def test_chains_on_streams_have_memory_of_their_own_and_do_not_wait_for_each_other() -> None:
    one, two = compiled(two_chains(6), 1), compiled(two_chains(6), 2)
    assert len(two.schedule.streams) == 2
    assert len(two.schedule.signals) <= 3
    assert two.schedule.seconds < 0.65 * one.schedule.seconds
    assert one.memory_plan.peak < two.memory_plan.peak <= 3 * one.memory_plan.peak


def test_auto_takes_little_more_memory_than_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = with_figures("schedule", replace(HERE, cores=2), heavy_seconds=1e-5, saved_seconds=0.0)
    one, two = compiled(two_chains(6), 1), compiled(two_chains(6), 2)
    assert (
        compiled(two_chains(6), "auto", kernel_threads=1, machine=machine).memory_plan.peak == two.memory_plan.peak
    )  # little anyway
    monkeypatch.setattr(assign_module, "_SPARE", 0)
    found = compiled(two_chains(6), "auto", kernel_threads=1, machine=machine).memory_plan
    most = 1.25**2 * one.memory_plan.arena_bytes  # a quarter for the order, and one for longer lives
    assert found.arena_bytes <= most < two.memory_plan.arena_bytes


def test_a_memory_budget_holds_on_streams_too() -> None:
    peak = compiled(two_chains(6), 1).memory_plan.peak
    for streams in (2, "auto"):
        assert compiled(two_chains(6), streams, memory_budget=2 * peak).memory_plan.peak <= 2 * peak


def test_compiled_functions_take_a_number_of_streams() -> None:
    x = nnp.ones((64, 64)) / 64

    def function(x: Any, y: Any) -> Any:
        return nnp.tanh(x @ x) @ x + nnp.tanh(y @ y) @ y

    expected = nnc.compile(function, streams=1)(x, x + 1)
    for streams in (2, 3, 10**12, "auto"):
        assert (nnc.compile(function, streams=streams)(x, x + 1) == expected).all()
