"""All functions of one real number, and their first three derivatives, from 1e-300 to 1e300 and below 0, against mpmath.

The numbers are stored (tests/contract/programs/one_variable.py makes them). Results are within 8 units in the last place;
EXCEPTIONS lists those that are not, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
import nnc.scipy.special as special
from nnc import nn

Array = np.ndarray[Any, Any]
Function = Callable[[Any], Any]
STORED: dict[str, Array] = dict(
    np.load(Path(__file__).with_name("one_variable.npz"))
)  # x, f(x), f'(x), f''(x), f'''(x)
ULPS = 8.0

ZERO = "near a zero terms cancel that are as large as elsewhere"
ROUNDED = "the argument of an exponential is rounded, which counts as often as it is large"
SERIES = "a sum of terms of both signs"
# name: (orders, sizes of points, units in the last place, reason)
EXCEPTIONS: dict[str, list[tuple[tuple[int, ...], tuple[float, float], float, str]]] = {
    "asinh": [((3,), (0.7, 0.7), 150, ZERO)],
    "atan": [((3,), (0.9, 1.3), 10, ZERO)],
    "cbrt": [((3,), (1e100, 1e100), 12, "eight roundings")],
    "digamma": [((2,), (6.5, 6.5), 12, SERIES)],
    "erf": [((3,), (0.7, 0.7), 40, ZERO)],
    "erfc": [((3,), (0.7, 0.7), 40, ZERO)],
    "erfinv": [((1, 2, 3), (0.999, 0.999), 25, ROUNDED)],
    "i1e": [((2, 3), (3.4, 3.4), 25, ZERO)],
    "lgamma": [((3,), (6.5, 6.5), 12, SERIES)],
    "sinc": [((1, 3), (3.4, 6.5), 16, ZERO)],
    "tanh": [((3,), (0.7, 0.7), 25, ZERO)],
    "nn.gelu": [
        ((0, 1, 2, 3), (5.0, 18.0), 250, ROUNDED), ((1, 3), (0.7, 2.2), 20, ZERO),
        ((3,), (1e160, 1e300), np.inf, "x³ is infinite, and forward mode multiplies it by 0"),
    ],
    "nn.mish": [((1, 2, 3), (3e-5, 11.0), 30, ZERO), ((2, 3), (18.0, 29.0), 20, ROUNDED)],
    "nn.sigmoid": [((3,), (1.3, 1.3), 40, ZERO)],
    "nn.silu": [((1,), (1.3, 1.3), 25, ZERO), ((3,), (3.4, 3.4), 45, ZERO)],
    "special.dawsn": [((1,), (0.9, 0.95), 2e4, ZERO), ((3,), (0.7, 6.5), 40, SERIES)],
    "special.erfcx": [((3,), (0.7, 18.0), 220, "the third derivative of a polynomial that approximates")],
    "special.gamma": [((3,), (2.2, 2.2), 12, ZERO)],
    "special.log_ndtr": [((3,), (1e-300, 6.5), 100, "the density ratio's derivatives cancel as powers of x")],
    "special.ndtri": [((2, 3), (1e-150, 0.9999999999), 12, "seven roundings")],
    "special.sici Ci": [((0,), (0.6165, 3.4), 4e4, ZERO)],
    "special.zeta": [((0, 1, 2, 3), (1e-9, 37.0), 700, SERIES), ((1, 2, 3), (90.0, 90.0), 30, SERIES)],
}  # fmt: skip
OTHER_NAMES = {
    "absolute": "abs", "fabs": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctanh": "atanh", "degrees": "rad2deg", "radians": "deg2rad", "expit": "nn.sigmoid", "gammaln": "lgamma",
    "nn.tanh": "tanh", "special.digamma": "digamma", "special.erf": "erf", "special.erfc": "erfc", "special.erfinv": "erfinv",
    "special.expit": "nn.sigmoid", "special.gammaln": "lgamma", "special.i0": "i0", "special.i0e": "i0e", "special.i1": "i1",
    "special.i1e": "i1e", "special.logit": "logit",
}  # fmt: skip
# Functions of arrays that give floats of the same shape, but are the identity, constant by parts, or no functions of one number.
LEFT_OUT = {
    "angle", "around", "array", "asarray", "atleast_1d", "bfloat16", "block", "ceil", "clip", "conj", "conjugate", "copy",
    "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "double", "empty_like", "fix", "flip", "flipud",
    "float16", "float32", "float64", "float_", "floor", "frexp", "from_dlpack", "gradient", "half", "hstack", "imag", "ix_",
    "modf", "nan_to_num", "nancumprod", "nancumsum", "nonzero", "ones_like", "positive", "ravel", "real", "rint", "round",
    "single", "sort", "spacing", "squeeze", "stack", "transpose", "trim_zeros", "trunc", "unique", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "unwrap", "where", "zeros_like", "nn.combine", "nn.inference_mode", "nn.layer_norm",
    "nn.log_softmax", "nn.rms_norm", "nn.softmax", "nn.standardize", "special.gammasgn", "special.log_softmax", "special.softmax",
}  # fmt: skip


def function_of(name: str) -> Function:
    """The function of a row's name."""
    place, _, rest = name.rpartition(".")
    name, _, part = rest.partition(" ")
    function: Function = getattr({"": nnp, "nn": nn, "special": special}[place], name)
    if part == "exact":
        return lambda x: function(x, approximate=False)  # type: ignore[call-arg]
    return (lambda x: function(x)["SC".index(part[0])]) if part else function


