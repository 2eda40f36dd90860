"""The incomplete gamma functions.

Of both, the smaller one is computed, mostly: by its power series below a, by a continued fraction above, and where a is large and
x near a, by Temme's uniform expansion. The series and the fraction are summed from their last terms, whose number is known
beforehand: rounding errors shrink on the way, and derivatives with regard to a are those of the sums.
"""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.numpy.gammas import gamma_positive, log_gamma_above_one, stirling
from nnc.numpy.reductions import max as max_
from nnc.numpy.wide import in_float64, keep, polynomial, slope
from nnc.scipy.special.normal import scaled_erfc
from nnc.scipy.special.pieces import log_gap, log_gap_ratio
from nnc.trace.core.custom import custom_jvp
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike

__all__ = ["gammainc", "gammaincc"]

_UNIFORM_FROM, _UNIFORM_WITHIN = 40.0, 0.4  # of a, and of |x - a| / a
_POWER_BELOW = 100.0  # of a; up to there x^a has a float where the result has one
_SMALL = 1.5  # x up to which the power series converge fast for every a

# d(k, n), the coefficients of ηⁿ / aᵏ (DLMF 8.12.12), to 1e-17 in this region
_UNIFORM = (
    (-0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073, 0.0003527336860670194,
     -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06, -1.85406221071516e-06, 8.296711340953087e-07,
     -1.7665952736826078e-07, 6.707853543401498e-09, 1.0261809784240309e-08, -4.382036018453353e-09, 9.14769958223679e-10,
     -2.5514193994946248e-11, -5.830772132550426e-11, 2.4361948020667415e-11, -5.0276692801141755e-12),
    (-0.001851851851851852, -0.003472222222222222, 0.0026455026455026454, -0.0009902263374485596, 0.00020576131687242798,
     -4.018775720164609e-07, -1.8098550334489977e-05, 7.64916091608111e-06, -1.6120900894563446e-06, 4.647127802807434e-09,
     1.378633446915721e-07, -5.752545603517705e-08, 1.1951628599778148e-08, -1.7543241719747647e-11,
     -1.0091543710600413e-09, 4.162792991842583e-10, -8.56390702649298e-11),
    (0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06, -0.0001073665322636516,
     5.2923448829120125e-05, -1.2760635188618728e-05, 3.423578734096138e-08, 1.3721957309062934e-06,
     -6.298992138380055e-07, 1.4280614206064242e-07, -2.0477098421990866e-10, -1.409252991086752e-08, 6.228974084922022e-09,
     -1.3670488396617114e-09),
    (0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557, 0.00026772063206283885, -7.561801671883977e-05,
     -2.396505113867297e-07, 1.1082654115347302e-05, -5.6749528269915965e-06, 1.4230900732435883e-06,
     -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08, -1.9111168485973655e-08),
    (-0.0008618882909167117, 0.0007840392217200666, -0.0002990724803031902, -1.4638452578843418e-06, 6.641498215465122e-05,
     -3.968365047179435e-05, 1.1375726970678419e-05, 2.507497226237533e-10, -1.6954149536558305e-06, 8.907507532205309e-07,
     -2.292934834000805e-07),
    (-0.00033679855336635813, -6.972813758365857e-05, 0.0002772753244959392, -0.00019932570516188847, 6.797780477937208e-05,
     1.419062920643967e-07, -1.3594048189768693e-05, 8.018470256334202e-06, -2.291481176508095e-06),
    (0.0005313079364639922, -0.0005921664373536939, 0.0002708782096718045, 7.902353232660328e-07, -8.153969367561969e-05,
     5.61168275310625e-05, -1.8329116582843375e-05),
    (0.00034436760689237765, 5.171790908260592e-05, -0.00033493161081142234, 0.0002812695154763237, -0.00010976582244684731),
    (-0.0006526239185953094, 0.0008394987206720873, -0.000438297098541721),
)  # fmt: skip


