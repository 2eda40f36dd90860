"""Cauchy's distribution wrapped around the circle, on angles from 0 to 2π."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, Support, every
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
    """The probability between 0 and the nearer of y and its mirror image 2π − y."""
    half = el.where(y < math.pi, y, 2 * math.pi - y) / 2
    return el.arctan2((1 + c) * el.sin(half), (1 - c) * el.cos(half)) / math.pi


def _cdf(y: Array, c: Array) -> Array:
    return el.where(y < math.pi, _tail(y, c), 1 - _tail(y, c))


def _sf(y: Array, c: Array) -> Array:
    return el.where(y < math.pi, 1 - _tail(y, c), _tail(y, c))


def _angle(q: Array, c: Array) -> Array:
    """The angle beside 0 up to which lies the smaller of the probabilities q and 1 − q."""
    angle = math.pi * el.where(q < 0.5, q, 1 - q)
    return 2 * el.arctan2((1 - c) * el.sin(angle), (1 + c) * el.cos(angle))


def _ppf(q: Array, c: Array) -> Array:
    return el.where(q < 0.5, _angle(q, c), 2 * math.pi - _angle(q, c))


def _isf(q: Array, c: Array) -> Array:
    return el.where(q < 0.5, 2 * math.pi - _angle(q, c), _angle(q, c))


_FAMILY = Continuous("wrapcauchy", Support(lower=0, upper=2 * math.pi, inside=1), _valid)


@spelled
def logpdf(x: ArrayLike, c: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: log((1 − c²) / (2π (1 + c² − 2c cos(y)))) − log(scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        c: concentration, above 0 and below 1.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> logpdf(np.asarray([0.5, 2.0]), 0.3)
        Array([-1.35851189, -2.22462457], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, c, loc, scale)


@spelled
def pdf(x: ArrayLike, c: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: (1 − c²) / (2π (1 + c² − 2c cos(y)) scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        c: concentration, above 0 and below 1.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> pdf(np.asarray([0.5, 2.0]), 0.3)
        Array([0.257043, 0.108108], dtype=float64)
    """
    return _FAMILY.pdf(_density, x, c, loc, scale)


@spelled
def cdf(x: ArrayLike, c: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: arctan((1 + c) / (1 − c) tan(y / 2)) / π.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        c: concentration, above 0 and below 1.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> cdf(np.asarray([0.5, 2.0]), 0.3)
        Array([0.14094782, 0.39404208], dtype=float64)
    """
    return _FAMILY.cdf(_cdf, x, c, loc, scale)


@spelled
def sf(x: ArrayLike, c: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: 1 − arctan((1 + c) / (1 − c) tan(y / 2)) / π.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        c: concentration, above 0 and below 1.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> sf(np.asarray([0.5, 2.0]), 0.3)
        Array([0.85905218, 0.60595792], dtype=float64)
    """
    return _FAMILY.sf(_sf, x, c, loc, scale)


@spelled
def ppf(q: ArrayLike, c: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`.

    loc + 2 scale arctan((1 − c) / (1 + c) tan(π q)).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        c: concentration, above 0 and below 1.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]), 0.3)
        Array([0.98788274, 3.14159265], dtype=float64)
    """
    return _FAMILY.ppf(_ppf, q, c, loc, scale)


@spelled
def isf(q: ArrayLike, c: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: `ppf` at 1 − q.

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        c: concentration, above 0 and below 1.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]), 0.3)
        Array([5.29530257, 3.14159265], dtype=float64)
    """
    return _FAMILY.isf(_isf, q, c, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
