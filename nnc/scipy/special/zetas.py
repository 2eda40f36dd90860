"""Riemann's and Hurwitz's zeta function, and Bernoulli's numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Integral

import numpy as np

from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.rules import check_dtype
from nnc.numpy import elementwise as el
from nnc.numpy.creation import asarray
from nnc.numpy.operands import to_value
from nnc.numpy.reductions import max as max_
from nnc.numpy.special import digamma, lgamma
from nnc.numpy.special import polygamma as nnp_polygamma
from nnc.numpy.wide import in_float64, keep, slope
from nnc.scipy.special.gammas import gamma
from nnc.scipy.special.operands import order_of
from nnc.scipy.special.pieces import sin_pi
from nnc.trace.core.custom import custom_jvp
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike

__all__ = ["bernoulli", "polygamma", "zeta"]

_DIRECT = 12  # terms that are summed before the series in Bernoulli's numbers begins
# B(2j) / (2j)!
_FACTORS = (
    0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07, 2.08767569878681e-08,
    -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13, 8.586062056277845e-15, -2.174868698558062e-16,
    5.5090028283602295e-18, -1.3954464685812522e-19,
)  # fmt: skip


def _power(q: Array, k: Array | int, s: Array) -> Array:
    """(q + k)^-s, with the rounding error of the sum."""
    total = q + k
    lost = (q - (total - k)) + (k - (total - (total - k)))
    return el.power(total, -s) * (1 - s * lost / total)


def _euler_maclaurin(s: Array, q: Array) -> Array:
    """Σ (q + k)^-s over k >= 0 for q > 0 and s > -10 but 1 (DLMF 25.11.43)."""
    head = el.power(q, -s)
    for k in range(1, _DIRECT):
        head = head + _power(q, k, s)
    end = q + _DIRECT
    last = _power(q, _DIRECT, s)
    felt = last > 0
    order, base = keep(felt, s, 2.0), keep(felt, end, 20.0)
    inverse = 1 / base
    rising = order * inverse
    total = 0.5 + base / (order - 1)
    for j, factor in enumerate(_FACTORS, 1):
        total = total + factor * rising
        rising = rising * ((order + (2 * j - 1)) * inverse) * ((order + 2 * j) * inverse)
    return el.where(felt, head + last * total, head)


def _hurwitz_value(s: Array, q: Array) -> Array:
    """For s > 1; below 0 the terms before q + k > 0 are powers of negative numbers, which are real for whole s alone."""
    inside = el.logical_and(el.logical_and(s > 1, s < math.inf), el.logical_and(abs(q) < math.inf, ~_is_pole(q)))
    whole = el.equal(el.floor(s), s)
    negative = el.logical_and(inside, q < 0)
    inside = el.logical_and(inside, el.logical_or(q > 0, whole))
    negative = el.logical_and(negative, whole)
    order, start = keep(inside, s, 2.0), keep(inside, q, 1.0)
    steps = el.where(negative, -el.floor(start), 0.0)
    value = _euler_maclaurin(order, el.where(negative, start + steps, start))
    power, base = keep(negative, order, 2.0), keep(negative, start, -0.5)
    sign = el.where(el.equal(el.remainder(power, 2), 0), 1.0, -1.0)

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        k, total = carry
        taken = k <= steps
        term = sign * el.power(-keep(taken, base + (k - 1), -1.0), -power)
        return k - 1, el.where(taken, total + term, total)

    count = max_(steps)
    _, before = while_loop(lambda carry: carry[0] > 0.5, step, (count, 0 * power))
    value = el.where(negative, value + before, value)
    far = el.where(el.equal(s, math.inf), el.where(q > 1, 0.0, el.where(el.equal(q, 1), 1.0, math.inf)), math.nan)
    far = el.where(el.logical_and(el.equal(q, math.inf), s > 1), 0.0, far)
    far = el.where(el.logical_and(_is_pole(q), s > 1), math.inf, far)
    return el.where(inside, value, el.where(el.equal(s, 1), el.where(el.isnan(q), q, math.inf), far))


def _is_pole(q: Array) -> Array:
    return el.logical_and(q <= 0, el.equal(el.floor(q), q))


@custom_jvp
def _hurwitz(s: Array, q: Array) -> Array:
    return _hurwitz_value(s, q)


_hurwitz.defjvps(
    lambda t, result, s, q: (
        t * el.where(q > 0, slope(_hurwitz_value, s, q), math.nan)
    ),  # defined for whole s alone below 0
    lambda t, result, s, q: -t * s * _hurwitz(s + 1, q),
)


def _riemann(s: Array) -> Array:
    """ζ(s): Euler and Maclaurin's formula, below 0 the functional equation (DLMF 25.4.1), which loses 1 - s near 0."""
    mirrored = s < -0.1
    finite = el.logical_and(abs(s) < math.inf, ~el.equal(s, 1))
    order = keep(finite, el.where(mirrored, 1 - s, s), 2.0)
    value = _euler_maclaurin(order, 0 * order + 1)
    at = keep(el.logical_and(mirrored, finite), s, -1.0)
    sine = sin_pi(0.5 * at)
    deep = at < -160  # where Γ is infinite
    near, below = keep(~deep, at, -1.0), keep(deep, at, -161.0)
    half = el.power(2 * math.pi, 0.5 * near)
    size = el.where(deep, el.exp(lgamma(1 - below) + below * math.log(2 * math.pi)), gamma(1 - near) * half * half)
    reflected = size / math.pi * sine * value
    outside = el.where(el.equal(s, 1), math.inf, el.where(el.equal(s, math.inf), 1.0, math.nan))
    return el.where(finite, el.where(mirrored, reflected, value), outside)


