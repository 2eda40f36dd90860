"""Promises of the Array API standard beside or against NumPy's: special values, lists, ranges and numbers."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from tests.contract.numpy.special_values import DTYPES, check, values


def test_signs_are_those_of_numpy_and_of_units_for_complex_numbers():
    for dtype in DTYPES[1:]:
        x = values(dtype)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(nnp.sign(x), np.sign(x))
    assert nnp.sign(nnp.asarray([3 + 4j, 0j])).tolist() == pytest.approx([0.6 + 0.8j, 0])


@pytest.mark.parametrize("compiled", [False, True])
def test_whole_quotients_of_infinities_are_floors_of_quotients(compiled):
    divide = nnc.compile(nnp.floor_divide) if compiled else nnp.floor_divide
    inf, nan = np.inf, np.nan
    cases = [
        (inf, 2.0, inf), (inf, -2.0, -inf), (-inf, 2.0, -inf), (-inf, -2.0, inf), (inf, 0.0, inf), (inf, -0.0, -inf),
        (inf, inf, nan), (-inf, inf, nan), (inf, nan, nan), (0.0, 0.0, nan), (1.0, 0.0, inf), (-1.0, 0.0, -inf),
        (1.0, inf, 0.0), (-1.0, inf, -0.0), (1.0, -inf, -0.0), (-1.0, -inf, 0.0), (-0.0, 2.0, -0.0),
        (0.0, -2.0, -0.0), (-0.0, -2.0, 0.0),
    ]  # fmt: skip
    for dtype in ("float32", "float64", "float16"):
        x, y, want = np.array(cases).T.astype(dtype)
        got = np.asarray(divide(x, y))
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


def test_the_complex_exponential_less_one_is_right_at_infinities():
    inf, nan = np.inf, np.nan
    cases = [
        (complex(inf, 0), complex(inf, 0)), (complex(-inf, 0), complex(-1, 0)), (complex(-inf, 2), complex(-1, 0)),
        (complex(inf, 2), complex(-inf, inf)), (complex(-inf, inf), complex(-1, 0)), (complex(inf, inf), complex(inf, nan)),
        (complex(-inf, nan), complex(-1, 0)), (complex(inf, nan), complex(inf, nan)), (complex(nan, 0), complex(nan, 0)),
        (complex(nan, 2), complex(nan, nan)), (complex(1, inf), complex(nan, nan)), (complex(1, nan), complex(nan, nan)),
    ]  # fmt: skip
    for x, want in [*cases, *((x.conjugate(), want.conjugate()) for x, want in cases)]:
        for got in (complex(nnp.expm1(np.array(x))), complex(nnc.compile(nnp.expm1)(np.array(x)))):
            for one, other in ((got.real, want.real), (got.imag, want.imag)):
                assert one == other or (np.isnan(one) and np.isnan(other))
    for x in (complex(-0.0, 0), complex(-0.0, -0.0), complex(0, -0.0)):  # the real part is 0 and never -0
        got = complex(nnp.expm1(np.array(x)))
        assert is_same(got.real, 0.0) and is_same(got.imag, x.imag)
    assert complex(nnp.expm1(np.array(1e-12 + 1e-12j))) == pytest.approx(1e-12 + 1e-12j, rel=1e-10)


def test_a_mask_may_be_empty_along_an_axis_and_selects_nothing():
    x = nnp.arange(24).reshape((2, 3, 4))
    for shape, want in (((0,), (0, 3, 4)), ((2, 0), (0, 4)), ((0, 3), (0, 4)), ((2, 3, 0), (0,))):
        mask = nnp.zeros(shape, dtype="bool")
        assert x[mask].shape == want
        np.testing.assert_array_equal(np.asarray(x.at[mask].set(1)), np.asarray(x))
    for shape in ((1,), (2, 1), (0, 2), (2, 3, 4, 0)):
        with pytest.raises(IndexError):
            x[nnp.zeros(shape, dtype="bool")]


def is_same(got, want):
    """Whether two floats are equal, NaN and the sign of 0 included."""
    return bool(np.isnan(got) and np.isnan(want)) or (got == want and np.signbit(got) == np.signbit(want))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_tangents_are_the_standards_at_infinities(dtype):
    inf, nan = np.inf, np.nan
    cases = [  # of tanh; an infinite real part with a finite imaginary part: 1 and 0 with the sign of that
        *((complex(inf, y), complex(1, 0.0)) for y in (0.0, 1.0, 2.0, 4.0, 1e9)), (complex(nan, 0.0), complex(nan, 0.0)),
        (complex(0.0, inf), complex(0.0, nan)), (complex(2, inf), complex(nan, nan)), (complex(0.0, nan), complex(0.0, nan)),
        (complex(inf, inf), complex(1, nan)), (complex(inf, nan), complex(1, nan)), (complex(nan, 2), complex(nan, nan)),
    ]  # fmt: skip
    both = [*cases, *((x.conjugate(), want.conjugate()) for x, want in cases)]
    for x, want in [*both, *((-x, -want) for x, want in both)]:
        turned = complex(x.imag, -x.real)  # tan(-i z) = -i tanh(z)
        for run in (lambda f: f, nnc.compile):
            direct, other = (run(f)(np.array([v], dtype))[0].item() for f, v in ((nnp.tanh, x), (nnp.tan, turned)))
            for got in (direct, complex(-other.imag, other.real)):
                assert is_same(got.real, want.real)
                if np.isfinite(x.imag) or not np.isinf(x.real):
                    assert is_same(got.imag, want.imag)
                else:
                    assert got.imag == 0  # of either sign
    np.testing.assert_allclose(np.asarray(nnp.tanh(np.array(0.5 + 1j, dtype))), np.tanh(0.5 + 1j), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(nnp.tan(np.array(0.5 + 1j, dtype))), np.tan(0.5 + 1j), rtol=1e-6)


def test_a_square_root_by_power_is_infinite_where_it_should_be():
    x = np.array([-np.inf, -0.0, 4.0])
    want = np.array([np.inf, 0.0, 2.0])
    for got in (nnp.pow(x, 0.5), nnp.asarray(x) ** 0.5, nnc.compile(lambda x: x**0.5)(x), nnp.pow(x, np.full(3, 0.5))):
        check(got, want)
    assert float(nnp.pow(np.array(-np.inf), np.array(0.5))) == np.inf


def test_comparisons_with_integers_beyond_the_dtype_are_exact():
    x = nnp.asarray([0, 1, 255], dtype="uint8")
    assert [(x < 300).all(), (x > 300).any(), (x == -1).any(), (x != 2**80).all(), (x >= -1).all(), (x >= 300).any()] == [
        True, False, False, True, True, False,
    ]  # fmt: skip
    assert nnp.less(x, 300).tolist() == nnc.compile(lambda x: x < 300)(x).tolist() == [True] * 3
    assert nnc.vmap(lambda v: v >= -5)(x).tolist() == [True] * 3
    with pytest.raises(nnc.errors.DTypeError, match="does not fit"):
        x + 300


def test_searched_and_repeated_arrays_may_depend_on_another_array():
    x = np.arange(12).reshape(3, 4)
    check(nnp.repeat(x[0], np.array([1, 0, 2, 1])), np.repeat(x[0], [1, 0, 2, 1]))
    check(nnp.repeat(x, nnp.asarray([2, 0, 1]), axis=0), np.repeat(x, [2, 0, 1], axis=0))


def test_a_sort_keeps_equal_elements_in_their_order_both_ways():
    x = nnp.asarray([2, 1, 2, 1, 2])
    assert nnp.argsort(x).tolist() == [1, 3, 0, 2, 4]
    assert nnp.argsort(x, descending=True).tolist() == [0, 2, 4, 1, 3]


def test_spread_without_degrees_of_freedom_is_no_number():
    for function in (nnp.var, nnp.std):
        for n, correction in ((2, 2), (2, 3.5), (0, 0), (1, 1)):
            assert np.isnan(float(function(np.arange(float(n)), correction=correction)))
        assert np.isnan(float(function(np.array([1.0, 5.0]), ddof=1, where=np.array([True, False]))))


def test_ranges_agree_with_the_standard():
    for args in (
        (5,),
        (1, 7, 2),
        (7, 1, -2),
        (5, 0),
        (0, 5, -1),
        (0.0, 1.0, 0.25),
        (3, 3),
        (-5, 5, 3),
        (1, 0, -0.3),
        (2.5,),
    ):
        for dtype in (None, "float64") if any(isinstance(x, float) for x in args) else (None, "int32", "float64"):
            want = np.arange(*args, dtype=dtype)
            got = nnp.arange(*args, dtype=dtype)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-6)
    assert nnp.arange(2**63, 2**63 + 3, dtype="uint64").tolist() == [2**63, 2**63 + 1, 2**63 + 2]
    assert nnp.arange(2**63 + 2, 2**63 - 1, -1, dtype="uint64").tolist() == [2**63 + 2, 2**63 + 1, 2**63]
    assert nnp.arange(0, 2**60 + 1, 2**60).tolist() == [0, 2**60]
    assert nnp.arange(5, 0, -2, dtype="uint8").tolist() == [5, 3, 1]
    for call in (lambda: nnp.arange(300, dtype="uint8"), lambda: nnp.arange(-1, 2, dtype="uint8")):
        with pytest.raises(nnc.errors.DTypeError, match="does not fit into uint8"):
            call()
    with pytest.raises(nnc.errors.ArgumentError, match="there are inf numbers"):
        nnp.arange(0, np.inf)


def test_numbers_at_equal_distances_agree_with_numpy():
    for start, stop in ((0, 1), (-3.5, 9), (2, 2), (5, -5), (0, 1 + 2j), (0, 1000)):
        for num, endpoint in itertools.product((0, 1, 2, 5), (True, False)):
            want = np.linspace(start, stop, num, endpoint=endpoint)
            dtype = "complex128" if isinstance(stop, complex) else "float64"
            np.testing.assert_allclose(nnp.linspace(start, stop, num, endpoint=endpoint, dtype=dtype), want, rtol=1e-15)


def test_whole_numbers_at_equal_distances_are_exact():
    for n in (*range(1, 60), 1000, 4999):
        assert nnp.linspace(0, n, n + 1, dtype="int64").tolist() == list(range(n + 1))
        np.testing.assert_array_equal(
            nnp.linspace(-n, 2 * n, 7, dtype="int32"), np.linspace(-n, 2 * n, 7, dtype="int32")
        )
    ends = np.array([7, -3]), np.array([2, 40])
    for endpoint in (True, False):
        want = np.linspace(*ends, 5, endpoint=endpoint, dtype=int)
        np.testing.assert_array_equal(nnp.linspace(*ends, 5, endpoint=endpoint, dtype=int), want)


def test_new_arrays_agree_with_the_standard():
    for dtype in DTYPES:
        for name in ("zeros", "ones", "empty"):
            assert getattr(nnp, name)((2, 0), dtype=dtype).dtype == dtype
        for k in (-9, -1, 0, 2, 9):
            check(nnp.eye(3, 4, k=k, dtype=dtype), np.eye(3, 4, k, dtype))
        number = {"b": True, "c": 1 + 2j, "f": 0.1}.get(np.dtype(dtype).kind, 3)
        for value in (nnp.full((2,), number, dtype=dtype), nnp.asarray([number] * 2, dtype=dtype)):
            check(value, np.full(2, number, dtype))
    for value, dtype in ((True, "bool"), (1, "int64"), (0.5, "float32"), (1j, "complex64")):
        assert nnp.full(2, value).dtype == nnp.asarray(value).dtype == nnp.asarray([value, value]).dtype == dtype


def test_listed_numbers_keep_their_digits():
    assert nnp.asarray([0.1], dtype="float64").tolist() == [0.1]
    assert nnp.asarray([2**60 + 1], dtype="float64").tolist() == [float(2**60 + 1)]
    assert nnp.asarray([[2**63, 1]], dtype="uint64").tolist() == [[2**63, 1]]
    assert nnp.asarray([0.1 + 0.2j], dtype="complex128").tolist() == [0.1 + 0.2j]
    assert nnp.asarray([2**70], dtype="float64").tolist() == [2.0**70]
    assert nnp.add(np.ones(1), [0.1]).tolist() == operator.add(nnp.asarray(np.ones(1)), [0.1]).tolist() == [1.1]
    assert operator.add(nnp.ones(1, "float32"), [0.1]).dtype == nnp.float32
    assert nnp.full(1, [0.1], dtype="float64").tolist() == [0.1]
    for number, dtype in ((2**64, "uint64"), (-1, "uint64"), (2**63, None), (2**70, "int8")):
        with pytest.raises(nnc.errors.DTypeError, match="does not fit into"):
            nnp.asarray([number], dtype=dtype)


def test_conversions_to_python_numbers_are_the_standards():
    assert (complex(nnp.asarray(2)), complex(nnp.asarray(True)), float(nnp.asarray(3))) == (2, 1, 3)
    assert bool(nnp.asarray(np.nan)) and int(nnp.asarray(-2.7)) == -2 and nnp.asarray(7, dtype="uint8").__index__() == 7
    for convert, x in ((float, 1j), (int, 1j)):
        with pytest.raises(TypeError):
            convert(nnp.asarray(x))
    x = y = nnp.asarray([1, 2])
    x += 1
    x **= 2
    x //= 2
    assert (x.tolist(), y.tolist()) == ([2, 4], [1, 2])
    assert [(5 - y).tolist(), (2**y).tolist(), (7 // y).tolist(), (7 % y).tolist(), (1 / y).tolist()] == [
        [4, 3], [2, 4], [7, 3], [0, 1], [1.0, 0.5],
    ]  # fmt: skip
    assert x.to_device("cpu", None) is x.to_device("cpu", stream=None) is x


def test_strategies_for_arrays_of_any_library_draw_nnc_arrays():
    strategies = pytest.importorskip("hypothesis.extra.array_api")
    hypothesis = pytest.importorskip("hypothesis")
    namespace = strategies.make_strategies_namespace(nnp, api_version="2024.12")

    @hypothesis.settings(max_examples=20, deadline=None, database=None)
    @hypothesis.given(namespace.arrays(namespace.scalar_dtypes(), namespace.array_shapes(min_dims=0, min_side=0)))
    def draws(x):
        assert isinstance(x, nnc.Array)

    draws()
