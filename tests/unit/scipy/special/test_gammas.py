"""Gamma and beta functions, against stored numbers and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.numpy as nnp
import nnc.scipy.special as sp
from nnc.errors import DTypeError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import check_derivatives, check_same, check_stored

BOUNDS = {  # units in the last place of values, first and second derivatives
    "gamma": (6, 80, 200),
    "digamma": (6, 6, 6),
    "betaln": (8, 16, 16),
    "beta": (60, 400, 600),
}
names = pytest.mark.parametrize("name", BOUNDS)


@names
def test_values_and_derivatives_have_all_digits(name: str) -> None:
    values, first, second = BOUNDS[name]
    check_stored(getattr(sp, name), name, values, least=1.0 if name == "betaln" else 0.0)
    orders = ("1", "2") if name in ("gamma", "digamma") else ("1,0", "0,1", "2,0", "1,1", "0,2")
    bounds = {order: first if order in ("1", "1,0", "0,1") else second for order in orders}
    check_derivatives(getattr(sp, name), name, bounds, least=1.0 if name == "betaln" else 0.0)


def test_gamma_agrees_with_scipy() -> None:
    x = np.concatenate([np.linspace(-9.97, 30, 301), [0, -0.0, -1, -2, np.inf, -np.inf, np.nan, 1e300, -1e300, 180]])
    check_same(sp.gamma, scipy.special.gamma, x, ulps=16)
    check_same(sp.gammasgn, scipy.special.gammasgn, x)


def test_beta_functions_agree_with_scipy_at_poles_and_infinities() -> None:
    edges = np.array([0, 1, 2.5, -1, -2, -0.5, -2.5, 1e-300, 200.0])
    a, b = map(np.ravel, np.meshgrid(edges, edges))
    check_same(sp.betaln, scipy.special.betaln, a, b, ulps=300, least=1.0)  # of negative numbers log Γ cancels
    regular = ~((a <= 0) & (a == np.floor(a)) & (b <= 0) & (b == np.floor(b)))  # of two poles the sign says nothing
    # SciPy takes the exponential of differences of large logarithms
    check_same(
        lambda a, b: abs(sp.beta(a, b)), lambda a, b: abs(scipy.special.beta(a, b)), a[regular], b[regular], ulps=2000
    )
    assert sp.betaln(np.inf, 2.0) == sp.betaln(np.inf, np.inf) == -np.inf and sp.beta(np.inf, 2.0) == 0
    assert np.isnan(np.asarray(sp.betaln(np.array([np.nan, 1.0]), np.array([0.0, np.nan])))).all()
    assert float(sp.beta(-2.0, 1.0)) == -0.5 and float(sp.beta(3.0, -3.5)) == pytest.approx(scipy.special.beta(3, -3.5))
    assert sp.betaln is nnp.betaln


@pytest.mark.slow
def test_derivatives_agree_with_differences() -> None:
    x = np.array([0.3, 1.7, 9.2, -0.6])
    check_grads(sp.gamma, (x,), order=2)
    check_grads(sp.beta, (np.abs(x), x[::-1] + 2), order=2)
    check_grads(sp.betaln, (np.abs(x), np.array([20.0, 0.2, 11.0, 3.0])), order=2)
    assert float(nnc.grad(sp.gammasgn)(np.float64(-1.5))) == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_results_have_the_dtype_of_the_operands(dtype: str) -> None:
    x = nnp.asarray([1.5, 0.25], dtype)
    assert sp.gamma(x).dtype == sp.beta(x, 2).dtype == sp.betaln(x, x).dtype == sp.gammainc(x, x).dtype == dtype
    assert sp.gamma(3).dtype == np.float32


@pytest.mark.parametrize("name", ["gamma", "gammasgn"])
def test_complex_operands_are_refused(name: str) -> None:
    with pytest.raises(DTypeError, match=f"{name}: x must be floating-point"):
        getattr(sp, name)(1j)
