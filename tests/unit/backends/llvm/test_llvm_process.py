"""The process that compiles: it is there when there is work, ends in time, and is missed by nobody."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nnc.backends.cpu.compiler import elf
from nnc.backends.cpu.compiler.engine import Engine
from nnc.backends.llvm import llvm, llvm_process
from nnc.backends.llvm.llvm import CALLS, INLINED, KERNEL, NOTICE, REQUEST, Llvm, Recipe, decode, encode
from nnc.backends.llvm.llvm_process import Answer, GoneError, Helper, LlvmProcess, find_command
from nnc.backends.llvm.llvmlite_library import find_library
from nnc.errors import InternalError

pytestmark = pytest.mark.skipif(not elf.is_supported(), reason="LLVM is in the process itself on this system")

LIBRARY = find_library()


def text(number: int) -> str:
    return f"define i64 @f() {{\n  ret i64 {number}\n}}\n"


def until(condition: Callable[[], bool]) -> bool:
    """Whether a condition comes true soon."""
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before the file is opened, or after that
        return False


def pid_of(helper: Helper) -> int:
    process = helper.start()
    assert process is not None
    return process.pid


@pytest.fixture
def helper() -> Iterator[Helper]:
    command = find_command(LIBRARY, 2, None)
    assert command is not None
    made = Helper(command, idle=0.2)
    yield made
    made.close()


def answered(helper: Helper, of: str, recipe: Recipe = KERNEL) -> bytes:
    answer = helper.compile(of, recipe)
    assert isinstance(answer, Answer)
    return answer.result()


@pytest.mark.parametrize("recipe", [KERNEL, INLINED, CALLS])
def test_it_compiles_the_same_code_as_llvm_here(helper: Helper, recipe: Recipe) -> None:
    assert decode(encode(recipe)) == recipe
    assert answered(helper, text(1), recipe) == Llvm(LIBRARY).compile(text(1), recipe)


def test_refused_texts_are_explained_in_llvms_words(helper: Helper) -> None:
    refused = "define i64 @f() {\n  ret i6 0\n}\n"
    with pytest.raises(RuntimeError) as here:
        Llvm(LIBRARY).compile(refused)
    with pytest.raises(RuntimeError) as there:
        answered(helper, refused)
    assert str(here.value) == str(there.value)
    assert answered(helper, text(2))  # it goes on


def test_eight_threads_get_their_own_answers(helper: Helper) -> None:
    llvm = Llvm(LIBRARY)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda i: answered(helper, text(i)), range(64)))
    assert made == [llvm.compile(text(i)) for i in range(64)]


def test_it_ends_without_work_and_begins_anew(helper: Helper) -> None:
    first = pid_of(helper)
    assert answered(helper, text(1))
    assert until(lambda: not Path(f"/proc/{first}").exists())  # nobody has to wait for it any more, either
    assert answered(helper, text(1))
    assert pid_of(helper) != first


def test_large_texts_go_through(helper: Helper) -> None:
    many = "".join(f"define i64 @f{i}() {{\n  ret i64 {i}\n}}\n" for i in range(2500))
    answers = [helper.compile(many, CALLS) for _ in range(2)]
    assert all(answer is not None and len(answer.result()) > 50_000 for answer in answers)


def test_an_answer_that_does_not_come_is_found_out(helper: Helper) -> None:
    pid = pid_of(helper)
    os.kill(pid, signal.SIGSTOP)
    answer = helper.compile(text(1), KERNEL)
    assert answer is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(GoneError):
        answer.result()


@pytest.mark.parametrize("script", ["pass", "import time; time.sleep(60)", "print('hello')"])
def test_where_it_does_not_begin_to_work_llvm_is_loaded_here(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_process, "_GREETING", 0.5)
    monkeypatch.setattr(
        "nnc.backends.cpu.compiler.engine.find_command", lambda *_: [sys.executable, "-S", "-c", script]
    )
    engine = Engine()
    assert engine.is_apart
    assert engine.compile(text(3)) == Llvm(LIBRARY).compile(text(3))
    assert not engine.is_apart
    with pytest.raises(InternalError, match="LLVM does not take this text"):
        engine.compile("?")


def test_where_it_cannot_be_started_llvm_is_loaded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnc.backends.cpu.compiler.engine.find_command", lambda *_: ["/nowhere/python"])
    engine = Engine()
    assert engine.compile(text(3)) == Llvm(LIBRARY).compile(text(3))
    assert not engine.is_apart


def test_only_pythons_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("/usr/bin/uwsgi", "", None):
        monkeypatch.setattr(sys, "executable", name)
        assert find_command(LIBRARY, 1, None) is None
    monkeypatch.setattr(sys, "executable", "/somewhere/python3.11")
    assert find_command(LIBRARY, 1, None) is not None
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert find_command(LIBRARY, 1, None) is None


# -- from outside ------------------------------------------------------------------------------------------------------

BEGIN = """
import os, signal, time
from pathlib import Path

signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests in the background has it ignored
import numpy as np
import nnc
from nnc.backends.llvm.llvm_process import Helper

Helper.__init__.__defaults__ = (60.0,)  # seconds without work, of which there may be many where other tests run

def helpers():
    tasks = Path("/proc/self/task").glob("*/children")
    pids = [pid for task in tasks for pid in task.read_text().split()]
    return [int(pid) for pid in pids if "llvm.main()" in Path(f"/proc/{pid}/cmdline").read_text()]

