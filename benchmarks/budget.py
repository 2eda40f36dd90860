"""Training steps within a memory budget: the work that is done again, and its cost.

    python -m benchmarks.budget [--quick]

Prints Markdown tables; RESULTS.md keeps a run. PyTorch's row is left out where it is not installed. Sizes are MiB (2^20 bytes).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import nnc
from benchmarks.eager_memory import fill, hollow_peak
from benchmarks.memory import own_memory
from benchmarks.networks import Encoder, Network, image_network, resnet50, struct
from benchmarks.tables import Cell, describe_machine, mebibytes, print_table
from nnc import optim
from nnc.errors import MemoryBudgetError
from nnc.nn import models

PARTS = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2)


def compile_within(network: Network, budget: int | None) -> Any:
    """The program of a training step that takes over the memory of model and optimizer state."""
    model = network.model()
    state = nnc.eval_shape(network.optimizer.init, model)
    step = nnc.compile(network.step, donate_argnums=(0, 1), memory_budget=budget, streams=1)
    return step.lower(model, state, network.x, network.labels).compile()


def smallest_budget(network: Network, budget: int = 1) -> int:
    """The budget that is possible: the given one, or the budget which the error names."""
    try:
        compile_within(network, budget)
    except MemoryBudgetError as error:
        found = re.search(r"raise memory_budget to (\d+)", str(error))
        assert found is not None
        return int(found[1])
    return budget


# -- ResNet-50 against the baselines -------------------------------------------------------------------------------------


def target_rows(batch: int, size: int) -> list[list[Cell]]:
    """A step of ResNet-50 within the part of each baseline that is aimed at, with parameters, momenta and batch."""
    network = resnet50(batch, size)
    model = network.model()
    state = nnc.eval_shape(network.optimizer.init, model)
    unlimited = compile_within(network, None)
    ways = [
        ("(i) each tensor in its own memory", own_memory(network.training().graph), 0.2),
        ("(ii) nnc, eager", hollow_peak(network.step, model, state, network.x, network.labels), 0.35),
    ]
    if importlib.util.find_spec("torch") is not None:
        torch_peak: Callable[[int, int], int] = importlib.import_module("benchmarks.torch_memory").torch_peak
        ways.append(("(iii) PyTorch, eager", torch_peak(batch, size), 0.5))
    rows: list[list[Cell]] = []
    for way, baseline, part in ways:
        target = int(part * baseline) - unlimited.memory_plan.input_bytes
        budget = smallest_budget(network, max(target, 1))
        begin = time.perf_counter()
        limited = compile_within(network, budget)
        seconds = time.perf_counter() - begin
        plan = limited.memory_plan
        rows.append(
            [
                way,
                mebibytes(baseline),
                f"{(part - 1) * 100:.0f} %",
                mebibytes(plan.input_bytes + plan.peak),
                f"{((plan.input_bytes + plan.peak) / baseline - 1) * 100:+.1f} %",
                len(plan.recomputed.rows),
                round(100 * plan.recomputed.seconds / unlimited.cost.seconds, 1),
                round(seconds, 1),
            ]
        )
    return rows


# -- from unlimited to the smallest peak ---------------------------------------------------------------------------------


def budgets(network: Network) -> Iterator[int]:
    """Yields budgets from the peak without one down to the smallest that is kept to."""
    peak = compile_within(network, None).memory_plan.peak
    least = smallest_budget(network)
    yield from (int(part * peak) for part in PARTS if part * peak > least)
    yield least


def sweep_rows(network: Network, rounds: int) -> list[list[Cell]]:
    """One row for each budget: its peak, the recomputed work, the time; measured if there are rounds."""
    rows: list[list[Cell]] = []
    first: Any = None
    for budget in budgets(network):
        begin = time.perf_counter()
        step = compile_within(network, budget)
        seconds = time.perf_counter() - begin
        first = first or step
        plan = step.memory_plan
        again, work = plan.recomputed, first.cost.seconds
        row: list[Cell] = [
            mebibytes(budget),
            mebibytes(plan.peak),
            len(again.rows),
            round(again.flops / 1e9, 2),
            round(100 * again.seconds / work, 1),
            round(seconds, 1),
        ]
        if rounds:
            same, measured = run_step(network, step, first, rounds)
            row += [round(measured * 1e3, 1), "yes" if same else "NO"]
        rows.append(row)
    return rows


def run_step(network: Network, step: Any, other: Any, rounds: int) -> tuple[bool, float]:
    """Whether two programs change a model alike, bit for bit, and the median seconds of the first."""
    states = {name: start(network) for name in ("one", "other")}
    batch = states["one"][2:]
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        states["one"] = [*step(*states["one"][:2], *batch)[:2], *batch]
        times.append(time.perf_counter() - begin)
        states["other"] = [*other(*states["other"][:2], *batch)[:2], *batch]
    pairs = zip(*(nnc.tree.leaves(state[:2]) for state in states.values()), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs), statistics.median(times)


def start(network: Network) -> list[Any]:
    """Model, state and batch with values."""
    rng = np.random.default_rng(0)

    def draw(spec: Any) -> Any:
        if spec.dtype == np.float32:
            return np.abs(rng.standard_normal(spec.shape) * 0.05).astype(spec.dtype)
        return np.zeros(spec.shape, spec.dtype)

    model = network.model()
    state = nnc.eval_shape(network.optimizer.init, model)
    return [fill(x, draw) for x in (model, state, network.x, network.labels)]


def encoder(depth: int, batch: int, length: int, features: int) -> Network:
    """A transformer on sequences of vectors."""
    name = f"transformer, {depth} layers, {length} x {features}, batch {batch}"
    labels = struct(batch, dtype=np.int32)
    return Network(
        name,
        lambda key: Encoder(depth, features, 4, key=key),
        struct(batch, length, features),
        labels,
        optim.adam(1e-3),
    )


def resnet18(batch: int, size: int) -> Network:
    """ResNet-18 with 1000 classes."""
    return image_network(f"ResNet-18, {size}², batch {batch}", lambda key: models.resnet18(key=key), batch, size)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="Shows what memory budgets cost.")
    parser.add_argument("--quick", action="store_true", help="small networks alone")
    quick = parser.parse_args(arguments).quick
    print(describe_machine("numpy", "torch"))
    columns = ("budget, MiB", "peak, MiB", "recomputed", "Gflop again", "more time, %", "compile, s")
    if not quick:
        header = ("baseline", "MiB", "aim", "planned, MiB", "against it", "recomputed", "more time, %", "compile, s")
        print_table("ResNet-50, 224², batch 16, training step with its inputs", header, target_rows(16, 224))
        for network in (resnet18(16, 224), encoder(12, 16, 128, 256)):
            print_table(
                f"{network.name}, from unlimited to the smallest peak, planned", columns, sweep_rows(network, 0)
            )
    small = (resnet18(4, 128), encoder(2, 4, 16, 32) if quick else encoder(6, 4, 64, 128))
    with threadpool_limits(1):
        for network in small:
            rows = sweep_rows(network, 1 if quick else 5)
            print_table(f"{network.name}, run", (*columns, "measured, ms", "same bits"), rows)


if __name__ == "__main__":
    main()
