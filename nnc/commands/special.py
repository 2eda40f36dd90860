"""Special functions: the error function and its inverse, log-gamma and its derivatives, Bessel functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.commands.constants import full_like
from nnc.commands.elementwise import FLOAT, abs_, elementwise, exp, less, safe_mul, select, sign, stop_gradient
from nnc.commands.multiply_add import multiply_add
from nnc.commands.portable import GILES_CENTRE, GILES_TAIL, horner
from nnc.commands.rules import batch_leading, check_dtype, of_tangent
from nnc.errors import ArgumentError, user_error
from nnc.graph import Command, TensorSpec, register
from nnc.graph.rules import InPlace, Rules, Value

NDArray = np.ndarray[Any, Any]


_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)

_BEYOND = 40.0  # where e^(-x²) is 0


def _gaussian(x: Value) -> Value:
    """e^(-x²), with the rounding error of x²."""
    square, still = x * x, stop_gradient(x)
    error = multiply_add(still, still, -stop_gradient(square))
    known = less(abs_(still), full_like(still, _BEYOND))
    return exp(-square) * (1 - select(known, error, full_like(error, 0)))


erf: Command = elementwise(
    "erf", _erf, "erf(x)", accepts=FLOAT, flops=10, partials=(lambda x, out: _gaussian(x) * (2 / math.sqrt(math.pi)),)
)
erfc: Command = elementwise(
    "erfc",
    _erfc,
    "erfc(x)",
    accepts=FLOAT,
    flops=10,
    partials=(lambda x, out: _gaussian(x) * (-2 / math.sqrt(math.pi)),),
)


def _special(
    name: str, function: Callable[..., NDArray], partial: Callable[..., Value], scalar: str | None = None
) -> Command:
    """Returns an elementwise function of one float array; `partial(x, output, **params)` is its derivative."""

    def infer(x: TensorSpec, **params: Any) -> TensorSpec:
        check_dtype(name, x, *FLOAT)
        if params.get("n", 0) < 0:
            raise user_error(ArgumentError, name, f"there is no derivative of order {params['n']}.", fix="give n >= 0.")
        return x

    def reference(x: NDArray, **params: Any) -> NDArray:
        with np.errstate(all="ignore"):
            return np.asarray(function(x.astype(dtypes.accumulator(x.dtype), copy=False), **params)).astype(
                x.dtype, copy=False
            )

    return register(
        name,
        Rules(
            infer=infer,
            reference=reference,
            scalar=scalar,
            derivative=of_tangent(lambda t, x, out, **params: safe_mul(t, partial(x, out, **params))),
            batch=batch_leading(name),
            inplace=InPlace(((0, 0),)),
            cost=lambda x, **params: 20 * x.size,
        ),
    )


def _erfinv(x: NDArray) -> NDArray:
    x = x.astype(np.float64) if x.dtype == np.longdouble else x
    w = -np.log((1 - x) * (1 + x))
    central = w < 5
    w = np.where(central, w - x.dtype.type(2.5), np.sqrt(w) - 3)
    p = np.where(central, x.dtype.type(GILES_CENTRE[-1]), x.dtype.type(GILES_TAIL[-1]))
    for centre, tail in zip(GILES_CENTRE[-2::-1], GILES_TAIL[-2::-1], strict=True):
        p = np.where(central, x.dtype.type(centre), x.dtype.type(tail)) + p * w
    y = p * x
    if x.dtype == dtypes.float64:
        far = -np.log((1 - x) * (1 + x))  # beyond the polynomials' reach: erfc(y) is nearly exp(-y²) / (y √π)
        y = np.where(far > 16, np.copysign(np.sqrt(far + math.log(2) - np.log(np.pi * far) / 2), x), y)
        y = _refine_erfinv(x, y)
    return np.where(np.abs(x) == 1, x * np.inf, y)


def _refine_erfinv(x: NDArray, y: NDArray) -> NDArray:
    """Three steps of Halley's method; in the tails on erfc, whose argument 1 - |x| is exact."""
    size, target, tail = np.abs(y), np.abs(x), np.abs(x) > 0.5
    for _ in range(3):
        error = np.empty_like(size)
        error[~tail] = np.asarray(_erf(size[~tail]), np.float64) - target[~tail]
        error[tail] = (1 - target[tail]) - np.asarray(_erfc(size[tail]), np.float64)
        step = error / (2 / math.sqrt(math.pi) * np.exp(-size * size))
        size = size - step / (1 + size * step)
    return np.copysign(size, x)