@spelled
def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Returns Hurwitz's zeta function, Σ (q + k)^(-x) over k >= 0; without `q` Riemann's, with its continuation below 1.

    Differentiable in both operands. Errors were below 10 units in the last place for positive `q`.

    Args:
        x: the exponent, any shape; broadcasts with `q`. Integers become float32. Below 1 NaN, except for Riemann's.
        q: any shape; 1 by default. Infinite at 0 and negative integers; below 0 NaN unless `x` is whole.

    Example:
        >>> zeta(np.asarray([2.0, -1.0])), zeta(2.0, np.asarray([0.5, 10.0]))
        (Array([ 1.64493407, -0.08333333], dtype=float64), Array([4.9348022 , 0.10516634], dtype=float64))
    """
    return in_float64("zeta", _riemann, x) if q is None else in_float64("zeta", _hurwitz, x, q)


@custom_jvp
def _polygamma(n: Array, x: Array) -> Array:
    """(-1)^(n + 1) n! ζ(n + 1, x); digamma for n = 0."""
    first = el.equal(n, 0)
    order = keep(n > 0, n, 1.0)
    sign = el.where(el.equal(el.remainder(order, 2), 0), -1.0, 1.0)
    value = el.where(first, digamma(x), sign * gamma(order + 1) * zeta(order + 1, x))
    return el.where(n < 0, math.nan, value)


_polygamma.defjvps(None, lambda t, result, n, x: t * _polygamma(n + 1, x))


@spelled
def polygamma(n: ArrayLike, x: ArrayLike, /) -> Array:
    """Returns the derivative of order n of `digamma`, which is derivative n + 1 of `gammaln`.

    Args:
        n: integers of 0 or more, any shape; broadcasts with `x`. NaN for negative ones in an array.
        x: real, any shape; integers become float32.

    Raises:
        ArgumentError: n is one negative integer.
        DTypeError: n holds no integers.

    Example:
        >>> polygamma(np.asarray([0, 1]), 1.0)
        Array([-0.5772157,  1.644934 ], dtype=float32)
    """
    if isinstance(n, Integral):
        return nnp_polygamma(int(n), x)
    order = to_value(n, "polygamma", "n")
    check_dtype("polygamma", order.spec, dtypes.is_integer, "integers", "n")
    return in_float64("polygamma", _polygamma, order, x)


@spelled
def bernoulli(n: int) -> Array:
    """Returns Bernoulli's numbers B0 to Bn, with B1 = -½.

    Args:
        n: an integer of 0 or more, static.

    Returns:
        (n + 1,) float32, computed exactly and rounded once; infinite where they exceed float32.

    Raises:
        ArgumentError: n is negative.

    Example:
        >>> bernoulli(4)
        Array([ 1.        , -0.5       ,  0.16666667,  0.        , -0.03333334], dtype=float32)
    """
    numbers = [Fraction(1)]
    for m in range(1, order_of("bernoulli", n) + 1):  # the sum of binomial(m + 1, k) · B(k) is 0
        odd = m > 1 and m % 2
        total = sum((math.comb(m + 1, k) * b for k, b in enumerate(numbers) if b), start=Fraction(0))
        numbers.append(Fraction(0) if odd else -total / (m + 1))
    return asarray(np.asarray([_to_float(b) for b in numbers], np.float32))


def _to_float(x: Fraction) -> float:
    return float(x) if abs(x) < 2**128 - 2**103 else math.copysign(math.inf, x)
