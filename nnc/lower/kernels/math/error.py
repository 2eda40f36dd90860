"""The error function and its complement.

Below 1 erf is a polynomial; from there on 1 - erfc. With t = (x - c) / (x + c) all positive x lie in ±1, where erfc x =
e^(-x²) · h(t) / (x + c) with a smooth h (as Shepherd and Laframboise have it, "Chebyshev approximation of (1 + 2x) exp(x²) erfc x
in 0 <= x < ∞", 1981). Where erfc is the result, products keep their rounding errors; under 1 - erfc they do not matter.
"""

from __future__ import annotations

from nnc.commands.portable import ERF_DOUBLE, ERFC_CENTRE, ERFC_DOUBLE, ERFC_END
from nnc.lower.kernels.math.exponential import exp, exp_parts
from nnc.lower.kernels.math.terms import (
    Term,
    absolute,
    fma,
    horner,
    is_single,
    split_sign,
    two_product,
    two_sum,
    where,
    with_sign,
)

# erf x / x - 1 in x², on |x| <= 1; of the function 2^-29.1 and 2^-55.4
NEAR_SINGLE = (0.128379166, -0.37612626, 0.112835787, -0.0268533472, 0.00518716453, -0.000799788744, 7.80706032e-05)

# h for erf, x from 0.99 to 4.1 and 6.1; of erf 2^-25.0 and 2^-55.3
COARSE_CENTRE = 1.5
COARSE_SINGLE = (0.964755893, -0.507871389, 0.0755251721, 0.0490209945)
_COARSE_DOUBLE = (
    0.964756249362952, -0.5078500102301007, 0.07562180627530522, 0.04776836962191116, -0.008119797969679852,
    -0.009461376105296418, -0.0008103129589698087, 0.001771946906074172, 0.0008841079468868382, -4.786046784260331e-05,
    -0.0002563593320608274, -0.00011163852462360066,
)  # fmt: skip

# h for erfc, x from 0.48 to 10.3 and 28; 2^-28.4 and 2^-56.3; the first coefficients have tails
FAR_SINGLE = (
    1.0870555639266968, -0.937799752, 0.694113731, -0.43525514, 0.225737467, -0.0923283249, 0.026525721, -0.00313415821,
    -0.00132942968, 0.000629018294,
)  # fmt: skip
_SINGLE_TAIL, _DOUBLE_TAIL = 2.4612644367039138e-08, 1.0371353812919937e-16


def erf_near(x: Term) -> Term:
    """erf x for |x| <= 1."""
    return fma(x, horner(x * x, NEAR_SINGLE if is_single(x) else ERF_DOUBLE), x)


def erf(x: Term) -> Term:
    """erf x."""
    sign, size = split_sign(x)
    limit = 4.0 if is_single(x) else 6.0
    cut = where(size > limit, limit, size)
    inverse = 1 / (cut + COARSE_CENTRE)
    t = fma(inverse, -2 * COARSE_CENTRE, 1.0)
    h = horner(t, COARSE_SINGLE if is_single(x) else _COARSE_DOUBLE)
    return with_sign(sign, where(size < 1, erf_near(size), fma(exp(-cut * cut) * inverse, -h, 1.0)))


def erfc(x: Term) -> Term:
    """1 - erf x, with all its digits also far above 0."""
    size = absolute(x)
    near = fma(-x, horner(x * x, NEAR_SINGLE if is_single(x) else ERF_DOUBLE), 1 - x)
    far = complement(size)
    return where(size < 0.75, near, where(x < 0, 2 - far, far))


def complement(x: Term) -> Term:
    """erfc x for x >= ¾: the product of e^(-x²), h and 1 / (x + c), each in two parts."""
    limit, coefficients, tail = (
        (10.3, FAR_SINGLE, _SINGLE_TAIL) if is_single(x) else (ERFC_END, ERFC_DOUBLE, _DOUBLE_TAIL)
    )
    x = where(x > limit, limit, x)
    square, square_tail = two_product(x, x)
    power = exp_parts(-square, -square_tail)
    first, first_tail = two_sum(x.constant(1), power.rest)

    below = x + ERFC_CENTRE
    inverse = 1 / below
    excess = fma(-inverse, below, 1.0) - inverse * (x - (below - ERFC_CENTRE))
    t = fma(inverse * excess, -2 * ERFC_CENTRE, fma(inverse, -2 * ERFC_CENTRE, 1.0))

    h, h_tail = two_sum(x.constant(coefficients[0]), t * horner(t, coefficients[1:]))
    product, product_tail = two_product(first, h)
    product_tail = fma(first_tail, h, fma(first, h_tail + tail, product_tail))
    out, out_tail = two_product(product, inverse)
    out_tail = fma(product_tail, inverse, fma(out, excess, out_tail))
    return (out + out_tail) * power.first * power.second
