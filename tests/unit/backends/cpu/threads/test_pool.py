"""nnc's own threads: every part of a loop runs once, on any thread; nobody waits for a thread that does not come, or sleeps on."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.cpu.compiler import runtime as runtime_module
from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.cpu.compiler.jit import Jit
from nnc.backends.cpu.compiler.object_cache import Objects
from nnc.backends.cpu.compiler.runtime import Runtime
from nnc.backends.cpu.threads import pool as pool_module
from nnc.backends.cpu.threads.pool import Pool, is_supported, pool_text
from nnc.backends.cpu.threads.team import STANDINS, TEAM_CALLS, TEAM_TEXT
from nnc.backends.cpu.threads.threads import Openmp
from nnc.backends.cpu.threads.waiting import SYSTEMS, WaitingText, waiting_of
from nnc.base.options import chosen_loader, chosen_wait
from nnc.base.target import Threads
from nnc.device.targets.__init__ import X86
from nnc.errors import ArgumentError
from nnc.lower.kernels.native import Native
from tests.unit.backends.cpu.threads.test_threads import PARTS, cover

pytestmark = pytest.mark.skipif(not is_supported(), reason="nnc has no threads of its own on this system")
ENGINE = Engine()
NO_OPENMP = Openmp(None, "not asked for")


@contextlib.contextmanager
def pool_of(threads: int) -> Iterator[tuple[Pool, Jit]]:
    """A pool of its own, and a compiler of kernels for it."""
    pool = Pool(ctypes.c_int32(threads))
    jit = Jit(ENGINE, Objects(ENGINE, None), Runtime(NO_OPENMP, pool.count, pool))
    try:
        yield pool, jit
    finally:
        pool.close()


def parts_in(jit: Jit) -> Callable[[int, int], list[tuple[int, int]]]:
    """Makes a function of n and grain that tells in which parts a loop ran; an item that ran twice would be in none of them."""
    (function,) = jit.load([Native(PARTS)])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(function.address)

    def parts(n: int, grain: int, held: object = function) -> list[tuple[int, int]]:
        rows = np.zeros((max(n, 0), 2), np.int64)
        call(rows.ctypes.data, n, grain)
        return sorted({(int(begin), int(end)) for begin, end in rows})

    return parts


# Runs `loops` loops over n items, each of which adds its index to a sum.
SUMS = """\
declare void @nnc_parallel_for(ptr, ptr, i64, i64)

define internal void @KERNEL.part(ptr %sum, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %old = atomicrmw add ptr %sum, i64 %i monotonic
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define i64 @KERNEL(ptr %sum, i64 %loops, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @nnc_parallel_for(ptr @KERNEL.part, ptr %sum, i64 %n, i64 1)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %loops
  br i1 %more, label %loop, label %done
done:
  ret i64 0
}
"""


def sums_in(jit: Jit) -> Callable[[int, int], int]:
    (function,) = jit.load([Native(SUMS)])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(function.address)

    def sums(loops: int, n: int, held: object = function) -> int:
        total = ctypes.c_int64(0)
        call(ctypes.addressof(total), loops, n)
        return total.value

    return sums


@pytest.mark.parametrize(
    ("threads", "n", "grain", "wanted"),
    [
        (2, 1000, 10, 32),  # sixteen for each thread
        (2, 100, 10, 10),
        (2, 100, 20, 5),  # a part has `grain` items at least
        (4, 100, 40, 2),
        (4, 100, 51, 1),
        (4, 100, 100, 1),
        (4, 3, 0, 3),  # a grain below 1 counts as 1
        (8, 5, 1, 5),
        (4, 1, 1, 1),
        (1, 100, 1, 1),
        (4, 7, 2, 3),
        (3, 0, 1, 0),
        (3, -5, 1, 0),
    ],
)
def test_a_loop_runs_in_parts_of_about_one_size(threads: int, n: int, grain: int, wanted: int) -> None:
    with pool_of(threads) as (_, jit):
        parts = parts_in(jit)(n, grain)
    assert len(parts) == wanted
    if parts:
        sizes = {end - begin for begin, end in parts}
        assert cover(parts, n) and min(sizes) >= min(grain, n) and max(sizes) - min(sizes) <= 1


def test_a_hundred_thousand_loops_in_a_row_run_every_item_once() -> None:
    with pool_of(3) as (_, jit):
        assert sums_in(jit)(100_000, 7) == 100_000 * 21


def test_many_threads_may_run_loops_at_once() -> None:
    with pool_of(3) as (_, jit), ThreadPoolExecutor(8) as callers:
        sums, parts = sums_in(jit), parts_in(jit)

        def work(i: int) -> bool:
            n = 100 + i
            sum_is_right = sums(2000, n) == 2000 * n * (n - 1) // 2
            return sum_is_right and all(cover(parts(n, 1), n) for _ in range(50))

        assert all(callers.map(work, range(8)))


def test_a_loop_within_a_part_runs_in_that_part_alone() -> None:
    text = (
        PARTS.replace("@KERNEL", "@KERNEL.inner").replace("define i64", "define internal i64")
        + """
define internal void @KERNEL.outer(ptr %rows, i64 %begin, i64 %end) {
  %base = mul i64 %begin, 160
  %mine = getelementptr i8, ptr %rows, i64 %base
  %x = call i64 @KERNEL.inner(ptr %mine, i64 10, i64 1)
  ret void
}
define i64 @KERNEL(ptr %rows) {
  call void @nnc_parallel_for(ptr @KERNEL.outer, ptr %rows, i64 6, i64 1)
  ret i64 0
}
"""
    )
    with pool_of(3) as (_, jit):
        (function,) = jit.load([Native(text)])
        rows = np.zeros((60, 2), np.int64)
        ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(function.address)(rows.ctypes.data)
    assert rows.tolist() == [[0, 10]] * 60


# A loop of n parts, each of which waits until all have begun, or for about ten seconds; returns how many had begun by then.
MEETING = """\
declare void @nnc_parallel_for(ptr, ptr, i64, i64)
declare i32 @sched_yield()

define internal void @KERNEL.part(ptr %args, i64 %begin, i64 %end) {
entry:
  %wanted.at = getelementptr i64, ptr %args, i64 1
  %wanted = load i64, ptr %wanted.at
  %met = atomicrmw add ptr %args, i64 1 seq_cst
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %wait ]
  %here = load atomic i64, ptr %args seq_cst, align 8
  %all = icmp sge i64 %here, %wanted
  br i1 %all, label %done, label %wait
wait:
  %yielded = call i32 @sched_yield()
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 20000000
  br i1 %more, label %loop, label %missed
missed:
  %missed.at = getelementptr i64, ptr %args, i64 2
  store i64 1, ptr %missed.at
  br label %done
done:
  ret void
}

