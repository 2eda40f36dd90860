"""Programs that print the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys


def printed_elsewhere(program: str) -> str:
    """Returns the output of a program in two other processes with different seeds of hashes; it must be the same."""
    runs = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(runs) == 1
    return runs.pop()
