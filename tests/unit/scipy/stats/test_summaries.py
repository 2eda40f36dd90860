"""Modes, ranks and standard errors agree with SciPy, compiled and mapped as at once."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.stats

import nnc
from nnc.errors import ArgumentError, ShapeError, UnsupportedError
from nnc.scipy import stats
from nnc.testing import check_grads

RNG = np.random.default_rng(3)
WHOLE = RNG.integers(0, 4, size=(7, 3, 5))
FLOATS = WHOLE / 2
HOLES = np.where(RNG.random(FLOATS.shape) < 0.2, np.nan, FLOATS)
HOLES[:, 0, 0] = np.nan
AXES = (0, 1, -1, None)


def check(got: Any, want: Any, **tolerances: float) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(np.asarray(got), want, **tolerances)


def theirs(function: Any, *args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of empty and NaN slices
        return function(*args, **kwargs)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("data", [WHOLE, FLOATS, FLOATS.astype(np.float32)], ids=["integers", "float64", "float32"])
def test_modes_are_scipys(data: np.ndarray, axis: int | None, keepdims: bool) -> None:
    def ours(x: Any) -> Any:
        return stats.mode(x, axis=axis, keepdims=keepdims)

    want = scipy.stats.mode(data, axis=axis, keepdims=keepdims)
    for got in (ours(data), nnc.compile(ours)(data)):
        assert got.mode.dtype == data.dtype
        check(got.mode, want.mode)
        check(got.count, want.count)


def test_modes_of_data_with_nan_leave_them_out_or_count_them() -> None:
    want = theirs(scipy.stats.mode, HOLES, axis=0, nan_policy="omit")
    got = stats.mode(HOLES, nan_policy="omit")
    check(got.mode, want.mode)
    check(got.count, want.count)
    got = stats.mode(np.asarray([1.0, np.nan, 2.0, np.nan]))
    assert np.isnan(np.asarray(got.mode)) and int(got.count) == 2
    empty = stats.mode(np.zeros((0, 2)))
    assert np.isnan(np.asarray(empty.mode)).all() and not np.asarray(empty.count).any()
    assert stats.mode(3).mode.shape == ()


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
def test_ranks_are_scipys(method: str, axis: int | None) -> None:
    def ours(x: Any, policy: str = "propagate") -> Any:
        return stats.rankdata(x, method, axis=axis, nan_policy=policy)

    want = scipy.stats.rankdata(FLOATS, method, axis=axis)
    for got in (ours(FLOATS), nnc.compile(ours)(FLOATS), ours(FLOATS.astype(np.float32))):
        check(got, want)
    assert ours(FLOATS).dtype == np.float64 and ours(WHOLE).dtype == np.float32
    for policy in ("propagate", "omit"):
        check(ours(HOLES, policy), scipy.stats.rankdata(HOLES, method, axis=axis, nan_policy=policy))


def test_ranks_are_mapped_and_of_nothing_there_are_none() -> None:
    check(nnc.vmap(stats.rankdata)(FLOATS[:, 0]), scipy.stats.rankdata(FLOATS[:, 0], axis=1))
    assert stats.rankdata(np.zeros((2, 0)), axis=1).shape == (2, 0)
    assert float(stats.rankdata(np.zeros(1))[0]) == 1


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("policy", ["propagate", "omit"])
def test_standard_errors_are_scipys(axis: int | None, ddof: int, policy: str) -> None:
    data = HOLES if policy == "omit" else FLOATS

    def ours(x: Any) -> Any:
        return stats.sem(x, axis=axis, ddof=ddof, nan_policy=policy)

    want = theirs(scipy.stats.sem, data, axis=axis, ddof=ddof, nan_policy=policy)
    if policy == "omit" and ddof == 0:  # SciPy asks for two numbers there, but not where none is NaN
        want = np.where(np.sum(~np.isnan(data), axis=axis) == 1, 0, want)
    check(ours(data), want, rtol=1e-14)
    check(nnc.compile(ours)(data), want, rtol=1e-14)
    check(ours(data.astype(np.float32)), want, rtol=1e-6)


def test_standard_errors_of_too_few_numbers_are_nan_and_others_have_derivatives() -> None:
    assert np.isnan(float(stats.sem(np.ones(1)))) and np.isnan(float(stats.sem(np.zeros(0))))
    assert np.isnan(np.asarray(stats.sem(HOLES))[0, 0])
    assert stats.sem(FLOATS, axis=(0, 2), keepdims=True).shape == (1, 3, 1)
    check_grads(stats.sem, (RNG.normal(size=(5, 2)),), order=2, rtol=1e-5)


@pytest.mark.parametrize("function", [stats.mode, stats.rankdata, stats.sem])
def test_policies_and_axes_that_do_not_exist_are_refused(function: Any) -> None:
    with pytest.raises(ArgumentError, match="nan_policy"):
        function(FLOATS, nan_policy="ignore")
    with pytest.raises(UnsupportedError, match="while tracing"):
        function(FLOATS, nan_policy="raise")
    with pytest.raises(ShapeError):
        function(FLOATS, axis=3)


def test_methods_of_ranking_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ArgumentError, match="median"):
        stats.rankdata(FLOATS, "median")