erfinv: Command = _special("erfinv", _erfinv, lambda x, out: exp(out * out) * (math.sqrt(math.pi) / 2), "erfinv(x)")


# log Γ(2 + t) / t on |t| <= ½; 2^-55.6
LOG_GAMMA_NEAR_TWO = (
    0.42278433509846713, 0.3224670334241133, -0.06735230105319576, 0.020580808427765954, -0.007385551028925253,
    0.0028905103318421694, -0.0011927539013269436, 0.0005096694951005841, -0.00022315497230501977,
    9.945794434296432e-05, -4.4923771542951235e-05, 2.0503542835584944e-05, -9.45608073360824e-06,
    4.393525455237813e-06, -1.9748219341831106e-06, 8.998919202579534e-07, -5.806167021660153e-07, 2.977144707629322e-07,
)  # fmt: skip


def _log_gamma(x: float) -> float:
    if 0.5 <= x <= 2.5:  # math's own loses digits near the zeros, 1 and 2
        t = float(x) - (1 if x < 1.5 else 2)
        near = t * horner(t, LOG_GAMMA_NEAR_TWO)
        return float(near - math.log(x) if x < 1.5 else near)
    try:
        return math.lgamma(x)
    except ValueError:  # a pole
        return math.inf


_lgamma = np.frompyfunc(_log_gamma, 1, 1)
lgamma: Command = _special(
    "lgamma", lambda x: np.asarray(_lgamma(x)).astype(x.dtype), lambda x, out: polygamma(x, n=0), "lgamma(x)"
)
"""log |Γ(x)|"""

ASYMPTOTIC = 12  # from here on six terms of the asymptotic series are exact in float64
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
LOWEST = -64.0  # where derivatives of digamma are no longer computed
DIGAMMA_ROOT = (1.4616321449683622, 9.549995429965697e-17)  # two numbers whose sum is where digamma is 0
# x ψ(x) / (x - root) in x - 3/2, for 1 <= x < 2; 2^-57.8
DIGAMMA_NEAR_ROOT = (
    1.4265838140477494, 0.315614744109642, -0.06281369492028008, 0.017935099659936202, -0.005921836374555441,
    0.002105524543932196, -0.0007808823636548008, 0.0002971387135965835, -0.00011492419795785276, 4.4924967963555466e-05,
    -1.7687223169837115e-05, 7.00085274570018e-06, -2.778815077217573e-06, 1.0900440594791301e-06, -4.343344704424389e-07,
    2.086174950945902e-07, -8.330017764155427e-08,
)  # fmt: skip


def _polygamma(x: NDArray, *, n: int) -> NDArray:
    x = x.astype(np.float64)
    return _digamma(x) if n == 0 else (-1) ** (n + 1) * math.factorial(n) * _hurwitz(n + 1, x)


def _digamma(x: NDArray) -> NDArray:
    """Computes digamma by reflection to x >= 1/2, a polynomial near its root, else recurrence to x >= 12 and the asymptotic
    series.
    """
    mirrored = x < 0.5
    z = start = np.where(mirrored, 1 - x, x)
    total = np.zeros_like(z)
    for _ in range(ASYMPTOTIC):
        low = z < ASYMPTOTIC
        total = np.where(low, total - 1 / z, total)
        z = np.where(low, z + 1, z)
    total = total + np.log(z) - 1 / (2 * z)
    for k, b in enumerate(BERNOULLI, 1):
        total = total - b / (2 * k * z ** (2 * k))
    near = (start - DIGAMMA_ROOT[0] - DIGAMMA_ROOT[1]) * (horner(start - 1.5, DIGAMMA_NEAR_ROOT) / start)
    total = np.where((start >= 1) & (start < 2), near, total)
    reflected = total - np.pi / np.tan(np.pi * (x - np.floor(x + 0.5)))
    pole = (x <= 0) & (x == np.floor(x))
    return np.where(pole, np.nan, np.where(mirrored, reflected, total))


