from __future__ import annotations

import numpy as np
import pytest

from nnc.backends.cpu.kernels.sorts import sort
from tests.unit.backends.cpu.against_reference import REAL, backwards, check, values

SOME = ("bool", "int8", "uint16", "int64", "bfloat16", "float32", "float64")
PLAIN = {"axis": 1, "descending": False}


@pytest.mark.parametrize("kind", REAL)
def test_rows_of_every_length_are_sorted_to_the_bit(kind: str) -> None:
    """NaN last, zeros and NaN of either sign in the order in which they came; by registers, by networks, by digits."""
    for n in (0, 1, 33, 200, 17_000):
        x = values(kind, (3, n))
        for descending in (False, True):
            check("sort", [x], {"axis": 1, "descending": descending})
            check("argsort", [x], {"axis": 1, "descending": descending, "stable": True})


@pytest.mark.parametrize("kind", ["float32", "int64", "uint8"])
def test_other_axes_and_layouts_are_sorted_as_well(kind: str) -> None:
    for n in (5, 100, 17_000):
        x = values(kind, (n, 3))
        check("sort", [x], {"axis": 0, "descending": False}, backwards)
        check("argsort", [x[:, ::-1]], {"axis": 0, "descending": True, "stable": True})
        check("sort", [backwards(x.T)], PLAIN)


@pytest.mark.parametrize("kind", ["float32", "float64", "int16"])
def test_long_rows_are_shared_by_threads(kind: str) -> None:
    x = values(kind, (2, 150_001))
    check("sort", [x], PLAIN)
    check("argsort", [x], {**PLAIN, "stable": True})


@pytest.mark.parametrize("rows", [17, 33])
def test_more_long_rows_than_are_sorted_side_by_side(rows: int) -> None:
    """The last of 16 shares has fewer rows than the others, or none."""
    for kind in ("float32", "int64"):
        x = values(kind, (rows, 20_000))
        check("sort", [x], PLAIN)
        check("argsort", [x], {**PLAIN, "stable": True})


def test_numbers_that_share_most_digits_are_sorted() -> None:
    for x in (np.arange(10_000)[::-1] % 300, np.zeros(10_000), np.arange(10_000) + 2**62):
        check("sort", [x[None]], PLAIN)
        check("argsort", [x[None]], {**PLAIN, "stable": True})


@pytest.mark.parametrize("kind", SOME)
def test_top_k_names_the_first_of_equal_elements(kind: str) -> None:
    for n, k in ((17, 3), (3000, 0), (3000, 10), (3000, 3000)):
        check("top_k", [values(kind, (2, n))], {"k": k})
    check("top_k", [values(kind, (3000, 4)).T], {"k": 7})


def test_top_k_of_rows_that_keep_improving() -> None:
    for x in (np.arange(20_000.0), np.zeros(20_000, np.int8), -np.arange(20_000)):
        check("top_k", [x], {"k": 200})


@pytest.mark.parametrize("kind", SOME)
def test_places_in_sorted_rows_are_found(kind: str) -> None:
    for n in (0, 1, 7, 100):
        rows = values(kind, (3, n))
        rows = np.take_along_axis(rows, np.argsort(rows.astype(np.float32) if rows.itemsize == 2 else rows, axis=1), 1)
        for side in ("left", "right"):
            check("searchsorted", [rows, values(kind, (3, 21), 1)], {"side": side})
            check("searchsorted", [rows[0], values(kind, (5, 7), 1).T], {"side": side})


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_rows_of_many_digits_are_sorted_from_any_order(kind: str, quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digit by digit, too, as on processors that have no quicksort."""
    if not quick:
        monkeypatch.setattr(sort, "has_quicksort", lambda layout: False)
    rng = np.random.default_rng(0)
    x = rng.normal(size=70_000).view(kind)
    crowded = np.where(rng.random(x.shape) < 0.8, x[0], x)
    for row in (x, -np.sort(x), crowded):
        check("sort", [row], {"axis": 0, "descending": False})
        check("argsort", [row], {"axis": 0, "descending": True, "stable": True})
    check("top_k", [x], {"k": 300})
