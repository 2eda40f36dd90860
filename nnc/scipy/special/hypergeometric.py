"""Hypergeometric functions: Kummer's confluent one, and Gauss's."""

from __future__ import annotations

import math
from collections.abc import Callable

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import stop_gradient
from nnc.numpy import elementwise as el
from nnc.numpy.reductions import any as any_
from nnc.numpy.reductions import max as max_
from nnc.numpy.special import gammaln
from nnc.numpy.wide import in_float64, keep, slope
from nnc.scipy.special.gammas import gammasgn
from nnc.trace.core.custom import custom_jvp
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike

__all__ = ["hyp1f1", "hyp2f1"]

_FAR = 600.0  # below -600 e^x M(b - a, b, -x) has no floats left
_MOST = 4000  # terms
_TAYLOR = 60  # terms, where each is half the last one
_SMALL = 1e-20  # of the sum; the derivatives' terms are not much larger


def _sum(a: Array, ratio: Callable[[Array], Array], bound: Callable[[Array], Array], least: Array) -> Array:
    """1 + r(0) + r(0) r(1) + …, of at least so many terms.

    Terms end with a factor 0, their derivatives do not: the bounds of both, in which no factor is 0, tell when to stop.
    """

    def unfinished(carry: tuple[Array, ...]) -> Array:
        k, size, _, total = carry
        return el.logical_and(k < _MOST, any_(el.logical_or(size > _SMALL * abs(stop_gradient(total)), k < least)))

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        k, size, term, total = carry
        term = term * ratio(k)
        return k + 1, size * stop_gradient(bound(k)), term, total + term

    one = 0 * a + 1
    return while_loop(unfinished, step, (0.0 * max_(a), stop_gradient(one), one, one))[-1]


def _at_least_one(x: Array) -> Array:
    return el.maximum(abs(x), 1.0)


def _series(a: Array, b: Array, x: Array) -> Array:
    """Σ (a)ₖ / (b)ₖ xᵏ / k! (DLMF 13.2.2)."""
    return _sum(
        a,
        lambda k: (a + k) / (b + k) * (x / (k + 1)),
        lambda k: _at_least_one(a + k) / abs(b + k) * (abs(x) / (k + 1)),
        2 - b,
    )


def _far(a: Array, b: Array, x: Array) -> Array:
    """Γ(b) / Γ(b - a) (-x)^-a Σ (a)ₖ (a - b + 1)ₖ / k! (-x)^-k for x far below 0 (DLMF 13.7.2)."""
    inverse = -1 / x
    term = total = 0 * x + 1
    for k in range(40):
        following = term * ((a + k) * (a - b + 1 + k) / (k + 1) * inverse)
        term = el.where(abs(following) < abs(term), following, 0.0)
        total = total + term
    factor = gammasgn(b) * gammasgn(b - a) * el.exp(gammaln(b) - gammaln(b - a) - a * el.log(-x))
    return factor * total


def _value(a: Array, b: Array, x: Array) -> Array:
    pole = el.logical_and(b <= 0, el.equal(el.floor(b), b))
    finite = el.logical_and(el.logical_and(abs(a) < math.inf, abs(b) < math.inf), abs(x) < math.inf)
    inside = el.logical_and(finite, ~pole)
    c, d, z = keep(inside, a, 1.0), keep(inside, b, 1.0), keep(inside, x, 0.0)
    reached = el.logical_and(el.logical_and(z < 0, c > z), ~_is_pole(c))  # where the terms of the series alternate
    far = el.logical_and(el.logical_and(z < -_FAR, reached), ~_is_pole(d - c))
    turned = el.logical_and(reached, ~far)  # M(a, b, x) = e^x M(b - a, b, -x)
    near = keep(~far, z, 0.0)
    value = _series(el.where(turned, d - c, c), d, el.where(turned, -near, near))
    value = el.where(turned, el.exp(keep(turned, near, 0.0)) * value, value)
    value = el.where(far, _far(keep(far, c, 1.0), keep(far, d, 2.0), keep(far, z, -_FAR)), value)
    return el.where(inside, value, el.where(el.logical_and(pole, finite), math.inf, math.nan))


