"""Relatives of the cross entropy: focal and poly losses, rankings, contrasts, and labels that are smoothed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.errors import ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.activations import log_sigmoid, log_softmax, softmax, softplus
from nnc.nn.classification import kl_div, softmax_cross_entropy
from nnc.nn.reduction import check_same_shape, widen
from nnc.numpy.operands import keeps_weakness, to_values
from nnc.typing import ArrayLike

__all__ = [
    "generalized_kl_divergence",
    "ntxent",
    "poly_loss_cross_entropy",
    "ranking_softmax_loss",
    "sigmoid_focal_loss",
    "smooth_labels",
]

Axes = int | tuple[int, ...] | None


@keeps_weakness
def sigmoid_focal_loss(
    logits: ArrayLike, labels: ArrayLike, *, alpha: float | None = None, gamma: float = 2.0
) -> Array:
    """Returns `sigmoid_cross_entropy` times (1 - probability of the label)^gamma, elementwise (Lin et al., "Focal loss for dense
    object detection", 2017).

    Args:
        logits: any shape.
        labels: an array of the same shape, with values from 0 to 1.
        alpha: weight of label 1; of label 0 it is 1 - alpha. None: both 1.
        gamma: how much less examples count that are right already; 0: not less.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> sigmoid_focal_loss(np.array([0.0]), np.array([1.0]))  # log(2) / 4
        Array([0.1732868], dtype=float64)
    """
    where = "sigmoid_focal_loss"
    (x, y), dtype = widen(where, logits, labels)
    check_same_shape(where, logits=x, labels=y)
    terms = y * softplus(-x) + (1 - y) * softplus(x)
    both = [_log(share) + log_sigmoid(side) for share, side in ((1 - y, x), (y, -x))]
    terms = terms * nnp.exp(gamma * nnp.logaddexp(*both))
    if alpha is not None:
        terms = terms * (alpha * y + (1 - alpha) * (1 - y))
    return nnp.astype(terms, dtype)


def _log(x: Array) -> Array:
    """log(x), and -inf without a gradient at 0."""
    none = x <= 0
    return nnp.where(none, -math.inf, nnp.log(nnp.where(none, 1, x)))


@keeps_weakness
def poly_loss_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, *, epsilon: float = 2.0, axis: int = -1, where: ArrayLike | None = None
) -> Array:
    """Returns `softmax_cross_entropy` plus epsilon · Σ label · (1 - probability), one value for each example (Leng et al.,
    "PolyLoss", 2022).

    Args:
        logits: (..., classes).
        labels: probabilities of the same shape.
        epsilon: factor of the first term of the cross entropy's expansion that is added.
        axis: the classes.
        where: a mask; classes where it is False do not exist.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> poly_loss_cross_entropy(np.zeros(2), np.array([1.0, 0.0]))  # log(2) + 2 / 2
        Array(1.69314718, dtype=float64)
    """
    name = "poly_loss_cross_entropy"
    (x, y), dtype = widen(name, logits, labels)
    check_same_shape(name, logits=x, labels=y)
    missed = y * (1 - softmax(x, axis=axis, where=where))
    if where is not None:
        missed = nnp.where(nnp.asarray(where), missed, 0)
    cross = softmax_cross_entropy(x, y, axis, where)
    return nnp.astype(cross + epsilon * nnp.sum(missed, axis=axis), dtype)


@keeps_weakness
def generalized_kl_divergence(
    log_predictions: ArrayLike, targets: ArrayLike, axis: int = -1, where: ArrayLike | None = None
) -> Array:
    """Returns `kl_div` plus Σ (prediction - target), of measures that need not add up to 1; at least 0 and convex.

    Args:
        log_predictions: (..., classes), logarithms.
        targets: an array of the same shape, with values of at least 0.
        axis: the classes.
        where: a mask; classes where it is False take no part.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> generalized_kl_divergence(np.log(np.array([0.5, 1.0])), np.array([0.5, 0.0]))
        Array(1., dtype=float64)
    """
    (log_q, p), dtype = widen("generalized_kl_divergence", log_predictions, targets)
    gaps = nnp.exp(log_q) - p
    if where is not None:
        gaps = nnp.where(nnp.asarray(where), gaps, 0)
    return nnp.astype(kl_div(log_q, p, axis, where) + nnp.sum(gaps, axis=axis), dtype)


@keeps_weakness
def smooth_labels(labels: ArrayLike, alpha: float, *, axis: Axes = -1, where: ArrayLike | None = None) -> Array:
    """Returns (1 - alpha) · label + alpha / classes (Szegedy et al., "Rethinking the Inception architecture", 2016).

    Args:
        labels: (..., classes), probabilities.
        alpha: share of the probability that is spread over all classes.
        axis: the classes.
        where: a mask; classes where it is False are not counted.

    Example:
        >>> smooth_labels(np.array([1.0, 0.0]), 0.5)
        Array([0.75, 0.25], dtype=float64)
    """
    (y,), dtype = widen("smooth_labels", labels)
    present = nnp.ones_like(y) if where is None else nnp.astype(nnp.asarray(where), y.dtype)
    return nnp.astype((1 - alpha) * y + alpha / nnp.sum(present, axis=axis, keepdims=True), dtype)


@keeps_weakness
def ranking_softmax_loss(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    where: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    reduce_fn: Callable[[Any], Any] | None = nnp.mean,
) -> Array:
    """Returns -Σ over a list of label · log(softmax(logits)), the mean over lists (Cao et al., "Learning to rank: from pairwise to
    listwise approach", 2007).

    Args:
        logits: (..., items), scores of the items of each list.
        labels: the relevance of each, an array of the same shape.
        where: a mask; items where it is False are not in the list. Lists without items do not count.
        weights: factors of the labels; broadcast to the logits.
        reduce_fn: from the values of all lists to one; None keeps them, and 0 of lists without items.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> ranking_softmax_loss(np.zeros((1, 2)), np.array([[1.0, 0.0]]))
        Array(0.69314718, dtype=float64)
    """
    name = "ranking_softmax_loss"
    (x, y), dtype = widen(name, logits, labels)
    check_same_shape(name, logits=x, labels=y)
    if weights is not None:
        y = y * to_values(name, labels=y, weights=weights)[1]
    if where is None:
        lists = -nnp.sum(y * log_softmax(x, axis=-1), axis=-1)
    else:
        mask = nnp.broadcast_to(nnp.asarray(where), x.shape)
        lists = -nnp.sum(nnp.where(mask, y * nnp.where(mask, log_softmax(x, axis=-1, where=mask), 0), 0), axis=-1)
        some = nnp.any(mask, axis=-1)
        lists = nnp.where(some, lists, 0)
        if reduce_fn is nnp.mean:
            return nnp.astype(nnp.sum(lists) / nnp.maximum(nnp.sum(some), 1), dtype)
    return nnp.astype(lists if reduce_fn is None else nnp.asarray(reduce_fn(lists)), dtype)


@keeps_weakness
def ntxent(embeddings: ArrayLike, labels: ArrayLike, temperature: float = 0.07) -> Array:
    """Returns the normalised temperature-scaled cross entropy of all pairs with the same label (Chen et al., "A simple framework
    for contrastive learning of visual representations", 2020).

    The mean over pairs (i, j) of one label of  -log(e(i, j) / (e(i, j) + Σ over k of other labels of e(i, k))),
    e(i, j) = exp(cosine similarity of embeddings i and j / temperature)

    Args:
        embeddings: (batch, features).
        labels: (batch,), integers; examples with the same one are positive pairs.
        temperature: small ones weigh hard negatives more.

    Returns:
        one value; nan where there is no pair.

    Raises:
        ShapeError: embeddings are no matrix, or labels do not fit them.

    Example:
        >>> ntxent(np.eye(3), np.array([0, 0, 1]), temperature=1.0)  # log(1 + 1 / 1)
        Array(0.69314718, dtype=float64)
    """
    where = "ntxent"
    (x,), dtype = widen(where, embeddings)
    names = nnp.asarray(labels)
    if x.ndim != 2 or names.shape != x.shape[:1]:
        problem = "embeddings must have shape (batch, features), labels (batch,)."
        operands = {"embeddings": spec_of(x), "labels": spec_of(names)}
        fix = "give one label for each embedding."
        raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    tiny = float(nnp.finfo(x.dtype).eps)
    unit = x / nnp.sqrt(nnp.maximum(nnp.sum(x * x, axis=1, keepdims=True), tiny))
    similarity = unit @ unit.T / temperature
    alike = nnp.expand_dims(names, 1) == nnp.expand_dims(names, 0)
    pairs = alike & ~nnp.eye(x.shape[0], dtype=dtypes.bool_)
    rest = nnp.logsumexp(nnp.where(alike, -math.inf, similarity), axis=1, keepdims=True)
    terms = nnp.logaddexp(similarity, rest) - similarity
    return nnp.astype(nnp.sum(nnp.where(pairs, terms, 0)) / nnp.sum(pairs), dtype)
