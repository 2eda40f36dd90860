"""Every loss and normalisation against numbers stored from PyTorch 2.13: values and gradients, without PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.nn.alignment
import nnc.nn.classification
import nnc.nn.losses
import nnc.nn.normalization
from nnc import nn
from tests.contract.nn.oracle_cases import CASES, LOSSES, NORMS, STORED, Row, cotangent, joined

WANTED = dict(np.load(STORED))


def computed(row: Row, dtype: Any, wrap: Callable[..., Any] = lambda f: f) -> Any:
    """The value and the gradients that nnc computes, as they are stored."""
    operands = [x.astype(dtype) if x.dtype.kind == "f" else x for x in row.operands]
    moving = [i for i, x in enumerate(operands) if x.dtype.kind == "f"]

    def value_and_gradients(*floats: Any) -> Any:
        def loss(*floats: Any) -> Any:
            given = dict(zip(moving, floats, strict=True))
            return row.ours(*(given.get(i, x) for i, x in enumerate(operands)))

        value, pull = nnc.vjp(loss, *floats)
        return value, pull(cotangent(value.shape).astype(dtype))

    value, gradients = wrap(value_and_gradients)(*(operands[i] for i in moving))
    assert value.dtype == dtype
    return joined(value, gradients)


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.name)
def test_values_and_gradients_are_those_that_are_stored(row: Row) -> None:
    wanted = WANTED[row.name]
    np.testing.assert_allclose(computed(row, np.float64), wanted, rtol=1e-7, atol=2e-8)
    np.testing.assert_allclose(computed(row, np.float64, nnc.compile), wanted, rtol=1e-7, atol=2e-8)
    np.testing.assert_allclose(computed(row, np.float32), wanted, rtol=2e-4, atol=2e-5)


def test_the_stored_rows_are_those_of_the_table() -> None:
    assert list(WANTED) == [row.name for row in CASES]


def test_every_loss_and_normalisation_has_rows() -> None:
    for modules, rows in (
        ((nnc.nn.losses, nnc.nn.classification, nnc.nn.alignment), LOSSES),
        ((nnc.nn.normalization,), NORMS),
    ):
        homes = {module.__name__ for module in modules}
        public = {name for name in nn.__all__ if getattr(getattr(nn, name), "__module__", "") in homes}
        assert public == {row.name.replace(",", " ").split()[0] for row in rows}
