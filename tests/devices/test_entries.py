"""Entries of programs on devices: compiled code, Python and captured graphs queue the same work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.device import find_device
from nnc.device.capture import Tracker
from nnc.device.memory import DeviceMemory
from nnc.errors import ArgumentError, DeviceError, MemoryBudgetError, OutOfBoundsError
from nnc.run import device_frame
from nnc.run.device_frame import DeviceFrame
from nnc.run.launches import Launches
from nnc.run.walker import Walker
from nnc.testing.devices.sim import SimDevice, SimKernel, SimPool, SimStream
from nnc.testing.devices.sim import driver as sim_driver
from nnc.testing.devices.simulated_program import SimModule
from tests.golden.programs import PROGRAMS, Program

from .test_programs_on_sim import Queued, arguments_of, bits

programs = pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)


def sim() -> SimDevice:
    device = find_device("sim:0", "test")
    assert isinstance(device, SimDevice)
    return device


def from_python(program: Any, launches: Launches, words: Any, driver: Any) -> Walker:
    return Walker(launches, words, driver)


@contextmanager
def noted() -> Iterator[list[tuple[Any, ...]]]:
    """Notes each function of the driver that an entry calls, kernels with their addresses and streams."""
    calls: list[tuple[Any, ...]] = []
    queue_kernel = sim_driver.queue_kernel
    record, wait = SimStream.record, SimStream.wait_for

    def queue(stream: SimStream, pool: SimPool, kernel: SimKernel, addresses: Sequence[int]) -> None:
        calls.append((stream.number, kernel.name, *addresses))
        queue_kernel(stream, pool, kernel, addresses)

    def noting_record(stream: SimStream, *arguments: Any) -> Any:
        calls.append((stream.number, "record"))
        return record(stream, *arguments)

    def noting_wait(stream: SimStream, event: Any) -> None:
        calls.append((stream.number, "wait", tuple(sorted(event.clock))))
        wait(stream, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim_driver, "queue_kernel", queue)
        patch.setattr(SimStream, "record", noting_record)
        patch.setattr(SimStream, "wait_for", noting_wait)
        yield calls


def calls_of(queued: Queued) -> list[tuple[Any, ...]]:
    """The driver's work in one call of a program, addresses and streams in the order in which they are met first."""
    frame = DeviceFrame(queued.program, sim(), SimModule)
    with noted() as calls:
        frame.queue(queued.inputs)
        sim().synchronize()
    first: dict[Any, int] = {}
    return [
        tuple(part if isinstance(part, str) else first.setdefault(part, len(first)) for part in call) for call in calls
    ]


