"""Functions of graphics processors: their errors, and their values at the ends of the range."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnc.backends.cuda.kernels.functions import FUNCTIONS
from nnc.base import dtypes
from nnc.base.dtypes import bfloat16
from nnc.lower.kernels.math.terms import Term
from tests.unit.backends.cuda.one_by_one import THREADS, print_elements, run_elements

WIDE = np.longdouble
REFERENCES: dict[str, tuple[Callable[[Any], Any], float, float]] = {  # function, largest error in ulps, instructions
    "exp": (np.exp, 1.3, 17),
    "sigmoid": (lambda x: np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x))), 2.0, 31),
    "tanh": (np.tanh, 1.7, 26),
    "erf": (np.vectorize(math.erf, otypes=[WIDE]), 1.5, 52),
    "erfc": (np.vectorize(math.erfc, otypes=[WIDE]), 6.0, 60),
}
SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, -1e-38, 3e38, -3e38, 1, -1], np.float32)


def samples() -> Any:
    """Numbers of all sizes, more of them where functions change, and special ones."""
    draw = np.random.default_rng(0)
    wide = draw.integers(0, 1 << 32, 8192, np.uint32).view(np.float32)
    wide = wide[~np.isnan(wide)]  # the bits of NaN are not of interest
    x = np.concatenate(
        [SPECIAL, wide, draw.uniform(-110, 95, 8192), draw.uniform(-11, 11, 8192), draw.normal(size=8192)]
    )
    return x.astype(np.float32)[: x.size // THREADS * THREADS]


def run(name: str, x: Any) -> tuple[Any, Any]:
    dtype = dtypes.as_dtype(x.dtype)
    body = lambda code, values: FUNCTIONS[name](Term(code, values[0])).value
    return run_elements(print_elements(name, [dtype], dtype, body), name, [x], dtype)


@pytest.mark.parametrize("name", REFERENCES)
def test_functions_are_as_near_as_they_say(name: str) -> None:
    function, most, instructions = REFERENCES[name]
    x = samples()
    found, counts = run(name, x)
    with np.errstate(all="ignore"):
        wanted = np.asarray(function(x.astype(WIDE)), WIDE)
        nearest = wanted.astype(np.float32)
        finite = np.isfinite(nearest) & np.isfinite(found)
        errors = np.abs(found[finite].astype(WIDE) - wanted[finite]) / np.spacing(np.abs(nearest[finite])).astype(WIDE)
    assert float(errors.max()) <= most
    assert np.array_equal(np.isnan(found), np.isnan(nearest))
    at_ends = np.isinf(nearest) | np.isinf(found)
    assert np.all((found == nearest)[at_ends] | (np.abs(nearest[at_ends]) > 3.4e38) | (np.abs(found[at_ends]) > 3.4e38))
    assert counts.instructions / x.size <= instructions + 8  # the address, the load and the store take eight


@pytest.mark.parametrize(
    ("name", "at_zero", "far_below", "far_above"),
    [("exp", 1, 0, np.inf), ("sigmoid", 0.5, 0, 1), ("tanh", 0, -1, 1), ("erf", 0, -1, 1), ("erfc", 1, 2, 0)],
)
def test_values_at_the_ends(name: str, at_zero: float, far_below: float, far_above: float) -> None:
    x = np.resize(np.array([0, -0.0, -np.inf, np.inf, np.nan], np.float32), THREADS)
    found = run(name, x)[0][:5]
    assert np.array_equal(found, np.array([at_zero, at_zero, far_below, far_above, np.nan], np.float32), equal_nan=True)
    if at_zero == 0:
        assert np.signbit(found[1])


@pytest.mark.parametrize("source", [np.float32, np.float64, np.float16])
def test_bfloat16_is_rounded_to_even_and_comes_back_exactly(source: Any) -> None:
    draw = np.random.default_rng(1)
    x = draw.integers(0, 1 << 8 * np.dtype(source).itemsize, 4096, np.dtype(f"u{np.dtype(source).itemsize}")).view(
        source
    )
    x = np.where(np.isnan(x), source(1), x)
    dtype, small = dtypes.as_dtype(source), dtypes.as_dtype(bfloat16)
    with np.errstate(all="ignore"):
        down, _ = run_elements(print_elements("down", [dtype], small, lambda code, v: v[0]), "down", [x], small)
        wanted = round_to_bfloat16(x)
    assert np.array_equal(down.view(np.uint16), wanted)
    up, _ = run_elements(
        print_elements("up", [small], dtypes.float32, lambda code, v: v[0]), "up", [down], dtypes.float32
    )
    assert np.array_equal(up.view(np.uint32), wanted.astype(np.uint32) << 16)


def round_to_bfloat16(x: Any) -> Any:
    """The bits of the nearest bfloat16, found among its neighbours in float64."""
    wide = x.astype(np.float64)
    low = wide.astype(np.float32)
    low = np.where(np.abs(low.astype(np.float64)) > np.abs(wide), np.nextafter(low, np.float32(0)), low)  # towards 0
    bits = low.view(np.uint32) >> 16
    one, two = ((b.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for b in (bits, bits + 1))
    two = np.where(np.isinf(two), np.copysign(2.0**128, two), two)
    up = (np.abs(two - wide) < np.abs(wide - one)) | ((np.abs(two - wide) == np.abs(wide - one)) & (bits & 1 == 1))
    return np.where(np.isinf(wide), bits, bits + up).astype(np.uint16)
