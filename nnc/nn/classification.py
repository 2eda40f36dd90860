"""Losses over classes. They give one value for each example unless a reduction is asked for."""

from __future__ import annotations

import math
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import apply
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.commands import elementwise as ew
from nnc.commands.rules import check_axis
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.activations import log_softmax, softplus
from nnc.nn.ranges import read_classes
from nnc.nn.reduction import Reduction, check_same_shape, reduce_terms, widen
from nnc.numpy.operands import keeps_weakness, to_values
from nnc.typing import ArrayLike

__all__ = ["kl_div", "nll", "sigmoid_cross_entropy", "softmax_cross_entropy"]


@specialised(2)
@keeps_weakness
def softmax_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    axis: int = -1,
    where: ArrayLike | None = None,
    *,
    label_smoothing: float = 0.0,
    weights: ArrayLike | None = None,
    ignore_index: int | None = None,
    reduction: Reduction = "none",
) -> Array:
    """Returns -sum over classes of label · log(softmax(logits)), one value for each example.

    Args:
        logits: (..., classes).
        labels: integers (...), the index of the true class; or floats (..., classes), the probability of each class.
        axis: the classes.
        where: a mask that broadcasts to the logits; classes where it is False do not exist.
        label_smoothing: this share of the probability is spread over all classes.
        weights: (classes,), a factor for each class.
        ignore_index: examples with this integer label cost 0.
        reduction: "mean", "sum" or "none"; the mean is over the examples, by the weights of their integer labels.

    Returns:
        (...), or one value if reduced; the dtype of the logits.

    Raises:
        ShapeError: the labels do not fit the logits.
        IndexError: an integer label is no class.
        ArgumentError: a setting has no such value, or does not go with probabilities.

    Example:
        >>> softmax_cross_entropy(np.zeros((2, 4), np.float32), np.array([1, 3])).shape
        (2,)
    """
    name = "softmax_cross_entropy"
    logits, labels, weights = to_values(name, logits=logits, labels=labels, weights=weights)
    (scores,), dtype = widen(name, logits)
    axis = check_axis(name, axis, scores.ndim)
    if not 0 <= label_smoothing <= 1:
        problem = f"label_smoothing={label_smoothing} is not in [0, 1]."
        raise user_error(ArgumentError, name, problem, fix="pass a share, such as 0.1.")
    factors = _class_weights(name, weights, scores, axis)
    log_p = log_softmax(scores, axis=axis, where=where)
    spread = label_smoothing * _evenly(scores, axis, where) if label_smoothing else None
    if dtypes.is_integer(labels.dtype):
        picked, weight = _picked(name, log_p, labels, axis, factors, ignore_index)
        if spread is not None:
            everywhere = _expected(log_p, spread if factors is None else spread * factors, axis)
            if ignore_index is not None:
                everywhere = nnp.where(labels == ignore_index, 0, everywhere)
            picked = (1 - label_smoothing) * picked + everywhere
        return reduce_terms(name, picked, reduction, dtype, weight)
    if labels.shape != scores.shape:
        raise _mismatch(name, scores, labels, "class probabilities must have the shape of the logits")
    if ignore_index is not None:
        problem = "ignore_index goes with integer labels, these are probabilities."
        fix = "set the rows of examples to ignore to 0."
        raise user_error(ArgumentError, name, problem, operands={"labels": spec_of(labels)}, fix=fix)
    labels = nnp.astype(labels, scores.dtype)
    labels = labels if spread is None else (1 - label_smoothing) * labels + spread
    return reduce_terms(name, _expected(log_p, labels if factors is None else labels * factors, axis), reduction, dtype)


@specialised(2)
@keeps_weakness
def nll(
    log_probabilities: ArrayLike,
    labels: ArrayLike,
    axis: int = -1,
    *,
    weights: ArrayLike | None = None,
    ignore_index: int | None = None,
    reduction: Reduction = "none",
) -> Array:
    """Returns the negative log-probability of each example's label: softmax_cross_entropy without the softmax.

    Args:
        log_probabilities: (..., classes), such as log_softmax yields.
        labels: integers (...).
        axis: the classes.
        weights: (classes,), a factor for each class.
        ignore_index: examples with this label cost 0.
        reduction: "mean", "sum" or "none"; the mean is over the examples, by the weights of their labels.

    Raises:
        ShapeError: the labels do not fit.
        IndexError: a label is no class.

    Example:
        >>> nll(np.log(np.array([[0.25, 0.75]])), np.array([1]))
        Array([0.28768207], dtype=float64)
    """
    log_probabilities, weights = to_values("nll", log_probabilities=log_probabilities, weights=weights)
    (log_p,), dtype = widen("nll", log_probabilities)
    axis = check_axis("nll", axis, log_p.ndim)
    factors = _class_weights("nll", weights, log_p, axis)
    picked, weight = _picked("nll", log_p, nnp.asarray(labels), axis, factors, ignore_index)
    return reduce_terms("nll", picked, reduction, dtype, weight)


