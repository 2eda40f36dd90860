"""nnc beside JAX, PyTorch and NumPy.

    python -m benchmarks.peers [ROW ...] [--quick] [--frameworks nnc,jax] [--isa sse4|avx2] [--busy N] [--json FILE]

Each row and framework has a process of its own with two processors; PyTorch has one with one thread, too, and the better figure
counts. The processes take turns. Results are compared before times are taken: if two disagree, the exit code is 1. A row's name may
be the beginning of several: `conv`, `gemm`, `eager`. Frameworks that are not installed are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.peers.machine import best_of, compile_package, measure_imports, measure_machine
from benchmarks.peers.process import CAPS, Surroundings, describe_surroundings
from benchmarks.peers.row import Machine, Row
from benchmarks.peers.rows import ROWS
from benchmarks.peers.run import FULL, QUICK, Outcome, measure_group, missing
from benchmarks.peers.table import FRAMEWORKS, describe, print_outcomes
from benchmarks.tables import describe_machine

IMPORTS = "imports"


def choose_rows(names: Sequence[str]) -> list[Row]:
    """The rows whose names begin with one of the given ones; all, if none is given."""
    unknown = [name for name in names if name != IMPORTS and not any(row.name.startswith(name) for row in ROWS)]
    if unknown:
        known = ", ".join([*(row.name for row in ROWS), IMPORTS])
        raise SystemExit(f"no row begins with {', '.join(unknown)}. Rows: {known}")
    return [row for row in ROWS if not names or any(row.name.startswith(name) for name in names)]


def as_json(outcome: Outcome, machine: Machine) -> dict[str, Any]:
    """Returns the form of an outcome in a file."""
    floor, bound = outcome.row.work.floor(machine)
    return {
        "row": outcome.row.name,
        "title": outcome.row.title,
        "floor": floor,
        "bound": bound,
        "figures": [asdict(figure) for figure in outcome.figures],
        "warm": outcome.warm,
        "problems": outcome.problems,
        "instructions": outcome.instructions,
        "disagreements": outcome.disagreements,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Reads the command line, measures, prints; 1 where results disagree."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Times nnc beside other frameworks."
    )
    parser.add_argument("rows", nargs="*", help=f"rows, or beginnings of their names, or {IMPORTS} (default: all)")
    parser.add_argument("--quick", action="store_true", help="few steps, PyTorch with two threads alone")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS), help="names with commas (default: %(default)s)")
    parser.add_argument(
        "--isa", choices=list(CAPS), default="", help="keep all frameworks to these vector instructions"
    )
    parser.add_argument("--busy", type=int, default=0, help="processes that keep the same processors busy")
    parser.add_argument("--processors", type=int, default=2, help="processors that all share (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write all figures to a file, too")
    options = parser.parse_args(arguments)
    frameworks, plan = options.frameworks.split(","), QUICK if options.quick else FULL
    plan = replace(plan, surroundings=Surroundings(options.isa, options.busy, options.processors))
    rows, outcomes = choose_rows(options.rows), []
    print(describe_machine("numpy", "jax", "jaxlib", "torch"), describe_surroundings(plan.surroundings), flush=True)
    compile_package("nnc")
    with tempfile.TemporaryDirectory() as folder:
        machines = [measure_machine(plan.rounds, Path(folder))]
        packages = [name for name in ("numpy", "nnc", "jax", "torch") if name in (*frameworks, "numpy")]
        packages = [name for name in packages if missing(name) is None]
        wanted = not options.rows or IMPORTS in options.rows
        imports = measure_imports(packages, plan.rounds, Path(folder)) if wanted else {}
        for group in dict.fromkeys(row.group for row in rows):
            found = measure_group([row for row in rows if row.group == group], frameworks, plan)
            print(*map(describe, found), sep="\n", file=sys.stderr, flush=True)
            outcomes += found
        machine = best_of([*machines, measure_machine(plan.rounds, Path(folder))])
    used = {name: found for outcome in outcomes for name, found in outcome.instructions.items()}
    print("\nInstructions:", "; ".join(f"{name}: {found}" for name, found in used.items()))
    print_outcomes(outcomes, machine, imports)
    if options.json is not None:
        found = {"machine": asdict(machine), "imports": imports, "rows": [as_json(o, machine) for o in outcomes]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(outcome.disagreements for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
