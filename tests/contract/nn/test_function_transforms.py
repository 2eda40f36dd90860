"""Every function of nnc.nn under every transform: compiled, mapped, differentiated twice, and in 16-bit floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
from nnc import nn

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def distinct(*shape: int) -> Any:
    return RNG.permutation(int(np.prod(shape))).reshape(shape) * 0.1 + 0.05


X, Y, LABELS, SIGNS = normal(3, 4), normal(3, 4), np.array([0, 3, 1]), np.array([1.0, -1.0, 1.0])
MASK = np.tri(3, 4, dtype=bool)
BOXES = np.array([[0, 0.2, 0.3, 2.7, 3.4], [0, -1.0, 1.1, 9.0, 2.2]])
Q, K = normal(5, 4, 2), normal(6, 2, 2)
SOFT = np.exp(X) / np.exp(X).sum(-1, keepdims=True)

ROWS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "prelu": (nn.prelu, (X, normal(4))),
    "glu": (nn.glu, (X,)),
    "softmax": (lambda x: nn.softmax(x, where=MASK), (X,)),
    "log_softmax": (nn.log_softmax, (X,)),
    "embedding": (lambda t: nn.embedding(np.array([[1, 0], [1, 1]]), t), (X,)),
    "dropout": (lambda x: nn.dropout(nnc.random.key(0), x, 0.5), (X,)),
    "conv": (lambda x, w: nn.conv(x, w, stride=2, padding="SAME"), (normal(1, 2, 5, 4), normal(2, 2, 3, 2))),
    "conv_transpose": (lambda x, w: nn.conv_transpose(x, w, stride=2, output_padding=1), (normal(1, 2, 3), normal(2, 2, 3))),
    "max_pool": (lambda x: nn.max_pool(x, 2, stride=1, dilation=2, padding=1, ceil_mode=True), (distinct(1, 2, 5, 4),)),
    "avg_pool": (lambda x: nn.avg_pool(x, 3, stride=2, padding=1, ceil_mode=True), (normal(1, 2, 6, 5),)),
    "lp_pool": (lambda x: nn.lp_pool(x, 2, 3), (normal(1, 2, 4),)),
    "adaptive_avg_pool": (lambda x: nn.adaptive_avg_pool(x, (2, 3)), (normal(1, 2, 5, 4),)),
    "adaptive_max_pool": (lambda x: nn.adaptive_max_pool(x, (2, 3)), (distinct(1, 2, 5, 4),)),
    "global_avg_pool": (nn.global_avg_pool, (normal(1, 2, 5, 4),)),
    "global_max_pool": (nn.global_max_pool, (distinct(1, 2, 5, 4),)),
    "upsample nearest": (lambda x: nn.upsample(x, 1.5), (normal(1, 2, 4),)),
    "upsample linear": (lambda x: nn.upsample(x, 2, method="linear"), (normal(1, 2, 3, 2),)),
    "upsample cubic": (lambda x: nn.upsample(x, size=(5, 3), method="cubic", align_corners=True), (normal(1, 2, 3, 2),)),
    "pixel_shuffle": (lambda x: nn.pixel_shuffle(x, 2), (normal(1, 4, 2, 3),)),
    "pixel_unshuffle": (lambda x: nn.pixel_unshuffle(x, 2), (normal(1, 1, 2, 4),)),
    "layer_norm": (nn.layer_norm, (X, normal(4), normal(4))),
    "group_norm": (lambda x: nn.group_norm(x, 2), (normal(2, 4, 3),)),
    "instance_norm": (nn.instance_norm, (normal(2, 3, 4),)),
    "rms_norm": (nn.rms_norm, (X, normal(4))),
    "batch_norm": (lambda x: nn.batch_norm(x, np.zeros(4, x.dtype), np.ones(4, x.dtype))[0], (X,)),
    "local_response_norm": (lambda x: nn.local_response_norm(x, 3, alpha=0.5), (X,)),
    "attention": (lambda q, k: nn.dot_product_attention(q, k, k, is_causal=True), (Q, K)),
    "attention in chunks": (lambda q, k: nn.dot_product_attention(q, k, k, chunk_size=4), (Q, K)),
    "roi_align": (lambda x: nn.roi_align(x, BOXES.astype(x.dtype), 2, sampling_ratio=2), (normal(1, 2, 5, 4),)),
    "box_iou": (nn.box_iou, (np.array([[0.1, 0.0, 2.0, 2.0]]), np.array([[1.0, 0.2, 3.0, 2.1], [5, 5, 6, 6.0]]))),
    "mse": (nn.mse, (X, Y)),
    "mae": (nn.mae, (X, Y)),
    "huber": (nn.huber, (X, Y)),
    "smooth_l1": (lambda x, y: nn.smooth_l1(x, y, 0.5), (X, Y)),
    "log_cosh": (nn.log_cosh, (X, Y)),
    "softmax_cross_entropy": (lambda x: nn.softmax_cross_entropy(x, LABELS, label_smoothing=0.1, reduction="mean"), (X,)),
    "softmax_cross_entropy, soft": (nn.softmax_cross_entropy, (X, SOFT)),
    "sigmoid_cross_entropy": (nn.sigmoid_cross_entropy, (X, SOFT)),
    "nll": (lambda x: nn.nll(x, LABELS), (X,)),
    "kl_div": (nn.kl_div, (X, SOFT)),
    "kl_div of logarithms": (lambda x, y: nn.kl_div(x, y, log_targets=True), (X, Y)),
    "hinge": (lambda x: nn.hinge(x, SIGNS.astype(x.dtype)), (X[:, 0],)),
    "squared_hinge": (lambda x: nn.squared_hinge(x, SIGNS.astype(x.dtype)), (X[:, 0],)),
    "hinge_embedding": (lambda x: nn.hinge_embedding(x, SIGNS.astype(x.dtype)), (X[:, 0],)),
    "margin_ranking": (lambda x, y: nn.margin_ranking(x, y, SIGNS.astype(x.dtype)), (X[:, 0], Y[:, 0])),
    "cosine_similarity": (nn.cosine_similarity, (X, Y)),
    "cosine_distance": (nn.cosine_distance, (X, Y)),
    "cosine_embedding": (lambda x, y: nn.cosine_embedding(x, y, SIGNS.astype(x.dtype)), (X, Y)),
    "triplet_margin": (nn.triplet_margin, (X, Y, normal(3, 4))),
    "poisson_nll": (lambda x, y: nn.poisson_nll(x, y, full=True), (X, np.abs(Y) * 4)),
    "gaussian_nll": (nn.gaussian_nll, (X, Y, np.abs(normal(3, 4)) + 0.5)),
    "ctc": (lambda x: nn.ctc(x, np.array([1, 1]), np.array(5), np.array(2)), (normal(6, 3),)),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_functions_have_two_derivatives(name: str) -> None:
    function, arrays = ROWS[name]
    nnc.testing.check_grads(function, arrays, order=2)


@pytest.mark.parametrize("name", ROWS)
def test_compiled_and_mapped_functions_equal_themselves(name: str) -> None:
    function, arrays = ROWS[name]
    value, pull = nnc.vjp(function, *arrays)
    ct = np.random.default_rng(1).normal(size=value.shape)
    both = lambda ct, *xs: (function(*xs), nnc.vjp(function, *xs)[1](ct))
    for got, want in zip(nnc.tree.leaves(nnc.compile(both)(ct, *arrays)), (value, *pull(ct)), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-9, atol=1e-12)
    twice = [np.stack([x, x[..., ::-1] if np.ndim(x) else 2 * x]) for x in (ct, *arrays)]
    rows = [both(*[x[i] for x in twice]) for i in (0, 1)]
    mapped = nnc.tree.leaves(nnc.vmap(both)(*twice))
    for got, *parts in zip(mapped, *map(nnc.tree.leaves, rows), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.stack(parts), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_floats_lose_no_more_than_their_own_accuracy(name: str, dtype: Any) -> None:
    function, arrays = ROWS[name]
    short = [x.astype(dtype) for x in arrays]
    out = function(*short)
    assert out.dtype == np.dtype(dtype)
    want = np.asarray(function(*[x.astype(np.float32) for x in short]))
    bound = 0.004 if dtype == np.float16 else 0.03
    np.testing.assert_allclose(np.asarray(out).astype(np.float32), want, rtol=bound, atol=bound)
