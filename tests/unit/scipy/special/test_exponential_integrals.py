"""Exponential integrals, against stored numbers and SciPy."""

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

EDGES = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1.0, 800])


def test_values_and_derivatives_have_all_digits() -> None:
    check_stored(sp.expi, "expi", 8)
    check_derivatives(sp.expi, "expi", {"1": 8, "2": 16})
    check_stored(sp.exp1, "exp1", 8)


@pytest.mark.filterwarnings("ignore:overflow")
def test_ends_are_as_in_scipy() -> None:
    check_same(sp.expi, scipy.special.expi, EDGES, ulps=8)
    check_same(sp.exp1, scipy.special.exp1, EDGES, ulps=4)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, 60, -1])
def test_all_orders_agree_with_scipy(n: int) -> None:
    x = np.concatenate([10 ** np.linspace(-6, 2, 81), EDGES])
    check_same(lambda x: sp.expn(n, x), lambda x: scipy.special.expn(n, x), x, ulps=32)


def test_orders_broadcast_and_map() -> None:
    n, x = np.arange(6), np.linspace(0.1, 8, 5)
    want = scipy.special.expn(n[:, None], x)
    np.testing.assert_allclose(sp.expn(n[:, None], x), want, rtol=1e-13)
    np.testing.assert_allclose(nnc.vmap(lambda k: sp.expn(k, x))(n), want, rtol=1e-13)


@pytest.mark.slow
def test_derivatives_agree_with_differences() -> None:
    x = np.array([0.3, 1.2, 4.0])
    check_grads(sp.exp1, (x,), order=2)
    check_grads(nnc.compile(sp.expi), (np.append(x, -2.0),), order=1)
    check_grads(lambda x: sp.expn(np.array([[0], [1], [2], [9]]), x), (x,), order=1)


def test_mistakes_are_worded_and_dtypes_kept() -> None:
    with pytest.raises(DTypeError, match="expn: n must be integers"):
        sp.expn(1.5, 2.0)
    with pytest.raises(DTypeError, match="expi: x must be floating-point"):
        sp.expi(1j)
    for dtype in ("float16", "float32", "float64"):
        assert sp.expn(2, nnp.asarray([1.0], dtype)).dtype == sp.expi(nnp.asarray([1.0], dtype)).dtype == dtype
