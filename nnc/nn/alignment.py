"""Connectionist temporal classification (Graves et al., 2006): the forward algorithm on logarithms, as one `scan`."""

from __future__ import annotations

import math
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.errors import ArgumentError, DTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.activations import log_softmax
from nnc.nn.ranges import read_classes, read_lengths
from nnc.nn.reduction import Reduction, reduce_terms, widen
from nnc.numpy.operands import keeps_weakness
from nnc.trace.loops.control_flow import scan
from nnc.typing import ArrayLike

__all__ = ["ctc"]

IMPOSSIBLE = -1e30  # stands for log 0: finite, so that differences of it have derivatives


@keeps_weakness
def ctc(
    logits: ArrayLike,
    labels: ArrayLike,
    logit_lengths: ArrayLike | None = None,
    label_lengths: ArrayLike | None = None,
    *,
    blank: int = 0,
    reduction: Reduction = "none",
) -> Array:
    """Returns -log of the probability that the logits spell the labels, over all alignments.

    An alignment names a class or the blank at each step; equal neighbours merge, then blanks vanish.

    Args:
        logits: (..., T, classes); log_softmax is applied to them, which leaves log-probabilities as they are.
        labels: integers (..., L), without blanks.
        logit_lengths: (...), how many steps count; all by default.
        label_lengths: (...), how many labels count; all by default.
        blank: the class that stands for nothing.
        reduction: "mean", "sum" or "none"; for the mean each is divided by its number of labels, as in PyTorch.

    Returns:
        (...), or one value if reduced; inf, with gradient 0, where the steps are too few for the labels.

    Raises:
        ShapeError: the operands do not fit.
        ArgumentError: blank is no class.
        IndexError: a label is no class, or a length is known to be too long.

    Example:
        >>> ctc(np.zeros((1, 2, 3), np.float32), np.array([[1]]))  # 1 1, 0 1 and 1 0 of the 9 alignments
        Array([1.0986123], dtype=float32)
    """
    (scores,), dtype = widen("ctc", logits)
    labels = nnp.asarray(labels)
    lead = _check(scores, labels, blank)
    steps, count = scores.shape[-2], labels.shape[-1]
    times = _lengths("logit_lengths", logit_lengths, steps, lead)
    sizes = _lengths("label_lengths", label_lengths, count, lead)
    # the padding of a row of labels may be any number
    labels = nnp.where(nnp.arange(count) < nnp.expand_dims(sizes, -1), labels, blank)
    labels = read_classes("ctc", labels, scores.shape[-1])
    # the labels with blanks before, between and after: blank, l1, blank, l2, …, blank
    pairs = nnp.stack([nnp.full(labels.shape, blank, labels.dtype), labels], axis=-1)
    last_blank = nnp.full((*lead, 1), blank, labels.dtype)
    states = nnp.concatenate([nnp.reshape(pairs, (*lead, 2 * count)), last_blank], axis=-1)
    log_p = nnp.maximum(log_softmax(scores, axis=-1), IMPOSSIBLE)
    index = nnp.broadcast_to(nnp.expand_dims(states, -2), (*lead, steps, 2 * count + 1))
    rows = nnp.moveaxis(nnp.take_along_axis(log_p, index, axis=-1), -2, 0)
    # a blank may be skipped where the labels around it differ
    skips = (states[..., 2:] != blank) & (states[..., 2:] != states[..., :-2])
    skips = nnp.pad(skips, [(0, 0)] * len(lead) + [(2, 0)])
    place = nnp.arange(2 * count + 1)

    def step(alpha: Array, x: Any) -> tuple[Array, None]:
        now, row = x
        one = nnp.where(place >= 1, nnp.roll(alpha, 1, axis=-1), IMPOSSIBLE)
        two = nnp.where(skips, nnp.roll(alpha, 2, axis=-1), IMPOSSIBLE)
        following = nnp.maximum(nnp.logaddexp(nnp.logaddexp(alpha, one), two) + row, IMPOSSIBLE)
        return nnp.where(nnp.expand_dims(now < times, -1), following, alpha), None

    start = nnp.where(place == 0, 0, nnp.full((*lead, 2 * count + 1), IMPOSSIBLE, scores.dtype))
    first = nnp.where(place <= 1, nnp.broadcast_to(rows[0], start.shape), IMPOSSIBLE) if steps else start
    first = nnp.where(nnp.expand_dims(times > 0, -1), first, start)
    alpha, _ = scan(step, first, (nnp.arange(1, steps), rows[1:])) if steps > 1 else (first, None)
    end = nnp.expand_dims(2 * sizes, -1)
    at_blank = nnp.take_along_axis(alpha, end, axis=-1)
    at_label = nnp.where(end > 0, nnp.take_along_axis(alpha, nnp.maximum(end - 1, 0), axis=-1), IMPOSSIBLE)
    total = nnp.squeeze(nnp.logaddexp(at_blank, at_label), axis=-1)
    costs = nnp.where(total < IMPOSSIBLE / 2, math.inf, -total)
    return reduce_terms("ctc", costs / nnp.maximum(sizes, 1) if reduction == "mean" else costs, reduction, dtype)


def _check(scores: Array, labels: Array, blank: int) -> tuple[int, ...]:
    """Returns the sizes of the batch axes."""
    operands = {"logits": spec_of(scores), "labels": spec_of(labels)}
    if scores.ndim < 2 or labels.ndim != scores.ndim - 1 or scores.shape[:-2] != labels.shape[:-1]:
        problem = f"logits have shape {scores.shape}, labels {labels.shape}."
        fix = "pass logits (..., T, classes), batch first, and labels (..., L)."
        raise user_error(ShapeError, "ctc", problem, operands=operands, fix=fix)
    if not dtypes.is_integer(labels.dtype):
        problem = f"labels must be integers, they are {labels.dtype.name}."
        raise user_error(DTypeError, "ctc", problem, operands=operands, fix="convert them with labels.astype(int).")
    if not 0 <= blank < scores.shape[-1]:
        problem = f"blank={blank} is none of the {scores.shape[-1]} classes."
        fix = "pass the index of the class that stands for nothing."
        raise user_error(ArgumentError, "ctc", problem, operands=operands, fix=fix)
    return tuple(scores.shape[:-2])


def _lengths(name: str, lengths: Any, longest: int, lead: tuple[int, ...]) -> Array:
    if lengths is None:
        return nnp.full(lead, longest, dtypes.int64)
    return read_lengths("ctc", name, lengths, lead, longest)
