"""Tensors to which something is added in few places, whose functions lost all digits where the sums are small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

_TABLE = np.random.default_rng(0).normal(size=(4096, 64)).astype(np.float32)
_INDEX = np.arange(64, dtype=np.int32)
_UPDATES = -_TABLE[_INDEX] * np.float32(1 - 1e-6)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "scaled": lambda h: 0.001 * h,
    "a scaled square": lambda h: 0.001 * h * h,
    "an exponential": lambda h: nnp.exp(-(h**2) * 1e10),
    "a root of a square": lambda h: nnp.sqrt(h * h),
    "a quotient": lambda h: h / (1e-6 + abs(h)),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("repeats", [False, True])
def test_functions_of_sums_that_almost_cancel_keep_their_digits(function: Callable[[Any], Any], repeats: bool) -> None:
    index = np.concatenate([_INDEX, _INDEX]) if repeats else _INDEX
    updates = np.concatenate([_UPDATES / 2, _UPDATES / 2]) if repeats else _UPDATES
    sums = _TABLE.copy()
    np.add.at(sums, index, updates)
    found = nnc.compile(lambda x, i, u: function(nnp.asarray(x).at[i].add(u)))(_TABLE, index, updates)
    wanted = np.asarray(function(nnp.asarray(sums.astype(np.float64))))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-38)


def test_squares_of_gradients_of_a_table_are_never_negative() -> None:
    """Words that occur twice, with gradients that almost cancel: Adam takes the root of their squares."""
    words = np.asarray([3, 7, 3, 9], np.int32)
    weights = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)
    weights[2] = -weights[0] * np.float32(1 - 1e-6)
    gradient = nnc.grad(lambda table: nnp.sum(table[words] * weights))
    squares = nnc.compile(lambda table: (lambda g: 0.001 * (0.5 * g) * (0.5 * g))(gradient(table)))(_TABLE)
    sums = np.zeros_like(_TABLE)
    np.add.at(sums, words, weights)
    np.testing.assert_allclose(squares, 0.00025 * sums.astype(np.float64) ** 2, rtol=1e-5)
