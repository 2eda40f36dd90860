"""Angles: trigonometric and hyperbolic functions with their inverses, elementwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full_like, ones_like
from nnc.commands.elementwise import (
    FLOAT,
    abs_,
    complex_,
    elementwise,
    equal,
    exp,
    imag,
    less,
    logistic_density,
    of_inexact,
    real,
    reciprocal,
    rsqrt,
    select,
    square,
)
from nnc.commands.rules import add_tangents
from nnc.graph import Command
from nnc.graph.rules import Value

NDArray = np.ndarray[Any, Any]


def _complex_tanh(x: NDArray) -> NDArray:
    """NumPy's tanh, except for an infinite real part: the standard gives the limit, ±1 with an imaginary 0 of the operand's
    sign, but C99 takes the sign of sin(2 y), which has no limit.
    """
    limit = np.empty_like(x)
    limit.real[...], limit.imag[...] = np.copysign(1, x.real), np.copysign(0, x.imag)
    return np.where(np.isinf(x.real), limit, np.tanh(x))


def _complex_tan(x: NDArray) -> NDArray:
    """-i tanh(i x)."""
    turned = np.empty_like(x)
    turned.real[...], turned.imag[...] = -x.imag, x.real
    result, value = np.empty_like(x), _complex_tanh(turned)
    result.real[...], result.imag[...] = value.imag, -value.real
    return result


sin: Command = of_inexact("sin", np.sin, lambda x, out: cos(x))
cos: Command = of_inexact("cos", np.cos, lambda x, out: -sin(x))
tan: Command = of_inexact("tan", np.tan, lambda x, out: out * out + 1, complex_function=_complex_tan)
asin: Command = of_inexact("asin", np.arcsin, lambda x, out: _slope_of_asin(x), singular=True)
acos: Command = of_inexact("acos", np.arccos, lambda x, out: -_slope_of_asin(x), singular=True)
atan: Command = of_inexact("atan", np.arctan, lambda x, out: _slope_of_atan(x))
sinh: Command = of_inexact("sinh", np.sinh, lambda x, out: cosh(x), singular=True)
cosh: Command = of_inexact("cosh", np.cosh, lambda x, out: sinh(x), singular=True)
tanh: Command = of_inexact("tanh", np.tanh, lambda x, out: _slope_of_tanh(x), complex_function=_complex_tanh)
asinh: Command = of_inexact("asinh", np.arcsinh, lambda x, out: _slope_of_asinh(x))
acosh: Command = of_inexact("acosh", np.arccosh, lambda x, out: _slope_of_acosh(x), singular=True)
atanh: Command = of_inexact("atanh", np.arctanh, lambda x, out: _slope_of_atanh(x), singular=True)
atan2: Command = elementwise(
    "atan2", np.arctan2, "atan2(x, y)", arity=2, accepts=FLOAT, singular=True,
    partials=(lambda x, y, out: _unit(y, hypot(x, y), 2), lambda x, y, out: -_unit(x, hypot(x, y), 2)),
)  # fmt: skip
hypot: Command = elementwise(
    "hypot", np.hypot, "hypot(x, y)", arity=2, accepts=FLOAT, singular=True,
    partials=(lambda x, y, out: _unit(x, out, 1), lambda x, y, out: _unit(y, out, 1)),
    root_of=(2, lambda primals, tangents: add_tangents(*map(_square_jvp, primals, tangents))),
)  # fmt: skip


def _square_jvp(x: Value, t: Value | None) -> Value | None:
    return None if t is None else x * t * 2


# Products of factors do not overflow where their squares do, and keep the digits near ±1. On a cut the sign of an imaginary 0 says
# on which side a number lies, and so which sign a root of it has. 1 - x and x + 1 add the 0 of the complex number 1 to it, and lose
# the sign; x - 1 and x - (-1) keep it.


def _one_minus_square(x: Value) -> Value:
    """1 - x² of a real number: as a product near ±1; near 0 as a difference, whose derivative -2 x does not cancel."""
    return select(less(abs_(x), full_like(x, 0.5)), 1 - x * x, (1 - x) * (1 + x))


def _turned(x: Value) -> tuple[Value, Value]:
    """1 + i x and 1 - i x of a complex number."""
    re, im = real(x), imag(x)
    return complex_(1 - im, re), complex_(1 + im, -re)


def _slope_of_asin(x: Value) -> Value:
    """1 / sqrt(1 - x²)."""
    return rsqrt(-(x - 1)) * rsqrt(x - (-1)) if dtypes.is_complex(x.dtype) else rsqrt(_one_minus_square(x))


def _slope_of_atan(x: Value) -> Value:
    """1 / (x² + 1)."""
    if dtypes.is_complex(x.dtype):
        one, other = _turned(x)
        return reciprocal(one) * reciprocal(other)
    return square(reciprocal(hypot(x, ones_like(x))))


def _slope_of_tanh(x: Value) -> Value:
    """1 / cosh² x = 4 e / (1 + e)², where e = exp(-2 x) or exp(2 x), whichever does not overflow."""
    if not dtypes.is_complex(x.dtype):
        return logistic_density(x * 2) * 4
    e = exp(select(less(real(x), full_like(real(x), 0)), x, -x) * 2)
    return 4 * e * square(reciprocal(1 + e))


def _slope_of_asinh(x: Value) -> Value:
    """1 / sqrt(x² + 1)."""
    if dtypes.is_complex(x.dtype):
        one, other = _turned(x)
        return rsqrt(one) * rsqrt(other)
    return reciprocal(hypot(x, ones_like(x)))


def _slope_of_acosh(x: Value) -> Value:
    """1 / sqrt(x² - 1)."""
    return rsqrt(x - 1) * rsqrt(x - (-1))


def _slope_of_atanh(x: Value) -> Value:
    """1 / (1 - x²)."""
    if dtypes.is_complex(x.dtype):
        return reciprocal(-(x - 1)) * reciprocal(x - (-1))
    return reciprocal(_one_minus_square(x))


def _unit(x: Value, length: Value, power: int) -> Value:
    """x / length^power, and 0 where there is no length: of the slopes at the origin the least."""
    at_zero = equal(length, length * 0)
    safe = select(at_zero, ones_like(length), length)
    quotient = x / safe if power == 1 else x / safe / safe
    return select(at_zero, length * 0, quotient)
