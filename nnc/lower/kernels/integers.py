"""Scalar functions of integers and bools, by NumPy's rules: a division by 0 gives 0, results out of range wrap around.

Powers with a static integer exponent stand here, too, also powers of floats.
"""

from __future__ import annotations

from collections.abc import Callable

from nnc.base import dtypes
from nnc.commands import portable
from nnc.lower.kernels.math.terms import Term, any_lane, where

_LONGEST_CHAIN = 8  # of powers of floats; beyond, rounding errors add up to more than those of pow


def _safe_divisor(x: Term, y: Term) -> tuple[Term, Term]:
    """Returns the mask of zeros of y, and a divisor of x for which the machine's division is defined."""
    zero = y.equals(0)
    undefined = zero
    if x.dtype in dtypes.SIGNED:
        lowest = -(1 << (x.dtype.itemsize * 8 - 1))
        undefined = zero | (y.equals(-1) & x.equals(lowest))
    return zero, where(undefined, 1, y)


def _rem(x: Term, y: Term) -> Term:
    return x.of(x.code.rem(x.value, y.value))


def fmod(x: Term, y: Term) -> Term:
    """Returns the remainder of x, with the sign of x; 0 where y is 0."""
    _, safe = _safe_divisor(x, y)
    return _rem(x, safe)  # x % 1 = 0


def remainder(x: Term, y: Term) -> Term:
    """Returns the remainder of x, with the sign of y; 0 where y is 0."""
    left = fmod(x, y)
    if x.dtype in dtypes.UNSIGNED:
        return left
    zero, _ = _safe_divisor(x, y)
    wrong = ~left.equals(0) & ((left ^ y) < 0) & ~zero
    return where(wrong, left + y, left)


def floor_divide(x: Term, y: Term) -> Term:
    """Returns the floor of x / y; 0 where y is 0."""
    zero, safe = _safe_divisor(x, y)
    quotient = x / safe
    if x.dtype in dtypes.SIGNED:
        inexact = ~_rem(x, safe).equals(0) & ((x ^ safe) < 0)
        quotient = where(inexact, quotient - 1, quotient)
    return where(zero, 0, quotient)


def shift(x: Term, y: Term, *, left: bool) -> Term:
    """x shifted by y bits, or by all of them where y is negative or too large; the sign comes in from the left."""
    bits = x.dtype.itemsize * 8
    fits = y < bits
    if x.dtype in dtypes.SIGNED:
        fits = fits & (y >= 0)
        if not left:
            return x >> where(fits, y, bits - 1)
    by = where(fits, y, 0)
    return where(fits, x << by if left else x >> by, 0)


def integer_pow(x: Term, exponent: int, pow_: Callable[[Term, Term], Term]) -> Term:
    """x to a static integer power, by repeated multiplication; large powers of floats by `pow_`."""
    if exponent == 0:
        return x.constant(1)
    if dtypes.is_float(x.dtype) and not -_LONGEST_CHAIN // 2 <= exponent <= _LONGEST_CHAIN:
        return pow_(x, x.constant(exponent))
    if exponent < 0:
        x, exponent = 1 / x, -exponent
    total: Term | None = None
    while exponent:
        if exponent & 1:
            total = x if total is None else total * x
        exponent >>= 1
        if exponent:
            x = x * x
    assert total is not None
    return total


def _is_bool(x: Term) -> bool:
    return dtypes.is_bool(x.dtype)


def maximum(x: Term, y: Term) -> Term:
    """Returns the larger one; of bools, whether one holds."""
    return x | y if _is_bool(x) else where(x > y, x, y)


def minimum(x: Term, y: Term) -> Term:
    """Returns the smaller one; of bools, whether both hold."""
    return x & y if _is_bool(x) else where(x < y, x, y)


def absolute(x: Term) -> Term:
    """|x|; the lowest signed integer stays as it is."""
    return where(x < 0, -x, x) if x.dtype in dtypes.SIGNED else x


def sign(x: Term) -> Term:
    """-1, 0 or 1."""
    positive = (x > 0).to(x.dtype)
    return where(x < 0, -1, positive) if x.dtype in dtypes.SIGNED else positive


def popcount(x: Term) -> Term:
    """Returns the number of bits that are set."""
    return x.intrinsic("ctpop")


def gcd(x: Term, y: Term) -> Term:
    """Returns the greatest common divisor, by Euclid's algorithm on the sizes; 0 of zeros. The loop goes on while a lane does."""
    return x.of(x.code.bitcast(_common_divisor(x, y).value, x.dtype))


def _common_divisor(x: Term, y: Term) -> Term:
    code = x.code
    slots = [code.slot(absolute(each).bits().value) for each in (x, y)]
    test, step, done = (code.label(stem) for stem in ("test", "step", "done"))
    code.jump(test)
    code.place(test)
    a, b = (x.of(code.read(slot)) for slot in slots)
    goes_on = b.compare("ne", 0)
    code.branch(any_lane(goes_on).value, step, done)
    code.place(step)
    code.write(slots[0], where(goes_on, b, a).value)
    code.write(slots[1], where(goes_on, _rem(a, where(goes_on, b, 1)), 0).value)
    code.jump(test)
    code.place(done)
    return x.of(code.read(slots[0]))


def lcm(x: Term, y: Term) -> Term:
    """Returns the least common multiple, which is positive or wraps around; 0 where an operand is 0."""
    divisor = _common_divisor(x, y)
    is_zero = divisor.equals(0)
    product = absolute(x).bits() / where(is_zero, 1, divisor) * absolute(y).bits()
    return x.of(x.code.bitcast(where(is_zero, 0, product).value, x.dtype))


def _same(x: Term) -> Term:
    return x


def _product(x: Term, y: Term) -> Term:
    return x * y


FUNCTIONS: dict[str, Callable[..., Term]] = {
    "safe_product": _product,
    "fmod": fmod,
    "remainder": remainder,
    "floor_divide": floor_divide,
    "max": maximum,
    "min": minimum,
    "abs": absolute,
    "sign": sign,
    "floor": _same,
    "ceil": _same,
    "trunc": _same,
    "round_even": _same,
    "popcount": popcount,
    "gcd": gcd,
    "lcm": lcm,
    **portable.OF_WORDS,
}
