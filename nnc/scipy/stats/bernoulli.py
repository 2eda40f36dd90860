"""Bernoulli's distribution: 1 with probability p, else 0."""

from __future__ import annotations

from nnc.numpy import elementwise as el
from nnc.scipy.special import xlog1py, xlogy
from nnc.scipy.stats.evaluate import Counts, Operands, every
from nnc.typing import ArrayLike

__all__ = ["cdf", "logpmf", "pmf", "ppf", "sf"]


def _operands(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        p: probability of 1, in [0, 1].
        loc: shift of the counts.

    Example:
        np.asarray([0, 1, 2]), 0.25
    logpmf: k log(p) + (1 − k) log(1 − p) for k − loc of 0 and 1, else −∞
        [-0.28768206, -1.3862944 ,        -inf]
    pmf: p at 1, 1 − p at 0
        [0.75, 0.25, 0.  ]
    cdf: 0 below 0, 1 − p below 1, else 1
        [0.75, 1.  , 1.  ]
    sf: 1 below 0, p below 1, else 0
        [0.25, 0.  , 0.  ]
    ppf: 0 up to 1 − p, else 1; -1 at 0, as in SciPy
        [0., 1.]
    """
    return k, p, loc


def _quantile_operands(q: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Operands:
    return q, p, loc


_FAMILY = Counts("bernoulli", _operands, valid=lambda p: every(p >= 0, p <= 1), upper=lambda p: 1.0, wide=False)


logpmf = _FAMILY.make("logpmf", lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p))
pmf = _FAMILY.make("pmf", lambda k, p: el.where(k > 0, p, 1 - p))
cdf = _FAMILY.make("cdf", lambda k, p: 1 - p + 0 * k)
sf = _FAMILY.make("sf", lambda k, p: p + 0 * k)
ppf = _FAMILY.make_quantile(
    "ppf", _quantile_operands, lambda q, p: el.where(q <= 1 - p, el.where(q <= 0, -1.0, 0.0), 1.0)
)
