"""digamma and its derivatives, in float64."""

from __future__ import annotations

import math

from nnc.base import dtypes
from nnc.commands.special import ASYMPTOTIC, BERNOULLI, DIGAMMA_NEAR_ROOT, DIGAMMA_ROOT, LOWEST
from nnc.lower.kernels.math.angles import tan
from nnc.lower.kernels.math.logarithm import log
from nnc.lower.kernels.math.terms import Term, any_lane, horner, where

_MOST = 170  # the largest integer whose factorial float64 holds


def polygamma(x: Term, n: int) -> Term:
    """Returns the n-th derivative of digamma; n = 0: digamma itself."""
    wide = x.to(dtypes.float64)
    if n == 0:
        return _digamma(wide).to(x.dtype)
    factorial = float(math.factorial(n)) if n <= _MOST else math.inf
    return (_hurwitz(wide, n + 1) * (factorial if n % 2 else -factorial)).to(x.dtype)


def _digamma(x: Term) -> Term:
    """digamma by reflection to x >= ½, a polynomial near its root, else recurrence to x >= 12 and the asymptotic series."""
    mirrored = x < 0.5
    z = start = where(mirrored, 1 - x, x)
    total = z.constant(0)
    for _ in range(ASYMPTOTIC):
        low = z < ASYMPTOTIC
        total, z = where(low, total - 1 / z, total), where(low, z + 1, z)
    inverse = 1 / z
    square = inverse * inverse
    series = square * horner(square, [b / (2 * k) for k, b in enumerate(BERNOULLI, 1)])
    total = total + log(z) - inverse * 0.5 - series
    root, tail = DIGAMMA_ROOT
    near = (start - root - tail) * (horner(start - 1.5, DIGAMMA_NEAR_ROOT) / start)
    total = where((start >= 1) & (start < 2), near, total)
    fraction = x - (x + 0.5).intrinsic("floor")
    reflected = total - math.pi / tan(fraction * math.pi)
    pole = (x <= 0) & x.equals(x.intrinsic("floor"))
    return where(pole, math.nan, where(mirrored, reflected, total))


def _hurwitz(x: Term, s: int) -> Term:
    """Σ 1 / (x + k)^s over k >= 0, by recurrence and Euler and Maclaurin's formula; NaN below -64."""
    code = x.code
    places = [code.slot(each.value) for each in (where(x < LOWEST, math.nan, x), x.constant(0))]
    test, step, done = (code.label(stem) for stem in ("test", "step", "done"))
    code.jump(test)
    code.place(test)
    z, total = (x.of(code.read(place)) for place in places)
    low = z < ASYMPTOTIC + s
    code.branch(any_lane(low).value, step, done)
    code.place(step)
    code.write(places[0], where(low, z + 1, z).value)
    code.write(places[1], where(low, total + _power(1 / z, s), total).value)
    code.jump(test)
    code.place(done)
    z, total = (x.of(code.read(place)) for place in places)
    inverse = 1 / z
    below = _power(inverse, s - 1)
    coefficients, rising = list[float](), float(s)
    for k, b in enumerate(BERNOULLI, 1):
        coefficients.append(b * rising / math.factorial(2 * k))
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    square = inverse * inverse
    return total + below * (1 / (s - 1)) + below * inverse * 0.5 + below * square * horner(square, coefficients)


def _power(x: Term, exponent: int) -> Term:
    """Returns a positive integer power, by repeated multiplication."""
    total: Term | None = None
    while exponent:
        if exponent & 1:
            total = x if total is None else total * x
        x, exponent = x * x, exponent >> 1
    assert total is not None
    return total
