"""The geometric distribution, of the number of trials up to the first success."""

from __future__ import annotations

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import xlog1py
from nnc.scipy.stats.evaluate import Counts, every, log1mexp
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpmf", "logsf", "pmf", "ppf", "sf"]


def _valid(p: Array) -> Array:
    return every(p > 0, p <= 1)


def _log_mass(k: Array, p: Array) -> Array:
    return xlog1py(k - 1, -p) + el.log(p)


def _ppf(q: Array, p: Array) -> Array:
    """The least count whose cdf is q; the one before where the quotient was rounded up."""
    k = el.maximum(el.ceil(el.log1p(-q) / el.log1p(-p)), 1)
    before = -el.expm1((k - 1) * el.log1p(-p))
    return el.where(el.logical_and(k > 1, before >= q), k - 1, k)


_FAMILY = Counts("geom", _valid, lower=1)


@spelled
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the logarithm of the probability of a count: (k − 1) log(1 − p) + log(p) for k ≥ 1, −∞ below.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> logpmf(np.asarray([0, 1, 2]), 0.25)
        Array([      -inf, -1.3862944, -1.6739764], dtype=float32)
    """
    return _FAMILY.logpmf(_log_mass, k, p, loc)


@spelled
def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of a count: (1 − p)ᵏ⁻¹ p for k ≥ 1, 0 below.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> pmf(np.asarray([0, 1, 2]), 0.25)
        Array([0.    , 0.25  , 0.1875], dtype=float32)
    """
    return _FAMILY.pmf(lambda k, p: el.exp(_log_mass(k, p)), k, p, loc)


@spelled
def logcdf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> logcdf(np.asarray([0, 1, 2]), 0.25)
        Array([      -inf, -1.3862944, -0.8266786], dtype=float32)
    """
    return _FAMILY.logcdf(lambda k, p: log1mexp(-k * el.log1p(-p)), k, p, loc)


@spelled
def cdf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of numbers up to x: 1 − (1 − p)ᵏ.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> cdf(np.asarray([0, 1, 2]), 0.25)
        Array([0.    , 0.25  , 0.4375], dtype=float32)
    """
    return _FAMILY.cdf(lambda k, p: -el.expm1(k * el.log1p(-p)), k, p, loc)


@spelled
def logsf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> logsf(np.asarray([0, 1, 2]), 0.25)
        Array([ 0.       , -0.2876821, -0.5753642], dtype=float32)
    """
    return _FAMILY.logsf(lambda k, p: k * el.log1p(-p), k, p, loc)


@spelled
def sf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: (1 − p)ᵏ.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> sf(np.asarray([0, 1, 2]), 0.25)
        Array([1.    , 0.75  , 0.5625], dtype=float32)
    """
    return _FAMILY.sf(lambda k, p: el.exp(k * el.log1p(-p)), k, p, loc)


@spelled
def ppf(q: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the number up to which lies the probability q, the inverse of `cdf`: ⌈log(1 − q) / log(1 − p)⌉.

    Args:
        q: probabilities in [0, 1], any shape; broadcasts with the parameters. Beyond, the result is NaN.
        p: probability of a success, above 0 and up to 1.
        loc: shift of the counts.

    Example:
        >>> ppf(np.asarray([0.5, 0.875]), 0.25)
        Array([3., 8.], dtype=float64)
    """
    return _FAMILY.ppf(_ppf, q, p, loc)


def __dir__() -> list[str]:
    return sorted(__all__)
