"""Kummer's and Gauss's functions, against stored numbers and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import DTypeError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import check_derivatives, check_stored


@pytest.mark.slow
def test_values_and_derivatives_by_all_operands_have_all_digits() -> None:
    check_stored(sp.hyp1f1, "hyp1f1", 200)
    check_derivatives(sp.hyp1f1, "hyp1f1", {"1,0,0": 60, "0,1,0": 60, "0,0,1": 60, "2,0,0": 300})


@pytest.mark.slow
def test_gausss_function_and_its_derivatives_by_all_operands_have_all_digits() -> None:
    check_stored(sp.hyp2f1, "hyp2f1", 2000)
    orders = {"1,0,0,0": 60, "0,1,0,0": 60, "0,0,1,0": 60, "0,0,0,1": 60}
    check_derivatives(sp.hyp2f1, "hyp2f1", orders)


def test_gausss_function_ends_as_in_scipy() -> None:
    points = [
        (1, 1, 3, 1),
        (1, 1, 1, 1),
        (-2, 3, 1.5, 4),
        (1, 2, -1, 0.5),
        (0.5, 0.5, 1, 0),
        (2.5, 1, 2, 1),
        (1, np.nan, 1, 0.5),
    ]
    operands = np.array(points, np.float64).T
    np.testing.assert_allclose(sp.hyp2f1(*operands), scipy.special.hyp2f1(*operands), rtol=1e-13)
    assert np.isnan(np.asarray(sp.hyp2f1(1.0, 2.0, 3.0, 1.5)))  # it is complex there


def test_values_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    a, b, x = rng.uniform(0.1, 10, 200), rng.uniform(0.1, 10, 200), rng.uniform(-8, 20, 200)
    np.testing.assert_allclose(sp.hyp1f1(a, b, x), scipy.special.hyp1f1(a, b, x), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(sp.hyp1f1(-3.0, 1.5, x), scipy.special.hyp1f1(-3, 1.5, x), rtol=1e-10, atol=1e-13)


def test_ends_and_special_cases() -> None:
    assert sp.hyp1f1(1.0, -1.0, 2.0) == np.inf and sp.hyp1f1(0.0, 2.0, 5.0) == 1 and sp.hyp1f1(3.0, 2.0, 0.0) == 1
    assert np.isnan(
        np.asarray(sp.hyp1f1(np.array([np.nan, 1, 1]), np.array([1, np.nan, 1]), np.array([1, 1, np.nan])))
    ).all()
    np.testing.assert_allclose(sp.hyp1f1(1.5, 1.5, np.array([-700.0, -20, 20])), np.exp([-700.0, -20, 20]), rtol=1e-12)


def test_derivatives_agree_with_differences() -> None:
    operands = (np.array([0.4, 2.5, -0.5]), np.array([1.3, 3.5, 1.5]), np.array([2.0, -4.0, 0.7]))
    check_grads(nnc.compile(sp.hyp1f1), operands, order=1)


def test_complex_operands_are_refused() -> None:
    with pytest.raises(DTypeError, match="hyp2f1: x must be floating-point"):
        sp.hyp2f1(1.0, 2.0, 1j, 0.5)
    with pytest.raises(DTypeError, match="hyp1f1: x must be floating-point"):
        sp.hyp1f1(1.0, 2.0, 1j)
