"""Losses between predictions and targets, elementwise, and between rows by their similarity.

mse, mae, huber and smooth_l1 are means unless another reduction is asked for; the others give one value for each example.
"""

from __future__ import annotations

import math
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.commands import elementwise as ew
from nnc.nn.reduction import Reduction, reduce_terms, widen_same
from nnc.numpy.operands import keeps_weakness, to_axis
from nnc.numpy.scaling import factor_for_squares, sum_of_sizes
from nnc.typing import ArrayLike

__all__ = [
    "cosine_distance",
    "cosine_embedding",
    "cosine_similarity",
    "gaussian_nll",
    "hinge",
    "hinge_embedding",
    "huber",
    "log_cosh",
    "mae",
    "margin_ranking",
    "mse",
    "poisson_nll",
    "smooth_l1",
    "squared_hinge",
    "triplet_margin",
]

PAIR = ("predictions", "targets")


def _difference(where: str, predictions: Any, targets: Any) -> tuple[Array, dtypes.DType]:
    (x, y), dtype = widen_same(where, PAIR, predictions, targets)
    return x - y, dtype


@specialised(2)
@keeps_weakness
def mse(predictions: ArrayLike, targets: ArrayLike, *, reduction: Reduction = "mean") -> Array:
    """Returns the mean of the squared differences.

    Args:
        predictions: any shape.
        targets: an array of the same shape.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> mse(np.array([1.0, 2.0], np.float32), np.array([1.0, 4.0], np.float32))
        Array(2., dtype=float32)
    """
    d, dtype = _difference("mse", predictions, targets)
    return reduce_terms("mse", nnp.square(d), reduction, dtype)


@specialised(2)
@keeps_weakness
def mae(predictions: ArrayLike, targets: ArrayLike, *, reduction: Reduction = "mean") -> Array:
    """Returns the mean of the absolute differences.

    Args:
        predictions: any shape.
        targets: an array of the same shape.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> mae(nnp.asarray([1.0, 4.0]), nnp.asarray([0.0, 2.0]))
        Array(1.5, dtype=float32)
    """
    d, dtype = _difference("mae", predictions, targets)
    return reduce_terms("mae", abs(d), reduction, dtype)


@specialised(2)
@keeps_weakness
def huber(predictions: ArrayLike, targets: ArrayLike, delta: float = 1.0, *, reduction: Reduction = "mean") -> Array:
    """Returns the mean of d² / 2 for differences |d| up to delta, and of delta · (|d| - delta / 2) beyond (Huber, 1964).

    Args:
        predictions: any shape.
        targets: an array of the same shape.
        delta: difference from which the loss grows linearly.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> nnc.nn.huber(nnp.asarray([0.5, 3.0]), nnp.zeros(2))
        Array(1.3125, dtype=float32)
    """
    d, dtype = _difference("huber", predictions, targets)
    return reduce_terms("huber", _huber(abs(d), delta), reduction, dtype)


@specialised(2)
@keeps_weakness
def smooth_l1(predictions: ArrayLike, targets: ArrayLike, beta: float = 1.0, *, reduction: Reduction = "mean") -> Array:
    """Returns huber with delta = beta, divided by beta: |d| - beta / 2 beyond beta; with beta 0 the mean of |d|.

    Args:
        predictions: any shape.
        targets: an array of the same shape.
        beta: difference from which the loss grows linearly.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> smooth_l1(nnp.asarray([0.5, 3.0]), nnp.zeros(2))
        Array(1.3125, dtype=float32)
    """
    d, dtype = _difference("smooth_l1", predictions, targets)
    terms = abs(d) if beta == 0 else _huber(abs(d), beta) / beta
    return reduce_terms("smooth_l1", terms, reduction, dtype)


def _huber(size: Array, delta: float) -> Array:
    return nnp.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))


@specialised(2)
@keeps_weakness
def log_cosh(predictions: ArrayLike, targets: ArrayLike, *, reduction: Reduction = "none") -> Array:
    """Returns log(cosh(d)) for each difference d, without overflow.

    Args:
        predictions: any shape.
        targets: an array of the same shape.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> nnc.nn.log_cosh(nnp.asarray([0.0, 2.0]), nnp.asarray([0.0, 1.0]))
        Array([0.       , 0.4337808], dtype=float32)
    """
    d, dtype = _difference("log_cosh", predictions, targets)
    return reduce_terms("log_cosh", nnp.logaddexp(d, -d) - math.log(2), reduction, dtype)


@specialised(2)
@keeps_weakness
def hinge(predictions: ArrayLike, targets: ArrayLike, *, reduction: Reduction = "none") -> Array:
    """Returns max(0, 1 - target · prediction), elementwise.

    Args:
        predictions: scores.
        targets: -1 or 1, of the same shape.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> hinge(np.array([0.5, 2.0]), np.array([-1.0, 1.0]))
        Array([1.5, 0. ], dtype=float64)
    """
    (x, y), dtype = widen_same("hinge", PAIR, predictions, targets)
    return reduce_terms("hinge", _positive(1 - y * x), reduction, dtype)


