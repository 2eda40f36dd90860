"""Gumbel's distribution of least numbers, which is skewed to the left: `gumbel_r` mirrored."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, log1mexp
from nnc.scipy.stats.gumbel_r import rate, standard_log_density
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


_FAMILY = Continuous("gumbel_l")


@spelled
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: y − exp(y) − log(scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]))
        Array([-1.36787944, -5.3890561 ], dtype=float64)
    """
    return _FAMILY.logpdf(lambda y: standard_log_density(-y), x, loc, scale)


@spelled
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: exp(y − exp(y)) / scale.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]))
        Array([0.25464638, 0.00456628], dtype=float64)
    """
    return _FAMILY.pdf(lambda y: el.exp(standard_log_density(-y)), x, loc, scale)


@spelled
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> logcdf(np.asarray([-1.0, 2.0]))
        Array([-1.17830710e+00, -6.18170017e-04], dtype=float64)
    """
    return _FAMILY.logcdf(lambda y: log1mexp(rate(-y)), x, loc, scale)


@spelled
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: 1 − exp(−exp(y)).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> cdf(np.asarray([-1.0, 2.0]))
        Array([0.30779937, 0.99938202], dtype=float64)
    """
    return _FAMILY.cdf(lambda y: -el.expm1(-rate(-y)), x, loc, scale)


@spelled
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> logsf(np.asarray([-1.0, 2.0]))
        Array([-0.36787944, -7.3890561 ], dtype=float64)
    """
    return _FAMILY.logsf(lambda y: -el.exp(y), x, loc, scale)


@spelled
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: exp(−exp(y)).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> sf(np.asarray([-1.0, 2.0]))
        Array([6.92200628e-01, 6.17978989e-04], dtype=float64)
    """
    return _FAMILY.sf(lambda y: el.exp(-rate(-y)), x, loc, scale)


@spelled
def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: loc + scale log(−log(1 − p)).

    Args:
        p: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]))
        Array([-1.24589932, -0.36651292], dtype=float64)
    """
    return _FAMILY.ppf(lambda p: el.log(-el.log1p(-p)), p, loc, scale)


@spelled
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: loc + scale log(−log(q)).

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]))
        Array([ 0.32663426, -0.36651292], dtype=float64)
    """
    return _FAMILY.isf(lambda q: el.log(-el.log(q)), q, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
