"""Hyperbolic functions and their inverses."""

from __future__ import annotations

import math

from nnc.lower.kernels.math.exponential import half_exp, sigmoid_of_minus
from nnc.lower.kernels.math.logarithm import log1p_sum, log_sum
from nnc.lower.kernels.math.terms import (
    Term,
    absolute,
    fma,
    format_of,
    horner,
    is_single,
    split_sign,
    sqrt,
    two_product,
    two_sum,
    where,
    with_sign,
)

# (tanh x / x - 1) / x² in x², on |x| <= 0.55; of the tangent 2^-24.7 and 2^-60.1
TANH_SINGLE = (-0.333333164, 0.133325443, -0.0538475439, 0.0210506823, -0.00624278281)
_TANH_DOUBLE = (
    -0.333333333333333, 0.1333333333332658, -0.0539682539637396, 0.021869488385473104, -0.008863232601285253,
    0.003592092107218302, -0.001455543882345775, 0.000588450931709719, -0.000233403091204203, 8.335385305356542e-05,
    -1.9521305420524725e-05,
)  # fmt: skip
# (sinh x / x - 1) / x² in x², on |x| <= 1; of the sine 2^-31.6 and 2^-61.8
_SINH_SINGLE = (0.166666672, 0.00833331048, 0.000198428941, 2.78223001e-06)
_SINH_DOUBLE = (
    0.16666666666666669, 0.008333333333332912, 0.00019841269841593405, 2.755731910676277e-06, 2.505213099662742e-08,
    1.6056659447991787e-10, 7.77658728622896e-13,
)  # fmt: skip


def sinh(x: Term) -> Term:
    """sinh x: near 0 a polynomial, from 1 on e^x / 2 - e^-x / 2."""
    sign, size = split_sign(x)
    z = size * size
    near = fma(size * z, horner(z, _SINH_SINGLE if is_single(x) else _SINH_DOUBLE), size)
    half = half_exp(size)
    return with_sign(sign, where(size < 1, near, half - 0.25 / half))


def cosh(x: Term) -> Term:
    """cosh x: e^x / 2 + e^-x / 2."""
    half = half_exp(absolute(x))
    return half + 0.25 / half


def tanh(x: Term) -> Term:
    """tanh x: near 0 a polynomial, from 0.55 on 1 - 2 / (e^2x + 1), whose quotient the derivative shares."""
    sign, size = split_sign(x)
    z = size * size
    near = fma(size * z, horner(z, TANH_SINGLE if is_single(x) else _TANH_DOUBLE), size)
    far = 1 - 2 * sigmoid_of_minus(absolute(x * 2))
    return with_sign(sign, where(size < 0.55, near, far))


def asinh(x: Term) -> Term:
    """log(x + √(x² + 1)); near 0 log(1 + x + x² / (1 + √(x² + 1)))."""
    sign, size = split_sign(x)
    root = sqrt(fma(size, size, 1.0))
    near = log1p_sum(*two_sum(size, size / (root + 1) * size))
    return with_sign(sign, where(size < 1, near, _log_of_sum(size, 1.0)))


def acosh(x: Term) -> Term:
    """log(x + √(x² - 1)); near 1, with t = x - 1, log(1 + t + √(2t + t²))."""
    t = x - 1
    square, lost = two_product(t, t + 2)
    root = sqrt(square)
    near = log1p_sum(*two_sum(root, t + where(t.equals(0), 0, (fma(-root, root, square) + lost) / (root + root))))
    return where(x < 1, math.nan, where(x < 2, near, _log_of_sum(x, -1.0)))


def _log_of_sum(x: Term, sign: float) -> Term:
    """log(x + √(x² + sign)) for x >= 1; for large ones log 2x."""
    huge = x > 2.0 ** (format_of(x).mantissa + 2)
    square, lost = two_product(x, x)
    total, tail = two_sum(square, x.constant(sign))
    root = sqrt(total)
    root_tail = (fma(-root, root, total) + (tail + lost)) / (root + root)
    u, u_tail = two_sum(root, x)
    return log_sum(where(huge, x, u), where(huge, 0, (u_tail + root_tail) / u), where(huge, x.constant(1), 0))


def atanh(x: Term) -> Term:
    """½ log(1 + 2x / (1 - x))."""
    sign, size = split_sign(x)
    below = 1 - size
    below_tail = (1 - below) - size
    double = size + size
    q = double / below
    tail = (fma(-q, below, double) - q * below_tail) / below
    out = log1p_sum(q, where(q < math.inf, tail, 0)) * 0.5
    return with_sign(sign, where(size > 1, math.nan, out))
