"""The gamma function and the beta function."""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.commands.special import polygamma as polygamma_command
from nnc.numpy import elementwise as el
from nnc.numpy.gammas import gamma_factors, log_beta_of_all
from nnc.numpy.special import betaln, gammaln
from nnc.numpy.wide import in_float64, keep, slope
from nnc.scipy.special.pieces import sin_pi
from nnc.trace.core.custom import custom_jvp, elementwise_jvp
from nnc.typing import ArrayLike

__all__ = ["beta", "gamma", "gammasgn"]


_LARGE = 170.0  # below which Γ is finite


@elementwise_jvp
def _gamma(x: Array) -> Array:
    size = abs(x)
    first, second = gamma_factors(el.where(el.equal(size, 0), 1.0, size))
    whole = _is_integer(x)
    mirrored = -math.pi / (el.where(whole, 1.0, sin_pi(x)) * first) / second / x
    mirrored = el.where(whole, math.nan, mirrored)
    return el.where(el.equal(x, 0), el.copysign(math.inf, x), el.where(x > 0, first * second, mirrored))


_gamma.defjvps(lambda t, result, x: t * result * polygamma_command(x, n=0))


@spelled
def gamma(x: ArrayLike, /) -> Array:
    """Returns the gamma function, Γ(n + 1) = n!, with its sign; to 10 units in the last place.

    Args:
        x: real, any shape; integers become float32. NaN at negative integers, infinite with the sign of 0 at 0.

    Example:
        >>> gamma(np.asarray([0.5, 5.0, -0.5]))
        Array([ 1.77245385, 24.        , -3.5449077 ], dtype=float64)
    """
    return in_float64("gamma", _gamma, x)


def _sign(x: Array) -> Array:
    floor = el.floor(x)
    negative = el.where(el.equal(el.remainder(floor, 2), 0), 1.0, -1.0)
    negative = el.where(el.logical_or(el.equal(floor, x), el.isnan(x)), math.nan, negative)
    return el.where(el.equal(x, 0), el.copysign(1.0, x), el.where(x > 0, 1.0, negative))


@spelled
def gammasgn(x: ArrayLike, /) -> Array:
    """Returns the sign of Γ(x): `gammasgn(x) * exp(gammaln(x))` is Γ(x).

    Args:
        x: real, any shape; integers become float32. NaN at negative integers, the sign of 0 at 0.

    Example:
        >>> gammasgn(np.asarray([2.5, -0.5, -1.5]))
        Array([ 1., -1.,  1.], dtype=float64)
    """
    return in_float64("gammasgn", _sign, x)


def _is_integer(x: Array) -> Array:
    return el.equal(el.floor(x), x)


def _is_pole(x: Array) -> Array:
    return el.logical_and(x <= 0, _is_integer(x))


def _beta(a: Array, b: Array) -> Array:
    """B(a, b); where only Γ(a + b) has a pole it is 0, but its derivatives are not."""
    total = a + b
    zero = el.logical_and(el.logical_and(total <= 0, _is_integer(total)), ~el.logical_or(*map(_is_pole, (a, b))))
    value = _beta_elsewhere(keep(~zero, a, 1.0), keep(~zero, b, 1.0))
    return el.where(zero, _beta_at_zero(keep(zero, a, -0.5), keep(zero, b, -0.5)), value)


def _beta_at_zero(a: Array, b: Array) -> Array:
    """Γ(a) Γ(b) Γ(1 - a - b) sin(π (a + b)) / π, by reflection."""
    total = a + b
    size = el.exp(gammaln(a) + gammaln(b) + gammaln(1 - total) - math.log(math.pi))
    return size * _sign(a) * _sign(b) * sin_pi(total)


@custom_jvp
def _beta_elsewhere(a: Array, b: Array) -> Array:
    """Returns the quotient of gamma functions while it is finite, then the exponential of its logarithm."""
    total = a + b
    direct = el.logical_and(el.logical_and(abs(a) < _LARGE, abs(b) < _LARGE), abs(total) < _LARGE)
    regular = ~el.logical_or(*map(_is_pole, (a, b)))
    direct = el.logical_and(direct, el.logical_and(regular, el.logical_or(total > 0, ~_is_integer(total))))
    less = a < b
    low, high = el.where(less, a, b), el.where(less, b, a)  # of tiny numbers, Γ(low) alone is large
    low, high, whole = keep(direct, low, 1.0), keep(direct, high, 1.0), keep(direct, total, 2.0)
    # in a + b (Møller and Knuth); Γ'/Γ is about the logarithm
    lost = (low - (whole - (whole - low))) + (high - (whole - low))
    shift = el.where(whole > 8, lost * el.log(el.maximum(whole, 8.0)), 0.0)
    quotient = _gamma(low) * (_gamma(high) / _gamma(whole)) * (1 - shift)
    parity = el.where(el.equal(el.remainder(el.where(a > 0, a, b), 2), 0), 1.0, -1.0)
    sign = el.where(regular, _sign(a) * _sign(b) * _sign(total), parity)
    logarithm = betaln(a, b)
    sign = el.where(el.equal(logarithm, -math.inf), 1.0, sign)
    return el.where(direct, quotient, sign * el.exp(keep(~direct, logarithm, 0.0)))


_beta_elsewhere.defjvps(  # the logarithm's derivatives are those in which nothing cancels
    lambda t, result, a, b: t * result * slope(log_beta_of_all, a, b),
    lambda t, result, a, b: t * result * slope(log_beta_of_all, a, b, by=1),
)


@spelled
def beta(a: ArrayLike, b: ArrayLike, /) -> Array:
    """Returns the beta function B(a, b) = Γ(a) Γ(b) / Γ(a + b).

    Args:
        a: real, any shape; broadcasts with `b`. Integers become float32.
        b: real, any shape.

    Example:
        >>> beta(np.float64(2.0), 3.0)
        Array(0.08333333, dtype=float64)
    """
    return in_float64("beta", _beta, a, b)
