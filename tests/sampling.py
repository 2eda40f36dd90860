"""Which tests run in CI, whose time is bounded: parts of the longest tables, and the longest tests in turns. The name of the parent
commit chooses them.

.ci/run asks for it by NNC_TESTS=part; otherwise all tests run.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import pytest

T = TypeVar("T")
ROOT = Path(__file__).parents[1]

SLOW = 4  # of tests marked `slow`, one in so many runs
TURNS = {  # of the test functions below a path that take long, one in so many runs
    "tests/contract/cases/test_roots_at_borders": 4,
    "tests/contract/programs/test_weak_values_in_loops": 3,
    "tests/devices/test_suites_on_sim": 2,
    "tests/docs/examples/test_distributed": 3,
    "tests/docs/examples/test_examples": 3,
    "tests/docs/examples/test_exported": 3,
    "tests/fuzz/test_fuzz": 3,
    "tests/unit/benchmarks": 3,
    "tests/unit/distributed": 3,
    "tests/unit/exporting": 2,
    "tests/unit/lower/alloc": 3,
    "tests/unit/scipy/integrate": 3,
    "tests/unit/scipy/special": 2,
    "tests/unit/scipy/test_integrate": 3,
}
PARTS = {  # of the cases of each test function below a path, one in so many runs, and at least one
    "tests/contract/cases/test_native_parts": 60,
    "tests/contract/commands": 6,
    "tests/contract/nn": 6,
    "tests/contract/numpy": 6,
    "tests/contract/optim": 6,
    "tests/contract/programs": 5,
    "tests/devices": 20,
    "tests/devices/test_commands_on_": 28,
    "tests/devices/test_suites_on_sim": 40,
    "tests/docs/clients": 2,
    "tests/docs/examples": 4,
    "tests/docs/site": 3,
    "tests/errors": 2,
    "tests/golden/test_other_processors": 4,
    "tests/fuzz/programs": 8,
    "tests/unit/backends": 8,
    "tests/unit/benchmarks/test_training": 3,
    "tests/unit/commands": 6,
    "tests/unit/compiled": 4,
    "tests/unit/distributed": 3,
    "tests/unit/errors/names": 4,
    "tests/unit/exporting": 3,
    "tests/unit/exporting/test_commands": 12,
    "tests/unit/graph": 3,
    "tests/unit/lower": 8,
    "tests/unit/nn": 6,
    "tests/unit/onnx": 12,
    "tests/unit/numpy": 6,
    "tests/unit/optim": 6,
    "tests/unit/random": 5,
    "tests/unit/scipy": 8,
    "tests/unit/trace": 6,
    "tests/unit/trace/test_overwritten_memory": 1,
}


def sampled(values: Sequence[T], step: int) -> Sequence[T]:
    """Every `step`-th of some values in CI, else all of them; for cases that one test goes through.

    Args:
        values: cases of a test.
        step: 2 or more.
    """
    return values[::step] if _in_ci() else values


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests that do not run; none outside of CI."""
    if not _in_ci():
        return set()
    seed = _commit()
    groups = defaultdict[tuple[str, str], list[pytest.Item]](list)
    for item in items:
        groups[item.location[0], getattr(item, "originalname", item.name)].append(item)
    found = set[pytest.Item]()
    for (path, name), group in groups.items():
        kept = -(-len(group) // _one_in(PARTS, path))
        found.update(sorted(group, key=lambda item: crc32(seed + item.nodeid.encode()))[kept:])
        place = crc32(seed + f"{path}::{name}".encode())
        if place % _one_in(TURNS, path):
            found.update(group)
        found.update(item for item in group if item.get_closest_marker("slow") and place % SLOW)
    return found


def _one_in(table: Mapping[str, int], path: str) -> int:
    """One in how many cases, or functions, of a file runs."""
    longest = max((start for start in table if path.startswith(start)), key=len, default="")
    return table.get(longest, 1)


def _in_ci() -> bool:
    return os.environ.get("NNC_TESTS") == "part"


def _commit() -> bytes:
    """The parent of the commit that is tested; nothing where that is not known."""
    done = subprocess.run(["git", "rev-parse", "-q", "--verify", "HEAD^"], cwd=ROOT, capture_output=True, check=False)
    return done.stdout.strip()
