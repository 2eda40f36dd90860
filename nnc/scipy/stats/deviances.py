"""Logarithms of probabilities of large numbers, in which logarithms of gamma functions would cancel.

Probabilities are Stirling's formula, which is about 1 / √(2π k), its errors, and deviances of numbers from their means (Loader,
Fast and Accurate Computation of Binomial Probabilities, 2000). All operands are in float64.
"""

from __future__ import annotations

import math

from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.numpy.gammas import STIRLING_FROM, stirling
from nnc.scipy.special import gammaln
from nnc.scipy.special.pieces import log_gap

_HALF_LOG_2PI = math.log(2 * math.pi) / 2


def stirling_error(x: Array) -> Array:
    """log Γ(x + 1) − (x + 1/2) log(x) + x − log(2π) / 2, for x > 0."""
    far = x >= STIRLING_FROM
    near = el.where(far, 1, x)
    exact = gammaln(near + 1) - (near + 0.5) * el.log(near) + near - _HALF_LOG_2PI
    return el.where(far, stirling(el.where(far, x, STIRLING_FROM)), exact)


def deviance(x: Array, mean: Array) -> Array:
    """x log(x / mean) + mean − x, for x > 0; near 0 where x is near the mean."""
    near = el.abs(mean - x) < 0.5 * x
    gap = log_gap(el.where(near, mean - x, 0) / x)
    quotient = el.where(near, 1, mean / x)
    return x * el.where(near, gap, quotient - 1 - el.log(quotient))


def log_poisson(k: Array, mu: Array) -> Array:
    """k log(mu) − mu − log Γ(k + 1), for k > 0."""
    return -deviance(k, mu) - stirling_error(k) - el.log(k) / 2 - _HALF_LOG_2PI


def log_binomial(k: Array, rest: Array, p: Array) -> Array:
    """log(Γ(n + 1) / (Γ(k + 1) Γ(rest + 1))) + k log(p) + rest log(1 − p), where n = k + rest, for k > 0 and rest > 0."""
    n = k + rest
    errors = stirling_error(n) - stirling_error(k) - stirling_error(rest)
    root = el.log(k / n * rest) / 2 + _HALF_LOG_2PI
    return errors - root - deviance(k, n * p) - deviance(rest, n * (1 - p))
