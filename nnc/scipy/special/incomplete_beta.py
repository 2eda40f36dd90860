"""The incomplete beta function and its complement: a continued fraction and, where both parameters are large, a quadrature.

The factor x^a (1 - x)^b / B(a, b) and both sums depend on a - (a + b) x, which is formed with its rounding error, so that results
near the mean of large parameters keep their digits.
"""

from __future__ import annotations

import math

import numpy as np

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.numpy.gammas import STIRLING_FROM, gamma_positive, stirling
from nnc.numpy.manipulation import expand_dims
from nnc.numpy.reductions import max as max_
from nnc.numpy.reductions import sum as sum_
from nnc.numpy.wide import in_float64, keep, polynomial, slope
from nnc.scipy.special.pieces import log_gap, product
from nnc.trace.core.custom import custom_jvp
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike

__all__ = ["betainc", "betaincc"]

_QUADRATURE_FROM = 3000.0  # of the smaller parameter; up to there the fraction needs less than 200 terms
_ENDLESS = 1e30  # from here on the distribution is narrower than a unit in the last place of its mean
_NODES, _WEIGHTS = (tuple(x.tolist()) for x in np.polynomial.legendre.leggauss(32))
_EXPONENT = 42.0  # the integrand is left out where it is below e^-42


def _gap(a: Array, b: Array, x: Array) -> Array:
    """a (1 - x) - b x = a - (a + b) x, with all rounding errors while the parameters are below 1e30."""
    y = 1 - x
    fits = el.logical_and(a < _ENDLESS, b < _ENDLESS)
    first, first_tail = product(el.where(fits, a, 1.0), y)
    second, second_tail = product(el.where(fits, b, 1.0), x)
    exact = (first - second) + ((first_tail - second_tail) + el.where(fits, a, 1.0) * ((1 - y) - x))
    return el.where(fits, exact, a * y - b * x)


def _log_gap(mu: Array, quotient: Array) -> Array:
    """μ - log(1 + μ), where 1 + μ is also known as a quotient, which is exact where μ is near -1."""
    far = mu < -0.5
    q = keep(far, quotient, 1.0)
    return el.where(far, q - 1 - el.log(q), log_gap(keep(~far, mu, 0.0)))


def _factor(a: Array, b: Array, x: Array, gap: Array) -> Array:
    """x^a (1 - x)^b / B(a, b) (Didonato and Morris, "Algorithm 708", 1992, function BRCOMP)."""
    less = a < b
    low, high = el.where(less, a, b), el.where(less, b, a)
    far, both = high >= STIRLING_FROM, low >= STIRLING_FROM
    small = el.where(low < 1, 1 + low, low)  # Γ(low) = Γ(1 + low) / low
    gamma_low = gamma_positive(keep(~both, small, 1.0)) / keep(low < 1, low, 1.0)
    h = keep(~far, high, 1.0)
    quotient = gamma_positive(el.where(far, 2.0, low + high)) / gamma_positive(h) / gamma_low
    near = quotient * el.exp(a * el.log(x) + b * el.log1p(-x))
    # one is small: z is the base of its power
    mixed = el.logical_and(far, ~both)
    s, h = keep(mixed, low, 1.0), keep(far, high, STIRLING_FROM)
    base = el.where(less, x, 1 - x)
    rest = stirling(h + s) - stirling(h) - h * log_gap(s / h) - 0.5 * el.log1p(s / h)
    of_high = el.where(less, el.log1p(-x), el.log(x))
    half = el.power(base * (h + s), 0.5 * s)
    tail = half * el.exp(keep(mixed, h * of_high, 0.0) + rest) / gamma_low * half
    # both are large
    c, d, e = keep(both, a, STIRLING_FROM), keep(both, b, STIRLING_FROM), keep(both, gap, 0.0)
    z = keep(both, x, 0.5)
    exponent = (
        -c * _log_gap(-e / c, z * (1 + d / c))
        - d * _log_gap(e / d, (1 - z) * (1 + c / d))
        + (stirling(c + d) - stirling(c) - stirling(d))
    )
    large = el.exp(exponent) * el.sqrt(c / (c + d) * d / (2 * math.pi))
    return el.where(both, large, el.where(mixed, tail, near))


