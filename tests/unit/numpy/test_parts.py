from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, DTypeError

SPECIAL = np.array([0.0, -0.0, 1.5, -2.75, 1e-310, 1e308, np.inf, -np.inf, np.nan])


def same_signs(got, want):
    np.testing.assert_array_equal(np.asarray(got), want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_fraction_exponent_and_spacing_are_numpys():
    with np.errstate(all="ignore"):
        for got, want in zip(nnp.modf(SPECIAL), np.modf(SPECIAL), strict=True):
            same_signs(got, want)
        for got, want in zip(nnp.frexp(SPECIAL), np.frexp(SPECIAL), strict=True):
            np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(nnp.spacing(SPECIAL), np.spacing(SPECIAL))
    assert nnp.frexp(SPECIAL)[1].dtype == nnp.int32
    assert [part.dtype for part in nnp.modf(np.float16([1.5]))] == [nnp.float16] * 2


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_scaling_by_powers_of_two_is_numpys(dtype):
    exponents = np.array([-128, -3, 0, 5, 127] if dtype != "uint8" else [0, 5, 255, 1, 2]).astype(dtype)
    for x in (SPECIAL[:5], SPECIAL[-5:], np.float32([1, -1, 3e38, 1e-40, 0])):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(nnp.ldexp(x, exponents), np.ldexp(x, exponents.astype(int)))
    assert float(nnp.ldexp(np.float64(1), np.int64(2**40))) == np.inf
    assert float(nnp.ldexp(np.float64(5e-324), 2000)) == np.ldexp(5e-324, 2000)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_mantissa_and_exponent_give_the_number_back(x):
    mantissa, exponent = nnp.frexp(np.float64(x))
    assert float(nnp.ldexp(mantissa, exponent)) == x
    assert x == 0 or 0.5 <= abs(float(mantissa)) < 1


def test_the_parts_differentiate():
    x = np.array([1.3, -2.6, 0.4])
    for f in (lambda x: nnp.modf(x)[0], lambda x: nnp.frexp(x)[0], lambda x: nnp.ldexp(x, 3)):
        nnc.testing.check_grads(f, (x,), order=2)


@given(st.integers(-(2**40), 2**40), st.integers(-(2**20), 2**20))
def test_divisors_multiples_and_counts_of_ones_are_numpys(a, b):
    for x, y in ((np.int64(a), np.int64(b)), (np.uint32(abs(a) % 2**32), np.uint8(abs(b) % 256))):
        for name in ("gcd", "lcm"):
            got, want = getattr(nnp, name)(x, y), getattr(np, name)(x, y)
            assert (int(got), got.dtype) == (int(want), want.dtype)
        assert int(nnp.bitwise_count(x)) == int(np.bitwise_count(x))
    assert nnp.bitwise_count(np.int64(a)).dtype == nnp.uint8


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_bits_are_packed_and_unpacked_as_in_numpy(axis, bitorder, same):
    bits = np.random.default_rng(0).integers(0, 3, (3, 11))
    packed = np.packbits(bits, axis, bitorder)
    same(nnp.packbits(bits, axis, bitorder), packed)
    same(nnp.packbits(bits > 0, axis, bitorder), packed)
    for count in (None, 5, -2, 40):
        same(nnp.unpackbits(packed, axis, count, bitorder), np.unpackbits(packed, axis, count, bitorder))


def test_operands_that_are_no_integers_or_bytes_are_refused():
    for call in (lambda: nnp.packbits(SPECIAL), lambda: nnp.unpackbits(np.ones(2, int)), lambda: nnp.gcd(1.5, 2)):
        with pytest.raises(DTypeError):
            call()
    with pytest.raises(DTypeError, match="ldexp: x2 must be"):
        nnp.ldexp(1.0, 2.0)
    with pytest.raises(ArgumentError, match="packbits: bitorder is 'middle'"):
        nnp.packbits(np.ones(2, int), bitorder="middle")
