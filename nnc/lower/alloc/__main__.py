"""Plans tables of live ranges: `python -m nnc.lower.alloc FILE.csv...`."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from nnc.base.options import Allocator
from nnc.errors import NncError
from nnc.lower.alloc.arena import ALIGNMENT, THOROUGH, plan_arena
from nnc.lower.alloc.checker import find_overlap
from nnc.lower.alloc.instances import Instance, read_instance, write_offsets

_HEADER = f"{'tensors':>8} {'bound':>14} {'peak':>14} {'ratio':>7} {'seconds':>8}  file"


def main(arguments: Sequence[str] | None = None) -> int:
    """Plans each file, checks the plan and prints a line; returns the exit status."""
    chosen = _parse(arguments)
    folder: Path | None = chosen.offsets
    names = [Path(file).name for file in chosen.files]
    if folder is not None and len(set(names)) < len(names):
        return _fail("--offsets: two files have the same name, so one table would replace the other.")
    if not chosen.json:
        print(_HEADER)
    for file, name in zip(chosen.files, names, strict=True):
        try:
            instance = read_instance(file)
            begin = time.perf_counter()
            plan = plan_arena(
                instance.lower,
                instance.upper,
                instance.size,
                _alignment(instance),
                algorithm=chosen.algorithm,
                effort=THOROUGH,
            )
            seconds = time.perf_counter() - begin
        except NncError as error:
            lines = str(error).splitlines()  # the table is at fault, no line of a program
            return _fail("\n".join(line for line in lines if not line.startswith("  at ")))
        clash = find_overlap(instance.lower, instance.upper, instance.size, plan.offsets)
        if clash is not None:
            return _fail(f"{file}: the plan is wrong, {' and '.join(instance.ids[i] for i in clash)} overlap.")
        ratio = plan.peak / plan.lower_bound if plan.lower_bound else 1.0
        if chosen.json:
            figures = {"tensors": len(instance.ids), "bound": plan.lower_bound, "peak": plan.peak}
            print(json.dumps({**figures, "ratio": ratio, "seconds": seconds}), flush=True)
        else:
            row = f"{len(instance.ids):8} {plan.lower_bound:14} {plan.peak:14} {ratio:7.4f} {seconds:8.3f}  {file}"
            print(row, flush=True)
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                write_offsets(folder / name, instance.ids, plan.offsets)
            except OSError as error:
                return _fail(f"--offsets: {folder / name} cannot be written: {error.strerror}.")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m nnc.lower.alloc",
        description="Plans tensors with known live ranges in one arena, and checks the plan.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE.csv", help="a table with the header id,lower,upper,size")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a file: tensors, bound, peak, ratio, seconds"
    )
    parser.add_argument(
        "--offsets", type=Path, metavar="DIR", help="write a table id,offset a file, of the file's name"
    )
    parser.add_argument("--algorithm", choices=get_args(Allocator), default="portfolio", help="default: portfolio")
    return parser.parse_args(arguments)


def _alignment(instance: Instance) -> int:
    """64 bytes, or the largest power of two that divides all sizes: tables in other units are planned in those."""
    return math.gcd(ALIGNMENT, *instance.size)


def _fail(problem: str) -> int:
    print(problem, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
