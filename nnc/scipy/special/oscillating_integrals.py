"""Sine, cosine and Fresnel's integrals, and Dawson's function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.elementwise import FLOAT
from nnc.commands.promote import astype, promote
from nnc.commands.rules import check_dtype
from nnc.graph import spec_of
from nnc.numpy import elementwise as el
from nnc.numpy.reductions import max as max_
from nnc.numpy.wide import in_float64, keep, polynomial
from nnc.scipy.special.pieces import product
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
    (x,) = promote(x, where=where, to=dtypes.to_float)
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
    c = el.where(low, el.where(zero, -math.inf, c), el.where(finite, far_c, 0.0))
    unknown = el.isnan(x)
    s = el.where(unknown, math.nan, el.copysign(s, x))
    return s, el.where(el.logical_or(unknown, el.equal(x, -math.inf)), math.nan, c)


@_sici.defjvp
def _push_sici(primals: tuple[Array], tangents: tuple[Array]) -> Any:
    (x,), (t,) = primals, tangents
    zero = el.equal(x, 0)
    y = el.where(zero, 1.0, x)
    return _sici(x), (t * el.where(zero, 1.0, el.sin(y) / y), t * (el.cos(x) / x))


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


def _quarter_turns(x: Array) -> tuple[Array, Array]:
    """sin and cos of π x² / 2, whose argument is reduced before it is rounded."""
    square, tail = product(x, x)
    turns = (square - 4 * el.round(0.25 * square)) + tail
    return el.sin(0.5 * math.pi * turns), el.cos(0.5 * math.pi * turns)


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
    sine, cosine = el.sin(0.5 * math.pi * x * x), el.cos(0.5 * math.pi * x * x)
    return _fresnel(x), (t * sine, t * cosine)


@spelled
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


_STEP = 0.25  # of the sum; its error is e^-(π / 2 / step)²
_TERMS = 12
_NEAR_ZERO = tuple((-2.0) ** k / math.prod(range(1, 2 * k + 2, 2)) for k in range(16))
_FAR = tuple(math.prod(range(1, 2 * k, 2)) / 2.0**k for k in range(14))  # (2k - 1)!! / 2^k


def _dawsn(x: Array) -> Array:
    """Rybicki, "Dawson's integral and the sampling theorem" (1989); a power series below ½, the asymptotic one from 12 on."""
    near, far = abs(x) < 0.5, abs(x) > 12
    small = keep(near, x, 0.0)
    middle = keep(~(near | far), x, 1.0)
    inverse = 1 / keep(far, x, 12.0)
    centre = 2 * el.round(middle * (0.5 / _STEP))
    rest = middle - centre * _STEP
    total = 0.0 * middle
    for k in range(-2 * _TERMS - 1, 2 * _TERMS + 2, 2):
        distance = rest - k * _STEP
        total = total + el.exp(-distance * distance) / (centre + k)
    end = 0.5 * inverse * polynomial(inverse * inverse, _FAR)
    value = el.where(
        near, small * polynomial(small * small, _NEAR_ZERO), el.where(far, end, total / math.sqrt(math.pi))
    )
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
