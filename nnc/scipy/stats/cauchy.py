"""Cauchy's distribution: the tangent of a uniform angle."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, Operands, log1p_square, mirrored, of_q
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _log_density(y: Array) -> Array:
    return -log1p_square(y) - math.log(math.pi)


def _density(y: Array) -> Array:
    return 1 / (math.pi * (1 + el.square(y)))


def _cdf(y: Array) -> Array:
    return el.arctan2(1.0, -y) / math.pi


def _log_cdf(y: Array) -> Array:
    tail = _cdf(mirrored(y))
    return el.where(y > 0, el.log1p(-tail), el.log(tail))


def _ppf(q: Array) -> Array:
    """tan(π (q − 1/2)), whose rounding error is that of q near 0, 1/2 and 1."""
    centred = q - 0.5
    near = el.abs(centred) < 0.25
    middle = el.tan(math.pi * el.where(near, centred, 0))
    tail = 1 / el.tan(math.pi * el.where(near, 0.25, el.where(q < 0.5, q, 1 - q)))
    return el.where(near, middle, el.where(q < 0.5, -tail, tail))


def _operands(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        loc: median.
        scale: half of the width at half of the maximum, above 0.

    Example:
        np.asarray([0.0, 2.0])
    logpdf: −log(π (1 + y²)) − log(scale)
        [-1.14472989, -2.7541678 ]
    pdf: 1 / (π (1 + y²) scale)
        [0.31830989, 0.06366198]
    logcdf:
        [-0.69314718, -0.15968016]
    cdf: 1/2 + arctan(y) / π
        [0.5       , 0.85241638]
    logsf:
        [-0.69314718, -1.91336036]
    sf: 1/2 − arctan(y) / π
        [0.5       , 0.14758362]
    ppf: loc − scale / tan(π q)
        [-1.,  0.]
    isf: loc + scale / tan(π q)
        [1., 0.]
    """
    return x, loc, scale


_FAMILY = Continuous("cauchy", _operands)


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", _density)
logcdf = _FAMILY.make("logcdf", _log_cdf)
cdf = _FAMILY.make("cdf", _cdf)
logsf = _FAMILY.make("logsf", lambda y: _log_cdf(-y))
sf = _FAMILY.make("sf", lambda y: _cdf(-y))
ppf = _FAMILY.make_quantile("ppf", of_q, _ppf)
isf = _FAMILY.make_quantile("isf", of_q, lambda q: -_ppf(q))