def by_reverse_mode(function: Function) -> Function:
    return nnc.grad(lambda x: nnp.sum(function(x)))


def by_forward_mode(function: Function) -> Function:
    return lambda x: nnc.jvp(function, (x,), (nnp.ones_like(x),))[1]


@cache
def distances(name: str) -> Array:
    """Units in the last place between stored and computed numbers, (modes, orders, points)."""
    x, *wanted = STORED[name]
    found = []
    for slope in (by_reverse_mode, by_forward_mode):
        function, rows = function_of(name), []
        for want in wanted:
            rows.append(units(np.asarray(function(nnp.asarray(x))), want))
            function = slope(function)
        found.append(rows)
    return np.where(np.isfinite(wanted[0]), np.array(found), 0)


def units(got: Array, want: Array) -> Array:
    """The distance in units of the last place; 0 where both are the same, or overflow."""
    with np.errstate(all="ignore"):
        apart = abs(got - want) / np.spacing(np.where(np.isfinite(want), abs(want), 1))
    same = (got == want) | (np.isinf(want) & ~np.isfinite(got))
    return np.where(same, 0, np.nan_to_num(apart, nan=np.inf, posinf=np.inf))


def bounds(name: str) -> Array:
    """The units in the last place that are allowed, (orders, points)."""
    allowed = np.full((4, STORED[name].shape[1]), ULPS)
    for orders, (low, high), ulps, _ in EXCEPTIONS.get(name, []):
        inside = (abs(STORED[name][0]) >= low) & (abs(STORED[name][0]) <= high)
        for order in orders:
            allowed[order, inside] = np.maximum(allowed[order, inside], ulps)
    return allowed


@pytest.mark.parametrize("name", STORED)
def test_values_and_three_derivatives_have_all_digits(name: str) -> None:
    apart, allowed = distances(name), bounds(name)
    wrong = [
        f"order {order}, mode {mode}, x = {STORED[name][0, i]}: {apart[mode, order, i]:.3g} units from {STORED[name][order + 1, i]}"
        for mode, order, i in np.argwhere(apart > allowed)
    ]
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_every_exception_is_needed(name: str) -> None:
    apart, sizes = distances(name), abs(STORED[name][0])
    for orders, (low, high), _, reason in EXCEPTIONS[name]:
        inside = (sizes >= low) & (sizes <= high)
        assert inside.any() and apart[:, orders][..., inside].max() > ULPS, (orders, low, high, reason)


