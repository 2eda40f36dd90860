"""Compiled functions that nobody holds any more give their memory back."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.backends.loaded import expected_compiler
from nnc.backends.onednn.library import library
from nnc.base.bounded import remembered
from nnc.graph import Graph
from nnc.lower.kernels.native import Native, Remembered, Texts

RESIDENT = """
import ctypes, gc, sys, time, numpy as np, nnc, nnc.numpy as nnp

def resident():
    "What is held once the C library has given back all that it can."
    gc.collect()
    time.sleep(2.5)  # what is written to the cache beside the calls holds programs for two seconds
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda keep: 0)(0)
    return int(open("/proc/self/statm").read().split()[1]) * 4096
"""

SCRIPT = f"""{RESIDENT}
def code():
    "Bytes of memory that can be executed and belongs to no file."
    rows = [line.split() for line in open("/proc/self/maps")]
    ends = [row[0].split("-") for row in rows if "x" in row[1] and len(row) < 6]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ends)

x = np.ones((5, 7), np.float32)

def dense(i):
    w = np.full((7, 3), i, np.float32)
    f = nnc.compile(nnc.grad(lambda x: nnp.sum(nnp.tanh(x * (i + 0.5)) @ w)))
    for _ in range(3):
        f(x)

def convolved(i):
    x = np.ones((1, 2, 6, 6 + i), np.float32)
    nnc.compile(lambda x: nnc.nn.conv(x, nnp.ones((16, 2, 3, 3))))(x)

for function, warm, many in ((dense, 600, 200), (convolved, 5, 35)):
    for i in range(warm):
        function(i)
    before = resident(), code()
    for i in range(warm, warm + many):
        function(i)
    print(resident() - before[0], code() - before[1])
"""

MIXED = f"""{RESIDENT}
KINDS = (
    lambda i, n: nnc.grad(lambda x: nnp.sum(nnp.tanh(x * (i + 0.5)) @ np.full((n, 3), i, np.float32))),
    lambda i, n: lambda x: nnp.cumsum(nnp.sin(x) * i, axis=1),
    lambda i, n: lambda x: nnc.fori_loop(0, 3 + i % 5, lambda j, c: nnp.exp(-c) + i, x),
    lambda i, n: lambda x: nnp.sort(x, axis=-1) + nnp.max(x, axis=0) * i,
    lambda i, n: lambda x: nnc.nn.conv(nnp.stack([x, x])[None], nnp.ones((4, 2, 3, 3)) * i),
    lambda i, n: nnc.grad(lambda x: nnp.sum(nnc.nn.softmax(x * i, axis=-1) ** 2)),
    lambda i, n: lambda x: nnc.scan(lambda c, r: (c * 0.5 + r, nnp.sum(c) + i), nnp.zeros(n, "float32"), x),
    lambda i, n: lambda x: (nnp.concatenate([x, x])[::2] * i, nnp.where(x > i, x, -x), x.T @ x),
)
begin = resident()
for i in range(50 + int(sys.argv[1])):
    if i == 50:
        before = resident()
    n = 3 + i // len(KINDS) % 40
    function = nnc.compile(KINDS[i % len(KINDS)](i, n))
    for _ in range(3):
        function(np.ones((5, n), np.float32))
    del function
after = resident()
print(after - before, before - begin)
"""


def run_script(script: str, folder: Path, *arguments: str) -> str:
    """Returns the output of a fresh process with an empty cache."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NNC_CACHE_DIR": str(folder), "NNC_VERIFY": "0",
    }  # fmt: skip
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
@pytest.mark.unguarded  # the guard has memory and code of its own for each program
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory is resident")
def test_dropped_functions_give_memory_and_code_back(tmp_path: Path) -> None:
    printed = run_script(SCRIPT, tmp_path)
    dense, convolved = ([int(word) for word in line.split()] for line in printed.splitlines())
    assert dense[0] < 800_000 and dense[1] < 100_000  # the first 600 fill the bounded cache of texts
    assert convolved[1] < 1_000_000  # a primitive of oneDNN has 0.1 MB of code and more


