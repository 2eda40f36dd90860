"""The normal distribution, given that the number lies in an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.scipy.special import log_ndtr, ndtr
from nnc.scipy.stats.evaluate import Continuous, Operands, Support, log1mexp
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
        """Returns the middle of the interval, or a number that is 1 from its finite end."""
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


def _operands(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Operands:
    """Returns the operands. The docstrings of the functions below are made of this one.

    Args:
        a: lower end of y, or −∞.
        b: upper end of y, above a, or ∞.
        loc: mean before truncation.
        scale: standard deviation before truncation, above 0.

    Example:
        np.asarray([-1.0, 0.5]), -0.5, 2.0
    logpdf: −y² / 2 − log(√(2π) (Φ(b) − Φ(a)) scale) for a ≤ y ≤ b, −∞ beyond; Φ is `norm.cdf`
        [       -inf, -0.64153722]
    pdf: exp(−y² / 2) / (√(2π) (Φ(b) − Φ(a)) scale) for a ≤ y ≤ b, 0 beyond; Φ is `norm.cdf`
        [0.        , 0.52648248]
    logcdf:
        [       -inf, -0.55751502]
    cdf: (Φ(y) − Φ(a)) / (Φ(b) − Φ(a)) for a ≤ y ≤ b; Φ is `norm.cdf`
        [0.        , 0.57263027]
    logsf:
        [ 0.        , -0.85010577]
    sf: (Φ(b) − Φ(y)) / (Φ(b) − Φ(a)) for a ≤ y ≤ b; Φ is `norm.cdf`
        [1.        , 0.42736973]
    """
    return x, a, b, loc, scale


_FAMILY = Continuous("truncnorm", _operands, support=_Interval(), valid=lambda a, b: a < b, wide=True)
_INSIDE = replace(_FAMILY, support=_Interval(ends=False))  # whose ends have derivatives of 0


logpdf = _FAMILY.make("logpdf", _log_density)
pdf = _FAMILY.make("pdf", lambda y, a, b: el.exp(_log_density(y, a, b)))
logcdf = _INSIDE.make("logcdf", _log_cdf)
cdf = _INSIDE.make("cdf", _cdf)
logsf = _INSIDE.make("logsf", lambda y, a, b: _log_cdf(-y, -b, -a))
sf = _INSIDE.make("sf", lambda y, a, b: _cdf(-y, -b, -a))
