from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError, DTypeError, ShapeError

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(3, 4)) * 2
POSITIVE = RNG.uniform(0.1, 3, (3, 4))
UNIT = RNG.uniform(-0.9, 0.9, (3, 4))
INTEGERS = RNG.integers(-5, 6, (3, 4))
COUNTS = RNG.integers(1, 6, (3, 4))
BOOLS = RNG.random((3, 4)) < 0.5
COMPLEX = REAL + 1j * RNG.normal(size=(3, 4))
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])

UNARY = {
    "negative": [REAL, INTEGERS, COMPLEX],
    "positive": [REAL, INTEGERS],
    "square": [REAL, INTEGERS, COMPLEX],
    "abs": [REAL, INTEGERS, COMPLEX, BOOLS, SPECIAL],
    "fabs": [REAL, INTEGERS],
    "sign": [REAL, INTEGERS, SPECIAL],
    "reciprocal": [POSITIVE, COMPLEX],
    "sqrt": [POSITIVE, COUNTS, COMPLEX, SPECIAL],
    "cbrt": [REAL, INTEGERS],
    "exp": [REAL, INTEGERS, COMPLEX, SPECIAL],
    "exp2": [REAL, INTEGERS],
    "expm1": [REAL, INTEGERS, SPECIAL],
    "log": [POSITIVE, COUNTS, COMPLEX, SPECIAL],
    "log2": [POSITIVE, COUNTS],
    "log10": [POSITIVE, COUNTS],
    "log1p": [POSITIVE, COUNTS],
    "sin": [REAL, INTEGERS, COMPLEX],
    "cos": [REAL, INTEGERS, COMPLEX],
    "tan": [UNIT, INTEGERS],
    "arcsin": [UNIT],
    "asin": [UNIT],
    "acos": [UNIT],
    "arccos": [UNIT],
    "atan": [REAL, INTEGERS],
    "arctan": [REAL],
    "sinh": [REAL, INTEGERS],
    "cosh": [REAL],
    "tanh": [REAL, INTEGERS, SPECIAL],
    "asinh": [REAL],
    "arcsinh": [REAL],
    "acosh": [POSITIVE + 1],
    "arccosh": [POSITIVE + 1],
    "atanh": [UNIT],
    "arctanh": [UNIT],
    "deg2rad": [REAL, INTEGERS],
    "rad2deg": [REAL, INTEGERS],
    "radians": [REAL],
    "degrees": [REAL],
    "sinc": [REAL, np.array([0.0, 1.0])],
    "floor": [REAL, INTEGERS],
    "ceil": [REAL, INTEGERS],
    "trunc": [REAL, INTEGERS],
    "fix": [REAL],
    "rint": [REAL, INTEGERS],
    "round": [REAL, INTEGERS],
    "logical_not": [REAL, INTEGERS, BOOLS],
    "bitwise_invert": [INTEGERS, BOOLS],
    "invert": [INTEGERS],
    "isnan": [SPECIAL, INTEGERS],
    "isinf": [SPECIAL, INTEGERS],
    "isfinite": [SPECIAL, INTEGERS, COMPLEX],
    "isposinf": [SPECIAL],
    "isneginf": [SPECIAL],
    "signbit": [SPECIAL, INTEGERS],
    "real": [REAL, COMPLEX],
    "imag": [REAL, COMPLEX],
    "conj": [REAL, COMPLEX],
    "angle": [REAL, COMPLEX],
    "isreal": [COMPLEX, REAL],
    "iscomplex": [COMPLEX, REAL],
    "nan_to_num": [SPECIAL, INTEGERS],
}
BINARY = {
    "add": [(REAL, REAL), (INTEGERS, REAL), (BOOLS, BOOLS), (REAL, COMPLEX)],
    "subtract": [(REAL, INTEGERS), (COMPLEX, REAL)],
    "multiply": [(REAL, REAL[0]), (BOOLS, BOOLS), (INTEGERS, COUNTS)],
    "divide": [(REAL, POSITIVE), (INTEGERS, COUNTS), (COMPLEX, POSITIVE)],
    "floor_divide": [(REAL, POSITIVE), (INTEGERS, COUNTS), (INTEGERS, -COUNTS)],
    "remainder": [(REAL, -POSITIVE), (INTEGERS, COUNTS)],
    "mod": [(INTEGERS, COUNTS)],
    "fmod": [(REAL, POSITIVE), (INTEGERS, COUNTS)],
    "power": [(POSITIVE, REAL), (INTEGERS, COUNTS)],
    "pow": [(POSITIVE, REAL)],
    "float_power": [(POSITIVE, REAL)],
    "logaddexp": [(REAL, REAL.T.reshape(3, 4))],
    "logaddexp2": [(REAL, UNIT)],
    "arctan2": [(REAL, UNIT)],
    "atan2": [(REAL, UNIT)],
    "hypot": [(REAL, UNIT)],
    "copysign": [(REAL, UNIT)],
    "nextafter": [(REAL, UNIT)],
    "maximum": [(REAL, UNIT), (INTEGERS, COUNTS), (SPECIAL, 0.5), (BOOLS, ~BOOLS)],
    "minimum": [(REAL, UNIT), (SPECIAL, 0.5)],
    "fmax": [(SPECIAL, 0.5), (REAL, UNIT)],
    "fmin": [(SPECIAL, 0.5)],
    "heaviside": [(SPECIAL, 0.5)],
    "equal": [(INTEGERS, COUNTS), (REAL, REAL)],
    "not_equal": [(INTEGERS, COUNTS)],
    "less": [(REAL, 0.0), (INTEGERS, COUNTS)],
    "less_equal": [(INTEGERS, COUNTS)],
    "greater": [(INTEGERS, COUNTS)],
    "greater_equal": [(INTEGERS, COUNTS)],
    "logical_and": [(REAL, BOOLS)],
    "logical_or": [(INTEGERS, BOOLS)],
    "logical_xor": [(INTEGERS, BOOLS)],
    "bitwise_and": [(INTEGERS, COUNTS), (BOOLS, ~BOOLS)],
    "bitwise_or": [(INTEGERS, COUNTS)],
    "bitwise_xor": [(INTEGERS, COUNTS)],
    "bitwise_left_shift": [(COUNTS, COUNTS)],
    "bitwise_right_shift": [(INTEGERS, COUNTS)],
    "left_shift": [(COUNTS, 2)],
    "right_shift": [(INTEGERS, 1)],
    "divmod": [(REAL, POSITIVE), (INTEGERS, COUNTS)],
    "isclose": [(SPECIAL, SPECIAL), (REAL, REAL + 1e-9), (REAL, UNIT)],
}


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_array_agrees_with_numpy(name, same):
    reference = np.trunc if name == "fix" else getattr(np, name)  # NumPy 2.5 deprecates its own spelling
    for x in UNARY[name]:
        with np.errstate(all="ignore"):
            same(getattr(nnp, name)(x), reference(x), 1e-10)
            same(getattr(nnp, name)(x[..., 0]), reference(x[..., 0]), 1e-10)
            same(getattr(nnp, name)(x[:0]), reference(x[:0]))


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_arrays_broadcasts_and_promotes_as_numpy_does(name, same):
    for x, y in BINARY[name]:
        with np.errstate(all="ignore"):
            same(getattr(nnp, name)(x, y), getattr(np, name)(x, y), 1e-10)
            if np.ndim(y) == 2:
                same(getattr(nnp, name)(x[:, :1], y[0]), getattr(np, name)(x[:, :1], y[0]), 1e-10)


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_shifts_by_more_bits_than_there_are_shift_all_out(name, same):
    x = np.array([0, 1, 7, np.iinfo(name).max, np.iinfo(name).min], name)[:, None]
    by = np.array([0, 1, 7, 8, 31, 32, 63, 64, 127], name)
    for shift in ("left_shift", "right_shift"):
        same(getattr(nnp, shift)(x, by), getattr(np, shift)(x, by))
        same(nnc.compile(getattr(nnp, shift))(x, by), getattr(np, shift)(x, by))


