"""Background work of a call is done beside it and is never lost; elsewhere everything is done at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.compiled.executable import Executable
from nnc.errors import NncError
from nnc.run import background
from nnc.run.background import WRITER, deferring, in_background
from nnc.run.store import stored
from nnc.run.store.cache import Cache

pytestmark = pytest.mark.unguarded

X = np.linspace(-1, 1, 12, dtype=np.float32)


def test_without_a_block_it_is_done_at_once() -> None:
    done: list[str] = []
    in_background(lambda: done.append(threading.current_thread().name))
    assert done == [threading.current_thread().name]


def test_it_is_done_in_order_when_the_block_has_ended(written: Callable[[], None]) -> None:
    done: list[tuple[int, str]] = []
    with deferring():
        for i in range(5):
            in_background(lambda i=i: done.append((i, threading.current_thread().name)))  # type: ignore[misc]
        assert not done
    written()
    assert done == [(i, WRITER) for i in range(5)]


def test_it_is_done_where_the_block_raises(written: Callable[[], None]) -> None:
    done: list[int] = []

    def fail() -> None:
        with deferring():
            in_background(lambda: done.append(1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    written()
    assert done == [1]


def test_where_no_thread_can_be_had_it_is_done_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", start)
    with deferring():
        in_background(lambda: done.append(1))
    assert done == [1]


def test_finished_tasks_are_not_held(written: Callable[[], None]) -> None:
    class Big:
        def write(self) -> None:
            gone.append(weakref.ref(self))

    gone: list[weakref.ref[Big]] = []
    held: list[bool] = []
    with deferring():
        in_background(Big().write)
        in_background(lambda: held.append(gone[0]() is not None))
    written()
    assert held == [False]
    assert not [thread for thread in threading.enumerate() if thread.name == WRITER]


def test_a_block_that_lasts_does_not_keep_others_waiting(
    monkeypatch: pytest.MonkeyPatch, written: Callable[[], None]
) -> None:
    monkeypatch.setattr(background, "_PATIENCE", 0.0)
    first, done = threading.Event(), []
    with deferring():
        in_background(first.set)
        assert first.wait(60)
        in_background(lambda: done.append(2))
        assert not done
    written()
    assert done == [2]


def test_when_the_block_has_ended_it_is_done_at_once(written: Callable[[], None]) -> None:
    done: list[int] = []
    with deferring():
        in_background(lambda: done.append(1))
        of_a_thread = copy_context()
    written()
    of_a_thread.run(in_background, lambda: done.append(2))
    assert done == [1, 2]


def test_a_block_within_another_is_a_part_of_it(written: Callable[[], None]) -> None:
    done: list[int] = []
    with deferring():
        with deferring():
            in_background(lambda: done.append(1))
        in_background(lambda: done.append(2))
        assert not done
    written()
    assert done == [1, 2]


# -- calls -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("NNC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NNC_VERIFY", "0")
    monkeypatch.setattr(stored, "files_digest", lambda kind: "these files")  # others may be changing them
    return tmp_path


def programs(folder: Path) -> int:
    return len(list(folder.glob("*/programs/*.bin")))


def test_a_call_returns_before_its_program_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, written: Callable[[], None]
) -> None:
    go_on, write = threading.Event(), Cache.write_bytes

    def waiting(*args: Any) -> None:
        assert go_on.wait(60)
        write(*args)

    monkeypatch.setattr(Cache, "write_bytes", waiting)
    assert nnc.compile(lambda x: nnp.exp(x) - 1)(X).shape == X.shape
    assert not programs(folder)
    go_on.set()
    written()
    assert programs(folder) == 1


def test_a_program_is_kept_when_it_has_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, written: Callable[[], None]
) -> None:
    run, kept = Executable.run, []

    def watched(self: Executable, leaves: Any) -> Any:
        result = run(self, leaves)
        kept.append(programs(folder))
        return result

    monkeypatch.setattr(Executable, "run", watched)
    nnc.compile(lambda x: nnp.exp(x) - 5)(X)
    written()
    assert kept == [0] and programs(folder) == 1


def test_programs_compiled_in_advance_are_stored_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "threading", None)
    nnc.compile(lambda x: nnp.exp(x) - 2).lower(X).compile()
    assert programs(folder) == 1


def test_the_program_of_a_run_that_raises_is_kept(folder: Path, written: Callable[[], None]) -> None:
    with nnc.debug.check_finite(), pytest.raises(NncError):
        nnc.compile(lambda x: nnp.log(x) - 3)(np.zeros_like(X))
    written()
    assert programs(folder) == 1


def test_threads_that_compile_at_once_keep_all_programs(folder: Path, written: Callable[[], None]) -> None:
    def call(i: int) -> None:
        nnc.compile(lambda x: nnp.exp(x) - 4 - i)(X)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, [0, 1, 2, 3, 0, 1]))
    written()
    assert programs(folder) == 4
    assert not list(folder.rglob("*.part"))


BEGIN = """
import os, sys, threading, time
import nnc, nnc.numpy as nnp  # before NumPy, whose OpenBLAS NNC_CPU restricts
import numpy as np
import nnc.compiled.pipeline as pipeline
import nnc.run.store.stored as stored
from nnc.run.store.cache import Cache
stored.files_digest = lambda kind: "these files"
write, writes, go_on = Cache.write_bytes, [], threading.Event()
x = np.ones(3, np.float32)
"""
ONE_CALL = """
plan, lowered = pipeline.plan, []
pipeline.plan = lambda *args: lowered.append(1) or plan(*args)
Cache.write_bytes = lambda *args: time.sleep(0.3) or write(*args)
nnc.compile(lambda x: nnp.tanh(x) * 2)(x)
print(len(lowered), threading.active_count() > 1)
"""
FORKED = """
def slow(*args):
    writes.append(os.getpid())
    assert go_on.wait(60)
    write(*args)

Cache.write_bytes = slow
nnc.compile(lambda x: nnp.tanh(x) * 3)(x)
child = os.fork()
if child == 0:
    Cache.write_bytes = lambda *args: writes.append(os.getpid()) or write(*args)
    nnc.compile(lambda x: nnp.tanh(x) * 4)(x)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
go_on.set()
"""


def printed(script: str, folder: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NNC_CACHE_DIR": str(folder),
        "NNC_VERIFY": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_a_process_that_ends_after_its_first_call_keeps_its_program(tmp_path: Path) -> None:
    assert printed(ONE_CALL, tmp_path) == "1 True"  # it writes on when it has nothing else to do
    assert printed(ONE_CALL, tmp_path).startswith("0 ")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked off here")
def test_a_process_forked_off_meanwhile_neither_waits_nor_writes_it_again(tmp_path: Path) -> None:
    script = (
        "import warnings; warnings.simplefilter('ignore', DeprecationWarning)" + FORKED
    )  # of threads, in Python 3.12
    printed(script, tmp_path)
    assert programs(tmp_path) == 2
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked off here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_tasks_that_wait_at_a_fork_are_the_parents_alone(tmp_path: Path, written: Callable[[], None]) -> None:
    done = tmp_path / "done"

    def note(name: str) -> None:
        with done.open("a") as file:
            file.write(f"{name} of {'parent' if os.getpid() == parent else 'child'}\n")

    parent, child = os.getpid(), 0
    with deferring():
        in_background(lambda: note("first"))
        child = os.fork()
        in_background(lambda: note("second"))
    written()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(done.read_text().splitlines()) == ["first of parent", "second of child", "second of parent"]
