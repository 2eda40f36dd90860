"""Rows of reductions: how their sums are formed where the columns lie far apart."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_far_columns_are_summed_over_two_axes_that_are_no_single_loop(order: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 20, 2000)).astype(np.float32)
    x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    weight = rng.normal(size=(20, 1)).astype(np.float32)
    got = nnc.compile(lambda x, weight: nnp.sum(nnp.tanh(x) * weight, axis=(0, 1)))(x, weight)
    want = (np.tanh(x.astype(np.float64)) * weight).sum((0, 1))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
