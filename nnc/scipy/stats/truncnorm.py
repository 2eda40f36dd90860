"""The normal distribution, given that the number lies in an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.scipy.special import log_ndtr, ndtr
from nnc.scipy.stats.evaluate import Continuous, Support, log1mexp
from nnc.typing import ArrayLike

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


@dataclass(frozen=True)
class _Interval(Support):
    """The interval from a to b.

    Args:
        ends: whether they belong to it.
    """

    ends: bool = True

    def within(self, *shapes: Array) -> Array:
        """The middle of the interval, or a number that is 1 from its finite end."""
        a, b = shapes
        has_a, has_b = a > -math.inf, b < math.inf
        finite_a, finite_b = el.where(has_a, a, 0), el.where(has_b, b, 0)
        middle = (finite_a + finite_b) / 2
        return el.where(has_a, el.where(has_b, middle, finite_a + 1), el.where(has_b, finite_b - 1, 0))

    def outside(self, y: Array, *shapes: Array) -> tuple[Array, Array]:
        """Whether numbers lie below, and whether they lie above."""
        a, b = shapes
        below, above = (y < a, y > b) if self.ends else (y <= a, y >= b)
        return el.logical_or(below, el.equal(y, -math.inf)), el.logical_or(above, el.equal(y, math.inf))


def _valid(a: Array, b: Array) -> Array:
    return a < b


def _log_mass(a: Array, b: Array) -> Array:
    """log(Φ(b) − Φ(a)), from the tail in which a and b lie, or from both where 0 lies between them."""
    central = el.logical_and(a <= 0, b > 0)
    right = a > 0
    lower = el.where(central, -2, el.where(right, -b, a))
    upper = log_ndtr(el.where(central, -1, el.where(right, -a, b)))
    unbounded = el.equal(lower, -math.inf)
    gap = upper - log_ndtr(el.where(unbounded, -1, lower))
    tail = upper + el.where(unbounded, 0, log1mexp(el.where(unbounded, 1, gap)))
    return el.where(central, el.log1p(-_ndtr(el.where(central, a, -1)) - _ndtr(-el.where(central, b, 1))), tail)


def _ndtr(y: Array) -> Array:
    """Φ(y) for y ≤ 0, with the derivative 0 at −∞."""
    unbounded = el.equal(y, -math.inf)
    return el.where(unbounded, 0, ndtr(el.where(unbounded, -1, y)))


def _log_density(y: Array, a: Array, b: Array) -> Array:
    return -el.square(y) / 2 - math.log(2 * math.pi) / 2 - _log_mass(a, b)


def _cdf(y: Array, a: Array, b: Array) -> Array:
    return el.exp(_log_mass(a, y) - _log_mass(a, b))


def _log_cdf(y: Array, a: Array, b: Array) -> Array:
    whole = _log_mass(a, b)
    result = _log_mass(a, y) - whole
    near_1 = result > -0.5
    above = el.where(near_1, _log_mass(y, b) - whole, -1)
    return el.where(near_1, el.log1p(-el.exp(above)), result)


_FAMILY = Continuous("truncnorm", _Interval(), _valid, wide=True)
_INSIDE = Continuous("truncnorm", _Interval(ends=False), _valid, wide=True)  # whose ends have derivatives of 0


@spelled
def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of the density: −y² / 2 − log(√(2π) (Φ(b) − Φ(a)) scale) for a ≤ y ≤ b, −∞ beyond.

    Here y = (x − loc) / scale, and Φ is the cdf of the normal distribution.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: lower end of y, or −∞.
        b: upper end of y, above a, or ∞.
        loc: mean before truncation.
        scale: standard deviation before truncation, above 0.

    Example:
        >>> logpdf(np.asarray([-1.0, 0.5]), -0.5, 2.0)
        Array([       -inf, -0.64153722], dtype=float64)
    """
    return _FAMILY.logpdf(_log_density, x, a, b, loc, scale)


@spelled
def pdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the density: exp(−y² / 2) / (√(2π) (Φ(b) − Φ(a)) scale) for a ≤ y ≤ b, 0 beyond.

    Here y = (x − loc) / scale, and Φ is the cdf of the normal distribution.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: lower end of y, or −∞.
        b: upper end of y, above a, or ∞.
        loc: mean before truncation.
        scale: standard deviation before truncation, above 0.

    Example:
        >>> pdf(np.asarray([-1.0, 0.5]), -0.5, 2.0)
        Array([0.        , 0.52648248], dtype=float64)
    """
    return _FAMILY.pdf(lambda y, a, b: el.exp(_log_density(y, a, b)), x, a, b, loc, scale)


@spelled
def logcdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `cdf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: lower end of y, or −∞.
        b: upper end of y, above a, or ∞.
        loc: mean before truncation.
        scale: standard deviation before truncation, above 0.

    Example:
        >>> logcdf(np.asarray([-1.0, 0.5]), -0.5, 2.0)
        Array([       -inf, -0.55751502], dtype=float64)
    """
    return _INSIDE.logcdf(_log_cdf, x, a, b, loc, scale)


@spelled
def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers up to x: (Φ(y) − Φ(a)) / (Φ(b) − Φ(a)) for a ≤ y ≤ b.

    Here y = (x − loc) / scale, and Φ is the cdf of the normal distribution.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: lower end of y, or −∞.
        b: upper end of y, above a, or ∞.
        loc: mean before truncation.
        scale: standard deviation before truncation, above 0.

    Example:
        >>> cdf(np.asarray([-1.0, 0.5]), -0.5, 2.0)
        Array([0.        , 0.57263027], dtype=float64)
    """
    return _INSIDE.cdf(_cdf, x, a, b, loc, scale)


@spelled
def logsf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the logarithm of `sf`, exact in both tails.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: lower end of y, or −∞.
        b: upper end of y, above a, or ∞.
        loc: mean before truncation.
        scale: standard deviation before truncation, above 0.

    Example:
        >>> logsf(np.asarray([-1.0, 0.5]), -0.5, 2.0)
        Array([ 0.        , -0.85010577], dtype=float64)
    """
    return _INSIDE.logsf(lambda y, a, b: _log_cdf(-y, -b, -a), x, a, b, loc, scale)


@spelled
def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Returns the probability of numbers above x, 1 − cdf without cancellation: (Φ(b) − Φ(y)) / (Φ(b) − Φ(a)) for a ≤ y ≤ b.

    Here y = (x − loc) / scale, and Φ is the cdf of the normal distribution.

    Args:
        x: real, any shape; broadcasts with the parameters.
        a: lower end of y, or −∞.
        b: upper end of y, above a, or ∞.
        loc: mean before truncation.
        scale: standard deviation before truncation, above 0.

    Example:
        >>> sf(np.asarray([-1.0, 0.5]), -0.5, 2.0)
        Array([1.        , 0.42736973], dtype=float64)
    """
    return _INSIDE.sf(lambda y, a, b: _cdf(-y, -b, -a), x, a, b, loc, scale)


def __dir__() -> list[str]:
    return sorted(__all__)
