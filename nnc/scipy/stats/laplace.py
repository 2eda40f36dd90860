"""Laplace's distribution: two exponential ones back to back."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, Operands, mirrored, of_q
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _cdf(y: Array) -> Array:
    tail = el.exp(mirrored(y)) / 2
    return el.where(y > 0, 1 - tail, tail)


def _log_cdf(y: Array) -> Array:
    small = mirrored(y)
    return el.where(y > 0, el.log1p(-el.exp(small) / 2), small - math.log(2))


def _ppf(q: Array) -> Array:
    upper = q > 0.5
    size = el.log(2 * el.where(upper, 1 - q, q))
    return el.where(upper, -size, size)


def _operands(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        loc: median.
        scale: mean distance from loc, above 0.

    Example:
        np.asarray([-1.0, 2.0])
    logpdf: −|y| − log(2 scale)
        [-1.69314718, -2.69314718]
    pdf: exp(−|y|) / (2 scale)
        [0.18393972, 0.06766764]
    logcdf:
        [-1.69314718, -0.07006592]
    cdf: exp(y) / 2 for y ≤ 0, 1 − exp(−y) / 2 above
        [0.18393972, 0.93233236]
    logsf:
        [-0.20326705, -2.69314718]
    sf: 1 − exp(y) / 2 for y ≤ 0, exp(−y) / 2 above
        [0.81606028, 0.06766764]
    ppf: loc + scale log(2q) for q ≤ 1/2, loc − scale log(2 − 2q) above
        [-0.69314718,  0.        ]
    isf: `ppf` at 1 − q
        [0.69314718, 0.        ]
    """
    return x, loc, scale


_FAMILY = Continuous("laplace", _operands)


logpdf = _FAMILY.make("logpdf", lambda y: -el.abs(y) - math.log(2))
pdf = _FAMILY.make("pdf", lambda y: el.exp(-el.abs(y)) / 2)
logcdf = _FAMILY.make("logcdf", _log_cdf)
cdf = _FAMILY.make("cdf", _cdf)
logsf = _FAMILY.make("logsf", lambda y: _log_cdf(-y))
sf = _FAMILY.make("sf", lambda y: _cdf(-y))
ppf = _FAMILY.make_quantile("ppf", of_q, _ppf)
isf = _FAMILY.make_quantile("isf", of_q, lambda q: -_ppf(q))
