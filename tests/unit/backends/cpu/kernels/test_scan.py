from __future__ import annotations

import numpy as np
import pytest

from tests.unit.backends.cpu.against_reference import LAYOUTS, REAL, NDArray, check, values

SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((70,), 0),
    ((1000,), 0),
    ((3, 5), 1),
    ((40, 70), 0),
    ((40, 70), 1),
    ((0, 4), 0),
]
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-4, "float64": 1e-12}


def near_one(kind: str, shape: tuple[int, ...]) -> NDArray:
    """Positive numbers whose products stay in range."""
    x = values(kind, shape)
    return x if x.dtype.kind in "iu" else np.random.default_rng(0).uniform(0.9, 1.1, shape).astype(x.dtype)


@pytest.mark.parametrize("kind", REAL)
def test_running_extremes_are_those_of_the_reference(kind: str) -> None:
    for shape, axis in SHAPES:
        for name in ("cummax", "cummin"):
            check(name, [values(kind, shape)], {"axis": axis}, tolerance=0)


@pytest.mark.parametrize("kind", [kind for kind in REAL if kind != "bool"])
def test_running_sums_and_products_agree_up_to_rounding(kind: str) -> None:
    tolerance = TOLERANCE.get(kind, 0)
    for shape, axis in SHAPES:
        for name in ("cumsum", "cumprod"):
            if name == "cumsum" or shape[axis] < 100:
                check(name, [near_one(kind, shape)], {"axis": axis}, tolerance=tolerance)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running_sums_and_products_in_range_are_neither_lost_nor_nan(name: str, kind: str) -> None:
    large = float(np.ldexp(1.0, np.finfo(kind).maxexp - 1))
    for x in (
        [-large, *[large / 8] * 12],
        [0, *[large] * 20],
        [large, *[1 / large] * 3, *[1] * 20, 2, large, large, -large],
    ):
        for shift in range(5):
            row = np.array([*[1] * shift, *x, *[1] * 16], kind)
            check(name, [row], {"axis": 0}, tolerance=1e-5)
            check(name, [np.tile(row, (3, 1))[:, ::-1][:, ::-1]], {"axis": 1}, tolerance=1e-5)


def test_nan_and_infinities_run_on() -> None:
    x = values("float32", (50, 33))
    for axis in (0, 1):
        check("cumsum", [x], {"axis": axis}, tolerance=1e-4)


@pytest.mark.parametrize("name", ["cumsum", "cummax", "argmax", "argmin"])
def test_all_layouts_are_read(name: str) -> None:
    x = np.random.default_rng(0).normal(size=(70, 90))
    for layout in LAYOUTS:
        for axis in (0, 1):
            check(name, [layout(x)], {"axis": axis}, layout, 1e-12)


@pytest.mark.parametrize("kind", REAL)
def test_the_first_record_is_named_or_the_first_nan(kind: str) -> None:
    for shape, axis in (((1,), 0), ((20,), 0), ((200,), 0), ((1000,), 0), ((70, 40), 0), ((70, 40), 1), ((0, 4), 1)):
        x = values(kind, shape)
        for name in ("argmax", "argmin"):
            check(name, [x], {"axis": axis})
            check(name, [np.zeros_like(x)], {"axis": axis})
            if x.dtype.kind not in "iub":
                check(name, [np.where(np.isnan(x.astype(np.float32)), 1, x).astype(x.dtype)], {"axis": axis})


def test_a_record_in_the_last_place_is_found() -> None:
    for n in (16, 33, 64, 100, 257):
        x = np.zeros(n, np.float32)
        x[-1] = 1
        check("argmax", [x], {"axis": 0})
        check("argmin", [-x], {"axis": 0})
