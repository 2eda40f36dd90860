"""Distributions of vectors agree with SciPy, compiled and mapped as at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import nnc
from nnc.errors import LinAlgError, ShapeError
from nnc.scipy import stats
from nnc.testing import check_grads

RNG = np.random.default_rng(9)
ROOT = RNG.normal(size=(4, 3, 3)) + 2 * np.eye(3)
COVS = ROOT @ ROOT.swapaxes(-1, -2)
XS, MEAN = RNG.normal(size=(5, 3)), RNG.normal(size=3)
functions = pytest.mark.parametrize("function", ["logpdf", "pdf"])


def check(got: Any, want: Any, rtol: float = 1e-10) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(np.asarray(got), want, rtol=rtol, atol=1e-300)


# -- normal vectors ----------------------------------------------------------------------------------------------------


@functions
def test_densities_of_normal_vectors_are_scipys(function: str) -> None:
    ours, theirs = getattr(stats.multivariate_normal, function), getattr(scipy.stats.multivariate_normal, function)
    want = theirs(XS, MEAN, COVS[0])
    check(ours(XS, MEAN, COVS[0]), want)
    check(nnc.compile(ours)(XS, MEAN, COVS[0]), want)
    check(nnc.vmap(ours, in_axes=(0, None, None))(XS, MEAN, COVS[0]), want)
    check(ours(*(x.astype(np.float32) for x in (XS, MEAN, COVS[0]))), want, 3e-5)
    check(ours(XS, MEAN, np.float64(0.7)), theirs(XS, MEAN, 0.7))
    check(ours(XS, np.float64(0.5), np.float64(0.7)), np.asarray(theirs(XS.ravel(), 0.5, 0.7)).reshape(XS.shape))
    check(ours(np.zeros(1), np.zeros(1), np.ones((1, 1))), theirs(0, 0, 1))
    want = np.stack([theirs(XS, MEAN + i, cov) for i, cov in enumerate(COVS)])
    check(ours(XS, MEAN + np.arange(4)[:, None, None], COVS[:, None]), want)


def test_a_mapped_covariance_is_a_batch() -> None:
    got = nnc.vmap(stats.multivariate_normal.logpdf, in_axes=(None, None, 0))(XS[0], MEAN, COVS)
    check(got, [scipy.stats.multivariate_normal.logpdf(XS[0], MEAN, cov) for cov in COVS])


@functions
def test_singular_covariances_have_densities_in_their_subspace(function: str) -> None:
    ours, theirs = getattr(stats.multivariate_normal, function), scipy.stats.multivariate_normal
    root = ROOT[0].copy()
    root[:, 2] = root[:, 0] - root[:, 1]
    flat = root @ root.T
    x = np.concatenate([(root @ XS.T).T, XS[:2]]) + MEAN
    want = getattr(theirs(MEAN, flat, allow_singular=True), function)(x)
    assert np.isfinite(want[:5]).all() and want[5] == (-np.inf if function == "logpdf" else 0)
    check(ours(x, MEAN, flat, allow_singular=True), want, 1e-8)
    check(ours(XS, MEAN, COVS[0], allow_singular=True), getattr(theirs, function)(XS, MEAN, COVS[0]))
    assert np.isnan(np.asarray(ours(x, MEAN, -flat, allow_singular=True))).all()
    with pytest.raises(LinAlgError):
        ours(x, MEAN, -flat)


def test_derivatives_of_normal_densities_agree_with_differences() -> None:
    def of_root(x: Any, mean: Any, root: Any) -> Any:
        return stats.multivariate_normal.logpdf(x, mean, root @ root.T)

    check_grads(of_root, (XS, MEAN, ROOT[0]), order=2, rtol=1e-4, atol=1e-4)
    check_grads(stats.multivariate_normal.logpdf, (XS, MEAN, np.float64(0.4)), order=1)


def test_shapes_that_do_not_fit_are_refused() -> None:
    for operands in (
        (XS, MEAN, np.eye(2)),
        (XS[:, :2], MEAN, np.eye(3)),
        (XS, MEAN, np.ones(3)),
        (XS, COVS, np.eye(3)),
    ):
        with pytest.raises(ShapeError, match="multivariate_normal"):
            stats.multivariate_normal.logpdf(*operands)


# -- probabilities -----------------------------------------------------------------------------------------------------

ALPHA = np.asarray([0.5, 1.0, 3.0])
SIMPLEX = RNG.dirichlet([2.0, 2.0, 2.0], size=4).T


@functions
def test_densities_of_probabilities_are_scipys(function: str) -> None:
    ours, theirs = getattr(stats.dirichlet, function), getattr(scipy.stats.dirichlet, function)
    want = theirs(SIMPLEX, ALPHA)
    for f in (ours, nnc.compile(ours), nnc.vmap(ours, in_axes=(1, None))):
        check(f(SIMPLEX, ALPHA), want)
    check(ours(SIMPLEX[:2], ALPHA), want)
    check(ours(SIMPLEX[:, 0], ALPHA), theirs(SIMPLEX[:, 0], ALPHA))
    check(ours(SIMPLEX.astype(np.float32), ALPHA.astype(np.float32)), want, 1e-6)
    check(ours(np.asarray([0.0, 0.25, 0.75]), np.asarray([1.0, 2.0, 3.0])), theirs([0.0, 0.25, 0.75], [1.0, 2.0, 3.0]))
    outside = -np.inf if function == "logpdf" else 0
    check(ours(np.asarray([[0.5, -0.5], [0.5, 0.5], [0.5, 1.0]]), ALPHA), [outside, outside])
    assert np.isnan(float(ours(SIMPLEX[:, 0], -ALPHA))) and np.isnan(float(ours([np.nan, 0.5, 0.5], ALPHA)))


def test_derivatives_of_densities_of_probabilities_agree_with_differences_and_are_zero_outside() -> None:
    check_grads(stats.dirichlet.logpdf, (SIMPLEX[:2], ALPHA), order=2, rtol=1e-4, atol=1e-4)
    for gradient in nnc.grad(stats.dirichlet.logpdf, argnums=(0, 1))(np.asarray([0.5, 0.7, 0.0]), ALPHA):
        assert not np.asarray(gradient).any()


def test_vectors_of_another_length_are_refused() -> None:
    for x, alpha in ((np.ones(4), ALPHA), (np.ones(1), ALPHA), (np.ones(3), np.ones((3, 1))), (0.5, ALPHA)):
        with pytest.raises(ShapeError, match="dirichlet"):
            stats.dirichlet.logpdf(x, alpha)


# -- counts ------------------------------------------------------------------------------------------------------------

P = np.asarray([0.2, 0.3, 0.5])
COUNTS = np.asarray([[1, 2, 3], [0, 0, 6], [6, 0, 0], [1, 2, 2], [-1, 3, 4]])


@pytest.mark.parametrize("function", ["logpmf", "pmf"])
def test_probabilities_of_counts_are_scipys(function: str) -> None:
    ours, theirs = getattr(stats.multinomial, function), getattr(scipy.stats.multinomial, function)
    want = theirs(COUNTS, 6, P)
    for f in (ours, nnc.compile(ours), nnc.vmap(ours, in_axes=(0, None, None))):
        check(f(COUNTS, 6, P), want)
    n = np.asarray([6, 5])[:, None]
    check(ours(COUNTS, n, np.stack([P, P[::-1]])[:, None]), theirs(COUNTS, n, np.stack([P, P[::-1]])[:, None]))
    check(ours(COUNTS, 6, P.astype(np.float32)), want, 1e-6)
    check(ours([0, 3], 3, np.asarray([0.0, 1.0])), theirs([0, 3], 3, [0.0, 1.0]))
    check(ours([0.5, 2.5], 3, [0.5, 0.5]), -np.inf if function == "logpmf" else 0.0)
    for n, p in ((-1, P), (2.5, P), (6, [-0.5, 0.5, 1.0]), (6, [0.5, np.nan, 0.5])):
        assert np.isnan(float(ours(COUNTS[0], n, p)))


def test_derivatives_of_counts_agree_with_differences_and_are_zero_outside() -> None:
    check_grads(lambda p: stats.multinomial.logpmf(COUNTS[0], 6, p), (P,), order=2, rtol=1e-4)
    assert not np.asarray(nnc.grad(lambda p: stats.multinomial.logpmf(COUNTS[3], 6, p))(P)).any()


def test_counts_without_an_axis_or_of_other_shapes_are_refused() -> None:
    for operands in ((3, 3, P), (COUNTS, 6, 0.5), (COUNTS, 6, np.ones(4)), (COUNTS, np.ones(2), P)):
        with pytest.raises(ShapeError, match="multinomial"):
            stats.multinomial.logpmf(*operands)
