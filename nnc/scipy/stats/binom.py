"""The binomial distribution, of the number of successes among n trials."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import betainc, betaincc, xlog1py, xlogy
from nnc.scipy.stats.deviances import log_binomial
from nnc.scipy.stats.evaluate import Counts, Operands, every
from nnc.typing import ArrayLike

__all__ = ["cdf", "logpmf", "pmf", "sf"]


def _valid(n: Array, p: Array) -> Array:
    return every(n >= 0, el.equal(el.floor(n), n), p >= 0, p <= 1)


def _log_mass(k: Array, n: Array, p: Array) -> Array:
    inner = el.logical_and(k > 0, k < n)
    between = log_binomial(el.where(inner, k, 1), el.where(inner, n - k, 1), p)
    return el.where(inner, between, el.where(inner, 0, xlogy(k, p) + xlog1py(n - k, -p)))


def _rest(k: Array, n: Array) -> Array:
    """n − k, and 1 where nothing is left and the result is not read."""
    return el.where(n > k, n - k, 1)


def _operands(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        n: trials, a whole number of 0 or more, of any real dtype.
        p: probability of a success, in [0, 1].
        loc: shift of the counts.

    Example:
        np.asarray([0, 1, 5]), 4, 0.25
    logpmf: log(n! / (k! (n − k)!)) + k log(p) + (n − k) log(1 − p) for 0 ≤ k ≤ n, −∞ beyond
        [-1.1507283, -0.8630462,       -inf]
    pmf: n! / (k! (n − k)!) · pᵏ (1 − p)ⁿ⁻ᵏ for 0 ≤ k ≤ n, 0 beyond
        [0.31640625, 0.421875  , 0.        ]
    cdf: 1 less the incomplete beta function of ⌊k⌋ + 1, n − ⌊k⌋ and p for 0 ≤ k < n
        [0.31640625, 0.73828125, 1.        ]
    sf: the incomplete beta function of ⌊k⌋ + 1, n − ⌊k⌋ and p for 0 ≤ k < n
        [0.68359375, 0.26171875, 0.        ]
    """
    return k, n, p, loc


_FAMILY = Counts("binom", _operands, valid=_valid, upper=lambda n, p: n)


logpmf = _FAMILY.make("logpmf", _log_mass)
pmf = _FAMILY.make("pmf", lambda k, n, p: el.exp(_log_mass(k, n, p)))
cdf = _FAMILY.make("cdf", lambda k, n, p: betaincc(k + 1, _rest(k, n), p))
sf = _FAMILY.make("sf", lambda k, n, p: betainc(k + 1, _rest(k, n), p))
