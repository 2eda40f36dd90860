"""The normal distribution."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import log_ndtr, ndtr, ndtri
from nnc.scipy.stats.evaluate import Continuous, Operands, of_q
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _log_density(y: Array) -> Array:
    return -el.square(y) / 2 - math.log(2 * math.pi) / 2


def _operands(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        loc: mean.
        scale: standard deviation, above 0.

    Example:
        np.asarray([-1.0, 2.0])
    logpdf: −y² / 2 − log(√(2π) scale)
        [-1.41893853, -2.91893853]
    pdf: exp(−y² / 2) / (√(2π) scale)
        [0.24197072, 0.05399097]
    logcdf:
        [-1.84102165, -0.02301291]
    cdf: (1 + erf(y / √2)) / 2
        [0.15865525, 0.97724987]
    logsf:
        [-0.17275378, -3.78318433]
    sf: (1 − erf(y / √2)) / 2
        [0.84134475, 0.02275013]
    ppf: loc + √2 scale erfinv(2q − 1)
        [-0.67448975,  0.        ]
    isf: loc − √2 scale erfinv(2q − 1)
        [0.67448975, 0.        ]
    """
    return x, loc, scale


_FAMILY = Continuous("norm", _operands)


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", lambda y: el.exp(-el.square(y) / 2) / math.sqrt(2 * math.pi))
logcdf = _FAMILY.make("logcdf", log_ndtr)
cdf = _FAMILY.make("cdf", ndtr)
logsf = _FAMILY.make("logsf", lambda y: log_ndtr(-y))
sf = _FAMILY.make("sf", lambda y: ndtr(-y))
ppf = _FAMILY.make_quantile("ppf", of_q, ndtri)
isf = _FAMILY.make_quantile("isf", of_q, lambda q: -ndtri(q))
