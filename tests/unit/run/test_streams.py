"""Threads that run a schedule: their results, the memory that they leave behind, and failures of steps."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import OutOfBoundsError, user_error
from nnc.graph import GraphBuilder, register
from nnc.graph.rules import Rules
from nnc.lower.plan.schedule.make import is_pinned
from nnc.lower.plan.schedule.types import Schedule
from nnc.run.program import Program
from tests.unit.lower.plan.schedule.tools import Delays, check_same_bits, compiled, rescheduled, square, two_chains


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("nnc-stream")]


def check_no_workers() -> None:
    """Threads of programs that are gone end soon, not at once; programs are held while they are written to files."""
    until = time.monotonic() + 10
    while workers() and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert not workers()


def test_chains_run_on_two_threads_and_compute_the_same_bits() -> None:
    one, two = compiled(two_chains(), 1), compiled(two_chains(), 2)
    inputs = [square(0), square(1)]
    threads: dict[int, set[int]] = {0: set(), 1: set()}

    def note(stream: int, position: int, run: Callable[[], None]) -> None:
        threads[stream].add(threading.get_ident())
        run()

    check_same_bits(two.watched(note).run(inputs), one.run(inputs))
    check_same_bits(two.run(inputs), one.run(inputs))
    assert threads[0] == {threading.get_ident()}
    assert len(threads[1]) == 1 and threads[1] != threads[0]


def test_each_stream_keeps_its_order_and_waits_for_signals() -> None:
    program = compiled(two_chains(), 2)
    for seed in range(5):
        delays = Delays(seed, longest=1e-3)
        program.watched(delays).run([square(0), square(1)])
        for stream, steps in enumerate(program.schedule.streams):
            assert [position for k, position in delays.ran if k == stream] == list(steps)
        turn = {position: i for i, (_, position) in enumerate(delays.ran)}
        assert all(turn[signal.before] < turn[signal.after] for signal in program.schedule.signals)


def test_one_stream_is_the_recorded_order_and_needs_no_thread() -> None:
    program = compiled(two_chains(), 1)
    assert program.schedule.streams == (tuple(range(len(program.bound.steps))),)
    assert not program.schedule.signals
    before = set(workers())  # of other tests, about to end
    program.run([square(0), square(1)])
    assert not set(workers()) - before


def test_several_threads_call_one_program_on_streams() -> None:
    one, program = compiled(two_chains(), 1), compiled(two_chains(), 2)
    many = [[square(2 * k), square(2 * k + 1)] for k in range(4)]
    expected = [one.run(inputs) for inputs in many]
    with ThreadPoolExecutor(3) as pool:
        for results, wanted in zip(pool.map(program.run, many * 3), expected * 3, strict=True):
            check_same_bits(results, wanted)
    del program
    check_no_workers()


def test_compiled_kernels_may_run_on_any_stream() -> None:
    """They own sub-graphs, which is why other commands stay with the caller."""
    x = nnp.asarray(square(0))
    f = nnc.compile(lambda x, y: (nnp.exp(x @ x), nnp.exp(nnp.sort(y)), nnp.sum(nnp.tanh(x))), streams=2)
    schedule = f.lower(x, x + 1).compile().schedule
    assert schedule.streams == 2


@pytest.mark.unguarded
def test_no_thread_is_left_when_the_executable_is_gone() -> None:
    x = nnp.asarray(square(0))
    f = nnc.compile(lambda x, y: (nnp.tanh(x @ x), nnp.tanh(y @ y)), streams=2)
    f(x, x + 1)
    assert workers()
    del f
    check_no_workers()


def picky(limits: tuple[float, ...]) -> tuple[Program, list[Any]]:
    """Chains, the last step of each of which fails where its input is larger than that chain's limit; two streams."""

    def fail(x: Any, *, limit: float) -> Any:
        if x[0, 0] > limit:
            raise user_error(OutOfBoundsError, "picky", f"{limit} is passed.", fix="pass less.")
        return x

    register("test_picky", Rules(infer=lambda x, limit: x, reference=fail))
    b = GraphBuilder("picky")
    ends = []
    for limit in limits:
        z = b.input((64, 64), "float64")
        z = b.add("tanh", b.add("dot", z, z, contract=((1,), (0,))))
        ends.append(b.add("test_picky", z, limit=limit))  # the line to be named
    total = ends[0]
    for z in ends[1:]:
        total = b.add("add", total, z)
    return compiled(b.build(total), 2), [np.full((64, 64), 0.1)] * len(limits)


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize("limits", [(0.5, 9.0), (9.0, 0.5)])
def test_an_error_on_any_stream_names_the_users_line_and_leaves_the_program_usable(limits: tuple[float, ...]) -> None:
    program, inputs = picky(limits)
    assert len(program.schedule.streams) == 2
    for _ in range(3):
        with pytest.raises(OutOfBoundsError, match=r"(?s)0\.5 is passed.*the line to be named"):
            program.run(inputs)
    program.run([0 * x for x in inputs])


