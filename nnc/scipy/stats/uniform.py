"""The uniform distribution on the interval from loc to loc + scale."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import UNIT, Continuous
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


_FAMILY = Continuous("uniform", UNIT)


@spelled
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: −log(scale) for 0 ≤ y ≤ 1, −∞ beyond.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: lower end.
        scale: length of the interval, above 0.

    Example:
        >>> logpdf(np.asarray([0.25, 2.0]))
        Array([  0., -inf], dtype=float64)
    """
    return _FAMILY.logpdf(lambda y: 0 * y, x, loc, scale)


@spelled
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: 1 / scale for 0 ≤ y ≤ 1, 0 beyond.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: lower end.
        scale: length of the interval, above 0.

    Example:
        >>> pdf(np.asarray([0.25, 2.0]))
        Array([1., 0.], dtype=float64)
    """
    return _FAMILY.pdf(lambda y: 1 + 0 * y, x, loc, scale)


@spelled
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: lower end.
        scale: length of the interval, above 0.

    Example:
        >>> logcdf(np.asarray([0.25, 2.0]))
        Array([-1.38629436,  0.        ], dtype=float64)
    """
    return _FAMILY.logcdf(el.log, x, loc, scale)


@spelled
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: y, and 0 below, 1 above.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: lower end.
        scale: length of the interval, above 0.

    Example:
        >>> cdf(np.asarray([0.25, 2.0]))
        Array([0.25, 1.  ], dtype=float64)
    """
    return _FAMILY.cdf(lambda y: y, x, loc, scale)


@spelled
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: lower end.
        scale: length of the interval, above 0.

    Example:
        >>> logsf(np.asarray([0.25, 2.0]))
        Array([-0.28768207,        -inf], dtype=float64)
    """
    return _FAMILY.logsf(lambda y: el.log1p(-y), x, loc, scale)


@spelled
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: 1 − y, and 1 below, 0 above.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: lower end.
        scale: length of the interval, above 0.

    Example:
        >>> sf(np.asarray([0.25, 2.0]))
        Array([0.75, 0.  ], dtype=float64)
    """
    return _FAMILY.sf(lambda y: 1 - y, x, loc, scale)


@spelled
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: loc + scale q.

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: lower end.
        scale: length of the interval, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]))
        Array([0.25, 0.5 ], dtype=float64)
    """
    return _FAMILY.ppf(lambda q: q, q, loc, scale)


@spelled
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: loc + scale (1 − q).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: lower end.
        scale: length of the interval, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]))
        Array([0.75, 0.5 ], dtype=float64)
    """
    return _FAMILY.isf(lambda q: 1 - q, q, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
