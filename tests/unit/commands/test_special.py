"""Special functions against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
from nnc.commands.special import erfinv, lgamma, polygamma
from nnc.errors import ArgumentError, DTypeError


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-14), ("float32", 1e-6)])
def test_erfinv_is_exact_up_to_the_edges(dtype: str, rtol: float) -> None:
    x = np.concatenate([np.linspace(-1, 1, 2001), 1 - 10.0 ** -np.arange(1, 16), 10.0 ** -np.arange(1, 20)]).astype(
        dtype
    )
    np.testing.assert_allclose(np.asarray(erfinv(x)), scipy.special.erfinv(x.astype(float)), rtol=rtol)
    assert np.isnan(np.asarray(erfinv(np.asarray([1.5, np.nan], dtype)))).all()


def test_lgamma_has_all_digits_beside_its_zeros() -> None:
    """Numbers of mpmath; SciPy's are wrong in the 10th digit of the first."""
    x = np.array([0.5, 0.99998, 1.0, 1.00035, 1.5, 1.9995, 2.0, 2.0331659872627545, 2.5])
    wanted = [
        0.5723649429247001, 1.1544642288061102e-05, 0.0, -0.0002019247476793211, -0.1207822376352452, -0.0002113115423705301, 0.0,
        0.014374335496355167, 0.2846828704729192,
    ]  # fmt: skip
    np.testing.assert_allclose(lgamma(x), wanted, rtol=4e-16)
    np.testing.assert_allclose(nnc.compile(lgamma)(x), wanted, rtol=4e-16)


def test_lgamma_and_its_derivatives_agree_with_scipy() -> None:
    x = np.concatenate([np.linspace(-8.03, 40, 301), 10.0 ** np.arange(-5, 8)])
    np.testing.assert_allclose(np.asarray(lgamma(x)), scipy.special.gammaln(x), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(polygamma(x, n=0)), scipy.special.digamma(x), rtol=1e-10, atol=1e-10)
    positive = x[x > 0]
    for n in (1, 2, 3):
        np.testing.assert_allclose(
            np.asarray(polygamma(positive, n=n)), scipy.special.polygamma(n, positive), rtol=1e-12
        )


def test_poles_are_infinite_or_nan() -> None:
    assert np.asarray(lgamma(np.asarray([0.0, -1.0]))).tolist() == [np.inf, np.inf]
    assert np.isnan(np.asarray(polygamma(np.asarray([0.0, -1.0]), n=0))).all()


def test_wrong_operands_are_refused() -> None:
    with pytest.raises(DTypeError, match="floating-point"):
        erfinv(np.asarray([0, 1]))
    with pytest.raises(ArgumentError, match="order -1"):
        polygamma(np.ones(1), n=-1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_slope_of_the_scaled_bessel_function_at_0_is_one_half(dtype: str) -> None:
    slope = nnc.grad(lambda x: nnc.scipy.special.i1e(x))
    for x in (0.0, -0.0):
        for run in (slope, nnc.compile(slope)):
            assert float(run(np.asarray(x, dtype))) == pytest.approx(0.5, rel=4 * float(np.finfo(dtype).eps))