def test_derivatives_at_infinity_are_the_limits() -> None:
    oscillating = (
        "sin",
        "cos",
        "tan",
        "sinc",
        "special.sici Si",
        "special.sici Ci",
        "special.fresnel C",
        "special.fresnel S",
    )
    for name in set(STORED) - {*oscillating, "special.erfcx"}:
        for end in (0, -1):
            x, _, *slopes = STORED[name][:4, end]
            if abs(x) < 1e300 or np.isnan(slopes).any() or (abs(slopes[0]) > 2 and name != "rad2deg"):
                continue
            function = function_of(name)
            for order, slope in enumerate(slopes, 1):
                function = by_reverse_mode(function)
                got = float(np.asarray(function(nnp.asarray([np.copysign(np.inf, x)], dtype="float64")))[0])
                limit = 0 if abs(slope) < 1e-90 else slope
                assert abs(got - limit) <= 1e-15 * abs(limit), (name, x, order)


def functions_of_one_number() -> Iterator[str]:
    """The names of functions that make float64 arrays of float64 arrays of the same shape."""
    modules: dict[str, ModuleType] = {"": nnp, "nn.": nn, "special.": special}
    for prefix, module in modules.items():
        for name in module.__all__:
            function = getattr(module, name)
            if not callable(function) or isinstance(function, type):
                continue
            try:
                result = function(nnp.asarray([0.3, 0.6], dtype="float64"))
            except Exception:
                continue
            parts = result if isinstance(result, tuple) else (result,)
            if parts and all(getattr(part, "shape", None) == (2,) and part.dtype == np.float64 for part in parts):
                yield prefix + name


@pytest.mark.filterwarnings("ignore")
def test_no_function_of_one_number_is_missing() -> None:
    names = set(functions_of_one_number())
    known = {name.partition(" ")[0] for name in STORED} | OTHER_NAMES.keys() | LEFT_OUT
    assert names <= known, names - known
    assert set(OTHER_NAMES.values()) <= STORED.keys()


def test_tails_of_the_normal_distribution_have_all_digits_in_float32() -> None:
    x = np.random.default_rng(0).uniform(-12, 12, 2000).astype(np.float32)
    for function, zeros in (
        (function_of("nn.gelu exact"), (-0.752, -1.414, 2.0)),
        (nnp.erf, (0.707,)),
        (special.erfc, (0.707,)),
    ):
        away = np.min([abs(abs(x) - abs(zero)) for zero in (*zeros, 99)], axis=0) > 0.35  # there terms cancel
        for order in range(4):
            wide = np.asarray(function(x.astype(np.float64)))
            for run in (function, nnc.compile(function)):
                apart = abs(np.asarray(run(x), np.float64) - wide) / np.spacing(abs(wide.astype(np.float32)))
                tiny = abs(wide) < 1e-34  # factors of it underflow
                wrong = (
                    away & ~tiny & (apart > ULPS * max(1, order))
                )  # of which the second and third are sums of rounded terms
                assert not wrong.any(), (function, order, x[wrong])
            function = by_reverse_mode(function)


def test_derivatives_of_error_functions_have_all_digits_where_squares_are_rounded() -> None:
    x = np.random.default_rng(0).uniform(5, 26, 300)
    high = x.astype(np.float32).astype(np.float64)  # whose square is exact
    want = np.exp(-(high**2)) * np.exp(-((x - high) * (x + high))) * 2 / np.sqrt(np.pi)
    np.testing.assert_allclose(np.asarray(by_reverse_mode(special.erfc)(x)), -want, rtol=2e-15)
    np.testing.assert_allclose(np.asarray(by_reverse_mode(special.erf)(x)), want, rtol=2e-15)
