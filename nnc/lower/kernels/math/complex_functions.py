"""Functions of complex numbers by real functions of their parts, with C99's values (Annex G) at infinities and NaN.

All is computed in float64, where neither squares nor exponentials of float32 overflow. Of float64, large exponentials are two
factors, the second of which is multiplied last.
"""

from __future__ import annotations

import math

from nnc.base import dtypes
from nnc.lower.kernels.math.angles import cos, sin
from nnc.lower.kernels.math.complexes import Complex, complex_quotient
from nnc.lower.kernels.math.exponential import exp
from nnc.lower.kernels.math.hyperbolic import cosh, sinh
from nnc.lower.kernels.math.inverse_angles import atan2
from nnc.lower.kernels.math.logarithm import log, log1p
from nnc.lower.kernels.math.power import hypot
from nnc.lower.kernels.math.rounding import copysign
from nnc.lower.kernels.math.terms import Term, absolute, sqrt, two_product, where

_LARGE, _SHIFT = 700.0, 600.0  # arguments from which on exponentials are two factors, and the logarithm of the second
_ALONE = 22.0  # from here on e^-x does not count beside e^x


def _wide(z: Complex) -> tuple[Term, Term]:
    return z.real.to(dtypes.float64), z.imag.to(dtypes.float64)


def _is_infinite(x: Term) -> Term:
    return absolute(x).equals(math.inf)


def _is_finite(x: Term) -> Term:
    return absolute(x) < math.inf


def _shifted(x: Term) -> tuple[Term, Term]:
    """A number whose exponential does not overflow, and the factor that its exponential lacks."""
    is_large = absolute(x) > _LARGE
    return where(is_large, x - copysign(x.constant(_SHIFT), x), x), where(is_large, math.exp(_SHIFT), x.constant(1))


def complex_exp(z: Complex) -> Complex:
    """e^z."""
    a, b = _wide(z)
    near, factor = _shifted(a)
    size = exp(where(a > 0, near, a))
    factor = where(a > 0, factor, 1)
    real, imag = size * cos(b) * factor, size * sin(b) * factor
    lost = _is_infinite(a) & ~_is_finite(b)
    real = where(lost, where(a > 0, a, 0), real)
    imag = where(lost, where(a > 0, math.nan, a.constant(0)), imag)
    return Complex(real, where(b.equals(0), b, imag))


def complex_log(z: Complex) -> Complex:
    """log |z| and the angle; |z|² - 1 has all its digits where it is near 0."""
    a, b = _wide(z)
    x, y = absolute(a), absolute(b)
    large, small = where(x > y, x, y), where(x > y, y, x)
    square, lost = two_product(large, large)
    other, other_lost = two_product(small, small)
    over = ((square - 1) + other) + (lost + other_lost)
    is_tiny = large < 2.0**-900  # denormal numbers have few digits
    scale = where(is_tiny, 2.0**200, a.constant(1))
    far = log(hypot(a * scale, b * scale)) - where(is_tiny, 200 * math.log(2), a.constant(0))
    size = where(absolute(over) < 0.5, log1p(over) * 0.5, far)
    return Complex(size, atan2(b, a))


def complex_sqrt(z: Complex) -> Complex:
    """√z, with the sign of the imaginary part that z has; parts are scaled where they are extreme."""
    a, b = _wide(z)
    size = where(absolute(a) > absolute(b), absolute(a), absolute(b))
    huge, tiny, one = size > 2.0**1000, size < 2.0**-900, a.constant(1)
    scale = where(huge, 2.0**-4, where(tiny, 2.0**160, one))
    back = where(huge, 2.0**2, where(tiny, 2.0**-80, one))
    x, y = a * scale, b * scale
    root = sqrt((absolute(x) + hypot(x, y)) * 0.5)
    other = absolute(y) / (root + root)
    is_right = (a >= 0) | a.is_nan()
    real, imag = where(is_right, root, other) * back, where(is_right, other, root) * back
    is_zero = a.equals(0) & b.equals(0)
    real = where(_is_infinite(b), math.inf, where(is_zero, 0, real))
    imag = where(_is_infinite(b) | is_zero, absolute(b), imag)
    return Complex(real, copysign(imag, b))


def complex_sinh(z: Complex) -> Complex:
    """sinh z."""
    a, b = _wide(z)
    near, factor = _shifted(a)
    real, imag = sinh(near) * cos(b) * factor, cosh(near) * sin(b) * factor
    lost = _is_infinite(a) & ~_is_finite(b)
    real = where(a.equals(0), a, where(lost, a, real))
    return Complex(real, where(b.equals(0), b, imag))


def complex_cosh(z: Complex) -> Complex:
    """cosh z."""
    a, b = _wide(z)
    near, factor = _shifted(a)
    real, imag = cosh(near) * cos(b) * factor, sinh(near) * sin(b) * factor
    lost = _is_infinite(a) & ~_is_finite(b)
    flat = a.equals(0) | b.equals(0)
    return Complex(
        where(lost, math.inf, real), where(flat, copysign(a.constant(0), a) * copysign(b.constant(1), b), imag)
    )


def complex_tanh(z: Complex) -> Complex:
    """tanh z = (sinh a cosh a + i sin b cos b) / (sinh² a + cos² b); at infinite a, 0 has the sign of b (array API standard)."""
    a, b = _wide(z)
    size = absolute(a)
    is_far = size > _ALONE
    near = where(is_far, _ALONE, size)
    s, c, sine, cosine = sinh(near), cosh(near), sin(b), cos(b)
    below = s * s + cosine * cosine
    real = copysign(where(is_far, 1, s * c / below), a)
    imag = sine * cosine * where(is_far, exp(size * -2) * 4, 1 / below)
    real = where(~_is_finite(b) & ~_is_infinite(a) & ~a.equals(0), math.nan, where(a.equals(0), a, real))
    imag = where(_is_infinite(a), copysign(b.constant(0), b), where(b.equals(0), b, imag))
    return Complex(where(a.is_nan(), a, real), imag)


def complex_sin(z: Complex) -> Complex:
    """sin z = -i sinh iz."""
    turned = complex_sinh(Complex(-z.imag, z.real))
    return Complex(turned.imag, -turned.real)


def complex_cos(z: Complex) -> Complex:
    """cos z = cosh iz."""
    return complex_cosh(Complex(-z.imag, z.real))


def complex_tan(z: Complex) -> Complex:
    """tan z = -i tanh iz."""
    turned = complex_tanh(Complex(-z.imag, z.real))
    return Complex(turned.imag, -turned.real)


def complex_rsqrt(z: Complex) -> Complex:
    """1 / √z."""
    root = complex_sqrt(z)
    return complex_quotient(Complex(root.real.constant(1), root.real.constant(0)), root)