@pytest.mark.slow
@pytest.mark.unguarded  # the guard has memory and code of its own for each program
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much memory is resident")
def test_dropped_functions_of_many_kinds_leave_bounded_memory(tmp_path: Path) -> None:
    grown, _ = map(int, run_script(MIXED, tmp_path, "200").split())
    assert grown < 9_000_000  # behind the first 50, which load libraries; bounded caches fill meanwhile, one of 4 MiB


def test_all_printers_remember_texts_in_one_bound() -> None:
    made: list[str] = []

    def printer(name: str, characters: int) -> Remembered:
        return Remembered(lambda step: made.append(name) or Native(f"; {name}".ljust(characters)))

    step = SimpleNamespace(params={}, inputs=(), outputs=())
    small, large, other = printer("small", 100), printer("large", 3_000_000), printer("other", 3_000_000)
    for ask in (small, large, small, large, other, other, small, large):
        ask(step)
    assert made == ["small", "large", "other", "small", "large"]  # the large ones do not fit together


@pytest.mark.skipif(expected_compiler() is None, reason="nothing is compiled here")
def test_a_function_that_nobody_holds_is_gone_with_its_graphs() -> None:
    w, x = np.full((7, 3), 1.25, np.float32), np.ones((5, 7), np.float32)
    made = nnc.compile(nnc.grad(lambda x: nnp.sum(nnp.exp(x) @ w))).lower(x).compile()
    made(x)
    graph = weakref.ref(made.graph)
    del made
    gc.collect()
    assert graph() is None


def test_cached_facts_of_a_graph_are_freed_with_it() -> None:
    asked: list[int] = []

    @remembered
    def size(graph: Graph, factor: int) -> int | None:
        asked.append(factor)
        return len(graph.nodes) * factor or None

    graph = nnc.make_graph(lambda x: x * x)(nnp.ones(2))
    other = nnc.make_graph(lambda x: x * x + x)(nnp.ones(2))
    empty = nnc.make_graph(lambda x: x)(nnp.ones(2))
    assert [size(graph, 2), size(graph, 3), size(graph, 2), size(other, 2)] == [2, 3, 2, 4]
    assert [size(empty, 2), size(empty, 2)] == [None, None]
    assert asked == [2, 3, 2, 2]
    known, alive = weakref.ref(graph), weakref.ref(other)
    del graph
    gc.collect()
    assert known() is None and alive() is other


def test_printed_texts_are_remembered_as_far_as_they_fit() -> None:
    texts = Texts(10_000)
    made: list[int] = []

    def ask(key: int) -> Native | None:
        def make() -> Native | None:
            made.append(key)
            return Native(f"; {key}".ljust(1744)) if key else None

        return texts.find(key, make)

    for key in (0, 1, 2, 3, 4, 1):  # 256 and four times 2000 characters
        found = ask(key)
        assert (found is None) == (key == 0) and (found is None or found.text.strip() == f"; {key}")
    assert made == [0, 1, 2, 3, 4]
    for key in (5, 6):  # for them go 0 and 2, which nobody asked for since
        ask(key)
    for key in (1, 3, 4, 5, 6):
        ask(key)
    assert made == [0, 1, 2, 3, 4, 5, 6]
    ask(2)
    ask(0)
    assert made == [0, 1, 2, 3, 4, 5, 6, 2, 0]


CONVOLUTIONS = """
import gc, time, numpy as np, nnc, nnc.numpy as nnp
from nnc.backends.onednn.primitives import _KNOWN

made = 0
for size in range(30, 36):
    nnc.compile(lambda x: nnc.nn.conv(x, nnp.ones((16, 2, 3, 3))))(np.ones((1, 2, 9, size), np.float32))
    made = max(made, len(_KNOWN))
for _ in range(600):  # what is written to the cache beside the calls holds programs for a moment
    gc.collect()
    if not _KNOWN:
        break
    time.sleep(0.05)
print(made, len(_KNOWN))
"""


@pytest.mark.skipif(library() is None, reason="oneDNN is absent")
def test_primitives_of_dropped_functions_are_gone(tmp_path: Path) -> None:
    made, left = map(int, run_script(CONVOLUTIONS, tmp_path).split())
    assert made > 0 and left == 0
