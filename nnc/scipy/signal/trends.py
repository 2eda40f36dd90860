"""Removal of trends from signals, which nnc.scipy.signal shows."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.array.array import Array, as_value
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.errors.errors import check_choice
from nnc.numpy.contractions import matmul
from nnc.numpy.joining import concatenate
from nnc.numpy.manipulation import moveaxis
from nnc.numpy.moments import mean
from nnc.numpy.operands import to_axis, to_value
from nnc.typing import ArrayLike


@spelled
def detrend(data: ArrayLike, axis: int = -1, type: str = "linear", bp: Any = 0) -> Array:
    """Returns a signal without the line, or without the mean, that fits it best.

    Args:
        data: samples; integers become float32.
        axis: the axis of time.
        type: "linear" removes a line, fitted by least squares; "constant" the mean.
        bp: where lines break: the signal is cut before these samples, and each part has a line of its own.

    Raises:
        ArgumentError: there is no such type, or a break lies outside of the signal.

    Example:
        >>> detrend(np.asarray([1.0, 2.0, 3.0, 5.0])).round(6)
        Array([ 0.2, -0.1, -0.4,  0.3], dtype=float64)
    """
    check_choice("detrend", "type", type, ("linear", "l", "constant", "c"))
    (x,) = promote(data, where="detrend", to=dtypes.to_float)
    x = to_value(x, "detrend", "data")
    at = to_axis("detrend", axis, x.spec.ndim)
    if type in ("constant", "c"):
        return x - mean(x, axis=at, keepdims=True)
    n = x.spec.shape[at]
    breaks = np.unique(np.concatenate([[0], np.ravel(bp), [n]]).astype(int))
    if breaks[0] < 0 or breaks[-1] > n:
        problem = f"bp is {bp!r}, the signal has {n} samples."
        raise user_error(ArgumentError, "detrend", problem, fix=f"use numbers from 0 to {n}.")
    rows = moveaxis(x, at, -1)
    parts = [_without_line(rows[..., a:b]) for a, b in zip(breaks[:-1].tolist(), breaks[1:].tolist(), strict=True)]
    return moveaxis(concatenate(parts, axis=-1), -1, at) if parts else x


def _without_line(x: Array) -> Array:
    """Returns the part of rows that is orthogonal to lines."""
    n = x.spec.shape[-1]
    lines = np.stack([np.ones(n), np.arange(n) - (n - 1) / 2], axis=1)  # orthogonal to each other
    sizes = np.linalg.norm(lines, axis=0)
    basis = as_value((lines / np.where(sizes > 0, sizes, 1)).astype(x.spec.dtype))
    return x - matmul(matmul(x, basis), basis.T)
