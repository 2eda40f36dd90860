"""Memory of compiled programs: plans against their bound, a training step of ResNet-50 against eager execution, loops.

    python -m benchmarks.memory [--quick]

Prints Markdown tables; RESULTS.md keeps a run. PyTorch's column is left out where it is not installed. Sizes are MiB (2^20 bytes).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import nnc
import nnc.numpy as nnp
from benchmarks.eager_memory import fill, hollow_peak, measured_peak
from benchmarks.networks import Network, all_networks, resnet50
from benchmarks.packings import packing
from benchmarks.tables import Cell, describe_machine, mebibytes, print_table
from nnc.array.array import Array
from nnc.base.options import Options
from nnc.compiled.pipeline import plan
from nnc.graph import Graph, run_passes
from nnc.lower.alloc import ALIGNMENT, Block, find_block_overlap, plan_blocks
from nnc.lower.alloc.arena import THOROUGH
from nnc.lower.alloc.greedy import best_fit, order_of
from nnc.lower.alloc.instances import read_instance
from nnc.lower.alloc.problem import block_rows, make_problem
from nnc.lower.phases import SIMPLIFYING, names_of
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Loop
from nnc.lower.plan.views import find_views
from nnc.run.report import MemoryPlan

INSTANCES = Path(__file__).parent.parent / "tests" / "lower" / "alloc" / "instances"
PLAN_HEADER = ("blocks", "largest live set", "arena ÷ it", "greedy by size ÷ it", "plan, s")


# -- plans against their bound -------------------------------------------------------------------------------------------


def plan_row(blocks: Sequence[Block], effort: int | None = None) -> list[Cell]:
    """One plan: blocks, bound, its ratio and the greedy planner's, seconds."""
    begin = time.perf_counter()
    arena = plan_blocks(blocks, effort=effort)
    seconds = time.perf_counter() - begin
    if find_block_overlap(blocks, arena.offsets) is not None:
        raise AssertionError("the plan overlaps")
    bound = max(arena.lower_bound, 1)
    return [
        len(blocks),
        mebibytes(arena.lower_bound),
        round(arena.peak / bound, 4),
        round(greedy_by_size(blocks) / bound, 4),
        round(seconds, 3),
    ]


