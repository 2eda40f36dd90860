"""Gumbel's distribution of largest numbers, which is skewed to the right."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, log1mexp
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def standard_log_density(y: Array) -> Array:
    """−y − exp(−y), for y beyond which the density is 0 without a derivative of NaN."""
    return -y - el.exp(-y)


def rate(y: Array) -> Array:
    """exp(−y), bounded where exp(−exp(−y)) is 0, so that the derivative is 0, too."""
    return el.exp(-el.where(y < -60, -60, y))


_FAMILY = Continuous("gumbel_r")


@spelled
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: −y − exp(−y) − log(scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]))
        Array([-1.71828183, -2.13533528], dtype=float64)
    """
    return _FAMILY.logpdf(standard_log_density, x, loc, scale)


@spelled
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: exp(−y − exp(−y)) / scale.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]))
        Array([0.17937408, 0.11820495], dtype=float64)
    """
    return _FAMILY.pdf(lambda y: el.exp(standard_log_density(y)), x, loc, scale)


@spelled
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> logcdf(np.asarray([-1.0, 2.0]))
        Array([-2.71828183, -0.13533528], dtype=float64)
    """
    return _FAMILY.logcdf(lambda y: -el.exp(-y), x, loc, scale)


@spelled
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: exp(−exp(−y)).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> cdf(np.asarray([-1.0, 2.0]))
        Array([0.06598804, 0.87342302], dtype=float64)
    """
    return _FAMILY.cdf(lambda y: el.exp(-rate(y)), x, loc, scale)


@spelled
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> logsf(np.asarray([-1.0, 2.0]))
        Array([-0.06826603, -2.06690461], dtype=float64)
    """
    return _FAMILY.logsf(lambda y: log1mexp(rate(y)), x, loc, scale)


@spelled
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: 1 − exp(−exp(−y)).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> sf(np.asarray([-1.0, 2.0]))
        Array([0.93401196, 0.12657698], dtype=float64)
    """
    return _FAMILY.sf(lambda y: -el.expm1(-rate(y)), x, loc, scale)


@spelled
def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: loc − scale log(−log(p)).

    Args:
        p: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]))
        Array([-0.32663426,  0.36651292], dtype=float64)
    """
    return _FAMILY.ppf(lambda p: -el.log(-el.log(p)), p, loc, scale)


@spelled
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: loc − scale log(−log(1 − q)).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]))
        Array([1.24589932, 0.36651292], dtype=float64)
    """
    return _FAMILY.isf(lambda q: -el.log(-el.log1p(-q)), q, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