@specialised(2)
@keeps_weakness
def squared_hinge(predictions: ArrayLike, targets: ArrayLike, *, reduction: Reduction = "none") -> Array:
    """Returns max(0, 1 - target · prediction)², elementwise; the operands as in `hinge`.

    Args:
        predictions: scores.
        targets: -1 or 1, of the same shape.
        reduction: "mean", "sum" or "none".

    Example:
        >>> squared_hinge(nnp.asarray([0.5, -1.0]), nnp.asarray([1.0, 1.0]))
        Array([0.25, 4.  ], dtype=float32)
    """
    (x, y), dtype = widen_same("squared_hinge", PAIR, predictions, targets)
    return reduce_terms("squared_hinge", nnp.square(_positive(1 - y * x)), reduction, dtype)


@specialised(2)
@keeps_weakness
def hinge_embedding(
    distances: ArrayLike, targets: ArrayLike, margin: float = 1.0, *, reduction: Reduction = "none"
) -> Array:
    """Returns the distance where the target is 1 (alike), else max(0, margin - distance).

    Args:
        distances: the distances of pairs.
        targets: -1 or 1, of the same shape.
        margin: distance from which unlike pairs cost nothing.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> hinge_embedding(nnp.asarray([0.25, 0.25]), nnp.asarray([1.0, -1.0]))
        Array([0.25, 0.75], dtype=float32)
    """
    (x, y), dtype = widen_same("hinge_embedding", ("distances", "targets"), distances, targets)
    return reduce_terms("hinge_embedding", nnp.where(y > 0, x, _positive(margin - x)), reduction, dtype)


@specialised(3)
@keeps_weakness
def margin_ranking(
    x1: ArrayLike, x2: ArrayLike, targets: ArrayLike, margin: float = 0.0, *, reduction: Reduction = "none"
) -> Array:
    """Returns max(0, margin - target · (x1 - x2)): with target 1, x1 should rank above x2; with -1, below.

    Args:
        x1: scores.
        x2: scores of the same shape.
        targets: -1 or 1, of the same shape.
        margin: how much one should rank above the other.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> margin_ranking(nnp.asarray([1.0, 1.0]), nnp.asarray([0.0, 3.0]), nnp.asarray([1.0, 1.0]))
        Array([0., 2.], dtype=float32)
    """
    (a, b, y), dtype = widen_same("margin_ranking", ("x1", "x2", "targets"), x1, x2, targets)
    return reduce_terms("margin_ranking", _positive(margin - y * (a - b)), reduction, dtype)


def _positive(x: Array) -> Array:
    """max(x, 0), whose derivative at 0 is 0; NaN stays NaN."""
    return nnp.where(x <= 0, 0, x)


@specialised(2)
@keeps_weakness
def poisson_nll(
    predictions: ArrayLike,
    targets: ArrayLike,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: Reduction = "none",
) -> Array:
    """Returns the negative log-likelihood of counts under a Poisson distribution, up to a constant.

    exp(x) - target · x with x the logarithm of the rate; rate - target · log(rate + eps) without log_input

    Args:
        predictions: the rate or its logarithm.
        targets: counts, of the same shape.
        log_input: predictions are logarithms of the rate.
        full: add Stirling's approximation of the logarithm of the target's factorial, where the target is above 1.
        eps: added to the rate, where predictions are no logarithms.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> poisson_nll(nnp.asarray([0.0]), nnp.asarray([3.0]))
        Array([1.], dtype=float32)
    """
    (x, y), dtype = widen_same("poisson_nll", PAIR, predictions, targets)
    terms = nnp.exp(x) - y * x if log_input else x - y * nnp.log(x + eps)
    if full:
        safe = nnp.where(y > 1, y, 2)
        stirling = safe * nnp.log(safe) - safe + 0.5 * nnp.log(2 * math.pi * safe)
        terms = terms + nnp.where(y > 1, stirling, 0)
    return reduce_terms("poisson_nll", terms, reduction, dtype)


@specialised(2)
@keeps_weakness
def gaussian_nll(
    predictions: ArrayLike,
    targets: ArrayLike,
    variances: ArrayLike,
    *,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "none",
) -> Array:
    """Returns the negative log-likelihood under a normal distribution: (log(variance) + d² / variance) / 2.

    Args:
        predictions: means.
        targets: an array of the same shape.
        variances: an array of the same shape.
        full: add log(2π) / 2.
        eps: the least variance.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> gaussian_nll(nnp.asarray([1.0]), nnp.asarray([3.0]), nnp.asarray([1.0]))
        Array([2.], dtype=float32)
    """
    names = (*PAIR, "variances")
    (x, y, variance), dtype = widen_same("gaussian_nll", names, predictions, targets, variances)
    bounded = nnp.where(variance < eps, eps, variance)
    terms = 0.5 * (nnp.log(bounded) + nnp.square(x - y) / bounded)
    return reduce_terms("gaussian_nll", terms + 0.5 * math.log(2 * math.pi) if full else terms, reduction, dtype)


