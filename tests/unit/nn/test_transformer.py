"""Attention layers and transformers: masks, grouped heads, caches, norms before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from nnc import nn
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError
from nnc.testing import check_grads

KEY = nnc.random.key(0)
X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
LAYER = nn.MultiHeadAttention(8, 2, key=KEY)


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)


def test_attention_is_the_function_between_projections() -> None:
    layer = nn.MultiHeadAttention(8, 4, key=KEY, kv_heads=2)
    q, k, v = (proj(X).reshape(2, 6, -1, 2) for proj in (layer.q_proj, layer.k_proj, layer.v_proj))
    assert (q.shape[2], k.shape[2]) == (4, 2)
    want = layer.out_proj(nn.dot_product_attention(q, k, v, is_causal=True).reshape(2, 6, 8))
    close(layer(X, is_causal=True), want)
    close(layer(X[0], is_causal=True), want[0])


@pytest.mark.parametrize("kv_heads", [4, 1])
def test_steps_with_a_cache_agree_with_the_whole_sequence(kv_heads: int) -> None:
    layer = nn.MultiHeadAttention(8, 4, key=KEY, kv_heads=kv_heads)
    want, cache = layer(X, is_causal=True), layer.make_cache((2,), 8)
    first, cache = layer(X[:, :3], cache=cache)
    outputs, step = [first], nnc.compile(lambda x, cache: layer(x, cache=cache), max_traces=1)
    for i in range(3, 6):
        out, cache = step(X[:, i : i + 1], cache)
        outputs.append(out)
    assert int(cache.length) == 6
    close(np.concatenate([np.asarray(out) for out in outputs], 1), want)


@pytest.mark.parametrize("norm_first", [False, True])
def test_stacks_decode_step_by_step(norm_first: bool) -> None:
    keys = nnc.random.split(KEY, 2)
    memory = np.random.default_rng(1).normal(size=(2, 4, 8)).astype(np.float32)
    encoder = nn.TransformerEncoder(
        [nn.TransformerEncoderLayer(8, 2, key=k, norm_first=norm_first) for k in keys], nn.LayerNorm(8)
    )
    decoder = nn.TransformerDecoder([nn.TransformerDecoderLayer(8, 2, key=k, norm_first=norm_first) for k in keys])
    for model, others in ((encoder, ()), (decoder, (memory,))):
        want = model(X, *others, is_causal=True)  # type: ignore[operator]
        caches = [layer.self_attn.make_cache((2,), 6) for layer in model.layers]  # type: ignore[attr-defined]
        outputs = []
        for i in range(6):
            out, caches = model(X[:, i : i + 1], *others, caches=caches)  # type: ignore[operator]
            outputs.append(np.asarray(out))
        close(np.concatenate(outputs, 1), want)


def test_masked_keys_change_nothing() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, key=KEY)
    mask = np.arange(6) < 4
    changed = X.copy()
    changed[:, 4:] = 9
    close(layer(changed, mask=mask)[:, :4], layer(X, mask=mask)[:, :4])
    assert not np.allclose(np.asarray(layer(changed))[:, :4], np.asarray(layer(X))[:, :4])


def test_dropout_draws_anew_at_each_place_and_stops_in_inference() -> None:
    layer = nn.TransformerDecoderLayer(8, 2, key=KEY, dropout_rate=0.5)
    with pytest.raises(ArgumentError, match="there is no key"):
        layer(X, X)
    one, again, other = (np.asarray(layer(X, X, key=nnc.random.key(i))) for i in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    plain = nn.inference_mode(layer)
    np.testing.assert_array_equal(np.asarray(plain(X, X)), np.asarray(plain(X, X, key=KEY)))


def test_derivatives_agree_with_finite_differences() -> None:
    layer = nn.TransformerDecoderLayer(4, 2, 6, key=KEY, activation=nn.silu, norm_first=True, dtype="float64")
    x, memory = (np.random.default_rng(i).normal(size=(3, 4)) for i in (0, 1))
    check_grads(lambda layer, x, memory: (layer(x, memory) ** 2).sum(), (layer, x, memory), order=1)


def test_16_bit_weights_give_16_bit_outputs() -> None:
    layer = nn.cast(nn.TransformerEncoderLayer(8, 2, key=KEY), "bfloat16")
    out = layer(nnc.asarray(X).astype("bfloat16"))
    assert out.dtype.name == "bfloat16"
    np.testing.assert_allclose(
        np.asarray(out, np.float32), np.asarray(nn.TransformerEncoderLayer(8, 2, key=KEY)(X)), atol=0.1
    )


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.MultiHeadAttention(8, 3, key=KEY), ArgumentError, "features=8, num_heads=3"),
        (lambda: nn.MultiHeadAttention(8, 4, key=KEY, kv_heads=3), ArgumentError, "kv_heads=3"),
        (lambda: nn.TransformerEncoderLayer(8, nhead=2, key=KEY), ArgumentTypeError, "write num_heads="),  # type: ignore[call-arg]
        (lambda: LAYER(X[..., :5]), ShapeError, "Linear: axis -1 of the input must be 8"),
        (
            lambda: LAYER(X, cache=LAYER.make_cache((2,), 4)),
            ShapeError, "6 steps do not fit the cache",
        ),
        (
            lambda: LAYER(X, mask=True, cache=LAYER.make_cache((2,), 6)),
            ArgumentError, "mask and cache are both given",
        ),
        (
            lambda: nn.TransformerEncoder([nn.TransformerEncoderLayer(8, 2, key=KEY)])(X, caches=[]),
            ArgumentError, "0 caches for 1 layers",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
