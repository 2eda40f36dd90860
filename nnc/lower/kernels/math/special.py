"""The inverse of the error function, and the logarithm of the gamma function; of float32 both are found in float64."""

from __future__ import annotations

import math

from nnc.base import dtypes
from nnc.commands.special import LOG_GAMMA_NEAR_TWO
from nnc.lower.kernels.math.angles import sin
from nnc.lower.kernels.math.error import complement, erf_near
from nnc.lower.kernels.math.exponential import exp
from nnc.lower.kernels.math.logarithm import log
from nnc.lower.kernels.math.terms import Term, absolute, fma, horner, is_single, split_sign, sqrt, where, with_sign

# erfinv x / x in w - 2.75 for w = -log(1 - x²) <= 5.5, and in √w - 4 up to √w = 6.15; both 2^-27.9 (the variables are Giles')
_CENTRAL = (
    1.5627896164931832, 0.2443302718144494, -0.005036016434079743, -0.0010386189973952318, 0.00020911825081307663,
    -9.457225665465733e-06, -2.593572904141797e-06, 4.7415097689591907e-07, -2.779036304861889e-09,
    -7.1898513872752945e-09, 5.40127905617674e-10,
)  # fmt: skip
_TAIL = (
    3.8397838017310546, 1.0094931611442426, 0.0012596932668016319, -0.000868040062924666, 0.00032172374645678256,
    -0.00012079207984948491, 5.446886124051858e-05, -2.8484905171038523e-05, 1.9234888908587206e-05,
    -1.1787810987056324e-05, 3.252307658535571e-06, 6.429833379267216e-07, -5.816256599080894e-07,
    9.433365256675238e-08,
)  # fmt: skip

# x · (log Γ(x) - (x - ½) log x + x - ½ log 2π) in 1/x² for x >= 8; of the logarithm 2^-61
_STIRLING = (
    0.0833333333333331, -0.0027777777773586414, 0.0007936505764893221, -0.0005951896854773808, 0.0008364587492375858,
    -0.0016334355630369575,
)  # fmt: skip
_LARGE = 8


def erfinv(x: Term) -> Term:
    """Returns the number whose error function is x: polynomials, and in float64 a step of Halley's method from them."""
    wide = x.to(dtypes.float64)
    sign, size = split_sign(wide)
    inside = where(size < 1, size, 0.5)
    w = -log((1 - inside) * (inside + 1))
    y = inside * where(w < 5.5, horner(w - 2.75, _CENTRAL), horner(sqrt(w) - 4, _TAIL))
    if not is_single(x):
        error = where(inside < 0.75, erf_near(y) - inside, (1 - inside) - complement(y))
        step = error * exp(y * y) * (math.sqrt(math.pi) / 2)
        y = y - step / fma(y, step, 1.0)
    y = where(size < 1, y, where(size.equals(1), math.inf, y.constant(math.nan)))
    return with_sign(sign, y).to(x.dtype)


def lgamma(x: Term) -> Term:
    """log |Γ(x)|: by recurrence from 3/2 to 5/2, from 8 on Stirling's series, below ½ the reflection formula.

    Below 0, where terms cancel near zeros, the error is relative to the largest of them.
    """
    wide = x.to(dtypes.float64)
    mirrored = wide < 0.5
    z = where(mirrored, 1 - wide, wide)
    out = _lgamma_positive(z)
    rest = absolute(wide - wide.intrinsic("roundeven"))
    # of the smallest numbers π/sin would be infinite
    sine = where(rest < 2.0**-60, rest, sin(rest * math.pi) / math.pi)
    reflected = -log(sine) - out
    out = where(mirrored, where(rest.equals(0), math.inf, reflected), out)
    return where(absolute(wide).equals(math.inf), math.inf, out).to(x.dtype)


def _lgamma_positive(x: Term) -> Term:
    """log Γ(x) for x >= ½."""
    small, large = x < 1.5, x >= _LARGE
    y = where(large, 2, x)
    product = x.constant(1)
    for _ in range(_LARGE - 2):  # down to 5/2
        high = y > 2.5
        y = where(high, y - 1, y)
        product = where(high, product * y, product)
    logarithm = log(where(small | large, x, product))
    t = where(small, x - 1, y - 2)
    near = fma(t, horner(t, LOG_GAMMA_NEAR_TWO), where(small, -logarithm, logarithm))
    inverse = 1 / x
    series = fma(inverse, horner(inverse * inverse, _STIRLING), 0.5 * math.log(2 * math.pi) - 0.5)
    far = fma(x - 0.5, logarithm - 1, series)
    return where(large, far, near)
