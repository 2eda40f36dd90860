"""The exponential distribution, of waiting times."""

from __future__ import annotations

from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import HALF_LINE, Continuous, Operands, log1mexp, of_q
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _operands(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        loc: the least number.
        scale: mean distance from loc, above 0.

    Example:
        np.asarray([-1.0, 2.0])
    logpdf: −y − log(scale) for y ≥ 0, −∞ below
        [-inf,  -2.]
    pdf: exp(−y) / scale for y ≥ 0, 0 below
        [0.        , 0.13533528]
    logcdf:
        [       -inf, -0.14541346]
    cdf: 1 − exp(−y) for y ≥ 0, 0 below
        [0.        , 0.86466472]
    logsf:
        [ 0., -2.]
    sf: exp(−y) for y ≥ 0, 1 below
        [1.        , 0.13533528]
    ppf: loc − scale log(1 − q)
        [0.28768207, 0.69314718]
    isf: loc − scale log(q)
        [1.38629436, 0.69314718]
    """
    return x, loc, scale


_FAMILY = Continuous("expon", _operands, support=HALF_LINE)


logpdf = _FAMILY.make("logpdf", lambda y: -y)
pdf = _FAMILY.make("pdf", lambda y: el.exp(-y))
logcdf = _FAMILY.make("logcdf", log1mexp)
cdf = _FAMILY.make("cdf", lambda y: -el.expm1(-y))
logsf = _FAMILY.make("logsf", lambda y: -y)
sf = _FAMILY.make("sf", lambda y: el.exp(-y))
ppf = _FAMILY.make_quantile("ppf", of_q, lambda q: -el.log1p(-q))
isf = _FAMILY.make_quantile("isf", of_q, lambda q: -el.log(q))