@custom_jvp
def _hyp1f1(a: Array, b: Array, x: Array) -> Array:
    return _value(a, b, x)


_hyp1f1.defjvps(
    lambda t, result, a, b, x: t * slope(_value, a, b, x),
    lambda t, result, a, b, x: t * slope(_value, a, b, x, by=1),
    lambda t, result, a, b, x: t * (a / b) * _hyp1f1(a + 1, b + 1, x),
)


@spelled
def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Array:
    """Returns Kummer's confluent hypergeometric function M(a, b, x), the sum of (a)ₖ / (b)ₖ · xᵏ / k!.

    Differentiable in all operands. The sum of its power series, where needed by Kummer's transformation: errors are relative to
    the largest term, so digits are lost where a or b - a is far below 0 and terms cancel.

    Args:
        a: real, any shape; broadcasts with `b` and `x`. Integers become float32.
        b: real, any shape; the result is infinite for 0 and negative integers.
        x: real, any shape; finite.

    Example:
        >>> hyp1f1(1.0, 2.0, np.asarray([-1.0, 1.0]))
        Array([0.63212056, 1.71828183], dtype=float64)
    """
    return in_float64("hyp1f1", _hyp1f1, a, b, x)


def _taylor(a: Array, b: Array, c: Array, gap: Array, h: Array, value: Array, slope_: Array) -> tuple[Array, Array]:
    """F and F' at 1 - gap + h, from those at 1 - gap, by Taylor's series of the differential equation (DLMF 15.10.1)."""
    base = (1 - gap) * gap
    first = c - (a + b + 1) * (1 - gap)

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        n, here, following, total, derivative = carry
        later = (n + a) * (n + b) * h * here - (n + 1) * ((2 * gap - 1) * n + first) * following
        later = later * h / (base * (n + 2) * (n + 1))
        return n + 1, following, later, total + following, derivative + (n + 1) * following

    safe = el.where(el.equal(h, 0), 1.0, h)
    _, _, _, total, derivative = while_loop(
        lambda carry: carry[0] < _TAYLOR, step, (0 * max_(h), value, slope_ * h, value, 0 * value)
    )
    return total, el.where(el.equal(h, 0), slope_, derivative / safe)


def _gauss_below_one(a: Array, b: Array, c: Array, x: Array, gap: Array) -> Array:
    """F(a, b; c; x) for 0 <= x < 1, where gap is 1 - x: the power series up to ¾, then steps that halve the gap."""
    far = x > 0.75
    start = el.where(far, 0.5, x)
    value = _gauss_series(a, b, c, start)
    slope_ = a * b / c * _gauss_series(a + 1, b + 1, c + 1, keep(far, start, 0.0))

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        here, value, slope_ = carry
        following = el.where(0.5 * here > gap, 0.5 * here, gap)
        moving = el.logical_and(far, here > gap)
        value, slope_ = _taylor(a, b, c, here, keep(moving, here - following, 0.0), value, slope_)
        return el.where(moving, following, here), value, slope_

    begun = (0 * x + 0.5, value, slope_)
    _, value, _ = while_loop(lambda carry: any_(el.logical_and(far, carry[0] > gap)), step, begun)
    return value


def _gauss_series(a: Array, b: Array, c: Array, x: Array) -> Array:
    """Σ (a)ₖ (b)ₖ / (c)ₖ xᵏ / k! (DLMF 15.2.1)."""
    return _sum(
        a,
        lambda k: (a + k) / (c + k) * ((b + k) / (k + 1)) * x,
        lambda k: _at_least_one(a + k) / abs(c + k) * (_at_least_one(b + k) / (k + 1)) * abs(x),
        2 - el.minimum(el.minimum(a, b), c),
    )


def _is_pole(x: Array) -> Array:
    return el.logical_and(x <= 0, el.equal(el.floor(x), x))


def _at_one(a: Array, b: Array, c: Array) -> Array:
    """F(a, b; c; 1) = Γ(c) Γ(c - a - b) / (Γ(c - a) Γ(c - b)), where c > a + b (DLMF 15.4.20)."""
    rest = c - a - b
    zero = el.logical_or(_is_pole(c - a), _is_pole(c - b))
    open_ = rest > 0
    d, p, q, r = (keep(open_, v, 1.0) for v in (c, c - a, c - b, rest))
    p, q = keep(~zero, p, 1.0), keep(~zero, q, 1.0)
    sign = gammasgn(d) * gammasgn(p) * gammasgn(q)
    value = sign * el.exp(gammaln(d) + gammaln(r) - gammaln(p) - gammaln(q))
    return el.where(open_, el.where(zero, 0.0, value), math.inf)


