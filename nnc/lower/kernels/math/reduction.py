"""Payne and Hanek's reduction of large angles ("Radian reduction for trigonometric functions", 1983).

x = M · 2^e makes M · 2^e / 2π turns. Only the part behind the point matters, so the bits of 2/π that M would bring before it
are left out, and the next ones are read from a table of its first bits. Products are added up in columns of 32 bits.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

from nnc.base import dtypes
from nnc.lower.kernels.math.terms import Term, fma, format_of, is_single, two_product, two_sum, where

_WORDS = 39
_TABLE = "@KERNEL.two_over_pi"
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
_LOW = 0xFFFFFFFF


@cache
def two_over_pi() -> tuple[int, ...]:
    """0 and the words of 32 bits that follow the point in 2/π, which is found by Machin's formula."""
    bits = 32 * _WORDS + 64

    def arctan_of_inverse(n: int) -> int:
        total, term, k = 0, (1 << bits) // n, 0
        while term:
            total += (-term if k & 1 else term) // (2 * k + 1)
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    digits = ((2 << (2 * bits)) // pi) >> (bits - 32 * (_WORDS - 1))
    return tuple((digits >> (32 * i)) & _LOW for i in range(_WORDS - 1, -1, -1))


def reduce_large(x: Term, large: Term) -> tuple[Term, Term, Term]:
    """(r, tail, q) with x = r + tail + q · π/2 but for turns, |r| <= π/4; NaN of infinity.

    For the lanes that are `large`: |x| >= 2^22, or 2^0 in float32.
    """
    form = format_of(x)
    bits = x.bits().to(dtypes.uint64)
    exponent = (bits >> form.mantissa) & (2 * form.bias + 1)
    place = where(large, exponent - (form.bias + form.mantissa - 30), 0)
    significand = (bits & ((1 << form.mantissa) - 1)) | (1 << form.mantissa)
    words = _words(place >> 5, 4 if is_single(x) else 7)
    shift = place & 31
    digits = [(((a << 32) | b) << shift) >> 32 for a, b in pairwise(words)]
    turns = _turns_single(significand, digits) if is_single(x) else _turns_double(significand, digits)
    rest = turns[0] << 2 if len(turns) == 1 else (turns[0] << 2) | (turns[1] >> 62)
    quadrant = (turns[0] >> 62) + (rest >> 63)
    if is_single(x):
        angle = rest.signed().to(dtypes.float64) * (_HALF_PI[0] * 2.0**-64)
        r = angle.to(dtypes.float32)
        tail = (angle - r.to(dtypes.float64)).to(dtypes.float32)
    else:
        r, tail = _angle(rest, turns[1] << 2)
    return where(x < math.inf, r, math.nan), tail, quadrant.to(x.bits().dtype)


def _words(index: Term, count: int) -> list[Term]:
    """Words of the table from an index on."""
    code = index.code
    listed = ", ".join(f"i32 {word}" for word in two_over_pi())
    code.declare(f"{_TABLE} = private unnamed_addr constant [{_WORDS} x i32] [{listed}]")
    found = []
    for k in range(count):
        at = ((index + k) << 2).signed().value
        word = code.gather(_TABLE, at, dtypes.uint32) if at.lanes else code.load(code.offset(_TABLE, at), dtypes.uint32)
        found.append(index.of(word).to(dtypes.uint64))
    return found


def _turns_single(m: Term, g: list[Term]) -> list[Term]:
    """Returns the part of m · 0.g0g1g2 behind the point, in 64 bits."""
    return [((m * g[0]) << 32) + m * g[1] + ((m * g[2]) >> 32)]


def _turns_double(m: Term, g: list[Term]) -> list[Term]:
    """Returns the part of m · 0.g0…g5 behind the point, in 2 · 64 bits, by columns of 32 bits."""
    low, high = m & _LOW, m >> 32
    by_low = [low * word for word in g[:5]]
    by_high = [high * word for word in g[1:]]
    carry = (by_low[4] >> 32) + (by_high[4] >> 32) + (by_low[3] & _LOW) + (by_high[3] & _LOW)
    columns = [carry & _LOW]
    for k in (2, 1, 0):
        carry = (
            (carry >> 32) + (by_low[k] & _LOW) + (by_low[k + 1] >> 32) + (by_high[k] & _LOW) + (by_high[k + 1] >> 32)
        )
        columns.append(carry & _LOW)
    return [(columns[3] << 32) | columns[2], (columns[1] << 32) | columns[0]]


def _angle(high: Term, low: Term) -> tuple[Term, Term]:
    """Returns the fraction with these bits, the first of them a sign, times π/2."""
    sign = high.signed() >> 63
    first, second = high ^ sign.bits(), low ^ sign.bits()
    top = (first >> 32).to(dtypes.float64) * 2.0**-32
    rest = fma((second >> 11).to(dtypes.float64), 2.0**-117, (first & _LOW).to(dtypes.float64) * 2.0**-64)
    total, tail = two_sum(top, rest)
    product, error = two_product(total, total.constant(_HALF_PI[0]))
    r, error = two_sum(product, error + fma(total, _HALF_PI[1], tail * _HALF_PI[0]))
    negative = sign < 0
    return where(negative, -r, r), where(negative, -error, error)
