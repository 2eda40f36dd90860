"""Cauchy's distribution wrapped around the circle, on angles from 0 to 2π."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, Operands, Support, every
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]


def _valid(c: Array) -> Array:
    return every(c > 0, c < 1)


def _distance(y: Array, c: Array) -> Array:
    """1 + c² − 2c cos(y), where nothing cancels."""
    return el.square(1 - c) + 4 * c * el.square(el.sin(y / 2))


def _density(y: Array, c: Array) -> Array:
    return (1 - c) * (1 + c) / (2 * math.pi * _distance(y, c))


def _log_density(y: Array, c: Array) -> Array:
    return el.log1p(-el.square(c)) - math.log(2 * math.pi) - el.log(_distance(y, c))


def _tail(y: Array, c: Array) -> Array:
    """Returns the probability between 0 and the nearer of y and its mirror image 2π − y."""
    half = el.where(y < math.pi, y, 2 * math.pi - y) / 2
    return el.arctan2((1 + c) * el.sin(half), (1 - c) * el.cos(half)) / math.pi


def _cdf(y: Array, c: Array) -> Array:
    return el.where(y < math.pi, _tail(y, c), 1 - _tail(y, c))


def _sf(y: Array, c: Array) -> Array:
    return el.where(y < math.pi, 1 - _tail(y, c), _tail(y, c))


def _angle(q: Array, c: Array) -> Array:
    """Returns the angle beside 0 up to which lies the smaller of the probabilities q and 1 − q."""
    angle = math.pi * el.where(q < 0.5, q, 1 - q)
    return 2 * el.arctan2((1 - c) * el.sin(angle), (1 + c) * el.cos(angle))


def _ppf(q: Array, c: Array) -> Array:
    return el.where(q < 0.5, _angle(q, c), 2 * math.pi - _angle(q, c))


def _isf(q: Array, c: Array) -> Array:
    return el.where(q < 0.5, 2 * math.pi - _angle(q, c), _angle(q, c))


def _operands(x: ArrayLike, c: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        c: concentration, above 0 and below 1.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        np.asarray([0.5, 2.0]), 0.3
    logpdf: log((1 − c²) / (2π (1 + c² − 2c cos(y)))) − log(scale)
        [-1.35851189, -2.22462457]
    pdf: (1 − c²) / (2π (1 + c² − 2c cos(y)) scale)
        [0.257043, 0.108108]
    cdf: arctan((1 + c) / (1 − c) tan(y / 2)) / π
        [0.14094782, 0.39404208]
    sf: 1 − arctan((1 + c) / (1 − c) tan(y / 2)) / π
        [0.85905218, 0.60595792]
    ppf: loc + 2 scale arctan((1 − c) / (1 + c) tan(π q))
        [0.98788274, 3.14159265]
    isf: `ppf` at 1 − q
        [5.29530257, 3.14159265]
    """
    return x, c, loc, scale


def _quantile_operands(q: ArrayLike, c: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    return q, c, loc, scale


_FAMILY = Continuous("wrapcauchy", _operands, support=Support(lower=0, upper=2 * math.pi, inside=1), valid=_valid)


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", _density)
cdf = _FAMILY.make("cdf", _cdf)
sf = _FAMILY.make("sf", _sf)
ppf = _FAMILY.make_quantile("ppf", _quantile_operands, _ppf)
isf = _FAMILY.make_quantile("isf", _quantile_operands, _isf)
