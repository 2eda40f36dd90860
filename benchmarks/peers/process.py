"""Worker processes from the side that drives them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Way:
    """A framework with a number of threads."""

    framework: str
    threads: int = 2

    @property
    def name(self) -> str:
        """The worker's name in tables."""
        return self.framework if self.threads == 2 else f"{self.framework}, {self.threads} thread"


class WorkerError(Exception):
    """A worker failed, ended or took too long."""


class Process:
    """A worker and the pipe to it."""

    def __init__(self, way: Way, family: str, cache: Path, timeout: float) -> None:
        self.way, self._timeout = way, timeout
        self._connection, theirs = multiprocessing.Pipe()
        cache.mkdir(parents=True, exist_ok=True)
        self._log = cache / "log"
        command = [sys.executable, "-m", "benchmarks.peers.worker", str(theirs.fileno()), way.framework, family]
        environment = worker_environment(way.threads, cache)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, pass_fds=[theirs.fileno()], stdout=log, stderr=log
            )
        theirs.close()

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer to a request."""
        connection: Connection[Any, Any] = self._connection
        try:
            connection.send((name, *arguments))
            if not connection.poll(self._timeout):
                raise WorkerError(f"{name}: more than {self._timeout:.0f} s")
            state, answer = connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerError(f"{name}: the process ended: {self.log_end()}") from error
        if state != "ok":
            raise WorkerError(answer)
        return answer

    def log_end(self) -> str:
        """The last line that the worker printed."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def worker_environment(threads: int, cache: Path) -> dict[str, str]:
    """The environment of a worker: so many threads for each library, caches in a folder of its own, processors alone.

    Waiting threads keep the behaviour that their libraries give them: between two turns there is a pause in which they fall asleep.
    """
    counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    folders = {"NNC_CACHE_DIR": str(cache / "nnc"), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    return os.environ | counts | folders | {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
