"""Bernoulli's distribution: 1 with probability p, else 0."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import xlog1py, xlogy
from nnc.scipy.stats.evaluate import Counts, every
from nnc.typing import ArrayLike

__all__ = ["cdf", "logpmf", "pmf", "ppf", "sf"]


def _valid(p: Array) -> Array:
    return every(p >= 0, p <= 1)


_FAMILY = Counts("bernoulli", _valid, upper=lambda p: 1.0, wide=False)


@spelled
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the logarithm of the probability of a count: k log(p) + (1 − k) log(1 − p) for k − loc of 0 and 1, else −∞.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of 1, in [0, 1].
        loc: shift of the counts.

    Example:
        >>> logpmf(np.asarray([0, 1, 2]), 0.25)
        Array([-0.28768206, -1.3862944 ,        -inf], dtype=float32)
    """
    return _FAMILY.logpmf(lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p), k, p, loc)


@spelled
def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of a count: p at 1, 1 − p at 0.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of 1, in [0, 1].
        loc: shift of the counts.

    Example:
        >>> pmf(np.asarray([0, 1, 2]), 0.25)
        Array([0.75, 0.25, 0.  ], dtype=float32)
    """
    return _FAMILY.pmf(lambda k, p: el.where(k > 0, p, 1 - p), k, p, loc)


@spelled
def cdf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of numbers up to x: 0 below 0, 1 − p below 1, else 1.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of 1, in [0, 1].
        loc: shift of the counts.

    Example:
        >>> cdf(np.asarray([0, 1, 2]), 0.25)
        Array([0.75, 1.  , 1.  ], dtype=float32)
    """
    return _FAMILY.cdf(lambda k, p: 1 - p + 0 * k, k, p, loc)


@spelled
def sf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: 1 below 0, p below 1, else 0.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of 1, in [0, 1].
        loc: shift of the counts.

    Example:
        >>> sf(np.asarray([0, 1, 2]), 0.25)
        Array([0.25, 0.  , 0.  ], dtype=float32)
    """
    return _FAMILY.sf(lambda k, p: p + 0 * k, k, p, loc)


@spelled
def ppf(q: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: 0 up to 1 − p, else 1.

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        p: probability of 1, in [0, 1].
        loc: shift of the counts.

    Example:
        >>> ppf(np.asarray([0.5, 0.875]), 0.25)
        Array([0., 1.], dtype=float64)
    """
    return _FAMILY.ppf(lambda q, p: el.where(q <= 1 - p, 0.0, 1.0), q, p, loc)


def __dir__() -> list[str]:
    return sorted(__all__)
