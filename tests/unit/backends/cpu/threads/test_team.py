"""The pool as a team of OpenMP: every thread of a region comes once, they may meet at barriers, regions may lie within regions."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.cpu.compiler.float_mode import flushes_denormals
from nnc.backends.cpu.compiler.jit import Jit
from nnc.backends.cpu.compiler.object_cache import Objects
from nnc.backends.cpu.compiler.runtime import Runtime
from nnc.backends.cpu.threads.pool import Pool, is_supported
from nnc.backends.cpu.threads.team import STANDINS
from nnc.backends.cpu.threads.threads import find_openmp
from nnc.lower.kernels.native import Native

OPENMP = find_openmp()
pytestmark = pytest.mark.skipif(not is_supported() or OPENMP.library is None, reason="there is no pool, or no OpenMP")
ENGINE = Engine()

# Calls a region of `size` threads `times` times. Each thread counts itself at rows[its number]; all meet, and each adds up the
# others' counts, and notes a miss if the sum is not the size; they meet again. Within the region there is another one.
REGIONS = """\
declare void @GOMP_parallel_start(ptr, ptr, i32)
declare void @GOMP_parallel_end()
declare void @GOMP_barrier()
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @omp_in_parallel()

define internal void @KERNEL.inner(ptr %missed) {
  %number = call i32 @omp_get_thread_num()
  %size = call i32 @omp_get_num_threads()
  call void @GOMP_barrier()
  %others = sub i32 %size, 1
  %wrong.i32 = or i32 %number, %others
  %wrong = zext i32 %wrong.i32 to i64
  %noted = atomicrmw add ptr %missed, i64 %wrong monotonic
  ret void
}

define internal void @KERNEL.region(ptr %rows) {
entry:
  %number.i32 = call i32 @omp_get_thread_num()
  %size.i32 = call i32 @omp_get_num_threads()
  %inside = call i32 @omp_in_parallel()
  %number = zext i32 %number.i32 to i64
  %size = zext i32 %size.i32 to i64
  %missed = getelementptr i64, ptr %rows, i64 64
  %mine = getelementptr i64, ptr %rows, i64 %number
  %before = atomicrmw add ptr %mine, i64 1 monotonic
  call void @GOMP_parallel_start(ptr @KERNEL.inner, ptr %missed, i32 3)
  call void @KERNEL.inner(ptr %missed)
  call void @GOMP_parallel_end()
  call void @GOMP_barrier()
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi i64 [ 0, %entry ], [ %sum.now, %loop ]
  %at = getelementptr i64, ptr %rows, i64 %i
  %count = load atomic i64, ptr %at monotonic, align 8
  %sum.now = add i64 %sum, %count
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %size
  br i1 %more, label %loop, label %done
done:
  %round = add i64 %before, 1
  %wanted = mul i64 %round, %size
  %wrong.sum = icmp ne i64 %sum.now, %wanted
  %outside = icmp eq i32 %inside, 0
  %some.wrong = or i1 %wrong.sum, %outside
  %wrong = zext i1 %some.wrong to i64
  %noted = atomicrmw add ptr %missed, i64 %wrong monotonic
  call void @GOMP_barrier()
  ret void
}

define i64 @KERNEL(ptr %rows, i64 %size, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %size.i32 = trunc i64 %size to i32
  call void @GOMP_parallel_start(ptr @KERNEL.region, ptr %rows, i32 %size.i32)
  call void @KERNEL.region(ptr %rows)
  call void @GOMP_parallel_end()
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %loop, label %done
done:
  ret i64 0
}
"""


@contextlib.contextmanager
def team_of(threads: int) -> Iterator[tuple[Pool, Callable[[int, int], list[int]]]]:
    """A pool of its own, and a function of a region's size and how often it runs: how often each thread came.

    It fails where a thread did not see that the others had come, or was not told that it is in a region.
    """
    pool = Pool(ctypes.c_int32(threads))
    jit = Jit(ENGINE, Objects(ENGINE, None), Runtime(OPENMP, pool.count, pool))
    symbols = {name: address for name, address in jit.standins.items() if name != "omp_get_max_threads"}
    (function,) = jit.load([Native(REGIONS, symbols)])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(function.address)

    def region(size: int, times: int, held: object = function) -> list[int]:
        rows = np.zeros(65, np.int64)
        call(rows.ctypes.data, size, times)
        assert rows[64] == 0
        return rows[:64][rows[:64] > 0].tolist()

    try:
        yield pool, region
    finally:
        pool.close()


def wait_for_workers(pool: Pool) -> None:
    """Workers count from when they run."""
    end = time.monotonic() + 30
    while pool.present.value < pool.count.value - 1:
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize(("threads", "size"), [(2, 2), (4, 4), (4, 3)])
def test_every_thread_of_a_region_comes_once_and_meets_the_others(threads: int, size: int) -> None:
    with team_of(threads) as (pool, region):
        wait_for_workers(pool)
        assert region(size, 300) == [300] * size


def test_a_region_with_more_threads_than_the_pool_has_is_one_of_openmp() -> None:
    with team_of(2) as (pool, region):
        wait_for_workers(pool)
        assert region(4, 5) == [5] * 4
    with team_of(1) as (_, region):
        assert region(2, 5) == [5] * 2


def test_threads_that_begin_regions_at_once_do_not_share_a_team() -> None:
    with team_of(3) as (pool, region), ThreadPoolExecutor(3) as callers:
        wait_for_workers(pool)
        assert list(callers.map(lambda _: region(3, 30), range(6))) == [[30] * 3] * 6


def test_workers_that_leave_are_not_missed() -> None:
    with team_of(3) as (pool, region), ThreadPoolExecutor(1) as caller:
        stop = threading.Event()

        def work() -> int:
            iterations = 0
            while not stop.is_set() or iterations < 3:
                assert region(2, 20) == [20] * 2
                iterations += 1
            return iterations

        running = caller.submit(work)
        for number in [1, 3, 2, 1, 2, 3] * 10:
            pool.resize(number)
        stop.set()
        assert running.result(timeout=60) >= 3


# Begins a region of `size` threads while denormal numbers are flushed, then one of OpenMP's own while they are kept. Each thread
# writes the square of a small number at products[its number], in the second region 32 further.
PRODUCTS = """\
declare void @GOMP_parallel_start(ptr, ptr, i32)
declare void @GOMP_parallel_end()
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i64 @nnc_float_mode()
declare void @nnc_set_float_mode(i64)
declare void @nnc_flush_denormals()

