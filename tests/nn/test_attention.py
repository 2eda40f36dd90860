"""Attention in chunks: the same values as at once, memory linear in the number of keys, dropout; and its mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, OutOfBoundsError, ShapeError

RNG = np.random.default_rng(0)
Q, K, V = RNG.normal(size=(2, 7, 4, 5)), RNG.normal(size=(2, 11, 2, 5)), RNG.normal(size=(2, 11, 2, 5))
BIAS, MASK = RNG.normal(size=(4, 7, 11)), RNG.random((2, 1, 7, 11)) > 0.4


@pytest.mark.parametrize("chunk_size", [1, 4, 5, 11])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"mask": MASK},
        {"mask": MASK[:, :, :1], "bias": BIAS, "is_causal": True},
        {"bias": BIAS[:1, :, :1]},
        {"mask": MASK[..., :1], "scale": 0.1},
        {"local_window_size": (2, 1), "key_value_seq_lengths": np.array([5, 11])},
        {"is_causal": True, "local_window_size": 3, "query_seq_lengths": np.array([7, 4])},
    ],
)
def test_chunks_change_neither_values_nor_gradients(chunk_size: int, options: dict[str, Any]) -> None:
    def run(size: int | None) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            out = nn.dot_product_attention(q, k, v, **options, chunk_size=size)
            return nnp.sum(out**2), out

        return nnc.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)(Q, K, V)

    for got, want in zip(nnc.tree.leaves(run(chunk_size)), nnc.tree.leaves(run(None)), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-9, atol=1e-11)


def test_lengths_and_windows_are_masks() -> None:
    query, key = np.arange(7)[:, None], np.arange(11)
    lengths = np.array([5, 11])
    options: dict[str, Any] = {"key_value_seq_lengths": lengths, "query_seq_lengths": np.array([7, 3])}
    mask = (key < lengths[:, None, None, None]) & (query < np.array([7, 3])[:, None, None, None])
    mask = mask & (query - key <= 4) & (key - query <= 2)
    out = nn.dot_product_attention(Q, K, V, local_window_size=(4, 2), **options)
    np.testing.assert_allclose(np.asarray(out), np.asarray(nn.dot_product_attention(Q, K, V, mask=mask)), atol=1e-12)
    assert not np.asarray(out)[1, 3:].any()


def test_a_bias_gets_its_gradient_through_chunks() -> None:
    loss = lambda size: lambda b: nnp.sum(nn.dot_product_attention(Q, K, V, b, chunk_size=size) ** 2)
    for bias in (BIAS, BIAS[:, :, :1], BIAS[:1, :1]):
        np.testing.assert_allclose(
            np.asarray(nnc.grad(loss(4))(bias)), np.asarray(nnc.grad(loss(None))(bias)), atol=1e-11
        )


def _arena(keys: int) -> int:
    """Bytes that the compiled gradient of attention among `keys` tokens plans for."""
    x = np.zeros((keys, 2, 8), np.float32)
    loss = lambda q, k, v: nnp.sum(nn.dot_product_attention(q, k, v, is_causal=True, chunk_size=64))
    return int(nnc.compile(nnc.grad(loss, argnums=(0, 1, 2))).lower(x, x, x).compile().memory_plan.peak)


def test_the_memory_of_its_gradient_is_linear_in_the_number_of_tokens() -> None:
    small, large = _arena(512), _arena(4096)
    assert large <= 8.2 * small
    assert large < 4096 * 4096 * 4  # one array of scores for one head


def test_the_reverse_pass_keeps_nothing_of_a_chunk() -> None:
    x = RNG.normal(size=(256, 1, 4)).astype(np.float32)
    with nnc.debug.tape_memory() as memory:
        nnc.grad(lambda x: nnp.sum(nn.dot_product_attention(x, x, x, chunk_size=32)))(x)
    assert memory.peak == 0


def test_scores_may_be_large_and_masked_rows_empty_in_chunks() -> None:
    q = np.full((8, 1, 4), 300.0, np.float32)
    mask = np.tri(8, 8, -1, dtype=bool)  # the first query may attend to nothing
    loss = lambda q: nnp.sum(nn.dot_product_attention(q, q, q, mask=mask, chunk_size=3) ** 2)
    value, gradient = nnc.value_and_grad(loss)(q)
    np.testing.assert_allclose(float(value), 7 * 4 * 300.0**2, rtol=1e-6)
    assert np.isfinite(np.asarray(gradient)).all()


@pytest.mark.parametrize("chunk_size", [None, 5])
def test_dropout_drops_weights_and_keeps_their_mean(chunk_size: int | None) -> None:
    q, k, v = np.zeros((2000, 1, 2)), np.zeros((10, 1, 2)), np.ones((10, 1, 1)) * np.arange(10.0)[:, None, None]
    draw = lambda seed: nn.dot_product_attention(
        q, k, np.repeat(v, 2, -1), dropout_rate=0.5, dropout_key=nnc.random.key(seed), chunk_size=chunk_size
    )
    out = np.asarray(draw(0))
    np.testing.assert_allclose(out.mean(), 4.5, rtol=0.02)
    assert out.std() > 1
    np.testing.assert_array_equal(out, np.asarray(draw(0)))
    assert not np.array_equal(out, np.asarray(draw(1)))


def test_dropout_in_chunks_is_drawn_once_for_value_and_gradient() -> None:
    options = {"dropout_rate": 0.3, "dropout_key": nnc.random.key(3), "chunk_size": 4}
    nnc.testing.check_grads(lambda q, k, v: nn.dot_product_attention(q, k, v, **options), (Q, K, V), order=1)


def test_no_keys_and_no_queries_are_ordinary() -> None:
    np.testing.assert_array_equal(np.asarray(nn.dot_product_attention(Q, K[:, :0], V[:, :0])), np.zeros(Q.shape))
    assert nn.dot_product_attention(Q[:, :0], K, V).shape == (2, 0, 4, 5)
    assert nn.dot_product_attention(Q[:0], K[:0], V[:0], chunk_size=4).shape == (0, 7, 4, 5)


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="chunk_size=0 is not positive"):
        nn.dot_product_attention(Q, K, V, chunk_size=0)
    with pytest.raises(ShapeError, match=r"mask has shape \(7, 10\), which does not broadcast"):
        nn.dot_product_attention(Q, K, V, mask=np.ones((7, 10), bool))
    with pytest.raises(ShapeError, match=r"key_value_seq_lengths must be integers of shape \(2,\)"):
        nn.dot_product_attention(Q, K, V, key_value_seq_lengths=3)
    with pytest.raises(OutOfBoundsError, match="key_value_seq_lengths hold 99, sequences have 0 to "):
        nn.dot_product_attention(Q, K, V, key_value_seq_lengths=np.array([99, 1]))
    with pytest.raises(DTypeError, match="mask holds float64, not bools(.|\n)*are a bias"):
        nn.dot_product_attention(Q, K, V, mask=np.where(MASK, 0, -np.inf))
    with pytest.raises(ArgumentError, match="there is no key"):
        nn.dot_product_attention(Q, K, V, dropout_rate=0.1)
    with pytest.raises(ArgumentTypeError, match="Fix: write dropout_rate="):
        nn.dot_product_attention(Q, K, V, dropout_p=0.1)
