"""Exponents of floats, read and added without rounding but at the end."""

from __future__ import annotations

from nnc.lower.kernels.math.terms import Term, format_of, where

_MOST = 2.0**14  # beyond, every float becomes 0 or infinite


def frexp_exponent(x: Term) -> Term:
    """Returns the integer e with |x| = m · 2^e and m from 0.5 to 1, for numbers below the normal ones, too; 0 for 0, infinities
    and NaN.
    """
    form = format_of(x)
    size = x.bits() & (form.sign - 1)
    # a number below the normal ones is an integer times the smallest of them
    fraction = size.signed().to(x.dtype).bits()
    normal = (size >> form.mantissa).signed() - (form.bias - 1)
    small = (fraction >> form.mantissa).signed() - (2 * form.bias - 2 + form.mantissa)
    found = where(size < (1 << form.mantissa), small, normal)
    return where(size.equals(0) | (size >= form.infinity), 0, found)


def ldexp(x: Term, y: Term) -> Term:
    """x · 2^y for a whole number y, rounded once: steps towards small numbers stop where the last one alone rounds (musl)."""
    form = format_of(x)
    whole = where(y >= -_MOST, where(y > _MOST, _MOST, y), -_MOST)  # NaN counts as the least
    n = whole.to(x.bits().signed().dtype)
    least, step = 1 - form.bias, form.mantissa + 2 - form.bias
    for _ in range(2):
        large, small = n > form.bias, n < least
        x = where(large, x * 2.0**form.bias, where(small, x * 2.0**step, x))
        n = where(large, n - form.bias, where(small, n - step, n))
    n = where(n > form.bias, form.bias, where(n < least, least, n))
    return x * ((n + form.bias) << form.mantissa).as_float()