def _fraction(a: Array, b: Array, x: Array, gap: Array) -> Array:
    """Returns the continued fraction of I_x(a, b) B(a, b) / (x^a (1 - x)^b) (Didonato and Morris, equation 9), from its last
    term.
    """
    y = 1 - x
    root = el.sqrt(el.where(a < b, a, b))
    spread = a * y  # of a small b the fraction converges the more slowly, the nearer x is to 1
    slow = el.where(el.logical_and(b < 1, a > 5), 130 / el.maximum(spread, 1.0), 0.0)
    count = el.floor(max_(25 + el.minimum(3 * root, 100 + 0.75 * root) + slow))

    def term(n: Array | int) -> Array:
        twice = a + 2 * n
        return (
            n
            + n * (b - n) * x / el.where(el.equal(twice, 1), 1.0, twice - 1)
            + (a + n) / (twice + 1) * (gap + 1 + n * (1 + y))
        )

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        n, total = carry
        over = x / (a + 2 * n - 1)
        numerator = (a + (n - 1)) * ((a + b + (n - 1)) * over) * (n * (b - n) * over)
        return n - 1, term(n - 1) + numerator / total

    _, total = while_loop(lambda carry: carry[0] > 0.5, step, (count, term(count)))
    return 1 / total


# (e^-v - 1 + v) / v²
_EXPM1 = tuple((-1) ** k / math.factorial(k + 2) for k in range(16))


def _integral(a: Array, b: Array, x: Array, gap: Array) -> Array:
    """∫ e^(-a u) (1 - x + x e^-u)^(-a - b) du over u > 0, for large parameters and x below the mean, by Gauss and Legendre's rule.

    The exponent is -gap · u - (a + b) g(u), where g, the cumulant function of a centred Bernoulli number, is formed from series.
    """
    low = x < 0.5
    p = el.where(low, x, 1 - x)
    spread = (a + b) * x * (1 - x)
    end = 2 * _EXPONENT / (gap + el.sqrt(gap * gap + 2 * _EXPONENT * spread))
    u = expand_dims(end, -1) * (0.5 * (1 + np.asarray(_NODES)))
    p, sign = expand_dims(p, -1), expand_dims(el.where(low, 1.0, -1.0), -1)
    v = sign * u
    bent = v * v * polynomial(v, _EXPM1)  # e^-v - 1 + v
    cumulant = p * bent - log_gap(p * (bent - v))
    terms = el.exp(-expand_dims(gap, -1) * u - expand_dims(a + b, -1) * cumulant)
    return 0.5 * end * sum_(terms * np.asarray(_WEIGHTS), axis=-1)


def _inside(a: Array, b: Array, x: Array) -> Array:
    positive = el.logical_and(el.logical_and(a > 0, b > 0), el.logical_and(a < math.inf, b < math.inf))
    return el.logical_and(positive, el.logical_and(x > 0, x < 1))


def _both(a: Array, b: Array, x: Array) -> tuple[Array, Array]:
    """Returns the function and 1 less it; mostly the smaller one is computed."""
    inside = _inside(a, b, x)
    c, d, z = keep(inside, a, 1.0), keep(inside, b, 1.0), keep(inside, x, 0.5)
    endless = el.logical_and(c > _ENDLESS, d > _ENDLESS)
    step = el.where(endless, el.sign(z / (1 - z) - c / d) * 0.5 + 0.5, 0.0)
    c, d, z = keep(~endless, c, 1.0), keep(~endless, d, 1.0), keep(~endless, z, 0.5)
    gap = _gap(c, d, z)
    large = el.logical_and(c > _QUADRATURE_FROM, d > _QUADRATURE_FROM)
    turned = el.where(large, gap < 0, z * (c + d + 2) > c + 1)
    first, second = el.where(turned, d, c), el.where(turned, c, d)
    near, distance = el.where(turned, 1 - z, z), el.where(turned, -gap, gap)
    fraction = _fraction(
        keep(~large, first, 1.0), keep(~large, second, 1.0), keep(~large, near, 0.5), keep(~large, distance, 0.0)
    )
    wide = 2 * _QUADRATURE_FROM
    integral = _integral(
        keep(large, first, wide), keep(large, second, wide), keep(large, near, 0.5), keep(large, distance, 0.0)
    )
    small = _factor(c, d, z, gap) * el.where(large, integral, fraction)
    value = el.where(endless, step, el.where(turned, 1 - small, small))
    rest = el.where(endless, 1 - step, el.where(turned, small, 1 - small))
    end = _ends(a, b, x)
    return el.where(inside, value, end), el.where(inside, rest, 1 - end)


