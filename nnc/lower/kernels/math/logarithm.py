"""Logarithms.

x = 2^k · m with m between √½ and √2 (Tang), f = m - 1. In float32 log(1 + f) is a polynomial in f; in float64 it is one in
s = f / (2 + f), where log(1 + f) = log((1 + s) / (1 - s)) has odd powers only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from nnc.commands.portable import LOG_DOUBLE, LOG_SINGLE
from nnc.lower.kernels.math.terms import (
    LN2,
    Term,
    absolute,
    fma,
    format_of,
    horner,
    is_single,
    two_product,
    two_sum,
    two_sum_any,
    where,
)

_ROOT_HALF = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}


class _Base(NamedTuple):
    """1 / log(base) with its tail, and log 2 / log(base) with one: the latter's products with exponents are exact."""

    scale: float
    scale_tail: float
    of_two: float
    of_two_tail: float


_TWO = {
    23: _Base(1.4426950216293335, 1.9259629911266175e-08, 1.0, 0.0),
    52: _Base(1.4426950408889634, 2.0355273740931033e-17, 1.0, 0.0),
}
_TEN = {
    23: _Base(0.4342944920063019, -1.0103050052231683e-08, 0.301025390625, 4.605038981195214e-06),
    52: _Base(0.4342944819032518, 1.098319650216765e-17, 0.30102999566361177, 3.694239077158931e-13),
}


class _LogarithmParts(NamedTuple):
    """log x = k · ln 2 + high + low, for finite x > 0."""

    k: Term
    high: Term
    low: Term


def split_exponent(x: Term) -> tuple[Term, Term]:
    """k and m of x = 2^k · m with √½ <= m < √2, for finite x > 0."""
    form = format_of(x)
    tiny = x < form.smallest
    bits = where(tiny, x * 2.0 ** (form.mantissa + 1), x).bits()
    exponent = (bits + ((form.bias << form.mantissa) - _ROOT_HALF[form.mantissa])) >> form.mantissa
    m = (bits - (exponent << form.mantissa) + (form.bias << form.mantissa)).as_float()
    # an integer below 2^mantissa, put into the lowest bits of 2^mantissa, makes the float
    base = (form.bias + form.mantissa) << form.mantissa
    power = 2.0**form.mantissa + form.bias
    return (exponent | base).as_float() - where(tiny, power + form.mantissa + 1, x.constant(power)), m


def near_one(f: Term) -> Term:
    """log(1 + f) - f, for 1 + f between √½ and √2."""
    if is_single(f):
        return f * f * fma(f, horner(f, LOG_SINGLE), -0.5)
    s = f / (f + 2)
    z = s * s
    half = f * f * 0.5
    return s * fma(z, horner(z, LOG_DOUBLE), half) - half


def _parts(x: Term) -> _LogarithmParts:
    k, m = split_exponent(x)
    f = m - 1
    return _LogarithmParts(k, *two_sum(f, near_one(f)))


def limits(x: Term, out: Term) -> Term:
    """Returns the logarithm at 0, at infinity, below 0 and of NaN; elsewhere `out`."""
    out = where(x < math.inf, out, x)
    out = where(x < 0, math.nan, out)
    return where(x.equals(0), -math.inf, out)


def log(x: Term) -> Term:
    """log x."""
    k, m = split_exponent(x)
    f = m - 1
    ln2, tail = LN2[format_of(x).mantissa]
    return limits(x, fma(k, ln2, f + fma(k, tail, near_one(f))))


def _log_base(x: Term, base: _Base) -> Term:
    """log x / log base, where the products of the large parts keep their rounding errors."""
    parts = _parts(x)
    product, error = two_product(parts.high, parts.high.constant(base.scale))
    rest = fma(parts.high, base.scale_tail, fma(parts.low, base.scale, fma(parts.k, base.of_two_tail, error)))
    total, lost = two_sum(parts.k * base.of_two, product)
    return limits(x, total + (lost + rest))


def log2(x: Term) -> Term:
    """Returns the logarithm to the base 2."""
    return _log_base(x, _TWO[format_of(x).mantissa])


def log10(x: Term) -> Term:
    """Returns the logarithm to the base 10."""
    return _log_base(x, _TEN[format_of(x).mantissa])


def log_sum(x: Term, share: Term, doublings: Term) -> Term:
    """log(x · (1 + share) · 2^doublings), where the share is below the last place."""
    k, m = split_exponent(x)
    f = m - 1
    ln2, tail = LN2[format_of(x).mantissa]
    k = k + doublings
    return limits(x, fma(k, ln2, f + (share + fma(k, tail, near_one(f)))))


def log1p(x: Term) -> Term:
    """log(1 + x)."""
    return log1p_sum(x, None)


def log1p_sum(x: Term, small: Term | None) -> Term:
    """log(1 + x), or log(1 + x + small) with small below the last place of x: the bits that 1 + x loses are added to f again."""
    u = x + 1
    k, m = split_exponent(u)
    lost = where(absolute(x) < 1, x - (u - 1), 1 - (u - x))
    if small is not None:
        lost = lost + small
    f, rest = two_sum_any(m - 1, lost * (m / u))
    ln2, tail = LN2[format_of(x).mantissa]
    out = fma(k, ln2, f + fma(k, tail, near_one(f) + rest * (1 - f)))
    out = where(x.equals(0), x, out)
    out = where(x < math.inf, out, x)
    out = where(x < -1, math.nan, out)
    return where(x.equals(-1), -math.inf, out)
