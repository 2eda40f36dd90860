"""The logistic distribution, whose cdf is the logistic function."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import expit, logit
from nnc.scipy.stats.evaluate import Continuous, Operands, mirrored
from nnc.typing import ArrayLike

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def _log_density(y: Array) -> Array:
    small = mirrored(y)
    return small - 2 * el.log1p(el.exp(small))


def _log_cdf(y: Array) -> Array:
    return el.where(y > 0, 0, y) - el.log1p(el.exp(mirrored(y)))


def _operands(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        loc: mean.
        scale: factor of its width, above 0.

    Example:
        np.asarray([-1.0, 2.0])
    logpdf: −y − 2 log(1 + exp(−y)) − log(scale)
        [-1.62652338, -2.25385602]
    pdf: exp(−y) / ((1 + exp(−y))² scale)
        [0.19661193, 0.10499359]
    logcdf:
        [-1.31326169, -0.12692801]
    cdf: 1 / (1 + exp(−y))
        [0.26894142, 0.88079708]
    logsf:
        [-0.31326169, -2.12692801]
    sf: 1 / (1 + exp(y))
        [0.73105858, 0.11920292]
    ppf: loc + scale log(q / (1 − q))
        [-1.09861229,  0.        ]
    isf: loc − scale log(q / (1 − q))
        [1.09861229, 0.        ]
    """
    return x, loc, scale


_FAMILY = Continuous("logistic", _operands)


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", lambda y: el.exp(_log_density(y)))
logcdf = _FAMILY.make("logcdf", _log_cdf)
cdf = _FAMILY.make("cdf", expit)
logsf = _FAMILY.make("logsf", lambda y: _log_cdf(-y))
sf = _FAMILY.make("sf", lambda y: expit(-y))
ppf = _FAMILY.make_quantile("ppf", _operands, logit)
isf = _FAMILY.make_quantile("isf", _operands, lambda q: -logit(q))
