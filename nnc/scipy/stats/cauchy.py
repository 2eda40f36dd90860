"""Cauchy's distribution: the tangent of a uniform angle."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, log1p_square, mirrored
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _log_density(y: Array) -> Array:
    return -log1p_square(y) - math.log(math.pi)


def _density(y: Array) -> Array:
    return 1 / (math.pi * (1 + el.square(y)))


def _cdf(y: Array) -> Array:
    return el.arctan2(1.0, -y) / math.pi


def _log_cdf(y: Array) -> Array:
    tail = _cdf(mirrored(y))
    return el.where(y > 0, el.log1p(-tail), el.log(tail))


def _ppf(q: Array) -> Array:
    """tan(π (q − 1/2)), whose rounding error is that of q near 0, 1/2 and 1."""
    centred = q - 0.5
    near = el.abs(centred) < 0.25
    middle = el.tan(math.pi * el.where(near, centred, 0))
    tail = 1 / el.tan(math.pi * el.where(near, 0.25, el.where(q < 0.5, q, 1 - q)))
    return el.where(near, middle, el.where(q < 0.5, -tail, tail))


_FAMILY = Continuous("cauchy")


@spelled
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: −log(π (1 + y²)) − log(scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: half of the width at half of the maximum, above 0.

    Example:
        >>> logpdf(np.asarray([0.0, 2.0]))
        Array([-1.14472989, -2.7541678 ], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, loc, scale)


@spelled
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: 1 / (π (1 + y²) scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: half of the width at half of the maximum, above 0.

    Example:
        >>> pdf(np.asarray([0.0, 2.0]))
        Array([0.31830989, 0.06366198], dtype=float64)
    """
    return _FAMILY.pdf(_density, x, loc, scale)


@spelled
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: half of the width at half of the maximum, above 0.

    Example:
        >>> logcdf(np.asarray([0.0, 2.0]))
        Array([-0.69314718, -0.15968016], dtype=float64)
    """
    return _FAMILY.logcdf(_log_cdf, x, loc, scale)


@spelled
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: 1/2 + arctan(y) / π.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: half of the width at half of the maximum, above 0.

    Example:
        >>> cdf(np.asarray([0.0, 2.0]))
        Array([0.5       , 0.85241638], dtype=float64)
    """
    return _FAMILY.cdf(_cdf, x, loc, scale)


@spelled
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: half of the width at half of the maximum, above 0.

    Example:
        >>> logsf(np.asarray([0.0, 2.0]))
        Array([-0.69314718, -1.91336036], dtype=float64)
    """
    return _FAMILY.logsf(lambda y: _log_cdf(-y), x, loc, scale)


@spelled
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: 1/2 − arctan(y) / π.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: median.
        scale: half of the width at half of the maximum, above 0.

    Example:
        >>> sf(np.asarray([0.0, 2.0]))
        Array([0.5       , 0.14758362], dtype=float64)
    """
    return _FAMILY.sf(lambda y: _cdf(-y), x, loc, scale)


@spelled
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: loc − scale / tan(π q).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: median.
        scale: half of the width at half of the maximum, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]))
        Array([-1.,  0.], dtype=float64)
    """
    return _FAMILY.ppf(_ppf, q, loc, scale)


@spelled
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: loc + scale / tan(π q).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: median.
        scale: half of the width at half of the maximum, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]))
        Array([1., 0.], dtype=float64)
    """
    return _FAMILY.isf(lambda q: -_ppf(q), q, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