define i64 @KERNEL(ptr %args, i64 %n) {
  call void @nnc_parallel_for(ptr @KERNEL.part, ptr %args, i64 %n, i64 1)
  ret i64 0
}
"""


def meeting_in(jit: Jit) -> Callable[[int], bool]:
    """Makes a function that tells whether so many threads came to work on one loop."""
    (function,) = jit.load([Native(MEETING)])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(function.address)

    def meet(n: int, held: object = function) -> bool:
        args = (ctypes.c_int64 * 3)(0, n, 0)
        call(ctypes.addressof(args), n)
        return not args[2]

    return meet


@pytest.mark.parametrize("threads", [2, 4])
def test_workers_come_whether_they_slept_or_not(threads: int) -> None:
    pauses = np.random.default_rng(0).uniform(0, 150e-6, 100)  # they fall asleep after some 40 µs
    with pool_of(threads) as (_, jit):
        meet = meeting_in(jit)
        for pause in (*pauses, 0.02):
            time.sleep(pause)
            assert meet(threads)


# The system's answer: a thread lost its processor since the last question, each time or never.
COUNTED = """\
@counted = internal global i64 0
define internal i32 @getrusage(i32 %who, ptr %usage) {{
  %count = atomicrmw add ptr @counted, i64 {step} seq_cst
  %last = getelementptr i64, ptr %usage, i64 17
  store i64 %count, ptr %last
  ret i32 0
}}
"""


@pytest.mark.parametrize("loses", [True, False])
def test_a_worker_that_lost_its_processor_sleeps_at_once(loses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def text(threads: Threads, more: str, waiting: WaitingText) -> str:
        patient = pool_text(threads._replace(worker_pauses=1 << 40), more=more, waiting=waiting)
        return patient.replace("declare i32 @getrusage(i32, ptr)", COUNTED.format(step=int(loses)))

    monkeypatch.setattr(runtime_module, "pool_text", text)
    with pool_of(2) as (_, jit):
        meet = meeting_in(jit)
        for _ in range(20):
            assert meet(2)
        time.sleep(0.01)
        begin = time.process_time()
        time.sleep(0.3)
        seconds = time.process_time() - begin
        assert meet(2)
    assert seconds < 0.005 if loses else seconds > 0.005  # the other one spins for as long as the system lets it


def test_workers_come_and_go_while_loops_run() -> None:
    with pool_of(2) as (pool, jit), ThreadPoolExecutor(1) as caller:
        sums, stop = sums_in(jit), threading.Event()

        def work() -> int:
            iterations = 0
            while not stop.is_set() or iterations < 5:
                assert sums(500, 30) == 500 * 435
                iterations += 1
            return iterations

        running = caller.submit(work)
        for number in [*range(1, 7), *range(7, 0, -1)] * 10:
            pool.resize(number)
        stop.set()
        assert running.result(timeout=60) >= 5
        pool.resize(4)
        assert meeting_in(jit)(4)
        end = time.monotonic() + 30
        while pool.workers > 3 and time.monotonic() < end:  # one that is not wanted leaves when it runs next
            time.sleep(0.001)
        assert pool.workers == 3


def test_after_the_pool_is_closed_callers_work_alone() -> None:
    with pool_of(4) as (pool, jit):
        parts = parts_in(jit)
        assert len(parts(100, 1)) == 64
        pool.close()
        assert pool.workers == 0 and parts(100, 1) == [(0, 100)]


def test_where_the_system_gives_no_threads_callers_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(pool_module._thread, "start_new_thread", refuse)
    with pool_of(3) as (pool, jit):
        assert cover(parts_in(jit)(100, 1), 100) and pool.workers == 0


def test_results_do_not_depend_on_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).normal(size=(200, 3001)).astype(np.float32)
    program = nnc.compile(lambda x: (nnp.sum(nnp.exp(x)), nnp.sum(x * x, axis=0), nnp.max(nnp.tanh(x), axis=1)))
    before = nnc.set_num_threads(4)
    try:
        results = {b"".join(np.asarray(y).tobytes() for y in program(x)) for _ in range(30)}
    finally:
        nnc.set_num_threads(before)
    assert len(results) == 1


PROCESS = """
import atexit, os, threading, time
import nnc
from nnc.backends.cpu.compiler.jit import compiler
from tests.unit.backends.cpu.threads.test_pool import sums_in

