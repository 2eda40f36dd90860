"""Functions of random draws, written with operations that IEEE 754 rounds in one way: their bits are the same wherever they run.

Each is written once, on numbers that stand for NumPy's arrays (`nnc.commands.lanes`, the reference of a command) or for
registers of compiled code (`nnc.lower.kernels.math.terms.Term`). Neither contracts a product with a sum here, so eager and
compiled draws agree in every bit, and a comparison that decides whether a proposal is accepted has the same result. Numbers
below the smallest normal one count as 0, as processors may take them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from nnc.base import dtypes

Number = Any  # Lanes, or Term


def _is_single(x: Number) -> bool:
    return bool(x.dtype.itemsize == 4)


def _mantissa_and_bias(x: Number) -> tuple[int, int]:
    return (23, 127) if _is_single(x) else (52, 1023)


def horner(x: Number, coefficients: Sequence[float]) -> Number:
    """Returns the polynomial with these coefficients, the lowest power's first; each product is rounded."""
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def _either(condition: Number, x: Number, first: Sequence[float], second: Sequence[float]) -> Number:
    """One of two polynomials of one degree."""
    like = x * 0
    total = condition.choose(like + first[-1], second[-1])
    for a, b in zip(first[-2::-1], second[-2::-1], strict=True):
        total = total * x + condition.choose(like + a, b)
    return total


# -- logarithm and exponential -----------------------------------------------------------------------------------------

# ln 2 in two parts; the first has so few bits that its products with exponents are exact (fdlibm, Cephes)
_LN2 = {4: (0.693359375, -2.12194440054690583e-4), 8: (6.93147180369123816490e-01, 1.90821492927058770002e-10)}
_ROOT_HALF = {4: 0x3F3504F3, 8: 0x3FE6A09E667F3BCD}  # bit pattern of √½
# (log(1 + f) - f + f²/2) / f³; of the logarithm 2^-26.3
LOG_SINGLE = (
    0.333333313, -0.250008106, 0.200012475, -0.166234255, 0.142008796, -0.131626487, 0.12778458, -0.0764711425,
)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2) / s², in s²; of the logarithm 2^-59.5
LOG_DOUBLE = (
    0.6666666666666734, 0.3999999999941623, 0.2857142874219887, 0.22222198580633643, 0.18183564432309218,
    0.15314037279919657, 0.14796173993534265,
)  # fmt: skip
# (e^r - 1 - r) / r² on |r| <= 0.3467; of e^r 2^-28.2 and 2^-56.7
EXP_SINGLE = (0.49999994, 0.166665167, 0.0416681021, 0.00836916175, 0.00138378341)
EXP_DOUBLE = (
    0.5000000000000011, 0.1666666666666657, 0.04166666666652813, 0.008333333333385632, 0.001388888894509886,
    0.00019841269752775327, 2.480149043818247e-05, 2.755735579424853e-06, 2.7631557452759767e-07, 2.5076915136907708e-08,
)  # fmt: skip
_EXP_LIMITS = {4: (-104.0, 89.0), 8: (-746.0, 710.0)}  # below is 0, above infinity


def log(x: Number) -> Number:
    """log x, to 2 ulp: x = 2^k · m with m between √½ and √2 (Tang), f = m - 1, and a polynomial."""
    (mantissa, bias), root, (ln2, tail) = _mantissa_and_bias(x), _ROOT_HALF[x.dtype.itemsize], _LN2[x.dtype.itemsize]
    bits = x.bits()
    exponent = (bits + ((bias << mantissa) - root)) >> mantissa
    m = (bits - (exponent << mantissa) + (bias << mantissa)).as_float()
    # an integer below 2^mantissa, put into the lowest bits of 2^mantissa, makes the float
    k = (exponent | (bias + mantissa << mantissa)).as_float() - (2.0**mantissa + bias)
    f = m - 1
    if _is_single(x):
        small = f * f * (f * horner(f, LOG_SINGLE) - 0.5)
    else:
        s = f / (f + 2)
        z, half = s * s, f * f * 0.5
        small = s * (z * horner(z, LOG_DOUBLE) + half) - half
    out = k * ln2 + (f + (k * tail + small))
    out = (x < math.inf).choose(out, x)
    return (x < 2.0 ** (1 - bias)).choose((x < 0).choose(x * math.nan, -math.inf), out)


