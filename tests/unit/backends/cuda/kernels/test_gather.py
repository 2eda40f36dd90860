"""Elements at computed places within nests on a GPU, and the status word that refuses indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnc.graph import GraphBuilder, Symbol
from tests.unit.backends.cuda.launching import run_nest
from tests.unit.backends.cuda.test_forms import check, expected, forms, ideal, sums, widened
from tests.unit.lower.kernels.test_conformance import graph_of

NDArray = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(50, 64)).astype(np.float32)
IDS = RNG.integers(0, 50, (3, 40))


def rows_of(mode: str, b: GraphBuilder, table: Symbol, ids: Symbol) -> Symbol:
    return b.add("gather", table, ids, axes=(0,), batch=0, mode=mode)


@pytest.mark.parametrize("mode", ["clip", "wrap", "drop", "fill"])
@pytest.mark.parametrize("dtype", ["float32", "int16", "float64"])
@pytest.mark.parametrize("index", ["int64", "int32", "uint8"])
def test_indices_out_of_range_follow_the_mode(mode: str, dtype: str, index: str) -> None:
    x, ids = (TABLE * 9).astype(dtype), (IDS * 3 - (0 if index == "uint8" else 40)).astype(index)
    check(lambda b, x, i: b.add("neg", rows_of(mode, b, x, i)), x, ids, bound=0)
    across = lambda b, x, i: b.add("neg", b.add("gather", x, i, axes=(1,), batch=0, mode=mode))
    check(across, x, ids, bound=0)


def test_rows_of_a_table_are_read_in_vectors() -> None:
    ran = check(lambda b, x, i: b.add("neg", rows_of("error", b, x, i)), TABLE, IDS, bound=0)
    assert forms(ran) == ["elements"] and ran.status == 0
    rows = TABLE[IDS]
    assert ideal(ran, rows, rows) <= 1.3  # beside the indices, which neighbours read together


def test_elements_along_an_axis_are_read_one_by_one() -> None:
    places = RNG.integers(0, 64, (50, 20))
    along = lambda b, x, i: b.add("neg", b.add("gather", x, i, axes=(1,), batch=1, mode="error"))
    check(along, TABLE, places, bound=0)
    pairs = lambda b, x, i, j: b.add("neg", b.add("gather", x, i, j, axes=(0, 1), batch=0, mode="error"))
    check(pairs, TABLE, IDS, IDS % 37, bound=0)


@pytest.mark.parametrize("n", [64, 24, 1000, 20_000])
def test_gathered_rows_are_reduced(n: int) -> None:
    table = RNG.normal(size=(50, n)).astype(np.float32)

    def body(b: GraphBuilder, x: Symbol, i: Symbol) -> list[Symbol]:
        rows = rows_of("error", b, x, i)
        mean = b.add("reduce_max", rows, axes=(1,))
        return [b.add("sub", rows, widened(b, mean, rows, (1,))), b.add("reduce_sum", rows, axes=(1,))]

    ran = check(body, table, IDS[0])
    assert ran.status == 0


def test_gathered_rows_are_summed_in_parts() -> None:
    table, ids = RNG.normal(size=(50, 4)).astype(np.float32), RNG.integers(0, 50, 70_000)
    body = lambda b, x, i: sums((0,), b, rows_of("error", b, x, i))
    ran = check(body, table, ids, bound=1e-4)
    assert forms(ran) == ["part0", "finish"] and ran.status == 0
    ids[60_000] = 50
    assert run_nest(graph_of([table, ids], body), [table, ids], [np.zeros(4, np.float32)]).status == 1


@pytest.mark.parametrize("bad", [50, -1, -(2**40), 2**62])
@pytest.mark.parametrize("count", [5, 4000])
@pytest.mark.parametrize("reduced", [False, True])
def test_an_index_out_of_range_sets_the_status_and_reads_within_the_table(bad: int, count: int, reduced: bool) -> None:
    ids = RNG.integers(0, 50, count)

    def body(b: GraphBuilder, x: Symbol, i: Symbol) -> Symbol:
        rows = rows_of("error", b, x, i)
        return sums((0,), b, rows) if reduced else b.add("neg", rows)

    graph = graph_of([TABLE, ids], body)
    out = np.zeros(graph.output_specs[0].shape, np.float32)
    assert run_nest(graph, [TABLE, ids], [out]).status == 0
    np.testing.assert_allclose(out, expected(graph, [TABLE, ids])[0], rtol=1e-4, atol=1e-3)
    ids[-2] = bad
    ran = run_nest(graph, [TABLE, ids], [out])
    assert ran.kernel.may_fail and ran.status == 1


def test_lanes_of_indices_are_checked_each() -> None:
    ids = RNG.integers(0, 50, 64)
    column = lambda b, x, i: b.add("neg", b.add("gather", x, i, axes=(0,), batch=0, mode="error"))
    vector = TABLE[:, 0].copy()
    graph = graph_of([vector, ids], column)
    out = np.zeros(64, np.float32)
    for lane in range(4):
        given = ids.copy()
        given[lane] = 50
        assert run_nest(graph, [vector, given], [out]).status == 1
    assert run_nest(graph, [vector, ids], [out]).status == 0
    np.testing.assert_array_equal(out, -vector[ids])
