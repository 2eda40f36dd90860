"""Probabilities and quantiles of the normal distribution: 5 units in the last place, in the tails, too."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import DTypeError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import check_derivatives, check_same, check_stored, derivative

BOUNDS = {  # in units of the last place: of the values, of the first and of the second derivatives
    "ndtr": (5, 6, 6),
    "log_ndtr": (5, 6, 30),
    "ndtri": (4, 1000, 2000),  # exp(x² / 2)
    "erfcx": (4, 60, 300),
}
names = pytest.mark.parametrize("name", BOUNDS)


@names
def test_values_and_derivatives_have_all_digits(name: str) -> None:
    values, first, second = BOUNDS[name]
    check_stored(getattr(sp, name), name, values)
    check_derivatives(getattr(sp, name), name, {"1": first, "2": second})


@names
def test_values_agree_with_scipy_where_it_is_exact_and_at_special_arguments(name: str) -> None:
    centre = np.linspace(0.003, 0.997, 101) if name == "ndtri" else np.linspace(-3, 3, 101)
    check_same(getattr(sp, name), getattr(scipy.special, name), centre, ulps=32)  # it rounds x / √2
    special = [np.nan, np.inf, -np.inf, 0, -0.0, 1, -1, 2, 1e300, -1e300]
    check_same(getattr(sp, name), getattr(scipy.special, name), special, ulps=8)


@names
def test_derivatives_agree_with_differences(name: str) -> None:
    x = np.array([0.2, 0.7]) if name == "ndtri" else np.array([-2.0, -0.3, 0.6, 1.5])
    check_grads(getattr(sp, name), (x,), order=2)
    check_grads(nnc.compile(getattr(sp, name)), (x,), order=1)


def test_the_quantile_is_the_inverse_of_the_probability() -> None:
    p = 10.0 ** -np.arange(1, 300, 13)
    np.testing.assert_allclose(sp.ndtr(sp.ndtri(p)), p, rtol=1e-12)


def test_derivatives_at_the_ends_are_their_limits() -> None:
    ends = np.array([-np.inf, np.inf])
    assert nnc.vmap(derivative(sp.ndtr, "1"))(ends).tolist() == [0, 0]
    assert nnc.vmap(derivative(sp.ndtr, "2"))(ends).tolist() == [0, 0]
    assert nnc.vmap(derivative(sp.log_ndtr, "1"))(ends).tolist() == [np.inf, 0]
    assert nnc.vmap(derivative(sp.ndtri, "1"))(np.array([0.0, 1.0])).tolist() == [np.inf, np.inf]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_results_have_the_dtype_of_the_operand(dtype: str) -> None:
    x = nnc.numpy.asarray([-1.5, 0.25], dtype)
    for name in BOUNDS:
        assert getattr(sp, name)(x).dtype == dtype
    assert sp.ndtr(0.5).dtype == sp.ndtr(np.arange(3)).dtype == np.float32


@names
def test_complex_operands_are_refused(name: str) -> None:
    with pytest.raises(DTypeError, match=f"{name}: x must be floating-point"):
        getattr(sp, name)(1j)
