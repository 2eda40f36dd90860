"""Rows of reductions: how their sums are formed where the columns lie far apart."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.device.targets.__init__ import X86
from nnc.graph import TensorSpec
from nnc.lower.kernels.llvm import print_graph
from nnc.lower.plan.stages import View


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_far_columns_are_summed_over_two_axes_that_are_no_single_loop(order: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 20, 2000)).astype(np.float32)
    x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    weight = rng.normal(size=(20, 1)).astype(np.float32)
    got = nnc.compile(lambda x, weight: nnp.sum(nnp.tanh(x) * weight, axis=(0, 1)))(x, weight)
    want = (np.tanh(x.astype(np.float64)) * weight).sum((0, 1))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [3, 6, 10, 24])
def test_short_rows_that_may_be_written_where_they_are_read_have_no_masks(n: int) -> None:
    """A read that begins in the vector of a masked store waits for memory, row by row."""
    graph = nnc.make_graph(lambda x, y: nnp.maximum(x, 1) * y)(*map(np.float32, (np.ones(n), np.ones((9, n)))))
    views = [View.whole(i, TensorSpec(shape, np.dtype("float32"))) for i, shape in enumerate(((n,), (9, n), (9, n)))]
    assert "masked" not in print_graph(graph, views[:2], views[2:], X86).text


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
def test_short_rows_are_changed_in_place(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for n in (*range(1, 18), 20, 24, 31, 40, 63, 65):
        x, y = (nnc.asarray(rng.integers(-9, 9, shape)).astype(dtype) for shape in ((50, n), (n,)))
        function = lambda x, y: nnp.where((z := nnp.cumsum(x, axis=0) + y) > 0, z, x)
        np.testing.assert_array_equal(nnc.compile(function)(x, y), function(x, y))
