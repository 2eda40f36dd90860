"""Elements at computed places within fused kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.options import Options
from nnc.errors import OutOfBoundsError
from nnc.graph import run_passes
from nnc.lower.phases import SIMPLIFYING, names_of

TABLE = np.random.default_rng(0).normal(size=(50, 37)).astype(np.float32)
IDS = np.random.default_rng(1).integers(0, 50, (3, 5))


def commands(function: Any, *args: Any) -> list[str]:
    graph = run_passes(
        nnc.make_graph(function)(*args), (*names_of(SIMPLIFYING), "order", "fuse"), Options(), verify=True
    )
    views = ("broadcast_to", "reshape", "transpose")
    return [node.command.name for node in graph.nodes if node.command.name not in views]


def check(function: Any, *args: Any) -> None:
    """Compiled and eager give the same."""
    results, expected = nnc.compile(function)(*args), function(*args)
    for result, wanted in zip(nnc.tree.leaves(results), nnc.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)


def embed(table: Any, ids: Any) -> Any:
    return nn.layer_norm(table[ids] * 2 + 1)


def test_rows_of_a_table_are_read_by_the_kernel_that_normalises_them() -> None:
    assert commands(embed, TABLE, IDS) == ["fused", "fused"]  # the first counts negative indices from the end
    check(embed, TABLE, IDS)


def test_a_gather_alone_keeps_its_own_kernel() -> None:
    assert commands(lambda t, i: t[i], TABLE, IDS) == ["fused", "gather"]


@pytest.mark.parametrize("mode", ["clip", "wrap", "drop", "fill"])
@pytest.mark.parametrize("dtype", ["float32", "int16", "float64"])
def test_indices_out_of_range_follow_the_mode(mode: str, dtype: str) -> None:
    x, ids = (TABLE * 9).astype(dtype), IDS * 3 - 40
    check(lambda x, i: nnp.take(x, i, axis=0, mode=mode) + 1, x, ids)
    check(lambda x, i: nnp.take(x, i, axis=1, mode=mode) + 1, x, ids)


@pytest.mark.parametrize("mode", ["clip", "wrap", "drop", "fill"])
@pytest.mark.parametrize("dtype", ["uint64", "int64", "uint8", "int8"])
def test_the_largest_and_the_least_index_of_a_dtype_follow_the_mode(mode: str, dtype: str) -> None:
    limits = np.iinfo(dtype)
    ids = np.array([0, 4, 6, limits.max, limits.max - 1, limits.max // 2 + 1, limits.min], dtype)
    check(lambda x, i: nnp.take(x, i, mode=mode) + 1, np.arange(5.0), ids)


def test_elements_along_any_axis_are_read_at_vectors_of_places() -> None:
    places = np.random.default_rng(2).integers(0, 37, (50, 20))
    check(lambda x, i: nnp.take_along_axis(x, i, axis=1) * 2, TABLE, places)
    check(lambda x, i: nnp.take_along_axis(x, i, axis=0) * 2, TABLE.T.copy(), places.T % 37)
    check(lambda x, i, j: x[i, j] * 2 + x[j % 50, i % 37], TABLE, IDS, IDS % 37)


def test_a_table_that_names_its_own_places_is_no_element_of_the_loop() -> None:
    check(lambda x: nnp.take(x, x, mode="wrap") + 1, np.array([4, 1, 6, 0, 2]))
    check(lambda x: nnp.take(x, x, mode="wrap") * 2 + x, np.array([4, 1, 6, 0, 2], np.uint8))


@pytest.mark.parametrize("bad", [50, -51])
def test_an_index_out_of_range_raises_before_anything_is_written(bad: int) -> None:
    ids = IDS.copy()
    ids[2, 4] = bad
    f = nnc.compile(embed)
    with pytest.raises(OutOfBoundsError, match="out of range for axis 0, which has size 50"):
        f(TABLE, ids)
    np.testing.assert_allclose(f(TABLE, IDS), embed(TABLE, IDS), rtol=1e-5, atol=1e-6)


def test_results_of_a_kernel_are_not_read_at_computed_places_by_the_same_kernel() -> None:
    def f(x: Any, i: Any) -> Any:
        y = nnp.exp(x)
        return y[i] + 1

    assert len(commands(f, TABLE, IDS)) == 3
    check(f, TABLE, IDS)
    check(lambda x, i: x[i] + x[:3, None, :] if x.ndim == 2 else x, TABLE, IDS)


def test_a_loop_reads_elements_by_its_counter() -> None:
    def f(x: Any) -> Any:
        return nnc.fori_loop(0, 50, lambda i, total: total + x[i] * x[49 - i], nnp.zeros(37))

    check(f, nnc.asarray(TABLE))


@pytest.mark.parametrize("device", ["cpu", "ptx:0"])
@pytest.mark.parametrize("mode", ["drop", "fill", "clip", "wrap"])
@pytest.mark.parametrize("index", [-7, -2, 0, 2, 5])
def test_a_constant_index_that_is_out_of_range_reads_nothing(index: int, mode: str, device: str) -> None:
    def f(x: Any) -> Any:
        return nnc.graph.command("gather")(x, nnc.asarray(np.array(index)), axes=(0,), batch=0, mode=mode) * 2, x[0] > 1

    x = np.array([3.0, 4.0, 5.0], np.float32)
    for found, wanted in zip(nnc.compile(f)(nnc.device_put(x, device)), f(nnc.asarray(x)), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_a_constant_of_one_element_is_read_at_any_place() -> None:
    one = np.array([3.0], np.float32)
    check(lambda i: nnp.take(nnp.asarray(one), i, mode="clip") * 2 + 1, IDS)
    check(lambda i: nnp.take(nnp.asarray(one), i, mode="fill") * 2 + 1, IDS)
