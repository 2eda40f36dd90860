"""A process that compiles for this one, so that LLVM's 70 MiB are not in it, and Python goes on while LLVM works.

It runs `llvm.py` alone, which takes 20 ms, begins with the first text that must be compiled, and ends when there has been none for
some seconds, or with the process that it serves: then its input ends. It holds nothing that could get lost; where it cannot be
had, its work is done here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from nnc.backends.llvm import llvm
from nnc.backends.llvm.llvm import ANSWER, NOTICE, REQUEST, Recipe, encode
from nnc.base.fork import fork_waits, new_lock, reset_after_fork, undisturbed

_IDLE = 3.0  # seconds without work; then it ends
_GREETING = 30.0  # seconds until that, at most
_PIPE = 1 << 20  # bytes that may wait in a pipe, so that no request blocks; the most that Linux allows as a rule


class GoneError(Exception):
    """The process ended, or never began to work."""


class Answer(NamedTuple):
    """A future for an object file that the process will send. `hurry` tells the process that somebody waits for it."""

    future: Future[bytes]
    owner: int
    hurry: Callable[[], None]

    @property
    def is_ours(self) -> bool:
        """Whether this process asked, rather than one that it was forked off."""
        return self.owner == os.getpid()

    def result(self) -> bytes:
        """Waits for the object file.

        Raises:
            RuntimeError: LLVM refuses the text.
            GoneError: there will be no answer.
        """
        if not self.is_ours:
            raise GoneError("another process asked")
        if not self.future.done():
            self.hurry()
        return self.future.result()


class LlvmProcess:
    """A process that runs `command`, and a thread that reads its answers and ends it when it has had nothing to do for a while.

    Raises:
        GoneError: the process cannot be started.
    """

    def __init__(self, command: Sequence[str], idle: float) -> None:
        self._idle, self._owner = idle, os.getpid()
        self._changed, self._writing = threading.Lock(), threading.Lock()
        self._waiting: dict[int, Future[bytes]] = {NOTICE: Future()}
        self._asked, self._is_open = NOTICE, True
        self._hurries = False  # whether it was told that all is waited for that it was asked for
        try:
            with fork_waits():  # a child would keep the process alive when its parent has ended
                self._process = _start(command)
        except (OSError, ValueError) as error:
            raise GoneError(str(error)) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        undisturbed(threading.Thread(target=self._listen, name="nnc: compiled code", daemon=True).start)

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return self._is_open

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def compile(self, text: str, recipe: Recipe) -> Answer:
        """Asks for the object file of a text.

        Raises:
            GoneError: the process takes no more requests.
        """
        content, how = text.encode(), encode(recipe).encode()
        with self._changed:
            if not self._is_open:
                raise GoneError("it has ended")
            self._asked += 1
            number, answer = self._asked, Answer(Future(), self._owner, self._hurry)
            self._waiting[number], self._hurries = answer.future, False
        self._send(REQUEST.pack(number, len(how), len(content)) + how + content)
        return answer

    def _hurry(self) -> None:
        """Somebody waits for answers: it need leave no processor to others."""
        with self._changed:
            is_told, self._hurries = self._hurries, True
        if not is_told:
            with contextlib.suppress(GoneError):
                self._send(REQUEST.pack(NOTICE, 0, 0))

    def _send(self, content: bytes) -> None:
        """Writes all of the content.

        Raises:
            GoneError: the process ended meanwhile; the listening thread will notice.
        """
        left = memoryview(content)
        with self._writing:
            try:
                while left:
                    left = left[self._to.write(left) or 0 :]
            except (OSError, ValueError) as error:
                raise GoneError(str(error)) from error

    def close(self) -> None:
        """Ends the process."""
        with self._changed:
            self._is_open = False
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """In a process that was forked off: the other process serves its parent, and must see its input end with that."""
        self._is_open = False
        self._to.close()
        self._from.close()
        self._process.returncode = 0  # there is nobody to wait for

    def _listen(self) -> None:
        """Reads answers until the process ends, or has had nothing to do."""
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        try:
            while self._has_answer(poll):
                number, success, size = ANSWER.unpack(self._read(ANSWER.size))
                content = self._read(size)
                with self._changed:
                    answer = self._waiting.pop(number)
                if success:
                    answer.set_result(content)
                else:
                    answer.set_exception(RuntimeError(content.decode(errors="replace")))
        except EOFError:
            pass  # it ended in the middle of an answer
        finally:
            self._end()

    def _has_answer(self, poll: select.poll) -> bool:
        """Waits for an answer; False where none will come, or the process ended."""
        while True:
            with self._changed:
                is_starting, is_busy = NOTICE in self._waiting, bool(self._waiting)
            seconds = _GREETING if is_starting else None if is_busy else self._idle
            found = poll.poll(None if seconds is None else seconds * 1000)
            if found:
                return bool(found[0][1] & select.POLLIN)
            with self._changed:
                if is_starting or not self._waiting:
                    self._is_open = False
                    return False

    def _read(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            part = self._from.read(size - len(content))
            if not part:
                raise EOFError
            content += part
        return content

    def _end(self) -> None:
        self.close()
        with self._changed:
            left, self._waiting = list(self._waiting.values()), {}
        for answer in left:
            answer.set_exception(GoneError("it has ended"))
        with self._writing:
            self._to.close()
            self._from.close()


class Helper:
    """Has texts compiled by a process, which is there while there is something to do. If it fails, it is not tried again."""

    def __init__(self, command: Sequence[str], idle: float = _IDLE) -> None:
        self._command, self._idle = command, idle
        self._starting = new_lock()
        self._process: LlvmProcess | None = None
        self._has_failed = False
        atexit.register(self.close)
        reset_after_fork(self)

    @property
    def is_usable(self) -> bool:
        """Whether such a process runs or can be started; True until a start has failed."""
        return not self._has_failed

    def compile(self, text: str, recipe: Recipe) -> Answer | None:
        """Asks for the object file of a text; None where there is no such process."""
        while (process := self.start()) is not None:
            try:
                return process.compile(text, recipe)
            except GoneError:  # it had had nothing to do until just now
                if process.is_open:
                    self.give_up()
        return None

    def start(self) -> LlvmProcess | None:
        """Returns the process, which begins to load LLVM if it is not there; None where there is none."""
        with self._starting:
            if not self._has_failed and (self._process is None or not self._process.is_open):
                try:
                    self._process = LlvmProcess(self._command, self._idle)
                except GoneError:
                    self._has_failed = True
            return None if self._has_failed else self._process

    def give_up(self) -> None:
        """An answer did not come: from now on there is no such process."""
        self._has_failed = True

    def close(self) -> None:
        """Ends the process, if there is one."""
        with self._starting:
            if self._process is not None:
                self._process.close()

    def after_fork(self) -> None:
        """The process serves the parent; this one has none yet."""
        if self._process is not None:
            self._process.forget()
            self._process = None


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Returns the process, with pipes as wide as they can be."""

    def start(pipe: int) -> subprocess.Popen[bytes]:
        # In a session of its own: signals of a terminal to its foreground processes are meant for the user's.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True, pipesize=pipe
        )

    try:
        return start(_PIPE)
    except PermissionError:  # the system allows no pipes of that size
        return start(-1)


def find_command(library: str, threads: int, cpu: str | None) -> list[str] | None:
    """Returns the command line that starts the process; None where there is no Python to run it.

    Args:
        library: the path of llvmlite's library.
    """
    python, program = Path(sys.executable or ""), Path(llvm.__file__)
    is_python = python.stem.startswith("python") and not getattr(sys, "frozen", False)
    if not is_python or not program.is_file():
        return None
    # Imported, it is not read from its text each time. Its folder stands behind Python's own, so it hides none of Python's modules.
    start = f"import sys; sys.path.append({str(program.parent)!r}); import {program.stem}; {program.stem}.main()"
    return [str(python), "-I", "-S", "-B", "-c", start, library, str(threads), *([cpu] if cpu else [])]
