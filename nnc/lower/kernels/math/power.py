"""Powers, roots and lengths."""

from __future__ import annotations

import math

from nnc.base import dtypes
from nnc.lower.kernels.math.exponential import exp
from nnc.lower.kernels.math.logarithm import limits, log, log1p, split_exponent
from nnc.lower.kernels.math.terms import (
    Term,
    absolute,
    fma,
    format_of,
    horner,
    is_single,
    sqrt,
    two_product,
    two_sum,
    where,
    with_sign,
)

# ln 2 with 42 bits, whose products with exponents are exact, and the rest
_LN2 = (0.693147180559890330187045, 5.49792301870837115524e-14)
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
# ((log((1 + s) / (1 - s)) / s - 2) / s² - 2/3) / s², in s²
_SERIES = (
    0.4000000000000226, 0.28571428570096846, 0.22222222520421164, 0.18181784322629782, 0.15386759421728768,
    0.13256768105922795, 0.13196798483167066,
)  # fmt: skip


def pow_(x: Term, y: Term) -> Term:
    """x^y: e^(y log |x|) with the sign of x where y is odd; of a negative x only integer powers exist."""
    size = absolute(x)
    out = _pow_single(size, y) if is_single(x) else _pow_double(size, y)
    whole = y.equals(y.intrinsic("trunc"))
    half = y * 0.5
    odd = whole & ~half.equals(half.intrinsic("trunc"))
    negative = x.bits().signed() < 0
    sign = where(odd & negative, out.bits().constant(format_of(x).sign), 0)
    out = with_sign(sign, out)
    out = where((x < 0) & ~whole & (size < math.inf), math.nan, out)
    out = where(size.equals(1) & absolute(y).equals(math.inf), 1, out)
    return where(x.equals(1) | y.equals(0), 1, out)


def _pow_single(x: Term, y: Term) -> Term:
    """x^y for x >= 0 by way of float64."""
    return exp(y.to(dtypes.float64) * log(x.to(dtypes.float64))).to(dtypes.float32)


def _pow_double(x: Term, y: Term) -> Term:
    """x^y for x >= 0 with 65 digits of the logarithm."""
    high, low = _log_pair(x)
    product, error = two_product(y, high)
    error = fma(y, low, error)
    return exp(product, where(absolute(product) < 1000, error, 0))


def _log_pair(x: Term) -> tuple[Term, Term]:
    """log x in two parts."""
    k, m = split_exponent(x)
    f = m - 1
    d = m + 1
    inverse = 1 / d
    s = f * inverse
    s_tail = (fma(-s, d, f) - s * (f - (d - 2))) * inverse
    z, z_tail = two_product(s, s)
    z_tail = fma(s + s, s_tail, z_tail)
    p, p_tail = two_sum(z.constant(_TWO_THIRDS[0]), z * horner(z, _SERIES))
    p_tail = p_tail + _TWO_THIRDS[1]
    zp, zp_tail = two_product(z, p)
    zp_tail = fma(z, p_tail, fma(z_tail, p, zp_tail))
    t, t_tail = two_product(s, zp)
    t_tail = fma(s, zp_tail, fma(s_tail, zp, t_tail))
    a, a_tail = two_sum(s + s, t)
    b, b_tail = two_sum(k * _LN2[0], a)
    b_tail = b_tail + (a_tail + (t_tail + fma(k, _LN2[1], s_tail + s_tail)))
    high, low = two_sum(b, b_tail)
    return limits(x, high), low


def cbrt(x: Term) -> Term:
    """Returns the cube root: a third of the exponent to begin with, a step of Halley's method, two in float64, and one of
    Newton's with the exact error of the cube.
    """
    form = format_of(x)
    # the error of the cube, whose 2 x 24 or 2 x 53 bits lie below those of x, must be no denormal number: programs may flush it
    least, up, down = (-70, 72, -24) if is_single(x) else (-900, 162, -54)
    tiny = absolute(x) < 2.0**least
    huge = absolute(x) > 2.0 ** (form.bias - 2)
    size = absolute(x) * where(tiny, 2.0**up, where(huge, 0.125, x.constant(1)))
    if is_single(x):
        start = size.bits()
        third = start.signed().to(dtypes.float32) * (1 / 3) + (127 * 2 / 3 - 0.033) * 2**23
        y = third.to(dtypes.int32).as_float()
    else:
        start = size.bits() >> 32
        third = start.signed().to(dtypes.float64) * (1 / 3) + (1023 * 2 / 3 - 0.033) * 2**20
        y = (third.to(dtypes.int64).bits() << 32).as_float()
    for _ in range(1 if is_single(x) else 2):
        cube = y * y * y
        y = y * (fma(size, 2, cube) / fma(cube, 2, size))
    square, lost = two_product(y, y)
    error = fma(square, y, -size) + lost * y
    y = (y - error / (square * 3)) * where(tiny, 2.0**down, where(huge, 2, x.constant(1)))
    return where((size > 0) & (size < math.inf), with_sign(x.bits() & form.sign, y), x)


def hypot(x: Term, y: Term) -> Term:
    """√(x² + y²) without overflow: infinite where an operand is, even if the other is NaN."""
    x, y = absolute(x), absolute(y)
    if is_single(x):
        wide, other = x.to(dtypes.float64), y.to(dtypes.float64)
        out = sqrt(fma(wide, wide, other * other)).to(dtypes.float32)
    else:
        out = _hypot_double(x, y)
    return where(x.equals(math.inf) | y.equals(math.inf), math.inf, out)


def _hypot_double(x: Term, y: Term) -> Term:
    large, small = where(x > y, x, y), where(x > y, y, x)
    unit = x.constant(1)
    scale = where(large > 2.0**500, 2.0**-600, where(large < 2.0**-400, 2.0**600, unit))
    back = where(large > 2.0**500, 2.0**600, where(large < 2.0**-400, 2.0**-600, unit))
    a, b = large * scale, small * scale
    square, lost = two_product(a, a)
    other, other_lost = two_product(b, b)
    total, tail = two_sum(square, other)
    root = sqrt(total)
    error = fma(-root, root, total) + (tail + (lost + other_lost))
    return where(total.equals(0), 0, root + error / (root + root)) * back


def logaddexp(x: Term, y: Term) -> Term:
    """log(e^x + e^y)."""
    larger = where(x > y, x, y)
    apart = where(x.equals(y), 0, -absolute(x - y))
    return where(x.is_nan(), x, larger + log1p(exp(apart)))
