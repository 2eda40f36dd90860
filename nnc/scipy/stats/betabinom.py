"""The binomial distribution with a probability of success that has a beta distribution."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import betaln
from nnc.scipy.stats.evaluate import Counts, Operands, every
from nnc.typing import ArrayLike

__all__ = ["logpmf", "pmf"]


def _valid(n: Array, a: Array, b: Array) -> Array:
    return every(n >= 0, el.equal(el.floor(n), n), a > 0, b > 0)


def _log_mass(k: Array, n: Array, a: Array, b: Array) -> Array:
    ways = -el.log1p(n) - betaln(n - k + 1, k + 1)
    return ways + betaln(k + a, n - k + b) - betaln(a, b)


def _operands(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        n: trials, a whole number of 0 or more, of any real dtype.
        a: first shape parameter of the beta distribution, above 0.
        b: the second one, above 0.
        loc: shift of the counts.

    Example:
        np.asarray([0, 1, 5]), 4, 2.0, 3.0
    logpmf: log(n! / (k! (n − k)!)) + log(B(k + a, n − k + b) / B(a, b)) for 0 ≤ k ≤ n, −∞ beyond
        [-1.5404451, -1.2527629,       -inf]
    pmf: n! / (k! (n − k)!) · B(k + a, n − k + b) / B(a, b) for 0 ≤ k ≤ n, 0 beyond
        [0.21428572, 0.2857143 , 0.        ]
    """
    return k, n, a, b, loc


_FAMILY = Counts("betabinom", _operands, valid=_valid, upper=lambda n, a, b: n)


logpmf = _FAMILY.make("logpmf", _log_mass)
pmf = _FAMILY.make("pmf", lambda k, n, a, b: el.exp(_log_mass(k, n, a, b)))
