"""Bessel functions of all orders up to one, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import ArgumentError, DTypeError
from nnc.testing import check_grads

Z = np.concatenate([np.linspace(-60, 60, 121), [0, 1e-300, 1e-8, 999, 1001, -1500, 1e5, 3e7]])


@pytest.mark.parametrize("v", [0, 1, 7, 40])
def test_all_orders_agree_with_scipy(v: int) -> None:
    want = np.stack([scipy.special.jv(k, Z) for k in range(v + 1)])
    for run in (lambda z: sp.bessel_jn(z, v=v), nnc.compile(lambda z: sp.bessel_jn(z, v=v))):
        np.testing.assert_allclose(run(Z), want, rtol=1e-13, atol=2e-15)
    mapped = nnc.vmap(lambda z: sp.bessel_jn(z, v=v))(Z[:9])
    np.testing.assert_allclose(mapped, want[:, :9].T, rtol=1e-13, atol=2e-15)


def test_ends_and_the_number_of_steps() -> None:
    ends = np.asarray(sp.bessel_jn(np.array([np.inf, -np.inf, np.nan, 0.0]), v=1))
    assert ends[:, :2].tolist() == [[0, 0], [0, 0]] and np.isnan(ends[:, 2]).all() and ends[:, 3].tolist() == [1, 0]
    few = sp.bessel_jn(np.float64(2.0), v=1, n_iter=6)
    np.testing.assert_allclose(few, [scipy.special.j0(2), scipy.special.j1(2)], rtol=1e-2)
    assert sp.bessel_jn(1, v=0).dtype == np.float32 and sp.bessel_jn(np.ones((2, 3)), v=4).shape == (5, 2, 3)


def test_derivatives_agree_with_differences() -> None:
    z = np.array([0.3, 4.0, -11.0, 0.0])
    check_grads(lambda z: sp.bessel_jn(z, v=3), (z,), order=1)
    check_grads(lambda z: sp.bessel_jn(z, v=0), (z,), order=2, modes=("fwd",))


def test_mistakes_are_worded() -> None:
    with pytest.raises(ArgumentError, match="bessel_jn: v is -1"):
        sp.bessel_jn(1.0, v=-1)
    with pytest.raises(ArgumentError, match="bessel_jn: n_iter is 0"):
        sp.bessel_jn(1.0, v=1, n_iter=0)
    with pytest.raises(DTypeError, match="bessel_jn: z must be floating-point"):
        sp.bessel_jn(1j, v=1)