def _power_over_gamma(a: Array, x: Array) -> Array:
    """x^a e^(-x) / Γ(1 + a), for positive numbers."""
    low = a < _POWER_BELOW
    b, y = keep(low, a, 1.0), el.where(low, el.where(x < 1e3, x, 1e3), 1.0)  # beyond, e^(-x) is 0
    tiny = b < 1
    factorial = gamma_positive(el.where(tiny, b + 1, b)) * el.where(tiny, 1.0, b)
    product = el.power(y, b) / factorial * el.exp(-y)
    b, y = keep(~low, a, _POWER_BELOW), keep(~low, x, _POWER_BELOW)
    near = abs(y - b) < 0.5 * b
    quotient = keep(~near, y, 1.0) / keep(~near, b, 1.0)
    gap = el.where(near, log_gap((keep(near, y, 1.0) - keep(near, b, 1.0)) / b), quotient - 1 - el.log(quotient))
    return el.where(low, product, el.exp(-b * gap) / (el.sqrt(2 * math.pi * b) * el.exp(stirling(b))))


def _sum_backwards(steps: Array, start: Array, step: object) -> Array:
    """Applies step(total, k) for k = n, …, 1, where n is the largest of `steps`."""
    count = max_(steps)
    _, total = while_loop(lambda c: c[0] > 0.5, lambda c: (c[0] - 1, step(c[1], c[0])), (count, start))  # type: ignore[operator]
    return total


def _series(a: Array, x: Array) -> Array:
    """1 + x / (a + 1) + x² / ((a + 1)(a + 2)) + … (DLMF 8.11.4), for x <= a or small x."""
    slow = 11 * el.sqrt(x)
    falling = x < 0.9 * a
    fast = -46 / el.log(el.where(falling, x / a, 0.5))
    steps = el.floor(25 + el.where(falling, el.minimum(slow, fast), slow))
    return _sum_backwards(steps, 0 * x + 1, lambda total, k: 1 + x / (a + k) * total)


def _complement_of_small(a: Array, x: Array) -> Array:
    """1 - P for x <= 1.5 and a < max(x, 1): 1 - x^a / Γ(1 + a) and the rest of the alternating series (DLMF 8.7.1)."""
    logarithm = a * el.log(x) - log_gamma_above_one(a)
    rest = 0.0 * x
    for k in range(24, 0, -1):
        rest = -x / k * (1 / (a + k) + rest)
    return -el.expm1(logarithm) - a * el.exp(logarithm) * rest


def upper_fraction(a: Array, x: Array) -> Array:
    """1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - …))) (DLMF 8.9.2), for x > a and x > 1.5."""
    below = x + 1 - a
    steps = el.floor(30 + 150 / x)
    return 1 / _sum_backwards(steps, below + 2 * max_(steps), lambda f, k: below + 2 * (k - 1) - k * (k - a) / f)


def _uniform(a: Array, x: Array) -> tuple[Array, Array]:
    """P and Q for large a and x near a (DLMF 8.12.3, 8.12.7)."""
    mu = (x - a) / a
    eta = mu * el.sqrt(2 * log_gap_ratio(mu))
    inverse = 1 / a
    total = 0.0 * a
    for coefficients in _UNIFORM[::-1]:
        total = total * inverse + polynomial(eta, coefficients)
    z = eta * el.sqrt(0.5 * a)
    common = el.exp(-a * (mu * mu * log_gap_ratio(mu)))
    rest = common * total / el.sqrt(2 * math.pi * a)
    above = z > 0
    small = 0.5 * common * scaled_erfc(el.where(above, z, -z))  # abs(z) has derivative 0 at 0
    tail = el.where(above, small + rest, small - rest)
    return el.where(above, 1 - tail, tail), el.where(above, tail, 1 - tail)


def _both(a: Array, x: Array) -> tuple[Array, Array]:
    """P(a, x) and Q(a, x) for positive finite numbers."""
    uniform = el.logical_and(a >= _UNIFORM_FROM, abs(x - a) < _UNIFORM_WITHIN * a)
    below = el.logical_and(~uniform, el.logical_or(x <= a, x <= _SMALL))
    above = ~el.logical_or(uniform, below)
    small = el.logical_and(below, el.logical_and(x <= _SMALL, el.maximum(x, 1.0) > a))
    factor = _power_over_gamma(keep(~uniform, a, 1.0), keep(~uniform, x, 1.0))
    lower = factor * _series(keep(below, a, 1.0), keep(below, x, 1.0))
    upper = factor * a * upper_fraction(keep(above, a, 1.0), keep(above, x, 2.0))
    rest = el.where(small, _complement_of_small(keep(small, a, 0.5), keep(small, x, 1.0)), 1 - lower)
    p, q = _uniform(keep(uniform, a, _UNIFORM_FROM), keep(uniform, x, _UNIFORM_FROM))
    return (
        el.where(uniform, p, el.where(below, lower, 1 - upper)),
        el.where(uniform, q, el.where(below, rest, upper)),
    )


