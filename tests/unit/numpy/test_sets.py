from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import nnc
import nnc.numpy as nnp
from nnc.errors import TraceError

NUMBERS = hnp.arrays(np.int64, st.integers(0, 8), elements=st.integers(-3, 3))
FLOATS = hnp.arrays(np.float64, st.integers(0, 8), elements=st.sampled_from([0.0, 1.5, np.nan, np.inf, -2.0]))
NAMES = ["union1d", "setdiff1d", "setxor1d", "intersect1d"]


@pytest.mark.parametrize("name", NAMES)
@given(x=NUMBERS, y=NUMBERS)
def test_operations_on_sets_are_numpys(name, x, y):
    want = getattr(np, name)(x, y)
    np.testing.assert_array_equal(getattr(nnp, name)(x, y), want)
    padded = np.asarray(getattr(nnp, name)(x, y, size=10, fill_value=-9))
    np.testing.assert_array_equal(padded, np.append(want, [-9] * (10 - want.size)))


@given(x=NUMBERS, y=NUMBERS)
def test_places_of_common_elements_are_numpys(x, y):
    if x.size and y.size:
        want = np.intersect1d(x, y, return_indices=True)
        for got, one in zip(nnp.intersect1d(x, y, return_indices=True), want, strict=True):
            np.testing.assert_array_equal(got, one)


@given(x=st.one_of(NUMBERS, FLOATS), equal_nan=st.booleans())
def test_distinct_elements_of_a_given_number_are_those_of_numpy(x, equal_nan):
    want = np.unique(x, True, True, True, equal_nan=equal_nan)
    n = want[0].size
    values, first, inverse, counts = nnp.unique(x, True, True, True, equal_nan=equal_nan, size=n)
    for got, one in zip((values, first, inverse, counts), want, strict=True):
        np.testing.assert_array_equal(got, one)
    values, _, _, counts = nnp.unique(x, True, True, True, equal_nan=equal_nan, size=n + 2, fill_value=7)
    np.testing.assert_array_equal(values, np.append(want[0], [7, 7]))
    np.testing.assert_array_equal(counts, np.append(want[3], [0, 0]))
    assert nnp.unique(x, size=1).shape == (1,)


@pytest.mark.parametrize("axis", [0, 1])
def test_distinct_slices_are_those_of_numpy(axis, same):
    x = np.array([[1, 2, 1], [0, 5, 0], [1, 2, 1]])
    want = np.unique(x, True, True, True, axis=axis)
    same(nnp.unique(x, True, True, True, axis=axis), want)
    same(nnp.unique(x, True, True, True, axis=axis, size=want[0].shape[axis]), want)
    assert nnp.unique(x[:, :0], axis=1, size=3).shape == (3, 3)


def test_sets_of_traced_values_need_a_size():
    x = np.array([3, 1, 3, 2])
    with pytest.raises(TraceError):
        nnc.compile(nnp.unique)(x)
    assert nnc.compile(lambda x: nnp.unique(x, size=3))(x).tolist() == [1, 2, 3]
    assert nnc.compile(lambda x: nnp.setdiff1d(x, np.array([1]), size=3))(x).tolist() == [2, 3, 2]
    assert nnc.vmap(lambda x: nnp.unique(x, size=2))(x.reshape(2, 2)).tolist() == [[1, 3], [2, 3]]
    assert nnc.grad(lambda x: nnp.unique(x, size=3)[2])(x.astype(float)).tolist() == [1, 0, 0, 0]


def test_a_nan_is_in_no_other_set():
    x, y = np.array([1.0, np.nan, 2.0]), np.array([2.0, 3.0])
    for got, want in [
        (nnp.setxor1d(x, y), [1, 3, np.nan]),
        (nnp.setxor1d(x, x), [np.nan]),
        (nnp.setdiff1d(x, x), [np.nan]),
    ]:
        np.testing.assert_array_equal(got, want)
