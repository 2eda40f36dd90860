"""Sums of terms that depend on other sums, as in the gradients of norms, have the values of eager mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn

_RNG = np.random.default_rng(6)
X, W = _RNG.normal(2, 3, (2048, 4)).astype(np.float32), _RNG.normal(size=(2048, 4)).astype(np.float32)
ROW = _RNG.normal(size=4).astype(np.float32)


def _rows(x: Any, w: Any) -> Any:
    """A tensor less its columns' means, which depend on another sum."""
    y = x * ROW + w * nnp.sum(x * w, axis=0)
    return y - nnp.mean(y, axis=0)


def _axes(x: Any, w: Any) -> Any:
    """Sums over different axes, within a sum over both."""
    x, w = x.reshape(64, 32, 4), w.reshape(64, 32, 4)
    y = x * nnp.sum(x, axis=1, keepdims=True) + w * nnp.sum(x * w, axis=(0, 1))
    return y - nnp.mean(y, axis=(0, 1))


@pytest.mark.parametrize(
    "function",
    [
        _rows,
        _axes,
        lambda x, w: _rows(x - nnp.mean(x, axis=0), w),
        lambda x, w: nnp.sum(x * ROW + w * nnp.sum(x * w, axis=0), axis=0),
        lambda x, w: (y := x * ROW + w * 2) - nnp.mean(y, axis=0),
        lambda x, w: (y := x * w + w * nnp.sum(x, axis=0)) - nnp.mean(y, axis=0),
        lambda x, w: (y := x.T * nnp.sum(x) + w.T) - nnp.mean(y, axis=0),
    ],
)
def test_compiled_sums_of_sums_are_those_of_eager_mode(function: Any) -> None:
    got, want = np.asarray(nnc.compile(function)(X, W)), np.asarray(function(X, W))
    scale = float(np.abs(want).max())
    np.testing.assert_allclose(got / scale, want / scale, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize(("shape", "axis"), [((2048, 4), 1), ((4, 6, 40, 30), 1), ((8, 25, 30, 5), 3)])
def test_gradients_of_batch_norms_are_those_of_eager_mode(shape: tuple[int, ...], axis: int) -> None:
    x, w = (_RNG.normal(1, 2, shape).astype(np.float32) for _ in range(2))
    row = _RNG.normal(1, 0.2, shape[axis]).astype(np.float32)

    def loss(x: Any, scale: Any, bias: Any) -> Any:
        return nnp.sum(nn.relu(nn.batch_norm(x, row, row, scale, bias, axis=axis)[0]) * w)

    gradient = nnc.grad(loss, argnums=(0, 1, 2))
    for got, want in zip(nnc.compile(gradient)(x, row, row), gradient(x, row, row), strict=True):
        scale = float(np.abs(np.asarray(want)).max())
        np.testing.assert_allclose(np.asarray(got) / scale, np.asarray(want) / scale, atol=1e-5)
