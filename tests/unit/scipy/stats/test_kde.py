"""Estimates of densities agree with SciPy's, and are pytrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import nnc
from nnc.errors import ArgumentError, ShapeError
from nnc.scipy.stats import gaussian_kde
from nnc.testing import check_grads

RNG = np.random.default_rng(5)
LINE, PLANE = RNG.normal(size=9), RNG.normal(size=(2, 11))
POINTS = {1: np.linspace(-3, 40, 7), 2: RNG.normal(size=(2, 6)) * 3}
WEIGHTS = {1: RNG.random(9), 2: RNG.random(11)}
METHODS = {
    "scott": "scott",
    "silverman": "silverman",
    "number": 0.4,
    "function": lambda kde: (kde.d + kde.n) / 40,
    "default": None,
}
planes = pytest.mark.parametrize("d", [1, 2])


def both(d: int, method: Any = None, weights: Any = None) -> tuple[Any, Any]:
    data = LINE if d == 1 else PLANE
    return gaussian_kde(data, method, weights), scipy.stats.gaussian_kde(data, method, weights)


@planes
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_densities_and_integrals_are_scipys(d: int, weighted: bool, method: str) -> None:
    ours, theirs = both(d, METHODS[method], WEIGHTS[d] if weighted else None)
    assert (ours.d, ours.n) == (theirs.d, theirs.n)
    np.testing.assert_allclose(float(ours.neff), theirs.neff, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(ours.covariance), theirs.covariance, rtol=1e-13)
    np.testing.assert_allclose(np.asarray(ours.inv_cov), theirs.inv_cov, rtol=1e-12)
    x = POINTS[d]
    for f in (ours, ours.evaluate, ours.pdf, nnc.compile(lambda kde, x: kde(x)).__get__(ours)):
        np.testing.assert_allclose(np.asarray(f(x)), theirs(x), rtol=1e-11, atol=1e-300)
    np.testing.assert_allclose(np.asarray(ours.logpdf(x)), theirs.logpdf(x), rtol=1e-12)
    mean, cov = np.arange(d) / 2, np.eye(d) * 0.3 + 0.1
    np.testing.assert_allclose(ours.integrate_gaussian(mean, cov), theirs.integrate_gaussian(mean, cov), rtol=1e-13)
    other, their_other = both(d, "silverman")
    np.testing.assert_allclose(ours.integrate_kde(other), theirs.integrate_kde(their_other), rtol=1e-13)
    if d == 1:
        np.testing.assert_allclose(ours.integrate_box_1d(-0.5, 2), theirs.integrate_box_1d(-0.5, 2), rtol=1e-13)


def test_one_point_of_several_variables_may_be_a_vector() -> None:
    ours, theirs = both(2)
    np.testing.assert_allclose(np.asarray(ours([0.5, 1.0])), theirs([0.5, 1.0]), rtol=1e-13)


def test_float32_stays_and_narrow_floats_and_integers_become_float32() -> None:
    for dtype in (np.float32, np.float16):
        kde = gaussian_kde(LINE.astype(dtype))
        got = kde(POINTS[1].astype(dtype))
        assert got.dtype == np.float32
        want = scipy.stats.gaussian_kde(LINE.astype(dtype).astype(float))(POINTS[1].astype(dtype).astype(float))
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=1e-30)
    assert gaussian_kde([1, 2, 4])([1, 2]).dtype == np.float32


@planes
def test_derivatives_agree_with_differences(d: int) -> None:
    data, x = (LINE, POINTS[1][:1]) if d == 1 else (PLANE, POINTS[2])
    check_grads(lambda data, w, x: gaussian_kde(data, weights=w).logpdf(x), (data, WEIGHTS[d], x), order=1, rtol=1e-5)
    check_grads(
        lambda data, h: gaussian_kde(data, h).integrate_kde(gaussian_kde(data)), (data, np.float64(0.4)), order=1
    )


def test_estimates_are_arguments_of_transforms() -> None:
    kde, _ = both(1)
    rows = nnc.vmap(lambda x: gaussian_kde(x)(POINTS[1]))(np.stack([LINE, LINE * 2]))
    np.testing.assert_allclose(np.asarray(rows[0]), np.asarray(kde(POINTS[1])), rtol=1e-12)
    gradient = nnc.grad(lambda kde: kde.logpdf(np.zeros(1))[0])(kde)
    assert isinstance(gradient, gaussian_kde) and gradient.dataset.shape == (1, 9)
    boxes = nnc.vmap(kde.integrate_box_1d)(np.zeros(2), np.asarray([1.0, 2.0]))
    np.testing.assert_allclose(float(boxes[1]), float(kde.integrate_box_1d(0, 2)))


def test_samples_have_the_moments_of_the_estimate() -> None:
    kde = gaussian_kde(PLANE, weights=WEIGHTS[2])
    draws = np.asarray(kde.resample(nnc.random.key(0), (200, 150)))
    assert draws.shape == (2, 200, 150) and kde.resample(nnc.random.key(1)).shape == (2,)
    assert kde.resample(nnc.random.key(1), 3).shape == (2, 3)
    draws = draws.reshape(2, -1)
    mean = np.average(PLANE, axis=1, weights=WEIGHTS[2])
    cov = np.asarray(kde.covariance) + np.cov(PLANE, aweights=WEIGHTS[2], ddof=0)
    np.testing.assert_allclose(draws.mean(1), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(draws), cov, atol=0.06)


def test_mistakes_are_named() -> None:
    line, plane = both(1)[0], both(2)[0]
    with pytest.raises(ArgumentError, match="two samples"):
        gaussian_kde([1.0])
    with pytest.raises(ArgumentError, match="scot"):
        gaussian_kde(LINE, "scot")
    with pytest.raises(ArgumentError, match="bw_method"):
        gaussian_kde(LINE, np.ones(2))
    for wrong in (
        lambda: gaussian_kde(LINE, weights=np.ones(3)),
        lambda: gaussian_kde(np.ones((2, 2, 2))),
        lambda: plane(np.ones((3, 2))),
        lambda: plane.integrate_box_1d(0.0, 1.0),
        lambda: line.integrate_box_1d(np.zeros(2), 1.0),
        lambda: line.integrate_kde(plane),
        lambda: plane.integrate_gaussian(np.zeros(3), np.eye(2)),
    ):
        with pytest.raises(ShapeError, match="gaussian_kde"):
            wrong()
