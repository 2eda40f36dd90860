"""The gamma distribution."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammainc, gammaincc, gammaln, xlogy
from nnc.scipy.stats.deviances import log_poisson
from nnc.scipy.stats.evaluate import HALF_LINE, Continuous, log_of
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def log_density(y: Array, a: Array) -> Array:
    """(a − 1) log(y) − y − log Γ(a), for y ≥ 0; of large a the probability of a Poisson count a of mean y, times a / y."""
    large = el.logical_and(a > 10, y > 0)
    mean, count = el.where(large, y, 1), el.where(large, a, 1)
    by_count = log_poisson(count, mean) + el.log(count) - el.log(mean)
    small = el.where(large, 1, a)
    return el.where(large, by_count, xlogy(small - 1, el.where(large, 1, y)) - y - gammaln(small))


_FAMILY = Continuous("gamma", HALF_LINE, wide=True)


@spelled
def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: (a − 1) log(y) − y − log(Γ(a) scale) for y ≥ 0, −∞ below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: shape, above 0.
        loc: the least number.
        scale: factor of its width, above 0; the mean is loc + a · scale.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([       -inf, -1.30685282], dtype=float64)
    """
    return _FAMILY.logpdf(log_density, x, a, loc, scale)


@spelled
def pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: yᵃ⁻¹ exp(−y) / (Γ(a) scale) for y ≥ 0, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: shape, above 0.
        loc: the least number.
        scale: factor of its width, above 0; the mean is loc + a · scale.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([0.        , 0.27067057], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, a: el.exp(log_density(y, a)), x, a, loc, scale)


@spelled
def logcdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: shape, above 0.
        loc: the least number.
        scale: factor of its width, above 0; the mean is loc + a · scale.

    Example:
        >>> logcdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([       -inf, -1.12910165], dtype=float64)
    """
    return _FAMILY.logcdf(lambda y, a: log_of(gammainc(a, y), gammaincc(a, y)), x, a, loc, scale)


@spelled
def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: the incomplete gamma function P(a, y) for y ≥ 0, 0 below.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: shape, above 0.
        loc: the least number.
        scale: factor of its width, above 0; the mean is loc + a · scale.

    Example:
        >>> cdf(np.asarray([-1.0, 2.0]), 3.0)
        Array([0.        , 0.32332358], dtype=float64)
    """
    return _FAMILY.cdf(lambda y, a: gammainc(a, y), x, a, loc, scale)


@spelled
def logsf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: shape, above 0.
        loc: the least number.
        scale: factor of its width, above 0; the mean is loc + a · scale.

    Example:
        >>> logsf(np.asarray([-1.0, 2.0]), 3.0)
        Array([ 0.        , -0.39056209], dtype=float64)
    """
    return _FAMILY.logsf(lambda y, a: log_of(gammaincc(a, y), gammainc(a, y)), x, a, loc, scale)


@spelled
def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation.

    the incomplete gamma function Q(a, y) for y ≥ 0, 1 below. Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: shape, above 0.
        loc: the least number.
        scale: factor of its width, above 0; the mean is loc + a · scale.

    Example:
        >>> sf(np.asarray([-1.0, 2.0]), 3.0)
        Array([1.        , 0.67667642], dtype=float64)
    """
    return _FAMILY.sf(lambda y, a: gammaincc(a, y), x, a, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