@pytest.mark.usefixtures("own_registries")
def test_of_several_errors_the_first_in_the_recorded_order_is_raised() -> None:
    program, inputs = picky((0.5, 0.25))
    one = Schedule((tuple(range(len(program.bound.steps))),), (), program.schedule.planned)
    with pytest.raises(OutOfBoundsError) as recorded:
        rescheduled(program, one).run(inputs)
    for seed in range(6):
        with pytest.raises(OutOfBoundsError) as caught:
            program.watched(Delays(seed, longest=2e-3)).run(inputs)
        assert str(caught.value) == str(recorded.value)


def test_steps_behind_a_failed_one_do_not_run() -> None:
    program = compiled(two_chains(iterations=4), 2)
    failing = program.schedule.streams[1][0]
    ran, failed = [], threading.Event()

    def fail(stream: int, position: int, run: Callable[[], None]) -> None:
        if position == failing:
            failed.set()
            raise ValueError("planted")
        failed.wait(10)
        time.sleep(1e-2)
        run()
        ran.append(position)

    with pytest.raises(ValueError, match="planted"):
        program.watched(fail).run([square(0), square(1)])
    assert not set(ran) & set(program.schedule.streams[1])
    assert len(ran) < len(program.schedule.streams[0])


@pytest.mark.parametrize("stream", [0, 1])
def test_an_interrupt_stops_all_streams(stream: int) -> None:
    program = compiled(two_chains(iterations=4), 2)

    def interrupt(k: int, position: int, run: Callable[[], None]) -> None:
        if k == stream:
            raise KeyboardInterrupt
        time.sleep(1e-3)
        run()

    with pytest.raises(KeyboardInterrupt):
        program.watched(interrupt).run([square(0), square(1)])


def test_a_failed_call_holds_none_of_its_arrays() -> None:
    program = compiled(two_chains(), 2)
    failing = program.schedule.streams[1][0]

    def fail(stream: int, position: int, run: Callable[[], None]) -> None:
        if position == failing:
            raise ValueError("planted")
        run()

    inputs = [square(0), square(1)]
    kept = [weakref.ref(x) for x in inputs]
    gc.disable()
    try:
        with pytest.raises(ValueError, match="planted"):
            program.watched(fail).run(inputs)
        del inputs
        assert [ref() for ref in kept] == [None, None]
    finally:
        gc.enable()


def test_warnings_of_numpy_are_silent_on_every_stream() -> None:
    f = nnc.compile(lambda x, y: nnp.log(-nnp.exp(x @ x)) + nnp.log(-nnp.exp(y @ y)), streams=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(np.asarray(f(square(0), square(1)))).all()


def test_effects_happen_in_the_callers_thread_and_in_their_order() -> None:
    seen: list[tuple[str, int]] = []

    def note(name: str) -> Callable[[Any], None]:
        return lambda x: seen.append((name, threading.get_ident()))

    def function(x: Any, y: Any) -> Any:
        x, y = nnp.tanh(x @ x), nnp.tanh(y @ y)
        nnc.debug.callback(note("y"), y)
        nnc.debug.callback(note("x"), x)
        return x @ x + y @ y

    f = nnc.compile(function, streams=2)
    executable = f.lower(square(0), square(1)).compile()
    assert len(executable._program.schedule.streams) == 2
    for _ in range(3):
        executable(square(0), square(1))
    assert seen == [("y", threading.get_ident()), ("x", threading.get_ident())] * 3


def test_loops_without_a_known_length_stay_in_the_callers_thread() -> None:
    def function(x: Any, y: Any) -> Any:
        x = nnc.while_loop(lambda x: nnp.sum(x) < 9, lambda x: x + 1, x)
        return x, nnc.fori_loop(0, 3, lambda i, y: y @ y, y)

    program = compiled(nnc.make_graph(function)(square(0), square(1)), 2)
    pinned = {step.command.name for step in program.bound.steps if is_pinned(step)}
    assert pinned == {"while"}
    assert all(program.schedule.stream_of[i] == 0 for i, step in enumerate(program.bound.steps) if is_pinned(step))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_makes_threads_of_its_own() -> None:
    program = compiled(two_chains(), 2)
    expected = program.run([square(0), square(1)])
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # Python warns of forking with threads, and so does jax where a test has imported it
        child = os.fork()
    if child == 0:
        results = program.run([square(0), square(1)])
        os._exit(0 if results[0].tobytes() == expected[0].tobytes() else 1)
    until = time.monotonic() + 20
    while (found := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
        time.sleep(0.01)
    assert found == (child, 0)


def test_a_watched_program_is_another_one() -> None:
    program = compiled(two_chains(), 2)
    delays = Delays(0)
    program.watched(delays)
    program.run([square(0), square(1)])
    assert not delays.ran
    assert replace(program, around=None).around is None
