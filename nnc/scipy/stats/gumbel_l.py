"""Gumbel's distribution of least numbers, which is skewed to the left: `gumbel_r` mirrored."""

from __future__ import annotations

from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import Continuous, Operands, log1mexp, of_q
from nnc.scipy.stats.gumbel_r import rate, standard_log_density
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _operands(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        loc: mode.
        scale: factor of its width, above 0.

    Example:
        np.asarray([-1.0, 2.0])
    logpdf: y − exp(y) − log(scale)
        [-1.36787944, -5.3890561 ]
    pdf: exp(y − exp(y)) / scale
        [0.25464638, 0.00456628]
    logcdf:
        [-1.17830710e+00, -6.18170017e-04]
    cdf: 1 − exp(−exp(y))
        [0.30779937, 0.99938202]
    logsf:
        [-0.36787944, -7.3890561 ]
    sf: exp(−exp(y))
        [6.92200628e-01, 6.17978989e-04]
    ppf: loc + scale log(−log(1 − p))
        [-1.24589932, -0.36651292]
    isf: loc + scale log(−log(q))
        [ 0.32663426, -0.36651292]
    """
    return x, loc, scale


def _quantile_operands(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    return p, loc, scale


_FAMILY = Continuous("gumbel_l", _operands)


logpdf = _FAMILY.make("logpdf", lambda y: standard_log_density(-y))
pdf = _FAMILY.make("pdf", lambda y: el.exp(standard_log_density(-y)))
logcdf = _FAMILY.make("logcdf", lambda y: log1mexp(rate(-y)))
cdf = _FAMILY.make("cdf", lambda y: -el.expm1(-rate(-y)))
logsf = _FAMILY.make("logsf", lambda y: -el.exp(y))
sf = _FAMILY.make("sf", lambda y: el.exp(-rate(-y)))
ppf = _FAMILY.make_quantile("ppf", _quantile_operands, lambda p: el.log(-el.log1p(-p)))
isf = _FAMILY.make_quantile("isf", of_q, lambda q: el.log(-el.log(q)))
