"""The incomplete beta function, against stored numbers and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import DTypeError, ShapeError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import NUMBERS, check_derivatives, check_same, check_stored, derivative


def test_values_have_all_digits() -> None:
    check_stored(sp.betainc, "betainc", 250)


@pytest.mark.parametrize("order", [order for order in NUMBERS["betainc"] if order != "0,0,0"])
def test_derivatives_by_all_operands_have_all_digits(order: str) -> None:
    check_derivatives(sp.betainc, "betainc", {order: 30 if order.count("0") == 2 and "1" in order else 3000})


def test_values_agree_with_scipy_in_all_regions() -> None:
    rng = np.random.default_rng(5)
    a, b = 10 ** rng.uniform(-3, 4, (2, 600))
    x = np.clip(rng.beta(a, b), 1e-300, 1 - 1e-15)
    np.testing.assert_allclose(sp.betainc(a, b, x), scipy.special.betainc(a, b, x), rtol=2e-12)
    large = 10 ** rng.uniform(3, 14, (2, 300))
    x = large[0] / large.sum(0) * (1 + rng.normal(size=300) / np.sqrt(large[0]))
    wanted = scipy.special.betainc(*large, x)
    np.testing.assert_allclose(sp.betainc(*large, x), wanted, rtol=1e-7)  # x, rounded, moves it by so much


def test_both_tails_add_up_to_one() -> None:
    a, b = 10.0 ** np.random.default_rng(5).uniform(-2, 9, (2, 300))
    x = 1 - (1 - a / (a + b))  # so that 1 - x has a float, too
    np.testing.assert_allclose(sp.betainc(a, b, x) + sp.betainc(b, a, 1 - x), 1, rtol=1e-14)


@pytest.mark.slow
def test_the_complement_is_scipys_in_all_regions_and_keeps_its_digits_near_0() -> None:
    rng = np.random.default_rng(6)
    a, b = 10 ** rng.uniform(-3, 4, (2, 600))
    x = np.clip(rng.beta(a, b), 1e-300, 1 - 1e-15)
    np.testing.assert_allclose(sp.betaincc(a, b, x), scipy.special.betaincc(a, b, x), rtol=2e-12)
    x = np.array([1e-6, 3.6e-5, 2e-4])
    np.testing.assert_allclose(sp.betaincc(0.5, 5e5, x), scipy.special.betaincc(0.5, 5e5, x), rtol=1e-13)
    edges, places = np.array([0, 1, 2.5, np.inf, -1, np.nan]), np.array([0, 0.3, 1, -0.1, 1.1, np.nan])
    check_same(sp.betaincc, scipy.special.betaincc, *map(np.ravel, np.meshgrid(edges, edges, places)), ulps=16)
    operands = (np.array([0.4, 3.0, 20.0]), np.array([0.7, 2.0, 11.0]), np.array([0.3, 0.8, 0.6]))
    check_grads(nnc.compile(sp.betaincc), operands, order=1)


def test_huge_parameters_end_and_give_steps() -> None:
    a = 10.0 ** np.arange(31, 300, 30)
    assert np.asarray(sp.betainc(a, a, 0.5)).tolist() == [0.5] * len(a)
    assert np.asarray(sp.betainc(a, a, 0.4)).tolist() == [0] * len(a)
    assert np.asarray(sp.betainc(a, 2 * a, 0.4)).tolist() == [1] * len(a)
    np.testing.assert_allclose(sp.betainc(2.0, a, 3 / a), scipy.special.gammainc(2, 3), rtol=1e-13)
    np.testing.assert_allclose(sp.betainc(1e15, 1e15, 0.5), 0.5, rtol=1e-15)


def test_ends_are_as_in_scipy() -> None:
    edges = np.array([0, 1, 2.5, np.inf, -1, np.nan])
    places = np.array([0, -0.0, 0.3, 1, -0.1, 1.1, np.nan])
    check_same(sp.betainc, scipy.special.betainc, *map(np.ravel, np.meshgrid(edges, edges, places)), ulps=16)


def test_derivatives_agree_with_differences() -> None:
    operands = (np.array([0.4, 3.0, 20.0]), np.array([0.7, 2.0, 11.0]), np.array([0.3, 0.8, 0.6]))
    check_grads(nnc.compile(sp.betainc), operands, order=1)


def test_derivatives_at_the_ends_are_those_of_the_powers() -> None:
    slope = nnc.vmap(derivative(sp.betainc, "0,0,1"))
    a, b = np.array([0.5, 1.0, 1.0, 2.0]), np.array([2.0, 3.0, 0.5, 1.0])
    assert slope(a, b, np.zeros(4)).tolist() == [np.inf, 3, 0.5, 0]
    assert slope(a, b, np.ones(4)).tolist() == [0, 0, np.inf, 2]


def test_results_have_the_dtype_of_the_operands() -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        assert sp.betainc(nnc.numpy.asarray([1.5], dtype), 2.0, 0.5).dtype == dtype
    assert sp.betainc(1, 2, 0.5).dtype == np.float32


def test_mistakes_are_worded() -> None:
    with pytest.raises(DTypeError, match="betainc: x must be floating-point"):
        sp.betainc(1.0, 1j, 0.5)
    with pytest.raises(ShapeError, match="betainc"):
        sp.betainc(np.ones(2), np.ones(3), 0.5)
