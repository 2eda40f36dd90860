"""Exponentials.

x = r + n · ln 2 with |r| <= ½ ln 2, by Cody and Waite's subtraction of n · ln 2 in two parts; n is rounded by an addition to
1.5 · 2^mantissa, whose lowest bits show it. The result is p · s · s' with powers of two s and s' that take half of n each, so that
it overflows and becomes denormal as it should.
"""

from __future__ import annotations

from typing import NamedTuple

from nnc.commands.portable import EXP_DOUBLE, EXP_SINGLE
from nnc.lower.kernels.math.terms import LN2, Term, absolute, fma, format_of, horner, is_single, two_sum, where

_LIMITS = {23: (-104.0, 90.0), 52: (-746.0, 711.0)}  # below is 0, above infinity
_MINUS_ONE = {23: -18.0, 52: -38.0}  # below, e^x - 1 is -1


class _Power(NamedTuple):
    """2^n as the product of two powers of two, and the inverse of the second one."""

    first: Term
    second: Term
    inverse: Term


def clamp(x: Term, low: float, high: float) -> Term:
    """Returns the nearest number in a range; NaN stays."""
    x = where(x > high, high, x)
    return where(x < low, low, x)


def _shift(x: Term) -> float:
    """Returns a number that, added to x, brings the nearest integer and twice the bias into the lowest bits."""
    form = format_of(x)
    return form.magic + 2 * form.bias


def _power(shifted: Term) -> _Power:
    """2^n of a sum with `_shift`."""
    form = format_of(shifted)
    bits = shifted.bits()
    half = bits >> 1
    other = bits - half
    first, second, inverse = (part << form.mantissa for part in (half, other, 2 * form.bias - other))
    return _Power(first.as_float(), second.as_float(), inverse.as_float())


def _reduced(x: Term, shift: float) -> tuple[Term, Term]:
    """r, and x / ln 2 + shift, which shows n; `x` is within the limits."""
    shifted = fma(x, 1 / LN2[52][0], shift)
    n = shifted - shift
    high, low = LN2[format_of(x).mantissa]
    return fma(n, -low, fma(n, -high, x)), shifted


def near_one(r: Term, tail: Term | None = None) -> Term:
    """e^(r + tail) - 1 for |r| <= ½ ln 2, with a tail below the last place of r."""
    series = horner(r, EXP_SINGLE if is_single(r) else EXP_DOUBLE)
    return fma(r * r, series, r) if tail is None else r + fma(r * r, series, tail)


class PowerParts(NamedTuple):
    """e^x = (1 + rest) · first · second, the latter powers of two."""

    rest: Term
    first: Term
    second: Term


def exp_parts(x: Term, tail: Term | None = None) -> PowerParts:
    """Returns the parts of e^x, or of e^(x + tail) with a tail below the last place of x."""
    r, shifted = _reduced(clamp(x, *_LIMITS[format_of(x).mantissa]), _shift(x))
    if tail is not None:
        r, tail = two_sum(r, tail)
    power = _power(shifted)
    return PowerParts(near_one(r, tail), power.first, power.second)


def exp(x: Term, tail: Term | None = None) -> Term:
    """e^x, or e^(x + tail) with a tail below the last place of x."""
    parts = exp_parts(x, tail)
    return fma(parts.rest, parts.first, parts.first) * parts.second


def half_exp(x: Term) -> Term:
    """½ e^x, which overflows later than e^x."""
    parts = exp_parts(x)
    first = parts.first * 0.5
    return fma(parts.rest, first, first) * parts.second


def exp2(x: Term) -> Term:
    """2^x: the rest over the nearest integer is exact, its product with ln 2 has a tail."""
    form = format_of(x)
    x = clamp(x, -form.bias - form.mantissa - 2.0, form.bias + 2.0)
    shifted = x + _shift(x)
    rest = x - (shifted - _shift(x))
    high, low = LN2[form.mantissa]
    r = rest * high
    tail = fma(rest, low, fma(rest, high, -r))
    power = _power(shifted)
    return fma(near_one(r) + tail, power.first, power.first) * power.second


def expm1(x: Term) -> Term:
    """e^x - 1, as ((e^r - 1) s + (s - 1/s')) s'."""
    mantissa = format_of(x).mantissa
    r, shifted = _reduced(clamp(x, _MINUS_ONE[mantissa], _LIMITS[mantissa][1]), _shift(x))
    power = _power(shifted)
    out = fma(near_one(r), power.first, power.first - power.inverse) * power.second
    return where(x.equals(0), x, out)


def sigmoid_of_minus(size: Term) -> Term:
    """1 / (1 + e^x) of a size, with all its digits: of e^x = (1 + rest) s s', multiplied by 1/s' above and below."""
    limit = -_LIMITS[format_of(size).mantissa][0]
    r, shifted = _reduced(where(size > limit, limit, size), _shift(size))
    power = _power(shifted)
    return power.inverse / fma(near_one(r), power.first, power.first + power.inverse)


def sigmoid(x: Term) -> Term:
    """1 / (1 + e^-x), which is far below 0 where x is."""
    tail = sigmoid_of_minus(absolute(x))
    return where(x > 0, 1 - tail, tail)


def logistic_density(x: Term) -> Term:
    """Returns the derivative of the sigmoid, whose exponential it shares: the product of two numbers that add up to 1."""
    tail = sigmoid_of_minus(absolute(x))
    return tail * (1 - tail)
