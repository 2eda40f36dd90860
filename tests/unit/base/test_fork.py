"""Forked processes: no lock is held by a thread that is not there, in the middle of any work of the parent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nnc

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked off here")

BEGIN = """
import faulthandler, gc, itertools, multiprocessing, os, random, sys, threading, time, warnings
warnings.simplefilter("ignore")  # Python 3.12 and jax warn of forking with threads
import numpy as np
import nnc, nnc.numpy as nnp
from nnc.base import fork

x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)

def forked(function):
    "The exit code of a child that calls a function; 1 after half a minute."
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(30, exit=True)
        os._exit(function())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def in_thread(function, *args):
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread
"""


def printed(script: str, folder: Path, **settings: str) -> list[str]:
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NNC_CACHE_DIR": str(folder / "cache"), **settings,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


COMPILING = """
image, w = np.ones((1, 4, 6, 6), np.float32), np.ones((4, 4, 3, 3), np.float32)

def dense(i):
    def f(x):
        for k in range(1 + i % 4):
            x = nnp.tanh(x * (i + 1.5)) @ nnp.ones((4, 4), "float32") + i
        return nnp.sum(x)
    return nnc.compile(nnc.grad(f))

def convolved(i):
    return nnc.compile(nnc.grad(lambda a: nnp.sum(nnc.nn.conv(a * (1.0 + i), w, padding=1) ** 2)))

newest, stop = [dense(-1)], False  # what the other thread compiles just now

def work():
    for i in itertools.count():
        if stop:
            return
        newest[0] = dense(i)
        newest[0](x)
        if i % 3 == 0:
            convolved(i)(image)

def child():
    for function, operand in ((newest[0], x), (dense(1000 + n), x), (convolved(1000 + n), image)):
        assert np.isfinite(np.asarray(function(operand))).all()
    rows = np.ones((500, 3000), np.float32)  # worth a parallel loop
    assert np.allclose(nnc.compile(lambda x: nnp.sum(nnp.exp(x), axis=1))(rows), 3000 * np.e)
    return 5

thread, rng = in_thread(work), random.Random(0)
for n in range(8):
    time.sleep(rng.uniform(0.0, 0.1))
    print(forked(child))
stop = True
thread.join(60)
print(thread.is_alive(), child())
"""


@pytest.mark.slow
@pytest.mark.parametrize("native", ["1", "0"])
def test_parent_and_children_compile_and_run_though_another_thread_compiled(tmp_path: Path, native: str) -> None:
    assert printed(COMPILING, tmp_path, NNC_NATIVE=native) == ["5"] * 8 + ["False 5"]


POOL = """
double = nnc.compile(lambda x: nnp.tanh(x) * 2)
double(x)

def made(i):
    return float(np.asarray(double(x)).sum()), np.asarray(nnc.compile(lambda x: nnp.exp(x) * i)(x))

nnc.set_num_threads(2)
nnc.compile(lambda x: nnp.sum(nnp.exp(x)))(np.ones((600, 3000), np.float32))
with multiprocessing.get_context("fork").Pool(2) as pool:
    results = pool.map(made, range(6))
print(all(np.allclose(found, np.exp(x) * i, atol=1e-6) for i, (_, found) in enumerate(results)))
print(np.allclose([total for total, _ in results], np.sum(np.tanh(x) * 2), atol=1e-5))
"""


def test_pools_of_forked_processes_compile_and_run(tmp_path: Path) -> None:
    assert printed(POOL, tmp_path) == ["True", "True"]


MISTAKES = """
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.llvm.llvm_process import Helper

def wrong():
    nnc.compile(lambda x: nnp.exp(x) + 1)(x)
    try:
        nnc.compile(lambda x: x @ x)(x)
    except nnc.errors.ShapeError:
        pass
    compiler().engine._helper.close()  # as at the end of a process
    return 3

def within():
    "Forks in the midst of a trace, which goes on in both."
    codes = []
    def f(x):
        y = nnp.tanh(x) * 3
        if not codes:
            codes.append(os.fork())
        return nnp.sum(y)
    with np.errstate(all="ignore"):
        total = float(nnc.compile(f)(x))
    if codes[0] == 0:
        os._exit(9 if abs(total) < 1e-4 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(codes[0], 0)[1]), abs(total) < 1e-4

nnc.compile(lambda x: nnp.exp(x) * 2)(x)
helper = compiler().engine._helper
before = helper.start() if helper is not None else None
print(forked(wrong))
print(before is None or (before.is_open and helper.start() is before), helper is None or helper.is_usable)
print(*within())
print(forked(lambda: within()[0]))
"""


def test_errors_and_ends_of_children_and_forks_within_traces_disturb_nobody(tmp_path: Path) -> None:
    assert printed(MISTAKES, tmp_path) == ["3", "True True", "9 True", "9"]


PARTS = """
from functools import cached_property
from nnc.base.garbage import collection_paused
from nnc.data.ahead import Prefetch
from nnc.run.program import Program

lock, mine, theirs = fork.new_lock(), fork.new_rlock(), fork.new_rlock()
here, go_on = threading.Barrier(2), threading.Event()

def hold():
    with lock, theirs, collection_paused():
        for found in fork._locks_of_properties():
            found.acquire()
        here.wait()
        go_on.wait()

def free():
    me = lock.acquire(timeout=5) and theirs.acquire(timeout=5) and gc.isenabled()
    mine.release()  # by the thread that holds it
    return 4 if me and all(found.acquire(timeout=5) for found in fork._locks_of_properties()) else 1

thread = in_thread(hold)
here.wait()
with mine:
    print(forked(free), gc.isenabled())
    with collection_paused():
        print(forked(lambda: 1 if gc.isenabled() else 4))  # the thread that forks pauses it
go_on.set()
thread.join(60)
print(gc.isenabled())

ended = []

def block():
    with fork.fork_waits():
        with fork.fork_waits():  # as a part of it
            here.wait()
        time.sleep(0.2)
        ended.append(1)

thread = in_thread(block)
here.wait()
print(forked(lambda: len(ended)))

def nested():
    with fork.fork_waits():
        return forked(lambda: 6)

print(nested())

batches = Prefetch(lambda: iter(range(5)), 1, "nnc.data.batches")
print(next(batches))

def ask():
    try:
        next(batches)
    except nnc.errors.BackendError as error:
        batches.close()
        return 8 if "forked off" in str(error) else 1

print(forked(ask), list(batches))
"""


def test_locks_blocks_and_threads_of_others_are_gone_in_a_child(tmp_path: Path) -> None:
    assert printed(PARTS, tmp_path) == ["4 False", "4", "True", "1", "6", "0", "8 [1, 2, 3, 4]"]


def test_every_lock_of_nnc_is_known_to_the_module_that_frees_them() -> None:
    of_a_call_or_process = {("primitives.py", 1), ("llvm_process.py", 2), ("llvm.py", 4)}  # which a child does not use
    found = set()
    for path in Path(nnc.__file__).parent.rglob("*.py"):
        number = len(re.findall(r"\b(?:R?Lock|allocate_lock|register_at_fork)\(", path.read_text(encoding="utf-8")))
        if number and path.name != "fork.py":
            found.add((path.name, number))
    assert found == of_a_call_or_process
