"""Functions of one real number with their first three derivatives, to 17 digits, in one_variable.npz.

python -m tests.contract.programs.one_variable [name ...]        renews the rows of these functions, or all; needs mpmath
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mp: Any = pytest.importorskip("mpmath")  # the tests need the stored numbers alone
STORE = Path(__file__).with_suffix(".npz")
SIZES = (
    1e-300, 1e-200, 1e-150, 1e-80, 1e-30, 1e-16, 1e-8, 3e-5, 1e-3, 0.04, 0.3, 0.7, 1.3, 2.2, 3.4, 6.5, 11.0, 18.0, 29.0, 37.0, 90.0,
    400.0, 709.0, 1e4, 1e8, 1e22, 1e100, 1e160, 1e200, 1e300,
)  # fmt: skip
POINTS = (*(-x for x in reversed(SIZES)), *SIZES)
NEAR_ONE = (1 - 1e-3, 1 - 1e-9, 1 - 2.0**-53, 1 + 2.0**-52, 1 + 1e-9, 1 + 1e-3)
NEAR_MINUS_ONE = tuple(-x for x in NEAR_ONE)
Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Row:
    """A function of mpmath and points beside the common ones: where it is smooth, 0 among them.

    Attributes:
        functions: it, and its first derivatives, as far as they are known in closed form; others are differences of the last.
        points: beside the common ones.
        range: of the sizes of points at which mpmath computes it in reasonable time.
        digits: with which mpmath computes; differences of the third order lose up to 1,100 where the point is 1e-300.
    """

    functions: tuple[Function, ...]
    points: tuple[float, ...] = ()
    range: tuple[float, float] = (0.0, np.inf)
    digits: int = 1600


def branches(condition: Function, one: Function, other: Function) -> Function:
    """The first function where the condition holds, else the second."""
    return lambda x: one(x) if condition(x) else other(x)


def positive(x: Any) -> bool:
    return bool(x > 0)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x)) if x > 0 else mp.exp(x) / (1 + mp.exp(x))


def softplus(x: Any) -> Any:
    return x + mp.log1p(mp.exp(-x)) if x > 0 else mp.log1p(mp.exp(x))


def elu(alpha: Any, scale: Any = 1) -> Function:
    return branches(positive, lambda x: scale * x, lambda x: scale * alpha * mp.expm1(x))


def erfc(x: Any) -> Any:
    return mp.erfc(x) if abs(x) < 1e4 else mp.mpf(0 if x > 0 else 2)


def ndtr(x: Any) -> Any:
    return erfc(-x / mp.sqrt(2)) / 2


def sinc(x: Any) -> Any:
    return mp.sin(mp.pi * x) / (mp.pi * x) if x else mp.mpf(1)


def tanh_of_softplus(x: Any) -> Any:
    """With e = exp(x): (e² + 2 e) / (e² + 2 e + 2)."""
    e = mp.exp(-abs(x))
    return (1 + 2 * e) / (1 + 2 * e + 2 * e * e) if x > 0 else (e * e + 2 * e) / (e * e + 2 * e + 2)


def gelu_by_tanh(x: Any) -> Any:
    return x * sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3))


def clipped(low: float, high: float) -> Function:
    return lambda x: min(max(x, mp.mpf(low)), mp.mpf(high))


def row(function: Function, points: tuple[float, ...]) -> Row:
    """A function whose derivatives are differences."""
    return Row((function,), points)


def elementary() -> dict[str, Row]:
    """Functions of nnc.numpy and nnc.nn that are made of powers, exponentials, angles and their inverses."""
    zero = (0.0,)
    return {
        "abs": row(abs, ()),
        "acos": row(mp.acos, (*zero, *NEAR_ONE[:3], *NEAR_MINUS_ONE[:3])),
        "acosh": row(mp.acosh, NEAR_ONE[3:]),
        "asin": row(mp.asin, (*zero, *NEAR_ONE[:3], *NEAR_MINUS_ONE[:3])),
        "asinh": row(mp.asinh, (*zero, *NEAR_ONE)),
        "atan": row(mp.atan, (*zero, *NEAR_ONE)),
        "atanh": row(mp.atanh, (*zero, *NEAR_ONE[:3], *NEAR_MINUS_ONE[:3])),
        "cbrt": row(lambda x: mp.cbrt(x) if x > 0 else -mp.cbrt(-x), ()),
        "cos": row(mp.cos, (*zero, np.pi / 2, np.pi)),
        "cosh": row(mp.cosh, (*zero, 710.4)),
        "deg2rad": row(lambda x: x * mp.mpf(np.pi / 180), zero),
        "exp": row(mp.exp, (*zero, 709.7, -708.5, -740.0)),
        "exp2": row(lambda x: mp.mpf(2) ** x, (*zero, 1023.9999999999999, 1024.0000000000002, -1022.5, -1060.0)),
        "expm1": row(mp.expm1, (*zero, 709.7, -20.0)),
        "log": row(mp.log, NEAR_ONE),
        "log10": row(mp.log10, NEAR_ONE),
        "log1p": row(mp.log1p, (*zero, *NEAR_MINUS_ONE[:3])),
        "log2": row(lambda x: mp.log(x, 2), NEAR_ONE),
        "logit": row(lambda x: mp.log(x / (1 - x)), (0.5, *NEAR_ONE[:3])),
        "negative": row(lambda x: -x, zero),
        "rad2deg": row(lambda x: x * mp.mpf(180 / np.pi), zero),
        "reciprocal": row(lambda x: 1 / x, ()),
        "sign": row(mp.sign, ()),
        "sin": row(mp.sin, (*zero, np.pi / 2, np.pi)),
        "sinc": row(sinc, (*zero, 0.1, 0.15, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5)),
        "sinh": row(mp.sinh, (*zero, 710.4)),
        "sqrt": row(mp.sqrt, ()),
        "square": row(lambda x: x * x, zero),
        "tan": row(mp.tan, (*zero, np.pi / 2, np.pi / 4)),
        "tanh": row(mp.tanh, (*zero, 10.0, 19.0, 300.0)),
        "nn.celu": row(elu(mp.mpf(1)), (-20.0, -1e-12)),
        "nn.elu": row(elu(mp.mpf(1)), (-20.0, -1e-12)),
        "nn.gelu": row(gelu_by_tanh, (*zero, -5.0, -8.0)),
        "nn.gelu exact": row(lambda x: x * ndtr(x), (*zero, -5.0, -8.0, -35.0)),
        "nn.hard_sigmoid": row(lambda x: clipped(0, 6)(x + 3) / 6, zero),
        "nn.hard_silu": row(lambda x: x * clipped(0, 6)(x + 3) / 6, ()),
        "nn.hard_tanh": row(clipped(-1, 1), zero),
        "nn.leaky_relu": row(lambda x: x if x > 0 else x * mp.mpf(0.01), ()),
        "nn.log_sigmoid": row(lambda x: -softplus(-x), (*zero, -40.0, 40.0)),
        "nn.mish": row(lambda x: x * tanh_of_softplus(x), (*zero, -40.0, 40.0)),
        "nn.relu": row(lambda x: max(x, mp.mpf(0)), ()),
        "nn.relu6": row(clipped(0, 6), ()),
        "nn.selu": row(elu(mp.mpf(1.6732632423543772), mp.mpf(1.0507009873554805)), (-20.0, -1e-12)),
        "nn.sigmoid": row(sigmoid, (*zero, 20.0, -20.0, 36.8)),
        "nn.silu": row(lambda x: x * sigmoid(x), (*zero, 20.0, -20.0)),
        "nn.soft_sign": row(lambda x: x / (1 + abs(x)), ()),
        "nn.softplus": row(softplus, (*zero, -40.0, 40.0)),
    }  # fmt: skip


def erfcx(x: Any) -> list[Any]:
    """exp(x²) erfc(x) and its derivatives, beyond 2 by Tricomi's function (DLMF 7.11.5, 13.3.22)."""
    z, root = x * x, mp.sqrt(mp.pi)
    if abs(x) < 2:
        y = mp.exp(z) * mp.erfc(x)
        first = 2 * x * y - 2 / root
        second = 2 * y + 2 * x * first
        return [y, first, second, 4 * first + 2 * x * second]
    u = [mp.hyperu(k + half(), k + half(), z) / root for k in range(4)]
    if x > 0:
        return [u[0], -x * u[1], 3 * z * u[2] - u[1], 9 * x * u[2] - 15 * x * z * u[3]]
    e = 2 * mp.exp(z)
    y = erfcx(-x)
    return [e - y[0], 2 * x * e + y[1], (4 * z + 2) * e - y[2], (8 * x * z + 12 * x) * e + y[3]]


