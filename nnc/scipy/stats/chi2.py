"""The χ² distribution, of sums of squares of normal numbers."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammainc, gammaincc
from nnc.scipy.stats import gamma
from nnc.scipy.stats.evaluate import HALF_LINE, Continuous, log_of
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _log_density(y: Array, df: Array) -> Array:
    return gamma.log_density(y / 2, df / 2) - math.log(2)


def _cdf(y: Array, df: Array) -> Array:
    return gammainc(df / 2, y / 2)


def _sf(y: Array, df: Array) -> Array:
    return gammaincc(df / 2, y / 2)


_FAMILY = Continuous("chi2", HALF_LINE, wide=True)


@spelled
def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: (df / 2 − 1) log(y / 2) − y / 2 − log(2 Γ(df / 2) scale) for y ≥ 0, −∞ below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0.
        loc: the least number.
        scale: factor of its width, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([       -inf, -1.57236494], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, df, loc, scale)


@spelled
def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: (y / 2)^(df / 2 − 1) exp(−y / 2) / (2 Γ(df / 2) scale) for y ≥ 0, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0.
        loc: the least number.
        scale: factor of its width, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([0.        , 0.20755375], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, df: el.exp(_log_density(y, df)), x, df, loc, scale)


@spelled
def logcdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0.
        loc: the least number.
        scale: factor of its width, above 0.

    Example:
        >>> logcdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([       -inf, -0.84958278], dtype=float64)
    """
    return _FAMILY.logcdf(lambda y, df: log_of(_cdf(y, df), _sf(y, df)), x, df, loc, scale)


@spelled
def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: the incomplete gamma function P(df / 2, y / 2) for y ≥ 0, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0.
        loc: the least number.
        scale: factor of its width, above 0.

    Example:
        >>> cdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([0.       , 0.4275933], dtype=float64)
    """
    return _FAMILY.cdf(_cdf, x, df, loc, scale)


@spelled
def logsf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0.
        loc: the least number.
        scale: factor of its width, above 0.

    Example:
        >>> logsf(np.asarray([-1.0, 2.0]), 3.0)
        Array([ 0.        , -0.55790552], dtype=float64)
    """
    return _FAMILY.logsf(lambda y, df: log_of(_sf(y, df), _cdf(y, df)), x, df, loc, scale)


@spelled
def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation.

    the incomplete gamma function Q(df / 2, y / 2) for y ≥ 0, 1 below. Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        df: degrees of freedom, above 0.
        loc: the least number.
        scale: factor of its width, above 0.

    Example:
        >>> sf(np.asarray([-1.0, 2.0]), 3.0)
        Array([1.       , 0.5724067], dtype=float64)
    """
    return _FAMILY.sf(_sf, x, df, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
