"""Exponentials.

The argument is brought near 0 by Cody and Waite's subtraction of n · 2 ln 2, in two parts, with n rounded by an addition to
1.5 · 2^mantissa. As n counts *squares* of powers of 2, the result is p · s · s with s = 2^n, which overflows and becomes denormal
as it should; the price is a polynomial on ±ln 2 rather than on half of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nnc.lower.codegen.math.terms import Format, Term, fma, format_of, horner, is_single, where

# (e^r - 1 - r) / r² on |r| <= 0.6935; of e^r 2^-25.9 and 2^-55.8
_SINGLE = (0.500000358, 0.16666612, 0.0416611433, 0.0083362041, 0.00141069922, 0.000196012203)
_DOUBLE = (
    0.4999999999999993, 0.16666666666666927, 0.04166666666670208, 0.008333333333272514, 0.0013888888883541435,
    0.0001984126989068417, 2.4801590865294296e-05, 2.7557301507141822e-06, 2.7556146868896844e-07, 2.5054850290608074e-08,
    2.106346431457283e-09, 1.5951241079795013e-10,
)  # fmt: skip

_LN2 = math.log(2)
_LN2_TAIL = 2.3190468138462996e-17  # ln 2 - _LN2


@dataclass(frozen=True, slots=True)
class _Range:
    """Arguments below `low` give 0, above `high` infinity; 2 ln 2 in two parts."""

    low: float
    high: float
    ln4: float
    ln4_tail: float


_RANGES = {
    23: _Range(-104.0, 89.0, 2 * 0.693147182464599609375, -2 * 1.9046542999519757e-09),
    52: _Range(-746.0, 710.0, 2 * _LN2, 2 * _LN2_TAIL),
}


def clamp(x: Term, low: float, high: float) -> Term:
    """The nearest number in a range; NaN stays."""
    x = where(x > high, high, x)
    return where(x < low, low, x)


def reduced(x: Term) -> tuple[Term, Term]:
    """(r, the bits of 1.5 · 2^mantissa + n) with x = r + n · 2 ln 2, for x in the range of `exp`."""
    form = format_of(x)
    limits = _RANGES[form.mantissa]
    shifted = fma(x, 0.5 / _LN2, form.magic + form.bias)
    n = shifted - (form.magic + form.bias)
    return fma(n, -limits.ln4_tail, fma(n, -limits.ln4, x)), shifted.bits()


def power_of_two(bits: Term, form: Format) -> Term:
    """2^n, where the lowest bits of an integer show n + bias."""
    return (bits << form.mantissa).as_float()


def near_one(r: Term) -> Term:
    """e^r - 1 for |r| <= ln 2."""
    return fma(r * r, horner(r, _SINGLE if is_single(r) else _DOUBLE), r)


def exp(x: Term) -> Term:
    """e^x."""
    return exp_sum(x, None)


def exp_sum(x: Term, tail: Term | None) -> Term:
    """e^(x + tail), with a tail that is below the last place of x."""
    form = format_of(x)
    limits = _RANGES[form.mantissa]
    r, bits = reduced(clamp(x, limits.low, limits.high))
    scale = power_of_two(bits, form)
    return (near_one(r if tail is None else r + tail) + 1) * scale * scale


def exp2(x: Term) -> Term:
    """2^x: what is left over the nearest integer is exact, its product with ln 2 has a tail."""
    form = format_of(x)
    x = clamp(x, -form.bias - form.mantissa - 2.0, form.bias + 2.0)
    shifted = fma(x, 0.5, form.magic + form.bias)
    rest = fma(shifted - (form.magic + form.bias), -2, x)
    ln2 = float(x.dtype.type(_LN2))
    r = rest * ln2
    tail = fma(rest, ln2, -r) + rest * (_LN2 - ln2 if is_single(x) else _LN2_TAIL)
    scale = power_of_two(shifted.bits(), form)
    return (near_one(r) + tail + 1) * scale * scale


def expm1(x: Term) -> Term:
    """e^x - 1, as ((e^r - 1) s + (s - 1/s)) s."""
    form = format_of(x)
    limits = _RANGES[form.mantissa]
    r, bits = reduced(clamp(x, -0.7 * (form.mantissa + 3), limits.high))
    scale = power_of_two(bits, form)
    inverse = power_of_two(2 * form.bias - bits, form)
    out = fma(near_one(r), scale, scale - inverse) * scale
    return where(x.equals(0), x, out)


def sigmoid(x: Term) -> Term:
    """1 / (1 + e^-x), with all its digits also far below 0."""
    e = exp(-x.intrinsic("fabs"))
    return where(x < 0, e, 1) / (e + 1)
