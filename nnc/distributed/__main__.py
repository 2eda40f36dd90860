"""`python -m nnc.distributed run -n 4 train.py`: runs a program on several ranks, and again where one fails."""

from __future__ import annotations

import argparse
import os
import sys

from nnc.distributed.launch import run, run_rank
from nnc.errors import NncError


def main(arguments: list[str]) -> int:
    """Runs the subcommand; returns the exit status."""
    if arguments[:1] == ["rank"]:  # of the processes that `run` starts
        run_rank(arguments[1:])
        return 0
    parser = argparse.ArgumentParser(prog="python -m nnc.distributed")
    start = parser.add_subparsers(required=True, metavar="run").add_parser(
        "run", help="run a program of Python on several ranks", description="Runs a program of Python on several ranks."
    )
    start.add_argument("-n", type=int, required=True, metavar="RANKS", dest="ranks", help="the number of processes")
    start.add_argument(
        "--restarts", type=int, default=0, help="start again after so many failures (default: %(default)s)"
    )
    start.add_argument("--min-ranks", type=int, help="each restart takes one rank fewer, down to this number")
    start.add_argument("--label", action="store_true", help="begin each line of output with its rank")
    start.add_argument("program", help="a file of Python")
    start.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
    options = parser.parse_args(arguments)
    least = options.ranks if options.min_ranks is None else options.min_ranks
    if not 1 <= least <= options.ranks:
        start.error(f"-n {options.ranks} and --min-ranks {least} are no numbers with 1 <= min-ranks <= n")
    if options.restarts < 0:
        start.error(f"--restarts {options.restarts} is negative")
    if not os.path.isfile(options.program):
        start.error(f"there is no file {options.program}")
    program = [options.program, *options.arguments]
    try:
        return run(options.ranks, program, restarts=options.restarts, min_ranks=options.min_ranks, label=options.label)
    except NncError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
