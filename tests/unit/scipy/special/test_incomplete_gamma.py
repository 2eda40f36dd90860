"""Incomplete gamma functions, against stored numbers and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import DTypeError, ShapeError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import check_derivatives, check_same, check_stored, derivative

names = pytest.mark.parametrize("name", ["gammainc", "gammaincc"])


@names
def test_values_and_derivatives_by_both_operands_have_all_digits(name: str) -> None:
    check_stored(getattr(sp, name), name, 150)
    check_derivatives(getattr(sp, name), name, {"1,0": 60, "0,1": 30, "2,0": 300, "1,1": 150, "0,2": 150})


@names
def test_values_agree_with_scipy_in_all_regions(name: str) -> None:
    rng = np.random.default_rng(3)
    a = 10 ** rng.uniform(-4, 3, 400)
    x = a * rng.uniform(0.1, 2.5, 400)
    ours, peer = np.asarray(getattr(sp, name)(a, x)), getattr(scipy.special, name)(a, x)
    np.testing.assert_allclose(ours, peer, rtol=3e-12, atol=1e-280)
    near = 10 ** rng.uniform(3, 12, 200)  # where SciPy sums too few terms, four deviations away
    x = near + rng.normal(size=200) * np.sqrt(near)
    np.testing.assert_allclose(getattr(sp, name)(near, x), getattr(scipy.special, name)(near, x), rtol=1e-12)


@names
def test_ends_are_as_in_scipy(name: str) -> None:
    edges = np.array([0, 0.5, 1, 2, np.inf, np.nan, -1, -0.0])
    a, x = map(np.ravel, np.meshgrid(edges, edges))
    check_same(getattr(sp, name), getattr(scipy.special, name), a, x, ulps=300)  # SciPy's Q(½, 1) is 260 off


def test_huge_parameters_give_the_normal_distribution() -> None:
    a = 10.0 ** np.arange(14, 300, 30)
    np.testing.assert_allclose(sp.gammainc(a, a), 0.5, rtol=1e-7)
    assert np.asarray(sp.gammainc(a, a * 1.5)).tolist() == [1] * len(a)
    assert np.asarray(sp.gammaincc(a, a * 1.5)).tolist() == [0] * len(a)


@names
def test_derivatives_agree_with_differences(name: str) -> None:
    a, x = np.array([0.4, 1.0, 3.0, 50.0]), np.array([0.3, 2.0, 2.5, 47.0])
    check_grads(nnc.compile(getattr(sp, name)), (a, x), order=1)


def test_derivatives_at_zero_are_those_of_the_power() -> None:
    slopes = nnc.vmap(derivative(sp.gammainc, "0,1"))(np.array([0.5, 1.0, 2.0]), np.zeros(3))
    assert slopes.tolist() == [np.inf, 1, 0]
    assert float(derivative(sp.gammainc, "1,0")(2.0, 0.0)) == 0


@names
def test_mistakes_are_worded(name: str) -> None:
    with pytest.raises(DTypeError, match=f"{name}: x must be floating-point"):
        getattr(sp, name)(1j, 1.0)
    with pytest.raises(ShapeError, match=name):
        getattr(sp, name)(np.ones(2), np.ones(3))
