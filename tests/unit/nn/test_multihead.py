"""When attention layers draw, and how they begin."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
from nnc import nn
from nnc.errors import ArgumentError

KEY = nnc.random.key(0)
X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)


def test_a_layer_without_dropout_takes_no_key() -> None:
    layer = nn.MultiHeadAttention(8, 2, key=KEY)
    np.testing.assert_array_equal(np.asarray(layer(X)), np.asarray(layer(X, key=nnc.random.key(1))))


def test_dropout_draws_in_training_alone() -> None:
    layer = nn.MultiHeadAttention(8, 2, key=KEY, dropout_rate=0.5)
    with pytest.raises(ArgumentError, match="key"):
        layer(X)
    one, other = np.asarray(layer(X, key=KEY)), np.asarray(layer(X, key=nnc.random.key(1)))
    assert not np.array_equal(one, other)
    still = np.asarray(nn.inference_mode(layer)(X))
    np.testing.assert_array_equal(still, np.asarray(nn.MultiHeadAttention(8, 2, key=KEY)(X)))


def test_projections_begin_with_keys_of_their_own() -> None:
    layer = nn.MultiHeadAttention(8, 2, key=KEY)
    weights = [np.asarray(p.weight) for p in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj)]
    assert len({weight.tobytes() for weight in weights}) == 4
