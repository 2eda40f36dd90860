from __future__ import annotations

import numpy as np
import pytest

from nnc.backends.cpu.kernels.sorts import sort
from tests.figures import HERE
from tests.unit.backends.cpu.against_reference import check, values

ASCENDING = {"axis": 0, "descending": False}


def orders(n: int) -> list[np.ndarray]:
    """Rows on which a careless choice of pivots takes n² steps, or none at all."""
    rng = np.random.default_rng(n)
    up = np.arange(n)
    organ = np.minimum(up, n - up)
    return [
        up,
        up[::-1],
        organ,
        -organ,
        np.zeros(n, int),
        up % 2,
        rng.integers(0, 5, n),
        rng.integers(-(2**31), 2**31, n),
    ]


@pytest.mark.parametrize("kind", ["int32", "uint64", "float32"])
@pytest.mark.parametrize("n", [65, 129, 3000, 17_001, 140_001])
def test_rows_in_every_order_are_sorted(kind: str, n: int) -> None:
    for x in orders(n):
        check("sort", [x.astype(kind)], ASCENDING)


def test_the_least_and_the_greatest_key_are_sorted_like_others() -> None:
    for info in (np.iinfo(np.uint32), np.iinfo(np.int64)):
        x = np.random.default_rng(0).choice(np.array([info.min, info.max, info.max - 1], info.dtype), 5000)
        check("sort", [x], ASCENDING)


def test_long_rows_with_positions_are_sorted_by_both() -> None:
    x = np.random.default_rng(1).integers(0, 99, 300_001).astype(np.float32)
    check("argsort", [x], {**ASCENDING, "stable": True})


@pytest.mark.skipif(
    HERE.vector_bytes != 64, reason="there is no quicksort on this machine, so other tests show what it does"
)
@pytest.mark.parametrize("kind", ["float32", "int64", "float64"])
def test_rows_are_sorted_without_quicksort_as_well(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "has_quicksort", lambda layout: False)
    for n in (90, 3002, 70_002, 150_003):  # lengths that no other test has, since kernels are remembered
        check("sort", [values(kind, (n,))], ASCENDING)
    few = values(kind, (70_004,))
    few[few > few[0]] = few[0]
    check("sort", [few], ASCENDING)
