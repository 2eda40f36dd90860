"""Losses. Those over classes give one value for each example; reduce them as the training asks, with `.mean()`."""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc import dtypes
from nnc.commands import elementwise as ew
from nnc.commands.promote import broadcast, promote
from nnc.commands.rules import Value
from nnc.errors import ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.activations import log_softmax
from nnc.spelling import spelled


@spelled
def softmax_cross_entropy(logits: Any, labels: Any, axis: int = -1) -> Value:
    """Returns -sum over classes of label · log(softmax(logits)), one value for each example.

    Args:     logits: (..., classes). labels: integers (...), the index of the true class; or floats (..., classes), the
              probability of each class. axis: the classes.
    Returns:  (...), the dtype of the logits.
    Raises:   ShapeError: the labels do not fit the logits. IndexError: an integer label is no class.
    Example:
        >>> softmax_cross_entropy(np.zeros((2, 4), np.float32), np.array([1, 3])).shape
        (2,)
    """
    scores, labels = nnp.asarray(logits), nnp.asarray(labels)
    axis = axis % max(1, scores.ndim)
    log_probabilities = log_softmax(scores, axis=axis)
    if dtypes.is_integer(labels.dtype):
        expected = tuple(n for i, n in enumerate(scores.shape) if i != axis)
        if labels.shape != expected:
            raise _mismatch(scores, labels, f"integer labels must have shape {expected}")
        picked = nnp.take_along_axis(log_probabilities, nnp.expand_dims(labels, axis), axis=axis)
        return -nnp.squeeze(picked, axis=axis)
    if labels.shape != scores.shape:
        raise _mismatch(scores, labels, "class probabilities must have the shape of the logits")
    terms = nnp.where(labels == 0, 0, labels * nnp.where(labels == 0, 0, log_probabilities))
    return -nnp.sum(terms, axis=axis)


def _mismatch(logits: Value, labels: Value, rule: str) -> ShapeError:
    return user_error(
        ShapeError, "softmax_cross_entropy", f"{rule}, they have shape {labels.shape}.",
        operands={"logits": spec_of(logits), "labels": spec_of(labels)},
        fix="pass the class index of each example, or nnc.nn.one_hot(labels, num_classes).",
    )  # fmt: skip


@spelled
def sigmoid_cross_entropy(logits: Any, labels: Any) -> Value:
    """Returns -label · log(sigmoid(logit)) - (1 - label) · log(1 - sigmoid(logit)), elementwise, without overflow."""
    x, y = broadcast(*promote(logits, labels, where="sigmoid_cross_entropy", to=dtypes.to_float))
    return ew.logaddexp(x, ew.full_like(nnp.asarray(x), 0)) - nnp.asarray(x) * y


def _difference(where: str, predictions: Any, targets: Any) -> Value:
    """Refuses to broadcast: (n, 1) minus (n,) is a mistake that no training survives."""
    x, y = promote(predictions, targets, where=where, to=dtypes.to_float)
    if spec_of(x).shape != spec_of(y).shape:
        raise user_error(
            ShapeError, where, f"predictions have shape {spec_of(x).shape}, targets {spec_of(y).shape}.",
            operands={"predictions": spec_of(x), "targets": spec_of(y)}, fix="give both one shape, for example with reshape.",
        )  # fmt: skip
    return nnp.asarray(x) - y


@spelled
def mse(predictions: Any, targets: Any) -> Value:
    """Returns the mean of the squared differences.

    Raises:   ShapeError: the shapes differ.
    Example:
        >>> mse(np.array([1.0, 2.0], np.float32), np.array([1.0, 4.0], np.float32))
        Array(2., dtype=float32)
    """
    return nnp.mean(nnp.square(_difference("mse", predictions, targets)))


@spelled
def mae(predictions: Any, targets: Any) -> Value:
    """Returns the mean of the absolute differences.

    Raises:   ShapeError: the shapes differ.
    """
    return nnp.mean(abs(_difference("mae", predictions, targets)))


@spelled
def huber(predictions: Any, targets: Any, delta: float = 1.0) -> Value:
    """Returns the mean of d² / 2 for differences |d| up to delta, and of delta · (|d| - delta / 2) beyond (Huber, 1964).

    Raises:   ShapeError: the shapes differ.
    """
    size = abs(_difference("huber", predictions, targets))
    return nnp.mean(nnp.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta)))
