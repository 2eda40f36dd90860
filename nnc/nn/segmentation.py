"""Dice losses, for masks of images."""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.errors import ShapeError, user_error
from nnc.nn.activations import sigmoid, softmax
from nnc.nn.reduction import Reduction, check_same_shape, reduce_terms, widen
from nnc.numpy.operands import keeps_weakness, to_values
from nnc.typing import ArrayLike

__all__ = ["binary_dice_loss", "dice_loss", "multiclass_generalized_dice_loss"]


@keeps_weakness
def dice_loss(
    predictions: ArrayLike,
    targets: ArrayLike,
    *,
    class_weights: ArrayLike | None = None,
    smooth: float = 1.0,
    alpha: float = 0.5,
    beta: float = 0.5,
    apply_softmax: bool = True,
    reduction: Reduction = "mean",
    ignore_background: bool = False,
    axis: int | tuple[int, ...] | None = None,
) -> Array:
    """Returns 1 - Dice's overlap of each example, or Tversky's with other weights of mistakes (Milletari, Navab and Ahmadi,
    "V-Net", 2016; Salehi, Erdogmus and Gholipour, "Tversky loss function for image segmentation", 2017).

    1 - (Σ p · y + smooth) / (Σ p · y + alpha · Σ p · (1 - y) + beta · Σ (1 - p) · y + smooth),  sums over space

    Args:
        predictions: (batch, *space, classes), logits, or probabilities without apply_softmax; (batch, *space) of one class.
        targets: an array of the same shape, with values from 0 to 1.
        class_weights: (classes,), a factor for each class.
        smooth: added above and below, for empty masks.
        alpha: weight of false positives.
        beta: weight of false negatives.
        apply_softmax: turn logits to probabilities, by the sigmoid of one class.
        reduction: "mean" or "sum" over the classes, or "none".
        ignore_background: leave out class 0, where there are more.
        axis: axes of space; None: all but the first and the last.

    Returns:
        (batch,), or (batch, classes) without reduction.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> dice_loss(np.full((1, 4, 1), 100.0), np.ones((1, 4, 1)))  # all found
        Array([0.], dtype=float64)
    """
    where = "dice_loss"
    (x, y), dtype = widen(where, predictions, targets)
    if x.ndim == y.ndim - 1:
        x = nnp.expand_dims(x, -1)
    if y.ndim == x.ndim - 1:
        y = nnp.expand_dims(y, -1)
    check_same_shape(where, predictions=x, targets=y)
    if apply_softmax:
        x = sigmoid(x) if x.shape[-1] == 1 else softmax(x, axis=-1)
    space = tuple(range(1, x.ndim - 1)) if axis is None else axis
    both, found, wanted = (nnp.sum(terms, axis=space) for terms in (x * y, x, y))
    terms = 1 - (both + smooth) / (both + alpha * (found - both) + beta * (wanted - both) + smooth)
    if class_weights is not None:
        _, factors = to_values(where, predictions=x, class_weights=class_weights)
        if factors.shape != terms.shape[-1:]:
            problem = f"class_weights have shape {factors.shape} for {terms.shape[-1]} classes."
            raise user_error(ShapeError, where, problem, fix="give one weight for each class.")
        terms = terms * factors
    if ignore_background and x.shape[-1] > 1:
        terms = terms[..., 1:]
    if reduction == "mean":
        return nnp.astype(nnp.mean(terms, axis=-1), dtype)
    if reduction == "sum":
        return nnp.astype(nnp.sum(terms, axis=-1), dtype)
    return reduce_terms(where, terms, reduction, dtype)  # raises where there is no such reduction


@keeps_weakness
def multiclass_generalized_dice_loss(
    predictions: ArrayLike,
    targets: ArrayLike,
    *,
    smooth: float = 1.0,
    apply_softmax: bool = True,
    ignore_background: bool = False,
) -> Array:
    """Returns the mean of `dice_loss` with classes weighted by one over the square of their size (Sudre et al., "Generalised Dice
    overlap as a deep learning loss function for highly unbalanced segmentations", 2017).

    Args:
        predictions: (batch, *space, classes), logits, or probabilities without apply_softmax.
        targets: an array of the same shape, with values from 0 to 1.
        smooth: added above and below, for empty masks.
        apply_softmax: turn logits to probabilities.
        ignore_background: leave out class 0.

    Returns:
        one value.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> multiclass_generalized_dice_loss(np.zeros((1, 4, 2)), np.ones((1, 4, 2)))
        Array(0.25, dtype=float64)
    """
    where = "multiclass_generalized_dice_loss"
    (x, y), _ = widen(where, predictions, targets)
    check_same_shape(where, predictions=x, targets=y)
    sizes = nnp.sum(y, axis=tuple(range(y.ndim - 1)))
    weights = 1 / (nnp.square(sizes) + 1e-7)
    weights = weights / nnp.sum(weights) * weights.size
    options: dict[str, Any] = {"smooth": smooth, "apply_softmax": apply_softmax, "ignore_background": ignore_background}
    return nnp.mean(dice_loss(predictions, targets, class_weights=weights, reduction="none", **options))


@keeps_weakness
def binary_dice_loss(
    predictions: ArrayLike, targets: ArrayLike, *, smooth: float = 1.0, apply_sigmoid: bool = True
) -> Array:
    """Returns `dice_loss` of a single class.

    Args:
        predictions: (batch, *space) or (batch, *space, 1), logits, or probabilities without apply_sigmoid.
        targets: an array of the same shape, with values from 0 to 1.
        smooth: added above and below, for empty masks.
        apply_sigmoid: turn logits to probabilities.

    Returns:
        (batch,), dtype of the predictions.

    Raises:
        ShapeError: the shapes differ.

    Example:
        >>> binary_dice_loss(np.zeros((1, 4)), np.ones((1, 4)))
        Array([0.25], dtype=float64)
    """
    x, y = to_values("binary_dice_loss", predictions=predictions, targets=targets)
    if x.ndim == y.ndim and x.ndim and x.shape[-1] != 1:
        x, y = nnp.expand_dims(x, -1), nnp.expand_dims(y, -1)
    return dice_loss(x, y, smooth=smooth, apply_softmax=apply_sigmoid)
