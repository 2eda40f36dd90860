"""PReLU, RotaryEmbedding, SpectralNorm, WeightNorm and grid_sample against numbers stored from PyTorch 2.13."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
from tests.contract.nn.layer_oracle_cases import CASES, LAYERS, STORED
from tests.contract.nn.oracle_cases import Row
from tests.contract.nn.test_oracles import computed

WANTED = dict(np.load(STORED))


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.name)
def test_values_and_gradients_are_those_that_are_stored(row: Row) -> None:
    wanted = WANTED[row.name]
    np.testing.assert_allclose(computed(row, np.float64), wanted, rtol=1e-7, atol=1e-8)
    if not row.name.startswith(("edges", "far")):  # whose places round to another side in float32
        np.testing.assert_allclose(computed(row, np.float32), wanted, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("row", [*CASES[::7], *LAYERS[::3]], ids=lambda row: row.name)
def test_compiled_rows_have_the_same_values(row: Row) -> None:
    np.testing.assert_allclose(computed(row, np.float64, nnc.compile), WANTED[row.name], rtol=1e-7, atol=1e-8)


def test_the_stored_rows_are_those_of_the_table() -> None:
    assert list(WANTED) == [row.name for row in CASES]
