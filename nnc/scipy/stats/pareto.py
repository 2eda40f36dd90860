"""Pareto's distribution, of sizes with a heavy tail."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, Support, log1mexp
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


_FAMILY = Continuous("pareto", Support(lower=1, inside=2))


@spelled
def logpdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: log(b) − (b + 1) log(y) − log(scale) for y ≥ 1, −∞ below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        b: exponent of the tail, above 0.
        loc: shift of the distribution.
        scale: the least number less loc, above 0.

    Example:
        >>> logpdf(np.asarray([0.5, 2.0]), 3.0)
        Array([       -inf, -1.67397643], dtype=float64)
    """
    return _FAMILY.logpdf(lambda y, b: el.log(b) - (b + 1) * el.log(y), x, b, loc, scale)


@spelled
def pdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: b / (yᵇ⁺¹ scale) for y ≥ 1, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        b: exponent of the tail, above 0.
        loc: shift of the distribution.
        scale: the least number less loc, above 0.

    Example:
        >>> pdf(np.asarray([0.5, 2.0]), 3.0)
        Array([0.    , 0.1875], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, b: b * el.power(y, -b - 1), x, b, loc, scale)


@spelled
def logcdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        b: exponent of the tail, above 0.
        loc: shift of the distribution.
        scale: the least number less loc, above 0.

    Example:
        >>> logcdf(np.asarray([0.5, 2.0]), 3.0)
        Array([       -inf, -0.13353139], dtype=float64)
    """
    return _FAMILY.logcdf(lambda y, b: log1mexp(b * el.log(y)), x, b, loc, scale)


@spelled
def cdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: 1 − y⁻ᵇ for y ≥ 1, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        b: exponent of the tail, above 0.
        loc: shift of the distribution.
        scale: the least number less loc, above 0.

    Example:
        >>> cdf(np.asarray([0.5, 2.0]), 3.0)
        Array([0.   , 0.875], dtype=float64)
    """
    return _FAMILY.cdf(lambda y, b: -el.expm1(-b * el.log(y)), x, b, loc, scale)


@spelled
def logsf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        b: exponent of the tail, above 0.
        loc: shift of the distribution.
        scale: the least number less loc, above 0.

    Example:
        >>> logsf(np.asarray([0.5, 2.0]), 3.0)
        Array([ 0.        , -2.07944154], dtype=float64)
    """
    return _FAMILY.logsf(lambda y, b: -b * el.log(y), x, b, loc, scale)


@spelled
def sf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: y⁻ᵇ for y ≥ 1, 1 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        b: exponent of the tail, above 0.
        loc: shift of the distribution.
        scale: the least number less loc, above 0.

    Example:
        >>> sf(np.asarray([0.5, 2.0]), 3.0)
        Array([1.   , 0.125], dtype=float64)
    """
    return _FAMILY.sf(lambda y, b: el.power(y, -b), x, b, loc, scale)


@spelled
def ppf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: loc + scale (1 − q)^(−1/b).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        b: exponent of the tail, above 0.
        loc: shift of the distribution.
        scale: the least number less loc, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]), 3.0)
        Array([1.10064242, 1.25992105], dtype=float64)
    """
    return _FAMILY.ppf(lambda q, b: el.exp(-el.log1p(-q) / b), q, b, loc, scale)


@spelled
def isf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: loc + scale q^(−1/b).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        b: exponent of the tail, above 0.
        loc: shift of the distribution.
        scale: the least number less loc, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]), 3.0)
        Array([1.58740105, 1.25992105], dtype=float64)
    """
    return _FAMILY.isf(lambda q, b: el.power(q, -1 / b), q, b, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
