from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError

RNG = np.random.default_rng(3)
X = RNG.normal(size=(3, 4, 5))
HOLES = np.where(RNG.random(X.shape) < 0.3, np.nan, X)
N = RNG.integers(0, 9, (3, 4, 5))

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("method", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles_agree_with_numpy(axis, method, same):
    q = [0.0, 0.3, 1.0]
    for x in (X, HOLES):
        for keepdims in (False, True):
            want = np.quantile(x, q, axis=axis, method=method, keepdims=keepdims)
            same(nnp.quantile(x, q, axis, method=method, keepdims=keepdims), want)
    with np.errstate(all="ignore"):
        same(nnp.nanquantile(HOLES, 0.3, axis, method=method), np.nanquantile(HOLES, 0.3, axis, method=method))


def test_medians_and_percentiles_agree_with_numpy(same):
    same(nnp.median(X, 1), np.median(X, 1))
    same(nnp.median(N), np.median(N))
    same(nnp.percentile(X, [10, 90], 0), np.percentile(X, [10, 90], 0))
    same(nnp.nanmedian(HOLES, 1), np.nanmedian(HOLES, 1))
    same(nnp.nanpercentile(HOLES, 25), np.nanpercentile(HOLES, 25))
    assert np.isnan(np.asarray(nnp.nanmedian(np.full(3, np.nan))))
    same(nnp.median(np.array([1.0, np.inf, np.inf])), np.median(np.array([1.0, np.inf, np.inf])))


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin"])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_reductions_without_nan_agree_with_numpy(name, axis, same):
    for x in (HOLES, N):
        same(getattr(nnp, name)(x, axis, keepdims=True), getattr(np, name)(x, axis, keepdims=True), 1e-10)


def test_places_and_running_values_without_nan_agree_with_numpy(same):
    same(nnp.nanargmax(HOLES, 1), np.nanargmax(HOLES, 1))
    same(nnp.nanargmin(HOLES), np.nanargmin(HOLES))
    same(nnp.nancumsum(HOLES, 1), np.nancumsum(HOLES, 1))
    same(nnp.nancumprod(HOLES), np.nancumprod(HOLES))
    assert np.isnan(np.asarray(nnp.nanmax(np.full(2, np.nan))))


def test_averages_agree_with_numpy(same):
    same(nnp.average(X, 1), np.average(X, 1))
    same(nnp.average(X, 1, weights=[1, 2, 3, 4]), np.average(X, 1, weights=[1, 2, 3, 4]))
    same(nnp.average(X, weights=N + 1.0), np.average(X, weights=N + 1.0))
    w = N[:, 0] + 1.0
    same(nnp.average(X, (2, 0), weights=w.T, returned=True), np.average(X, (2, 0), weights=w.T, returned=True))


def test_covariances_agree_with_numpy(same):
    a, b = X[0], X[1]
    same(nnp.cov(a), np.cov(a))
    same(nnp.cov(a, b, rowvar=False, bias=True), np.cov(a, b, rowvar=False, bias=True))
    same(nnp.cov(a[0]), np.cov(a[0]))
    same(nnp.cov(a + 1j * b), np.cov(a + 1j * b))
    same(nnp.corrcoef(a, b), np.corrcoef(a, b))
    often, much = np.array([1, 2, 1, 3, 1]), np.array([0.5, 1.0, 2.0, 0.3, 0.7])
    for weights in ({"fweights": often}, {"aweights": much}, {"fweights": often, "aweights": much}):
        for ddof in (None, 0, 1):
            same(nnp.cov(a, ddof=ddof, **weights), np.cov(a, ddof=ddof, **weights))


def test_histograms_agree_with_numpy(same):
    x = N.ravel()
    same(nnp.histogram(X, 7), np.histogram(X, 7), 1e-6)
    same(
        nnp.histogram(X, 5, range=(-1.0, 1.0), density=True), np.histogram(X, 5, range=(-1.0, 1.0), density=True), 1e-6
    )
    same(nnp.histogram(x, [0, 2, 9])[0], np.histogram(x, [0, 2, 9])[0])
    same(nnp.histogram(x, [0, 2, 9], weights=X.ravel())[0], np.histogram(x, [0, 2, 9], weights=X.ravel())[0])
    same(nnp.histogram(np.ones(3))[0], np.histogram(np.ones(3))[0])


def test_curves_and_products_agree_with_numpy(same):
    xs, points = np.linspace(-1, 5, 13), np.array([0.0, 1.0, 3.0])
    values = np.array([1.0, -1.0, 2.0])
    same(nnp.interp(xs, points, values), np.interp(xs, points, values))
    same(nnp.interp(xs, points, values, left=-9, right=9), np.interp(xs, points, values, left=-9, right=9))
    same(nnp.interp(xs, points[:1], values[:1]), np.interp(xs, points[:1], values[:1]))
    same(nnp.trapezoid(X, dx=0.5), np.trapezoid(X, dx=0.5))
    same(nnp.trapezoid(X, np.arange(4.0) ** 2, axis=1), np.trapezoid(X, np.arange(4.0) ** 2, axis=1))
    same(nnp.polyval(values, X), np.polyval(values, X))
    same(nnp.cross(X[..., :3], X[..., 1:4]), np.cross(X[..., :3], X[..., 1:4]))
    same(nnp.cross(X, X[::-1], axis=0), np.cross(X, X[::-1], axis=0))
    same(nnp.kron(X[0], N[1]), np.kron(X[0], N[1]))
    same(nnp.kron(X[0, 0], N[1]), np.kron(X[0, 0], N[1]))


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=9), st.floats(0, 1))
def test_a_quantile_lies_between_the_extremes(xs, q):
    x = np.asarray(xs)
    assert x.min() - 1e-9 <= float(nnp.quantile(x, q)) <= x.max() + 1e-9


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.quantile(X, 1.5), ArgumentError, "quantile: q lies outside"),
        (lambda: nnp.quantile(X, 0.5, method="cubic"), ArgumentError, "quantile: method is 'cubic'"),
        (lambda: nnp.median(X[:0]), ShapeError, "median: it has no value"),
        (lambda: nnp.average(X, weights=[1, 2]), ShapeError, "average: the weights"),
        (lambda: nnp.cov(X), ShapeError, "cov: there are more than two axes"),
        (lambda: nnp.interp(X, X, X), ShapeError, "interp: xp and fp must be vectors"),
        (lambda: nnp.cross(X, X), ShapeError, "cross: axis -1 must have size 3"),
        (lambda: nnp.quantile(X, "a"), ArgumentTypeError, "quantile: q is 'a'"),
        (lambda: nnp.histogram(X, 0), ArgumentError, "histogram: bins is 0"),
        (lambda: nnp.polyval(1, X), ShapeError, "polyval: p must be a vector"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_a_periodic_line_is_interpolated_as_in_numpy(same):
    x, xp, fp = (
        np.array([-180.0, -170, 30, 190, 355, 720.5]),
        np.array([190.0, -190, 350, -350]),
        np.array([5.0, 10, 3, 4]),
    )
    same(nnp.interp(x, xp, fp, period=360), np.interp(x, xp, fp, period=360))


@pytest.mark.parametrize(
    ("x", "method", "wanted"),
    [
        ([-INF, INF], "linear", [-INF, NAN, NAN, NAN, INF]),
        ([-INF, INF], "midpoint", [-INF, NAN, NAN, NAN, INF]),
        ([-INF, INF], "lower", [-INF, -INF, -INF, -INF, INF]),
        ([-INF, INF], "higher", [-INF, INF, INF, INF, INF]),
        ([-INF, INF], "nearest", [-INF, -INF, -INF, INF, INF]),
        ([-INF, 1.0, INF], "linear", [-INF, -INF, 1.0, INF, INF]),
        ([-INF, -INF, INF], "linear", [-INF, -INF, -INF, NAN, INF]),
        ([-INF, INF, INF], "linear", [-INF, NAN, INF, INF, INF]),
        ([-INF, -INF, -INF], "linear", [-INF] * 5),
    ],
)
def test_quantiles_at_infinities_are_these_and_only_between_opposite_ones_there_is_none(x, method, wanted):
    for quantile in (nnp.quantile, nnc.compile(nnp.quantile, static_argnames="method")):
        got = quantile(np.array(x), np.array([0.0, 0.25, 0.5, 0.75, 1.0]), method=method)
        np.testing.assert_array_equal(got, wanted)


def test_a_negative_period_of_a_line_is_its_size() -> None:
    x, xp, fp = np.array([0.0, 1.5, 5.0, -1.0, 3.5, 7.25]), np.array([0.5, 4.0, 2.0]), np.array([1.0, 3.0, 2.0])
    want = np.interp(x, xp, fp, period=-3.0)
    assert np.array_equal(want, np.interp(x, xp, fp, period=3.0))
    for run in (nnp.interp, nnc.compile(nnp.interp)):
        np.testing.assert_allclose(np.asarray(run(x, xp, fp, period=-3.0)), want, rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("n", [1, 7, 64, 900, 9000, 200_000])
def test_variances_of_numbers_near_0_and_far_from_it_keep_their_digits(n: int, dtype: str) -> None:
    rng = np.random.default_rng(n)
    for mean in (0.0, 0.3, 1.0, 1.4, 2.0, 4.0, 30.0, 3e5):
        for x in (rng.normal(size=(n, 3)), np.asfortranarray(rng.normal(size=(n, 3))), rng.normal(size=(3, n)).T):
            given = (x + mean + (1j * x[::-1] if "complex" in dtype else 0)).astype(dtype)
            centred = given.astype(np.clongdouble if "complex" in dtype else np.longdouble)
            want = np.mean(abs(centred - centred.mean(0)) ** 2, axis=0).astype(np.float64)
            bound = (10 + n**0.5) * np.finfo(dtype).eps / 2
            for got in (nnp.var(given, 0), nnp.std(given, 0) ** 2, nnc.compile(lambda x: nnp.var(x, 0))(given)):
                np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=bound)


def test_eager_variances_of_unusual_numbers_are_those_of_compiled_programs() -> None:
    cases = [
        [2.5, 2.5],
        [0.0, 0.0],
        [1e30, -1e30],
        [1e-30, 3e-30],
        [np.inf, 1.0],
        [np.nan, 1.0],
        [3e38, 3e38, -3e38],
        [7.0],
        [],
    ]
    for numbers in cases:
        for count in (1, 9000):
            x = np.tile(np.asarray(numbers, np.float32), (count, 1))
            for function in (nnp.var, nnp.std):
                for options in ({"axis": 1}, {"axis": (0, 1), "ddof": 1}, {"axis": 1, "keepdims": True}):
                    got = [np.asarray(run(x)) for run in 3 * [lambda x: function(x, **options)]]  # noqa: B023
                    want = np.asarray(nnc.compile(lambda x: function(x, **options))(x))  # noqa: B023
                    for y in got:
                        np.testing.assert_allclose(y, want, rtol=1e-5)
                        assert y.shape == want.shape and y.dtype == want.dtype
