"""Sorts on a GPU: stable in both directions, with the bits of each element, for rows in one tile and for merged runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nnc.numpy as nnp
from nnc.backends.cuda.kernels import sort
from tests.unit.backends.cpu.against_reference import REAL, values
from tests.unit.backends.cuda.against_reference import Case, check, check_on_device, placed

NDArray = np.ndarray[Any, Any]
KINDS = ("bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64")
FEW = settings(max_examples=settings.default.max_examples // 10)
SHAPES = (((20,), 0), ((40, 4), 0), ((3, 9, 2), 1), ((0, 4), 1))


def cases(x: NDArray, axis: int, descending: bool) -> list[Case]:
    params = {"axis": axis, "descending": descending}
    return [("sort", [x], params), ("argsort", [x], {**params, "stable": True})]


def largest(x: NDArray, *counts: int) -> list[Case]:
    return [("top_k", [x], {"k": k}) for k in counts if k <= x.shape[-1]]


@pytest.mark.parametrize("kind", KINDS)
def test_every_dtype_along_any_axis(kind: str) -> None:
    found = list[Case]()
    for turn, (shape, axis) in enumerate(SHAPES):
        x = placed(values(kind, shape, turn), turn)
        found += [*cases(x, axis - len(shape) * (turn % 2), turn % 2 == 0), *largest(x, 0, 4)]
    check(*found, bits=True)


@FEW
@given(st.lists(st.sampled_from((1, 2, 3, 7, 33, 64, 100)), min_size=1, max_size=3), st.sampled_from(REAL), st.data())
def test_any_layout_is_read_and_written(shape: list[int], kind: str, data: Any) -> None:
    while np.prod(shape) > 10_000:
        shape = [max(n // 2, 1) for n in shape]
    x = values(kind, tuple(shape), data.draw(st.integers(0, 99)))
    x = placed(np.transpose(x, data.draw(st.permutations(range(x.ndim)))), data.draw(st.integers(0, 9)))
    axis, k = data.draw(st.integers(-x.ndim, x.ndim - 1)), data.draw(st.integers(0, x.shape[-1]))
    check(*cases(x, axis, data.draw(st.booleans())), *largest(x, k), bits=True)


@pytest.mark.parametrize(("kind", "n"), [("float32", 128), ("float64", 1024)])
def test_whole_tiles(kind: str, n: int) -> None:
    check(*cases(values(kind, (2, n)), 1, False)[1:], bits=True)


@pytest.fixture
def short_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorts tiles that are interpreted fast."""
    monkeypatch.setattr(sort, "_TILE", 64)
    monkeypatch.setattr(sort, "_LONG_TILE", 32)


@pytest.mark.usefixtures("short_tiles")
@pytest.mark.parametrize(("kind", "n"), [("float32", 500), ("float64", 129), ("bool", 65)])
def test_runs_are_merged(kind: str, n: int) -> None:
    x = values(kind, (2, n), n)
    check(*cases(placed(x, n), 1, True)[:1], *cases(x.T, 0, False)[1:], *largest(x, 40, 70), bits=True)


@pytest.mark.usefixtures("short_tiles")
def test_words_in_order_and_backwards_are_merged() -> None:
    x = np.arange(200, dtype=np.int32)
    check(*[cases(y, 0, descends)[1] for y in (x, np.zeros_like(x)) for descends in (False, True)], bits=True)


def test_rows_of_a_tile_and_more_are_merged() -> None:
    x = values("float32", (5000,))
    (ran,) = check(("argsort", [x], {"axis": 0, "descending": False, "stable": True}), bits=True)
    assert len(ran.counts) == 3  # tiles, and two passes


def test_programs_sort_on_the_device() -> None:
    x = values("float32", (4, 30))
    x = np.where(np.isfinite(x), x, 0)

    check_on_device(lambda x: (nnp.sort(x, axis=0), nnp.argsort(x), *nnp.top_k(x, 3)), x)
