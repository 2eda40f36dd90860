"""Functions of float32 for graphics processors, which have instructions for 2^x and 1 / x.

The CPU's take 206 instructions for a chain of erfc, tanh and exp, where memory gives a kernel time for about 90 an element; these
take less than half. Their errors, in units in the last place, are measured in tests with an interpreter that computes 2^x and 1 / x
exactly; a device adds up to one unit for each. float64 has the CPU's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from nnc.commands.portable import ERFC_CENTRE
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.math import error, exponential, hyperbolic
from nnc.lower.kernels.math.terms import (
    Term,
    absolute,
    fma,
    horner,
    is_single,
    split_sign,
    two_sum,
    where,
    with_sign,
)

Function = Callable[[Term], Term]

_LOG2_E, _LOG2_E_TAIL = 1.44269502162933349609375, 1.925963033500011079e-8
_NORMAL = 87.3  # the largest x for which e^x and e^-x are far from the ends of the range
_MAGIC = 1.5 * 2.0**23 + 127  # a number added to it is rounded to an integer, which the lowest bits show with the bias
_ERFC_END = 10.3  # from here on erfc is 0


def _instruction(name: str, x: Term) -> Term:
    """Returns an instruction of the processor on each lane."""
    code, value, full = x.code, x.value, f"llvm.nvvm.{name}.approx.ftz.f"
    code.declare(f"declare float @{full}(float)")
    if not value.lanes:
        return x.of(Value(code.share(f"call float @{full}({value.typed})"), value.dtype))
    text = "poison"
    for lane in range(value.lanes):
        one = code.share(f"extractelement {value.typed}, i64 {lane}")
        one = code.share(f"call float @{full}(float {one})")
        text = code.share(f"insertelement {value.type} {text}, float {one}, i64 {lane}")
    return x.of(Value(text, value.dtype, value.lanes))


def _power_of_two(x: Term) -> Term:
    """2^x; 0 where that is denormal."""
    return _instruction("ex2", x)


def _quotient(x: Term, y: Term, tail: Term | None = None) -> Term:
    """x / (y + tail) for y from 2^-125 to 2^125 and a tail below its last place, with one step of Newton's method."""
    inverse = _instruction("rcp", y)
    near = x * inverse
    left = fma(-y, near, x)
    return fma(inverse, left if tail is None else fma(-tail, near, left), near)


def exp(x: Term) -> Term:
    """e^x = 2^n · 2^f. The integer n is at most 126 in size, beyond which f grows, so that the product overflows or is denormal."""
    cut = x.intrinsic("minnum", _NORMAL).intrinsic("maxnum", -_NORMAL)
    shifted = fma(cut, _LOG2_E, _MAGIC)
    n = shifted - _MAGIC
    rest = fma(x, _LOG2_E_TAIL, fma(x, _LOG2_E, -n))
    return _power_of_two(rest) * (shifted.bits() << 23).as_float()


def sigmoid(x: Term) -> Term:
    """1 / (1 + e^-x), of which e^x / (1 + e^x) keeps the digits far below 0."""
    small = exp(-absolute(x))
    return _quotient(where(x < 0, small, 1.0), *two_sum(x.constant(1), small))


def logistic_density(x: Term) -> Term:
    """e / (1 + e)² with e = e^-|x|, the derivative of the sigmoid."""
    small = exp(-absolute(x))
    total = small + 1
    return _quotient(small, total * total)


def tanh(x: Term) -> Term:
    """tanh x: near 0 a polynomial, from 0.55 on 1 - 2 / (e^2x + 1)."""
    sign, size = split_sign(x)
    z = size * size
    near = fma(size * z, horner(z, hyperbolic.TANH_SINGLE), size)
    power = _power_of_two(size * (2 * _LOG2_E))
    far = 1 - _instruction("rcp", power + 1) * 2
    return with_sign(sign, where(size < 0.55, near, far))


def erf(x: Term) -> Term:
    """erf x: below 1 a polynomial, from there on 1 - erfc x."""
    sign, size = split_sign(x)
    cut = where(size > 4.0, 4.0, size)
    inverse = _quotient(cut.constant(1), cut + error.COARSE_CENTRE)
    h = horner(fma(inverse, -2 * error.COARSE_CENTRE, 1.0), error.COARSE_SINGLE)
    far = fma(exp(-cut * cut) * inverse, -h, 1.0)
    return with_sign(sign, where(size < 1, error.erf_near(size), far))


def erfc(x: Term) -> Term:
    """1 - erf x: e^(-x²) · h(t) / (x + c), where the rounding error of x² is made up for (see nnc.lower.kernels.math.error)."""
    size = absolute(x)
    cut = where(size > _ERFC_END, _ERFC_END, size)
    inverse = _quotient(cut.constant(1), cut + ERFC_CENTRE)
    h = horner(fma(inverse, -2 * ERFC_CENTRE, 1.0), error.FAR_SINGLE) * inverse
    square = cut * cut
    lost = fma(cut, cut, -square)
    product = exp(-square) * h
    far = fma(product, -lost, product)
    near = fma(-x, horner(x * x, error.NEAR_SINGLE), 1 - x)
    return where(size < 0.75, near, where(x < 0, 2 - far, far))


def _for_single(own: Function, other: Function) -> Function:
    return lambda x: own(x) if is_single(x) else other(x)


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "exp": _for_single(exp, exponential.exp),
        "sigmoid": _for_single(sigmoid, exponential.sigmoid),
        "logistic_density": _for_single(logistic_density, exponential.logistic_density),
        "tanh": _for_single(tanh, hyperbolic.tanh),
        "erf": _for_single(erf, error.erf),
        "erfc": _for_single(erfc, error.erfc),
    }
)
