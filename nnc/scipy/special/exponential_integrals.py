"""Exponential integrals."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.rules import check_dtype
from nnc.numpy import elementwise as el
from nnc.numpy.operands import to_value
from nnc.numpy.reductions import max as max_
from nnc.numpy.special import digamma
from nnc.numpy.wide import in_float64, keep, polynomial
from nnc.scipy.special.incomplete_gamma import upper_fraction
from nnc.trace.core.custom import custom_jvp
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike

__all__ = ["exp1", "expi", "expn"]

_EULER = 0.5772156649015329
_SMALL, _LARGE = 1.5, 40.0
_ROOT, _ROOT_TAIL = 0.3725074107813666, 1.3140183414386028e-17  # of Ei
# Taylor's series of Ei(x) - log(x / root) at the root, in x - root, without the constant, which is 0
_NEAR_ROOT = (
    1.2117053830864597, 0.3216900454331978, 0.0736491178369258, 0.014058457874600975, 0.0022764039044718323,
    0.00031888587136831017, 3.9299458146496575e-05, 4.320007766390822e-06, 4.283877949222866e-07, 3.868228477723948e-08,
    3.2056971517296526e-09, 2.454516516119882e-10, 1.746345479752011e-11, 1.1603046814195214e-12, 7.230669961672798e-14,
)  # fmt: skip


def _series(x: Array) -> Array:
    """Σ xᵏ / (k · k!) over k >= 1 (DLMF 6.6.1), from its last term."""
    count = el.floor(25 + max_(2.8 * abs(x)))
    _, total = while_loop(
        lambda carry: carry[0] > 0.5,
        lambda carry: (carry[0] - 1, 1 / carry[0] + x / (carry[0] + 1) * carry[1]),
        (count, 0 * x),
    )
    return x * total


def _exp1_positive(x: Array) -> Array:
    """E1(x) for x > 0."""
    low = x <= _SMALL
    small, large = keep(low, x, 1.0), keep(~low, x, 2.0)
    return el.where(low, -_EULER - el.log(small) - _series(-small), el.exp(-large) * upper_fraction(0 * large, large))


def _expi_positive(x: Array) -> Array:
    """Ei(x) for x > 0: its power series, Taylor's series about the root, or the asymptotic one (DLMF 6.12.2)."""
    near, far = abs(x - _ROOT) < 0.15, x > _LARGE
    distance = (keep(near, x, _ROOT) - _ROOT) - _ROOT_TAIL
    at_root = el.log1p(distance / _ROOT) + distance * polynomial(distance, _NEAR_ROOT)
    middle = keep(~far, x, 1.0)
    series = _EULER + el.log(middle) + _series(middle)
    large = keep(far, x, _LARGE)
    inverse = 1 / large
    total = 0 * inverse + 1
    for k in range(40, 0, -1):
        total = 1 + k * inverse * total
    half = el.exp(0.5 * large)
    return el.where(near, at_root, el.where(far, half * (half * (inverse * total)), series))


@custom_jvp
def _expi(x: Array) -> Array:
    positive, negative = el.logical_and(x > 0, x < math.inf), el.logical_and(x < 0, x > -math.inf)
    ends = el.where(el.equal(x, 0), -math.inf, el.where(el.equal(x, -math.inf), -0.0, x))
    below = -_exp1_positive(keep(negative, -x, 1.0))
    return el.where(positive, _expi_positive(keep(positive, x, 1.0)), el.where(negative, below, ends))


_expi.defjvps(lambda t, result, x: t * (el.exp(x) / x))


@spelled
def expi(x: ArrayLike, /) -> Array:
    """Returns the exponential integral Ei(x), the principal value of the integral of e^t / t from -∞ to x.

    Args:
        x: real, any shape; integers become float32. -∞ at 0.

    Example:
        >>> expi(np.asarray([-1.0, 1.0]))
        Array([-0.21938393,  1.89511782], dtype=float64)
    """
    return in_float64("expi", _expi, x)


@custom_jvp
def _exp1(x: Array) -> Array:
    inside = el.logical_and(x > 0, x < math.inf)
    ends = el.where(el.equal(x, 0), math.inf, el.where(el.equal(x, math.inf), 0.0, math.nan))
    return el.where(inside, _exp1_positive(keep(inside, x, 1.0)), ends)


_exp1.defjvps(lambda t, result, x: -t * (el.exp(-x) / x))


@spelled
def exp1(x: ArrayLike, /) -> Array:
    """Returns the exponential integral E1(x), the integral of e^-t / t from x to ∞.

    Args:
        x: at least 0, any shape; integers become float32. Infinite at 0, NaN below.

    Example:
        >>> exp1(np.float64(1.0))
        Array(0.21938393, dtype=float64)
    """
    return in_float64("exp1", _exp1, x)


def _expn_small(n: Array, x: Array) -> Array:
    """E_n(x) for n >= 1 and 0 < x <= 1.5 by its power series, one of whose terms has the logarithm (DLMF 8.19.8)."""
    total = 0 * x
    logarithmic = digamma(n) - el.log(x)
    term = 0 * x + 1  # (-x)^k / k!
    for k in range(26):
        gap = k + 1 - n
        at_pole = el.equal(gap, 0)
        regular = -1 / el.where(at_pole, 1.0, gap)
        total = total + term * el.where(at_pole, logarithmic, regular)
        term = term * (-x / (k + 1))
    return total


@custom_jvp
def _expn(n: Array, x: Array) -> Array:
    inside = el.logical_and(el.logical_and(x > 0, x < math.inf), n >= 1)
    y, order = keep(inside, x, 1.0), keep(inside, n, 1.0)
    low = y <= _SMALL
    small = _expn_small(order, keep(low, y, 1.0))
    large = keep(~low, y, 2.0)
    value = el.where(low, small, el.exp(-large) * upper_fraction(1 - order, large))
    positive = el.logical_and(x > 0, x < math.inf)
    zeroth = keep(positive, x, 1.0)
    at_zero = el.where(n <= 1, math.inf, 1 / keep(n > 1, n - 1, 1.0))
    ends = el.where(el.equal(x, 0), at_zero, el.where(el.equal(x, math.inf), 0.0, math.nan))
    ends = el.where(el.logical_and(el.equal(n, 0), positive), el.exp(-zeroth) / zeroth, ends)
    return el.where(inside, value, el.where(n < 0, math.nan, ends))


def _expn_slope(n: Array, x: Array) -> Array:
    """-E_(n-1)(x), of E_0 -(1 + 1 / x) E_0."""
    first = n > 0
    return -el.where(first, _expn(keep(first, n - 1, 0.0), x), _expn(0 * n, x) * (1 + 1 / x))


_expn.defjvps(None, lambda t, result, n, x: t * _expn_slope(n, x))


@spelled
def expn(n: ArrayLike, x: ArrayLike, /) -> Array:
    """Returns the generalized exponential integral E_n(x), the integral of e^(-x t) / t^n from 1 to ∞.

    Args:
        n: integers of 0 or more, any shape; broadcasts with `x`. NaN for negative ones.
        x: at least 0, any shape; integers become float32.

    Raises:
        DTypeError: n holds no integers.

    Example:
        >>> expn(2, np.asarray([0.0, 1.0]))
        Array([1.        , 0.14849551], dtype=float64)
    """
    order = to_value(n, "expn", "n")
    check_dtype("expn", order.spec, dtypes.is_integer, "integers", "n")
    return in_float64("expn", _expn, order, x)
