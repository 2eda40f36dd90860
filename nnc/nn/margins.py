"""Losses of scores by margins, by sparse probabilities and by the greatest score, one value for each example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, ShapeError, user_error
from nnc.errors.errors import shorten
from nnc.graph import spec_of
from nnc.nn.ranges import read_classes
from nnc.nn.reduction import check_same_shape, widen, widen_same
from nnc.numpy.operands import keeps_weakness
from nnc.trace.core.vectorize import vmap
from nnc.typing import ArrayLike

__all__ = [
    "make_fenchel_young_loss",
    "multiclass_hinge_loss",
    "multiclass_perceptron_loss",
    "multiclass_sparsemax_loss",
    "perceptron_loss",
    "sparsemax_loss",
]


@keeps_weakness
def perceptron_loss(predictor_outputs: ArrayLike, targets: ArrayLike) -> Array:
    """Returns max(0, -target · output), elementwise (Rosenblatt, "The perceptron", 1958).

    Args:
        predictor_outputs: scores.
        targets: -1 or 1, of the same shape.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> perceptron_loss(np.array([0.5, 2.0]), np.array([-1.0, 1.0]))
        Array([0.5, 0. ], dtype=float64)
    """
    (x, y), dtype = widen_same("perceptron_loss", ("predictor_outputs", "targets"), predictor_outputs, targets)
    return nnp.astype(nnp.maximum(-x * y, 0), dtype)


def _scores_and_classes(where: str, scores: Any, labels: Any) -> tuple[Array, Array, dtypes.DType]:
    """Scores (..., classes) and an index (..., 1) of each example's class."""
    (x,), dtype = widen(where, scores)
    (index,) = promote(labels, where=where)
    index = nnp.asarray(index)
    if not dtypes.is_integer(index.dtype) or x.ndim == 0 or index.shape != x.shape[:-1]:
        problem = f"labels must be integers of shape {x.shape[:-1]}, one for each row of the scores."
        fix = "pass the class index of each example."
        raise user_error(ShapeError, where, problem, operands={"scores": spec_of(x), "labels": spec_of(index)}, fix=fix)
    return x, nnp.expand_dims(read_classes(where, index, x.shape[-1]), -1), dtype


def _picked(x: Array, index: Array) -> Array:
    return nnp.squeeze(nnp.take_along_axis(x, index, axis=-1), axis=-1)


