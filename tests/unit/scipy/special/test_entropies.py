"""Entropies, transformations and shares, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import DTypeError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import check_close, check_same

RNG = np.random.default_rng(2)
P, Q = 10 ** RNG.uniform(-3, 3, (2, 100))


def test_entropies_agree_with_scipy_at_edges_too() -> None:
    edges = [0.0, -0.0, -1, 0.5, 1, 3, np.nan]
    check_same(sp.entr, scipy.special.entr, [*edges, np.inf], ulps=1)
    for name in ("rel_entr", "kl_div"):
        check_same(getattr(sp, name), getattr(scipy.special, name), *map(np.ravel, np.meshgrid(edges, edges)), ulps=4)
        np.testing.assert_allclose(
            getattr(sp, name)(P, Q), getattr(scipy.special, name)(P, Q), rtol=1e-11
        )  # p and q cancel in it


def test_divergences_of_neighbours_keep_their_digits() -> None:
    e = 2.0 ** -np.arange(2, 30)
    want = e * e / 2 - e**3 / 6 + e**4 / 12 - e**5 / 20  # and less than e⁶ / 30
    np.testing.assert_allclose(sp.kl_div(1 + e[8:], 1.0), want[8:], rtol=1e-12)
    check_close(sp.rel_entr(1 + e, 1.0), (1 + e) * np.log1p(e), 2, [e])


@pytest.mark.parametrize("name", ["boxcox", "boxcox1p"])
def test_box_and_coxs_transformation_agrees_with_scipy(name: str) -> None:
    power = RNG.uniform(-3, 3, 100)
    check_same(getattr(sp, name), getattr(scipy.special, name), P, power, ulps=16)
    check_same(getattr(sp, name), getattr(scipy.special, name), P, power * 1e-9, ulps=4)
    with np.errstate(all="ignore"):
        check_same(getattr(sp, name), getattr(scipy.special, name), [1.0, 2, 0.5, np.nan], [0.0, 0, 0, 1], ulps=1)


def test_derivatives_agree_with_differences_also_at_power_zero() -> None:
    x, y = np.array([0.3, 1.1, 2.5]), np.array([0.31, 2.0, 0.5])
    check_grads(sp.entr, (x,), order=2)
    check_grads(sp.rel_entr, (x, y), order=2)
    check_grads(sp.kl_div, (x, y), order=2)
    check_grads(sp.boxcox, (x, np.array([0.5, 0.0, -1e-5])), order=2)
    check_grads(nnc.compile(sp.boxcox1p), (x, np.array([0.5, 0.0, -1.0])), order=1)


def test_softmax_is_over_all_axes_by_default() -> None:
    x = RNG.normal(size=(3, 4))
    for axis in (None, 0, 1, (0, 1)):
        np.testing.assert_allclose(sp.softmax(x, axis=axis), scipy.special.softmax(x, axis=axis), rtol=1e-13)
        np.testing.assert_allclose(sp.log_softmax(x, axis=axis), scipy.special.log_softmax(x, axis=axis), rtol=1e-13)


@pytest.mark.parametrize("name", ["rel_entr", "kl_div", "boxcox", "boxcox1p"])
def test_complex_operands_are_refused(name: str) -> None:
    with pytest.raises(DTypeError, match=f"{name}: x must be floating-point"):
        getattr(sp, name)(1j, 1.0)
