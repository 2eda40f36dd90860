"""Zeta functions and Bernoulli's numbers, against stored numbers and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import check_derivatives, check_stored


@pytest.mark.slow
def test_values_and_derivatives_of_both_functions_have_all_digits() -> None:
    check_stored(sp.zeta, "zeta", 10)
    check_derivatives(sp.zeta, "zeta", {"1,0": 20, "0,1": 20, "2,0": 40})
    check_stored(sp.zeta, "riemann", 100)  # the sine and the power of the reflection
    check_derivatives(sp.zeta, "riemann", {"1": 40, "2": 200})


def test_riemanns_function_agrees_with_scipy_far_below_zero_and_at_special_arguments() -> None:
    x = np.concatenate([-np.arange(0.0, 250, 12.3), [-2.0, -4, 1, np.inf, np.nan, 0]])
    np.testing.assert_allclose(sp.zeta(x), scipy.special.zeta(x), rtol=1e-12)


def test_negative_offsets_and_ends_agree_with_scipy() -> None:
    s, q = map(np.ravel, np.meshgrid([0.5, 1, 2, 3, 2.5], [-0.5, -3.7, -40.2, 0, -2, 2, np.inf]))
    np.testing.assert_allclose(sp.zeta(s, q), scipy.special.zeta(s, q), rtol=1e-13)
    assert np.asarray(sp.zeta(np.inf, np.array([0.5, 1, 2]))).tolist() == [np.inf, 1, 0]
    assert np.isnan(np.asarray(sp.zeta(np.array([np.nan, 1.0, 2.0]), np.array([2.0, np.nan, np.nan])))).all()
    assert np.isnan(nnc.grad(lambda s: sp.zeta(s, -0.5))(2.0))  # only whole powers of negative numbers are real


def test_derivatives_agree_with_differences() -> None:
    check_grads(sp.zeta, (np.array([1.5, 4.0]), np.array([0.3, 7.0])), order=1)
    check_grads(nnc.compile(lambda s: sp.zeta(s)), (np.array([-3.4, 0.6]),), order=1)
    check_grads(lambda q: sp.zeta(3.0, q), (np.array([-3.4, -0.6]),), order=1)


def test_bernoullis_numbers_agree_with_scipy() -> None:
    for n in (0, 1, 2, 30):
        np.testing.assert_allclose(
            sp.bernoulli(n), scipy.special.bernoulli(max(n, 2))[: n + 1].astype(np.float32), rtol=1e-6
        )
    assert np.isinf(np.asarray(sp.bernoulli(80))[80]) and sp.bernoulli(3).dtype == np.float32


def test_mistakes_are_worded() -> None:
    with pytest.raises(ArgumentError, match="bernoulli: n is -1"):
        sp.bernoulli(-1)
    with pytest.raises(ArgumentTypeError, match="bernoulli: n is 1.5"):
        sp.bernoulli(1.5)
    with pytest.raises(DTypeError, match="zeta: x must be floating-point"):
        sp.zeta(2j)


def test_polygamma_takes_arrays_of_orders() -> None:
    n, x = np.arange(6)[:, None], np.array([0.1, 0.5, 3.0, 100.0, -0.5, -1.5, -1.0, np.inf, np.nan])
    want = scipy.special.polygamma(n, x)
    for run in (sp.polygamma, nnc.compile(sp.polygamma)):
        np.testing.assert_allclose(run(n, x), want, rtol=1e-11)
    for order, row in enumerate(want):
        np.testing.assert_allclose(sp.polygamma(order, x), row, rtol=1e-11)
        np.testing.assert_allclose(nnc.vmap(sp.polygamma, in_axes=(None, 0))(order, x), row, rtol=1e-11)
    assert np.isnan(np.asarray(sp.polygamma(np.array([-1]), 1.0))).all()
    check_grads(lambda x: sp.polygamma(n[:3], x), (x[:4],), order=2, rtol=1e-4)
    with pytest.raises(DTypeError, match="polygamma: n must be integers"):
        sp.polygamma(1.5, 2.0)