@programs
def test_compiled_entries_call_the_driver_as_python_does(
    make: Callable[[], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    queued = Queued(make())
    compiled = calls_of(queued)
    monkeypatch.setattr(device_frame, "new_entry", from_python)
    assert calls_of(queued) == compiled
    assert any(name == "record" for _, name, *_ in compiled)


def choose(x: Any, k: Any) -> Any:
    """A counted loop, a loop with a test, and a branch, in one another."""

    def body(i: Any, c: Any) -> Any:
        return nnc.switch(i % 3, [lambda c: c + x[0], lambda c: nnp.tanh(c) * i, lambda c: c[::-1]], c)

    c = nnc.fori_loop(0, k, body, x)
    return nnc.while_loop(lambda c: nnp.sum(c) < 40, lambda c: c * 2 + 1, c), nnc.scan(
        lambda s, r: (s + r, s * r), 1.0, c
    )


@pytest.mark.parametrize("native", [True, False], ids=["compiled", "python"])
def test_loops_and_branches_that_numbers_decide_run_as_on_the_cpu(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(device_frame, "new_entry", from_python)
    f = nnc.compile(choose)
    x = np.linspace(-1, 2, 7)
    for k in (0, 1, 2, 5):
        wanted = bits(f(x, k))
        assert bits(f(nnc.device_put(x, "sim:0"), nnc.device_put(k, "sim:0"))) == wanted


@pytest.mark.parametrize("native", [True, False], ids=["compiled", "python"])
def test_too_many_iterations_and_branches_that_are_not_there_are_errors_at_the_call(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(device_frame, "new_entry", from_python)
    x = nnc.device_put(1.0, "sim:0")
    endless = nnc.compile(lambda x: nnc.while_loop(lambda c: c > 0, lambda c: c + 1, x, max_steps=5))
    with pytest.raises(ArgumentError, match="max_steps"):
        endless(x)
    chosen = nnc.compile(lambda i, x: nnc.switch(i, [nnp.sin, nnp.cos], x))
    with pytest.raises(OutOfBoundsError, match="2"):
        chosen(nnc.device_put(2, "sim:0"), x)
    assert float(chosen(nnc.device_put(1, "sim:0"), x)) == pytest.approx(np.cos(1.0))


def test_an_error_of_an_early_step_is_not_lost_behind_later_steps() -> None:
    def f(x: Any, i: Any) -> Any:
        rows = nnp.take(x, i, axis=0, mode="error") * 3.0
        for _ in range(3):  # steps that write to the same arena, and read nothing of it
            x = nnp.cumsum(nnp.sort(x, axis=0), axis=0)
        return nnp.cumsum(rows, axis=0) @ x

    compiled = nnc.compile(f)
    x = nnc.device_put(np.random.default_rng(0).normal(size=(6, 6)), "sim:0")
    assert np.isfinite(np.asarray(compiled(x, np.arange(6)))).all()
    with pytest.raises(OutOfBoundsError):
        np.asarray(compiled(x, np.arange(6) + 1))
    assert np.isfinite(np.asarray(compiled(x, np.arange(6)))).all()


# -- captured graphs ---------------------------------------------------------------------------------------------------


@programs
def test_a_captured_graph_orders_kernels_as_the_streams_do(make: Callable[[], Program]) -> None:
    """The order of queued kernels is that of their clocks; a capture must have the same pairs."""
    queued = Queued(make())
    launches = Launches(queued.program.planned, queued.program.schedule)
    if not launches.can_be_captured:
        assert make.__name__ in ("while_loop", "gaussian_process", "rk4"), "others decide nothing on the host"
        return
    device = sim()
    frame = DeviceFrame(queued.program, device, SimModule)
    device.driver.begin_capture(device.stream)
    frame.queue(queued.inputs)
    graph = device.driver.end_capture()
    seen: list[tuple[int, int, dict[int, int]]] = []

    def queue(stream: SimStream, pool: SimPool, kernel: SimKernel, addresses: Sequence[int]) -> None:
        sim_queue(stream, pool, kernel, addresses)
        seen.append((stream.number, stream.clock[stream.number], dict(stream.clock)))

    sim_queue = sim_driver.queue_kernel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim_driver, "queue_kernel", queue)
        frame.queue(queued.inputs)
    device.synchronize()
    assert len(seen) == len(graph.nodes)
    ordered = {
        (i, k)
        for k, (_, _, clock) in enumerate(seen)
        for i, (stream, number, _) in enumerate(seen)
        if i != k and clock.get(stream, 0) >= number
    }
    assert graph.order() == ordered


@programs
def test_graphs_that_are_launched_again_give_the_results_of_the_cpu(make: Callable[[], Program]) -> None:
    program = make()
    arguments = arguments_of(program)
    f = nnc.compile(program.fun, streams=3)
    wanted = bits(f(*arguments))
    for seed in range(12):
        sim().queues.reseed(seed)
        assert bits(f(*nnc.device_put(arguments, "sim:0"))) == wanted  # other memory in each call


@pytest.mark.slow
def test_a_graph_is_launched_a_thousand_times_with_other_pointers() -> None:
    f = nnc.compile(lambda x, y: (nnp.sort(nnp.cumsum(x, axis=1) @ y), nnp.tanh(x).sum(0), nnp.sort(x)[1:]), streams=3)
    draw, device = np.random.default_rng(3), sim()
    held: list[Any] = []
    for i in range(1000):
        x, y = draw.normal(size=(5, 4)), draw.normal(size=(4, 3))
        there = nnc.device_put((x, y), "sim:0")
        result = f(*there)
        assert bits(result) == bits(f(x, y))
        held = [*held[-(i % 7) :], (there, result)]  # so that memory is taken and given back in turns
    executable, _ = f.find(*there)
    assert executable is not None
    graph = executable.queued._frame._graph  # type: ignore[union-attr]
    assert graph is not None and device.driver is not None


def test_one_array_may_be_passed_twice_in_the_call_that_is_captured() -> None:
    f = nnc.compile(lambda x, y: (nnp.sort(nnp.cumsum(x, axis=1) @ y), nnp.sort(y, axis=0)[1:] + x[:-1]))
    draw = np.random.default_rng(5)
    x, y = draw.normal(size=(6, 6)), draw.normal(size=(6, 6))
    a, b = nnc.device_put((x, y), "sim:0")
    for _ in range(4):
        assert bits(f(a, a)) == bits(f(x, x))
    assert bits(f(a, b)) == bits(f(x, y)) and bits(f(b, a)) == bits(f(y, x))
    executable, _ = f.find(a, b)
    assert executable is not None and executable.queued._frame._graph is not None  # type: ignore[union-attr]


def test_programs_of_several_threads_are_captured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Tracker.launch

    def pausing(tracker: Tracker, *arguments: Any) -> None:
        time.sleep(1e-3)  # other threads go on
        launch(tracker, *arguments)

    monkeypatch.setattr(Tracker, "launch", pausing)

    def work(k: int) -> bool:
        f = nnc.compile(lambda x: nnp.sort(nnp.cumsum(x * k, axis=0), axis=1) @ nnp.sort(x).T + k, streams=2)
        draw = np.random.default_rng(k)
        for _ in range(40):
            x = draw.normal(size=(5 + k, 4))
            if bits(f(nnc.device_put(x, "sim:0"))) != bits(f(x)):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 5)))


