"""Functions of one real number with their first three derivatives, to 17 digits, in one_variable.npz.

python -m tests.programs.one_variable [name ...]        renews the rows of these functions, or all; needs mpmath
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mp: Any = pytest.importorskip("mpmath")  # the tests need the stored numbers alone
STORE = Path(__file__).with_suffix(".npz")
DIGITS = 1600  # differences of the third order lose up to 1,100 where the point is 1e-300
SIZES = (
    1e-300, 1e-200, 1e-150, 1e-80, 1e-30, 1e-16, 1e-8, 3e-5, 1e-3, 0.04, 0.3, 0.7, 1.3, 2.2, 3.4, 6.5, 11.0, 18.0, 29.0, 37.0, 90.0,
    400.0, 709.0, 1e4, 1e8, 1e22, 1e100, 1e160, 1e200, 1e300,
)  # fmt: skip
POINTS = (*(-x for x in reversed(SIZES)), *SIZES)
NEAR_ONE = (1 - 1e-3, 1 - 1e-9, 1 - 2.0**-53, 1 + 2.0**-52, 1 + 1e-9, 1 + 1e-3)
NEAR_MINUS_ONE = tuple(-x for x in NEAR_ONE)
Function = Callable[[Any], Any]


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


def elementary() -> dict[str, tuple[Function, tuple[float, ...]]]:
    """Functions by the names of nnc.numpy and nnc.nn, each with points beside the common ones: where it is smooth, 0 among them."""
    zero = (0.0,)
    return {
        "abs": (abs, ()),
        "acos": (mp.acos, (*zero, *NEAR_ONE[:3], *NEAR_MINUS_ONE[:3])),
        "acosh": (mp.acosh, NEAR_ONE[3:]),
        "asin": (mp.asin, (*zero, *NEAR_ONE[:3], *NEAR_MINUS_ONE[:3])),
        "asinh": (mp.asinh, (*zero, *NEAR_ONE)),
        "atan": (mp.atan, (*zero, *NEAR_ONE)),
        "atanh": (mp.atanh, (*zero, *NEAR_ONE[:3], *NEAR_MINUS_ONE[:3])),
        "cbrt": (lambda x: mp.cbrt(x) if x > 0 else -mp.cbrt(-x), ()),
        "cos": (mp.cos, (*zero, np.pi / 2, np.pi)),
        "cosh": (mp.cosh, (*zero, 710.4)),
        "deg2rad": (lambda x: x * mp.mpf(np.pi / 180), zero),
        "exp": (mp.exp, (*zero, 709.7, -708.5, -740.0)),
        "exp2": (lambda x: mp.mpf(2) ** x, (*zero, 1023.9999999999999, 1024.0000000000002, -1022.5, -1060.0)),
        "expm1": (mp.expm1, (*zero, 709.7, -20.0)),
        "log": (mp.log, NEAR_ONE),
        "log10": (mp.log10, NEAR_ONE),
        "log1p": (mp.log1p, (*zero, *NEAR_MINUS_ONE[:3])),
        "log2": (lambda x: mp.log(x, 2), NEAR_ONE),
        "logit": (lambda x: mp.log(x / (1 - x)), (0.5, *NEAR_ONE[:3])),
        "negative": (lambda x: -x, zero),
        "rad2deg": (lambda x: x * mp.mpf(180 / np.pi), zero),
        "reciprocal": (lambda x: 1 / x, ()),
        "sign": (mp.sign, ()),
        "sin": (mp.sin, (*zero, np.pi / 2, np.pi)),
        "sinc": (sinc, (*zero, 0.1, 0.15, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5)),
        "sinh": (mp.sinh, (*zero, 710.4)),
        "sqrt": (mp.sqrt, ()),
        "square": (lambda x: x * x, zero),
        "tan": (mp.tan, (*zero, np.pi / 2, np.pi / 4)),
        "tanh": (mp.tanh, (*zero, 10.0, 19.0, 300.0)),
        "nn.celu": (elu(mp.mpf(1)), (-20.0, -1e-12)),
        "nn.elu": (elu(mp.mpf(1)), (-20.0, -1e-12)),
        "nn.gelu": (gelu_by_tanh, (*zero, -5.0, -8.0)),
        "nn.gelu exact": (lambda x: x * ndtr(x), (*zero, -5.0, -8.0, -35.0)),
        "nn.hard_sigmoid": (lambda x: clipped(0, 6)(x + 3) / 6, zero),
        "nn.hard_silu": (lambda x: x * clipped(0, 6)(x + 3) / 6, ()),
        "nn.hard_tanh": (clipped(-1, 1), zero),
        "nn.leaky_relu": (lambda x: x if x > 0 else x * mp.mpf(0.01), ()),
        "nn.log_sigmoid": (lambda x: -softplus(-x), (*zero, -40.0, 40.0)),
        "nn.mish": (lambda x: x * tanh_of_softplus(x), (*zero, -40.0, 40.0)),
        "nn.relu": (lambda x: max(x, mp.mpf(0)), ()),
        "nn.relu6": (clipped(0, 6), ()),
        "nn.selu": (elu(mp.mpf(1.6732632423543772), mp.mpf(1.0507009873554805)), (-20.0, -1e-12)),
        "nn.sigmoid": (sigmoid, (*zero, 20.0, -20.0, 36.8)),
        "nn.silu": (lambda x: x * sigmoid(x), (*zero, 20.0, -20.0)),
        "nn.soft_sign": (lambda x: x / (1 + abs(x)), ()),
        "nn.softplus": (softplus, (*zero, -40.0, 40.0)),
    }  # fmt: skip


def derivatives(function: Function, x: float, digits: int) -> list[float]:
    """The value and three derivatives by central differences; NaN where the function is not real."""
    mp.mp.dps = digits
    at = mp.mpf(x)
    h = (min(abs(at), 1) or mp.mpf(1)) * mp.mpf(10) ** -30
    try:
        f = [function(at + k * h) for k in (-2, -1, 0, 1, 2)]
    except (ValueError, ZeroDivisionError):
        return [np.nan] * 4
    if any(mp.im(y) for y in f):
        return [np.nan] * 4
    orders = (
        f[2],
        (f[3] - f[1]) / (2 * h),
        (f[3] - 2 * f[2] + f[1]) / h**2,
        (f[4] - 2 * f[3] + 2 * f[1] - f[0]) / (2 * h**3),
    )
    return [_rounded(y, digits) for y in orders]


def _rounded(y: Any, digits: int) -> float:
    return 0.0 if abs(y) < mp.mpf(10) ** -400 else float(y)


def main(names: list[str]) -> None:
    """Renews rows."""
    stored = dict(np.load(STORE)) if STORE.exists() else {}
    for name, (function, more) in elementary().items():
        if not names or name in names:
            points = sorted({*POINTS, *more})
            stored[name] = np.array([[x, *derivatives(function, x, DIGITS)] for x in points]).T
    np.savez_compressed(STORE, **stored)


if __name__ == "__main__":
    main(sys.argv[1:])
