"""Spence's function, the dilogarithm, and Owen's function."""

from __future__ import annotations

import math

import numpy as np

from nnc.array.array import Array
from nnc.calls.spelling import spelled
from nnc.numpy import elementwise as el
from nnc.numpy.manipulation import expand_dims
from nnc.numpy.reductions import sum as sum_
from nnc.numpy.special import erf
from nnc.numpy.wide import in_float64, keep, polynomial
from nnc.scipy.special.normal import ndtr
from nnc.scipy.special.pieces import log_gap_ratio
from nnc.trace.core.custom import custom_jvp
from nnc.typing import ArrayLike

__all__ = ["owens_t", "spence"]

# B(2k) / (2k + 1)! of the dilogarithm's series in -log(1 - z)
_DEBYE = (
    0.027777777777777776, -0.0002777777777777778, 4.72411186696901e-06, -9.185773074661964e-08, 1.8978869988971e-09,
    -4.0647616451442256e-11, 8.921691020456453e-13, -1.9939295860721074e-14, 4.518980029619918e-16, -1.0356517612181247e-17,
    2.3952186210261865e-19,
)  # fmt: skip
_NODES, _WEIGHTS = (tuple(x.tolist()) for x in np.polynomial.legendre.leggauss(40))


def _debye(u: Array) -> Array:
    """Li2(1 - e^-u) for |u| <= log 2."""
    square = u * u
    return u * (1 - 0.25 * u + square * polynomial(square, _DEBYE))


@custom_jvp
def _spence(x: Array) -> Array:
    """Li2(1 - x), by Euler's and Landen's identities from ½ <= x <= 2 (DLMF 25.12.4 and 25.12.6)."""
    inside = el.logical_and(x > 0, x < math.inf)
    y = keep(inside, x, 1.0)
    low, high = y < 0.5, y > 2
    middle = _debye(-el.log(keep(~(low | high), y, 1.0)))
    small = keep(low, y, 0.25)
    reflected = math.pi**2 / 6 - el.log(small) * el.log1p(-small) - _debye(-el.log1p(-small))
    large = keep(high, y, 4.0)
    logarithm, rest = el.log(large), el.log1p(-1 / large)
    inverted = -0.5 * logarithm * logarithm - math.pi**2 / 6 - logarithm * rest + _debye(-rest)
    value = el.where(low, reflected, el.where(high, inverted, middle))
    ends = el.where(el.equal(x, 0), 0 * y + math.pi**2 / 6, el.where(el.equal(x, math.inf), -math.inf, math.nan))
    return el.where(inside, value, ends)


def _spence_slope(x: Array) -> Array:
    """-log(x) / (x - 1)."""
    near = abs(x - 1) < 0.5
    mu, y = keep(near, x - 1, 0.0), keep(~near, x, 2.0)
    return el.where(near, mu * log_gap_ratio(mu) - 1, -el.log(y) / (y - 1))


_spence.defjvps(lambda t, result, x: t * _spence_slope(x))


@spelled
def spence(x: ArrayLike, /) -> Array:
    """Returns Spence's function, the dilogarithm of 1 - x: the integral of log(t) / (1 - t) from 1 to x.

    Args:
        x: at least 0, any shape; integers become float32. NaN below 0.

    Example:
        >>> spence(np.asarray([0.0, 1.0, 2.0]))
        Array([ 1.64493407, -0.        , -0.82246703], dtype=float64)
    """
    return in_float64("spence", _spence, x)


@custom_jvp
def _owens_t(h: Array, a: Array) -> Array:
    """Gauss and Legendre's rule for |a| <= 1, a reflection beyond (Owen, "Tables for computing bivariate normal probabilities",
    1956).
    """
    finite = el.logical_and(abs(h) < math.inf, ~el.isnan(a))
    x, slope = keep(finite, abs(h), 0.0), keep(finite, abs(a), 1.0)
    turned = slope > 1
    inner = el.where(turned, 1 / el.where(turned, slope, 1.0), slope)
    outer = el.where(turned, el.minimum(x * el.minimum(slope, 1e300), 1e30), x)
    end = el.minimum(inner, 9.0 / el.maximum(outer, 1e-3))  # beyond, the integrand is 0
    t = expand_dims(end, -1) * (0.5 * (1 + np.asarray(_NODES)))
    square = expand_dims(outer, -1)
    terms = el.exp(-0.5 * (square * t) * (square * t)) / (1 + t * t)
    core = el.exp(-0.5 * outer * outer) * (end * sum_(terms * np.asarray(_WEIGHTS), axis=-1)) * (0.25 / math.pi)
    first, second = ndtr(-x), ndtr(-outer)
    value = el.where(turned, 0.5 * (first + second) - first * second - core, core)
    value = el.copysign(value, a)
    beyond = el.where(el.logical_or(el.isnan(h), el.isnan(a)), math.nan, 0.0)
    return el.where(finite, value, beyond)


_owens_t.defjvps(
    lambda t, result, h, a: -t * el.exp(-0.5 * h * h) * erf(a * h / math.sqrt(2)) / math.sqrt(8 * math.pi),
    lambda t, result, h, a: t * el.exp(-0.5 * h * h * (1 + a * a)) / (2 * math.pi * (1 + a * a)),
)


@spelled
def owens_t(h: ArrayLike, a: ArrayLike, /) -> Array:
    """Returns Owen's T: the probability of X > h and 0 < Y < a X, for independent standard normal X and Y.

    Args:
        h: real, any shape; broadcasts with `a`. Integers become float32.
        a: real, any shape.

    Example:
        >>> owens_t(np.float64(0.0), np.asarray([0.5, 1.0]))
        Array([0.07379181, 0.125     ], dtype=float64)
    """
    return in_float64("owens_t", _owens_t, h, a)
