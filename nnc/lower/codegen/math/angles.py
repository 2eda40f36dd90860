"""Sines, cosines and tangents.

The argument is brought to ±π/4 by Cody and Waite's subtraction of n · π/2, in three parts, each product exact before it is rounded
(fused). Larger arguments go through Payne and Hanek's reduction (`reduction.py`), behind a branch that is taken if a lane needs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nnc.lower.codegen.math.terms import (
    Term,
    absolute,
    fma,
    format_of,
    horner,
    is_single,
    split_sign,
    where,
    with_sign,
)

# (sin r - r) / r³ in r², on |r| <= 0.79; of the sine 2^-27.8 and 2^-63.2
_SINE_SINGLE = (-0.166666538, 0.00833210535, -0.000195076529)
_SINE_DOUBLE = (
    -0.16666666666666666, 0.008333333333333044, -0.00019841269840966078, 2.7557319076566428e-06, -2.505207175512184e-08,
    1.6054435399765837e-10, -7.396388735964708e-13,
)  # fmt: skip
# (cos r - 1 + r²/2) / r⁴ in r²; of the cosine 2^-32.9 and 2^-63.8
_COSINE_SINGLE = (0.0416666456, -0.00138873048, 2.44314251e-05)
_COSINE_DOUBLE = (
    0.04166666666666659, -0.0013888888888872186, 2.480158728829529e-05, -2.755731401505714e-07, 2.0875678070690936e-09,
    -1.1357335723148918e-11,
)  # fmt: skip

_HALF_PI = {
    23: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    52: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}


@dataclass(frozen=True, slots=True)
class _Reduced:
    """x = r + quadrant · π/2, but for multiples of 2π; |r| <= π/4, `quadrant` in the lowest bits of an integer."""

    r: Term
    quadrant: Term


def _reduce(x: Term) -> _Reduced:
    form = format_of(x)
    shifted = fma(x, 2 / math.pi, form.magic)
    n = shifted - form.magic
    r = x
    for part in _HALF_PI[form.mantissa]:
        r = fma(n, -part, r)
    return _Reduced(r, shifted.bits())


def _sine(r: Term) -> Term:
    z = r * r
    return fma(r * z, horner(z, _SINE_SINGLE if is_single(r) else _SINE_DOUBLE), r)


def _cosine(r: Term) -> Term:
    z = r * r
    return fma(z, fma(z, horner(z, _COSINE_SINGLE if is_single(r) else _COSINE_DOUBLE), -0.5), 1.0)


def _at(r: Term, quadrant: Term) -> Term:
    """The sine of r + quadrant · π/2."""
    form = format_of(r)
    top = form.sign.bit_length() - 1
    out = where((quadrant & 1).equals(0), _sine(r), _cosine(r))
    return with_sign((quadrant & 2) << (top - 1), out)


def sin(x: Term) -> Term:
    """sin x."""
    sign, size = split_sign(x)
    reduced = _reduce(size)
    return with_sign(sign, _at(reduced.r, reduced.quadrant))


def cos(x: Term) -> Term:
    """cos x."""
    reduced = _reduce(absolute(x))
    return _at(reduced.r, reduced.quadrant + 1)


def tan(x: Term) -> Term:
    """tan x."""
    sign, size = split_sign(x)
    reduced = _reduce(size)
    form = format_of(x)
    sine, cosine = _sine(reduced.r), _cosine(reduced.r)
    odd = (reduced.quadrant & 1).equals(1)
    out = where(odd, cosine, sine) / where(odd, sine, cosine)
    return with_sign(sign ^ ((reduced.quadrant & 1) << (form.sign.bit_length() - 1)), out)
