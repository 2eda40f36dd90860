"""The binomial distribution with a probability of success that has a beta distribution."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import betaln
from nnc.scipy.stats.evaluate import Counts, every
from nnc.typing import ArrayLike

__all__ = ["logpmf", "pmf"]


def _valid(n: Array, a: Array, b: Array) -> Array:
    return every(n >= 0, el.equal(el.floor(n), n), a > 0, b > 0)


def _log_mass(k: Array, n: Array, a: Array, b: Array) -> Array:
    ways = -el.log1p(n) - betaln(n - k + 1, k + 1)
    return ways + betaln(k + a, n - k + b) - betaln(a, b)


_FAMILY = Counts("betabinom", _valid, upper=lambda n, a, b: n)


@spelled
def logpmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the logarithm of the probability of a count.

    log(n! / (k! (n − k)!)) + log(B(k + a, n − k + b) / B(a, b)) for 0 ≤ k ≤ n, −∞ beyond.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: trials, a whole number of 0 or more, of any real dtype.
        a: first shape parameter of the beta distribution, above 0.
        b: the second one, above 0.
        loc: shift of the counts.

    Example:
        >>> logpmf(np.asarray([0, 1, 5]), 4, 2.0, 3.0)
        Array([-1.5404451, -1.2527629,       -inf], dtype=float32)
    """
    return _FAMILY.logpmf(_log_mass, k, n, a, b, loc)


@spelled
def pmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of a count: n! / (k! (n − k)!) · B(k + a, n − k + b) / B(a, b) for 0 ≤ k ≤ n, 0 beyond.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: trials, a whole number of 0 or more, of any real dtype.
        a: first shape parameter of the beta distribution, above 0.
        b: the second one, above 0.
        loc: shift of the counts.

    Example:
        >>> pmf(np.asarray([0, 1, 5]), 4, 2.0, 3.0)
        Array([0.21428572, 0.2857143 , 0.        ], dtype=float32)
    """
    return _FAMILY.pmf(lambda k, n, a, b: el.exp(_log_mass(k, n, a, b)), k, n, a, b, loc)


def __dir__() -> list[str]:
    return sorted(__all__)
