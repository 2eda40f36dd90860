"""Gumbel's distribution of largest numbers, which is skewed to the right."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, Operands, log1mexp, of_q
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def standard_log_density(y: Array) -> Array:
    """−y − exp(−y), for y beyond which the density is 0 without a derivative of NaN."""
    return -y - el.exp(-y)


def rate(y: Array) -> Array:
    """exp(−y), bounded where exp(−exp(−y)) is 0, so that the derivative is 0, too."""
    return el.exp(-el.where(y < -60, -60, y))


def _operands(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        np.asarray([-1.0, 2.0])
    logpdf: −y − exp(−y) − log(scale)
        [-1.71828183, -2.13533528]
    pdf: exp(−y − exp(−y)) / scale
        [0.17937408, 0.11820495]
    logcdf:
        [-2.71828183, -0.13533528]
    cdf: exp(−exp(−y))
        [0.06598804, 0.87342302]
    logsf:
        [-0.06826603, -2.06690461]
    sf: 1 − exp(−exp(−y))
        [0.93401196, 0.12657698]
    ppf: loc − scale log(−log(p))
        [-0.32663426,  0.36651292]
    isf: loc − scale log(−log(1 − q))
        [1.24589932, 0.36651292]
    """
    return x, loc, scale


def _quantile_operands(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    return p, loc, scale


_FAMILY = Continuous("gumbel_r", _operands)


logpdf = _FAMILY.make("logpdf", standard_log_density)
pdf = _FAMILY.make("pdf", lambda y: el.exp(standard_log_density(y)))
logcdf = _FAMILY.make("logcdf", lambda y: -el.exp(-y))
cdf = _FAMILY.make("cdf", lambda y: el.exp(-rate(y)))
logsf = _FAMILY.make("logsf", lambda y: log1mexp(rate(y)))
sf = _FAMILY.make("sf", lambda y: -el.expm1(-rate(y)))
ppf = _FAMILY.make_quantile("ppf", _quantile_operands, lambda p: -el.log(-el.log(p)))
isf = _FAMILY.make_quantile("isf", of_q, lambda q: -el.log(-el.log1p(-q)))
