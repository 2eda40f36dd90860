"""The best speeds of this machine, measured in the same run as the rows: the floors are worked out from them."""

from __future__ import annotations

import compileall
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.peers.process import ALONE, ROOT, Way, worker_environment
from benchmarks.peers.row import Machine
from benchmarks.peers.worker import pin

COPIED = 256 * 2**20
SIZE = 1024
CHAIN = 100_000


def measure_machine(rounds: int, cache: Path) -> Machine:
    """Runs this module in a process with two threads, as the workers are."""
    command = [sys.executable, "-m", "benchmarks.peers.machine", str(rounds)]
    environment = worker_environment(ALONE.processors, cache)
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    return Machine(*map(float, done.stdout.split()))


def best_of(machines: Sequence[Machine]) -> Machine:
    """The best of each measurement: others that work on the machine only ever make them worse."""
    return Machine(
        max(machine.flops for machine in machines),
        max(machine.bandwidth for machine in machines),
        min(machine.latency for machine in machines),
    )


def compile_package(name: str) -> None:
    """Compiles the files of a package to byte code, as installers do: packages that run from their sources may not be compiled
    yet.
    """
    spec = find_spec(name)
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        compileall.compile_dir(folder, quiet=1)


def measure_imports(frameworks: Sequence[str], rounds: int, cache: Path) -> dict[str, float]:
    """Median seconds that a new process takes to import a package, the packages taking turns."""
    times: dict[str, list[float]] = {name: [] for name in frameworks}
    for _ in range(rounds):
        for name, found in times.items():
            code = f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
            environment = worker_environment(Way(name).threads, cache)
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
            )
            found.append(float(done.stdout.split()[-1]))
    return {name: statistics.median(found) for name, found in times.items()}


def _least(function: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def _bandwidth(rounds: int) -> float:
    """Bytes read and written per second by a copy, half by each of two threads."""
    source, target = np.ones(COPIED, np.uint8), np.empty(COPIED, np.uint8)
    sources, targets = np.split(source, ALONE.processors), np.split(target, ALONE.processors)
    with ThreadPoolExecutor(ALONE.processors) as pool:
        return 2 * COPIED / _least(lambda: list(pool.map(np.copyto, targets, sources)), rounds)


def _flops(rounds: int) -> float:
    x = np.ones((SIZE, SIZE), np.float32)
    return 2 * SIZE**3 / _least(lambda: x @ x, 3 * rounds)


def _latency(rounds: int) -> float:
    """Seconds of a multiplication that waits for the one before; NumPy does not reorder products."""
    x = np.ones(CHAIN, np.float32)
    return _least(lambda: np.multiply.reduce(x), 10 * rounds) / CHAIN


if __name__ == "__main__":
    pin(ALONE.processors)
    count = int(sys.argv[1])
    print(_flops(count), _bandwidth(count), _latency(count))