def _value(a: Array, b: Array, x: Array) -> Array:
    return _both(a, b, x)[0]


def _complement(a: Array, b: Array, x: Array) -> Array:
    return _both(a, b, x)[1]


def _ends(a: Array, b: Array, x: Array) -> Array:
    """Results where the distribution is a point, 0 or 1, and at both ends; NaN outside."""
    at_zero = el.logical_or(el.equal(a, 0), el.equal(b, math.inf))
    at_one = el.logical_or(el.equal(b, 0), el.equal(a, math.inf))
    valid = el.logical_and(el.logical_and(a >= 0, b >= 0), el.logical_and(x >= 0, x <= 1))
    valid = el.logical_and(valid, ~el.logical_and(at_zero, at_one))
    full = el.logical_and(x > 0, el.logical_or(at_zero, el.equal(x, 1)))
    return el.where(valid, el.where(full, 1.0, 0.0), math.nan)


def _density(a: Array, b: Array, x: Array) -> Array:
    """x^(a - 1) (1 - x)^(b - 1) / B(a, b), the derivative in x."""
    inside = _inside(a, b, x)
    c, d, z = keep(inside, a, 1.0), keep(inside, b, 1.0), keep(inside, x, 0.5)
    value = _factor(c, d, z, _gap(c, d, z)) / (z * (1 - z))
    at_zero = el.where(a < 1, math.inf, el.where(a > 1, 0.0, b))
    at_one = el.where(b < 1, math.inf, el.where(b > 1, 0.0, a))
    end = el.where(el.equal(x, 0), at_zero, el.where(el.equal(x, 1), at_one, math.nan))
    return el.where(inside, value, el.where(el.logical_and(a > 0, b > 0), end, math.nan))


_betainc, _betaincc = custom_jvp(_value), custom_jvp(_complement)
_betainc.defjvps(
    lambda t, result, a, b, x: t * slope(_value, a, b, x),
    lambda t, result, a, b, x: t * slope(_value, a, b, x, by=1),
    lambda t, result, a, b, x: t * _density(a, b, x),
)
_betaincc.defjvps(
    lambda t, result, a, b, x: t * slope(_complement, a, b, x),
    lambda t, result, a, b, x: t * slope(_complement, a, b, x, by=1),
    lambda t, result, a, b, x: -t * _density(a, b, x),
)


@spelled
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Array:
    """Returns the regularized incomplete beta function, the integral of t^(a - 1) (1 - t)^(b - 1) from 0 to x over B(a, b).

    Differentiable in all operands. Errors were below 100 units in the last place, or 2 for each unit of the result's logarithm.
    Where b is far below 1 they are those of 1 - result.

    Args:
        a: above 0, any shape; broadcasts with `b` and `x`. Integers become float32.
        b: above 0, any shape.
        x: in [0, 1], any shape.

    Returns:
        the common shape; NaN for operands outside.

    Example:
        >>> betainc(2.0, 3.0, np.asarray([0.0, 0.5, 1.0]))
        Array([0.    , 0.6875, 1.    ], dtype=float64)
    """
    return in_float64("betainc", _betainc, a, b, x)


@spelled
def betaincc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Array:
    """Returns 1 - betainc(a, b, x), also where it is far below 1 and x near 0.

    Differentiable in all operands; see `betainc`.

    Args:
        a: above 0, any shape; broadcasts with `b` and `x`. Integers become float32.
        b: above 0, any shape.
        x: in [0, 1], any shape.

    Returns:
        the common shape; NaN for operands outside.

    Example:
        >>> betaincc(np.float64(0.5), 5e5, np.asarray([0.0, 1e-6, 1e-4]))
        Array([1.00000000e+00, 3.17310508e-01, 1.52016628e-23], dtype=float64)
    """
    return in_float64("betaincc", _betaincc, a, b, x)
