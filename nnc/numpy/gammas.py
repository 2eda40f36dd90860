"""The gamma and the beta function of positive float64 numbers, which functions of other modules use."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.commands.constants import ones_like
from nnc.commands.special import lgamma as lgamma_command
from nnc.commands.special import polygamma as polygamma_command
from nnc.numpy import elementwise as el
from nnc.numpy.wide import keep, polynomial
from nnc.trace.core.custom import elementwise_jvp

# (1 / Γ(1 + t) - 1) / t on |t| <= ½; 2^-55.7
_RECIPROCAL = (
    0.5772156649015329, -0.6558780715202539, -0.042002635034095515, 0.1665386113822915, -0.04219773455552084,
    -0.00962197152787899, 0.007218943245911072, -0.0011651675917944975, -0.00021524166229467653, 0.0001280502813722699,
    -2.01349556850396e-05, -1.250484796492716e-06, 1.1335045480626792e-06, -2.056750434568255e-07, 4.939580133523849e-09,
    5.1041498417163275e-09,
)  # fmt: skip
_LOW, _HIGH = 12, 200.0  # recurrence up to the first, infinite before the second
_ROOT_TWO_PI = math.sqrt(2 * math.pi)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
# log Γ(x) - (x - ½) log x + x - ½ log 2π, times x, in 1/x² for x >= 8; of the logarithm 2^-61
_STIRLING = (
    0.0833333333333331, -0.0027777777773586414, 0.0007936505764893221, -0.0005951896854773808, 0.0008364587492375858,
    -0.0016334355630369575,
)  # fmt: skip
STIRLING_FROM = 8.0


def stirling(x: Array) -> Array:
    """log Γ(x) - (x - ½) log x + x - ½ log 2π for x >= 8."""
    inverse = 1 / x
    return inverse * polynomial(inverse * inverse, _STIRLING)


def reciprocal_excess(t: Array) -> Array:
    """1 / Γ(1 + t) - 1 for |t| <= ½, 0 at 0."""
    return t * polynomial(t, _RECIPROCAL)


def log_gamma_above_one(a: Array) -> Array:
    """log Γ(1 + a) for 0 <= a, exact for small a."""
    near = a < 0.5
    return el.where(near, -el.log1p(reciprocal_excess(keep(near, a, 0.0))), lgamma_command(keep(~near, a, 1.0) + 1))


def gamma_factors(x: Array) -> tuple[Array, Array]:
    """Returns two factors of Γ(x) for 0 < x < 200; neither is infinite while x > 1e-300.

    By recurrence from ½ to 3/2, from 12 on Stirling's series, where the power's exponent is exact.
    """
    low = x < _LOW
    y, rising = keep(low, x, 1.0), ones_like(x)
    for _ in range(_LOW - 1):
        high = y > 1.5
        y = el.where(high, y - 1, y)
        rising = el.where(high, rising * y, rising)
    tiny = y < 0.5
    rising = el.where(tiny, 1 / el.where(tiny, y, 1.0), rising)
    near = rising / (1 + reciprocal_excess(el.where(tiny, y, y - 1)))
    z = el.minimum(keep(~low, x, 1.0 * _LOW), _HIGH)
    power = el.power(z, 0.5 * z - 0.25)
    return el.where(low, near, power * el.exp(-z) * (_ROOT_TWO_PI * el.exp(stirling(z)))), el.where(low, 1.0, power)


@elementwise_jvp
def gamma_positive(x: Array) -> Array:
    """Γ(x) for x > 0, to 10 units in the last place."""
    first, second = gamma_factors(x)
    return first * second


gamma_positive.defjvps(lambda t, result, x: t * result * polygamma_command(x, n=0))


def log_beta(a: Array, b: Array) -> Array:
    """log B(a, b) for a, b > 0; large logarithms of gamma functions cancel in formulas, not in numbers.

    Didonato and Morris, "Algorithm 708: significant digit computation of the incomplete beta function ratios" (1992).
    """
    less = a < b  # maximum and minimum would share derivatives where a = b
    low, high = el.where(less, a, b), el.where(less, b, a)
    both = low >= STIRLING_FROM
    near = el.logical_and(low >= 0.5, high < STIRLING_FROM)
    s, h = keep(near, low, 1.0), keep(near, high, 1.0)
    product = el.log(gamma_positive(s) * (gamma_positive(h) / gamma_positive(s + h)))
    s, h = keep(~near, low, 1.0), keep(~near, high, STIRLING_FROM)
    raised = h < STIRLING_FROM  # a small s: h is raised by recurrence
    factors = sum(
        (el.log1p(el.where(raised, s / (h + k), 0.0)) for k in range(1, int(STIRLING_FROM))), start=el.log1p(s / h)
    )
    h = el.where(raised, h + STIRLING_FROM, h)
    quotient = s / h
    rest = stirling(h) - stirling(s + h)
    one = keep(~both, s, 1.0)
    mixed = log_gamma_above_one(one) - el.log(one) + (rest + s - s * el.log(s + h) - (h - 0.5) * el.log1p(quotient))
    mixed = el.where(raised, mixed + factors, mixed)
    big = keep(both, s, STIRLING_FROM)
    large = _HALF_LOG_TWO_PI - 0.5 * el.log(h) + (rest + stirling(big))
    large = large - (big - 0.5) * el.log1p(h / big) - h * el.log1p(quotient)
    return el.where(near, product, el.where(both, large, mixed))


def _is_pole(x: Array) -> Array:
    return el.logical_and(x <= 0, el.equal(el.floor(x), x))


def log_beta_of_all(a: Array, b: Array) -> Array:
    """log |B(a, b)|; of a pole -n and an integer below n + 1 the limit B(1 - a - b, b) with its sign dropped, else infinite."""
    first, second = _is_pole(a), _is_pole(b)
    pole, other = el.where(first, a, b), el.where(first, b, a)
    whole = el.logical_and(el.equal(el.floor(other), other), el.logical_and(other > 0, pole + other < 1))
    either = el.logical_xor(first, second)
    finite = el.logical_and(either, el.logical_and(whole, pole > -math.inf))
    a, b = el.where(finite, 1 - pole - other, a), el.where(finite, other, b)
    positive = el.logical_and(el.logical_and(a > 0, b > 0), el.logical_and(a < math.inf, b < math.inf))
    value = log_beta(keep(positive, a, 1.0), keep(positive, b, 1.0))
    rest = el.logical_and(~positive, ~el.logical_or(_is_pole(a), _is_pole(b)))
    x, y = keep(rest, a, 1.0), keep(rest, b, 1.0)
    negative = lgamma_command(x) + lgamma_command(y) - lgamma_command(x + y)
    endless = el.logical_and(el.equal(el.maximum(a, b), math.inf), el.minimum(a, b) > 0)
    negative = el.where(endless, -math.inf, negative)
    unknown = el.logical_or(el.isnan(a), el.isnan(b))
    return el.where(positive, value, el.where(unknown, math.nan, el.where(rest, negative, math.inf)))