def half() -> Any:
    return mp.mpf(1) / 2


def orders(function: Callable[[Any], list[Any]]) -> tuple[Function, ...]:
    """The functions whose values it gives at once."""
    return tuple(lambda x, k=k: function(x)[k] for k in range(4))


def gamma(x: Any) -> list[Any]:
    f, p, q, r = mp.gamma(x), *(mp.psi(k, x) for k in range(3))
    return [f, f * p, f * (p * p + q), f * (p**3 + 3 * p * q + r)]


def dawsn(x: Any) -> list[Any]:
    """Dawson's function and its derivatives, by Kummer's function."""
    z = -x * x
    first, second = (mp.hyp1f1(k, k - half(), z) for k in (2, 3))
    return [
        x * mp.hyp1f1(1, 3 * half(), z),
        mp.hyp1f1(1, half(), z),
        -4 * x * first,
        -4 * first - mp.mpf(32) / 3 * z * second,
    ]


def moment(m: int, x: Any) -> Any:
    """The mean of (1 - cos θ)^m exp(-x (1 - cos θ))."""
    return 2**m * mp.gamma(m + half()) / (mp.sqrt(mp.pi) * mp.factorial(m)) * mp.hyp1f1(m + half(), m + 1, -2 * x)


def i0e(x: Any) -> list[Any]:
    return [(1 if x < 0 else -1) ** m * moment(m, abs(x)) for m in range(4)]


