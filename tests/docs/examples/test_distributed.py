"""The example of several processes, started by nnc's own launcher."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("tqdm")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
EXAMPLE = Path(__file__).parents[3] / "examples" / "distributed.py"


@pytest.mark.parametrize(
    ("model", "epochs", "least", "unit"), [("digits", "6", 0.93, "images/s"), ("gpt", "2", 0.22, "tokens/s")]
)
def test_two_processes_learn_rules_that_hold_for_new_data(
    tmp_path: Path, model: str, epochs: str, least: float, unit: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "nnc.distributed",
        "run",
        "-n",
        "2",
        str(EXAMPLE),
        "--model",
        model,
        "--epochs",
        epochs,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    *_, processes, accuracy = done.stdout.splitlines()
    assert processes == "processes: 2"
    assert float(accuracy.removeprefix("test accuracy: ")) >= least
    share = re.findall(r"communication=(\d+)%", done.stderr)
    assert unit in done.stderr and share and 0 < int(share[-1]) < 100
