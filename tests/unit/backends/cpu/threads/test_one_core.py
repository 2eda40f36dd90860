"""On one core nothing works beside the caller: no worker, no thread that touches memory or makes primitives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CASE = """
import _thread, os, sys, threading, time
if sys.argv[1] == "affinity":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import numpy
import nnc.base.machine
if sys.argv[1] == "limit":
    nnc.base.machine.processor_share = lambda: 0.5
begun, start = [], _thread.start_new_thread

def start_new_thread(function, *arguments):
    begun.append(getattr(function, "__qualname__", str(function)))
    return start(function, *arguments)

_thread.start_new_thread = threading._start_new_thread = start_new_thread
import nnc, nnc.numpy as nnp
from nnc import nn
from nnc.backends.cpu.threads.threads import threads

def loss(w, kernel, x):
    image = x.reshape(4, 8, 64, 128)
    return nnp.sum(nnp.tanh(x @ w)) + nnp.sum(nn.conv(image, kernel, padding="SAME"))

x, w, kernel = nnp.ones((512, 512)), nnp.ones((512, 512)), nnp.ones((16, 8, 3, 3))
step = nnc.compile(nnc.value_and_grad(loss, argnums=(0, 1)), donate_argnums=())
for _ in range(5):
    step(w, kernel, x)
    nnc.compile(nnp.linalg.cholesky)(nnp.eye(300))
assert threads().count.value == 1 and not threads().pool.workers, threads()
names = {thread.name for thread in threading.enumerate()} - {"MainThread", "nnc: compiled code", "nnc keeps"}
assert not names, names
known = {"undisturbed.<locals>.run", "Thread._bootstrap"}  # of the two threads that wait for a process and a file
assert set(begun) <= known, begun
def of_libraries():
    return len(os.listdir("/proc/self/task")) - len(threading.enumerate())

end = time.monotonic() + 20
while of_libraries() and time.monotonic() < end:  # a thread of Python's that ends just now is in one of both lists
    time.sleep(0.05)
print(of_libraries(), "of libraries")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in Linux's files")
@pytest.mark.parametrize("how", ["affinity", "limit"])
def test_no_thread_works_beside_the_caller_on_one_core(how: str) -> None:
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", CASE, how], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if how == "affinity":
        assert done.stdout == "0 of libraries\n"