def i1e(x: Any) -> list[Any]:
    return [(-1 if x < 0 else 1) ** (m + 1) * (-1) ** m * (moment(m, abs(x)) - moment(m + 1, abs(x))) for m in range(4)]


def bessel(n: int) -> tuple[Function, ...]:
    """The functions I0 or I1 and their derivatives, by neighbouring orders."""

    def function(x: Any) -> list[Any]:
        i = [mp.besseli(k, x) for k in range(5)]
        found = [i[0], i[1], (i[0] + i[2]) / 2, (3 * i[1] + i[3]) / 4, (3 * i[0] + 4 * i[2] + i[4]) / 8]
        return found[n : n + 4]

    return orders(function)


def inverse(function: Function, slope: Function, factor: int) -> tuple[Function, ...]:
    """An inverse y whose slope s has the derivative factor · y · s²."""

    def values(x: Any) -> list[Any]:
        y = function(x)
        s = slope(y)
        return [y, s, factor * y * s * s, factor * s**3 * (1 + 2 * factor * y * y)]

    return orders(values)


def erfinv(x: Any) -> Any:
    guess = mp.sqrt(mp.pi) / 2 * x if abs(x) < 0.5 else mp.sign(x) * mp.sqrt(-mp.log((1 - abs(x)) * mp.sqrt(mp.pi)))
    return (
        guess
        if abs(x) < 1e-40
        else mp.findroot(lambda y: mp.erfc(y) / (1 - x) - 1 if x > 0.5 else mp.erf(y) / x - 1, guess)
    )


def ndtri(p: Any) -> Any:
    if p > half():
        return -ndtri(1 - p)
    guess = -mp.sqrt(-2 * mp.log(p)) if p < 0.1 else 2.5 * (p - half())
    return mp.findroot(lambda x: mp.log(ndtr(x) / p), guess)


def turns(function: Function, slope: Function) -> tuple[Function, ...]:
    """An integral of sin or cos of π x² / 2."""

    def values(x: Any) -> list[Any]:
        y, pi = mp.pi * x * x / 2, mp.pi
        s, c = slope(y), slope(y + pi / 2)
        return [function(x), s, pi * x * c, pi * c - pi * pi * x * x * s]

    return orders(values)


def gaussian(factor: Any) -> Function:
    return lambda x: factor * mp.exp(-x * x)


def within(inside: Callable[[Any], bool], function: Function) -> Function:
    """A function that is not defined elsewhere."""
    return lambda x: function(x) if inside(x) else mp.nan


