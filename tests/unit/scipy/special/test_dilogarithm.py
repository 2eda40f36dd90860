"""Spence's and Owen's functions, against stored numbers and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import DTypeError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import check_derivatives, check_same, check_stored


def test_spences_function_and_its_derivatives_have_all_digits() -> None:
    check_stored(sp.spence, "spence", 4)
    check_derivatives(sp.spence, "spence", {"1": 8, "2": 40})
    check_same(sp.spence, scipy.special.spence, [0.0, -1, 1, np.nan])
    assert float(nnc.grad(sp.spence)(np.float64(1))) == -1 and sp.spence(np.inf) == -np.inf


def test_owens_function_agrees_with_scipy_and_closed_forms() -> None:
    rng = np.random.default_rng(1)
    h, a = rng.uniform(-6, 6, 300), 10 ** rng.uniform(-3, 2, 300) * rng.choice([-1, 1], 300)
    np.testing.assert_allclose(sp.owens_t(h, a), scipy.special.owens_t(h, a), rtol=1e-12, atol=1e-300)
    edges = [0, -0.0, 1, np.inf, -np.inf, np.nan, 50, -0.5]
    check_same(sp.owens_t, scipy.special.owens_t, *map(np.ravel, np.meshgrid(edges, edges)), ulps=8)
    np.testing.assert_allclose(sp.owens_t(0.0, a), np.arctan(a) / (2 * math.pi), rtol=1e-15)
    np.testing.assert_allclose(sp.owens_t(h, 1.0), scipy.special.ndtr(h) * scipy.special.ndtr(-h) / 2, rtol=2e-14)


def test_derivatives_agree_with_differences() -> None:
    check_grads(sp.spence, (np.array([0.3, 1.0, 2.5]),), order=2)
    check_grads(sp.owens_t, (np.array([0.3, 1.0, -2.5]), np.array([0.5, 2, -0.3])), order=2)


def test_complex_operands_are_refused() -> None:
    with pytest.raises(DTypeError, match="spence: x must be floating-point"):
        sp.spence(1j)
    with pytest.raises(DTypeError, match="owens_t: x must be floating-point"):
        sp.owens_t(1j, 1.0)
