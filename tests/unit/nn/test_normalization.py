"""Normalisation and attention against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import nnc
from nnc import nn
from nnc.errors import ShapeError

RNG = np.random.default_rng(0)


def standardized(x: Any, axes: Any, eps: float = 1e-5) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize(("axis", "shape"), [(-1, (4,)), ((1, 2), (3, 4)), ((2, 1), (3, 4)), (0, (2,))])
def test_layer_norm_standardizes_then_scales(axis: Any, shape: tuple[int, ...]) -> None:
    x, scale, bias = RNG.normal(size=(2, 3, 4)) * 3 + 1, RNG.normal(size=shape), RNG.normal(size=shape)
    spread = (2, 1, 1) if axis == 0 else shape
    want = standardized(x, axis) * scale.reshape(spread) + bias.reshape(spread)
    np.testing.assert_allclose(np.asarray(nn.layer_norm(x, scale, bias, axis=axis)), want, rtol=1e-10, atol=1e-12)
    nnc.testing.check_grads(lambda x, s, b: nn.layer_norm(x, s, b, axis=axis), (x, scale, bias), order=1)


def test_layer_norm_of_16_bit_floats_is_computed_in_float32() -> None:
    x = (RNG.normal(size=(2, 4096)) * 100).astype(np.float16)  # squares overflow float16
    out = nn.layer_norm(x)
    assert out.dtype == np.float16
    np.testing.assert_allclose(np.asarray(out), standardized(x.astype(np.float64), -1), atol=5e-3)


def test_layer_norm_refuses_a_scale_of_another_shape() -> None:
    with pytest.raises(ShapeError, match=r"scale has shape \(3,\), the axes \(1,\) of x have shape \(4,\)"):
        nn.layer_norm(np.ones((2, 4)), np.ones(3))


def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    x, scale = RNG.normal(size=(2, 4)), RNG.normal(size=4)
    want = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale
    np.testing.assert_allclose(np.asarray(nn.rms_norm(x, scale)), want, rtol=1e-10)


def test_group_norm_normalizes_each_group() -> None:
    x, scale, bias = RNG.normal(size=(2, 6, 3, 3)), RNG.normal(size=6), RNG.normal(size=6)
    groups = standardized(x.reshape(2, 2, 27), -1).reshape(x.shape)
    want = groups * scale[:, None, None] + bias[:, None, None]
    np.testing.assert_allclose(np.asarray(nn.group_norm(x, 2, scale, bias)), want, rtol=1e-9, atol=1e-12)
    last = nn.group_norm(np.moveaxis(x, 1, -1), 2, scale, bias, axis=-1)
    np.testing.assert_allclose(np.moveaxis(np.asarray(last), -1, 1), want, rtol=1e-9, atol=1e-12)
    with pytest.raises(ShapeError, match="groups=4 does not divide the 6 channels"):
        nn.group_norm(x, 4)


@pytest.mark.parametrize("axis", [1, -1])
def test_batch_norm_uses_the_batch_and_updates_the_running_statistics(axis: int) -> None:
    x = RNG.normal(size=(8, 3, 4)) * 2 + 1
    n = x.shape[axis]
    others = tuple(i for i in range(3) if i != axis % 3)
    mean, variance, scale, bias = np.zeros(n), np.ones(n), RNG.normal(size=n), RNG.normal(size=n)
    spread = (n, 1) if axis == 1 else (n,)
    out, (new_mean, new_variance) = nn.batch_norm(x, mean, variance, scale, bias, axis=axis, momentum=0.75)
    want = standardized(x, others) * scale.reshape(spread) + bias.reshape(spread)
    np.testing.assert_allclose(np.asarray(out), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.asarray(new_mean), 0.25 * x.mean(others))
    np.testing.assert_allclose(np.asarray(new_variance), 0.75 + 0.25 * x.var(others, ddof=1))


def test_batch_norm_can_use_the_running_statistics() -> None:
    x, mean, variance = RNG.normal(size=(8, 3)), RNG.normal(size=3), RNG.random(3) + 1
    out, (new_mean, new_variance) = nn.batch_norm(x, mean, variance, deterministic=True)
    np.testing.assert_allclose(np.asarray(out), (x - mean) / np.sqrt(variance + 1e-5))
    np.testing.assert_array_equal(np.asarray(new_mean), mean)
    np.testing.assert_array_equal(np.asarray(new_variance), variance)


def test_no_gradient_flows_through_running_statistics() -> None:
    x = RNG.normal(size=(8, 3))
    gradient = nnc.grad(lambda x: sum(s.sum() for s in nn.batch_norm(x, np.zeros(3), np.ones(3))[1]))(x)
    np.testing.assert_array_equal(np.asarray(gradient), np.zeros((8, 3)))
    nnc.testing.check_grads(lambda x: nn.batch_norm(x, np.zeros(3), np.ones(3))[0], (x,), order=1)


def attention(q: Any, k: Any, v: Any, allowed: Any = None, bias: Any = 0) -> Any:
    scores = np.einsum("bthf,bshf->bhts", q, k) / np.sqrt(q.shape[-1]) + bias
    scores = scores if allowed is None else np.where(allowed, scores, -1e30)
    return np.einsum("bhts,bshf->bthf", special.softmax(scores, -1), v)


def test_attention_weighs_values_by_keys() -> None:
    q, k, v = RNG.normal(size=(2, 3, 4, 5)), RNG.normal(size=(2, 6, 4, 5)), RNG.normal(size=(2, 6, 4, 5))
    np.testing.assert_allclose(np.asarray(nn.dot_product_attention(q, k, v)), attention(q, k, v))
    bias, mask = RNG.normal(size=(4, 3, 6)), RNG.random((2, 1, 3, 6)) > 0.3
    out = nn.dot_product_attention(q, k, v, bias, mask)
    np.testing.assert_allclose(np.asarray(out), attention(q, k, v, mask, bias))
    causal = nn.dot_product_attention(q, k, v, mask=mask, is_causal=True)
    some = (mask & np.tri(3, 6, dtype=bool)).any(-1)[:, 0]
    want = attention(q, k, v, mask & np.tri(3, 6, dtype=bool)) * some[:, :, None, None]
    np.testing.assert_allclose(np.asarray(causal), want, atol=1e-12)


def test_queries_may_share_keys_and_values() -> None:
    q, k, v = RNG.normal(size=(3, 4, 5)), RNG.normal(size=(6, 2, 5)), RNG.normal(size=(6, 2, 5))
    full = attention(q[None], k.repeat(2, 1)[None], v.repeat(2, 1)[None])[0]
    np.testing.assert_allclose(np.asarray(nn.dot_product_attention(q, k, v)), full)


def test_a_query_that_may_attend_to_nothing_yields_zero_with_zero_gradient() -> None:
    q = RNG.normal(size=(1, 2, 1, 3))
    mask = np.array([[True, True], [False, False]])
    value, gradient = nnc.value_and_grad(lambda q: (nn.dot_product_attention(q, q, q, mask=mask)[0, 1] ** 2).sum())(q)
    assert float(value) == 0
    np.testing.assert_array_equal(np.asarray(gradient), np.zeros(q.shape))


def test_attention_refuses_operands_that_do_not_fit() -> None:
    q, k = np.ones((2, 3, 4, 5)), np.ones((2, 6, 3, 5))
    with pytest.raises(ShapeError, match="query, key and value do not fit together"):
        nn.dot_product_attention(q, k, k)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_channels_before_and_behind_count_also_where_the_number_of_neighbours_is_even(size: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 3))
    want = np.empty_like(x)
    for c in range(5):
        first = c - size // 2  # one more before than behind, as in PyTorch
        near = x[:, max(0, first) : max(0, first + size)]
        want[:, c] = x[:, c] / (1.5 + 0.3 / size * (near**2).sum(1)) ** 0.6
    got = nn.local_response_norm(x, size, alpha=0.3, beta=0.6, k=1.5)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)
