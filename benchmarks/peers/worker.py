"""A worker process: one framework, one family of rows, steps on request. It answers ("ok", value) or ("error", text).

    python -m benchmarks.peers.worker CONNECTION FRAMEWORK FAMILY PROCESSORS

Only the framework that it serves is imported, so its memory and its import time are that framework's alone.
"""

from __future__ import annotations

import importlib
import inspect
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.instructions import used_instructions
from benchmarks.peers.row import Case, NDArray, Row

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Worker:
    """Holds the step of one row after the other."""

    def __init__(self, framework: str, family: str) -> None:
        self.framework, self.folder = framework, framework.partition(".")[0]
        self.rows = {row.name: row for row in importlib.import_module(f"benchmarks.peers.rows.{family}").ROWS}
        begin = time.perf_counter()
        self.module = importlib.import_module(f"benchmarks.peers.with_{self.folder}.{family}")
        self.import_seconds = time.perf_counter() - begin
        self.base = read_memory("VmRSS")
        self.step: Callable[[], Any] = tuple
        self.read: Callable[[Any], Any] = np.asarray
        self.last = 0.0

    def instructions(self) -> str:
        """The instructions that the framework and its libraries use, as far as they tell."""
        return used_instructions(self.folder)

    def first(self, name: str) -> tuple[float, list[NDArray]]:
        """Makes a row's step; seconds of its first call, and its result."""
        row = self.rows[name]
        self.step = tuple  # lets go of the row before
        settings = dict(row.settings)
        if self.framework in row.parts:
            settings["iterations"] //= row.parts[self.framework]
        if self.folder == "torch":
            settings["wrap"] = importlib.import_module("benchmarks.peers.with_torch.wrap").make_wrap(self.framework)
        made = self._factory(row)(row.inputs(), **settings)
        self.step, self.read = (made.step, made.read) if isinstance(made, Case) else (made, _as_array)
        begin = time.perf_counter()
        out = self.step()
        return time.perf_counter() - begin, self._arrays(out)

    def values(self, count: int) -> list[list[NDArray]]:
        """Returns the results of the next steps; the peak of memory is counted anew from the last of them."""
        out = [self._arrays(self.step()) for _ in range(count)]
        begin = time.perf_counter()
        self.step()
        self.last = time.perf_counter() - begin
        if CLEAR.exists():
            CLEAR.write_text("5")  # VmHWM begins anew
        return out

    def run(self, seconds: float) -> list[float]:
        """Seconds of each step, for as long as is asked for; refilling caches after the last turn is not counted."""
        if self.last < seconds:
            self.step()
        times: list[float] = []
        clock = time.perf_counter
        end = clock() + seconds
        while True:
            begin = clock()
            self.step()
            now = clock()
            times.append(now - begin)
            if now >= end:
                return times

    def memory(self) -> dict[str, int]:
        """Bytes: after the imports, now, and at most since `values`."""
        return {"imports": self.base, "now": read_memory("VmRSS"), "peak": read_memory("VmHWM")}

    def _factory(self, row: Row) -> Callable[..., Any]:
        factory: Callable[..., Any] = getattr(self.module, row.case.partition(".")[2])
        assert inspect.isfunction(factory)
        return factory

    def _arrays(self, out: Any) -> list[NDArray]:
        parts = out if isinstance(out, (tuple, list)) else (out,)
        return [np.array(self.read(part)) for part in parts]


def read_memory(field: str) -> int:
    """Bytes that are (VmRSS) or were at most (VmHWM) in memory; without /proc, the most since the process began."""
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def _as_array(value: Any) -> NDArray:
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def pin(processors: int) -> None:
    """Leaves the process so many processors, which is how frameworks without a setting for threads take as many."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processors])


def main() -> None:
    """Serves requests until there are no more."""
    number, framework, family, processors = sys.argv[1:]
    pin(int(processors))
    with Connection(int(number)) as connection:
        worker: Worker | None = None
        while True:
            try:
                name, *arguments = connection.recv()
            except EOFError:
                return
            try:
                if worker is None:
                    worker = Worker(framework, family)
                answer = worker.import_seconds if name == "start" else getattr(worker, name)(*arguments)
                connection.send(("ok", answer))
            except Exception as error:
                traceback.print_exc()
                connection.send(("error", f"{type(error).__name__}: {error}".splitlines()[0]))


if __name__ == "__main__":
    main()
