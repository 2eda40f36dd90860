"""Graphs with independent chains, schedules drawn at random, and random delays, for the tests of streams."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import nnc  # noqa: F401  (registers every command)
from nnc.backends.choose import choose_kernel
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import Graph, GraphBuilder, Symbol
from nnc.lower.plan.schedule.accesses import step_accesses
from nnc.lower.plan.schedule.assign import find_signals
from nnc.lower.plan.schedule.dependencies import find_dependencies
from nnc.lower.plan.schedule.races import happened_before
from nnc.lower.plan.schedule.reduction import follows
from nnc.lower.plan.schedule.types import Schedule, Signal
from nnc.lower.plan.stages import Planned
from nnc.run.program import Program


@dataclass
class Delays:
    """Waits at random before some steps, differently on each stream; records the steps that ran."""

    seed: int
    longest: float = 2e-4
    ran: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, stream: int, position: int, run: Callable[[], None]) -> None:
        draw = random.Random(f"{self.seed} {stream} {position}")
        if draw.random() < 0.5:
            time.sleep(draw.random() * self.longest)
        run()
        self.ran.append((stream, position))


def two_chains(iterations: int = 3, size: int = 64) -> Graph:
    """Two independent chains of products, joined at the end."""
    b = GraphBuilder("two_chains")
    x, y = b.input((size, size), "float64"), b.input((size, size), "float64")

    def chain(z: Symbol) -> Symbol:
        for _ in range(iterations):
            z = b.add("tanh", b.add("dot", z, z, contract=((1,), (0,))))
        return z

    return b.build(b.add("add", chain(x), chain(y)))


def compiled(graph: Graph, streams: int | str = 1, **changes: Any) -> Program:
    """The program of a graph, with every check switched on."""
    return lower(graph, Options(verify_passes=True, streams=streams, native=False, **changes), choose_kernel)


def rescheduled(program: Program, schedule: Schedule) -> Program:
    """The same program with another schedule."""
    return Program.of(program.planned, schedule, program.kernel_of)


def random_schedule(planned: Planned, streams: int, seed: int) -> Schedule:
    """Any order and any streams that dependencies allow, at any cost."""
    draw = random.Random(seed)
    before = find_dependencies(step_accesses(planned))
    order: list[int] = []
    lists: list[list[int]] = [[] for _ in range(streams)]
    while len(order) < len(before):
        ready = [i for i in range(len(before)) if i not in order and set(before[i]) <= set(order)]
        order.append(draw.choice(ready))
        draw.choice(lists).append(order[-1])
    signals = find_signals(before, lists, order)
    return Schedule(tuple(map(tuple, lists)), signals, ((0.0, 0.0),) * len(before))


def check_same_bits(results: list[Any], expected: list[Any]) -> None:
    """Both are the same, to the bit."""
    assert [(x.shape, x.dtype) for x in results] == [(x.shape, x.dtype) for x in expected]
    assert [x.tobytes() for x in results] == [x.tobytes() for x in expected]


def square(seed: int, size: int = 64) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, (size, size))


def implied_signals(schedule: Schedule) -> list[Signal]:
    """Returns the signals that the other signals and the order of the streams imply.

    Args:
        schedule: a schedule without deadlocks.
    """
    clocks, waits = happened_before(schedule), dict[int, list[Signal]]()
    assert clocks is not None
    for signal in schedule.signals:
        waits.setdefault(signal.after, []).append(signal)
    found = []
    for after, signals in waits.items():
        stream, place = schedule.streams[schedule.stream_of[after]], schedule.place_of[after]
        previous = [stream[place - 1]] if place else []
        for k, signal in enumerate(signals):
            others = [*previous, *(other.before for other in signals[:k] + signals[k + 1 :])]
            if any(follows(schedule, clocks, other, signal.before) for other in others):
                found.append(signal)
    return found
