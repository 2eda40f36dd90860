"""The exponential distribution, of waiting times."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import HALF_LINE, Continuous, log1mexp
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


_FAMILY = Continuous("expon", HALF_LINE)


@spelled
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: −y − log(scale) for y ≥ 0, −∞ below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: the least number.
        scale: mean distance from loc, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]))
        Array([-inf,  -2.], dtype=float64)
    """
    return _FAMILY.logpdf(lambda y: -y, x, loc, scale)


@spelled
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: exp(−y) / scale for y ≥ 0, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: the least number.
        scale: mean distance from loc, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]))
        Array([0.        , 0.13533528], dtype=float64)
    """
    return _FAMILY.pdf(lambda y: el.exp(-y), x, loc, scale)


@spelled
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: the least number.
        scale: mean distance from loc, above 0.

    Example:
        >>> logcdf(np.asarray([-1.0, 2.0]))
        Array([       -inf, -0.14541346], dtype=float64)
    """
    return _FAMILY.logcdf(log1mexp, x, loc, scale)


@spelled
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: 1 − exp(−y) for y ≥ 0, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: the least number.
        scale: mean distance from loc, above 0.

    Example:
        >>> cdf(np.asarray([-1.0, 2.0]))
        Array([0.        , 0.86466472], dtype=float64)
    """
    return _FAMILY.cdf(lambda y: -el.expm1(-y), x, loc, scale)


@spelled
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: the least number.
        scale: mean distance from loc, above 0.

    Example:
        >>> logsf(np.asarray([-1.0, 2.0]))
        Array([ 0., -2.], dtype=float64)
    """
    return _FAMILY.logsf(lambda y: -y, x, loc, scale)


@spelled
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: exp(−y) for y ≥ 0, 1 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: the least number.
        scale: mean distance from loc, above 0.

    Example:
        >>> sf(np.asarray([-1.0, 2.0]))
        Array([1.        , 0.13533528], dtype=float64)
    """
    return _FAMILY.sf(lambda y: el.exp(-y), x, loc, scale)


@spelled
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: loc − scale log(1 − q).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: the least number.
        scale: mean distance from loc, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]))
        Array([0.28768207, 0.69314718], dtype=float64)
    """
    return _FAMILY.ppf(lambda q: -el.log1p(-q), q, loc, scale)


@spelled
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: loc − scale log(q).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: the least number.
        scale: mean distance from loc, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]))
        Array([1.38629436, 0.69314718], dtype=float64)
    """
    return _FAMILY.isf(lambda q: -el.log(q), q, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