def special() -> dict[str, Row]:
    """Functions of nnc.scipy.special."""
    zero, small, root = (0.0,), (0.0, 1e4), lambda: mp.sqrt(mp.pi)
    gammas = (0.5, 1.2, 1.4616, 2.5, 12.0, 33.4, -0.4, -3.7, -20.2)
    psi = tuple(lambda x, k=k: mp.psi(k, x) for k in range(4))
    loggamma = (lambda x: mp.log(abs(mp.gamma(x))) if abs(x) < 1000 else mp.loggamma(x), *psi[:3])
    normal = lambda x: mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
    unit = lambda x: 0 < x < 1
    return {
        "digamma": Row(psi, gammas, digits=100),
        "lgamma": Row(loggamma, gammas, digits=700),
        "erf": Row((mp.erf, lambda x: gaussian(2 / root())(x)), (*zero, 5.5, 20.0)),
        "erfc": Row((erfc, lambda x: gaussian(-2 / root())(x)), (*zero, 5.5, 20.0)),
        "erfinv": Row(
            inverse(within(lambda x: abs(x) < 1, erfinv), lambda y: root() / 2 * mp.exp(y * y), 2), (*NEAR_ONE[:3], 0.5, 0.99),
            digits=60,
        ),
        "i0": Row(bessel(0), (*zero, 25.0, 35.0, 712.0), small, 60),
        "i1": Row(bessel(1), (*zero, 25.0, 35.0, 712.0), small, 60),
        "i0e": Row(orders(i0e), (20.0, 31.0), digits=60),
        "i1e": Row(orders(i1e), (20.0, 31.0), digits=700),
        "special.dawsn": Row(orders(dawsn), (*zero, 0.9241, 13.0), digits=100),
        "special.entr": Row((within(positive, lambda x: -x * mp.log(x)),), NEAR_ONE),
        "special.erfcx": Row(orders(erfcx), (*zero, -5.0, -20.0), digits=100),
        "special.exp1": Row((within(positive, mp.e1), lambda x: -mp.exp(-x) / x), (), (0.0, 1e8)),
        "special.expi": Row((mp.ei, lambda x: mp.exp(x) / x), (0.3725, 45.0), (0.0, 1e4)),
        "special.factorial": Row(orders(lambda x: gamma(x + 1) if x > 0 else [mp.nan] * 4), (0.5, 100.0), small, 100),
        "special.gamma": Row(orders(gamma), gammas, small, 100),
        "special.loggamma": Row((within(positive, loggamma[0]), *psi[:3]), gammas[:6], digits=700),
        "special.log_ndtr": Row(
            (lambda x: mp.log(ndtr(x)) if x < 0 else mp.log1p(-ndtr(-x)), lambda x: normal(x) / ndtr(x)), (*zero, -20.0), (0.0, 4e2)
        ),
        "special.ndtr": Row((ndtr, normal), (*zero, -20.0, 8.0)),
        "special.ndtri": Row(
            inverse(within(unit, ndtri), lambda y: mp.sqrt(2 * mp.pi) * mp.exp(y * y / 2), 1), (*NEAR_ONE[:3], 0.5, 0.02),
            (1e-299, 1.0), 700,
        ),
        "special.spence": Row(
            (within(positive, lambda x: mp.polylog(2, 1 - x)), lambda x: mp.log(x) / (1 - x)), NEAR_ONE, (1e-30, 1e10)
        ),
        "special.zeta": Row(
            tuple(lambda x, k=k: mp.zeta(x, 1, k) for k in range(4)), (0.5, 1.001, 2.0, -0.5, -7.7), (1e-9, 100.0), 60
        ),
        "special.sici Si": Row((mp.si, lambda x: mp.sin(x) / x if x else mp.mpf(1)), (*zero, 2.4, 2.6)),
        "special.sici Ci": Row((within(positive, mp.ci), lambda x: mp.cos(x) / x), (0.6165, 2.4)),
        "special.fresnel S": Row(turns(mp.fresnels, mp.sin), zero, digits=1900),
        "special.fresnel C": Row(turns(mp.fresnelc, lambda y: mp.sin(y + mp.pi / 2)), zero, digits=1900),
    }  # fmt: skip


def derivatives(row: Row, x: float) -> list[float]:
    """The value and three derivatives, by central differences where they are not known; NaN where the function is not real."""
    mp.mp.dps = row.digits
    at = mp.mpf(x)
    h = (min(abs(at), 1) or mp.mpf(1)) * mp.mpf(10) ** -30
    try:
        mp.mp.dps = min(row.digits, 60) if len(row.functions) == 2 else row.digits
        found = [f(at) for f in row.functions[:-1]]
        mp.mp.dps = row.digits
        f = [row.functions[-1](at + k * h) if k == 0 or len(found) < 3 else mp.mpf(0) for k in (-2, -1, 0, 1, 2)]
    except (ValueError, ZeroDivisionError):
        return [np.nan] * 4
    differences = [
        f[2], (f[3] - f[1]) / (2 * h), (f[3] - 2 * f[2] + f[1]) / h**2, (f[4] - 2 * f[3] + 2 * f[1] - f[0]) / (2 * h**3),
    ]  # fmt: skip
    found = (found + differences)[:4]
    return [np.nan] * 4 if any(mp.im(y) or mp.isnan(y) for y in found) else [_rounded(y) for y in found]


def _rounded(y: Any) -> float:
    return 0.0 if abs(y) < mp.mpf(10) ** -400 else float(y)


def main(names: list[str]) -> None:
    """Renews rows."""
    stored = dict(np.load(STORE)) if STORE.exists() else {}
    for name, row in {**elementary(), **special()}.items():
        if not names or name in names:
            low, high = row.range
            points = sorted({*(x for x in POINTS if low <= abs(x) <= high), *row.points})
            stored[name] = np.array([[x, *derivatives(row, x)] for x in points]).T
            print(name, flush=True)
    np.savez_compressed(STORE, **stored)


if __name__ == "__main__":
    main(sys.argv[1:])
