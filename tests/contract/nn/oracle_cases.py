"""Losses and normalisations with the formula that stands for each in PyTorch: the rows of `oracles.npz`.

`python -m tests.contract.nn.make_oracles` evaluates the formulas and stores the numbers; `test_oracles.py` needs no PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import nnc.numpy as nnp
from nnc import nn

STORED = Path(__file__).with_name("oracles.npz")
_RNG = np.random.default_rng(20)


class Row(NamedTuple):
    """One setting. `theirs` is an expression in torch, F and the operands a, b, c …; floating-point operands have gradients."""

    name: str
    ours: Callable[..., Any]
    theirs: str
    operands: tuple[np.ndarray[Any, Any], ...]


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return _RNG.normal(size=shape)


def _reduced(name: str, ours: Callable[..., Any], theirs: str, *operands: np.ndarray[Any, Any]) -> list[Row]:
    """A loss with each reduction; `theirs` says `how` for it."""
    return [
        Row(f"{name}, {how}", lambda *xs, how=how: ours(*xs, reduction=how), theirs.replace("how", repr(how)), operands)
        for how in ("none", "sum", "mean")
    ]


X, Y, Z = _normal(4, 5) * 2, _normal(4, 5), _normal(4, 5)
SIGNS, ROW_SIGNS = np.where(_normal(4, 5) > 0, 1, -1), np.array([1, -1, 1, -1])
COUNTS, RATES = np.arange(20).reshape(4, 5) % 6, np.abs(_normal(4, 5)) + 0.1
LOGITS, CLASSES = _normal(6, 5) * 3, _RNG.integers(0, 5, 6)
SOFT = np.abs(_normal(6, 5))
SOFT /= SOFT.sum(-1, keepdims=True)
ONE_HOT = np.eye(5)[CLASSES]
WEIGHTS, IGNORED = np.abs(_normal(5)), np.where(np.arange(6) % 3 == 2, -100, CLASSES)
DENSE, DENSE_CLASSES = _normal(2, 5, 3), _RNG.integers(0, 5, (2, 3))
LOG_Q = np.log(np.flip(SOFT, 0))


def _spelled(x: Any, y: Any, **options: Any) -> Any:
    return nn.ctc(x, y, np.array([7, 6, 3]), np.array([3, 0, 1]), **options)


_CTC = "F.ctc_loss(F.log_softmax(a, -1).transpose(0, 1), b, torch.tensor([7, 6, 3]), torch.tensor([3, 0, 1])"

LOSSES = [
    *_reduced("mse", nn.mse, "F.mse_loss(a, b, reduction=how)", X, Y),
    *_reduced("mae", nn.mae, "F.l1_loss(a, b, reduction=how)", X, Y),
    *_reduced("huber", nn.huber, "F.huber_loss(a, b, reduction=how)", X, Y),
    *_reduced("huber delta", lambda x, y, **o: nn.huber(x, y, 0.75, **o), "F.huber_loss(a, b, how, 0.75)", X, Y),
    *_reduced(
        "smooth_l1",
        lambda x, y, **o: nn.smooth_l1(x, y, 0.5, **o),
        "F.smooth_l1_loss(a, b, reduction=how, beta=0.5)",
        X,
        Y,
    ),
    *_reduced(
        "smooth_l1 beta 0",
        lambda x, y, **o: nn.smooth_l1(x, y, 0, **o),
        "F.smooth_l1_loss(a, b, reduction=how, beta=0.0)",
        X,
        Y,
    ),
    Row("log_cosh", nn.log_cosh, "torch.log(torch.cosh(a - b))", (X, Y)),
    Row("hinge", nn.hinge, "torch.relu(1 - a * b)", (X, SIGNS)),
    Row("squared_hinge", nn.squared_hinge, "torch.relu(1 - a * b) ** 2", (X, SIGNS)),
    *_reduced(
        "hinge_embedding",
        lambda x, s, **o: nn.hinge_embedding(x, s, 0.75, **o),
        "F.hinge_embedding_loss(a, b, 0.75, reduction=how)",
        X,
        SIGNS,
    ),
    *_reduced(
        "margin_ranking",
        lambda x, y, s, **o: nn.margin_ranking(x, y, s, 0.25, **o),
        "F.margin_ranking_loss(a, b, c, 0.25, reduction=how)",
        X,
        Y,
        SIGNS,
    ),
    *_reduced("poisson_nll", nn.poisson_nll, "F.poisson_nll_loss(a, b, reduction=how)", X, COUNTS),
    *_reduced(
        "poisson_nll full",
        lambda x, n, **o: nn.poisson_nll(x, n, full=True, **o),
        "F.poisson_nll_loss(a, b, full=True, reduction=how)",
        X,
        COUNTS,
    ),
    *_reduced(
        "poisson_nll rate",
        lambda x, n, **o: nn.poisson_nll(x, n, log_input=False, eps=0.01, **o),
        "F.poisson_nll_loss(a, b, log_input=False, eps=0.01, reduction=how)",
        RATES,
        COUNTS,
    ),
    *_reduced("gaussian_nll", nn.gaussian_nll, "F.gaussian_nll_loss(a, b, c, reduction=how)", X, Y, RATES),
    *_reduced(
        "gaussian_nll full",
        lambda x, y, v, **o: nn.gaussian_nll(x, y, v, full=True, **o),
        "F.gaussian_nll_loss(a, b, c, True, reduction=how)",
        X,
        Y,
        RATES,
    ),
    *_reduced(
        "gaussian_nll eps",
        lambda x, y, **o: nn.gaussian_nll(x, y, RATES.astype(x.dtype), eps=0.5, **o),
        "F.gaussian_nll_loss(a, b, RATES, eps=0.5, reduction=how)",
        X,
        Y,
    ),
    Row("cosine_similarity", nn.cosine_similarity, "F.cosine_similarity(a, b, -1)", (X, Y)),
    Row("cosine_distance axis", lambda x, y: nn.cosine_distance(x, y, 0), "1 - F.cosine_similarity(a, b, 0)", (X, Y)),
    *_reduced(
        "cosine_embedding",
        lambda x, y, s, **o: nn.cosine_embedding(x, y, s, -0.5, **o),
        "F.cosine_embedding_loss(a, b, c, -0.5, reduction=how)",
        X,
        Y,
        ROW_SIGNS,
    ),
    *_reduced("triplet_margin", nn.triplet_margin, "F.triplet_margin_loss(a, b, c, reduction=how)", X, Y, Z),
    *_reduced(
        "triplet_margin p",
        lambda x, y, z, **o: nn.triplet_margin(x, y, z, norm_degree=1, margin=9.0, swap=True, **o),
        "F.triplet_margin_loss(a, b, c, 9.0, 1.0, swap=True, reduction=how)",
        X,
        Y,
        Z,
    ),
    *_reduced(
        "triplet_margin p 3",
        lambda x, y, z, **o: nn.triplet_margin(x, y, z, norm_degree=3, eps=0.01, **o),
        "F.triplet_margin_loss(a, b, c, p=3.0, eps=0.01, reduction=how)",
        X,
        Y,
        Z,
    ),
    *_reduced(
        "softmax_cross_entropy", nn.softmax_cross_entropy, "F.cross_entropy(a, b, reduction=how)", LOGITS, CLASSES
    ),
    *_reduced(
        "softmax_cross_entropy axis",
        lambda x, y, **o: nn.softmax_cross_entropy(x, y, 1, **o),
        "F.cross_entropy(a, b, reduction=how)",
        DENSE,
        DENSE_CLASSES,
    ),
    *_reduced(
        "softmax_cross_entropy weights",
        lambda x, y, **o: nn.softmax_cross_entropy(x, y, weights=WEIGHTS, **o),
        "F.cross_entropy(a, b, WEIGHTS, reduction=how)",
        LOGITS,
        CLASSES,
    ),
    *_reduced(
        "softmax_cross_entropy ignore",
        lambda x, y, **o: nn.softmax_cross_entropy(x, y, ignore_index=-100, **o),
        "F.cross_entropy(a, b, reduction=how)",
        LOGITS,
        IGNORED,
    ),
    *_reduced(
        "softmax_cross_entropy smooth",
        lambda x, y, **o: nn.softmax_cross_entropy(x, y, label_smoothing=0.25, weights=WEIGHTS, ignore_index=-100, **o),
        "F.cross_entropy(a, b, WEIGHTS, label_smoothing=0.25, reduction=how)",
        LOGITS,
        IGNORED,
    ),
    *_reduced(
        "softmax_cross_entropy soft",
        lambda x, y, **o: nn.softmax_cross_entropy(x, y, **o),
        "F.cross_entropy(a, b, reduction=how)",
        LOGITS,
        SOFT,
    ),
    *_reduced(
        "softmax_cross_entropy soft smooth",
        lambda x, y, **o: nn.softmax_cross_entropy(x, y, label_smoothing=0.25, weights=WEIGHTS, **o),
        "F.cross_entropy(a, b, WEIGHTS, label_smoothing=0.25, reduction=how)",
        LOGITS,
        SOFT,
    ),
    *_reduced("nll", nn.nll, "F.nll_loss(a, b, reduction=how)", LOG_Q, CLASSES),
    *_reduced(
        "nll weights",
        lambda x, y, **o: nn.nll(x, y, 1, weights=WEIGHTS, ignore_index=3, **o),
        "F.nll_loss(a, b, WEIGHTS, ignore_index=3, reduction=how)",
        DENSE,
        DENSE_CLASSES,
    ),
    *_reduced(
        "sigmoid_cross_entropy",
        nn.sigmoid_cross_entropy,
        "F.binary_cross_entropy_with_logits(a, b, reduction=how)",
        LOGITS * 9,
        SOFT,
    ),
    *_reduced(
        "sigmoid_cross_entropy weights",
        lambda x, y, **o: nn.sigmoid_cross_entropy(x, y, weights=WEIGHTS, positive_weights=WEIGHTS[::-1], **o),
        "F.binary_cross_entropy_with_logits(a, b, WEIGHTS, pos_weight=WEIGHTS.flip(0), reduction=how)",
        LOGITS,
        SOFT,
    ),
    Row("kl_div", nn.kl_div, "F.kl_div(a, b, reduction='none').sum(-1)", (LOG_Q, SOFT)),
    Row(
        "kl_div mean",
        lambda x, y: nn.kl_div(x, y, reduction="mean"),
        "F.kl_div(a, b, reduction='batchmean')",
        (LOG_Q, SOFT),
    ),
    Row(
        "kl_div one-hot",
        nn.kl_div,
        "F.kl_div(a, b.double(), reduction='none').sum(-1)",
        (LOG_Q, ONE_HOT.astype(np.int64)),
    ),
    Row(
        "kl_div logarithms",
        lambda x, y: nn.kl_div(x, y, log_targets=True, reduction="sum"),
        "F.kl_div(a, b, reduction='sum', log_target=True)",
        (LOG_Q, np.log(SOFT)),
    ),
    Row(
        "ctc",
        _spelled,
        _CTC + ", reduction='none')",
        (_normal(3, 7, 5) * 2, np.array([[1, 2, 2], [4, 4, 1], [3, 1, 1]])),
    ),
    Row(
        "ctc mean",
        lambda x, y: _spelled(x, y, blank=4, reduction="mean"),
        _CTC + ", 4, reduction='mean')",
        (_normal(3, 7, 5) * 2, np.array([[1, 2, 2], [0, 3, 1], [2, 1, 1]])),
    ),
]

IMAGE, SCALE, SHIFT = _normal(3, 6, 2, 3) * 2 + 1, _normal(6), _normal(6)
MEAN, VARIANCE = _normal(6), np.abs(_normal(6)) + 0.5
ROWS, ROW_SCALE, ROW_SHIFT = _normal(2, 4, 5) * 3 - 1, _normal(5), _normal(5)


def _statistics(dtype: Any) -> tuple[np.ndarray[Any, Any], ...]:
    return MEAN.astype(dtype), VARIANCE.astype(dtype)


_STATISTICS = (
    "torch.stack([0.7 * MEAN + 0.3 * a.mean((0, 2, 3)), 0.7 * VARIANCE + 0.3 * a.var((0, 2, 3), unbiased=True)]).detach()"
    " + 0 * a.sum()"
)

NORMS = [
    Row("layer_norm", nn.layer_norm, "F.layer_norm(a, (5,))", (ROWS,)),
    Row("layer_norm affine", nn.layer_norm, "F.layer_norm(a, (5,), b, c)", (ROWS, ROW_SCALE, ROW_SHIFT)),
    Row(
        "layer_norm axes",
        lambda x: nn.layer_norm(x, axis=(-2, -1), eps=0.1),
        "F.layer_norm(a, (4, 5), eps=0.1)",
        (ROWS,),
    ),
    Row("rms_norm", lambda x, s: nn.rms_norm(x, s, eps=0.1), "F.rms_norm(a, (5,), b, 0.1)", (ROWS, ROW_SCALE)),
    Row("rms_norm plain", nn.rms_norm, "F.rms_norm(a, (5,), eps=1e-6)", (ROWS,)),
    *(
        Row(
            f"group_norm {n}",
            lambda x, s, b, n=n: nn.group_norm(x, n, s, b, eps=0.01),
            f"F.group_norm(a, {n}, b, c, 0.01)",
            (IMAGE, SCALE, SHIFT),
        )
        for n in (1, 2, 6)
    ),
    Row("instance_norm", nn.instance_norm, "F.instance_norm(a)", (IMAGE,)),
    Row(
        "instance_norm affine",
        lambda x, s, b: nn.instance_norm(x, s, b, eps=0.1),
        "F.instance_norm(a, None, None, b, c, eps=0.1)",
        (IMAGE, SCALE, SHIFT),
    ),
    Row(
        "batch_norm",
        lambda x, s, b: nn.batch_norm(x, MEAN, VARIANCE, s, b)[0],
        "F.batch_norm(a, None, None, b, c, True)",
        (IMAGE, SCALE, SHIFT),
    ),
    Row(
        "batch_norm running",
        lambda x: nn.batch_norm(x, MEAN, VARIANCE, deterministic=True, eps=0.1)[0],
        "F.batch_norm(a, MEAN, VARIANCE, eps=0.1)",
        (IMAGE,),
    ),
    Row(
        "batch_norm statistics",
        lambda x: nnp.stack(nn.batch_norm(x, *_statistics(x.dtype), momentum=0.7)[1]),
        _STATISTICS,
        (IMAGE,),
    ),
    *(
        Row(
            f"local_response_norm {n}",
            lambda x, n=n: nn.local_response_norm(x, n, alpha=0.3, beta=0.6, k=2.0),
            f"F.local_response_norm(a, {n}, 0.3, 0.6, 2.0)",
            (IMAGE,),
        )
        for n in (1, 2, 3, 4, 5)
    ),
]
CASES = [*LOSSES, *NORMS]


def cotangent(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The weights of the results of which a gradient is the sum."""
    return np.asarray(np.cos(np.arange(np.prod(shape, dtype=int)) + 1.0).reshape(shape))


def joined(value: Any, gradients: Any) -> np.ndarray[Any, Any]:
    """Returns the stored numbers of a row: the value and the gradients of all floating-point operands, one after the other."""
    return np.concatenate([np.asarray(x, np.float64).ravel() for x in (value, *gradients)])