nnc.set_num_threads(3)
sums = sums_in(compiler())
threading.Thread(target=lambda: [sums(1000, 50) for _ in iter(int, 1)], daemon=True).start()
for _ in range(5):
    time.sleep(0.003)
    child = os.fork()
    if child == 0:
        print("child", sums(10, 5), flush=True)
        atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
print("parent", sums(10, 5))
"""


@pytest.mark.parametrize("wait", ["futex", "condition"])
def test_processes_fork_and_end_while_loops_run(wait: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NNC_WAIT": wait}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROCESS], capture_output=True, text=True, timeout=60, env=environment
    )
    assert (run.returncode, run.stdout.splitlines(), run.stderr) == (0, ["child 100"] * 5 + ["parent 100"], "")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "AMD64", "arm64"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_text_is_right_for_all_its_processors(machine: str, system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    llvm = importlib.import_module("llvmlite.binding")
    for wait in ("futex", "condition"):
        monkeypatch.setenv("NNC_WAIT", wait)
        waiting = waiting_of(system, "aarch64")
        text = pool_text(X86.threads, machine, TEAM_TEXT, waiting)
        module = llvm.parse_assembly(text)
        module.verify()
        assert "<" not in text
        called = {function.name for function in module.functions if function.is_declaration}
        assert (
            set(waiting.calls)
            <= called
            <= {*waiting.calls, *TEAM_CALLS, *STANDINS} | {name for name in called if name.startswith("llvm.")}
        )


def test_other_systems_have_no_pool() -> None:
    assert not is_supported("linux", "ppc64le") and not is_supported("emscripten", "wasm32")
    assert is_supported("linux", "aarch64") and is_supported("win32", "AMD64") and is_supported("darwin", "arm64")


def test_threads_wait_by_locks_where_there_is_no_futex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_WAIT", "condition")
    with pool_of(3) as (pool, jit):
        sums = sums_in(jit)
        assert "pthread_cond_wait" in jit.runtime.text and "syscall" not in jit.runtime.text
        for pause in (0.0, 0.02, 0.0, 0.05, 0.01) * 6:  # workers fall asleep in the longer ones
            assert sums(20, 64) == 20 * 63 * 32
            time.sleep(pause)
        pool.resize(2)
        pool.resize(3)
        assert sums(20, 64) == 20 * 63 * 32


@pytest.mark.parametrize("name", ["NNC_WAIT", "NNC_LOADER"])
def test_other_ways_to_wait_and_to_load_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "magic")
    with pytest.raises(ArgumentError, match=rf"{name}: 'magic' is no[\s\S]*Fix: choose one of"):
        chosen_wait() if name == "NNC_WAIT" else chosen_loader()