double = nnc.compile(lambda x: x * 2.0 + 1.0)
at_once = helpers()
assert np.asarray(double(nnc.asarray([1.0, 2.0]))).tolist() == [3.0, 5.0]
"""
FACTS = 'print(len(at_once), len(helpers()), "libllvmlite" in Path("/proc/self/maps").read_text())'
FORKED = """
(helper,) = helpers()
child = os.fork()
if child == 0:
    halve = nnc.compile(lambda x: x / 2.0 - 1.0)
    assert np.asarray(halve(nnc.asarray([1.0, 4.0]))).tolist() == [-0.5, 1.0]
    assert helpers() and helper not in helpers()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
third = nnc.compile(lambda x: x * 3.0 - 1.0)
assert np.asarray(third(nnc.asarray([1.0, 4.0]))).tolist() == [2.0, 11.0]
assert helpers() == [helper]
print("done")
"""
# A signal that arrives just before a sleep is seen after it.
WAITING = "print(*helpers(), flush=True); [time.sleep(0.1) for _ in range(600)]"


def started(script: str, folder: Path, **settings: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NNC_CACHE_DIR": str(folder), **settings}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", BEGIN + script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def printed(script: str, folder: Path, **settings: str) -> str:
    out, errors = started(script, folder, **settings).communicate(timeout=60)
    assert errors == ""
    return out.strip()


@pytest.mark.unguarded
def test_a_process_from_the_decoration_on_and_none_where_everything_is_found(tmp_path: Path) -> None:
    assert printed(FACTS, tmp_path) == "1 1 False"
    assert printed(FACTS, tmp_path) == "0 0 False"


def test_no_process_where_nothing_is_compiled(tmp_path: Path) -> None:
    assert printed(FACTS, tmp_path, NNC_NATIVE="0") == "0 0 False"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked off here")
def test_a_forked_process_has_its_own(tmp_path: Path) -> None:
    script = (
        "import warnings; warnings.simplefilter('ignore', DeprecationWarning)" + FORKED
    )  # of threads, in Python 3.12
    assert printed(script, tmp_path) == "done"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_the_process_that_it_serves(end: signal.Signals, tmp_path: Path) -> None:
    with started(WAITING, tmp_path) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert is_running(pid)
        process.send_signal(end)
        assert until(lambda: not is_running(pid))


def test_the_longest_text_that_waits_is_compiled_first() -> None:
    asked = [b"first", b"short", b"the longest text", b"longer"]
    all_asked, order = threading.Event(), []

    class Requests(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            content = super().read(size)
            if not content:
                all_asked.set()
                done.wait(20)
            return content

    class Recorder(Llvm):
        def __init__(self) -> None: ...

        def compile(self, text: str, recipe: Recipe = KERNEL) -> bytes:
            assert all_asked.wait(20)
            order.append(text.encode())
            if len(order) == len(asked):
                done.set()
            return b""

    done, how = threading.Event(), encode(KERNEL).encode()
    requests = [REQUEST.pack(i + 1, len(how), len(text)) + how + text for i, text in enumerate(asked)]
    llvm.serve(Requests(b"".join(requests)), io.BytesIO(), 1, Recorder())
    assert done.is_set()
    first, *others = order
    assert others == sorted((text for text in asked if text != first), key=len, reverse=True)


def test_pipes_are_as_wide_as_the_system_allows(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    start, sizes = subprocess.Popen, []

    def refusing(*args: Any, pipesize: int, **settings: Any) -> Any:
        sizes.append(pipesize)
        if pipesize > 0:
            raise PermissionError("pipes are short here")
        return start(*args, pipesize=pipesize, **settings)

    monkeypatch.setattr(subprocess, "Popen", refusing)
    assert answered(helper, text(3)) == Llvm(LIBRARY).compile(text(3))
    assert len(sizes) == 2


def test_of_several_threads_one_works_only_while_answers_are_waited_for() -> None:
    begun: list[str] = []
    go_on = threading.Event()

    class Slow(Llvm):
        def __init__(self) -> None: ...

        def compile(self, text: str, recipe: Recipe = KERNEL) -> bytes:
            begun.append(text)
            assert go_on.wait(20)
            return b""

    def request(number: int, text: bytes = b"") -> bytes:
        how = encode(KERNEL).encode() if text else b""
        return REQUEST.pack(number, len(how), len(text)) + how + text

    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as requests, os.fdopen(writing, "wb", buffering=0) as asking:
        serving = threading.Thread(target=llvm.serve, args=(requests, io.BytesIO(), 2, Slow()))
        serving.start()
        asking.write(request(1, b"first") + request(2, b"second"))
        assert until(lambda: len(begun) == 1)
        time.sleep(0.05)
        assert len(begun) == 1
        asking.write(request(NOTICE))
        assert until(lambda: len(begun) == 2)
        go_on.set()
        asking.close()
        serving.join(20)
        assert not serving.is_alive()


def test_it_is_told_once_that_answers_are_waited_for(helper: Helper, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = LlvmProcess._send

    def watched(self: LlvmProcess, content: bytes) -> None:
        sent.append(REQUEST.unpack_from(content)[0])
        send(self, content)

    monkeypatch.setattr(LlvmProcess, "_send", watched)
    pid = pid_of(helper)
    os.kill(pid, signal.SIGSTOP)
    answers = [helper.compile(text(i), KERNEL) for i in range(3)]
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(answer.result) for answer in answers if answer is not None]
        assert until(lambda: NOTICE in sent)
        os.kill(pid, signal.SIGCONT)
        assert [each.result() for each in found] == [Llvm(LIBRARY).compile(text(i)) for i in range(3)]
    assert sent.count(NOTICE) == 1
    assert answered(helper, text(3))
    assert answers[0] is not None and answers[0].result()  # nobody has to wait for it
    assert sent.count(NOTICE) <= 2