def test_numbers_that_decide_cannot_be_captured() -> None:
    queued = Queued(next(make for make in PROGRAMS if make.__name__ == "while_loop")())
    device = sim()
    frame = DeviceFrame(queued.program, device, SimModule)
    device.driver.begin_capture(device.stream)
    with pytest.raises(DeviceError, match="cannot be captured"):
        frame.queue(queued.inputs)
    device.driver.drop_capture()
    frame.queue(queued.inputs)
    device.synchronize()


def test_a_program_takes_the_memory_of_the_device_that_its_plan_states() -> None:
    f = nnc.compile(lambda x, y: (nnp.sort(nnp.cumsum(x, axis=1) @ y), nnp.sort(x, axis=0)[1:] + 1))
    device = SimDevice()
    there = nnc.device_put((np.ones((64, 32), "float32"), np.ones((32, 16), "float32")), "sim:0")
    executable, leaves = f.find(*there)
    assert executable is not None and executable.queued is not None
    plan = executable._program.memory_plan
    frame = DeviceFrame(executable._program, device, SimModule)
    used, arrays = device.pool.used, [np.asarray(leaf) for leaf in leaves]
    inputs = [DeviceMemory(device, device.pool.allocate(x.nbytes, device.stream)) for x in arrays]
    for memory, x in zip(inputs, arrays, strict=True):
        device.transfer.to_device(x, memory.block, device.stream)
    outputs = frame.queue(inputs)
    asked = sum(memory.block.nbytes for memory in outputs)
    assert asked == plan.output_bytes and frame._arena.block.nbytes == plan.arena_bytes
    padded = sum(-(-memory.block.nbytes // 256) * 256 for memory in (*inputs, *outputs))
    assert device.pool.used - used == padded
    device.synchronize()


def test_a_budget_that_a_program_exceeds_is_an_error_before_the_device_is_used() -> None:
    x = nnc.device_put(np.ones((64, 64)), "sim:0")
    with pytest.raises(MemoryBudgetError, match="32"):
        nnc.compile(lambda x: nnp.cumsum(nnp.sort(x), axis=1), memory_budget=1000)(x)