def _gauss_value(a: Array, b: Array, c: Array, x: Array) -> Array:
    finite = el.logical_and(
        el.logical_and(abs(a) < math.inf, abs(b) < math.inf), el.logical_and(abs(c) < math.inf, abs(x) < math.inf)
    )
    polynomial = el.logical_and(finite, el.logical_or(_is_pole(a), _is_pole(b)))
    pole = el.logical_and(finite, _is_pole(c))
    usual = el.logical_and(el.logical_and(finite, ~polynomial), el.logical_and(~pole, x < 1))
    direct = el.logical_and(polynomial, ~pole)
    p, q, r, z = keep(usual, a, 1.0), keep(usual, b, 1.0), keep(usual, c, 2.0), keep(usual, x, 0.0)
    negative = z < 0  # F(a, b; c; x) = (1 - x)^-a F(a, c - b; c; x / (x - 1)) (DLMF 15.8.1)
    swapped = q < p
    p, q = el.where(swapped, q, p), el.where(swapped, p, q)
    inverse = 1 / (1 - z)
    turned = el.logical_and(~negative, p + q > r)  # F(a, b; c; x) = (1 - x)^(c - a - b) F(c - a, c - b; c; x)
    first, second = el.where(turned, r - p, p), el.where(el.logical_or(negative, turned), r - q, q)
    value = _gauss_below_one(first, second, r, el.where(negative, -z * inverse, z), el.where(negative, inverse, 1 - z))
    value = el.where(negative, el.power(keep(negative, inverse, 1.0), p) * value, value)
    value = el.where(turned, el.power(keep(turned, 1 - z, 1.0), r - p - q) * value, value)
    finite_sum = _gauss_series(keep(direct, a, 0.0), keep(direct, b, 0.0), keep(direct, c, 2.0), keep(direct, x, 0.0))
    end = el.logical_and(el.equal(x, 1), el.logical_and(finite, ~el.logical_or(polynomial, pole)))
    at_one = _at_one(keep(end, a, 1.0), keep(end, b, 1.0), keep(end, c, 3.0))
    rest = el.where(pole, math.inf, math.nan)
    return el.where(usual, value, el.where(direct, finite_sum, el.where(end, at_one, rest)))


@custom_jvp
def _hyp2f1(a: Array, b: Array, c: Array, x: Array) -> Array:
    return _gauss_value(a, b, c, x)


_hyp2f1.defjvps(
    lambda t, result, a, b, c, x: t * slope(_gauss_value, a, b, c, x),
    lambda t, result, a, b, c, x: t * slope(_gauss_value, a, b, c, x, by=1),
    lambda t, result, a, b, c, x: t * slope(_gauss_value, a, b, c, x, by=2),
    lambda t, result, a, b, c, x: t * (a * b / c) * _hyp2f1(a + 1, b + 1, c + 1, x),
)


@spelled
def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike, /) -> Array:
    """Returns Gauss's hypergeometric function F(a, b; c; x), the sum of (a)ₖ (b)ₖ / (c)ₖ · xᵏ / k!, continued to x < 1.

    Differentiable in all operands. By its power series, by Pfaff's transformation below 0, and near 1 by steps along the
    differential equation. Errors are relative to the largest term: digits are lost where parameters are large and terms cancel.

    Args:
        a: real, any shape; all operands broadcast. Integers become float32.
        b: real, any shape.
        c: real, any shape; the result is infinite for 0 and negative integers.
        x: real, any shape. NaN above 1, unless a or b is 0 or a negative integer.

    Example:
        >>> hyp2f1(1.0, 1.0, 2.0, np.asarray([-1.0, 0.5]))
        Array([0.69314718, 1.38629436], dtype=float64)
    """
    return in_float64("hyp2f1", _hyp2f1, a, b, c, x)
