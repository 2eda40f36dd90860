"""Sine, cosine and Fresnel's integrals, and Dawson's function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nnc.array.array import Array, as_value
from nnc.array.promote import astype, promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import FLOAT
from nnc.commands.rules import check_dtype
from nnc.graph import spec_of
from nnc.numpy import elementwise as el
from nnc.numpy.bessel import spherical_bessel
from nnc.numpy.operands import keeps_weakness
from nnc.numpy.reductions import max as max_
from nnc.numpy.wide import in_float64, keep, polynomial
from nnc.scipy.special.pieces import product, sin_pi
from nnc.trace.core.custom import custom_jvp
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike

__all__ = ["dawsn", "fresnel", "sici"]

_EULER = 0.5772156649015329
_SINE = tuple((-1) ** k / ((2 * k + 1) * math.factorial(2 * k + 1)) for k in range(13))
_COSINE = tuple((-1) ** k / (2 * k * math.factorial(2 * k)) for k in range(1, 14))
_SICI_FROM = 2.5
_FRESNEL_S = tuple(
    (-1) ** k * (math.pi / 2) ** (2 * k + 1) / ((4 * k + 3) * math.factorial(2 * k + 1)) for k in range(14)
)
_FRESNEL_C = tuple((-1) ** k * (math.pi / 2) ** (2 * k) / ((4 * k + 1) * math.factorial(2 * k)) for k in range(14))
_FRESNEL_FROM = 1.3


def _pair(where: str, function: Callable[[Array], tuple[Array, Array]], x: Any) -> tuple[Array, Array]:
    """Two results of a float64 function, rounded to the dtype of the operand."""
    (x,) = map(as_value, promote(x, where=where, to=dtypes.to_float))
    kind = spec_of(x).dtype
    check_dtype(where, spec_of(x), *FLOAT)
    first, second = function(astype(x, dtypes.float64))
    return astype(first, kind), astype(second, kind)


def _complex_fraction(
    count: Array, term: Callable[[Array], Array], imaginary: Array, factor: Callable[[Array], Array]
) -> Any:
    """1 / (b(0) - c(1) / (b(1) - c(2) / …)), where b(k) = term(k) + i · imaginary, from its last term; real and imaginary parts."""

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, real, imag = carry
        scale = factor(k) / (real * real + imag * imag)
        return k - 1, term(k - 1) - scale * real, imaginary + scale * imag

    _, real, imag = while_loop(lambda carry: carry[0] > 0.5, step, (count, term(count) + 0 * imaginary, imaginary))
    size = real * real + imag * imag
    return real / size, -imag / size


@custom_jvp
def _sici(x: Array) -> tuple[Array, Array]:
    """Power series (DLMF 6.6.5 and 6.6.6), beyond the continued fraction of E1(i x) (DLMF 6.9.1)."""
    size = abs(x)
    low = size < _SICI_FROM
    small = keep(low, size, 1.0)
    square = small * small
    finite = size < 1e150
    large = keep(el.logical_and(~low, finite), size, 4.0)
    count = el.floor(20 + max_(400 / large))
    real, imag = _complex_fraction(count, lambda k: 1 + 2 * k, large, lambda k: k * k)
    sine, cosine = el.sin(large), el.cos(large)
    # E1(i x) = (cos x - i sin x) (real + i imag) = -Ci(x) + i (Si(x) - π / 2)
    far_s = math.pi / 2 + (cosine * imag - sine * real)
    far_c = -(cosine * real + sine * imag)
    s = el.where(low, small * polynomial(square, _SINE), el.where(finite, far_s, 0 * small + math.pi / 2))
    zero = el.equal(small, 0)
    c = _EULER + el.log(el.where(zero, 1.0, small)) + square * polynomial(square, _COSINE)
    huge = keep(el.logical_and(~finite, size < math.inf), size, math.inf)
    c = el.where(
        low, el.where(zero, -math.inf, c), el.where(finite, far_c, el.sin(keep(huge < math.inf, huge, 0.0)) / huge)
    )
    unknown = el.isnan(x)
    s = el.where(unknown, math.nan, el.copysign(s, x))
    return s, el.where(el.logical_or(unknown, el.equal(x, -math.inf)), math.nan, c)


@_sici.defjvp
def _push_sici(primals: tuple[Array], tangents: tuple[Array]) -> Any:
    (x,), (t,) = primals, tangents
    return _sici(x), (t * spherical_bessel(0, x), t * (el.cos(x) / x))


@spelled
def sici(x: ArrayLike, /) -> tuple[Array, Array]:
    """Returns the sine and the cosine integral: of sin(t) / t from 0 to x, and of cos(t) / t from ∞ to x.

    Args:
        x: real, any shape; integers become float32. Below 0 the cosine integral is that of |x|, the real part.

    Returns:
        (Si, Ci), each of the shape of x.

    Example:
        >>> sici(np.float64(1.0))
        (Array(0.94608307, dtype=float64), Array(0.33740392, dtype=float64))
    """
    return _pair("sici", _sici, x)


@custom_jvp
def _quarter_turns(x: Array) -> tuple[Array, Array]:
    """sin and cos of π x² / 2, whose argument is reduced before it is rounded; large numbers are even."""
    y = keep(abs(x) < 2.0**53, x, 0.0)
    square, tail = product(y, y)
    turns = (square - 4 * el.round(0.25 * square)) + tail
    return sin_pi(0.5 * turns), sin_pi(0.5 * turns + 0.5)


@_quarter_turns.defjvp
def _push_quarter_turns(primals: tuple[Array], tangents: tuple[Array]) -> Any:
    (x,), (t,) = primals, tangents
    sine, cosine = _quarter_turns(x)
    return (sine, cosine), (t * (math.pi * x * cosine), t * (-math.pi * x * sine))


@custom_jvp
def _fresnel(x: Array) -> tuple[Array, Array]:
    """Power series (DLMF 7.6.4 and 7.6.6), beyond the continued fraction of the error function of complex numbers."""
    size = abs(x)
    low, finite = size < _FRESNEL_FROM, size < 1e15
    small = keep(low, size, 1.0)
    fourth = small * small * small * small
    large = keep(el.logical_and(~low, finite), size, 2.0)
    count = el.floor(15 + max_(200 / large))
    square = large * large
    real, imag = _complex_fraction(count, lambda k: 1 + 4 * k, -math.pi * square, lambda k: (2 * k - 1) * (2 * k))
    sine, cosine = _quarter_turns(large)
    far_c = 0.5 - large * (cosine * real - sine * imag)
    far_s = 0.5 - large * (cosine * imag + sine * real)
    s = el.where(low, small * small * small * polynomial(fourth, _FRESNEL_S), el.where(finite, far_s, 0.5))
    c = el.where(low, small * polynomial(fourth, _FRESNEL_C), el.where(finite, far_c, 0.5))
    unknown = el.isnan(x)
    return el.where(unknown, math.nan, el.copysign(s, x)), el.where(unknown, math.nan, el.copysign(c, x))


@_fresnel.defjvp
def _push_fresnel(primals: tuple[Array], tangents: tuple[Array]) -> Any:
    (x,), (t,) = primals, tangents
    sine, cosine = _quarter_turns(x)
    return _fresnel(x), (t * sine, t * cosine)


@keeps_weakness
def fresnel(x: ArrayLike, /) -> tuple[Array, Array]:
    """Returns Fresnel's integrals: of sin(π t² / 2) and of cos(π t² / 2) from 0 to x.

    Args:
        x: real, any shape; integers become float32.

    Returns:
        (S, C), each of the shape of x.

    Example:
        >>> fresnel(np.float64(1.0))
        (Array(0.43825915, dtype=float64), Array(0.7798934, dtype=float64))
    """
    return _pair("fresnel", _fresnel, x)


# steps h of the sum, whose error is (π / 2 h)ⁿ exp(-(π / 2 h)²), and half its terms
_COARSE, _FINE = (0.25, 12), (0.2, 20)
_NEAR_ZERO = tuple((-2.0) ** k / math.prod(range(1, 2 * k + 2, 2)) for k in range(16))
_FAR = tuple(math.prod(range(1, 2 * k, 2)) / 2.0**k for k in range(14))  # (2k - 1)!! / 2^k


def _sampled(x: Array, n: int) -> Array:
    """Returns the sum over odd k of dⁿ exp(-d²) / (√π k), where d = x - k h, for even n; it is Dawson's function for n = 0.

    Rybicki, "Dawson's integral and the sampling theorem" (1989). The derivative is (n · sum n - 2 · sum n + 2) / x: since
    1 / k = (h + d / k) / x, sums of odd powers are those of the next even ones, divided by x.
    """

    @custom_jvp
    def function(x: Array) -> Array:
        step, terms = _FINE if n else _COARSE
        centre = 2 * el.round(x * (0.5 / step))
        rest, total = x - centre * step, 0.0 * x
        for k in range(-2 * terms - 1, 2 * terms + 2, 2):
            distance = rest - k * step
            square = distance * distance
            term = el.exp(-square) / (centre + k)
            for _ in range(n // 2):
                term = term * square
            total = total + term
        return total / math.sqrt(math.pi)

    function.defjvps(lambda t, result, x: t * ((n * result if n else 0.0) - 2 * _sampled(x, n + 2)) / x)
    return function(x)


def _dawsn(x: Array) -> Array:
    """Returns a power series below ½, a sum of samples, and the asymptotic series from 12 on."""
    near, far = abs(x) < 0.5, abs(x) > 12
    small = keep(near, x, 0.0)
    middle = keep(~(near | far), x, 1.0)
    inverse = 1 / keep(far, x, 12.0)
    end = 0.5 * inverse * polynomial(inverse * inverse, _FAR)
    value = el.where(near, small * polynomial(small * small, _NEAR_ZERO), el.where(far, end, _sampled(middle, 0)))
    return el.where(el.isnan(x), x, value)


@spelled
def dawsn(x: ArrayLike, /) -> Array:
    """Returns Dawson's function, exp(-x²) times the integral of exp(t²) from 0 to x.

    Args:
        x: real, any shape; integers become float32.

    Example:
        >>> dawsn(np.float64(1.0))
        Array(0.53807951, dtype=float64)
    """
    return in_float64("dawsn", _dawsn, x)
