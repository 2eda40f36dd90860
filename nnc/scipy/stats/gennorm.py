"""The generalised normal distribution: Laplace's for β = 1, a normal one for β = 2."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammaincc, gammaln
from nnc.scipy.stats.evaluate import Continuous, Operands
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _power(y: Array, beta: Array) -> Array:
    """|y|^β, with the derivative 0 at 0."""
    zero = el.equal(y, 0)
    return el.where(zero, 0, el.power(el.where(zero, 1, el.abs(y)), beta))


def _log_density(y: Array, beta: Array) -> Array:
    return el.log(beta / 2) - gammaln(1 / beta) - _power(y, beta)


def _tail(y: Array, beta: Array) -> Array:
    """Returns the probability of numbers beyond y, on its side of 0."""
    return gammaincc(1 / beta, _power(y, beta)) / 2


def _cdf(y: Array, beta: Array) -> Array:
    tail = _tail(y, beta)
    return el.where(y > 0, 1 - tail, tail)


def _log_cdf(y: Array, beta: Array) -> Array:
    tail = _tail(y, beta)
    return el.where(y > 0, el.log1p(-tail), el.log(tail))


def _operands(x: ArrayLike, beta: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        beta: exponent, above 0.
        loc: shift of the distribution.
        scale: factor of its width, above 0.

    Example:
        np.asarray([-1.0, 2.0]), 1.5
    logpdf: log(β / (2 Γ(1 / β) scale)) − |y|^β
        [-1.59083235, -3.41925947]
    pdf: β / (2 Γ(1 / β) scale) · exp(−|y|^β)
        [0.20375595, 0.03273667]
    logcdf:
        [-2.18561337, -0.01422024]
    cdf: Q(1 / β, |y|^β) / 2 for y ≤ 0, 1 − Q(1 / β, |y|^β) / 2 above
        [0.11240876, 0.98588039]
    logsf:
        [-0.11924396, -4.26019051]
    sf: 1 − Q(1 / β, |y|^β) / 2 for y ≤ 0, Q(1 / β, |y|^β) / 2 above
        [0.88759124, 0.01411961]
    """
    return x, beta, loc, scale


_FAMILY = Continuous("gennorm", _operands, wide=True)


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", lambda y, beta: el.exp(_log_density(y, beta)))
logcdf = _FAMILY.make("logcdf", _log_cdf)
cdf = _FAMILY.make("cdf", _cdf)
logsf = _FAMILY.make("logsf", lambda y, beta: _log_cdf(-y, beta))
sf = _FAMILY.make("sf", lambda y, beta: _cdf(-y, beta))
