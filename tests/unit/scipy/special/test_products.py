"""Factorials, binomial coefficients and rising powers, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import ArgumentError, UnsupportedError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import check_same


def test_factorials_agree_with_scipy() -> None:
    check_same(sp.factorial, scipy.special.factorial, [*range(-2, 172), 2.5, np.nan, np.inf], ulps=6)


def test_rising_powers_agree_with_scipy_of_negative_numbers_too() -> None:
    z, m = map(np.ravel, np.meshgrid([0.3, 2, 7.5, -2, -2.5, 40, 0], [0, 1, 3, -1, -2.5, 0.7, 20, -3]))
    check_same(sp.poch, scipy.special.poch, z, m, ulps=300)
    np.testing.assert_allclose(
        sp.poch(1e4, np.array([3.0, -3])), [1e4 * 10001 * 10002, 1 / 9999 / 9998 / 9997], rtol=4e-15
    )
    np.testing.assert_allclose(sp.poch(1e15, np.array([2.0, 0.5])), [1e15 * (1e15 + 1), 1e15**0.5], rtol=4e-15)


def test_binomial_coefficients_agree_with_scipy() -> None:
    n, k = map(np.ravel, np.meshgrid([*range(0, 60, 7), -1, 2.5, 400], [0, 1, 2, 5, 13, 40, -1, 1.5]))
    check_same(sp.comb, scipy.special.comb, n, k, ulps=4000)  # of 400 things it subtracts logarithms
    whole = scipy.special.comb(6, np.arange(9), repetition=True)
    np.testing.assert_allclose(sp.comb(6.0, np.arange(9.0), repetition=True), whole, rtol=1e-6)


def test_logarithms_of_gamma_functions_agree_with_scipy() -> None:
    x = np.concatenate([np.linspace(0.1, 40, 50), [0, np.inf, np.nan, -1.5]])
    np.testing.assert_allclose(sp.loggamma(x), scipy.special.loggamma(x), rtol=1e-13, atol=1e-14)
    for d in (1, 2, 5):
        a = np.array([2.6, 9.0, 30.5])
        np.testing.assert_allclose(sp.multigammaln(a, d), scipy.special.multigammaln(a, d), rtol=1e-13)
    assert np.isnan(np.asarray(sp.multigammaln(1.0, 4)))


def test_derivatives_agree_with_differences() -> None:
    check_grads(sp.poch, (np.array([0.3, 9.1, 200.0, -2.3]), np.array([0.31, 2.1, -0.5, 0.6])), order=2)
    check_grads(sp.comb, (np.array([3.3, 10.1]), np.array([0.31, 2.1])), order=2)
    check_grads(lambda a: sp.multigammaln(a, 3), (np.array([1.5, 7.0]),), order=2)
    check_grads(nnc.compile(sp.factorial), (np.array([0.5, 7.0]),), order=1)
    check_grads(sp.loggamma, (np.array([0.5, 7.0]),), order=2)


def test_mistakes_are_worded() -> None:
    with pytest.raises(UnsupportedError, match="factorial: exact=True"):
        sp.factorial(3, exact=True)
    with pytest.raises(ArgumentError, match="multigammaln: d is 0"):
        sp.multigammaln(3.0, 0)
