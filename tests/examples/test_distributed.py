"""The example of several processes, started by nnc's own launcher."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("tqdm")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
EXAMPLE = Path(__file__).parents[2] / "examples" / "distributed.py"


def test_two_processes_read_most_held_out_digits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nnc.distributed", "run", "-n", "2", str(EXAMPLE), "--epochs", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    *_, processes, accuracy = done.stdout.splitlines()
    assert processes == "processes: 2"
    assert float(accuracy.removeprefix("test accuracy: ")) >= 0.93
    assert "images/s" in done.stderr
