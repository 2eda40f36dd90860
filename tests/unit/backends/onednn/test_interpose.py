"""oneDNN in nnc's own threads: no others are begun, and programs made before a fork, or for more threads, run as ever."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nnc.backends.onednn import library as library_module
from nnc.backends.onednn.interpose import can_interpose, imported, interpose
from nnc.backends.onednn.library import library

FOUND = library()
pytestmark = pytest.mark.skipif(FOUND is None or not FOUND.shares_threads, reason="oneDNN has threads of its own here")

PROCESS = """
import os, threading, time
import numpy as np
import nnc
from nnc import nn
from nnc.backends.cpu.compiler.jit import compiler
from nnc.backends.onednn.library import library

def count_threads():
    return len(os.listdir("/proc/self/task")) - threading.active_count()  # those that are none of Python

assert library().shares_threads
nnc.set_num_threads(3)
rng = np.random.default_rng(0)
x, w = (nnc.asarray(rng.normal(size=s).astype(np.float32)) for s in ((4, 32, 16, 16), (32, 32, 3, 3)))
program = nnc.compile(lambda x, w: nnc.vjp(lambda x, w: nn.conv(x, w, padding=1), x, w)[1](x))
while compiler().runtime.pool.present.value < 2:
    time.sleep(0.001)
before = count_threads()
first = [np.asarray(y) for y in program(x, w)]
print("new threads", count_threads() - before)

def same():
    return all(np.allclose(a, np.asarray(b), rtol=1e-3, atol=1e-3) for a, b in zip(first, program(x, w)))

child = os.fork()
if child == 0:
    print("child", same(), flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
nnc.set_num_threads(1)
print("fewer", same())
nnc.set_num_threads(4)
print("more", same())
"""


def test_onednn_works_in_nncs_threads_also_after_a_fork_and_with_other_numbers() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROCESS],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == ["new threads 0", "child True", "fewer True", "more True"]


def test_a_library_that_calls_more_of_openmp_keeps_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FOUND is not None and "GOMP_parallel_start" in imported(FOUND.functions)
    changed: list[object] = []
    monkeypatch.setattr(library_module, "interpose", lambda *given: changed.append(given) or True)
    assert library_module.share_threads(FOUND.functions) and changed
    changed.clear()
    monkeypatch.setattr(
        library_module, "imported", lambda _: {**imported(FOUND.functions), "GOMP_loop_dynamic_start": 0}
    )
    assert not library_module.share_threads(FOUND.functions) and not changed


def test_only_a_library_that_imports_all_functions_is_changed() -> None:
    assert FOUND is not None and can_interpose()
    assert not interpose(imported(FOUND.functions), {"omp_get_max_threads": 1, "no_such_function": 1})
    assert FOUND.functions.dnnl_version().contents.major >= 3  # and it still runs
