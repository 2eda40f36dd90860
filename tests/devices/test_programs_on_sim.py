"""Compiled programs on a simulated device: one result in every order, and no signal of a schedule too few or too many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.device import find_device
from nnc.device.memory import DeviceMemory
from nnc.errors import DeviceError
from nnc.lower.plan.stages import Loop
from nnc.run.device_frame import DeviceFrame
from nnc.run.program import Program as Lowered
from nnc.run.queued_code import QueuedCode
from nnc.testing.devices.sim import SimDevice, SimStream
from nnc.testing.devices.simulated_program import SimModule
from tests.golden.programs import PROGRAMS, Program
from tests.sampling import sampled

SEEDS = len(sampled(range(50), 4))
STREAMS = 3


def arguments_of(program: Program) -> Any:
    """Arguments of a program: small random numbers, and classes."""
    draw = np.random.default_rng(0)

    def fill(leaf: Any) -> Any:
        if isinstance(leaf, nnc.ShapeDtypeStruct):
            if leaf.dtype.kind == "f":
                return draw.uniform(0.1, 1, leaf.shape).astype(leaf.dtype)  # roots converge
            return draw.integers(0, 4, leaf.shape).astype(leaf.dtype)
        return leaf

    return nnc.tree.map(fill, program.arguments, is_leaf=lambda x: isinstance(x, nnc.ShapeDtypeStruct))


def bits(result: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in nnc.tree.leaves(result)]


programs = pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)


@programs
def test_a_program_has_the_results_of_the_cpu_in_every_order(make: Callable[[], Program]) -> None:
    program = make()
    arguments = arguments_of(program)
    f = nnc.compile(program.fun, streams=STREAMS)
    wanted = bits(f(*arguments))
    device, there = find_device("sim:0", "test"), nnc.device_put(arguments, "sim:0")
    assert isinstance(device, SimDevice)
    for seed in range(SEEDS):
        device.queues.reseed(seed)
        assert bits(f(*there)) == wanted


class Queued:
    """A program, and how its steps are queued with another schedule."""

    def __init__(self, program: Program) -> None:
        there = nnc.device_put(arguments_of(program), "sim:0")
        executable, leaves = nnc.compile(program.fun, streams=STREAMS).find(*there)
        assert executable is not None
        elsewhere = executable.queued
        assert elsewhere is not None
        self.program: Lowered = executable._program
        self.inputs: list[DeviceMemory] = [elsewhere._place(leaves[i], spec) for i, spec in executable._inputs.reads]
        self.inputs += [elsewhere._place(x, x.spec) for x in executable._inputs.captured]
        self.signals = self.program.schedule.signals

    def queue(self, left_out: int | None = None) -> None:
        """Queues the program without one of its signals."""
        parts = self.program.parts()
        kept = tuple(signal for i, signal in enumerate(self.signals) if i != left_out)
        other = replace(parts, schedule=replace(parts.schedule, signals=kept))
        device = find_device("sim:0", "test")
        assert isinstance(device, SimDevice)
        code = self.program.code
        assert code is not None
        changed = self.program.with_code(QueuedCode(code.outside, lambda: other, code.compiler))
        try:
            DeviceFrame(changed, device, SimModule).queue(self.inputs)
        finally:
            device.synchronize()


@programs
def test_each_signal_of_a_schedule_is_needed(make: Callable[[], Program]) -> None:
    queued = Queued(make())
    queued.queue()
    for i, signal in enumerate(queued.signals):
        region = queued.program.bound.steps[signal.before].region
        if isinstance(region, Loop) and region.length is None:
            continue  # the host has waited for its last test, and perhaps nothing of the loop came after that
        with pytest.raises(DeviceError, match="may still be using them|which nothing has written"):
            queued.queue(left_out=i)


@programs
def test_each_wait_of_a_program_tells_its_stream_of_more_work(make: Callable[[], Program], monkeypatch: Any) -> None:
    """A signal, a fork or a join that follows from others would not."""
    queued = Queued(make())
    if any(isinstance(step.region, Loop) and step.region.length is None for step in queued.program.bound.steps):
        pytest.skip("the host waits, too")
    device = find_device("sim:0", "test")
    assert isinstance(device, SimDevice)
    frame, seen, wait_for = DeviceFrame(queued.program, device, SimModule), list[bool](), SimStream.wait_for

    def watched(self: SimStream, event: Any) -> None:
        seen.append(any(self.known().get(stream, 0) < number for stream, number in event.clock.items()))
        wait_for(self, event)

    monkeypatch.setattr(SimStream, "wait_for", watched)
    frame.queue(queued.inputs)
    assert all(seen) and len(seen) >= len(queued.signals)


def test_some_schedules_have_signals() -> None:
    assert sum(len(Queued(make()).signals) for make in PROGRAMS) > 20


def branches(x: Any, ws: Any) -> Any:
    """Independent chains, so that streams have something to do."""
    return nnp.stack([nnp.tanh(nnp.tanh(x @ a) @ b).sum(-1) for a, b in ws]).mean(0)


def test_independent_chains_run_in_streams_and_meet() -> None:
    draw = np.random.default_rng(1)
    ws = [tuple(draw.normal(0, 0.1, (64, 64)).astype("float32") for _ in range(2)) for _ in range(4)]
    x = draw.normal(size=(64, 64)).astype("float32")
    f = nnc.compile(branches, streams=STREAMS)
    there = nnc.device_put((x, ws), "sim:0")
    assert bits(f(*there)) == bits(f(x, ws))
    executable, _ = f.find(*there)
    assert executable is not None and executable._program.schedule.signals


def test_auto_takes_several_streams_where_small_steps_leave_room_on_a_device() -> None:
    draw = np.random.default_rng(1)
    ws = [tuple(draw.normal(0, 0.1, (n, n)).astype("float32") for _ in range(2)) for n in (32, 32, 32)]
    x = draw.normal(size=(32, 32)).astype("float32")
    f = nnc.compile(branches)

    def streams(*arguments: Any) -> int:
        executable, _ = f.find(*arguments)
        assert executable is not None
        return len(executable._program.schedule.streams)

    there = nnc.device_put((x, ws), "sim:0")
    for _ in range(4):
        assert bits(f(*there)) == bits(f(x, ws))
    assert streams(*there) > 1 and streams(x, ws) == 1
    chain = nnc.device_put((x, ws[:1]), "sim:0")
    assert streams(*chain) == 1


def test_a_budget_keeps_a_device_to_one_stream() -> None:
    draw = np.random.default_rng(1)
    ws = [tuple(draw.normal(0, 0.1, (32, 32)).astype("float32") for _ in range(2)) for _ in range(3)]
    there = nnc.device_put((ws[0][0], ws), "sim:0")
    executable, _ = nnc.compile(branches, memory_budget=1 << 20).find(*there)
    assert executable is not None and len(executable._program.schedule.streams) == 1
