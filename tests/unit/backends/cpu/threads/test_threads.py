"""The number of threads, the libraries they belong to, and loops in them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import nnc
from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.cpu.compiler.jit import Jit
from nnc.backends.cpu.compiler.object_cache import Objects
from nnc.backends.cpu.compiler.runtime import Runtime
from nnc.backends.cpu.threads import threads as threads_module
from nnc.backends.cpu.threads.pool import Pool, is_supported
from nnc.backends.cpu.threads.threads import (
    Openmp,
    Threads,
    find_blas_setters,
    find_openmp,
    loaded_libraries,
    most_threads,
    threads,
)
from nnc.errors import ArgumentError, ArgumentTypeError, BackendError
from nnc.lower.kernels.native import Native

ENGINE = Engine()
MISSING = Openmp(None, "no such library")

# Writes to row i of an int64 array (n, 2) where the part that item i is in begins and ends.
PARTS = """\
declare void @nnc_parallel_for(ptr, ptr, i64, i64)

define internal void @KERNEL.part(ptr %rows, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %row = getelementptr [2 x i64], ptr %rows, i64 %i
  %second = getelementptr i64, ptr %row, i64 1
  %old = load i64, ptr %second
  %sum = add i64 %old, %end
  store i64 %begin, ptr %row
  store i64 %sum, ptr %second
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}

define i64 @KERNEL(ptr %rows, i64 %n, i64 %grain) {
  call void @nnc_parallel_for(ptr @KERNEL.part, ptr %rows, i64 %n, i64 %grain)
  ret i64 0
}
"""


def parts_by(openmp: Openmp) -> Callable[[int, int], list[tuple[int, int]]]:
    """Makes a function of n and grain, whose result are the parts that a loop was run in where nnc has no threads of its own."""
    jit = Jit(ENGINE, Objects(ENGINE, None), Runtime(openmp, ctypes.c_int32(4)))
    (function,) = jit.load([Native(PARTS)])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(function.address)

    def parts(n: int, grain: int, held: object = function) -> list[tuple[int, int]]:
        rows = np.zeros((max(n, 0), 2), np.int64)
        call(rows.ctypes.data, n, grain)
        return sorted({(int(begin), int(end)) for begin, end in rows})

    return parts


def cover(parts: list[tuple[int, int]], n: int) -> bool:
    """Whether parts follow each other from 0 to n."""
    edges = [0, *(end for _, end in parts)]
    return [begin for begin, _ in parts] == edges[:-1] and edges[-1] == n


@pytest.mark.parametrize("openmp", [find_openmp(), MISSING])
def test_without_threads_of_its_own_a_loop_runs_in_one_part(openmp: Openmp) -> None:
    parts = parts_by(openmp)
    assert parts(100, 1) == [(0, 100)] and parts(1, 1) == [(0, 1)]
    assert parts(0, 1) == parts(-5, 1) == []


@pytest.mark.parametrize("openmp", [find_openmp(), MISSING])
def test_libraries_take_the_number_in_every_thread_that_calls_them(openmp: Openmp) -> None:
    jit = Jit(ENGINE, Objects(ENGINE, None), Runtime(openmp, ctypes.c_int32(3)))
    text = "declare void @nnc_take_threads()\ndefine i64 @KERNEL() {\n  call void @nnc_take_threads()\n  ret i64 0\n}\n"
    (function,) = jit.load([Native(text)])
    library = ctypes.CDLL("libgomp.so.1")

    def numbers() -> tuple[int, int]:
        before = library.omp_get_max_threads()
        ctypes.CFUNCTYPE(ctypes.c_int64)(function.address)()
        return before, library.omp_get_max_threads()

    with ThreadPoolExecutor(1) as pool:  # a new thread, of which OpenMP knows nothing yet
        before, after = pool.submit(numbers).result()
    assert after == (3 if openmp.library is not None else before)


# -- set_num_threads ---------------------------------------------------------------------------------------------------


@pytest.fixture
def number() -> int:
    """The number that is set, which is set again after the test."""
    return threads().count.value


@pytest.mark.parametrize("n", [1, 2, np.int64(3)])
def test_one_number_governs_kernels_blas_and_openmp(n: int, number: int) -> None:
    try:
        assert nnc.set_num_threads(n) == number
        assert threads().count.value == n
        (library,) = blas()
        assert library.scipy_openblas_get_num_threads64_() == n
        assert ctypes.CDLL("libgomp.so.1").omp_get_max_threads() == n
    finally:
        nnc.set_num_threads(number)
    assert threads().count.value == number


def blas() -> list[ctypes.CDLL]:
    found = [ctypes.CDLL(name) for name in loaded_libraries("openblas64_") if "numpy" in name]
    return found or pytest.skip("this NumPy brings no OpenBLAS")


@pytest.mark.parametrize(
    ("n", "error", "words"),
    [
        (0, ArgumentError, "n is 0; it must be between 1 and"),
        (-2, ArgumentError, "n is -2"),
        (most_threads() + 1, ArgumentError, f"between 1 and {most_threads()}"),
        (True, ArgumentError, "n is True"),
        (1.5, ArgumentTypeError, "n is a float, it must be an int"),
        ("2", ArgumentTypeError, "n is a str"),
        (None, ArgumentTypeError, "n is a NoneType"),
    ],
)
def test_other_numbers_are_refused(n: int, error: type[Exception], words: str, number: int) -> None:
    with pytest.raises(error, match=f"set_num_threads: .*{words}"):
        nnc.set_num_threads(n)
    assert threads().count.value == number


@pytest.mark.parametrize(
    ("variables", "number"),
    [
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OPENBLAS_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "100000"}, most_threads()),
    ],
)
def test_the_first_number_is_that_of_the_environment(
    variables: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert threads_module.first_number() == number


def test_without_a_word_all_usable_processors_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads_module, "usable_threads", lambda: 5)
    assert threads_module.first_number() == 5


def test_without_openmp_and_openblas_the_number_is_kept_alone() -> None:
    alone = Threads(ctypes.c_int32(4), MISSING, ())
    assert alone.set(2) == 4
    alone.after_fork()
    assert (alone.count.value, alone.forked) == (2, False)  # nothing is missing in the fork
    assert alone.describe() == "1: nnc has no threads of its own on this system, and OpenMP is absent"


def test_whose_threads_loops_take_is_told() -> None:
    count, openmp = ctypes.c_int32(4), find_openmp()
    assert Threads(count, openmp, ()).describe() == "4, OpenMP's, for oneDNN alone"
    assert Threads(count, MISSING, (), Pool(count)).describe() == "4, nnc's own"
    assert (
        Threads(count, openmp, (lambda n: None,), Pool(count)).describe() == "4, nnc's own, and as many of NumPy's BLAS"
    )


def test_files_that_are_no_libraries_have_no_setters(tmp_path: Path) -> None:
    broken = tmp_path / "libopenblas.so"
    broken.write_text("no library")
    assert find_blas_setters([broken, tmp_path / "missing.so"]) == []


FORK = """
import ctypes, os
import nnc
from nnc.backends.cpu.compiler.jit import compiler
from nnc.lower.kernels.native import Native