def greedy_by_size(blocks: Sequence[Block]) -> int:
    """The arena where large blocks are placed first, each into the tightest gap, as in most runtimes."""
    nbytes, lo, hi, owner = block_rows(blocks)
    problem, _ = make_problem(-(-nbytes // ALIGNMENT), lo, hi, owner)
    offsets = best_fit(problem, order_of(problem.size))
    return int((offsets + problem.size).max(initial=0)) * ALIGNMENT


def instance_rows() -> list[list[Cell]]:
    """The stored tables of live ranges."""
    rows = []
    for path in sorted(INSTANCES.glob("*.csv")):
        read = read_instance(path)
        blocks = [Block(n, ((a, b),)) for a, b, n in zip(read.lower, read.upper, read.size, strict=True)]
        rows.append([path.stem, *plan_row(blocks)])
    return rows


def random_rows(count: int) -> list[list[Cell]]:
    """Tensors with random sizes and live ranges, as many as the largest programs have."""
    rng = np.random.default_rng(0)
    first, length = rng.integers(0, count, count), rng.integers(1, count // 10, count)
    sizes = (rng.lognormal(8, 2, count)).astype(int) + 1
    return [
        [
            f"{count:,} random tensors",
            *plan_row([Block(int(n), ((int(a), int(a + b)),)) for a, b, n in zip(first, length, sizes, strict=True)]),
        ]
    ]


def packing_rows(counts: Sequence[int]) -> list[list[Cell]]:
    """Packings without a gap, and with few, planned with the effort of the command line; means and the worst."""
    rows: list[list[Cell]] = []
    figures: list[list[float]] = []
    for missing, note in ((0.0, ""), (0.03, ", 3 % missing")):
        for count in counts:
            columns = packing(count, count, 4 * count, 1 << 14, missing)
            blocks = [Block(int(n), ((int(a), int(b)),)) for a, b, n in zip(*columns, strict=True)]
            row = plan_row(blocks, THOROUGH)
            rows.append([f"packing of {count}{note}", *row])
            figures.append([float(cell) for cell in row])
    together = list(zip(*figures, strict=True))
    rows.append(["mean", *(round(statistics.mean(column), 4) for column in together)])
    return [*rows, ["worst", *map(max, together)]]


def blocks_of(plan: MemoryPlan) -> list[Block]:
    """The tensors of a plan's arena, each with all of its lives, which are neighbours in the plan.

    Names alone do not tell tensors apart: every workspace of a command has the same one. Two that are taken for one must lie at
    one place, which may cost more than the largest live set.
    """
    rows = (row for row in plan.rows if row.offset is not None)
    lives = groupby(rows, lambda row: (row.name, row.size, row.offset))
    return [Block(size, tuple((row.first, row.last + 1) for row in group)) for (_, size, _), group in lives]


def network_rows(network: Network) -> list[list[Cell]]:
    """Inference and training step of a network; the arena is the program's own, which is planned anew only to time that."""
    rows = []
    for name, lower in (("inference", network.inference), ("training step", network.training)):
        begin = time.perf_counter()
        executable = lower().compile()
        seconds = time.perf_counter() - begin
        plan = executable.memory_plan
        blocks, largest, _, greedy, planning = plan_row(blocks_of(plan))
        rows.append(
            [f"{network.name}, {name}", blocks, largest, round(plan.ratio, 4), greedy, planning, round(seconds, 2)]
        )
    return rows


# -- ResNet-50 -----------------------------------------------------------------------------------------------------------


def own_memory(graph: Graph) -> int:
    """Bytes of all values that are no views, each in memory of its own, after the passes that make graphs small."""
    small = run_passes(graph, names_of(SIMPLIFYING), Options())
    views = find_views(small)
    return sum(symbol.spec.nbytes for symbol in small.symbols() if views[symbol].base is symbol)


def training_rows(sizes: Sequence[tuple[int, int]]) -> list[list[Cell]]:
    """Bytes of a step of ResNet-50, with parameters, momenta and batch, in four ways."""
    has_torch = importlib.util.find_spec("torch") is not None
    torch_peak: Callable[[int, int], int] | None = (
        importlib.import_module("benchmarks.torch_memory").torch_peak if has_torch else None
    )
    rows: list[list[Cell]] = []
    for batch, size in sizes:
        network = resnet50(batch, size)
        lowered = network.training()
        plan = lowered.compile().memory_plan
        ours = plan.input_bytes + plan.peak
        model = network.model()
        ways = {
            "(i) each tensor in its own memory": own_memory(lowered.graph),
            "(ii) nnc, eager": hollow_peak(
                network.step, model, nnc.eval_shape(network.optimizer.init, model), network.x, network.labels
            ),
            "(iii) PyTorch, eager": torch_peak(batch, size) if torch_peak is not None else 0,
        }
        title = f"{size}², batch {batch}"
        rows.append([title, "compiled step: arena and outputs", mebibytes(plan.peak), ""])
        rows.append([title, "compiled step, and its inputs", mebibytes(ours), ""])
        several = network.training("auto").compile().memory_plan
        rows.append([title, 'the same with streams="auto"', mebibytes(several.input_bytes + several.peak), ""])
        rows += [
            [title, way, mebibytes(nbytes), f"{(ours / nbytes - 1) * 100:+.1f} %"]
            for way, nbytes in ways.items()
            if nbytes
        ]
    return rows


def measured_rows(batch: int, size: int, rounds: int) -> list[list[Cell]]:
    """A step of ResNet-50 that runs here: its memory and time, beside the prediction."""
    network = resnet50(batch, size)
    model = network.model()
    state = nnc.eval_shape(network.optimizer.init, model)
    rng = np.random.default_rng(0)

    def draw(spec: Any) -> Any:
        return (
            (rng.standard_normal(spec.shape) * 0.05).astype(spec.dtype)
            if spec.dtype == np.float32
            else np.zeros(spec.shape, spec.dtype)
        )

    batch_of = [fill(x, draw) for x in (network.x, network.labels)]
    kept = [fill(x, draw) for x in (model, state)]
    given = sum(leaf.nbytes for leaf in nnc.tree.leaves((kept, batch_of)) if isinstance(leaf, Array))
    step = network.training().compile()

    def compiled() -> None:
        kept[0], kept[1], _ = step(*kept, *batch_of)

    def eager() -> None:
        network.step(*kept, *batch_of)

    foretold = {
        "compiled": step.memory_plan.peak,
        "eager": hollow_peak(network.step, model, state, network.x, network.labels) - given,
    }
    ways = {"compiled": compiled, "eager": eager}
    peaks = {name: measured_peak(run) for name, run in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    return [
        [
            name,
            mebibytes(foretold[name]),
            mebibytes(peaks[name]),
            round(seconds[name], 3),
            round(seconds["eager"] / seconds[name], 2),
        ]
        for name in ways
    ]


# -- loops ---------------------------------------------------------------------------------------------------------------


def runge_kutta(position: Any, velocity: Any) -> Any:
    """A thousand steps of the classical method for pendulums."""
    h = 0.01

    def slope(p: Any, v: Any) -> Any:
        return v, -nnp.sin(p)

    def moved(state: Any, h: float, change: Any) -> Any:
        return tuple(x + h * t for x, t in zip(state, change, strict=True))

    def step(_: Any, state: Any) -> Any:
        a = slope(*state)
        b = slope(*moved(state, h / 2, a))
        c = slope(*moved(state, h / 2, b))
        d = slope(*moved(state, h, c))
        return moved(state, h / 6, [ka + 2 * kb + 2 * kc + kd for ka, kb, kc, kd in zip(a, b, c, d, strict=True)])

    return nnc.fori_loop(0, 1000, step, (position, velocity))


def history(order: int) -> Callable[[Any], Any]:
    """A while loop in which each value is made of the one `order` rounds before."""

    def loop(x: Any) -> Any:
        carried = tuple(x + i for i in range(order))
        body = lambda c: (c[0] + 1, (*c[1][1:], nnp.cumsum(c[1][0], axis=-1)))
        return nnc.while_loop(lambda c: c[0] < 100, body, (0, carried))[1]

    return loop


def loop_rows() -> list[list[Cell]]:
    """Copies between rounds, and bytes, of loops."""
    vector = nnc.ShapeDtypeStruct((2, 4096), np.float32)
    lstm = next(network for network in all_networks(quick=True) if "LSTM" in network.name)
    cases: dict[str, Any] = {"Runge-Kutta, 1000 steps": nnc.compile(runge_kutta).lower(vector, vector)}
    cases |= {f"x[c] = f(x[c-{n}])": nnc.compile(history(n)).lower(vector) for n in (1, 2, 3, 4)}
    cases |= {"LSTM, inference": lstm.inference(), "LSTM, training step": lstm.training()}
    rows = []
    for name, lowered in cases.items():
        planned = plan(run_passes(lowered.graph, ("dce",), Options()), Options(streams=1))
        loops = [step.region for step in walk(planned.bound.steps) if isinstance(step.region, Loop)]
        rounds = [c for loop in loops for c in loop.copies]
        moves = sum(len(c.turn) for c in rounds)
        copies = sum(step.command.name == "copy" for c in rounds for step in walk((*c.head, *c.tail)))
        ring = max(len(loop.copies) for loop in loops)
        ratio = planned.arena_bytes / max(planned.lower_bound, 1)
        rows.append([name, len(loops), ring, moves, copies, round(planned.arena_bytes / 1024, 1), round(ratio, 4)])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="Shows how much memory compiled programs take.")
    parser.add_argument("--quick", action="store_true", help="small networks, small images")
    quick = parser.parse_args(arguments).quick
    print(describe_machine("numpy", "torch"))
    print_table(
        "Stored live ranges", ("instance", *PLAN_HEADER), instance_rows() + random_rows(1000 if quick else 10_000)
    )
    packings = packing_rows([20] if quick else [60, 100, 150, 200, 250, 300, 400, 500])
    print_table("Packings", ("instance", *PLAN_HEADER), packings)
    networks = [row for network in all_networks(quick=quick) for row in network_rows(network)]
    print_table("nnc's own networks", ("program", *PLAN_HEADER, "trace and compile, s"), networks)
    sizes = [(4, 64)] if quick else [(16, 224), (32, 224), (4, 64)]
    print_table("ResNet-50, training step", ("images", "way", "MiB", "compiled step is"), training_rows(sizes))
    with threadpool_limits(1):
        measured = measured_rows(2 if quick else 4, 32 if quick else 64, 1 if quick else 3)
    print_table(
        f"ResNet-50, measured, {'32², batch 2' if quick else '64², batch 4'}; memory that a step takes beside its inputs",
        ("way", "foretold, MiB", "measured, MiB", "seconds", "speed against eager"), measured,
    )  # fmt: skip
    print_table(
        "Loops",
        (
            "program",
            "loops",
            "copies of a round",
            "moves between rounds",
            "copies within",
            "arena, KiB",
            "arena ÷ largest live set",
        ),
        loop_rows(),
    )


if __name__ == "__main__":
    main()
