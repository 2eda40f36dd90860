"""Nests whose operands lie in one another's transposed order are turned in tiles on a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nnc.graph import GraphBuilder, Symbol
from tests.unit.backends.cuda.test_forms import check, forms, ideal, normal

NDArray = np.ndarray[Any, Any]


def turned(b: GraphBuilder, x: Symbol) -> Symbol:
    return b.add("neg", b.add("transpose", x, permutation=(1, 0)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8", "int16", "bool"])
@pytest.mark.parametrize("shape", [(64, 96), (128, 32), (33, 70), (8, 1000), (9, 9)])
def test_a_transposed_operand_is_read_and_written_in_whole_sectors(dtype: str, shape: tuple[int, int]) -> None:
    x = normal(*shape).astype(getattr(ml_dtypes, dtype, dtype))
    y = normal(*shape[::-1]).astype(x.dtype)
    name = "bitwise_or" if dtype == "bool" else "maximum"
    ran = check(lambda b, x, y: b.add(name, b.add("transpose", x, permutation=(1, 0)), y), x, y, bound=0)
    assert forms(ran) == ["tiles"]
    assert ran.counts[0].conflicts == 0
    if shape[0] % 32 == shape[1] % 32 == 0:
        assert ideal(ran, x, y, y) <= 1.05


def test_a_transposed_result_is_turned_on_its_way_out() -> None:
    x, y = normal(64, 96), normal(64, 96)
    out = np.zeros((96, 64), np.float32)
    body = lambda b, x, y: [b.add("add", x, y), b.add("transpose", b.add("sub", x, y), permutation=(1, 0))]
    ran = check(body, x, y, outputs=[np.zeros((64, 96), np.float32), out], bound=0)
    assert forms(ran) == ["tiles"]
    assert ideal(ran, x, y, x, y) <= 1.05


def test_outer_loops_stay_outside_of_tiles() -> None:
    x = normal(3, 40, 5, 64)
    body = lambda b, x: b.add("exp", b.add("transpose", x, permutation=(0, 3, 2, 1)))
    assert forms(check(body, x)) == ["tiles"]


def test_tiles_are_written_where_they_are_read() -> None:
    for shape in ((64, 64), (40, 40), (33, 9)):
        x, y = normal(*shape), normal(*shape[::-1])
        body = lambda b, x, y: b.add("add", x, b.add("transpose", y, permutation=(1, 0)))
        assert forms(check(body, x, y, outputs=[x], bound=0)) == ["tiles"]
        across = np.asfortranarray(x)
        both = lambda b, x, y: [b.add("neg", x), b.add("add", x, y)]
        assert forms(check(both, across, normal(*shape), outputs=[across, np.zeros_like(x)], bound=0)) == ["tiles"]


def test_positions_and_gathered_elements_within_tiles() -> None:
    x, ids = normal(40, 64), np.random.default_rng(0).integers(0, 50, (64, 40))
    table = normal(50)

    def body(b: GraphBuilder, x: Symbol, table: Symbol, ids: Symbol) -> Symbol:
        read = b.add("gather", table, ids, axes=(0,), batch=0, mode="error")
        number = b.add("iota", shape=(64, 40), axis=1, dtype=np.dtype("float32"))
        return b.add("add", b.add("mul", read, number), b.add("transpose", x, permutation=(1, 0)))

    ran = check(body, x, table, ids)
    assert forms(ran) == ["tiles"] and ran.status == 0


def test_short_loops_are_not_cut_into_tiles() -> None:
    assert forms(check(turned, normal(3, 100), bound=0)) == ["elements"]


def test_too_many_turned_operands_for_shared_memory_are_read_where_they_lie() -> None:
    arrays = [normal(40, 40) for _ in range(12)]

    def body(b: GraphBuilder, first: Symbol, *others: Symbol) -> Symbol:
        total = first
        for x in others:
            total = b.add("add", total, x)
        return total

    turned = [np.asfortranarray(x) for x in arrays]
    assert forms(check(body, *arrays, *turned[:6], bound=0)) == ["tiles"]
    assert forms(check(body, *arrays, *turned, bound=0)) == ["elements"]
