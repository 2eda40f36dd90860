"""Cosine transforms agree with SciPy; Fourier transforms are those of nnc.numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

import nnc
import nnc.numpy as nnp
import nnc.scipy.fft as fft
from nnc.errors import ArgumentError
from nnc.testing import check_grads

RNG = np.random.default_rng(6)
X = RNG.normal(size=(3, 7))


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
def test_cosine_transforms_are_those_of_scipy(kind: int, norm: Any) -> None:
    for name in ("dct", "idct"):
        ours, theirs = getattr(fft, name), getattr(scipy.fft, name)
        for options in ({}, {"axis": 0}, {"n": 2}, {"n": 12, "axis": 0}, {"n": 5}):
            want = theirs(X, kind, norm=norm, **options)
            got = ours(X, kind, norm=norm, **options)
            np.testing.assert_allclose(np.asarray(got), want, rtol=0, atol=1e-14 * max(np.abs(want).max(), 1))
            narrow = ours(X.astype(np.float32), kind, norm=norm, **options)
            assert narrow.dtype == np.float32
            np.testing.assert_allclose(np.asarray(narrow), want, rtol=0, atol=1e-5)
        several, all_of = getattr(fft, name + "n"), getattr(scipy.fft, name + "n")
        for options in ({}, {"s": (4, 5)}, {"axes": (0,)}, {"axes": (1, 0), "s": (9, 2)}, {"s": (5,)}):
            want = all_of(X, kind, norm=norm, **options)
            np.testing.assert_allclose(np.asarray(several(X, kind, norm=norm, **options)), want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_inverses_compiled_mapped_and_differentiated(kind: int) -> None:
    back = nnc.compile(lambda x: fft.idctn(fft.dctn(x, kind), kind))(X)
    np.testing.assert_allclose(np.asarray(back), X, rtol=0, atol=1e-14)
    rows = nnc.vmap(lambda x: fft.dct(x, kind))(X)
    np.testing.assert_allclose(np.asarray(rows), scipy.fft.dct(X, kind), rtol=0, atol=1e-13)
    check_grads(lambda x: fft.dct(x, kind, norm="ortho"), (X,), order=1, rtol=1e-5)
    (turned,) = nnc.linear_transpose(lambda x: fft.dct(x, kind, norm="ortho"), X)(fft.dct(X, kind, norm="ortho"))
    np.testing.assert_allclose(np.asarray(turned), X, rtol=0, atol=1e-14)  # it is orthogonal


def test_complex_numbers_integers_and_single_points() -> None:
    z = X + 1j * X[::-1]
    np.testing.assert_allclose(np.asarray(fft.dct(z)), scipy.fft.dct(z), rtol=0, atol=1e-13)
    assert fft.dct(np.arange(4)).dtype == np.float32
    for kind in (2, 3, 4):
        np.testing.assert_allclose(np.asarray(fft.dct(np.array([3.0]), kind)), scipy.fft.dct(np.array([3.0]), kind))


def test_fourier_transforms_are_those_of_numpy() -> None:
    assert fft.fft is nnp.fft.fft and fft.irfftn is nnp.fft.irfftn
    assert set(nnp.fft.__all__) <= set(fft.__all__)


MISTAKES = {
    "type": (lambda: fft.dct(X, 5), "type is 5"),
    "norm": (lambda: fft.idct(X, norm="half"), "norm is 'half'"),
    "points": (lambda: fft.dct(X, 1, n=1), "would have 1 points"),
    "nothing": (lambda: fft.dct(X[:, :0]), "would have 0 points"),
    "sizes": (lambda: fft.dctn(X, s=(1, 2, 3)), "s is"),
    "sizes and axes": (lambda: fft.idctn(X, s=(3,), axes=(0, 1)), "s is"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_worded(name: str) -> None:
    call, text = MISTAKES[name]
    with pytest.raises(ArgumentError, match=text) as found:
        call()
    assert "Fix:" in str(found.value)
