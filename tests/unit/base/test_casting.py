"""Conversions of floats to integers: one rule in all ways to run them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes
from nnc.base.casting import cast_array, caster
from nnc.base.silence import silently
from nnc.errors import DTypeError

PAIRS = [(a, b) for a in dtypes.FLOATS for b in (*dtypes.SIGNED, *dtypes.UNSIGNED)]
SIZES = (1, 2, 17, 129)


def corners(dtype: dtypes.DType) -> np.ndarray[Any, Any]:
    """NaN, infinities, zeros, halves, and the neighbours of all powers of 2 up to the 64th, of both signs."""
    powers = np.concatenate([2.0 ** np.arange(65), 3.0 * 2.0 ** np.arange(60)])
    with np.errstate(over="ignore"):
        positive = np.concatenate([powers, [0.0, 0.5, 0.999, 1.5, 300.7, 1e20, 1e38, np.inf]]).astype(dtype)
        beside = [np.nextafter(positive, dtype.type(target)) for target in (0, np.inf)]
    values = np.concatenate([positive, *beside])
    return np.concatenate([values, -values, np.array([np.nan], dtype)])


def exact(x: np.ndarray[Any, Any], dtype: dtypes.DType) -> np.ndarray[Any, Any]:
    """The rule, in Python's integers."""
    info = np.iinfo(dtype)
    found = []
    for number in map(float, x.reshape(-1)):
        if math.isnan(number):
            found.append(0)
        elif math.isinf(number):
            found.append(int(info.max if number > 0 else info.min))
        else:
            found.append(min(max(int(number), int(info.min)), int(info.max)))
    return np.array(found, dtype).reshape(x.shape)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_floats_are_cut_off_and_limited_eagerly_and_compiled(source, target):
    x = corners(source)
    wanted = exact(x, target)
    convert = nnc.compile(lambda x: nnp.astype(x, target))
    for got in (cast_array(x, target), nnp.asarray(x, dtype=target), nnp.asarray(x).astype(target), convert(x)):
        np.testing.assert_array_equal(np.asarray(got), wanted)


@pytest.mark.parametrize("target", [*dtypes.SIGNED, *dtypes.UNSIGNED], ids=str)
def test_tails_numbers_and_constants_follow_the_same_rule(target):
    hard = np.array([np.nan, np.inf, -np.inf, 1e20, -1e20, 3e9, 255.5, -128.9, 300, -1, 0.9], np.float32)
    for size in SIZES:
        x = np.resize(hard, size)
        wanted = exact(x, target)
        np.testing.assert_array_equal(nnc.compile(lambda x: nnp.astype(x + 0, target))(x), wanted)
        np.testing.assert_array_equal(nnc.compile(lambda x=x: nnp.astype(nnp.asarray(x), target))(), wanted)  # folded
        np.testing.assert_array_equal(nnc.vmap(lambda x: nnp.astype(x, target))(x), wanted)
    for number in hard:
        assert nnp.asarray(number).astype(target).item() == exact(np.asarray(number), target)
        assert nnp.asarray(nnp.float64(number)).astype(target).item() == exact(np.asarray(number), target)


def test_integers_wrap_where_the_float_between_them_does_not():
    through = nnc.compile(lambda x: (x.astype("float64").astype("int8"), x.astype("int64").astype("int8")))
    x = np.array([300, -129, 5], np.int32)
    limited, wrapped = through(x)
    np.testing.assert_array_equal(limited, [127, -128, 5])
    np.testing.assert_array_equal(wrapped, x.astype("int8"))


def test_a_strided_array_is_converted_by_the_same_rule():
    x = np.array([[np.nan, 1e20], [-1e20, 7.5]], np.float32)
    wanted = exact(x.T, np.dtype("uint16"))
    np.testing.assert_array_equal(nnp.asarray(x).T.astype("uint16"), wanted)
    np.testing.assert_array_equal(nnc.compile(lambda x: x.T.astype("uint16"))(x), wanted)


def test_numbers_are_looked_at_where_numpy_does_not_notice_those_that_do_not_fit(monkeypatch):
    monkeypatch.setattr("nnc.base.casting.strictly", silently)
    x = corners(dtypes.float32)
    convert = caster.__wrapped__(dtypes.float32, dtypes.int64)
    np.testing.assert_array_equal(convert(x), exact(x, dtypes.int64))


def test_listed_numbers_are_still_refused_but_for_those_that_just_fit():
    assert nnp.asarray([-(2.0**63)], dtype="int64").item() == -(2**63)
    for number in (2.0**63, float("nan"), -(2.0**63) * 1.001):
        with pytest.raises(DTypeError, match="does not fit into int64"):
            nnp.asarray([number], dtype="int64")


def test_an_empty_array_is_converted():
    assert nnp.zeros((0, 3)).astype("int8").shape == (0, 3)
