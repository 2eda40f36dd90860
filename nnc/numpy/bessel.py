"""Bessel functions and sinc. Derivatives of every order are made of functions of neighbouring orders, so nothing cancels near 0."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.array.promote import as_operand, astype, promote, weakness_of_result, with_weakness
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import special as commands
from nnc.commands.elementwise import FLOAT, INEXACT
from nnc.commands.rules import check_dtype
from nnc.graph import spec_of
from nnc.numpy import elementwise as el
from nnc.numpy.wide import in_float64, keep, polynomial
from nnc.trace.core.custom import elementwise_jvp
from nnc.typing import ArrayLike

__all__ = ["i0", "i0e", "i1", "i1e", "sinc"]


@spelled
def i0e(x: ArrayLike, /) -> Array:
    """Returns exp(-|x|) · I0(x), the modified Bessel function of order 0, which does not overflow.

    Args:
        x: real, any shape.

    Example:
        >>> i0e(nnp.asarray([0.0, 1000.0]))
        Array([1.        , 0.01261724], dtype=float32)
    """
    return el.call("i0e", commands.i0e, FLOAT, dtypes.to_float, x)


@spelled
def i1e(x: ArrayLike, /) -> Array:
    """Returns exp(-|x|) · I1(x), the modified Bessel function of order 1, which does not overflow.

    Args:
        x: real, any shape.

    Example:
        >>> i1e(nnp.asarray([0.0, 1000.0]))
        Array([0.        , 0.01261093], dtype=float32)
    """
    return el.call("i1e", commands.i1e, FLOAT, dtypes.to_float, x)


@spelled
def i0(x: ArrayLike, /) -> Array:
    """Returns the modified Bessel function of order 0.

    Args:
        x: real, any shape.

    Example:
        >>> i0(1.0)
        Array(1.2660658, dtype=float32)
    """
    return in_float64("i0", lambda x: _modified(0, x), x)


@spelled
def i1(x: ArrayLike, /) -> Array:
    """Returns the modified Bessel function of order 1.

    Args:
        x: real, any shape.

    Example:
        >>> i1(nnp.asarray([0.0, 1.0]))
        Array([0.       , 0.5651591], dtype=float32)
    """
    return in_float64("i1", lambda x: _modified(1, x), x)


@spelled
def sinc(x: ArrayLike, /) -> Array:
    """Returns `sin(π x) / (π x)`, and 1 at 0.

    Args:
        x: any shape.

    Example:
        >>> sinc(0.0)
        Array(1., dtype=float32)
    """
    given = as_operand(x, "sinc")
    (value,) = promote(given, where="sinc", to=dtypes.to_float)
    dtype = spec_of(value).dtype
    check_dtype("sinc", spec_of(value), *INEXACT)
    result = astype(spherical_bessel(0, astype(value, dtypes.accumulator(dtype)), in_half_turns=True), dtype)
    return with_weakness(result, weakness_of_result(dtype, [given]))


def _modified(n: int, x: Array) -> Array:
    @elementwise_jvp
    def function(x: Array) -> Array:
        scaled = commands.i0e(x) if n == 0 else commands.i1e(x) if n == 1 else commands.ine(x, n=n)
        root = el.exp(0.5 * abs(x))  # the result overflows later than e^|x|
        return scaled * root * root

    def slope(t: Array, result: Array, x: Array) -> Array:
        """(I(n - 1) + I(n + 1)) / 2, and I1 of order 0."""
        return t * (0.5 * (_modified(n - 1, x) + _modified(n + 1, x)) if n else _modified(1, x))

    function.defjvps(slope)
    return function(x)


# the spherical ones of the first kind: xⁿ times a series in x², by recurrence from n + 2 on; below, it would lose digits
def _series(n: int) -> tuple[float, ...]:
    terms = [1 / math.prod(range(1, 2 * n + 2, 2))]
    for k in range(1, 18):
        terms.append(terms[-1] / (-2 * k * (2 * n + 2 * k + 1)))
    return tuple(terms)


def spherical_bessel(n: int, x: Array, in_half_turns: bool = False) -> Array:
    """j_n(x), or j_n(π x) where x counts half turns: j_0(x) is sin(x) / x.

    Args:
        n: the order, static.
        x: a floating-point or complex dtype.
        in_half_turns: x is multiplied by π; j_0 is 0 at whole numbers.
    """

    @elementwise_jvp
    def function(x: Array) -> Array:
        y = x * math.pi if in_half_turns else x
        near = abs(y) < n + 2
        small = keep(near, y, 0.0)
        value = polynomial(small * small, _series(n))
        for _ in range(n):
            value = value * small
        sine, cosine = _sine_and_cosine(keep(~near, x, n + 2.0), in_half_turns)
        inverse = 1 / keep(~near, y, n + 2.0)
        far = before = sine * inverse
        for k in range(1, n + 1):
            far, before = (2 * k - 1) * inverse * far - (before if k > 1 else inverse * cosine), far
        return el.where(near, value, far)

    def slope(t: Array, result: Array, x: Array) -> Array:
        """(n j(n - 1) - (n + 1) j(n + 1)) / (2 n + 1)."""
        after = spherical_bessel(n + 1, x, in_half_turns)
        factor = math.pi if in_half_turns else 1.0
        if not n:
            return t * (-factor * after)
        difference = n * spherical_bessel(n - 1, x, in_half_turns) - (n + 1) * after
        return t * (difference * (factor / (2 * n + 1)))

    function.defjvps(slope)
    return function(x)


def _sine_and_cosine(x: Array, in_half_turns: bool) -> tuple[Array, Array]:
    if not in_half_turns:
        return el.sin(x), el.cos(x)
    whole = el.round(el.real(x) if dtypes.is_complex(x.spec.dtype) else x)
    sign = el.where(el.equal(el.remainder(whole, 2), 0), 1.0, -1.0)
    rest = math.pi * (x - whole)
    return el.sin(rest) * sign, el.cos(rest) * sign
