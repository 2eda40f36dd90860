from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(11)
F = RNG.normal(size=(4, 5))
PLACES = np.cumsum(RNG.uniform(0.5, 2, 5))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_convolution_and_correlation_of_all_lengths_agree_with_numpy(name, mode, same):
    for n in (1, 2, 3, 6):
        for m in (1, 2, 3, 6):
            a, v = F.ravel()[:n], F.ravel()[7 : 7 + m]
            same(getattr(nnp, name)(a, v, mode), getattr(np, name)(a, v, mode))
    for a, v in ((np.arange(5), np.array([1, 2])), (F[0] + 1j * F[1], F[2, :2] * 1j), (F[0, :2], F[0] + 1j)):
        same(getattr(nnp, name)(a, v, mode), getattr(np, name)(a, v, mode))


def test_slopes_agree_with_numpy(same):
    for edge_order in (1, 2):
        same(nnp.gradient(F, edge_order=edge_order), tuple(np.gradient(F, edge_order=edge_order)))
        same(nnp.gradient(F, 0.5, edge_order=edge_order), tuple(np.gradient(F, 0.5, edge_order=edge_order)))
        same(
            nnp.gradient(F, 2.0, PLACES, edge_order=edge_order),
            tuple(np.gradient(F, 2.0, PLACES, edge_order=edge_order)),
        )
        same(
            nnp.gradient(F, PLACES, axis=1, edge_order=edge_order),
            np.gradient(F, PLACES, axis=1, edge_order=edge_order),
        )
        same(
            nnp.gradient(F[0, :3], PLACES[:3], edge_order=edge_order),
            np.gradient(F[0, :3], PLACES[:3], edge_order=edge_order),
        )
    same(nnp.gradient(F[0, :2]), np.gradient(F[0, :2]))
    same(nnp.gradient(F, axis=(1, 0)), tuple(np.gradient(F, axis=(1, 0))))
    same(nnp.gradient(F + 1j * F[::-1], axis=0), np.gradient(F + 1j * F[::-1], axis=0))
    same(nnp.gradient(np.arange(4) ** 2), np.gradient(np.arange(4) ** 2))
    assert nnp.gradient(np.ones(3, np.float32)).dtype == nnp.float32


def test_differences_and_ends_agree_with_numpy(same):
    same(nnp.ediff1d(F), np.ediff1d(F))
    same(nnp.ediff1d(F, to_end=[1.0, 2.0], to_begin=0), np.ediff1d(F, to_end=[1.0, 2.0], to_begin=0))
    for axis in (0, 1):
        same(nnp.diff(F, axis=axis, prepend=0.0, append=F), np.diff(F, axis=axis, prepend=0.0, append=F))
    same(nnp.diff(np.arange(3), n=2, prepend=7), np.diff(np.arange(3), n=2, prepend=7))


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=8),
    st.sampled_from([2 * np.pi, 1.5]),
    st.sampled_from([None, 4.0]),
)
def test_unwrapped_phases_are_numpys(values, period, discont):
    got = nnp.unwrap(np.asarray(values), discont, period=period)
    np.testing.assert_allclose(got, np.unwrap(np.asarray(values), discont, period=period), atol=1e-9)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=8), st.integers(1, 9))
def test_unwrapped_integers_are_numpys(values, period):
    got = nnp.unwrap(np.asarray(values), period=period)
    np.testing.assert_array_equal(got, np.unwrap(np.asarray(values), period=period))
    assert got.dtype == nnp.int64


def test_zeros_are_trimmed_as_in_numpy(same):
    for values in ([0, 1, 0, 2, 0], [0, 0], [1, 2], []):
        for trim in ("f", "b", "fb"):
            same(nnp.trim_zeros(np.array(values, int), trim), np.trim_zeros(np.array(values, int), trim))


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hanning"])
def test_windows_are_numpys(name, same):
    for n in (0, 1, 6, 7):
        same(getattr(nnp, name)(n), getattr(np, name)(n))


def test_the_kaiser_window_is_numpys_and_differentiable_in_its_shape(same):
    for n in (0, 1, 6, 7):
        same(nnp.kaiser(n, np.float64(8.6)), np.kaiser(n, 8.6), 1e-12)
    nnc.testing.check_grads(lambda beta: nnp.kaiser(5, beta), (np.asarray(3.0),), order=2)


def test_bessel_functions_are_scipys_near_and_far(same):
    x = np.concatenate([np.linspace(-60, 60, 121), [1e-300, 1e5, np.inf, -np.inf, 29.999, 30.001]])
    for name in ("i0e", "i1e"):
        same(getattr(nnp, name)(x), getattr(scipy.special, name)(x), 1e-14)
    near = np.linspace(-20, 20, 41)
    np.testing.assert_allclose(nnp.i0(near), scipy.special.i0(near), rtol=1e-13)
    np.testing.assert_allclose(nnp.i1(near), scipy.special.i1(near), rtol=1e-13)
    assert np.isnan(float(nnp.i0e(np.nan)))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.convolve(F, F), ShapeError, "convolve: both operands must be vectors"),
        (lambda: nnp.convolve([1.0], []), ShapeError, "convolve: both operands must be vectors"),
        (lambda: nnp.correlate([1.0], [1.0], "half"), ArgumentError, "correlate: mode is 'half'"),
        (lambda: nnp.gradient(F, 1.0, 2.0, 3.0), ArgumentError, "gradient: 3 distances go with 2 axes"),
        (lambda: nnp.gradient(F, edge_order=3), ArgumentError, "gradient: edge_order is 3"),
        (lambda: nnp.gradient([1.0]), ShapeError, "gradient: axis 0 has 1 samples, it needs 2"),
        (lambda: nnp.gradient([1.0, 2.0, 3.0], [1.0, 2.0]), ShapeError, "gradient: axis 0 has 3 samples, its places"),
        (lambda: nnp.trim_zeros(F), ShapeError, "trim_zeros: filt must be a vector"),
        (lambda: nnp.trim_zeros([1], "x"), ArgumentError, "trim_zeros: trim is 'x'"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_slopes_between_unsigned_places_do_not_wrap_around(same):
    f, places = np.array([1.0, 4.0, 2.0, 8.0]), np.array([9, 6, 4, 1], np.uint8)
    same(nnp.gradient(f, places), np.gradient(f, places))
