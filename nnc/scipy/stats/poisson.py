"""Poisson's distribution, of the number of events at a constant rate."""

from __future__ import annotations

from nnc.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import gammaln, xlogy
from nnc.scipy.stats.evaluate import Counts
from nnc.spelling import spelled
from nnc.typing import ArrayLike

__all__ = ["logpmf", "pmf"]


def _valid(mu: Array) -> Array:
    return mu >= 0


def _log_mass(k: Array, mu: Array) -> Array:
    return xlogy(k, mu) - gammaln(k + 1) - mu


_FAMILY = Counts("poisson", _valid)


@spelled
def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the logarithm of the probability of a count: k log(μ) − μ − log(k!) for k ≥ 0, −∞ below.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        mu: mean, 0 or above.
        loc: shift of the counts.

    Example:
        >>> logpmf(np.asarray([0, 1, 2]), 1.5)
        Array([-1.5      , -1.0945349, -1.3822169], dtype=float32)
    """
    return _FAMILY.logpmf(_log_mass, k, mu, loc)


@spelled
def pmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the probability of a count: μᵏ exp(−μ) / k! for k ≥ 0, 0 below.

    Args:
        k: counts, of any real dtype and shape; broadcasts with the parameters.
        mu: mean, 0 or above.
        loc: shift of the counts.

    Example:
        >>> pmf(np.asarray([0, 1, 2]), 1.5)
        Array([0.22313017, 0.33469525, 0.25102144], dtype=float32)
    """
    return _FAMILY.pmf(lambda k, mu: el.exp(_log_mass(k, mu)), k, mu, loc)


def __dir__() -> list[str]:
    return sorted(__all__)
