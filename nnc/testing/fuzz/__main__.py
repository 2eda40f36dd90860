"""`python -m nnc.testing.fuzz`: looks for programs whose results depend on how they run."""

from __future__ import annotations

import argparse
import sys

from nnc.testing.fuzz.campaign import known_commands, run
from nnc.testing.fuzz.modes import MODES


def main(arguments: list[str] | None = None) -> int:
    """Runs generated programs; returns 1 where something was found."""
    parser = argparse.ArgumentParser(prog="python -m nnc.testing.fuzz", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=None, help="for how long (default: 60, or until `--programs` have run)"
    )
    parser.add_argument("--programs", type=int, default=None, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    parser.add_argument(
        "--modes", default="", help=f"names, with commas between: {', '.join(mode.name for mode in MODES)}"
    )
    parser.add_argument("--commands", default="", help="first calls of programs: names of commands and functions")
    parser.add_argument("--imports", default="", help="modules that register commands")
    parser.add_argument("--findings", type=int, default=10, help="after how many findings to stop")
    parser.add_argument("--shrinking", type=float, default=60.0, help="seconds to make a finding smaller")
    given = parser.parse_args(arguments)
    seconds = 60.0 if given.seconds is None and given.programs is None else given.seconds
    report = run(
        seconds=seconds, programs=given.programs, seed=given.seed, findings=given.findings,
        shrinking=given.shrinking,
        modes=_names(given.modes), commands=_names(given.commands), imports=_names(given.imports),
        tell=lambda text: print(f"{text}\n", flush=True),
    )  # fmt: skip
    print(report.summary(known_commands()))
    return 1 if report.findings else 0


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


if __name__ == "__main__":
    sys.exit(main())
