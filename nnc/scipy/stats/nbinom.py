"""The negative binomial distribution, of the number of failures before the n-th success."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import betainc, betaincc
from nnc.scipy.stats.deviances import log_binomial
from nnc.scipy.stats.evaluate import Counts, every
from nnc.typing import ArrayLike

__all__ = ["cdf", "logpmf", "pmf", "sf"]


def _valid(n: Array, p: Array) -> Array:
    return every(n > 0, p > 0, p <= 1)


def _log_mass(k: Array, n: Array, p: Array) -> Array:
    """The probability of n successes among n + k trials, times n / (n + k), as the last one is a success."""
    some = k > 0
    failures = el.where(some, k, 1)
    result = log_binomial(n, failures, p) - el.log1p(failures / n)
    return el.where(some, result, n * el.log(p))


_FAMILY = Counts("nbinom", _valid)


@spelled
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the logarithm of the probability of a count.

    log(Γ(k + n) / (k! Γ(n))) + n log(p) + k log(1 − p) for k ≥ 0, −∞ below.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: successes, above 0, not only whole numbers.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> logpmf(np.asarray([0, 1, 5]), 4, 0.25)
        Array([-5.5451775, -4.446565 , -2.9582362], dtype=float32)
    """
    return _FAMILY.logpmf(_log_mass, k, n, p, loc)


@spelled
def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of a count: Γ(k + n) / (k! Γ(n)) · pⁿ (1 − p)ᵏ for k ≥ 0, 0 below.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: successes, above 0, not only whole numbers.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> pmf(np.asarray([0, 1, 5]), 4, 0.25)
        Array([0.00390625, 0.01171875, 0.0519104 ], dtype=float32)
    """
    return _FAMILY.pmf(lambda k, n, p: el.exp(_log_mass(k, n, p)), k, n, p, loc)


@spelled
def cdf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of numbers up to x: the incomplete beta function of n, ⌊k⌋ + 1 and p for k ≥ 0.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: successes, above 0, not only whole numbers.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> cdf(np.asarray([0, 1, 5]), 4, 0.25)
        Array([0.00390625, 0.015625  , 0.16572571], dtype=float32)
    """
    return _FAMILY.cdf(lambda k, n, p: betainc(n, k + 1, p), k, n, p, loc)


@spelled
def sf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation.

    1 less the incomplete beta function of n, ⌊k⌋ + 1 and p for k ≥ 0.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        n: successes, above 0, not only whole numbers.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> sf(np.asarray([0, 1, 5]), 4, 0.25)
        Array([0.99609375, 0.984375  , 0.8342743 ], dtype=float32)
    """
    return _FAMILY.sf(lambda k, n, p: betaincc(n, k + 1, p), k, n, p, loc)


def __dir__() -> list[str]:
    return sorted(__all__)