def test_numbers_do_not_widen_the_arrays_they_meet():
    x = np.ones(2, np.float32)
    assert nnp.add(x, 1.5).dtype == nnp.float32
    assert nnp.multiply(np.ones(2, np.int8), 3).dtype == nnp.int8
    assert nnp.where([True, False], x, 0.0).dtype == nnp.float32
    assert nnp.add(nnp.sin(1.0), np.ones(2, np.float16)).dtype == nnp.float16


def test_integers_become_the_default_float_where_a_function_leaves_them():
    assert nnp.sqrt(np.asarray([4])).dtype == nnp.float32
    assert nnp.divide(np.asarray([4]), 2).dtype == nnp.float32
    assert nnp.exp(np.ones(2, np.float16)).dtype == nnp.float16


def test_where_chooses_and_alone_finds(same):
    same(nnp.where(BOOLS, REAL, 0), np.where(BOOLS, REAL, 0))
    same(nnp.where(INTEGERS, REAL[0], INTEGERS), np.where(INTEGERS, REAL[0], INTEGERS))
    same(nnp.where(BOOLS), np.where(BOOLS))


def test_clip_limits_from_either_side(same):
    same(nnp.clip(REAL, -1, 1), np.clip(REAL, -1, 1))
    same(nnp.clip(INTEGERS, min=0), np.maximum(INTEGERS, 0))
    same(nnp.clip(REAL, max=UNIT), np.minimum(REAL, UNIT))
    same(nnp.clip(REAL), REAL)


@pytest.mark.parametrize("decimals", [-1, 0, 2])
def test_round_keeps_decimals(decimals, same):
    same(nnp.round(REAL * 100, decimals), np.round(REAL * 100, decimals))
    same(nnp.round(INTEGERS * 9, decimals), np.round(INTEGERS * 9, decimals))


def test_nan_to_num_replaces_nan_and_infinities(same):
    same(
        nnp.nan_to_num(SPECIAL, nan=7.0, posinf=8.0, neginf=-8.0),
        np.nan_to_num(SPECIAL, nan=7.0, posinf=8.0, neginf=-8.0),
    )
    broken = np.array([complex(np.nan, 1), complex(2, np.inf)])
    same(nnp.nan_to_num(broken), np.nan_to_num(broken))


