from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError
from nnc.testing import check_grads

X = np.random.default_rng(6).normal(size=(3, 4))
IDS = np.array([2, 0, 2])


@pytest.mark.parametrize("name", ["erf", "erfc", "digamma"])
def test_a_special_function_agrees_with_scipy(name):
    x = np.abs(X) + 0.1 if name == "digamma" else X
    np.testing.assert_allclose(np.asarray(getattr(nnp, name)(x)), getattr(scipy.special, name)(x), rtol=1e-10)


def test_inverses_and_gammas_agree_with_scipy():
    unit = np.tanh(X)
    np.testing.assert_allclose(np.asarray(nnp.erfinv(unit)), scipy.special.erfinv(unit), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(nnp.lgamma(X)), scipy.special.gammaln(X), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(nnp.polygamma(2, X**2 + 1)), scipy.special.polygamma(2, X**2 + 1), rtol=1e-10)
    assert nnp.lgamma(np.asarray([3])).dtype == nnp.float32


@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_logsumexp_agrees_with_scipy(axis):
    b = np.array([[1.0], [0.0], [2.0]])
    for x in (X, X + 1e5, np.where(X > 0, -np.inf, X), X * 1j, np.full((3, 4), -np.inf)):
        for keepdims in (False, True):
            for factors in (None, b):
                with np.errstate(all="ignore"):
                    want = scipy.special.logsumexp(x, axis=axis, b=factors, keepdims=keepdims)
                np.testing.assert_allclose(
                    np.asarray(nnp.logsumexp(x, axis, factors, keepdims=keepdims)), want, rtol=1e-10
                )


@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_signs_of_sums_and_parts_of_arrays_agree_with_scipy(axis):
    b, part = np.array([[1.0], [0.0], [-2.0]]), X > 0
    for x in (X, X + 1e5, X * (1 + 1j)):
        for factors in (b, -b, None):
            for run in (nnp.logsumexp, nnc.compile(nnp.logsumexp, static_argnames=("axis", "return_sign"))):
                got = run(x, axis=axis, b=factors, return_sign=True)
                want = scipy.special.logsumexp(x, axis=axis, b=factors, return_sign=True)
                np.testing.assert_allclose(got[0], np.real(want[0]), rtol=1e-10)
                np.testing.assert_allclose(got[1], want[1], rtol=1e-8)
                assert got[0].dtype == np.float64 and got[1].dtype == x.dtype
        want = scipy.special.logsumexp(np.where(part, x, -np.inf), axis=axis)
        np.testing.assert_allclose(nnp.logsumexp(x, axis, where=part), want, rtol=1e-10)
    values, signs = nnp.logsumexp(np.zeros((2, 0)), axis=1, keepdims=True, return_sign=True)
    assert values.tolist() == [[-np.inf]] * 2 and signs.tolist() == [[0.0]] * 2
    check_grads(lambda x: nnp.logsumexp(x, axis, b, return_sign=True, where=part | (X < -1))[0], (X,), order=2)


def test_logsumexp_of_nothing_and_of_infinity():
    assert float(nnp.logsumexp(np.zeros(0))) == -np.inf
    assert float(nnp.logsumexp(np.array([np.inf, 0.0]))) == np.inf
    assert nnp.logsumexp(np.zeros((2, 0)), axis=1, keepdims=True).shape == (2, 1)


def test_segments_are_reduced_each_for_itself():
    assert nnp.segment_sum(X, IDS).shape == (3, 4)
    np.testing.assert_allclose(np.asarray(nnp.segment_sum(X, IDS, 4)), [X[1], 0 * X[0], X[0] + X[2], 0 * X[0]])
    np.testing.assert_allclose(np.asarray(nnp.segment_prod(X, IDS)), [X[1], 0 * X[0] + 1, X[0] * X[2]])
    np.testing.assert_allclose(np.asarray(nnp.segment_max(X, IDS))[2], np.maximum(X[0], X[2]))
    np.testing.assert_allclose(np.asarray(nnp.segment_min(X, IDS))[1], np.inf)
    assert nnp.segment_max(np.array([3, 4], np.int8), [1, 1]).tolist() == [-128, 4]


def test_segments_out_of_range_raise_or_are_dropped():
    with pytest.raises(OutOfBoundsError):
        nnp.segment_sum(X, IDS, 2)
    np.testing.assert_allclose(np.asarray(nnp.segment_sum(X, IDS, 2, mode="drop"))[0], X[1])


SEGMENTS = (nnp.segment_sum, nnp.segment_prod, nnp.segment_max, nnp.segment_min)


def _sum_of_squares(segment, n, mode, data, ids):
    return (segment(data, ids, n, mode=mode)[:2] ** 2).sum()


