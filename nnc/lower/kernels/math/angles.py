"""Sines, cosines and tangents.

The argument is brought to ±π/4 by Cody and Waite's subtraction of n · π/2, in three parts, each product exact before it is rounded
(fused). Larger arguments go through Payne and Hanek's reduction (`reduction.py`), behind a branch that is taken if a lane needs it.
"""

from __future__ import annotations

import math

from nnc.base.records import record
from nnc.lower.kernels.math.reduction import reduce_large
from nnc.lower.kernels.math.terms import (
    Term,
    absolute,
    any_lane,
    apart,
    fma,
    format_of,
    horner,
    is_single,
    split_sign,
    two_product,
    two_sum,
    two_sum_any,
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

# (tan r - r) / r³ in r²; of the tangent 2^-29.3 and 2^-58.6
_TANGENT_SINGLE = (
    0.333333492, 0.133326724, 0.0540600866, 0.0212760158, 0.0108631542, 4.28924723e-05, 0.00440429058,
)  # fmt: skip
_TANGENT_DOUBLE = (
    0.3333333333333338, 0.13333333333325342, 0.05396825397290341, 0.021869488399466314, 0.008863237914611827,
    0.0035921010463950795, 0.0014560435971152368, 0.0005888788958075275, 0.00024368185126943332, 8.378614329546402e-05,
    6.671262812097206e-05, -2.4866437164844095e-05, 4.789266172641723e-05, -2.385586791866007e-05, 9.695268486286361e-06,
)  # fmt: skip

_HALF_PI = {
    23: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    52: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}


_LARGE = {23: 2.0**16, 52: 2.0**27}  # from here on the subtraction may lose digits


@record
class _Reduced:
    """x = r + quadrant · π/2, but for multiples of 2π; |r| <= π/4, `quadrant` in the lowest bits of an integer."""

    r: Term
    tail: Term  # the rounding error of r
    quadrant: Term


def _reduce(x: Term, *, with_tail: bool = False) -> _Reduced:
    """`x` is not negative. The tail is 0 unless asked for."""
    code, form = x.code, format_of(x)
    shifted = fma(x, 2 / math.pi, form.magic)
    n = shifted - form.magic
    first, second, third = _HALF_PI[form.mantissa]
    coarse = fma(n, -first, x)  # exact
    if with_tail:
        product, error = two_product(n, n.constant(-second))
        fine, lost = two_sum_any(coarse, product)
        r, tail = two_sum(fine, lost + fma(n, -third, error))
    else:
        r, tail = fma(n, -third, fma(n, -second, coarse)), x.constant(0)
    usual = (r, tail, shifted.bits())
    slots = [code.slot(term.value) for term in usual]
    large = x >= _LARGE[form.mantissa]
    with code.when(any_lane(large).value):
        found = apart("reduce", x, lambda x: reduce_large(x, x >= _LARGE[form.mantissa]))
        for slot, exact, term in zip(slots, found, usual, strict=True):
            code.write(slot, where(large, exact, term).value)
    return _Reduced(*(x.of(code.read(slot)) for slot in slots))


def _sine(r: Term) -> Term:
    z = r * r
    return fma(r * z, horner(z, _SINE_SINGLE if is_single(r) else _SINE_DOUBLE), r)


def _cosine(r: Term) -> Term:
    z = r * r
    return fma(z, fma(z, horner(z, _COSINE_SINGLE if is_single(r) else _COSINE_DOUBLE), -0.5), 1.0)


def _at(r: Term, quadrant: Term) -> Term:
    """Returns the sine of r + quadrant · π/2."""
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
    """tan x: a polynomial, or in odd quadrants -1 over that."""
    sign, size = split_sign(x)
    reduced = _reduce(size, with_tail=True)
    r, z = reduced.r, reduced.r * reduced.r
    rest = fma(reduced.tail, z, reduced.tail)
    tangent = r + fma(r * z, horner(z, _TANGENT_SINGLE if is_single(x) else _TANGENT_DOUBLE), rest)
    odd = (reduced.quadrant & 1).equals(1)
    return with_sign(sign, where(odd, -1, tangent) / where(odd, tangent, 1))