def test_closeness_and_equality_of_whole_arrays():
    assert nnp.allclose(REAL, REAL + 1e-10)
    assert not nnp.allclose(REAL, REAL + 1)
    assert not nnp.array_equal(SPECIAL, SPECIAL)
    assert nnp.array_equal(SPECIAL, SPECIAL, equal_nan=True)
    assert nnp.allclose(SPECIAL, SPECIAL, equal_nan=True)
    assert not nnp.array_equal(REAL, REAL[:2])
    assert nnp.array_equiv(np.ones((2, 2)), 1)


def test_shapes_that_do_not_broadcast_name_the_function():
    with pytest.raises(ShapeError, match="^subtract: shapes"):
        nnp.subtract(np.ones(2), np.ones(3))
    with pytest.raises(ShapeError, match="^where: shapes"):
        nnp.where(np.ones(2), np.ones(3), 0)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("bitwise_and", (REAL, REAL)),
        ("maximum", (COMPLEX, COMPLEX)),
        ("negative", (BOOLS,)),
        ("bitwise_invert", (REAL,)),
        ("cbrt", (COMPLEX,)),
        ("floor", (COMPLEX,)),
        ("subtract", (BOOLS, BOOLS)),
    ],
)
def test_a_dtype_that_a_function_does_not_take_names_the_function(name, args):
    with pytest.raises(DTypeError, match=f"^{name}: "):
        getattr(nnp, name)(*args)


def test_the_next_float_is_next_in_half_precision_too():
    for name in ("float16", "bfloat16"):
        x = nnp.ones(1, name)
        assert float((nnp.nextafter(x, 2.0) - x)[0]) == nnp.finfo(name).eps


def test_objects_that_are_no_arrays_are_refused():
    with pytest.raises(ArgumentTypeError, match="^sin: x is 'text'"):
        nnp.sin("text")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), st.floats(-1e6, 1e6))
def test_arithmetic_of_float64_is_numpys(values, number):
    x = np.asarray(values)
    assert np.array_equal(nnp.add(nnp.multiply(x, number), x), x * number + x)


@given(st.integers(-(2**40), 2**40), st.integers(1, 2**20))
def test_division_with_remainder_restores_the_dividend(a, b):
    quotient, rest = nnp.divmod(a, b)
    assert int(quotient) * b + int(rest) == a
    assert 0 <= int(rest) < b


def test_angles_are_given_in_degrees_if_asked_for(same):
    z = np.array([1j, -1 + 0j, 3 - 3j])
    same(nnp.angle(z, deg=True), np.angle(z, deg=True))


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", ["int8", "int64"])
@pytest.mark.filterwarnings("ignore:.*was traced and called only once")
def test_uint64_and_signed_integers_are_compared_exactly(name, dtype):
    unsigned = np.array([0, 1, 127, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    signed = np.array([-1, 0, 1, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)[:, None]
    compare, wanted = getattr(nnp, name), getattr(np, name)
    for x, y in ((unsigned, signed), (signed, unsigned)):
        exact = wanted(x.astype(object), y.astype(object)).astype(bool)
        np.testing.assert_array_equal(wanted(x, y), exact)
        for run in (compare, nnc.compile(compare)):
            np.testing.assert_array_equal(run(nnp.asarray(x), nnp.asarray(y)), exact)
    assert bool((nnp.asarray(unsigned) > nnp.asarray(signed[0])).all())
    with pytest.raises(DTypeError, match="no integer dtype holds both"):
        nnp.asarray(unsigned) + nnp.asarray(signed)


def test_expm1_of_complex_numbers_far_left_is_numpys() -> None:
    x = np.array([complex(-np.inf, 1), complex(-np.inf, -2), complex(-800, 3), complex(-np.inf, 0), complex(np.inf, 0)])
    with np.errstate(all="ignore"):
        want = np.expm1(x)
    for run in (nnp.expm1, nnc.compile(nnp.expm1)):
        found = np.asarray(run(x))
        np.testing.assert_array_equal(found.real, want.real)
        np.testing.assert_array_equal(found.imag[:4], want.imag[:4])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cube_roots_are_rounded_once(dtype: str) -> None:
    """NumPy's own are 3 units of the last place off where the processor has no AVX-512."""
    info = np.finfo(dtype)
    x = np.exp(RNG.uniform(np.log(info.tiny), np.log(info.max), 2000)).astype(dtype)
    x = np.concatenate([x, -x, [info.max, info.tiny, info.smallest_subnormal, 0.04, 27]]).astype(dtype)
    root = np.asarray(nnp.cbrt(x))
    assert root.dtype == dtype
    for number, found, unit in zip(x, root, abs(np.spacing(root)), strict=True):
        low, high = (abs(Fraction(float(found))) + sign * Fraction(float(unit)) * 51 / 100 for sign in (-1, 1))
        assert low**3 <= abs(Fraction(float(number))) <= high**3
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    np.testing.assert_array_equal(np.asarray(nnp.cbrt(special)), special)
    assert np.signbit(np.asarray(nnp.cbrt(special)[1]))
