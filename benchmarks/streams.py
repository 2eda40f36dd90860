"""Two independent chains of heavy products, on two streams and on one.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.streams [--size 768] [--rounds 4] [--calls 15]

Prints milliseconds of a call, each the median and the least of calls in turn, BLAS on one thread, and their ratio: 2 is perfect.
Needs two idle processors. The ratio of the processor time says whether the streams cost anything by themselves.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import nnc
import nnc.numpy as nnp


def two_chains(rounds: int) -> Any:
    """A function of two square matrices that does not mix them before its end."""

    def chain(x: Any) -> Any:
        for _ in range(rounds):
            x = nnp.tanh(x @ x)
        return x

    return lambda x, y: chain(x) + chain(y)


def measure(ways: dict[str, Any], arguments: tuple[Any, ...], calls: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds on the clock and of the processors for each call, the ways taking turns; the first call of each does not count."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for i in range(calls + 1):
        for name, way in ways.items():
            start, busy = time.perf_counter(), time.process_time()
            way(*arguments)
            if i:
                times[name].append((time.perf_counter() - start, time.process_time() - busy))
    return times


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="Times independent chains on two streams.")
    parser.add_argument("--size", type=int, default=768, help="rows of the matrices (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=4, help="products of a chain (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=15, help="calls that count (default: %(default)s)")
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    x, y = (nnp.asarray(draw.normal(size=(options.size, options.size)) / options.size**0.5) for _ in range(2))
    function = two_chains(options.rounds)
    ways = {f"{n} streams": nnc.compile(function, streams=n) for n in (1, 2)}
    with threadpool_limits(1):
        times = measure(ways, (x, y), options.calls)
        same = np.array_equal(*(np.asarray(way(x, y)) for way in ways.values()))
    walls = {name: [wall for wall, _ in pairs] for name, pairs in times.items()}
    busy = {name: statistics.median(cpu for _, cpu in pairs) for name, pairs in times.items()}
    for name, found in walls.items():
        plan = ways[name].lower(x, y).compile().memory_plan
        print(
            f"{name}: median {statistics.median(found) * 1e3:8.2f} ms, least {min(found) * 1e3:8.2f} ms, "
            f"processors {busy[name] * 1e3:8.2f} ms, peak {plan.peak / 2**20:.1f} MiB"
        )
    one, two = walls.values()
    print(
        f"one stream / two streams: {statistics.median(one) / statistics.median(two):.2f} (least {min(one) / min(two):.2f})"
    )
    print(f"processor time, two streams / one: {busy['2 streams'] / busy['1 streams']:.2f}; same bits: {same}")


if __name__ == "__main__":
    main()
