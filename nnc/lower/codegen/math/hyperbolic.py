"""Hyperbolic functions and their inverses."""

from __future__ import annotations

from nnc.lower.codegen.math.exponential import exp
from nnc.lower.codegen.math.terms import Term, fma, horner, is_single, split_sign, where, with_sign

# (tanh x / x - 1) / x² in x², on |x| <= 0.55; of the tangent 2^-24.7 and 2^-60.1
_TANH_SINGLE = (-0.333333164, 0.133325443, -0.0538475439, 0.0210506823, -0.00624278281)
_TANH_DOUBLE = (
    -0.333333333333333, 0.1333333333332658, -0.0539682539637396, 0.021869488385473104, -0.008863232601285253,
    0.003592092107218302, -0.001455543882345775, 0.000588450931709719, -0.000233403091204203, 8.335385305356542e-05,
    -1.9521305420524725e-05,
)  # fmt: skip


def tanh(x: Term) -> Term:
    """tanh x: near 0 a polynomial, from 0.55 on 1 - 2 / (e^2x + 1)."""
    sign, size = split_sign(x)
    z = size * size
    near = fma(size * z, horner(z, _TANH_SINGLE if is_single(x) else _TANH_DOUBLE), size)
    far = 1 - 2 / (exp(size + size) + 1)
    return with_sign(sign, where(size < 0.55, near, far))
