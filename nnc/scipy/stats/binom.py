"""The binomial distribution, of the number of successes among n trials."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import betainc, betaincc, xlog1py, xlogy
from nnc.scipy.stats.deviances import log_binomial
from nnc.scipy.stats.evaluate import Counts, every
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


_FAMILY = Counts("binom", _valid, upper=lambda n, p: n)


@spelled
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the logarithm of the probability of a count.

    log(n! / (k! (n − k)!)) + k log(p) + (n − k) log(1 − p) for 0 ≤ k ≤ n, −∞ beyond.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: trials, a whole number of 0 or more, of any real dtype.
        p: probability of a success, in [0, 1].
        loc: shift of the counts.

    Example:
        >>> logpmf(np.asarray([0, 1, 5]), 4, 0.25)
        Array([-1.1507283, -0.8630462,       -inf], dtype=float32)
    """
    return _FAMILY.logpmf(_log_mass, k, n, p, loc)


@spelled
def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of a count: n! / (k! (n − k)!) · pᵏ (1 − p)ⁿ⁻ᵏ for 0 ≤ k ≤ n, 0 beyond.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: trials, a whole number of 0 or more, of any real dtype.
        p: probability of a success, in [0, 1].
        loc: shift of the counts.

    Example:
        >>> pmf(np.asarray([0, 1, 5]), 4, 0.25)
        Array([0.31640625, 0.421875  , 0.        ], dtype=float32)
    """
    return _FAMILY.pmf(lambda k, n, p: el.exp(_log_mass(k, n, p)), k, n, p, loc)


@spelled
def cdf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of numbers up to x: 1 less the incomplete beta function of ⌊k⌋ + 1, n − ⌊k⌋ and p for 0 ≤ k < n.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: trials, a whole number of 0 or more, of any real dtype.
        p: probability of a success, in [0, 1].
        loc: shift of the counts.

    Example:
        >>> cdf(np.asarray([0, 1, 5]), 4, 0.25)
        Array([0.31640625, 0.73828125, 1.        ], dtype=float32)
    """
    return _FAMILY.cdf(lambda k, n, p: betaincc(k + 1, _rest(k, n), p), k, n, p, loc)


@spelled
def sf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation.

    the incomplete beta function of ⌊k⌋ + 1, n − ⌊k⌋ and p for 0 ≤ k < n.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: trials, a whole number of 0 or more, of any real dtype.
        p: probability of a success, in [0, 1].
        loc: shift of the counts.

    Example:
        >>> sf(np.asarray([0, 1, 5]), 4, 0.25)
        Array([0.68359375, 0.26171875, 0.        ], dtype=float32)
    """
    return _FAMILY.sf(lambda k, n, p: betainc(k + 1, _rest(k, n), p), k, n, p, loc)


def __dir__() -> list[str]:
    return sorted(__all__)
