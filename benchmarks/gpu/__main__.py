"""nnc beside PyTorch and JAX on a graphics processor.

    python -m benchmarks.gpu [--quick] [--rows chain,mlp] [--frameworks nnc,jax] [--device cuda:0] [--json FILE]

Each row is first checked on small arrays against nnc on the CPU, then timed: calls are queued one after the other, the host waits
for the last one, and the figure is the time between divided by their number. So a figure is the device's time where that is longer
than the host's. The frameworks take turns, and medians count. The floor is the time of the bytes that any program moves, at the
speed of the device's own copy, or of its products at the fastest speed that any framework reaches.

The rows are tested on the CPU and on `ptx:0`, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.gpu.frameworks import FRAMEWORKS, Prepared, prepare_nnc
from benchmarks.gpu.rows import ROWS, Row
from benchmarks.tables import Cell, describe_machine, print_table

_PREPARE = dict(FRAMEWORKS)
_LEAST_SECONDS = 0.05  # of calls in a row, so that waiting for the last one does not count
_MOST_CALLS = 2000


def check(row: Row, device: str) -> str | None:
    """Returns how nnc's small results on the device differ from the CPU's; None where they agree.

    Args:
        row: the program.
        device: to be checked.
    """
    arrays = row.arrays(small=True)
    found, wanted = (prepare_nnc(row, arrays, place) for place in (device, "cpu"))
    for x, y in zip(found.read(found.call()), wanted.read(wanted.call()), strict=True):
        error = float(np.max(np.abs(x - y), initial=0)) / max(float(np.max(np.abs(y), initial=0)), 1e-30)
        if not error <= row.rtol:
            return f"its results lie {error:.1e} from the CPU's, relative to the largest"
    return None


def time_calls(prepared: Prepared, seconds: float) -> float:
    """The seconds of one call among many that are queued one after the other.

    Args:
        prepared: the function.
        seconds: of all calls.
    """
    prepared.wait(prepared.call())
    begin = time.perf_counter()
    prepared.wait(prepared.call())
    once = max(time.perf_counter() - begin, 1e-7)
    count = max(1, min(int(seconds / once), _MOST_CALLS))
    begin = time.perf_counter()
    for _ in range(count):
        result = prepared.call()
    prepared.wait(result)
    return (time.perf_counter() - begin) / count


def measure(
    row: Row, frameworks: Sequence[str], device: str, rounds: int, small: bool = False, seconds: float = _LEAST_SECONDS
) -> dict[str, float | str]:
    """The seconds of one call by each framework, or the reason why there are none.

    Args:
        row: the program.
        frameworks: their names.
        device: of nnc; the others have names of their own for it.
        rounds: how often the frameworks take turns.
        small: whether the small arrays are taken.
        seconds: of all calls of a turn.
    """
    arrays, prepared, outcome = row.arrays(small), dict[str, Prepared](), dict[str, float | str]()
    for name in frameworks:
        other = device if name == "nnc" or device == "cpu" else "cuda"
        try:
            prepared[name] = _PREPARE[name](row, arrays, other)
            prepared[name].wait(prepared[name].call())
        except Exception as error:  # a framework that fails is shown as such, beside the others
            prepared.pop(name, None)
            outcome[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:60] if str(error) else ''}"
    times: dict[str, list[float]] = {name: [] for name in prepared}
    for _ in range(rounds):
        for name, each in prepared.items():
            times[name].append(time_calls(each, seconds))
    return outcome | {name: median(found) for name, found in times.items()}


def speeds(outcomes: dict[str, dict[str, float | str]]) -> tuple[float, dict[tuple[str, str], float]]:
    """The bytes per second of the device's copy, and the operations per second of products by dtype and precision."""
    rows = {row.name: row for row in ROWS}
    times = {name: [t for t in found.values() if isinstance(t, float)] for name, found in outcomes.items()}
    copies = [rows["copy"].nbytes / t for t in times.get("copy", ())]
    products: dict[tuple[str, str], float] = {}
    for name, found in times.items():
        row = rows[name]
        if name.startswith("matmul") and found:
            products[row.dtype, row.precision] = row.flops / min(found)
    return max(copies, default=0.0), products


def table(
    outcomes: dict[str, dict[str, float | str]], frameworks: Sequence[str], small: bool = False
) -> list[list[Cell]]:
    """The lines of the printed table; of small arrays it tells no floor."""
    bandwidth, products = (0.0, {}) if small else speeds(outcomes)
    lines: list[list[Cell]] = []
    for row in ROWS:
        found = outcomes.get(row.name)
        if found is None:
            continue
        rate = products.get((row.dtype, row.precision), 0.0)
        floors = [row.nbytes / bandwidth if bandwidth else 0.0, row.flops / rate if rate else 0.0]
        ours = found.get("nnc")
        line: list[Cell] = [row.name, _micros(max(floors) or None)]
        line += [_micros(found.get(name)) for name in frameworks]
        for name in frameworks[1:]:
            theirs = found.get(name)
            both = isinstance(ours, float) and isinstance(theirs, float)
            line.append(f"{theirs / ours:.2f}" if both else "-")  # type: ignore[operator]
        lines.append(line)
    return lines


def _micros(seconds: float | str | None) -> str:
    if isinstance(seconds, float):
        return f"{1e6 * seconds:,.1f}"
    return seconds or "-"


def choose_rows(names: str | None, quick: bool) -> list[Row]:
    """The rows of these names, else all, else the quick ones.

    Args:
        names: with commas; None: all.
        quick: whether only quick rows are wanted.
    """
    wanted = None if names is None else names.split(",")
    unknown = sorted(set(wanted or ()) - {row.name for row in ROWS})
    if unknown:
        raise SystemExit(f"there is no row {', '.join(unknown)}. Rows: {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if (row.name in wanted if wanted is not None else row.quick or not quick)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line, checks, measures, prints; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description="Times nnc beside others on a GPU.")
    parser.add_argument("--quick", action="store_true", help="fewer rows and turns")
    parser.add_argument("--rows", help="names with commas (default: all)")
    parser.add_argument(
        "--frameworks", default="nnc,torch,jax", help="names with commas, nnc first (default: %(default)s)"
    )
    parser.add_argument("--device", default="cuda:0", help="of nnc (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="the small arrays, which show only that all runs")
    parser.add_argument("--json", type=Path, help="write all figures to a file, too")
    options = parser.parse_args(arguments)
    frameworks = options.frameworks.split(",")
    print(describe_machine("numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "jax"), flush=True)
    outcomes, wrong = dict[str, dict[str, float | str]](), dict[str, str]()
    for row in choose_rows(options.rows, options.quick):
        problem = check(row, options.device)
        if problem is not None:
            wrong[row.name] = problem
            continue
        rounds, seconds = (3, 0.0) if options.small else (3 if options.quick else 7, _LEAST_SECONDS)
        outcomes[row.name] = measure(row, frameworks, options.device, rounds, options.small, seconds)
        print(f"{row.name}: {outcomes[row.name]}", file=sys.stderr, flush=True)
    header = ["row", "floor µs", *(f"{name} µs" for name in frameworks), *(f"{name} / nnc" for name in frameworks[1:])]
    print_table(f"{options.device}, µs a call", header, table(outcomes, frameworks, options.small))
    for name, problem in wrong.items():
        print(f"{name}: {problem}")
    if options.json is not None:
        options.json.write_text(json.dumps({"times": outcomes, "wrong": wrong}, indent=1))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
