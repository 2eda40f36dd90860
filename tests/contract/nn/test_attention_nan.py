"""NaN in queries, keys and values of attention: it reaches the pairs that a mask allows, and no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn

HEADS, KEYS = 2, 24
PLACE = 13  # of the key that is not finite


def masks(queries: int) -> dict[str, tuple[dict[str, Any], Any]]:
    """Settings of attention, and which queries (…, heads, T, S) attend to which keys."""
    rng = np.random.default_rng(0)
    query, key = np.arange(queries)[:, None], np.arange(KEYS)
    some, of_heads = rng.random((queries, KEYS)) < 0.5, rng.random((1, HEADS, queries, KEYS)) < 0.5
    some[:, 0] = of_heads[..., 0] = True
    some[1], of_heads[..., 2, :] = False, False
    full = np.ones((1, HEADS, queries, KEYS), bool)
    return {
        "mask": ({"mask": some}, full & some),
        "mask of heads": ({"mask": of_heads}, of_heads),
        "causal": ({"is_causal": True}, full & (key <= query)),
        "causal, mask": ({"is_causal": True, "mask": some}, full & some & (key <= query)),
        "window": ({"local_window_size": (3, 2)}, full & (query - key <= 3) & (key - query <= 2)),
        "lengths": ({"key_value_seq_lengths": [PLACE]}, full & (key < PLACE)),
        "bias, mask": ({"mask": some, "bias": rng.normal(size=(queries, KEYS))}, full & some),
    }


EXACT = {"float32": 1e-5, "bfloat16": 0.03, "float64": 1e-12}
PATHS: dict[str, dict[str, Any]] = {
    "kernel": {},
    "chunks": {"dropout_rate": 0.3, "dropout_key": nnc.random.key(0), "chunk_size": 7},
    "one chunk": {"dropout_rate": 0.3, "dropout_key": nnc.random.key(0)},
}


def _nan(x: Any) -> Any:
    return np.isnan(np.asarray(x, np.float64)).any(axis=(0, -1)).T  # (heads, tokens)


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", masks(3))
@pytest.mark.parametrize("queries", [3, 40])
def test_nan_reaches_the_queries_that_attend_to_it_alone(queries: int, name: str, path: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    if path != "kernel" and dtype != "float32":
        pytest.skip("chunks are computed in the dtype of sums")
    settings, allowed = masks(queries)[name]
    options, near = {**settings, **PATHS[path]}, dict.fromkeys(("rtol", "atol"), EXACT[dtype])
    if "bias" in options:
        options["bias"] = nnp.asarray(options["bias"], dtype)
    clean = [nnp.asarray(rng.normal(size=(1, n, HEADS, 8)), dtype) for n in (queries, KEYS, KEYS)]
    keep = nnp.asarray(~allowed[0, :, :, PLACE].T[None, :, :, None])  # the queries that do not attend to the key

    def loss(q: Any, k: Any, v: Any) -> Any:
        return nnp.sum(nnp.where(keep, nn.dot_product_attention(q, k, v, **options).astype("float32") ** 2, 0))

    attend = nnc.compile(lambda q, k, v: nn.dot_product_attention(q, k, v, **options))
    slopes = nnc.compile(nnc.value_and_grad(loss, argnums=(0, 1, 2)))
    want, (value, others) = attend(*clean), slopes(*clean)
    for operand, bad in ((1, np.nan), (2, np.nan), (1, np.inf), (2, -np.inf)):
        spoiled = list(clean)
        spoiled[operand] = clean[operand].at[0, PLACE, :, 1].set(bad)
        got, spoils = attend(*spoiled), allowed[0, :, :, PLACE]
        if path == "kernel" and np.isnan(bad):
            np.testing.assert_array_equal(_nan(got), spoils)
        np.testing.assert_array_equal(_nan(got) & ~spoils, False)
        np.testing.assert_allclose(*(np.where(keep, np.asarray(x, "f8"), 0) for x in (got, want)), **near)
        result, found = slopes(*spoiled)
        np.testing.assert_allclose(float(result), float(value), **near)
        of_q = np.where(keep, np.asarray(found[0], "f8"), 0), np.where(keep, np.asarray(others[0], "f8"), 0)
        np.testing.assert_allclose(*of_q, **near)
        reached = (allowed[0] & spoils[..., None]).any(-2)  # keys of queries that the NaN spoils
        for x, y in zip(found[1:], others[1:], strict=True):
            x, y = (np.where(reached.T[None, :, :, None], 0, np.asarray(z, "f8")) for z in (x, y))
            np.testing.assert_allclose(x, y, **near)


@pytest.mark.parametrize("queries", [3, 40])
@pytest.mark.parametrize("dtype", EXACT)
def test_nan_of_a_query_that_masks_keys_reaches_no_gradient_of_theirs(dtype: str, queries: int) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (nnp.asarray(rng.normal(size=(1, n, HEADS, 8)), dtype) for n in (queries, KEYS, KEYS))
    mask = np.ones((queries, KEYS), bool)
    mask[1, 5:] = False

    def loss(q: Any, k: Any, v: Any) -> Any:
        return nnp.sum(nn.dot_product_attention(q, k, v, mask=mask)[:, np.arange(queries) != 1].astype("float32") ** 2)

    wants = nnc.grad(loss, argnums=(0, 1, 2))(q, k, v)
    found = nnc.grad(loss, argnums=(0, 1, 2))(q.at[0, 1, 0].set(np.nan), k, v)
    for x, want in zip(found[1:], wants[1:], strict=True):
        got, expected = np.asarray(x, "f8")[:, 5:], np.asarray(want, "f8")[:, 5:]
        np.testing.assert_allclose(got, expected, rtol=EXACT[dtype], atol=EXACT[dtype])


@pytest.mark.parametrize("queries", [3, 40])
def test_second_derivatives_beside_nan_that_is_masked_are_those_without_it(queries: int) -> None:
    rng = np.random.default_rng(1)
    q, k, v = (nnp.asarray(rng.normal(size=(1, n, HEADS, 8))) for n in (queries, KEYS, KEYS))
    causal = {"is_causal": True}
    keep = np.arange(queries)[:, None, None] < 2

    def loss(q: Any, k: Any, v: Any) -> Any:
        return nnp.sum(nnp.where(keep, nn.dot_product_attention(q, k, v, **causal) ** 2, 0))  # type: ignore[arg-type]

    def moved(q: Any, k: Any, v: Any) -> Any:
        return nnc.jvp(nnc.grad(loss), (q, k, v), (nnp.ones_like(q), nnp.zeros_like(k), nnp.ones_like(v)))[1]

    for operand in (1, 2):
        spoiled = [q, k, v]
        spoiled[operand] = spoiled[operand].at[0, 2, 0].set(np.nan)
        np.testing.assert_allclose(np.asarray(moved(*spoiled))[:, :2], np.asarray(moved(q, k, v))[:, :2], rtol=1e-12)


@pytest.mark.parametrize("tokens", [3, 40])
def test_a_causal_layer_does_not_see_later_tokens_that_are_nan(tokens: int) -> None:
    layer = nn.MultiHeadAttention(8, 2, key=nnc.random.key(0))
    x = np.random.default_rng(0).normal(size=(2, tokens, 8)).astype(np.float32)
    bad = x.copy()
    bad[0, 2] = np.nan

    got, want = (np.asarray(layer(y, is_causal=True)) for y in (bad, x))
    np.testing.assert_allclose(got[0, :2], want[0, :2], rtol=1e-6)
    assert np.isnan(got[0, 2:]).all() and np.isfinite(got[1]).all()
