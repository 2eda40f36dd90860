"""Cumulative commands on a GPU: rows along and across memory, in tiles and in parts, with the overflow of their order alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.graph import command, reference
from tests.unit.backends.cpu.against_reference import REAL, values
from tests.unit.backends.cuda.against_reference import Case, check, check_on_device, placed, results_of
from tests.unit.backends.cuda.launching import GPU

NDArray = np.ndarray[Any, Any]
FEW = settings(max_examples=settings.default.max_examples // 4)
NAMES = ("cumsum", "cumprod", "cummax", "cummin")
SHAPES = (((20,), 0), ((70, 40), 0), ((5, 6, 7), 1), ((0, 4), 1), ((3, 260), 1), ((2, 130), 1))
KINDS = ("bool", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64")
SHORT_PARTS = replace(GPU, grids=GPU.grids._replace(part_elements=500, part_rows=2))  # parts that are interpreted fast
TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 2e-6, "float64": 1e-14}


def cases(x: NDArray, axis: int) -> list[Case]:
    kinds = NAMES if x.dtype != bool else NAMES[2:]
    return [(name, [x], {"axis": axis}) for name in kinds]


def plain(x: NDArray) -> NDArray:
    """Numbers near 1, of which products keep their digits."""
    if x.dtype.kind in "iub":
        return x
    return (1 + 0.01 * np.sin(np.arange(x.size)).reshape(x.shape)).astype(x.dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_every_dtype_along_any_axis(kind: str) -> None:
    found, near_one = list[Case](), list[Case]()
    for turn, (shape, axis) in enumerate(SHAPES):
        x = values(kind, shape, turn)
        found += cases(placed(x, turn), axis)
        near_one += cases(placed(plain(x), turn + 1), axis)
    check(*found, tolerance=TOLERANCE.get(kind, 0))
    if x.dtype.kind not in "iub":  # the reference rounds equal elements, one after the other, in one direction
        check(*near_one, tolerance=4 * TOLERANCE[kind])


@FEW
@given(st.lists(st.sampled_from((1, 2, 3, 7, 33, 64, 100)), min_size=1, max_size=3), st.sampled_from(REAL), st.data())
def test_any_layout_is_read_and_written(shape: list[int], kind: str, data: Any) -> None:
    while np.prod(shape) > 10_000:
        shape = [max(n // 2, 1) for n in shape]
    x = np.transpose(
        values(kind, tuple(shape), data.draw(st.integers(0, 99))), data.draw(st.permutations(range(len(shape))))
    )
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    check(
        *[case for turn in range(3) for case in cases(placed(x, turn + data.draw(st.integers(0, 9))), axis)],
        tolerance=TOLERANCE.get(kind, 0),
    )


@pytest.mark.parametrize(
    ("shape", "axis"), [((2001,), 0), ((2, 4000), 1), ((1001, 3), 0), ((2048,), 0), ((20, 2, 300), 0)]
)
@pytest.mark.parametrize("kind", ["float32", "int16"])
def test_long_rows_are_cut_into_parts(shape: tuple[int, ...], axis: int, kind: str) -> None:
    x = plain(values(kind, shape))
    ran = check(
        *cases(x, axis),
        ("cumsum", [np.flip(x)], {"axis": axis}),
        tolerance=TOLERANCE.get(kind, 0) * 2,
        machine=SHORT_PARTS,
    )
    launches = {1} if shape == (20, 2, 300) else {2, 3} if kind != "int16" else {2}
    assert {len(each.counts) for each in ran} == launches


def test_rows_are_long_from_some_ten_thousand_elements_on() -> None:
    x = plain(values("float32", (66_000,)))
    ran = check(*cases(x, 0), tolerance=4e-6)
    assert [len(each.counts) for each in ran] == [3, 3, 2, 2]


def test_sums_overflow_where_their_order_does() -> None:
    big = np.float32(3e38)
    rows = np.zeros((6, 500), np.float32)
    rows[0, [0, 200, 201, 400]] = -big, big, big, -big  # the sum of those in the middle is no number
    rows[1, [10, 11, 12]] = big, big, -big
    rows[2, 5], rows[3, [5, 300]], rows[4, 499] = np.inf, (np.inf, -np.inf), np.nan
    rows[5] = 1e36
    for x in (rows, rows.T.copy().T, rows.astype(np.float64) * 4e269):
        check(("cumsum", [x], {"axis": 1}), ("cumsum", [np.ascontiguousarray(x.T)], {"axis": 0}), tolerance=2e-6)


def test_products_keep_the_digits_of_their_order() -> None:
    rng = np.random.default_rng(3)
    rows = np.exp(rng.normal(size=(5, 400)) * 8).astype(np.float32)
    rows[1] = 0.5  # falls below the least number
    rows[2, 7], rows[3, [3, 200]] = 0, (np.inf, 0)
    rows[4] = np.tile(np.float32([1e-30, 1e30]), 200)
    check(("cumprod", [rows], {"axis": 1}), ("cumprod", [np.ascontiguousarray(rows.T)], {"axis": 0}), tolerance=2e-6)


def test_a_row_in_parts_is_made_again_where_a_sum_is_lost() -> None:
    x = np.zeros((3, 2100), np.float32)
    x[0, [0, 1400, 1401]] = -3e38, 3e38, 3e38  # within a part
    x[1, [100, 700, 1300]] = -3e38, 3e38, 3e38  # two parts together lose nothing
    y = np.tile(np.float32([1e-30, 1e30]), 1050)
    ran = check(("cumsum", [x], {"axis": 1}), ("cumprod", [y], {"axis": 0}), tolerance=2e-6, machine=SHORT_PARTS)
    assert [len(each.counts) for each in ran] == [3, 3]


def test_results_are_the_same_in_each_run() -> None:
    x = np.random.default_rng(0).normal(size=(3, 3000)).astype(np.float32)
    runs = [results_of([("cumsum", [x], {"axis": 1})], SHORT_PARTS)[0][0].outputs[0] for _ in range(2)]
    assert np.ascontiguousarray(runs[0]).tobytes() == np.ascontiguousarray(runs[1]).tobytes()


def test_columns_and_rows_are_read_whole() -> None:
    x = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    along, across = check(("cumsum", [x], {"axis": 1}), ("cummax", [x], {"axis": 0}), tolerance=2e-6)
    assert along.sector_bytes <= 2.1 * x.nbytes
    assert across.sector_bytes <= 3.1 * x.nbytes  # each thread reads its run twice


def test_short_columns_are_summed_in_their_order() -> None:
    x = np.random.default_rng(0).normal(size=(3, 5000)).astype(np.float32)
    wanted = reference[command("cumsum")](x, axis=0)
    (call,), _ = results_of([("cumsum", [x], {"axis": 0})])
    assert call.outputs[0].tobytes() == wanted.tobytes()


def test_programs_scan_and_differentiate_on_the_device() -> None:
    x = np.linspace(0.5, 1.5, 60, dtype=np.float32).reshape(4, 15)

    def loss(x: Any) -> Any:
        return nnp.sum(nnp.cumsum(x, axis=1) ** 2)

    check_on_device(lambda x: (nnp.cumsum(x, axis=0), nnp.cumprod(x, axis=1), nnc.grad(loss)(x)), x)
