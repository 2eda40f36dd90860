"""The native parts of the suite run on processors that lack some of this machine's instructions, a file in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.contract.cases.test_processors import LEVELS, ROOT

FOLDERS = (
    "tests/unit/backends/cpu",
    "tests/unit/backends/onednn",
    "tests/unit/backends/blas",
    "tests/unit/lower/kernels",
)
FILES = sorted(str(file.relative_to(ROOT)) for folder in FOLDERS for file in (ROOT / folder).rglob("test_*.py"))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("file", FILES)
def test_native_parts_of_the_suite_pass_on(file: str, level: str) -> None:
    if os.environ.get("NNC_CPU"):
        pytest.skip("they run on the processor that NNC_CPU names by themselves")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", file]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NNC_CPU": level}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
