"""The normal distribution."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import log_ndtr, ndtr, ndtri
from nnc.scipy.stats.evaluate import Continuous
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _log_density(y: Array) -> Array:
    return -el.square(y) / 2 - math.log(2 * math.pi) / 2


_FAMILY = Continuous("norm")


@spelled
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: −y² / 2 − log(√(2π) scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: standard deviation, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]))
        Array([-1.41893853, -2.91893853], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, loc, scale)


@spelled
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: exp(−y² / 2) / (√(2π) scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: standard deviation, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]))
        Array([0.24197072, 0.05399097], dtype=float64)
    """
    return _FAMILY.pdf(lambda y: el.exp(-el.square(y) / 2) / math.sqrt(2 * math.pi), x, loc, scale)


@spelled
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: standard deviation, above 0.

    Example:
        >>> logcdf(np.asarray([-1.0, 2.0]))
        Array([-1.84102165, -0.02301291], dtype=float64)
    """
    return _FAMILY.logcdf(log_ndtr, x, loc, scale)


@spelled
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: (1 + erf(y / √2)) / 2.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: standard deviation, above 0.

    Example:
        >>> cdf(np.asarray([-1.0, 2.0]))
        Array([0.15865525, 0.97724987], dtype=float64)
    """
    return _FAMILY.cdf(ndtr, x, loc, scale)


@spelled
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: standard deviation, above 0.

    Example:
        >>> logsf(np.asarray([-1.0, 2.0]))
        Array([-0.17275378, -3.78318433], dtype=float64)
    """
    return _FAMILY.logsf(lambda y: log_ndtr(-y), x, loc, scale)


@spelled
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: (1 − erf(y / √2)) / 2.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: standard deviation, above 0.

    Example:
        >>> sf(np.asarray([-1.0, 2.0]))
        Array([0.84134475, 0.02275013], dtype=float64)
    """
    return _FAMILY.sf(lambda y: ndtr(-y), x, loc, scale)


@spelled
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: loc + √2 scale erfinv(2q − 1).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: mean.
        scale: standard deviation, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]))
        Array([-0.67448975,  0.        ], dtype=float64)
    """
    return _FAMILY.ppf(ndtri, q, loc, scale)


@spelled
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: loc − √2 scale erfinv(2q − 1).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: mean.
        scale: standard deviation, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]))
        Array([0.67448975, 0.        ], dtype=float64)
    """
    return _FAMILY.isf(lambda q: -ndtri(q), q, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
