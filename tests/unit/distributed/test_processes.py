"""Meshes of processes: `on_processes.py` runs on 2 and on 4 of them, once for all tests here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.unit.distributed.on_processes import CHECKS

ROOT = Path(__file__).parents[3]
STARTER = Path(sys.prefix) / "bin" / "mpiexec"
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"),
    pytest.mark.skipif(not STARTER.exists(), reason="no mpiexec is installed beside Python"),
]


@cache
def failures(number: int) -> dict[str, str]:
    """The failures of each check on a number of processes."""
    command = [str(STARTER), "-n", str(number), sys.executable, "-m", "tests.unit.distributed.on_processes"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("name", CHECKS)
def test_processes_compute_the_results_of_one(name: str, number: int) -> None:
    assert not failures(number)[name], failures(number)[name]


@pytest.mark.slow
def test_a_restart_gives_the_bits_of_an_uninterrupted_run(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "nnc.distributed", "run", "-n", "2", "--restarts", "1"]
    lines = []
    for name in ("whole", "crash"):
        program = [str(ROOT / "tests/unit/distributed/resuming.py"), str(tmp_path / name), name]
        done = subprocess.run(
            [*command, *program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        lines.append(done.stdout.splitlines()[-1].split())
    assert [again for again, _ in lines] == ["False", "True"] and lines[0][1] == lines[1][1]