@pytest.mark.parametrize("segment", SEGMENTS)
@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_a_negative_segment_id_is_out_of_range_in_each_mode(segment, dtype):
    data, ids = nnp.asarray([2.0, 3.0, 5.0, 7.0]), nnp.asarray([0, -1, 1, -9], dtype)
    for n in (2, 300):
        alike = {"drop": [0, n, 1, n], "clip": [0, 0, 1, 0], "wrap": [0, n - 1, 1, -9 % n]}
        for mode, others in alike.items():
            want = segment(data, np.array(others), n, mode=mode)
            slope = nnc.grad(partial(_sum_of_squares, segment, n, mode))
            for run in (segment, nnc.compile(segment, static_argnums=2, static_argnames="mode")):
                np.testing.assert_array_equal(run(data, ids, n, mode=mode), want)
            for run in (slope, nnc.compile(slope)):
                np.testing.assert_array_equal(run(data, ids), slope(data, nnp.asarray(others)))
        for run in (segment, nnc.compile(segment, static_argnums=2)):
            with pytest.raises(OutOfBoundsError, match="out of range"):
                run(data, ids, n)


def test_a_known_negative_segment_id_is_named():
    with pytest.raises(OutOfBoundsError, match="segment_max: segment id -1 is out of range for 2 segments"):
        nnp.segment_max([1.0, 2.0], [1, -1])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.segment_sum(X, [0, 1]), ShapeError, "segment_sum: segment_ids must be a vector"),
        (lambda: nnp.segment_sum(X, IDS, -1), ArgumentError, "segment_sum: num_segments is -1"),
        (lambda: nnp.segment_max([1, 2], [0, np.nan]), DTypeError, "segment_max: segment_ids must be integers"),
        (lambda: nnp.segment_sum([1, 2], [True, True]), DTypeError, "segment_sum: segment_ids must be integers"),
        (lambda: nnp.erf(1j), DTypeError, "erf: x must be floating-point"),
        (lambda: nnp.polygamma(-1, 1.0), ArgumentError, "polygamma: there is no derivative"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_logistic_beta_and_logarithmic_terms_agree_with_scipy():
    p, a, b = np.linspace(0.01, 0.99, 9), np.linspace(0.5, 4, 9), np.linspace(3, 0.2, 9)
    wide = np.array([-800.0, -5.0, 0.0, 5.0, 800.0])
    np.testing.assert_allclose(nnp.logit(p), scipy.special.logit(p), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(nnp.expit(wide), scipy.special.expit(wide), rtol=1e-12)
    np.testing.assert_allclose(nnp.betaln(a, b), scipy.special.betaln(a, b), rtol=1e-12, atol=1e-14)
    assert nnp.gammaln is nnp.lgamma
    x, y = (v.ravel() for v in np.meshgrid([0.0, -0.0, 2.0, np.nan, np.inf], [0.0, -1.0, -2.0, 0.5, np.inf, np.nan]))
    for name in ("xlogy", "xlog1py"):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(getattr(nnp, name)(x, y), getattr(scipy.special, name)(x, y), rtol=1e-12)


def test_slopes_of_special_functions_are_right_also_where_they_could_fail():
    a, b = np.array([0.6, 2.5]), np.array([1.5, 0.7])
    for function in (nnp.betaln, nnp.xlogy, nnp.xlog1py):
        nnc.testing.check_grads(function, (a, b), order=2)
    for function in (nnp.expit, nnp.logit, nnp.i0, nnp.i1, nnp.i0e, nnp.i1e):
        nnc.testing.check_grads(function, (a / 4,), order=2)
    assert [float(g) for g in nnc.grad(nnp.xlogy, (0, 1))(0.0, 0.0)] == [0, 0]
    assert [float(g) for g in nnc.grad(nnp.xlog1py, (0, 1))(0.0, -1.0)] == [0, 0]
    assert float(nnc.grad(nnp.xlogy)(0.0, 2.0)) == pytest.approx(np.log(2))
    assert float(nnc.grad(nnp.i1e)(0.0)) == 0.5


@pytest.mark.parametrize("values", [[1.0, np.nan, -np.inf], [np.nan, -1e4, np.inf], [-np.inf, -np.inf]])
@pytest.mark.filterwarnings("ignore:.*was traced and called only once")
def test_derivatives_of_logsumexp_agree_eagerly_and_compiled(values):
    x = nnp.asarray(values)
    for slope in (nnc.grad(nnp.logsumexp), lambda x: nnc.jvp(nnp.logsumexp, (x,), (nnp.ones_like(x),))[1]):
        np.testing.assert_array_equal(np.asarray(slope(x)), np.asarray(nnc.compile(slope)(x)))
    if np.isnan(values).any():
        assert np.isnan(np.asarray(nnc.grad(nnp.logsumexp)(x))).all()
