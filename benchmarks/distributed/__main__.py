"""Scaling of training steps and times of collectives on processes of this machine, and a plan for more of them.

    python -m benchmarks.distributed [--quick] [--ranks 1,2,4]

Each number of ranks is one run of mpiexec, of one thread a rank; times are those of rank 0. Where there are more ranks than
processors they take turns, and times tell little but that it works. Steps are medians. A collective's time is one twentieth of a
compiled loop of twenty, with the elementwise work that gives the value its first size again, beside twenty calls of mpi4py, both in
turns; the least of all turns counts. The share of collectives is measured by `nnc.debug.profile`; waiting for other ranks is part
of it. With two streams, messages have a thread of their own beside the rank's one.

The plan is computed, not measured: seconds of a step on one rank, and a model of latency and bandwidth fitted to the sums of two
ranks, which share memory. A network has other numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.distributed.plan import Measured, Step, fit, plan_table, scaling_table
from benchmarks.tables import Cell, describe_machine, print_table
from nnc.distributed.launch import Launcher

MANY = (8, 16, 32, 64, 128, 256, 512, 1024)


def measure(ranks: int, *, quick: bool) -> dict[str, Any]:
    """The times that the processes print."""
    command = [Launcher.find().path, "-n", str(ranks), sys.executable, "-m", "benchmarks.distributed.ranks"]
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    }  # fmt: skip
    done = subprocess.run(command + ["--quick"] * quick, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def collective_table(found: dict[int, dict[str, Any]]) -> list[list[Cell]]:
    """A line for each collective, size and number of ranks."""
    return [
        [c["name"], n, c["nbytes"], f"{1e6 * c['nnc']:,.1f}", f"{1e6 * c['mpi4py']:,.1f}", f"{c['nnc'] / c['mpi4py']:.2f}"]
        for n, each in found.items() for c in each["collectives"]
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distributed")
    parser.add_argument("--quick", action="store_true", help="fewer steps and sizes")
    parser.add_argument("--ranks", default="1,2,4", help="numbers of ranks, 1 and 2 among them (default: %(default)s)")
    options = parser.parse_args(arguments)
    numbers = [int(n) for n in options.ranks.split(",")]
    if not {1, 2} <= set(numbers):
        parser.error("the plan needs --ranks with 1 and 2")
    print(describe_machine("numpy", "mpi4py", "mpich"), flush=True)
    found = {n: measure(n, quick=options.quick) for n in numbers}
    report(found)


def report(found: dict[int, dict[str, Any]]) -> None:
    """Prints the tables of the times by number of ranks."""
    steps = [
        Step(s["model"], s["mode"], n, s["examples"], s["seconds"], s["share"])
        for n, each in found.items() for s in each["steps"]
    ]  # fmt: skip
    header = ["network", "scaling", "ranks", "images a step", "ms a step", "images/s", "efficiency", "in collectives"]
    print_table("Training steps", header, scaling_table(sorted(steps, key=lambda s: (s.model, s.mode, s.ranks))))
    header = ["collective", "ranks", "bytes of a rank", "nnc µs", "mpi4py µs", "nnc / mpi4py"]
    print_table("Collectives", header, collective_table(found))
    model = fit([Measured(2, c["nbytes"], c["nnc"]) for c in found[2]["collectives"] if c["name"] == "psum"])
    print_table(
        f"A computed plan: {1e6 * model.alpha:.2f} µs a message, {1e-9 / max(model.beta, 1e-15):.2f} GB/s",
        ["network", "ranks", "ms of sums", "images/s", "efficiency, one after the other", "with overlap"],
        plan_table(model, {s["model"]: (s["examples"], s["seconds"], s["nbytes"]) for s in found[1]["steps"]}, MANY),
    )


if __name__ == "__main__":
    main()