def log1p(x: Number) -> Number:
    """log(1 + x): the rounding error of 1 + x is added again."""
    u = x + 1
    lost = (x.intrinsic("fabs") < 1).choose(x - (u - 1), 1 - (u - x))
    return (u < math.inf).choose((u > 0).choose(log(u) + lost / u, log(u)), u)


def exp(x: Number) -> Number:
    """e^x, to 2 ulp: x = r + n · ln 2 with |r| <= ½ ln 2 (Cody and Waite), and a polynomial."""
    (mantissa, bias), (ln2, tail) = _mantissa_and_bias(x), _LN2[x.dtype.itemsize]
    low, high = _EXP_LIMITS[x.dtype.itemsize]
    inside = (x < low).choose(low, (x > high).choose(high, x))
    magic = 1.5 * 2.0**mantissa  # to which an addition rounds to an integer
    n = (inside * 1.4426950408889634 + magic) - magic
    r = (inside - n * ln2) - n * tail
    grown = 1 + (r + r * r * horner(r, EXP_SINGLE if _is_single(x) else EXP_DOUBLE))
    half = (n * 0.5).intrinsic("floor")
    for power in (half, n - half):  # each has a float, also where 2^n has none
        grown = grown * ((power + (2.0**mantissa + bias)).bits() << mantissa).as_float()
    return x.is_nan().choose(x, (x < low).choose(0.0, (x > high).choose(math.inf, grown)))


# -- the normal distribution -------------------------------------------------------------------------------------------

# Giles, "Approximating the erfinv function" (2012): polynomials in w = -log(1 - x²), for w < 5 and beyond
GILES_CENTRE = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06, -3.5233877e-06,
    3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
GILES_TAIL = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844, 0.00134934322,
    0.000100950558, -0.000200214257,
)  # fmt: skip
# Wichura, "Algorithm AS 241: the percentage points of the normal distribution" (1988): ratios of polynomials, to 1e-16; within
# |p - ½| <= 0.425, and in √(-log p) up to 5 and to 27
QUANTILE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
     3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
QUANTILE_NEAR = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
QUANTILE_FAR = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
     1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip
# e^(x²) erfc x · (x + 3.5) in t = (x - 3.5) / (x + 3.5), x from 0.48 to 28 (Shepherd and Laframboise, 1981); 2^-56.3
ERFC_CENTRE, ERFC_END = 3.5, 28.0
ERFC_DOUBLE = (
    1.08705558926226, -0.9377997245671122, 0.6941136466346425, -0.43525602671685665, 0.22573862164751635,
    -0.09231870663975804, 0.02651861987944738, -0.003177050320212472, -0.001305354668129152, 0.0007145314716382737,
    -4.206231053317631e-05, -7.477587402676321e-05, 1.864773932662286e-05, 7.239850009293541e-06,
    -3.393315210641613e-06, -7.867329857835159e-07, 5.523726566290954e-07, 1.0293397541615293e-07,
    -8.498621483082624e-08, -1.1666465244212418e-08, 9.5484999176414e-09,
)  # fmt: skip
# erf x / x - 1 in x², on |x| <= 1; 2^-55.4
ERF_DOUBLE = (
    0.1283791670955126, -0.376126389031841, 0.11283791670971179, -0.02686617064813055, 0.005223977654677336,
    -0.0008548328707015146, 0.00012055394287928272, -1.4927113483858818e-05, 1.6485272527584188e-06,
    -1.66059594200958e-07, 1.6363502931167446e-08, -1.7883058959069407e-09, 1.682351962506165e-10,
)  # fmt: skip
_ROOT_TWO = math.sqrt(2)


def normal_quantile(u: Number) -> Number:
    """Returns the number that a standard normal one is below with probability (1 + u) / 2; u in [-1, 1]."""
    size = u.intrinsic("fabs")
    if _is_single(u):
        w = -log((1 - u) * (u + 1))
        near = w < 5
        out = _either(near, near.choose(w - 2.5, w.intrinsic("sqrt") - 3), GILES_CENTRE, GILES_TAIL) * u * _ROOT_TWO
    else:
        q = u * 0.5
        tail = _tail_quantile((-log((1 - size) * 0.5)).intrinsic("sqrt"))
        out = (size <= 0.85).choose(_central_quantile(q), (u < 0).choose(tail, -tail))
    return (size < 1).choose(out, u * math.inf)


