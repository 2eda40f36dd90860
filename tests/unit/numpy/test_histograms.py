from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ShapeError

POINTS = np.random.default_rng(8).normal(size=(40, 3))
WEIGHTS = np.random.default_rng(9).uniform(size=40)
EDGES = [np.array([-2.0, -0.5, 0.0, 1.0]), np.array([-1.0, 1.0]), np.linspace(-3, 3, 7)]


def check(got, want):
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
    for one, other in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_histograms_of_points_agree_with_numpy(density, weights):
    options = {"density": density, "weights": weights}
    for bins, limits in ((4, None), ((2, 3, 4), None), (EDGES, None), (3, ((-1, 1), (-2, 2), (0, 1)))):
        want = np.histogramdd(POINTS, bins, limits, **options)
        check(nnp.histogramdd(POINTS, bins, limits, **options), want)
    check(nnp.histogramdd(list(POINTS.T), 2, **options), np.histogramdd(list(POINTS.T), 2, **options))
    for bins in (5, (2, 3), EDGES[0], (EDGES[0], EDGES[1]), (EDGES[0], 4)):
        counts, *edges = nnp.histogram2d(POINTS[:, 0], POINTS[:, 1], bins, **options)
        want_counts, *want_edges = np.histogram2d(POINTS[:, 0], POINTS[:, 1], bins, **options)
        check((counts, edges), (want_counts, want_edges))


@given(hnp.arrays(np.float64, st.integers(0, 12), elements=st.floats(-3, 3, width=16)), st.integers(1, 5))
def test_the_last_edge_is_inside_and_nothing_else_is_lost(x, bins):
    counts, edges = nnp.histogram(x, bins)
    want, want_edges = np.histogram(x, bins)
    np.testing.assert_array_equal(nnp.histogram(x, want_edges)[0], np.histogram(x, want_edges)[0])
    np.testing.assert_allclose(edges, want_edges, rtol=1e-6, atol=1e-6)
    assert int(counts.sum()) == x.size == want.sum()


def test_histograms_with_known_edges_compile():
    counts = nnc.compile(lambda p: nnp.histogramdd(p, EDGES)[0])(POINTS)
    np.testing.assert_array_equal(counts, np.histogramdd(POINTS, EDGES)[0])


def test_mistakes_are_answered_with_the_functions_name():
    with pytest.raises(ArgumentError, match="histogramdd: bins has 2 entries for 3 axes"):
        nnp.histogramdd(POINTS, (2, 2))
    with pytest.raises(ShapeError, match="histogramdd: the sample must have a row"):
        nnp.histogramdd(POINTS[0])


def test_edges_of_bins_are_numpys(same):
    for bins, limits in ((4, None), (3, (-1.0, 2.5)), (EDGES[0], None)):
        same(nnp.histogram_bin_edges(POINTS, bins, limits), np.histogram_bin_edges(POINTS, bins, limits))
    same(nnp.histogram_bin_edges(np.ones(3)), np.histogram_bin_edges(np.ones(3)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
def test_elements_on_an_edge_are_counted_where_numpy_counts_them(dtype):
    rng = np.random.default_rng(0)
    for bins in (1, 3, 7, 10, 19):
        for range_ in (None, (-1, 1), (0.0, 0.9), (-2, 7)):
            x = np.round(rng.uniform(0, 9, 40)) if dtype[0] in "iu" else np.round(rng.uniform(-1, 1, 40), 1)
            x = x.astype(dtype)
            wanted, edges = np.histogram(x, bins, range_)
            function = lambda x, bins=bins, range_=range_: nnp.histogram(x, bins, range_)
            for got in (function(x), nnc.compile(function)(x)):
                np.testing.assert_array_equal(got[0], wanted)
                np.testing.assert_allclose(got[1], edges, rtol=1e-6)
            pair = np.histogram2d(x, x[::-1], bins)[0]
            np.testing.assert_array_equal(nnp.histogram2d(x, x[::-1], bins)[0], pair)


@pytest.mark.parametrize(
    ("x", "settings", "message"),
    [
        ([np.nan, 1.0], {}, "the range of the bins is from nan to nan"),
        ([np.inf, 1.0], {}, "from 1.0 to inf"),
        ([1.0], {"range": (2, 1)}, "from 2 to 1"),
        ([1.0], {"bins": [3, 2, 1]}, "do not rise"),
    ],
)
def test_bins_that_numpy_refuses_are_refused(x, settings, message):
    with pytest.raises(ArgumentError, match=message):
        nnp.histogram(np.array(x), **settings)
