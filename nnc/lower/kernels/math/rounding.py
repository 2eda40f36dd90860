"""Rounding, order, signs, remainders and safe products of floats: exact functions."""

from __future__ import annotations

import math

from nnc.base import dtypes
from nnc.lower.kernels.builder import known_number
from nnc.lower.kernels.math.terms import Term, absolute, any_lane, fma, format_of, where


def maximum(x: Term, y: Term) -> Term:
    """Returns the larger one; NaN where one is NaN."""
    return where(x.is_nan(), x, where(x > y, x, y))


def minimum(x: Term, y: Term) -> Term:
    """Returns the smaller one; NaN where one is NaN."""
    return where(x.is_nan(), x, where(x < y, x, y))


def safe_product(x: Term, y: Term) -> Term:
    """x · y; 0 where one of them is 0, even if the other is infinite or NaN. Known finite numbers make no NaN of a 0."""
    known = [number for number in (known_number(x.value), known_number(y.value)) if number is not None]
    if any(number != 0 and math.isfinite(number) for number in known):
        return x * y
    return where(x.compare("ne", 0) & y.compare("ne", 0), x * y, 0)


def sign(x: Term) -> Term:
    """-1, 0 or 1; NaN of NaN."""
    return where(x > 0, 1, where(x < 0, -1, where(x.is_nan(), x, 0)))


def floor(x: Term) -> Term:
    """Returns the next integer below."""
    return x.intrinsic("floor")


def ceil(x: Term) -> Term:
    """Returns the next integer above."""
    return x.intrinsic("ceil")


def trunc(x: Term) -> Term:
    """Returns the next integer towards 0."""
    return x.intrinsic("trunc")


def round_even(x: Term) -> Term:
    """Returns the nearest integer, the even one of two."""
    return x.intrinsic("roundeven")


def copysign(x: Term, y: Term) -> Term:
    """|x| with the sign of y."""
    return x.intrinsic("copysign", y)


def signbit(x: Term) -> Term:
    """Whether the sign bit is set."""
    return x.bits().signed() < 0


def nextafter(x: Term, y: Term) -> Term:
    """Returns the next number from x towards y; bit patterns of floats are ordered as their sizes are. Of any float dtype."""
    bits = x.bits().signed()
    wide, aim = (term.to(dtypes.accumulator(x.dtype)) for term in (x, y))
    away = ~((wide < aim) ^ (bits >= 0))
    smallest = (y.bits() & (1 << (8 * x.dtype.itemsize - 1))) | 1
    moved = where(wide.equals(0), smallest.signed(), where(away, bits + 1, bits - 1))
    out = where(wide.equals(aim) | aim.is_nan(), y, x.of(x.code.bitcast(moved.value, x.dtype)))
    return where(wide.is_nan(), x, out)


def fmod(x: Term, y: Term) -> Term:
    """Returns the remainder of x after multiples of y, with the sign of x; exact.

    Iterations take off the multiple q · y whose q has the leading bits of the quotient, half as many as a float has, so that the
    rest is a float. Most arguments need one iteration; the loop goes on while a lane does.
    """
    code, form = x.code, format_of(x)
    size = absolute(y)
    usable = (size > 0) & (absolute(x) < math.inf)
    left = code.slot(absolute(x).value)
    test, step, done = (code.label(stem) for stem in ("test", "step", "done"))
    code.jump(test)
    code.place(test)
    rest = x.of(code.read(left))
    larger = usable & (rest >= size)
    code.branch(any_lane(larger).value, step, done)
    code.place(step)
    reach = 2.0 ** (form.bias - 27)  # where the quotient might overflow, larger multiples are taken off first
    multiple = size
    for _ in range(2):
        multiple = where(rest * 0.25 > multiple * reach, multiple * reach, multiple)
    leading = -(1 << (form.mantissa + 3) // 2) & (2 * form.sign - 1)
    q = (((rest / multiple).bits() - 1) & leading).as_float()  # the float below is not above the exact quotient
    q = where(q < 1, 1, q.intrinsic("trunc"))
    taken = fma(-q, multiple, rest)
    code.write(left, where(larger, taken, rest).value)
    code.jump(test)
    code.place(done)
    return where(usable, copysign(x.of(code.read(left)), x), math.nan)


def remainder(x: Term, y: Term) -> Term:
    """Returns the remainder of x after multiples of y, with the sign of y."""
    left = fmod(x, y)
    wrong = (left < 0).compare("ne", y < 0) & left.compare("ne", 0)
    return where(left.equals(0), copysign(left, y), where(wrong, left + y, left))


def floor_divide(x: Term, y: Term) -> Term:
    """Returns the floor of x / y, found through the remainder, so that it is exact; of infinite operands, the floor of their
    quotient.
    """
    left = fmod(x, y)
    quotient = (x - left) / y
    wrong = (left < 0).compare("ne", y < 0) & left.compare("ne", 0)
    quotient = where(wrong, quotient - 1, quotient)
    low = floor(quotient)
    low = where(quotient - low > 0.5, low + 1, low)
    plain = x / y
    out = where(quotient.equals(0), copysign(quotient.constant(0), plain), low)
    infinite = absolute(x).equals(math.inf) | absolute(y).equals(math.inf)
    return where(infinite, floor(plain), where(y.equals(0), plain, out))
