"""SciPy and scikit-learn take nnc's arrays, with array API dispatch and without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from tests.docs.clients.dispatch import ASSIGNS, NUMPY, WORKS, arrays, leaves, table

pytest.importorskip("sklearn")
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")


def test_each_function_is_in_its_state_under_dispatch() -> None:
    command = [sys.executable, "-m", "tests.docs.clients.dispatch"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: state for name, (state, _) in table().items()}


@pytest.mark.parametrize("state", [WORKS, NUMPY, ASSIGNS])
def test_the_page_names_the_functions_of_each_state(state: str) -> None:
    (line,) = re.findall(rf"^\| {state} \|(.*)\|$", PAGE, re.MULTILINE)
    assert sorted(re.findall(r"`([^`]+)`", line)) == sorted(name for name, (of, _) in table().items() if of == state)


@pytest.mark.parametrize("name", table())
def test_all_of_them_give_numpys_numbers_without_dispatch(name: str) -> None:
    _, row = table()[name]
    got, want = (list(leaves(row(*(make(x) for x in arrays())))) for make in (nnp.asarray, np.asarray))
    assert not any(isinstance(x, nnc.Array) for x in got) or "train_test_split" in name
    for x, w in zip(got, want, strict=True):
        np.testing.assert_allclose(x, w, rtol=1e-9)
