"""Special functions are held against stored numbers and SciPy, at once, compiled and mapped, in float64 and float32."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import nnc
from tests.unit.lower.kernels.test_scalars import distance

NDArray = np.ndarray[Any, Any]
Function = Callable[..., Any]
TEXT = Path(__file__).with_name("numbers.json")  # which tests/unit/scipy/special/numbers.py writes
NUMBERS: dict[str, dict[str, list[list[float]]]] = json.loads(TEXT.read_text())


def stored(name: str, order: str) -> tuple[list[NDArray], NDArray]:
    """Points and values of a function, or of its derivative of this order."""
    *points, want = np.asarray(NUMBERS[name][order], np.float64).T
    return points, want


def derivative(function: Function, order: str) -> Function:
    """The derivative of a function of numbers, as often by each operand as `order` says."""
    for i, times in enumerate(map(int, order.split(","))):
        for _ in range(times):
            function = nnc.grad(function, i)
    return function


def check_close(
    got: Any, want: NDArray, ulps: float, points: Sequence[NDArray], mode: str = "", least: float = 0.0
) -> None:
    """Raises AssertionError where a result is more than so many units of the last place off, or not finite where it should be.

    Units of numbers below `least` are those of `least`.
    """
    got = np.asarray(got)
    assert got.shape == want.shape and got.dtype == want.dtype
    sizes = np.maximum(np.nan_to_num(np.abs(want.astype(np.float64))), least)
    apart = distance(got, want, sizes) if least else distance(got, want)
    worst = int(np.argmax(apart))
    at = [float(x.flat[worst]) for x in points]
    assert apart.flat[worst] <= ulps, f"{mode}: {at} gives {got.flat[worst]!r}, not {want.flat[worst]!r}"


def check_modes(function: Function, points: Sequence[NDArray], want: NDArray, ulps: float, least: float = 0.0) -> None:
    """Compares results of all modes with those wanted; those of float32 with float64's, of which they are the rounded ones."""
    for mode, run in {"at once": function, "compiled": nnc.compile(function), "mapped": nnc.vmap(function)}.items():
        check_close(run(*points), want, ulps, points, mode, least)
    narrow = [x.astype(np.float32) for x in points]
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.asarray(function(*(x.astype(np.float64) for x in narrow))).astype(np.float32)
    check_close(function(*narrow), rounded, 0, narrow, "float32")


def check_stored(function: Function, name: str, ulps: float, least: float = 0.0) -> None:
    """Compares values with the stored ones."""
    points, want = stored(name, next(iter(NUMBERS[name])))
    check_modes(function, points, want, ulps, least)


def check_derivatives(function: Function, name: str, ulps: dict[str, float], least: float = 0.0) -> None:
    """Compares derivatives with the stored ones."""
    for order, bound in ulps.items():
        points, want = stored(name, order)
        mapped = nnc.vmap(derivative(function, order))
        first = sum(map(int, order.split(","))) == 1
        check_close(
            (nnc.compile(mapped) if first else mapped)(*points), want, bound, points, f"derivative {order}", least
        )


def check_same(function: Function, peer: Function, *points: Any, ulps: float = 0, least: float = 0.0) -> None:
    """Compares results with SciPy's, special values among them."""
    arrays = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in points))
    with np.errstate(all="ignore"):
        want = np.asarray(peer(*arrays))
    check_close(function(*arrays), want, ulps, arrays, "", least)
    check_close(nnc.compile(function)(*arrays), want, ulps, arrays, "compiled", least)
