"""Arcsine, arccosine and arctangents."""

from __future__ import annotations

import math

from nnc.lower.kernels.math.terms import (
    Term,
    absolute,
    fma,
    format_of,
    horner,
    is_single,
    split_sign,
    sqrt,
    where,
    with_sign,
)

# (asin x - x) / x³ in x², on |x| <= ½; of the arcsine 2^-27.6 and 2^-59.2
_ASIN_SINGLE = (0.166667521, 0.0749531239, 0.0454688184, 0.0241856929, 0.042158179)
_ASIN_DOUBLE = (
    0.1666666666666676, 0.07499999999970867, 0.04464285717457532, 0.030381942707982473, 0.02237221503125836,
    0.01735161025910364, 0.013980854130215267, 0.0113985285065614, 0.010783042871173779, 0.0036933685587395614,
    0.02174542357794552, -0.02106182122906061, 0.03267358928289872,
)  # fmt: skip
# (atan x - x) / x³ in x², on |x| <= √2 - 1; of the arctangent 2^-30.4 and 2^-59.4
_ATAN_SINGLE = (-0.333333164, 0.199985281, -0.142443866, 0.105990991, -0.0608978942)
_ATAN_DOUBLE = (
    -0.333333333333332, 0.19999999999953622, -0.14285714280179257, 0.11111110781736108, -0.09090897688304933,
    0.07692058692870056, -0.06663084039194914, 0.0584772701174668, -0.05038508654552343, 0.03804289883847605,
    -0.017882097464759637,
)  # fmt: skip

_PI = {23: (3.1415927410125732, -8.742278000372485e-08), 52: (math.pi, 1.2246467991473532e-16)}
_STEEP = math.sqrt(2) + 1  # the tangents of 3π/8 and π/8
_FLAT = math.sqrt(2) - 1


def _arcsine_rest(x: Term, z: Term) -> Term:
    """asin x - x, where z = x² <= ¼."""
    return x * z * horner(z, _ASIN_SINGLE if is_single(x) else _ASIN_DOUBLE)


def _folded(size: Term) -> tuple[Term, Term, Term, Term]:
    """(outer, y, y², tail): y + tail is |x| up to ½, beyond √((1 - |x|) / 2), half the angle to 1."""
    outer = size > 0.5
    half = fma(size, -0.5, 0.5)
    z = where(outer, half, size * size)
    root = sqrt(half)
    tail = where(half.equals(0), 0, fma(-root, root, half) / (root + root))
    return outer, where(outer, root, size), z, where(outer, tail, 0)


def asin(x: Term) -> Term:
    """Returns the angle from -π/2 to π/2 whose sine is x."""
    sign, size = split_sign(x)
    outer, y, z, tail = _folded(size)
    rest = _arcsine_rest(y, z)
    pi, pi_tail = _PI[format_of(x).mantissa]
    far = _sum(pi / 2, pi_tail / 2, -2 * y, -2 * (rest + tail))
    return with_sign(sign, where(outer, far, y + rest))


def acos(x: Term) -> Term:
    """Returns the angle from 0 to π whose cosine is x."""
    size = absolute(x)
    outer, y, z, tail = _folded(size)
    rest = _arcsine_rest(y, z)
    pi, pi_tail = _PI[format_of(x).mantissa]
    negative = x < 0
    doubled, doubled_rest = 2 * y, 2 * (rest + tail)
    turned = _sum(pi, pi_tail, -doubled, -doubled_rest)
    far = where(negative, turned, doubled + doubled_rest)
    signed, signed_rest = where(negative, y, -y), where(negative, rest, -rest)
    return where(outer, far, _sum(pi / 2, pi_tail / 2, signed, signed_rest))


def _sum(high: Term | float, low: Term | float, x: Term, rest: Term) -> Term:
    """high + x + low + rest, with small low and rest, for |high| >= |x|."""
    total = x + high
    return total + (low + (rest + (x - (total - high))))


def atan(x: Term) -> Term:
    """Returns the angle from -π/2 to π/2 whose tangent is x."""
    sign, size = split_sign(x)
    return with_sign(sign, _angle(size, size.constant(1)))


def _angle(y: Term, x: Term) -> Term:
    """Returns the angle of (x, y) in the first quadrant: the tangent of its difference from 0, π/4 or π/2 is one quotient."""
    steep, flat = y > x * _STEEP, y < x * _FLAT
    above = where(steep, -x, where(flat, y, y - x))
    below = where(steep, y, where(flat, x, y + x))
    t = where(y.equals(math.inf), 0, above / below)
    z = t * t
    rest = t * z * horner(z, _ATAN_SINGLE if is_single(t) else _ATAN_DOUBLE)
    pi, pi_tail = _PI[format_of(t).mantissa]
    base = where(steep, pi / 2, where(flat, 0, t.constant(pi / 4)))
    base_tail = where(steep, pi_tail / 2, where(flat, 0, t.constant(pi_tail / 4)))
    return _sum(base, base_tail, t, rest)


def atan2(y: Term, x: Term) -> Term:
    """Returns the angle of the point (x, y), from -π to π."""
    form = format_of(y)
    sign, rise = split_sign(y)
    run = absolute(x)
    endless = rise.equals(math.inf) & run.equals(math.inf)
    rise, run = where(endless, 1, rise), where(endless, 1, run)
    huge = (rise > 2.0 ** (form.bias - 2)) | (run > 2.0 ** (form.bias - 2))
    half = form.bias // 2
    # their difference may be a denormal number, which programs may flush
    tiny = (rise < 2.0**-half) & (run < 2.0**-half)
    scale = where(huge, 0.25, where(tiny, 2.0**half, y.constant(1)))
    angle = _angle(rise * scale, run * scale)
    angle = where(rise.equals(0), 0, where(run.equals(math.inf), 0, angle))
    pi, pi_tail = _PI[form.mantissa]
    turned = _sum(pi, pi_tail, -angle, angle.constant(0))
    out = where(x.bits().signed() < 0, turned, angle)
    out = where(x.is_nan() | y.is_nan(), math.nan, out)
    return with_sign(sign, out)
