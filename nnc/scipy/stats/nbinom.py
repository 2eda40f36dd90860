"""The negative binomial distribution, of the number of failures before the n-th success."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import betainc, betaincc
from nnc.scipy.stats.deviances import log_binomial
from nnc.scipy.stats.evaluate import Counts, Operands, every
from nnc.typing import ArrayLike

__all__ = ["cdf", "logpmf", "pmf", "sf"]


def _log_mass(k: Array, n: Array, p: Array) -> Array:
    """Returns the probability of n successes among n + k trials, times n / (n + k), as the last one is a success."""
    some = k > 0
    failures = el.where(some, k, 1)
    result = log_binomial(n, failures, p) - el.log1p(failures / n)
    return el.where(some, result, n * el.log(p))


def _operands(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        n: successes, above 0, not only whole numbers.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        np.asarray([0, 1, 5]), 4, 0.25
    logpmf: log(Γ(k + n) / (k! Γ(n))) + n log(p) + k log(1 − p) for k ≥ 0, −∞ below
        [-5.5451775, -4.446565 , -2.9582362]
    pmf: Γ(k + n) / (k! Γ(n)) · pⁿ (1 − p)ᵏ for k ≥ 0, 0 below
        [0.00390625, 0.01171875, 0.0519104 ]
    cdf: the incomplete beta function of n, ⌊k⌋ + 1 and p for k ≥ 0
        [0.00390625, 0.015625  , 0.16572571]
    sf: 1 less the incomplete beta function of n, ⌊k⌋ + 1 and p for k ≥ 0
        [0.99609375, 0.984375  , 0.8342743 ]
    """
    return k, n, p, loc


_FAMILY = Counts("nbinom", _operands, valid=lambda n, p: every(n > 0, p > 0, p <= 1))


logpmf = _FAMILY.make("logpmf", _log_mass)
pmf = _FAMILY.make("pmf", lambda k, n, p: el.exp(_log_mass(k, n, p)))
cdf = _FAMILY.make("cdf", lambda k, n, p: betainc(n, k + 1, p))
sf = _FAMILY.make("sf", lambda k, n, p: betaincc(n, k + 1, p))