# -- rows that are alike -----------------------------------------------------------------------------------------------


def _cosine(where: str, x1: Any, x2: Any, axis: int, eps: float) -> tuple[Array, dtypes.DType]:
    (a, b), dtype = widen_same(where, ("x1", "x2"), x1, x2)

    def direction(x: Array) -> Array:
        """x / max(length, eps); a length below eps has the derivative 0, where the root's is infinite."""
        factor = factor_for_squares(nnp.maximum(sum_of_sizes(x, (to_axis(where, axis, x.ndim),)), eps))
        x, least = x * factor, nnp.square(eps * factor)
        squares = nnp.sum(nnp.square(x), axis=axis, keepdims=True)
        return x * ew.rsqrt(nnp.where(squares <= least, least, squares))

    return nnp.sum(direction(a) * direction(b), axis=axis), dtype


@specialised(2)
@keeps_weakness
def cosine_similarity(x1: ArrayLike, x2: ArrayLike, axis: int = -1, eps: float = 1e-8) -> Array:
    """Returns x1 · x2 / (|x1| · |x2|) along `axis`; each length is at least eps.

    Args:
        x1: any shape.
        x2: an array of the same shape.
        axis: axis of the vectors.
        eps: least length that counts.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> cosine_similarity(np.array([3.0, 4.0]), np.array([4.0, 3.0]))
        Array(0.96, dtype=float64)
    """
    similarity, dtype = _cosine("cosine_similarity", x1, x2, axis, eps)
    return nnp.astype(similarity, dtype)


@specialised(2)
@keeps_weakness
def cosine_distance(x1: ArrayLike, x2: ArrayLike, axis: int = -1, eps: float = 1e-8) -> Array:
    """Returns 1 - cosine_similarity.

    Args:
        x1: any shape.
        x2: an array of the same shape.
        axis: axis of the vectors.
        eps: least length that counts.

    Example:
        >>> nnc.nn.cosine_distance(nnp.asarray([1.0, 0.0]), nnp.asarray([0.0, 2.0]))
        Array(1., dtype=float32)
    """
    similarity, dtype = _cosine("cosine_distance", x1, x2, axis, eps)
    return nnp.astype(1 - similarity, dtype)


@specialised(3)
@keeps_weakness
def cosine_embedding(
    x1: ArrayLike,
    x2: ArrayLike,
    targets: ArrayLike,
    margin: float = 0.0,
    *,
    axis: int = -1,
    reduction: Reduction = "none",
) -> Array:
    """Returns 1 - similarity where the target is 1, else max(0, similarity - margin), one value for each pair of rows.

    Args:
        x1: (..., features).
        x2: (..., features).
        targets: (...), -1 or 1.
        margin: similarity up to which unlike pairs cost nothing.
        axis: axis of the vectors.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes do not fit.

    Example:
        >>> cosine_embedding(nnp.asarray([[1.0, 0.0]]), nnp.asarray([[0.0, 1.0]]), nnp.asarray([1.0]))
        Array([1.], dtype=float32)
    """
    similarity, dtype = _cosine("cosine_embedding", x1, x2, axis, 1e-8)
    (_, y), _ = widen_same("cosine_embedding", ("pairs", "targets"), similarity, targets)
    terms = nnp.where(y > 0, 1 - similarity, _positive(similarity - margin))
    return reduce_terms("cosine_embedding", terms, reduction, dtype)


@specialised(3)
@keeps_weakness
def triplet_margin(
    anchors: ArrayLike,
    positives: ArrayLike,
    negatives: ArrayLike,
    axis: int = -1,
    norm_degree: float = 2,
    margin: float = 1.0,
    eps: float = 1e-6,
    *,
    swap: bool = False,
    reduction: Reduction = "none",
) -> Array:
    """Returns max(0, |anchor - positive| - |anchor - negative| + margin), one value for each row.

    Args:
        anchors: (..., features).
        positives: (..., features), like the anchors.
        negatives: (..., features), unlike the anchors.
        axis: axis of the vectors.
        norm_degree: 2 for the Euclidean distance.
        margin: how much farther a negative should be than a positive.
        eps: added to each difference, which keeps derivatives finite at 0.
        swap: the negative's distance is that to the anchor or that to the positive, whichever is less.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> triplet_margin(nnp.asarray([[0.0, 0.0]]), nnp.asarray([[3.0, 4.0]]), nnp.asarray([[0.0, 2.0]]), eps=0.0)
        Array([4.], dtype=float32)
    """
    names = ("anchors", "positives", "negatives")
    (a, p, n), dtype = widen_same("triplet_margin", names, anchors, positives, negatives)

    def distance(x: Array, y: Array) -> Array:
        return nnp.sum(abs(x - y + eps) ** norm_degree, axis=axis) ** (1 / norm_degree)

    far = nnp.minimum(distance(a, n), distance(p, n)) if swap else distance(a, n)
    return reduce_terms("triplet_margin", _positive(distance(a, p) - far + margin), reduction, dtype)
