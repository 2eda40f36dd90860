"""Starts the processes of a program by mpiexec, ends them all, and starts them again where one failed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from nnc.compiled.processes import known_world
from nnc.errors import BackendError, user_error

_WHERE = "python -m nnc.distributed"
_SUBREAPER = 36  # option of Linux's prctl: orphans become children of this process
_DEATH_SIGNAL = 1  # likewise: the signal that comes where the parent dies
_GRACE = 3.0  # seconds that mpiexec has to end its processes
_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]  # Windows has two


@dataclass(frozen=True, slots=True)
class Launcher:
    """An mpiexec, and whether it is MPICH's or Open MPI's."""

    path: str
    is_mpich: bool
    is_open_mpi: bool

    @staticmethod
    def find() -> Launcher:
        """Returns the mpiexec beside the interpreter, else the first of the search path.

        Raises:
            BackendError: there is none, or it does not run.
        """
        beside = Path(sys.executable).parent / "mpiexec"
        path = str(beside) if beside.is_file() else shutil.which("mpiexec")
        if path is None:
            problem = "there is no mpiexec, neither beside Python nor on the search path."
            raise user_error(BackendError, _WHERE, problem, fix="install one with pip install 'nnc[mpi]'.")
        try:
            told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = f"{path} does not run: {error}."
            raise user_error(BackendError, _WHERE, problem, fix="install one with pip install 'nnc[mpi]'.") from error
        return Launcher(path, "HYDRA" in told, "Open MPI" in told or "OpenRTE" in told)

    def command(self, ranks: int, program: Sequence[str], *, label: bool = False) -> list[str]:
        """Returns the command that starts a Python program on so many ranks."""
        options: list[str] = []
        if self.is_open_mpi:
            options += ["--allow-run-as-root"] * (os.geteuid() == 0) + ["--oversubscribe"] + ["--tag-output"] * label
        elif self.is_mpich:
            # nnc's own guard ends the processes, and says why, where it can see that one is gone
            options += ["-disable-auto-cleanup"] * hasattr(os, "pidfd_open") + ["-prepend-rank"] * label
        return [self.path, *options, "-n", str(ranks), sys.executable, "-m", "nnc.distributed", "rank", *program]


def run(
    ranks: int, program: Sequence[str], *, restarts: int = 0, min_ranks: int | None = None, label: bool = False
) -> int:
    """Runs a program on several ranks until it succeeds; no process is left when it returns.

    Args:
        ranks: the number of processes.
        program: a file of Python, and the arguments for it.
        restarts: how often the program is started again after a failure.
        min_ranks: each restart takes one rank fewer, down to this number; None: always as many.
        label: each line of output begins with its rank.

    Returns:
        the exit status: 0, or the one of the last attempt.

    Raises:
        BackendError: there is no mpiexec.
    """
    launcher = Launcher.find()
    for attempt in range(restarts + 1):
        count = ranks if min_ranks is None else max(ranks - attempt, min_ranks)
        status, stopped = _attempt(launcher.command(count, program, label=label))
        if status == 0 or stopped or attempt == restarts:
            return status
        _say(f"the program ended with status {status}; restart {attempt + 1} of {restarts}")
    return status


def _attempt(command: Sequence[str]) -> tuple[int, bool]:
    """Runs mpiexec once; returns its exit status, and whether a signal to this process ended it."""
    _control(_SUBREAPER, 1)
    parent = os.getpid()

    def tie() -> None:  # in mpiexec's process: it must not outlive this one
        _control(_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=tie if sys.platform == "linux" else None
    )
    with _forwarded(process) as caught:
        try:
            status = process.wait()
        finally:
            _end(process)
    if caught:
        return 128 + caught[0], True
    return (status if status >= 0 else 128 - status), False


@contextlib.contextmanager
def _forwarded(process: subprocess.Popen[Any]) -> Iterator[list[int]]:
    """A block in which signals to this process end another one; gets the list of those that came."""
    caught: list[int] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        caught.append(number)
        process.terminate() if len(caught) == 1 else process.kill()

    before = {number: signal.signal(number, on_signal) for number in _SIGNALS}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[Any]) -> None:
    """Ends a process and all that it has started, orphans too."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
        if process.poll() is None:
            process.kill()
            process.wait()
    for _ in range(100):  # an orphan's children become children of this process when it has ended
        children = _children()
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        time.sleep(0.01)


def _children() -> list[int]:
    """Returns the child processes of this one; none where the system does not tell."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


def _control(option: int, value: int) -> None:
    """Calls Linux's prctl; elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def run_rank(program: Sequence[str]) -> None:
    """Runs a program in this process, one of those that mpiexec has started; from its first line on, all watch over each other.

    Args:
        program: a file of Python, and the arguments for it.

    Raises:
        BackendError: mpi4py cannot be imported.
    """
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # by which MPICH tells that another rank is gone
    known_world()
    sys.argv[:] = program
    sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
    runpy.run_path(program[0], run_name="__main__")


def _say(text: str) -> None:
    print(f"nnc.distributed: {text}.", file=sys.stderr, flush=True)
