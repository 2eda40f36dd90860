"""Sums over bins on a GPU, and their transposes."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
from tests.unit.backends.cpu.against_reference import values
from tests.unit.backends.cuda.against_reference import Case, check, check_on_device, placed

SHAPES = (((7,), 0), ((3, 11), 1), ((11, 3), 0), ((2, 5, 4), 1), ((0, 4), 1), ((2, 500), 1))


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_bins_overlap_and_may_be_more_than_places(kind: str) -> None:
    cases = list[Case]()
    for turn, (shape, axis) in enumerate(SHAPES):
        for bins in (1, 3, 20):
            x = values(kind, shape, bins)
            x = placed(
                np.where(np.isfinite(x.astype(np.float64)), x, 1).astype(kind if kind != "bfloat16" else x.dtype), turn
            )
            cases += [
                ("bin_sums", [x], {"axis": axis, "bins": bins}),
                ("bin_sums_input_grad", [x], {"axis": axis, "places": bins}),
            ]
    check(*cases, tolerance={"float16": 1e-3, "bfloat16": 8e-3}.get(kind, 2e-6))


def test_infinities_stay_in_their_bins() -> None:
    x = values("float32", (4, 30))
    check(
        ("bin_sums", [x], {"axis": 1, "bins": 7}),
        ("bin_sums_input_grad", [x], {"axis": 0, "places": 9}),
        tolerance=2e-6,
    )


def test_long_bins_lose_no_digits() -> None:
    x = np.random.default_rng(0).random((1, 5000), np.float32)
    check(("bin_sums", [x], {"axis": 1, "bins": 1}), tolerance=1e-6)


def test_adaptive_pooling_runs_on_the_device() -> None:
    x = np.linspace(-1, 1, 2 * 3 * 9 * 11, dtype=np.float32).reshape(2, 3, 9, 11)
    check_on_device(lambda x: (nnc.nn.adaptive_avg_pool(x, (4, 5)),), x)
