"""Functions of single operations, recorded once and replayed on NumPy arrays."""

import numpy as np
import pytest

from nnc.base import dtypes
from nnc.commands.lanes import BLOCK, OnArrays, Recorder


def smooth(x, y):
    """Operations of all kinds: numbers on both sides, signed zeros, bit patterns, choices."""
    bits = ((x.bits() >> 1) << 1) | 1
    total = 2.0 - bits.as_float() * y + (-x) / 3.0
    return (x < y).choose((x > 0.5).choose(total.intrinsic("fabs"), -0.0), 1.0 / y)


def plainly(x, y):
    """The same with NumPy."""
    kind = x.dtype.type
    bits = x.view(f"u{x.dtype.itemsize}")
    odd = (((bits >> bits.dtype.type(1)) << bits.dtype.type(1)) | bits.dtype.type(1)).view(x.dtype)
    total = kind(2) - odd * y + (-x) / kind(3)
    return np.where(x < y, np.where(x > kind(0.5), np.abs(total), kind(-0.0)), kind(1) / y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (BLOCK,), (BLOCK + 1,), (3, BLOCK)])
def test_a_recorded_function_gives_the_bits_of_its_operations(dtype, shape):
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.1, 1, shape).astype(dtype) for _ in range(2))
    x, y = np.asarray(x), np.asarray(y)
    got = np.asarray(OnArrays(smooth)(x, y))
    wanted = np.asarray(plainly(x, y))
    assert got.shape == shape and got.dtype == dtype
    assert got.tobytes() == wanted.tobytes()


def test_operands_may_have_any_strides_and_stay_as_they_are():
    whole = np.arange(4.0 * BLOCK).reshape(2, -1)
    kept = whole.copy()
    got = OnArrays(lambda x: x * 2 + 1)(whole[:, ::2])
    np.testing.assert_array_equal(got, whole[:, ::2] * 2 + 1)
    np.testing.assert_array_equal(whole, kept)


def test_an_operand_or_a_number_may_be_the_result():
    x = np.arange(3.0)
    np.testing.assert_array_equal(OnArrays(lambda x: x)(x), x)
    np.testing.assert_array_equal(OnArrays(lambda x: x.to(dtypes.float32).to(dtypes.float64))(x), x)


def test_an_expression_computed_twice_is_recorded_once():
    recorder = Recorder()
    x = recorder.operand(dtypes.float32)
    program = recorder.finish((x + 1) * (x + 1) + 0.0 * x + -0.0 * x)
    assert len(program.steps) == 6  # signed zeros are two numbers


def test_a_value_that_is_read_again_keeps_its_register():
    def chain(x):
        first = x + 1
        later = first
        for i in range(20):
            later = later * 0.5 + i
        return later + first * x

    x = np.linspace(-1, 1, 7)
    later = x + 1
    for i in range(20):
        later = later * 0.5 + i
    np.testing.assert_array_equal(OnArrays(chain)(x), later + (x + 1) * x)
