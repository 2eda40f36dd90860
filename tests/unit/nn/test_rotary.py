"""RotaryEmbedding: distances, caches, dtypes and mistakes; test_layer_oracles.py has PyTorch's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn, tree
from nnc.errors import ArgumentError, AxisError, ShapeError

RNG = np.random.default_rng(0)
Q, K = RNG.normal(size=(2, 6, 3, 8)), RNG.normal(size=(2, 6, 3, 8))
both_pairings = pytest.mark.parametrize("interleaved", [False, True])


@both_pairings
def test_scores_depend_on_distances_alone_and_lengths_stay(interleaved: bool) -> None:
    rotary = nn.RotaryEmbedding(8, interleaved=interleaved)
    at = np.arange(6)

    def scores(shift: int) -> Any:
        return nnp.einsum("bthf,bshf->bhts", rotary(Q, at + shift), rotary(K, at + shift))

    np.testing.assert_allclose(scores(0), scores(1000), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(nnp.linalg.norm(rotary(Q), axis=-1), np.linalg.norm(Q, axis=-1))
    np.testing.assert_allclose(rotary(Q)[:, 0], Q[:, 0])


@both_pairings
def test_the_other_axis_and_other_places_rotate_likewise(interleaved: bool) -> None:
    rotary = nn.RotaryEmbedding(8, interleaved=interleaved)
    over_heads = nn.RotaryEmbedding(8, interleaved=interleaved, axis=-2)(Q.swapaxes(1, 2)).swapaxes(1, 2)
    np.testing.assert_allclose(over_heads, rotary(Q))
    whole = rotary(Q)
    for t in range(6):  # as with a cache, one step at a time
        np.testing.assert_allclose(rotary(Q[:, t : t + 1], nnp.asarray([t]))[:, 0], whole[:, t])
    rows = np.array([[5, 4, 3, 2, 1, 0], [0, 0, 0, 0, 0, 0]])
    found = rotary(Q, rows)
    np.testing.assert_allclose(found[0], rotary(Q[:1], rows[0])[0])
    np.testing.assert_allclose(found[1], Q[1])


def test_it_has_no_parameters_and_keeps_dtypes() -> None:
    rotary = nn.RotaryEmbedding(8)
    assert tree.leaves(rotary) == [] and "RotaryEmbedding(features=8" in repr(rotary)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        out = rotary(nnp.asarray(Q, dtype))
        assert out.dtype == dtype
        np.testing.assert_allclose(out.astype("float64"), rotary(Q), atol=0.05 if "16" in str(dtype) else 1e-5)


def test_large_positions_keep_their_digits_in_float32() -> None:
    rotary, at = nn.RotaryEmbedding(8), np.array([10_000_000])
    found = rotary(np.ones((1, 1, 1, 8), np.float32), at)
    np.testing.assert_allclose(found, rotary(np.ones((1, 1, 1, 8)), at), atol=1e-5)


def test_it_compiles_differentiates_and_maps() -> None:
    rotary = nn.RotaryEmbedding(4, interleaved=True)
    compiled = nnc.compile(lambda x, at: rotary(x, at))
    np.testing.assert_allclose(compiled(Q, np.arange(6)), rotary(Q))
    np.testing.assert_allclose(nnc.vmap(rotary)(Q), rotary(Q))
    cotangent = RNG.normal(size=Q.shape)
    pulled = nnc.grad(lambda x: nnp.sum(rotary(x) * cotangent))(Q)
    np.testing.assert_allclose(rotary(pulled), cotangent, err_msg="the transpose of a rotation is its inverse")


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.RotaryEmbedding(7), ArgumentError, "features is 7"),
        (lambda: nn.RotaryEmbedding(0), ArgumentError, "features is 0"),
        (lambda: nn.RotaryEmbedding(8, base=0.0), ArgumentError, "base is 0.0"),
        (lambda: nn.RotaryEmbedding(16)(Q), ShapeError, "must be 16"),
        (lambda: nn.RotaryEmbedding(8)(Q[0, 0]), AxisError, "axis -3 is out of range"),
        (lambda: nn.RotaryEmbedding(8, axis=-1)(Q), ArgumentError, "axis -1 is the axis of features"),
        (lambda: nn.RotaryEmbedding(8)(Q, np.arange(5)), ShapeError, r"positions do not fit x(.|\n)*\(6,\) or \(2, 6\)"),
        (lambda: nn.RotaryEmbedding(8)(Q, np.zeros((3, 2, 6))), ShapeError, "positions do not fit x"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
