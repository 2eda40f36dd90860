"""Steps of nnc, JAX and PyTorch beside neighbours: busy processes, other libraries' threads, less than a processor.

    python -m benchmarks.neighbours [ROW ...] [--surroundings NAME ...] [--frameworks nnc,jax,torch] [--seconds S]

All frameworks run under the same conditions, in processes that take turns as those of `benchmarks.peers` do. Beside neighbours
single steps are much longer than most, so the table has means, and medians behind them. The last column is the processors' time
that nnc takes after its last step: threads that look out for work.

Half a processor is a control group with a limit, which the system must let this process make; where it does not, this is said.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from benchmarks.peers.__main__ import choose_rows
from benchmarks.peers.process import ALONE, Surroundings, describe_surroundings
from benchmarks.peers.row import Row
from benchmarks.peers.run import Outcome, Plan, measure_group
from benchmarks.tables import Cell, describe_machine, print_table

ROWS = ("mlp", "lenet", "resnet-18", "transformer", "lstm")
SURROUNDINGS: Mapping[str, Surroundings] = MappingProxyType(
    {
        "alone": ALONE,
        "1 busy": Surroundings(busy=1),
        "2 busy": Surroundings(busy=2),
        "numpy's threads": Surroundings(beside="numpy"),
        "torch's threads": Surroundings(beside="torch"),
        "half a processor": Surroundings(share=0.5),
        "1 processor": Surroundings(processors=1),
    }
)
FRAMEWORKS = ("nnc", "jax", "torch")
NONE = "-"


def measure(row: Row, surroundings: Surroundings, frameworks: Sequence[str], seconds: float) -> Outcome | str:
    """Returns the outcome of a row under some conditions, or the reason why there is none."""
    rounds = 6
    plan = Plan(
        rounds,
        seconds / rounds,
        (min(2, surroundings.processors),),
        timeout=600,
        first_calls=0,
        surroundings=surroundings,
    )
    try:
        return measure_group([row], frameworks, plan)[0]
    except OSError as error:
        return f"the system does not allow {describe_surroundings(surroundings)}: {error}"


def cells(outcome: Outcome, frameworks: Sequence[str]) -> list[Cell]:
    """Returns means and medians in ms, the best peer's mean by nnc's, and nnc's time after the last step."""
    found = {name: outcome.best(name) for name in frameworks}
    shown = [f"{1e3 * figure.mean:.2f} ({1e3 * figure.step:.2f})" if figure else NONE for figure in found.values()]
    nnc, peers = found.get("nnc"), [figure.mean for name, figure in found.items() if figure and name != "nnc"]
    ratio = f"{min(peers) / nnc.mean:.2f}" if nnc and peers else NONE
    return [*shown, ratio, f"{1e3 * nnc.idle:.1f}" if nnc else NONE]


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line, measures, prints; 1 where results disagree."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.neighbours", description="Times steps beside neighbours."
    )
    parser.add_argument("rows", nargs="*", default=list(ROWS), help="rows of benchmarks.peers (default: %(default)s)")
    parser.add_argument("--surroundings", nargs="+", choices=list(SURROUNDINGS), default=list(SURROUNDINGS))
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="names with commas (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of steps of each framework (default: %(default)s)")
    options = parser.parse_args(arguments)
    frameworks = options.frameworks.split(",")
    print(describe_machine("numpy", "jax", "jaxlib", "torch"), flush=True)
    header = [
        "row",
        "surroundings",
        *(f"{name}, ms: mean (median)" for name in frameworks),
        "best peer / nnc",
        "after, ms",
    ]
    table: list[list[Cell]] = []
    problems: list[str] = []
    for row in choose_rows(options.rows):
        for name in options.surroundings:
            found = measure(row, SURROUNDINGS[name], frameworks, options.seconds)
            if isinstance(found, str):
                problems.append(found)
                continue
            table.append([row.title, name, *cells(found, frameworks)])
            problems += [f"{row.name}, {name}: {text}" for text in (*found.disagreements, *found.problems.values())]
            print(*table[-1], sep=" | ", file=sys.stderr, flush=True)
    print_table("Steps beside neighbours", header, table)
    print(*dict.fromkeys(problems), sep="\n")
    return int(any("differs" in problem for problem in problems))


if __name__ == "__main__":
    sys.exit(main())
