"""Sine, cosine and Fresnel's integrals, and Dawson's function, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.scipy.special as sp
from nnc.errors import DTypeError
from nnc.testing import check_grads
from tests.unit.scipy.special.checks import check_modes, check_same

X = np.concatenate([np.linspace(0.01, 12, 120), 10 ** np.linspace(-6, 5, 60), [1.2999, 1.3, 2.4999, 2.5]])
EDGES = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1.0, -3.0, 1e16])


@pytest.mark.parametrize("name", ["sici", "fresnel"])
@pytest.mark.parametrize("part", [0, 1])
def test_pairs_agree_with_scipy(name: str, part: int) -> None:
    ours, peer = getattr(sp, name), getattr(scipy.special, name)
    x = X[X < 12.5]  # beyond, SciPy rounds x² before it takes the sine
    check_modes(lambda x: ours(x)[part], [x], peer(x)[part], 8, least=1.0)
    check_same(lambda x: ours(x)[part], lambda x: peer(x)[part], EDGES, ulps=4, least=1.0)


def test_dawsons_function_agrees_with_scipy() -> None:
    x = np.concatenate([X, -X])
    check_modes(sp.dawsn, [x], scipy.special.dawsn(x), 32)
    check_same(sp.dawsn, scipy.special.dawsn, [*EDGES, 1e200], ulps=4)


@pytest.mark.slow
def test_derivatives_agree_with_differences() -> None:
    x = np.array([0.3, 2.0, 4.5])
    check_grads(sp.sici, (x,), order=2)
    check_grads(sp.fresnel, (np.append(x, -2.0),), order=2)
    check_grads(sp.dawsn, (np.append(x, -14.5),), order=2)
    assert float(nnc.grad(lambda x: sp.sici(x)[0])(0.0)) == 1


def test_dtypes_are_kept_and_complex_operands_refused() -> None:
    for name in ("sici", "fresnel", "dawsn"):
        for dtype in ("float16", "float32", "float64"):
            results = getattr(sp, name)(nnc.numpy.asarray([1.0], dtype))
            assert all(y.dtype == dtype for y in nnc.tree.leaves(results))
        with pytest.raises(DTypeError, match=f"{name}: x must be floating-point"):
            getattr(sp, name)(1j)