def _inside(a: Array, x: Array) -> Array:
    return el.logical_and(el.logical_and(a > 0, x > 0), el.logical_and(a < math.inf, x < math.inf))


def _ends(a: Array, x: Array, inside: Array, value: Array, below: float, above: float) -> Array:
    """`value` inside; `below` for x = 0 or a = ∞, `above` for x = ∞ or a = 0, NaN elsewhere and where two of them meet."""
    low = el.logical_or(el.logical_and(el.equal(x, 0), a > 0), el.logical_and(el.equal(a, math.inf), x >= 0))
    high = el.logical_or(el.logical_and(el.equal(a, 0), x > 0), el.logical_and(el.equal(x, math.inf), a >= 0))
    outside = el.where(el.logical_and(low, ~high), below, el.where(el.logical_and(high, ~low), above, math.nan))
    return el.where(inside, value, outside)


def _lower_value(a: Array, x: Array) -> Array:
    inside = _inside(a, x)
    value, _ = _both(keep(inside, a, 1.0), keep(inside, x, 1.0))
    return _ends(a, x, inside, value, 0.0, 1.0)


def _upper_value(a: Array, x: Array) -> Array:
    inside = _inside(a, x)
    _, value = _both(keep(inside, a, 1.0), keep(inside, x, 1.0))
    return _ends(a, x, inside, value, 1.0, 0.0)


def _density(a: Array, x: Array) -> Array:
    """x^(a - 1) e^(-x) / Γ(a), the derivative of P in x."""
    inside = _inside(a, x)
    b, y = keep(inside, a, 1.0), keep(inside, x, 1.0)
    at_zero = el.where(a < 1, math.inf, el.where(a > 1, 0.0, 1.0))
    outside = el.where(
        el.equal(x, 0), el.where(a > 0, at_zero, math.nan), el.where(el.equal(x, math.inf), 0.0, math.nan)
    )
    return el.where(inside, _power_over_gamma(b, y) * (b / y), outside)


_lower, _upper = custom_jvp(_lower_value), custom_jvp(_upper_value)
_lower.defjvps(
    lambda t, result, a, x: t * slope(_lower_value, a, x),
    lambda t, result, a, x: t * _density(a, x),
)
_upper.defjvps(
    lambda t, result, a, x: t * slope(_upper_value, a, x),
    lambda t, result, a, x: -t * _density(a, x),
)


@spelled
def gammainc(a: ArrayLike, x: ArrayLike, /) -> Array:
    """Returns the regularized lower incomplete gamma function P(a, x), the integral of t^(a - 1) e^(-t) from 0 to x over Γ(a).

    Differentiable in both operands. Results are exact to 20 units in the last place; where P is below 1e-10, to as many times
    as its logarithm is large.

    Args:
        a: at least 0, any shape; broadcasts with `x`. Integers become float32.
        x: at least 0, any shape.

    Returns:
        the common shape; NaN for negative operands.

    Example:
        >>> gammainc(np.float64(2.0), np.asarray([0.0, 1.0, 10.0]))
        Array([0.        , 0.26424112, 0.9995006 ], dtype=float64)
    """
    return in_float64("gammainc", _lower, a, x)


@spelled
def gammaincc(a: ArrayLike, x: ArrayLike, /) -> Array:
    """Returns the regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), also where it is far below 1.

    Differentiable in both operands; see `gammainc`.

    Args:
        a: at least 0, any shape; broadcasts with `x`. Integers become float32.
        x: at least 0, any shape.

    Returns:
        the common shape; NaN for negative operands.

    Example:
        >>> gammaincc(np.float64(2.0), np.asarray([0.0, 1.0, 100.0]))
        Array([1.00000000e+00, 7.35758882e-01, 3.75727674e-42], dtype=float64)
    """
    return in_float64("gammaincc", _upper, a, x)
