"""Spherical harmonics, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import DTypeError, UnsupportedError
from nnc.testing import check_grads

N, M = map(np.ravel, np.meshgrid(np.arange(12), np.arange(-12, 13)))


def test_all_orders_agree_with_scipy_at_once_compiled_and_mapped() -> None:
    for theta, phi in ((1.1, -2.3), (0.0, 0.4), (3.0, 7.0)):
        want = scipy.special.sph_harm_y(N, M, theta, phi)
        ours = lambda n, m, theta=theta, phi=phi: sp.sph_harm_y(n, m, np.float64(theta), np.float64(phi))
        np.testing.assert_allclose(ours(N, M), want, atol=2e-14)
        np.testing.assert_allclose(nnc.vmap(ours)(N[::20], M[::20]), want[::20], atol=2e-14)
    by_angles = nnc.compile(lambda theta, phi: sp.sph_harm_y(N, M, theta, phi, n_max=11))
    np.testing.assert_allclose(by_angles(np.float64(3.0), np.float64(7.0)), want, atol=2e-14)
    high = sp.sph_harm_y(300, 150, np.float64(1.1), np.float64(0.2))
    np.testing.assert_allclose(high, scipy.special.sph_harm_y(300, 150, 1.1, 0.2), rtol=1e-11)


def test_degrees_outside_are_zero_or_nan_and_dtypes_follow_the_angles() -> None:
    assert sp.sph_harm_y(2, 3, 0.5, 0.5) == 0
    assert np.isnan(np.asarray(sp.sph_harm_y(3, 1, 0.5, 0.5, n_max=2))).all()
    assert sp.sph_harm_y(2, 1, 0.5, 0.5).dtype == np.complex64
    assert sp.sph_harm_y(2, 1, np.ones(3), 0.5).dtype == np.complex128


def test_derivatives_by_angles_agree_with_differences() -> None:
    def parts(theta, phi):
        y = sp.sph_harm_y(N[::9], M[::9], theta, phi)
        return nnc.numpy.real(y), nnc.numpy.imag(y)

    check_grads(parts, (np.float64(0.7), np.float64(0.3)), order=2)


def test_mistakes_are_worded() -> None:
    with pytest.raises(DTypeError, match="sph_harm_y: n must be integers"):
        sp.sph_harm_y(1.5, 0, 0.5, 0.5)
    with pytest.raises(UnsupportedError, match="sph_harm_y: diff_n is given"):
        sp.sph_harm_y(1, 0, 0.5, 0.5, diff_n=1)