define internal void @KERNEL.region(ptr %products) {
  %number = call i32 @omp_get_thread_num()
  %small = alloca float
  store volatile float 0x3BC79CA100000000, ptr %small ; 1e-20
  %x = load volatile float, ptr %small
  %product = fmul float %x, %x
  %at = getelementptr float, ptr %products, i32 %number
  store float %product, ptr %at
  ret void
}

define i64 @KERNEL(ptr %products, i64 %size) {
  %size.i32 = trunc i64 %size to i32
  %mode = call i64 @nnc_float_mode()
  call void @nnc_flush_denormals()
  call void @GOMP_parallel_start(ptr @KERNEL.region, ptr %products, i32 %size.i32)
  call void @KERNEL.region(ptr %products)
  call void @GOMP_parallel_end()
  call void @nnc_set_float_mode(i64 %mode)
  %further = getelementptr float, ptr %products, i64 32
  call void @GOMP_parallel(ptr @KERNEL.region, ptr %further, i32 %size.i32, i32 0)
  ret i64 0
}
"""


@pytest.mark.skipif(not flushes_denormals(), reason="the processor has no such mode that nnc knows")
@pytest.mark.parametrize("workers", [0, 2])
def test_threads_of_a_region_flush_denormal_numbers_as_their_caller_does_and_not_behind_it(workers: int) -> None:
    pool = Pool(ctypes.c_int32(1 + workers))
    jit = Jit(ENGINE, Objects(ENGINE, None), Runtime(OPENMP, pool.count, pool))
    symbols = {n: a for n, a in jit.standins.items() if n != "omp_get_max_threads"}
    symbols["GOMP_parallel"] = ctypes.cast(OPENMP.library.GOMP_parallel, ctypes.c_void_p).value or 0
    (function,) = jit.load([Native(PRODUCTS, symbols)])
    products = np.ones(64, np.float32)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(function.address)
    wait_for_workers(pool)
    with ThreadPoolExecutor(1) as caller:  # to a new thread OpenMP gives new ones, made while it flushes
        for _ in range(5):
            assert caller.submit(call, products.ctypes.data, 3).result() == 0
            assert products[:3].tolist() == [0, 0, 0]
            np.testing.assert_allclose(products[32:35], np.float32(1e-40))
            products[:] = 1
    pool.close()


def test_outside_of_a_region_openmp_answers() -> None:
    text = """
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
declare i32 @omp_in_parallel()
declare i32 @omp_get_max_threads()
define i64 @KERNEL() {
  %number = call i32 @omp_get_thread_num()
  %size = call i32 @omp_get_num_threads()
  %inside = call i32 @omp_in_parallel()
  %most = call i32 @omp_get_max_threads()
  %a = mul i32 %number, 1000
  %b = mul i32 %size, 100
  %c = mul i32 %inside, 10
  %ab = add i32 %a, %b
  %abc = add i32 %ab, %c
  %all = add i32 %abc, %most
  %found = zext i32 %all to i64
  ret i64 %found
}
"""
    pool = Pool(ctypes.c_int32(5))
    jit = Jit(ENGINE, Objects(ENGINE, None), Runtime(OPENMP, pool.count, pool))
    (function,) = jit.load([Native(text, {n: a for n, a in jit.standins.items() if not n.startswith("GOMP")})])
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(function.address)() == 105  # thread 0 of 1, outside, of 5 at most
    pool.close()
    assert set(jit.standins) == set(STANDINS)