@keeps_weakness
def multiclass_hinge_loss(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Returns max over classes j of (score of j + [j is not the label]) - score of the label (Crammer and Singer, "On the
    algorithmic implementation of multiclass kernel-based vector machines", 2001).

    Args:
        scores: (..., classes).
        labels: integers (...).

    Returns:
        (...), dtype of the scores.

    Raises:
        ShapeError: the labels do not fit the scores.
        IndexError: a label is no class.

    Example:
        >>> multiclass_hinge_loss(np.array([[3.0, 1.0, 2.5]]), np.array([0]))
        Array([0.5], dtype=float64)
    """
    x, index, dtype = _scores_and_classes("multiclass_hinge_loss", scores, labels)
    others = nnp.arange(x.shape[-1]) != index
    return nnp.astype(nnp.max(x + nnp.astype(others, x.dtype), axis=-1) - _picked(x, index), dtype)


@keeps_weakness
def multiclass_perceptron_loss(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Returns the greatest score minus the score of the label (Collins, "Discriminative training methods for hidden Markov
    models", 2002).

    Args:
        scores: (..., classes).
        labels: integers (...).

    Returns:
        (...), dtype of the scores.

    Raises:
        ShapeError: the labels do not fit the scores.
        IndexError: a label is no class.

    Example:
        >>> multiclass_perceptron_loss(np.array([[3.0, 1.0, 2.5]]), np.array([2]))
        Array([0.5], dtype=float64)
    """
    x, index, dtype = _scores_and_classes("multiclass_perceptron_loss", scores, labels)
    return nnp.astype(nnp.max(x, axis=-1) - _picked(x, index), dtype)


@keeps_weakness
def sparsemax_loss(logits: ArrayLike, labels: ArrayLike) -> Array:
    """Returns the binary sparsemax loss, elementwise (Blondel, Martins and Niculae, "Learning with Fenchel-Young losses", 2020).

    s(z) with z = -logit where the label is 1, else the logit;    s(z) = 0 below -1, z above 1, (z + 1)² / 4 between

    Args:
        logits: any shape.
        labels: 0 or 1, of the same shape.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> sparsemax_loss(np.array([2.0, 0.0, 2.0]), np.array([1, 1, 0]))
        Array([0.  , 0.25, 2.  ], dtype=float64)
    """
    (x,), dtype = widen("sparsemax_loss", logits)
    y = nnp.asarray(labels)
    check_same_shape("sparsemax_loss", logits=x, labels=y)
    z = nnp.where(y != 0, -x, x)
    middle = nnp.square(nnp.clip(z, -1, 1) + 1) / 4
    return nnp.astype(nnp.where(z >= 1, z, middle), dtype)


def _sparsemax(x: Array) -> Array:
    """Returns the nearest probabilities to scores (..., classes) (Martins and Astudillo, "From softmax to sparsemax", 2016)."""
    descending = nnp.flip(nnp.sort(x, axis=-1), axis=-1)
    places = nnp.astype(nnp.arange(1, x.shape[-1] + 1), x.dtype)
    thresholds = (nnp.cumsum(descending, axis=-1) - 1) / places
    last = nnp.sum(descending > thresholds, axis=-1, keepdims=True) - 1
    return nnp.maximum(x - nnp.take_along_axis(thresholds, last, axis=-1), 0)


@keeps_weakness
def multiclass_sparsemax_loss(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Returns the sparsemax loss of each example (Martins and Astudillo, "From softmax to sparsemax", 2016); its gradient is the
    nearest probabilities to the scores minus the label's.

    Σ p · (score - score of the label) + (1 - Σ p²) / 2,    p = sparsemax(scores)

    Args:
        scores: (..., classes).
        labels: integers (...).

    Returns:
        (...), dtype of the scores.

    Raises:
        ShapeError: the labels do not fit the scores.
        IndexError: a label is no class.

    Example:
        >>> multiclass_sparsemax_loss(np.array([[3.0, 1.0, 2.5]]), np.array([2]))
        Array([0.5625], dtype=float64)
    """
    x, index, dtype = _scores_and_classes("multiclass_sparsemax_loss", scores, labels)
    p = _sparsemax(x)
    gaps = x - nnp.take_along_axis(x, index, axis=-1)
    terms = nnp.where(p > 0, p * nnp.where(p > 0, gaps, 0), 0)
    return nnp.astype(nnp.sum(terms, axis=-1) + 0.5 * (1 - nnp.sum(p * p, axis=-1)), dtype)


@spelled
def make_fenchel_young_loss(max_fun: Callable[..., Any]) -> Callable[..., Array]:
    """Makes the loss max_fun(scores) - Σ target · score (Blondel, Martins and Niculae, "Learning with Fenchel-Young losses",
    2020). Its gradient is the gradient of max_fun minus the targets.

    Args:
        max_fun: a convex function from the scores (classes,) of one example to a number, such as `nnp.logsumexp`.

    Returns:
        A function of scores (..., classes) and targets of the same shape, with one value for each example; more arguments are
        handed to max_fun.

    Raises:
        ArgumentTypeError: max_fun is no function.

    Example:
        >>> loss = make_fenchel_young_loss(nnp.logsumexp)
        >>> loss(np.zeros((1, 2)), np.array([[1.0, 0.0]]))
        Array([0.69314718], dtype=float64)
    """
    if not callable(max_fun):
        problem = f"max_fun is {shorten(max_fun)}, not a function."
        fix = "pass a function of scores, such as nnc.numpy.logsumexp."
        raise user_error(ArgumentTypeError, "make_fenchel_young_loss", problem, fix=fix)

    def fenchel_young_loss(scores: ArrayLike, targets: ArrayLike, *args: Any, **kwargs: Any) -> Array:
        (x, y), dtype = widen_same("fenchel_young_loss", ("scores", "targets"), scores, targets)
        greatest: Any = lambda row: nnp.asarray(max_fun(row, *args, **kwargs))
        for _ in range(x.ndim - 1):
            greatest = vmap(greatest)
        return nnp.astype(greatest(x) - nnp.sum(x * y, axis=-1), dtype)

    return fenchel_young_loss
