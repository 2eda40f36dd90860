"""Rows of a table by integers, and draws."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.errors import ArgumentTypeError, DTypeError, ShapeError

TABLE = np.random.default_rng(0).normal(size=(4, 3))


def test_embedding_takes_rows_and_adds_up_their_gradients() -> None:
    index = np.array([[1, 3], [1, 1]])
    np.testing.assert_array_equal(np.asarray(nn.embedding(index, TABLE)), TABLE[index])
    gradient = nnc.grad(lambda t: nnp.sum(nn.embedding(index, t)))(TABLE)
    np.testing.assert_array_equal(np.asarray(gradient)[:, 0], [0, 3, 0, 1])
    gradient = nnc.grad(lambda t: nnp.sum(nn.embedding(index, t, padding_index=1)))(TABLE)
    np.testing.assert_array_equal(np.asarray(gradient)[:, 0], [0, 0, 0, 1])


def test_embedding_refuses_tables_and_indices_that_do_not_fit() -> None:
    with pytest.raises(DTypeError, match="x must hold integers"):
        nn.embedding(TABLE, np.array([1]))
    with pytest.raises(ShapeError, match="the table has 1 axes"):
        nn.embedding(np.array([1]), TABLE[0])
    with pytest.raises(IndexError, match="4"):
        nn.embedding(np.array([4]), TABLE)
    with pytest.raises(ArgumentTypeError, match="Fix: write padding_index="):
        nn.embedding(np.array([1]), TABLE, padding_idx=0)


def test_dropout_may_draw_once_for_whole_channels() -> None:
    x = np.ones((50, 8, 3, 3))
    out = np.asarray(nn.dropout(nnc.random.key(0), x, 0.25, shared_axes=(2, 3)))
    assert (out == out[:, :, :1, :1]).all()
    assert set(np.unique(out)) == {0, 4 / 3}
    np.testing.assert_allclose((out == 0).mean(), 0.25, atol=0.06)
