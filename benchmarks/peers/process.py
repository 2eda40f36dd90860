"""Worker processes from the side that drives them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]

# The variables by which each library is kept to the instructions of a kind.
CAPS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "": {},
        "sse4": {
            "NNC_CPU": "x86-64-v2", "ONEDNN_MAX_CPU_ISA": "SSE41", "OPENBLAS_CORETYPE": "Nehalem",
            "XLA_FLAGS": "--xla_cpu_max_isa=SSE4_2", "ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        },
        "avx2": {
            "NNC_CPU": "x86-64-v3", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell",
            "XLA_FLAGS": "--xla_cpu_max_isa=AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        },
    }
)  # fmt: skip


class Surroundings(NamedTuple):
    """The conditions under which all frameworks run: the instructions they may use (a key of CAPS), busy processes, processors."""

    isa: str = ""
    busy: int = 0
    processors: int = 2


ALONE = Surroundings()


@contextmanager
def busy_processes(surroundings: Surroundings) -> Iterator[None]:
    """Keeps processes on the workers' processors that never wait."""
    code = f"from benchmarks.peers.worker import pin; pin({surroundings.processors})\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(surroundings.busy)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


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

    def __init__(self, way: Way, family: str, cache: Path, timeout: float, surroundings: Surroundings = ALONE) -> None:
        self.way, self._timeout = way, timeout
        self._connection, theirs = multiprocessing.Pipe()
        cache.mkdir(parents=True, exist_ok=True)
        self._log = cache / "log"
        command = [sys.executable, "-m", "benchmarks.peers.worker", str(theirs.fileno()), way.framework, family]
        command.append(str(surroundings.processors))
        environment = worker_environment(way.threads, cache) | CAPS[surroundings.isa]
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


def describe_surroundings(surroundings: Surroundings) -> str:
    """Returns the surroundings in words."""
    isa, busy, processors = surroundings
    found = [f"instructions up to {isa}"] * bool(isa) + [f"beside {busy} busy processes"] * bool(busy)
    return "; ".join([*found, f"{processors} processors"])
