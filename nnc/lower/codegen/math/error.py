"""The error function.

Below 1 erf is a polynomial; from there on 1 - erfc, with erfc x = e^(-x²) · g(t) / (1 + 2x), t = (x - k) / (x + k) (Shepherd and
Laframboise, "Chebyshev approximation of (1 + 2x) exp(x²) erfc x in 0 <= x < ∞", 1981).
"""

from __future__ import annotations

from nnc.lower.codegen.math.exponential import exp
from nnc.lower.codegen.math.terms import Term, fma, horner, is_single, split_sign, two_product, where, with_sign

# erf x / x - 1 in x², on |x| <= 1; of the function 2^-29.1 and 2^-55.4
_NEAR_SINGLE = (0.128379166, -0.37612626, 0.112835787, -0.0268533472, 0.00518716453, -0.000799788744, 7.80706032e-05)
_NEAR_DOUBLE = (
    0.1283791670955126, -0.376126389031841, 0.11283791670971179, -0.02686617064813055, 0.005223977654677336,
    -0.0008548328707015146, 0.00012055394287928272, -1.4927113483858818e-05, 1.6485272527584188e-06,
    -1.66059594200958e-07, 1.6363502931167446e-08, -1.7883058959069407e-09, 1.682351962506165e-10,
)  # fmt: skip
# e^(x²) erfc(x) (1 + 2x) in t, x from 0.9 to 10.3 and 28; 2^-26.8 and 2^-53.8
_FAR_SINGLE = (
    1.24234927, -0.140009195, -0.0105583966, 0.0975191146, -0.11503347, 0.0879936516, -0.0492011346, 0.0189787783,
    -0.00328674633,
)  # fmt: skip
_FAR_DOUBLE = (
    1.2423492448711544, -0.1400091801376213, -0.010555596332222066, 0.09751909515350173, -0.11508959816000575,
    0.08798315381560999, -0.04882332583025683, 0.01909933110222191, -0.004215019917910335, -0.0003022693616383586,
    0.0005643848494633518, -0.00012150443862202007, -4.278588218798713e-05, 2.4235585266439697e-05,
    2.342645732966646e-06, -3.7680577329454607e-06, -7.172380204221943e-08, 5.544566984522026e-07,
    1.3086237103226147e-08, -6.878352024099631e-08,
)  # fmt: skip
_CENTRE = 3.5


def _complement(x: Term) -> Term:
    """erfc x for x >= 0.9."""
    x = where(x > 28, 28, x)
    t = (x - _CENTRE) / (x + _CENTRE)
    square, error = two_product(x, x)
    g = horner(t, _FAR_SINGLE if is_single(x) else _FAR_DOUBLE)
    return exp(-square, -error) * (g / fma(x, 2, 1.0))


def erf(x: Term) -> Term:
    """erf x."""
    sign, size = split_sign(x)
    z = size * size
    near = fma(size, horner(z, _NEAR_SINGLE if is_single(x) else _NEAR_DOUBLE), size)
    return with_sign(sign, where(size < 1, near, 1 - _complement(size)))


def erfc(x: Term) -> Term:
    """1 - erf x, with all its digits also far above 0."""
    sign, size = split_sign(x)
    z = size * size
    near = fma(x, horner(z, _NEAR_SINGLE if is_single(x) else _NEAR_DOUBLE), x)
    far = _complement(size)
    return where(size < 1, 1 - near, where(x < 0, 2 - far, far))
