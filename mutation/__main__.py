"""How many small changes to nnc's source the tests notice.

    python -m mutation reach [TEST FILE ...]                    notes which tests enter which functions: once, half an hour
    python -m mutation [--sample 400] [--seed 0] [--areas trace,nn] [--seconds 60] [--workers 2] [--json FILE] [--again FILE]

A sample of mutants (made by cosmic-ray: another comparison, a number one off, a condition negated, a loop that never runs, …) is
drawn from the areas, as many from each. On each of them run the tests that enter the changed function, those that enter the
fewest others first, for as long as `--seconds` says. A mutant on which a test fails, crashes or hangs is killed; the others are
printed, to be read one by one. `--again` takes the file of an earlier run and judges its survivors alone, with more seconds or new
tests. New test files are added by `reach` with their names.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from mutation.mutants import AREAS, Mutant, area_of, sample_mutants
from mutation.reach import ROOT, Reach
from mutation.workers import Verdict, judge_all

REACH = ROOT / "out" / "mutation-reach.pickle"


def note_reach(tests: list[str]) -> int:
    """Runs tests, all if none are named, under the profiler; returns pytest's exit code."""
    REACH.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "mutation.reach", "-p", "no:cacheprovider", "-q", *tests]
    settings = {"NNC_MUTATION_REACH": str(REACH), "HYPOTHESIS_PROFILE": "ci"}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=False).returncode


def tell(verdict: Verdict) -> None:
    """Prints a verdict: a survivor with its text, for people to read."""
    if verdict.killed:
        print(f"killed    {verdict.mutant.path}:{verdict.mutant.line}", flush=True)
    else:
        counts = f"{verdict.tests} of {verdict.reached} tests"
        print(f"SURVIVED  {verdict.mutant.describe()}\n  [{verdict.mutant.operator}] {counts}", flush=True)


def print_summary(verdicts: list[Verdict]) -> None:
    """Prints the share of killed mutants for each area and over all."""
    total = Counter(area_of(verdict.mutant.path) or "" for verdict in verdicts)
    killed = Counter(area_of(verdict.mutant.path) or "" for verdict in verdicts if verdict.killed)
    for area, count in total.items():
        print(f"{area:10} {killed[area]:4} of {count:4}  {killed[area] / count:6.1%}")
    print(f"{'all':10} {killed.total():4} of {total.total():4}  {killed.total() / max(total.total(), 1):6.1%}")


def as_row(mutant: Mutant) -> dict[str, object]:
    """Returns the fields of a mutant that a file of verdicts holds."""
    names = ("path", "line", "function", "operator", "occurrence", "before", "after")
    return {name: getattr(mutant, name) for name in names}


def as_json(verdict: Verdict) -> dict[str, object]:
    """Returns the fields of a verdict and of its mutant."""
    return {**as_row(verdict.mutant), "killed": verdict.killed, "tests": verdict.tests, "output": verdict.output}


def identity(row: Mapping[str, object]) -> tuple[object, ...]:
    """Returns the fields of a row that no other mutant of the same source shares."""
    return row["path"], row["operator"], row["occurrence"]


def main(arguments: list[str]) -> int:
    """Runs the command line."""
    if arguments[:1] == ["reach"]:
        return note_reach(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python -m mutation", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--sample", type=int, default=400, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--areas", default=",".join(AREAS), help="areas to draw from: " + ", ".join(AREAS))
    parser.add_argument("--seconds", type=float, default=60.0, help="time of the tests of one mutant")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="number of mutants at a time")
    parser.add_argument("--json", type=Path, help="file to write the verdicts to, anew after each")
    parser.add_argument(
        "--again", type=Path, help="file of an earlier run with the same sample, whose survivors are judged alone"
    )
    parser.add_argument("--list", action="store_true", help="print the sample and run nothing")
    given = parser.parse_args(arguments)
    mutants = sample_mutants(ROOT, given.areas.split(","), given.sample, given.seed)
    if given.again:
        left = {identity(row) for row in json.loads(given.again.read_text()) if not row["killed"]}
        mutants = [mutant for mutant in mutants if identity(as_row(mutant)) in left]
    if given.list:
        for mutant in mutants:
            print(mutant.describe())
        return 0
    if not REACH.exists():
        parser.error(f"{REACH} is missing: run `python -m mutation reach` first")
    reach: Reach = pickle.loads(REACH.read_bytes())
    told: list[Verdict] = []

    def note(verdict: Verdict) -> None:
        tell(verdict)
        told.append(verdict)
        if given.json:
            given.json.write_text(json.dumps([as_json(verdict) for verdict in list(told)], indent=1))

    print_summary(judge_all(ROOT, reach, mutants, given.seconds, given.workers, note))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
