"""The gamma distribution."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammainc, gammaincc, gammaln, xlogy
from nnc.scipy.stats.deviances import log_poisson
from nnc.scipy.stats.evaluate import HALF_LINE, Continuous, Operands, log_of
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def log_density(y: Array, a: Array) -> Array:
    """(a − 1) log(y) − y − log Γ(a), for y ≥ 0; of large a the probability of a Poisson count a of mean y, times a / y."""
    large = el.logical_and(a > 10, y > 0)
    mean, count = el.where(large, y, 1), el.where(large, a, 1)
    by_count = log_poisson(count, mean) + el.log(count) - el.log(mean)
    small = el.where(large, 1, a)
    return el.where(large, by_count, xlogy(small - 1, el.where(large, 1, y)) - y - gammaln(small))


def _operands(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        a: shape, above 0.
        loc: the least number.
        scale: factor of its width, above 0; the mean is loc + a · scale.

    Example:
        np.asarray([-1.0, 2.0]), 3.0
    logpdf: (a − 1) log(y) − y − log(Γ(a) scale) for y ≥ 0, −∞ below
        [       -inf, -1.30685282]
    pdf: yᵃ⁻¹ exp(−y) / (Γ(a) scale) for y ≥ 0, 0 below
        [0.        , 0.27067057]
    logcdf:
        [       -inf, -1.12910165]
    cdf: the incomplete gamma function P(a, y) for y ≥ 0, 0 below
        [0.        , 0.32332358]
    logsf:
        [ 0.        , -0.39056209]
    sf: the incomplete gamma function Q(a, y) for y ≥ 0, 1 below
        [1.        , 0.67667642]
    """
    return x, a, loc, scale


_FAMILY = Continuous("gamma", _operands, support=HALF_LINE, wide=True)


logpdf = _FAMILY.make("logpdf", log_density)
pdf = _FAMILY.make("pdf", lambda y, a: el.exp(log_density(y, a)))
logcdf = _FAMILY.make("logcdf", lambda y, a: log_of(gammainc(a, y), gammaincc(a, y)))
cdf = _FAMILY.make("cdf", lambda y, a: gammainc(a, y))
logsf = _FAMILY.make("logsf", lambda y, a: log_of(gammaincc(a, y), gammainc(a, y)))
sf = _FAMILY.make("sf", lambda y, a: gammaincc(a, y))
