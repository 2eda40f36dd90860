"""The beta distribution, of numbers between 0 and 1."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import betainc, betaincc, betaln, xlog1py, xlogy
from nnc.scipy.stats.deviances import log_binomial
from nnc.scipy.stats.evaluate import UNIT, Continuous, every, log_of
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _log_density(y: Array, a: Array, b: Array) -> Array:
    large = every(a > 2, b > 2, y > 0, y < 1)
    return el.where(
        large,
        _of_large(*(el.where(large, x, z) for x, z in ((y, 0.5), (a, 3), (b, 3)))),
        _of_small(*(el.where(large, z, x) for x, z in ((y, 0.5), (a, 1), (b, 1)))),
    )


def _of_large(y: Array, a: Array, b: Array) -> Array:
    """The probability of a successes among a + b trials, times a b / ((a + b) y (1 − y))."""
    return log_binomial(a, b, y) + el.log(a) - el.log1p(a / b) - el.log(y) - el.log1p(-y)


def _of_small(y: Array, a: Array, b: Array) -> Array:
    return xlogy(a - 1, y) + xlog1py(b - 1, -y) - betaln(a, b)


def _cdf(y: Array, a: Array, b: Array) -> Array:
    return betainc(a, b, y)


def _sf(y: Array, a: Array, b: Array) -> Array:
    return betaincc(a, b, y)


_FAMILY = Continuous("beta", UNIT, wide=True)


@spelled
def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: (a − 1) log(y) + (b − 1) log(1 − y) − log(B(a, b) scale) for 0 ≤ y ≤ 1, −∞ beyond.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: exponent of y, plus 1; above 0.
        b: exponent of 1 − y, plus 1; above 0.
        loc: the least number.
        scale: length of the interval, above 0.

    Example:
        >>> logpdf(np.asarray([0.25, 2.0]), 3.0, 2.0)
        Array([-0.57536414,        -inf], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, a, b, loc, scale)


@spelled
def pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: yᵃ⁻¹ (1 − y)ᵇ⁻¹ / (B(a, b) scale) for 0 ≤ y ≤ 1, 0 beyond.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: exponent of y, plus 1; above 0.
        b: exponent of 1 − y, plus 1; above 0.
        loc: the least number.
        scale: length of the interval, above 0.

    Example:
        >>> pdf(np.asarray([0.25, 2.0]), 3.0, 2.0)
        Array([0.5625, 0.    ], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, a, b: el.exp(_log_density(y, a, b)), x, a, b, loc, scale)


@spelled
def logcdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: exponent of y, plus 1; above 0.
        b: exponent of 1 − y, plus 1; above 0.
        loc: the least number.
        scale: length of the interval, above 0.

    Example:
        >>> logcdf(np.asarray([0.25, 2.0]), 3.0, 2.0)
        Array([-2.98022809,  0.        ], dtype=float64)
    """
    return _FAMILY.logcdf(lambda y, a, b: log_of(_cdf(y, a, b), _sf(y, a, b)), x, a, b, loc, scale)


@spelled
def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: the incomplete beta function of a, b and y for 0 ≤ y ≤ 1.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: exponent of y, plus 1; above 0.
        b: exponent of 1 − y, plus 1; above 0.
        loc: the least number.
        scale: length of the interval, above 0.

    Example:
        >>> cdf(np.asarray([0.25, 2.0]), 3.0, 2.0)
        Array([0.05078125, 1.        ], dtype=float64)
    """
    return _FAMILY.cdf(_cdf, x, a, b, loc, scale)


@spelled
def logsf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: exponent of y, plus 1; above 0.
        b: exponent of 1 − y, plus 1; above 0.
        loc: the least number.
        scale: length of the interval, above 0.

    Example:
        >>> logsf(np.asarray([0.25, 2.0]), 3.0, 2.0)
        Array([-0.052116,      -inf], dtype=float64)
    """
    return _FAMILY.logsf(lambda y, a, b: log_of(_sf(y, a, b), _cdf(y, a, b)), x, a, b, loc, scale)


@spelled
def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation.

    1 less the incomplete beta function of a, b and y for 0 ≤ y ≤ 1. Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: exponent of y, plus 1; above 0.
        b: exponent of 1 − y, plus 1; above 0.
        loc: the least number.
        scale: length of the interval, above 0.

    Example:
        >>> sf(np.asarray([0.25, 2.0]), 3.0, 2.0)
        Array([0.94921875, 0.        ], dtype=float64)
    """
    return _FAMILY.sf(_sf, x, a, b, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
