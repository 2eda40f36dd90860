from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ShapeError, TraceError

P = hnp.arrays(np.float64, st.integers(1, 5), elements=st.integers(-4, 4).map(float))


@given(p=P, q=P, x=st.floats(-3, 3))
def test_arithmetic_of_polynomials_is_that_of_their_values(p, q, x):
    at_x = nnp.polyval(p, x), nnp.polyval(q, x)
    for name, value in (("polyadd", at_x[0] + at_x[1]), ("polysub", at_x[0] - at_x[1]), ("polymul", at_x[0] * at_x[1])):
        np.testing.assert_allclose(nnp.polyval(getattr(nnp, name)(p, q), x), value, rtol=1e-9, atol=1e-9)
    if q[0]:
        quotient, rest = nnp.polydiv(p, q)
        np.testing.assert_allclose(
            at_x[1] * nnp.polyval(quotient, x) + nnp.polyval(rest, x), at_x[0], rtol=1e-6, atol=1e-6
        )


def test_derivatives_antiderivatives_and_roots_agree_with_numpy(same):
    p = np.array([3.0, -1.0, 2.0, 5.0])
    for m in range(6):
        same(nnp.polyder(p, m), np.polyder(p, m))
        same(nnp.polyint(p, m), np.polyint(p, m))
    same(nnp.polyint(p, 2, k=[1.0, 2.0]), np.polyint(p, 2, k=[1.0, 2.0]))
    for k in (4.0, [4.0]):
        same(nnp.polyint(p, 2, k=k), np.polyint(p, 2, k=k))
    same(nnp.polyder(np.array([2, 3, 4])), np.polyder(np.array([2, 3, 4])))
    same(nnp.poly(p), np.poly(p))
    same(nnp.poly(np.array([1j, -1j])), np.array([1, 0, 1], complex))
    quotient, rest = nnp.polydiv(np.array([1.0, 0, 0, -1]), np.array([1.0, -1]))
    same(quotient, np.array([1.0, 1, 1]))
    same(rest, np.zeros(4))


def test_roots_are_numpys(same):
    for p in ([1.0, -3.0, 2.0], [0, 2.0, 0, 8.0, 0, 0], [1.0, 0, 0, 1.0], [5.0], [0.0, 0.0], [1j, 2.0, 1.0]):
        want = np.roots(np.array(p))
        got = nnp.roots(np.array(p))
        assert got.dtype == nnp.complex128
        np.testing.assert_allclose(
            np.sort_complex(np.round(got, 9)), np.sort_complex(np.round(want + 0j, 9)), atol=1e-8
        )
    p = np.array([1.0, -3.0, 2.0])
    largest = nnc.compile(lambda p: nnp.max(nnp.real(nnp.roots(p, strip_zeros=False))))
    assert float(largest(p)) == pytest.approx(2)
    nnc.testing.check_grads(lambda p: nnp.max(nnp.real(nnp.roots(p, strip_zeros=False))), (p,), order=1)


def test_least_squares_fits_agree_with_numpy(same):
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=12), rng.normal(size=(12, 2)), rng.uniform(0.5, 2, 12)
    for deg in (0, 1, 4):
        same(nnp.polyfit(x, y[:, 0], deg), np.polyfit(x, y[:, 0], deg), 1e-9)
        same(nnp.polyfit(x, y, deg, w=w), np.polyfit(x, y, deg, w=w), 1e-9)
    nnc.testing.check_grads(lambda x, y: nnp.polyfit(x, y, 2), (x, y[:, 0]), order=1)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nnp.polyfit([1.0, 2.0], [1.0, 2.0], 2), ShapeError, "polyfit: 3 coefficients"),
        (lambda: nnp.polyadd([[1.0]], [1.0]), ShapeError, "polyadd: a1 must be a vector"),
        (lambda: nnp.polyder([1.0], -1), ArgumentError, "polyder: m is -1"),
        (lambda: nnp.poly(np.eye(2)), ShapeError, "poly: seq_of_zeros must be a vector"),
    ],
)
def test_a_mistake_is_answered_with_the_functions_name(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_leading_zeros_are_left_out_of_a_product_as_in_numpy():
    for p, q in (([0, 0, 1, 2], [0, 3, 4]), ([0, 0], [1, 2]), ([1, 0], [2, 0]), ([0], [0])):
        np.testing.assert_array_equal(nnp.polymul(p, q), np.polymul(p, q))
    kept = nnc.compile(lambda p, q: nnp.polymul(p, q, strip_zeros=False))(np.array([0, 1]), np.array([0, 1]))
    np.testing.assert_array_equal(kept, [0, 0, 1])
    with pytest.raises(TraceError, match="strip_zeros=False"):
        nnc.compile(nnp.polymul)(np.array([0, 1]), np.array([0, 1]))