def _central_quantile(q: Number) -> Number:
    """Returns the quantile of ½ + q, |q| <= 0.425."""
    r = 0.180625 - q * q
    return q * horner(r, QUANTILE[0]) / horner(r, QUANTILE[1])


def _tail_quantile(r: Number) -> Number:
    """Returns the quantile of e^(-r²), below 0.075; beyond the polynomials x² = 2 r² - log(2π x²) + 2 log(1 - 1/x² + 3/x⁴ -
    15/x⁶).
    """
    near, far = r <= 5, r > 27
    cut = far.choose(27.0, r)
    at = near.choose(cut - 1.6, cut - 5)
    out = _either(near, at, QUANTILE_NEAR[0], QUANTILE_FAR[0]) / _either(near, at, QUANTILE_NEAR[1], QUANTILE_FAR[1])

    def from_density() -> Number:
        square = r * r * 2
        t = square - log(square * (2 * math.pi))
        for _ in range(3):  # each gives three digits or more
            inverse = 1 / t
            t = square - log(t * (2 * math.pi)) + log(1 - inverse * (1 - inverse * (3 - inverse * 15))) * 2
        return t.intrinsic("sqrt")

    return -far.choose_rarely(from_density, out)


def _log_normal_cdf(x: Number) -> Number:
    """Returns the logarithm of the probability that a standard normal number is below x."""
    y = x.intrinsic("fabs") * (1 / _ROOT_TWO)
    square = x * x * 0.5
    cut = (y > ERFC_END).choose(ERFC_END, y)
    inverse = 1 / (cut + ERFC_CENTRE)
    scaled = horner(1 - inverse * (2 * ERFC_CENTRE), ERFC_DOUBLE) * inverse
    z = 1 / (y * y)
    series = 1 - z * (0.5 - z * (0.75 - z * (1.875 - z * 6.5625)))
    # e^(x²/2) times the tail beyond |x|
    scaled = (y > ERFC_END).choose(series / (y * math.sqrt(math.pi)), scaled) * 0.5
    near = y < 0.5
    tail = near.choose(0.5 - (y + y * horner(y * y, ERF_DOUBLE)) * 0.5, exp(-square) * scaled)
    is_above, is_near = x > 0, near
    factor = is_above.choose(1 - tail, is_near.choose(tail, scaled))
    return log(factor) - (is_above | is_near).choose(0.0, square)


def truncated_normal(u: Number, low: Number, high: Number) -> Number:
    """Returns the u-quantile of the standard normal distribution between two bounds, computed with logarithms of probabilities,
    so that it is exact in both tails; an interval that lies mostly above 0 is mirrored.
    """
    dtype = u.dtype
    u, low, high = (x.to(dtypes.float64) for x in (u, low, high))
    mirrored = low + high > 0
    first, last = mirrored.choose(-high, low), mirrored.choose(-low, high)
    u = mirrored.choose(1 - u, u)
    of_last = _log_normal_cdf(last)
    missing = 1 - exp(_log_normal_cdf(first) - of_last)  # of the probability below `last`, the share between the bounds
    share = of_last + log(1 - (1 - u) * missing)
    p = exp(share)
    is_low = p < 0.5
    tail = _tail_quantile((-is_low.choose(share, log(1 - p))).intrinsic("sqrt"))
    tail = is_low.choose(tail, -tail)
    q = p - 0.5
    x = (q.intrinsic("fabs") <= 0.425).choose(_central_quantile(q), tail)
    return mirrored.choose(-x, x).to(dtype)


# -- tangent -----------------------------------------------------------------------------------------------------------