text = '''
declare void @nnc_parallel_for(ptr, ptr, i64, i64)
define internal void @KERNEL.part(ptr %args, i64 %begin, i64 %end) {
  %old = atomicrmw add ptr %args, i64 1 monotonic
  ret void
}
define i64 @KERNEL(ptr %args) {
  call void @nnc_parallel_for(ptr @KERNEL.part, ptr %args, i64 100, i64 1)
  ret i64 0
}
'''
nnc.set_num_threads(2)
(function,) = compiler().load([Native(text)])
def parts():
    count = ctypes.c_int64(0)
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(function.address)(ctypes.addressof(count))
    return count.value
print(parts(), flush=True)
child = os.fork()
if child == 0:
    print(parts(), flush=True)
    try:
        nnc.set_num_threads(2)
    except nnc.errors.BackendError:
        print("refused", flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(parts(), flush=True)
"""


@pytest.mark.skipif(not is_supported(), reason="loops have other parts in OpenMP's threads")
def test_a_forked_process_works_alone() -> None:
    run = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.split() == ["32", "1", "refused", "32"]


def test_threads_are_refused_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Threads(ctypes.c_int32(2), find_openmp(), (), forked=True)
    monkeypatch.setattr(threads_module, "threads", lambda: found)
    with pytest.raises(BackendError, match="forked off"):
        nnc.set_num_threads(2)
    assert nnc.set_num_threads(1) == 2


# -- libgomp -----------------------------------------------------------------------------------------------------------


def test_a_runtime_that_is_loaded_already_is_found_where_the_system_has_none(tmp_path: Path) -> None:
    assert find_openmp().library is not None
    (path,) = loaded_libraries("libgomp")[:1]
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 00000000 00:00 1    {path}\n7f01-7f02 r--p 00000000 00:00 1    {path}\n")
    assert find_openmp("libabsent.so.9", maps).origin == path


def test_a_missing_or_damaged_runtime_is_told(tmp_path: Path) -> None:
    damaged = tmp_path / "libgomp-1234.so.1"
    damaged.write_text("no library")
    maps = tmp_path / "maps"
    maps.write_text(f"7f00-7f01 r-xp 00000000 00:00 1    {damaged}\n")
    for found in (find_openmp("libabsent.so.9", maps), find_openmp("libabsent.so.9", tmp_path / "nothing")):
        assert found.library is None
        assert found.describe().startswith("absent: ")


SPINNING = """
import ctypes, os
os.environ.pop("OMP_WAIT_POLICY", None)
from nnc.backends.cpu.threads.threads import find_openmp
print(find_openmp("libgomp.so.1").library is not None, os.environ.get("GOMP_SPINCOUNT"))
"""


@pytest.mark.parametrize(("variables", "spins"), [({}, "2000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_openmps_threads_look_out_for_work_for_a_short_time_only(variables: dict[str, str], spins: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"} | variables
    environment["OMP_DISPLAY_ENV"] = "verbose"
    run = subprocess.run([sys.executable, "-c", SPINNING], capture_output=True, text=True, env=environment, check=True)
    assert f"GOMP_SPINCOUNT = '{spins}'" in run.stderr
    assert run.stdout.split() == ["True", variables.get("GOMP_SPINCOUNT", "None")]  # other processes are not told
