"""Laplace's distribution: two exponential ones back to back."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, mirrored
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _cdf(y: Array) -> Array:
    tail = el.exp(mirrored(y)) / 2
    return el.where(y > 0, 1 - tail, tail)


def _log_cdf(y: Array) -> Array:
    small = mirrored(y)
    return el.where(y > 0, el.log1p(-el.exp(small) / 2), small - math.log(2))


def _ppf(q: Array) -> Array:
    upper = q > 0.5
    size = el.log(2 * el.where(upper, 1 - q, q))
    return el.where(upper, -size, size)


_FAMILY = Continuous("laplace")


@spelled
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: −|y| − log(2 scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: mean distance from loc, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]))
        Array([-1.69314718, -2.69314718], dtype=float64)
    """
    return _FAMILY.logpdf(lambda y: -el.abs(y) - math.log(2), x, loc, scale)


@spelled
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: exp(−|y|) / (2 scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: mean distance from loc, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]))
        Array([0.18393972, 0.06766764], dtype=float64)
    """
    return _FAMILY.pdf(lambda y: el.exp(-el.abs(y)) / 2, x, loc, scale)


@spelled
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: mean distance from loc, above 0.

    Example:
        >>> logcdf(np.asarray([-1.0, 2.0]))
        Array([-1.69314718, -0.07006592], dtype=float64)
    """
    return _FAMILY.logcdf(_log_cdf, x, loc, scale)


@spelled
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: exp(y) / 2 for y ≤ 0, 1 − exp(−y) / 2 above.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: mean distance from loc, above 0.

    Example:
        >>> cdf(np.asarray([-1.0, 2.0]))
        Array([0.18393972, 0.93233236], dtype=float64)
    """
    return _FAMILY.cdf(_cdf, x, loc, scale)


@spelled
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: mean distance from loc, above 0.

    Example:
        >>> logsf(np.asarray([-1.0, 2.0]))
        Array([-0.20326705, -2.69314718], dtype=float64)
    """
    return _FAMILY.logsf(lambda y: _log_cdf(-y), x, loc, scale)


@spelled
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: 1 − exp(y) / 2 for y ≤ 0, exp(−y) / 2 above.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: mean distance from loc, above 0.

    Example:
        >>> sf(np.asarray([-1.0, 2.0]))
        Array([0.81606028, 0.06766764], dtype=float64)
    """
    return _FAMILY.sf(lambda y: _cdf(-y), x, loc, scale)


@spelled
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`.

    loc + scale log(2q) for q ≤ 1/2, loc − scale log(2 − 2q) above.

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: median.
        scale: mean distance from loc, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]))
        Array([-0.69314718,  0.        ], dtype=float64)
    """
    return _FAMILY.ppf(_ppf, q, loc, scale)


@spelled
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: `ppf` at 1 − q.

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: median.
        scale: mean distance from loc, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]))
        Array([0.69314718, 0.        ], dtype=float64)
    """
    return _FAMILY.isf(lambda q: -_ppf(q), q, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
