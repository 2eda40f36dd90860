"""The uniform distribution on the interval from loc to loc + scale."""

from __future__ import annotations

from nnc.numpy import elementwise as el
from nnc.scipy.stats.evaluate import UNIT, Continuous, Operands, of_q
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _operands(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        loc: lower end.
        scale: length of the interval, above 0.

    Example:
        np.asarray([0.25, 2.0])
    logpdf: −log(scale) for 0 ≤ y ≤ 1, −∞ beyond
        [  0., -inf]
    pdf: 1 / scale for 0 ≤ y ≤ 1, 0 beyond
        [1., 0.]
    logcdf:
        [-1.38629436,  0.        ]
    cdf: y, and 0 below, 1 above
        [0.25, 1.  ]
    logsf:
        [-0.28768207,        -inf]
    sf: 1 − y, and 1 below, 0 above
        [0.75, 0.  ]
    ppf: loc + scale q
        [0.25, 0.5 ]
    isf: loc + scale (1 − q)
        [0.75, 0.5 ]
    """
    return x, loc, scale


_FAMILY = Continuous("uniform", _operands, support=UNIT)


logpdf = _FAMILY.make("logpdf", lambda y: 0 * y)
pdf = _FAMILY.make("pdf", lambda y: 1 + 0 * y)
logcdf = _FAMILY.make("logcdf", el.log)
cdf = _FAMILY.make("cdf", lambda y: y)
logsf = _FAMILY.make("logsf", lambda y: el.log1p(-y))
sf = _FAMILY.make("sf", lambda y: 1 - y)
ppf = _FAMILY.make_quantile("ppf", of_q, lambda q: q)
isf = _FAMILY.make_quantile("isf", of_q, lambda q: 1 - q)
