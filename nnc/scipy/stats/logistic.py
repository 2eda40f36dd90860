"""The logistic distribution, whose cdf is the logistic function."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import expit, logit
from nnc.scipy.stats.evaluate import Continuous, mirrored
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _log_density(y: Array) -> Array:
    small = mirrored(y)
    return small - 2 * el.log1p(el.exp(small))


def _log_cdf(y: Array) -> Array:
    return el.where(y > 0, 0, y) - el.log1p(el.exp(mirrored(y)))


_FAMILY = Continuous("logistic")


@spelled
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: −y − 2 log(1 + exp(−y)) − log(scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: factor of its width, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]))
        Array([-1.62652338, -2.25385602], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, loc, scale)


@spelled
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: exp(−y) / ((1 + exp(−y))² scale).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: factor of its width, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]))
        Array([0.19661193, 0.10499359], dtype=float64)
    """
    return _FAMILY.pdf(lambda y: el.exp(_log_density(y)), x, loc, scale)


@spelled
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: factor of its width, above 0.

    Example:
        >>> logcdf(np.asarray([-1.0, 2.0]))
        Array([-1.31326169, -0.12692801], dtype=float64)
    """
    return _FAMILY.logcdf(_log_cdf, x, loc, scale)


@spelled
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: 1 / (1 + exp(−y)).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: factor of its width, above 0.

    Example:
        >>> cdf(np.asarray([-1.0, 2.0]))
        Array([0.26894142, 0.88079708], dtype=float64)
    """
    return _FAMILY.cdf(expit, x, loc, scale)


@spelled
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: factor of its width, above 0.

    Example:
        >>> logsf(np.asarray([-1.0, 2.0]))
        Array([-0.31326169, -2.12692801], dtype=float64)
    """
    return _FAMILY.logsf(lambda y: _log_cdf(-y), x, loc, scale)


@spelled
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: 1 / (1 + exp(y)).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        loc: mean.
        scale: factor of its width, above 0.

    Example:
        >>> sf(np.asarray([-1.0, 2.0]))
        Array([0.73105858, 0.11920292], dtype=float64)
    """
    return _FAMILY.sf(lambda y: expit(-y), x, loc, scale)


@spelled
def ppf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: loc + scale log(q / (1 − q)).

    Args:
        x: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: mean.
        scale: factor of its width, above 0.

    Example:
        >>> ppf(np.asarray([0.25, 0.5]))
        Array([-1.09861229,  0.        ], dtype=float64)
    """
    return _FAMILY.ppf(logit, x, loc, scale)


@spelled
def isf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the number above which lies the probability q, the inverse of `sf`: loc − scale log(q / (1 − q)).

    Args:
        x: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        loc: mean.
        scale: factor of its width, above 0.

    Example:
        >>> isf(np.asarray([0.25, 0.5]))
        Array([1.09861229, 0.        ], dtype=float64)
    """
    return _FAMILY.isf(lambda q: -logit(q), x, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
