"""The generalised normal distribution: Laplace's for β = 1, a normal one for β = 2."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammaincc, gammaln
from nnc.scipy.stats.evaluate import Continuous
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _power(y: Array, beta: Array) -> Array:
    """|y|^β, with the derivative 0 at 0."""
    zero = el.equal(y, 0)
    return el.where(zero, 0, el.power(el.where(zero, 1, el.abs(y)), beta))


def _log_density(y: Array, beta: Array) -> Array:
    return el.log(beta / 2) - gammaln(1 / beta) - _power(y, beta)


def _tail(y: Array, beta: Array) -> Array:
    """The probability of numbers beyond y, on its side of 0."""
    return gammaincc(1 / beta, _power(y, beta)) / 2


def _cdf(y: Array, beta: Array) -> Array:
    tail = _tail(y, beta)
    return el.where(y > 0, 1 - tail, tail)


def _log_cdf(y: Array, beta: Array) -> Array:
    tail = _tail(y, beta)
    return el.where(y > 0, el.log1p(-tail), el.log(tail))


_FAMILY = Continuous("gennorm", wide=True)


@spelled
def logpdf(x: ArrayLike, beta: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: log(β / (2 Γ(1 / β) scale)) − |y|^β.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        beta: exponent, above 0.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 2.0]), 1.5)
        Array([-1.59083235, -3.41925947], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, beta, loc, scale)


@spelled
def pdf(x: ArrayLike, beta: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: β / (2 Γ(1 / β) scale) · exp(−|y|^β).

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        beta: exponent, above 0.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 2.0]), 1.5)
        Array([0.20375595, 0.03273667], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, beta: el.exp(_log_density(y, beta)), x, beta, loc, scale)


@spelled
def logcdf(x: ArrayLike, beta: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        beta: exponent, above 0.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> logcdf(np.asarray([-1.0, 2.0]), 1.5)
        Array([-2.18561337, -0.01422024], dtype=float64)
    """
    return _FAMILY.logcdf(_log_cdf, x, beta, loc, scale)


@spelled
def cdf(x: ArrayLike, beta: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: Q(1 / β, |y|^β) / 2 for y ≤ 0, 1 − Q(1 / β, |y|^β) / 2 above.

    Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        beta: exponent, above 0.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> cdf(np.asarray([-1.0, 2.0]), 1.5)
        Array([0.11240876, 0.98588039], dtype=float64)
    """
    return _FAMILY.cdf(_cdf, x, beta, loc, scale)


@spelled
def logsf(x: ArrayLike, beta: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        beta: exponent, above 0.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> logsf(np.asarray([-1.0, 2.0]), 1.5)
        Array([-0.11924396, -4.26019051], dtype=float64)
    """
    return _FAMILY.logsf(lambda y, beta: _log_cdf(-y, beta), x, beta, loc, scale)


@spelled
def sf(x: ArrayLike, beta: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation.

    1 − Q(1 / β, |y|^β) / 2 for y ≤ 0, Q(1 / β, |y|^β) / 2 above. Here y = (x − loc) / scale.

    Args:
        x: real, any shape; broadcasts with the parameters.
        beta: exponent, above 0.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        >>> sf(np.asarray([-1.0, 2.0]), 1.5)
        Array([0.88759124, 0.01411961], dtype=float64)
    """
    return _FAMILY.sf(lambda y, beta: _cdf(-y, beta), x, beta, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
