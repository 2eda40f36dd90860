"""Trains in both frameworks and prints the curves side by side."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.training import curves, with_nnc, with_torch
from benchmarks.training.runs import QUICK, RUNS, choose

RECORD = Path(__file__).parents[2] / "tests" / "benchmarks" / "training_curves.json"
STEPS, QUICK_STEPS = 50, 20


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training")
    parser.add_argument("names", nargs="*", help="beginnings of names of runs")
    parser.add_argument("--quick", action="store_true", help="small networks")
    parser.add_argument("--steps", type=int, help=f"{STEPS} by default, of small networks {QUICK_STEPS}")
    parser.add_argument("--record", action="store_true", help="keep PyTorch's curves of small networks for the tests")
    given = parser.parse_args(arguments)
    steps = given.steps or (QUICK_STEPS if given.quick else STEPS)
    if given.record:
        curves.write(RECORD, {run.name: with_torch.train(run, QUICK_STEPS) for run in QUICK})
        return
    for run in choose(QUICK if given.quick else RUNS, given.names):
        ours, theirs = with_nnc.train(run, steps), with_torch.train(run, steps)
        print("\n".join(curves.table(run.title, ours, theirs)), flush=True)


if __name__ == "__main__":
    main()
