"""Poisson's distribution, of the number of events at a constant rate."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.numpy import reductions as red
from nnc.numpy.creation import arange
from nnc.scipy.special import gammainc, gammaincc, gammaln, xlogy
from nnc.scipy.stats.deviances import log_poisson
from nnc.scipy.stats.evaluate import Counts, Operands, every, read
from nnc.typing import ArrayLike

__all__ = ["cdf", "entropy", "logpmf", "pmf", "sf"]


def _log_mass(k: Array, mu: Array) -> Array:
    large = k > 10
    small, count = el.where(large, 1, k), el.where(large, k, 10)
    return el.where(large, log_poisson(count, mu), xlogy(small, mu) - gammaln(small + 1) - mu)


_MANY = 60  # mean from which the entropy's series is exact to 1e-15
_TERMS = 160  # of the sum for smaller means; 12 standard deviations and more
_SERIES = (  # of negative powers of the mean
    -1 / 12, -1 / 24, -19 / 360, -9 / 80, -863 / 2520, -1375 / 1008, -33953 / 5040, -57281 / 1440, -3250433 / 11880,
    -378351 / 176,
)  # fmt: skip


def _operands(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        mu: mean, 0 or above.
        loc: shift of the counts.

    Example:
        np.asarray([0, 1, 2]), 1.5
    logpmf: k log(μ) − μ − log(k!) for k ≥ 0, −∞ below
        [-1.5      , -1.0945349, -1.3822169]
    pmf: μᵏ exp(−μ) / k! for k ≥ 0, 0 below
        [0.22313017, 0.33469525, 0.25102144]
    cdf: the incomplete gamma function Q(⌊k⌋ + 1, μ) for k ≥ 0, 0 below
        [0.22313017, 0.5578254 , 0.80884683]
    sf: the incomplete gamma function P(⌊k⌋ + 1, μ) for k ≥ 0, 1 below
        [0.77686983, 0.4421746 , 0.19115317]
    """
    return k, mu, loc


_FAMILY = Counts("poisson", _operands, valid=lambda mu: mu >= 0)


logpmf = _FAMILY.make("logpmf", _log_mass)
pmf = _FAMILY.make("pmf", lambda k, mu: el.exp(_log_mass(k, mu)))
cdf = _FAMILY.make("cdf", lambda k, mu: gammaincc(k + 1, mu))
sf = _FAMILY.make("sf", lambda k, mu: gammainc(k + 1, mu))


@spelled
def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Returns the entropy −Σₖ pmf(k) log(pmf(k)), in nats.

    The sum is taken where the mean is below 60; above, its asymptotic series (Evans and Boersma, 1988).

    Args:
        mu: mean, 0 or above, any shape; broadcasts with loc.
        loc: shift of the counts, on which the entropy does not depend.

    Example:
        >>> entropy(np.asarray([0.0, 1.5]))
        Array([0.        , 1.53940465], dtype=float64)
    """
    (mu, loc), finish = read("poisson.entropy", (mu, loc), wide=True)
    mu = mu + 0 * loc
    some, many = every(mu > 0, mu < _MANY), mu >= _MANY
    few = el.where(some, mu, 1)[..., None]
    log_mass = _log_mass(arange(_TERMS, dtype=mu.spec.dtype), few)
    entropy_of_few = -red.sum(el.exp(log_mass) * log_mass, axis=-1)
    rate = el.where(many, mu, _MANY)
    series = 0 * rate
    for coefficient in reversed(_SERIES):
        series = (series + coefficient) / rate
    entropy_of_many = el.log(2 * math.pi * math.e * rate) / 2 + series
    result = el.where(some, entropy_of_few, el.where(many, entropy_of_many, el.where(el.equal(mu, 0), 0, math.nan)))
    return finish(result)