# Taylor's series of sin(πt) / t and cos(πt) in t², for |t| <= ¼
_SINE = tuple((-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(10))
_COSINE = tuple((-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k) for k in range(10))


def tan_of_turns(t: Number) -> Number:
    """tan(πt)."""
    t = t - t.intrinsic("rint")  # its period is 1; this is exact
    size = t.intrinsic("fabs")
    beyond = size > 0.25
    near = beyond.choose(0.5 - size, size)
    square, terms = near * near, 5 if _is_single(t) else 10
    sine, cosine = near * horner(square, _SINE[:terms]), horner(square, _COSINE[:terms])
    out = beyond.choose(cosine, sine) / beyond.choose(sine, cosine)
    return (t < 0).choose(-out, out)


# -- numbers of events -------------------------------------------------------------------------------------------------

# log k! less Stirling's formula, (k + ½) log k - k + ½ log 2π, for k = 1 … 9 (Loader, 2000)
_STIRLING_ERRORS = (
    0.08106146679532726, 0.0413406959554093, 0.02767792568499834, 0.0207906721037651, 0.016644691189821193,
    0.013876128823070748, 0.01189670994589177, 0.010411265261972096, 0.009255462182712733,
)  # fmt: skip


def _half_log(k: Number) -> Number:
    """log k! - (k log k - k); 0 of 0."""
    inverse = 1 / (k < 1).choose(1.0, k)
    square = inverse * inverse
    error = inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680))))
    for known, value in enumerate(_STIRLING_ERRORS, 1):
        error = (k < known + 0.5).choose((k > known - 0.5).choose(value, error), error)
    return (k < 0.5).choose(k * 0, error + log((k < 1).choose(1.0, k) * (2 * math.pi)) * 0.5)


def _deviance(k: Number, mean: Number) -> Number:
    """k log(k / mean) + mean - k, without the cancellation of its terms (Loader, "Fast and accurate computation of binomial
    probabilities", 2000).
    """
    apart, total = k - mean, k + mean
    v = apart / total
    square = v * v
    near = apart * v + k * 2 * v * square * horner(square, tuple(1 / (2 * j + 3) for j in range(8)))
    far = k * log(k / mean) - apart
    out = (apart.intrinsic("fabs") < total * 0.1).choose(near, far)
    return (k > 0).choose(out, mean)


def poisson_log_mass(k: Number, mean: Number) -> Number:
    """Returns the logarithm of the probability of k >= 0 events where `mean` are expected."""
    return -_half_log(k) - _deviance(k, mean)


def binomial_log_mass(k: Number, n: Number, p: Number) -> Number:
    """Returns the logarithm of the probability that k of n trials succeed, each with probability p; 0 <= k <= n, 0 < p < 1."""
    rest = n - k
    logs = _half_log(n) - _half_log(k) - _half_log(rest)
    return logs - _deviance(k, n * p) - _deviance(rest, n * (1 - p))


def geometric_quantile(u: Number, rate: Number) -> Number:
    """Returns the number of trials up to the first success; each fails with probability e^-rate, all before it with more than u."""
    return (log(u).intrinsic("fabs") / rate).intrinsic("floor") + 1


# -- uniform numbers ---------------------------------------------------------------------------------------------------

_LEAST_UNIT = 2.0**-53  # half the distance of the numbers that `unit_of_words` gives, in place of 0


def unit_of_words(words: Number) -> Number:
    """Converts words of 64 bits to numbers in (0, 1) of 52 bits; the upper 23 are those of `nnc.random.uniform` in float32."""
    low = words & 0xFFFFFFFF
    upper = ((words >> 32) ^ low) >> 9
    number = (upper << 29) | (low >> 3)
    unit = (number | (1023 << 52)).as_float() - 1  # the bits of a number in [1, 2)
    return (unit < _LEAST_UNIT).choose(_LEAST_UNIT, unit)


FUNCTIONS: dict[str, Callable[..., Number]] = {
    "portable_log": log,
    "portable_log1p": log1p,
    "portable_exp": exp,
    "normal_quantile": normal_quantile,
    "truncated_normal": truncated_normal,
    "tan_of_turns": tan_of_turns,
    "poisson_log_mass": poisson_log_mass,
    "binomial_log_mass": binomial_log_mass,
    "geometric_quantile": geometric_quantile,
}
"""Functions of floats, by the names that scalar expressions call them by."""
OF_WORDS: dict[str, Callable[..., Number]] = {"unit_of_words": unit_of_words}
"""Functions of unsigned integers."""