def _hurwitz(s: int, x: NDArray) -> NDArray:
    """Σ 1 / (x + k)^s over k >= 0, by Euler and Maclaurin's formula; NaN below -64."""
    total, z = np.zeros_like(x), np.where(x < LOWEST, np.nan, x)
    edge = ASYMPTOTIC + s
    while (z < edge).any():
        low = z < edge
        total = np.where(low, total + z ** -float(s), total)
        z = np.where(low, z + 1, z)
    total = total + z ** (1 - s) / (s - 1) + z**-s / 2
    rising = float(s)
    for k, b in enumerate(BERNOULLI, 1):
        total = total + b * rising / math.factorial(2 * k) * z ** -(s + 2.0 * k - 1)
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    return total


polygamma: Command = _special("polygamma", _polygamma, lambda x, out, n: polygamma(x, n=n + 1), "polygamma(x, n)")
"""The n-th derivative of digamma (n = 0: digamma itself), which is the derivative of log Γ."""


# -- modified Bessel functions, scaled by exp(-|x|) --------------------------------------------------------------------

_FAR = 30.0  # from here on asymptotic series have more digits than float64


def _bessel(order: int, x: NDArray) -> NDArray:
    """I_n(|x|) exp(-|x|): below 30 by its power series, whose terms are all positive, then by the asymptotic one."""
    size = np.abs(x).astype(np.float64)
    near, far = np.minimum(size, _FAR), np.maximum(size, _FAR)
    quarter = near * near / 4
    term = (near / 2) ** order / math.factorial(order)
    total = term
    for k in range(1, 100):
        term = term * quarter / (k * (k + order))
        total = total + term
    tail = series = np.ones_like(far)
    for k in range(1, 25):
        series = series * ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k * far)
        tail = tail + series
    return np.where(np.isnan(size), size, np.where(size < _FAR, total * np.exp(-near), tail / np.sqrt(2 * np.pi * far)))


_VERSINES = 2 * np.sin(np.pi / 2 * np.arange(1, 49) / 48) ** 2  # 1 - cos θ at 48 angles up to π
_WEIGHTS = np.where(np.arange(1, 49) == 48, 0.5, 1.0) / 48  # the trapezoidal rule is exact here for periodic functions


def _ie_moment(x: NDArray, *, n: int) -> NDArray:
    """Returns the mean of vⁿ exp(-v |x|) over angles θ, v = 1 - cos θ; from 30 on by Watson's lemma. No term is negative."""
    size = np.abs(x).astype(np.float64)
    near, far = np.minimum(size, _FAR), np.maximum(size, _FAR)
    total = np.full_like(near, 1 / 96 if n == 0 else 0)
    at_zero = math.factorial(2 * n) / (2**n * math.factorial(n) ** 2)
    for versine, weight in zip(_VERSINES.tolist(), _WEIGHTS.tolist(), strict=True):
        total = total + weight * versine**n * np.exp(-versine * near)
    term = math.gamma(n + 0.5) / (math.pi * math.sqrt(2)) / (far**n * np.sqrt(far))
    tail = term
    for k in range(1, 30):
        term = term * ((k - 0.5) * (n + k - 0.5) / (2 * k)) / far
        tail = tail + term
    total = np.where(size == 0, at_zero, np.where(size < _FAR, total, tail))
    return np.where(np.isnan(size), size, total)


i0e: Command = _special("i0e", lambda x: _bessel(0, x), lambda x, out: -sign(x) * ie_moment(x, n=1), "i0e(x)")
i1e: Command = _special(
    "i1e", lambda x: np.sign(x) * _bessel(1, x), lambda x, out: ie_moment(x, n=2) - ie_moment(x, n=1), "i1e(x)"
)
ine: Command = _special(
    "ine",
    lambda x, n: np.where((x < 0) & (n % 2 == 1), -1, 1) * _bessel(n, x),
    lambda x, out, n: 0.5 * (ine(x, n=abs(n - 1)) + ine(x, n=n + 1)) - sign(x) * out,
)
"""exp(-|x|) · I_n(x), of which i0e and i1e are the first two."""
ie_moment: Command = _special("ie_moment", _ie_moment, lambda x, out, n: -sign(x) * ie_moment(x, n=n + 1))
"""For positive x, up to its sign, the n-th derivative of i0e."""
