"""Pieces of special functions, each written so that nothing cancels; arrays are float64."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.base import dtypes
from nnc.commands.elementwise import convert, stop_gradient
from nnc.numpy import elementwise as el
from nnc.numpy.wide import keep, polynomial


def halves(x: Array) -> tuple[Array, Array]:
    """Two numbers of at most 24 and 29 bits whose sum is x, below 1e38: products of the first parts are exact (Dekker, 1971)."""
    high = stop_gradient(convert(convert(x, dtype=dtypes.float32), dtype=dtypes.float64))
    return high, x - high


def product(x: Array, y: Array) -> tuple[Array, Array]:
    """x · y, and its rounding error."""
    (xh, xl), (yh, yl) = halves(x), halves(y)
    total = x * y
    return total, ((xh * yh - total) + (xh * yl + xl * yh)) + xl * yl


def sin_pi(x: Array) -> Array:
    """sin(π x), from the distance of x to the nearest integer: 0 at integers."""
    whole = el.round(x)
    return el.sin(math.pi * (x - whole)) * el.where(el.equal(el.remainder(whole, 2), 0), 1.0, -1.0)


def exp_sum(x: Array, tail: Array) -> Array:
    """e^(x + tail) of a small tail."""
    return el.exp(x) * (tail + 1)


# (φ(μ) / μ² - 1 / (2 + μ)) in s = μ / (2 + μ): the series of the inverse hyperbolic tangent
_ATANH = tuple(1 / (2 * k + 3) for k in range(18))


def log_gap_ratio(mu: Array) -> Array:
    """(μ - log(1 + μ)) / μ² for -0.5 <= μ <= 1, ½ at 0."""
    inverse = 1 / (mu + 2)
    s = mu * inverse
    return inverse - 2 * s * polynomial(s * s, _ATANH) * inverse * inverse


def log_gap(mu: Array) -> Array:
    """μ - log(1 + μ) for μ > -1, exact near 0."""
    near = el.logical_and(mu > -0.5, mu < 1)
    small, large = keep(near, mu, 0.0), keep(~near, mu, 1.0)
    return el.where(near, small * small * log_gap_ratio(small), large - el.log1p(large))
