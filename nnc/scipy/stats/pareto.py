"""Pareto's distribution, of sizes with a heavy tail."""

from __future__ import annotations

from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, Operands, Support, log1mexp
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _operands(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        b: exponent of the tail, above 0.
        loc: shift of the distribution.
        scale: the least number less loc, above 0.

    Example:
        np.asarray([0.5, 2.0]), 3.0
    logpdf: log(b) − (b + 1) log(y) − log(scale) for y ≥ 1, −∞ below
        [       -inf, -1.67397643]
    pdf: b / (yᵇ⁺¹ scale) for y ≥ 1, 0 below
        [0.    , 0.1875]
    logcdf:
        [       -inf, -0.13353139]
    cdf: 1 − y⁻ᵇ for y ≥ 1, 0 below
        [0.   , 0.875]
    logsf:
        [ 0.        , -2.07944154]
    sf: y⁻ᵇ for y ≥ 1, 1 below
        [1.   , 0.125]
    ppf: loc + scale (1 − q)^(−1/b)
        [1.10064242, 1.25992105]
    isf: loc + scale q^(−1/b)
        [1.58740105, 1.25992105]
    """
    return x, b, loc, scale


def _quantile_operands(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    return q, b, loc, scale


_FAMILY = Continuous("pareto", _operands, support=Support(lower=1, inside=2))


logpdf = _FAMILY.make("logpdf", lambda y, b: el.log(b) - (b + 1) * el.log(y))
pdf = _FAMILY.make("pdf", lambda y, b: b * el.power(y, -b - 1))
logcdf = _FAMILY.make("logcdf", lambda y, b: log1mexp(b * el.log(y)))
cdf = _FAMILY.make("cdf", lambda y, b: -el.expm1(-b * el.log(y)))
logsf = _FAMILY.make("logsf", lambda y, b: -b * el.log(y))
sf = _FAMILY.make("sf", lambda y, b: el.power(y, -b))
ppf = _FAMILY.make_quantile("ppf", _quantile_operands, lambda q, b: el.exp(-el.log1p(-q) / b))
isf = _FAMILY.make_quantile("isf", _quantile_operands, lambda q, b: el.power(q, -1 / b))