@specialised(2)
@keeps_weakness
def sigmoid_cross_entropy(
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    positive_weights: ArrayLike | None = None,
    reduction: Reduction = "none",
) -> Array:
    """Returns -label · log(sigmoid(logit)) - (1 - label) · log(1 - sigmoid(logit)), elementwise, without overflow.

    Args:
        logits: any shape.
        labels: an array of the same shape, with values from 0 to 1, or one number for all.
        weights: factors of all terms; broadcast to the logits.
        positive_weights: factors of the term of the label itself; broadcast to the logits.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> sigmoid_cross_entropy(np.array([0.0, 1000.0]), np.array([1.0, 1.0]))
        Array([0.69314718, 0.        ], dtype=float64)
    """
    name = "sigmoid_cross_entropy"
    (x, y), dtype = widen(name, logits, labels)
    if y.ndim:
        check_same_shape(name, logits=x, labels=y)
    _, positive_weights, weights = to_values(name, logits=x, positive_weights=positive_weights, weights=weights)
    positive = y if positive_weights is None else y * positive_weights
    terms = apply(ew.safe_mul, positive, softplus(-x)) + apply(ew.safe_mul, 1 - y, softplus(x))
    return reduce_terms(name, terms if weights is None else terms * weights, reduction, dtype)


@specialised(2)
@keeps_weakness
def kl_div(
    log_predictions: ArrayLike,
    targets: ArrayLike,
    axis: int = -1,
    where: ArrayLike | None = None,
    *,
    log_targets: bool = False,
    reduction: Reduction = "none",
) -> Array:
    """Returns sum over classes of target · (log(target) - log(prediction)), one value for each example.

    Args:
        log_predictions: (..., classes), logarithms of probabilities.
        targets: probabilities of the same shape, or their logarithms with log_targets.
        axis: the classes.
        where: a mask; classes where it is False take no part.
        log_targets: the targets are logarithms, too.
        reduction: "mean", "sum" or "none".

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> kl_div(np.log(np.array([0.5, 0.5])), np.array([1.0, 0.0]))
        Array(0.69314718, dtype=float64)
    """
    (log_q, p), dtype = widen("kl_div", log_predictions, targets)
    check_same_shape("kl_div", log_predictions=log_q, targets=p)
    axis = check_axis("kl_div", axis, p.ndim)
    nothing = (p == -math.inf if log_targets else p == 0) & ~nnp.isnan(log_q)
    safe = nnp.where(nothing, 0 if log_targets else 1, p)
    log_p, weight = (safe, nnp.exp(safe)) if log_targets else (nnp.log(safe), safe)
    terms = weight * (log_p - nnp.where(nothing, 0, log_q))
    left_out = nothing if where is None else nothing | ~nnp.asarray(where)
    return reduce_terms("kl_div", nnp.sum(nnp.where(left_out, 0, terms), axis=axis), reduction, dtype)


# -- shared ------------------------------------------------------------------------------------------------------------


def _class_weights(where: str, weights: Any, scores: Array, axis: int) -> Array | None:
    """Returns the classes' factors, spread along `axis`."""
    if weights is None:
        return None
    factors: Array = weights
    if factors.shape != (scores.shape[axis],):
        problem = f"weights have shape {factors.shape}, there are {scores.shape[axis]} classes."
        fix = f"pass weights of shape ({scores.shape[axis]},)."
        raise user_error(ShapeError, where, problem, operands={"weights": spec_of(factors)}, fix=fix)
    return nnp.reshape(nnp.astype(factors, scores.dtype), (-1,) + (1,) * (scores.ndim - 1 - axis))


def _evenly(scores: Array, axis: int, mask: Any) -> Array:
    """Returns the probability of each class where all that exist are equally likely."""
    if mask is None:
        return nnp.full((1,) * scores.ndim, 1 / max(1, scores.shape[axis]), scores.dtype)
    exists = nnp.astype(nnp.broadcast_to(nnp.asarray(mask), scores.shape), scores.dtype)
    return exists / nnp.maximum(nnp.sum(exists, axis=axis, keepdims=True), 1)


def _expected(log_p: Array, probability: Array, axis: int) -> Array:
    """-sum of probability · log_p, in which a class of probability 0 costs nothing."""
    nothing = probability == 0
    return -nnp.sum(nnp.where(nothing, 0, probability * nnp.where(nothing, 0, log_p)), axis=axis)


def _picked(
    where: str, log_p: Array, labels: Array, axis: int, factors: Array | None, ignore_index: int | None
) -> tuple[Array, Array | None]:
    """-weight · log_p at each label, and the weights: None where all are 1."""
    if not dtypes.is_integer(labels.dtype):
        raise _mismatch(where, log_p, labels, "labels must be integers")
    expected = tuple(n for i, n in enumerate(log_p.shape) if i != axis)
    if labels.shape != expected:
        raise _mismatch(where, log_p, labels, f"integer labels must have shape {expected}")
    kept = None if ignore_index is None else labels != ignore_index
    classes = log_p.shape[axis]
    index = nnp.expand_dims(read_classes(where, labels if kept is None else nnp.where(kept, labels, 0), classes), axis)
    terms = -nnp.squeeze(nnp.take_along_axis(log_p, index, axis=axis), axis=axis)
    weight = None
    if factors is not None:
        weight = nnp.take(nnp.ravel(factors), nnp.squeeze(index, axis=axis), axis=0)
        terms = nnp.where(weight == 0, 0, weight * nnp.where(weight == 0, 0, terms))
    if kept is not None:
        weight = nnp.astype(kept, terms.dtype) if weight is None else nnp.where(kept, weight, 0)
        terms = nnp.where(kept, terms, 0)
    return terms, weight


def _mismatch(where: str, logits: Array, labels: Array, rule: str) -> ShapeError:
    problem = f"{rule}, they have shape {labels.shape} and dtype {labels.dtype.name}."
    operands = {"logits": spec_of(logits), "labels": spec_of(labels)}
    fix = "pass the class index of each example, or nnc.nn.one_hot(labels, num_classes)."
    return user_error(ShapeError, where, problem, operands=operands, fix=fix)
