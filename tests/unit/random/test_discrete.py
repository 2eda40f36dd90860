"""Draws of integers, positions and orders; the literal numbers come from jax.random (0.10.2) for the same key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from nnc import random
from nnc.errors import ArgumentError, DTypeError, ShapeError

KEY = random.key(42)
P = np.asarray([0.1, 0.2, 0.3, 0.4], np.float32)
LOGITS = np.asarray([[0, 1, 2], [2, 1, 0]], np.float32)


@pytest.mark.parametrize(
    ("name", "args", "numbers"),
    [
        ("randint", ((4,), 3, 100, "int8"), [38, 79, 89, 54]),
        ("randint", ((4,), 3, 100, "int32"), [38, 79, 89, 54]),
        ("randint", ((4,), 3, 100, "int64"), [34, 78, 93, 73]),
        ("randint", ((4,), 3, 100, "uint32"), [38, 79, 89, 54]),
        ("randint", ((4,), -128, 128, "int8"), [68, -110, 55, 65]),
        ("permutation", (8,), [7, 4, 2, 5, 3, 6, 0, 1]),
        ("choice", (10, (4,)), [5, 8, 3, 1]),
        ("choice", (10, (4,), False), [7, 4, 2, 5]),
        ("choice", (4, (3,), False, P), [3, 2, 1]),
        ("choice", (4, (6,), True, P), [2, 2, 2, 2, 2, 2]),
        ("categorical", (LOGITS, -1, (4, 2)), [[2, 0], [2, 0], [1, 0], [1, 0]]),
        ("categorical", (LOGITS, -1, (2, 2), False), [[2, 0], [1, 1]]),
    ],
)
def test_draws_are_those_of_jax(name: str, args: tuple[Any, ...], numbers: list[Any]) -> None:
    assert np.asarray(getattr(random, name)(KEY, *args)).tolist() == numbers


def test_integers_of_wide_ranges_are_those_of_jax_where_they_are_asked_for() -> None:
    numbers = random.randint(KEY, (3,), -(2**31), 2**31 - 1, "int32", as_jax=True)
    assert np.asarray(numbers).tolist() == [977810628, 1236381714, -1367112521]


def test_bernoulli_draws_are_those_of_jax_and_as_likely_as_asked() -> None:
    assert np.asarray(random.bernoulli(KEY, 0.3, (8,))).tolist() == [False] * 6 + [True, False]
    p = np.asarray([0.1, 0.5, 0.9], np.float32)
    draws = np.asarray(random.bernoulli(KEY, p, (4000, 3)))
    np.testing.assert_allclose(draws.mean(0), p, atol=0.03)
    assert random.bernoulli(KEY, p).shape == (3,)


def test_integers_from_traced_bounds_are_those_from_known_ones() -> None:
    for dtype in ("int8", "int32", "int64", "uint16"):
        low, high = np.asarray(3, dtype), np.asarray([4, 100], dtype)
        got = np.asarray(
            nnc.make_graph(lambda a, b, t=dtype: random.randint(KEY, (50, 2), a, b, t))(low, high)(low, high)
        )
        assert got.dtype == dtype
        assert got[:, 1].tolist() == np.asarray(random.randint(KEY, (50, 2), 3, 100, dtype))[:, 1].tolist()
        assert (got[:, 0] == 3).all()


def test_integers_are_equally_likely() -> None:
    counts = np.bincount(np.asarray(random.randint(KEY, (6000,), 0, 6)), minlength=6)
    assert (np.abs(counts - 1000) < 120).all()


def test_permutations_keep_the_elements() -> None:
    x = np.arange(12).reshape(4, 3)
    rows = np.asarray(random.permutation(KEY, x))
    assert sorted(rows[:, 0].tolist()) == [0, 3, 6, 9]
    assert (rows - rows[:, :1] == [0, 1, 2]).all()
    columns = np.asarray(random.permutation(KEY, x, axis=1, independent=True))
    np.testing.assert_array_equal(np.sort(columns, 1), x)
    batch = nnc.vmap(lambda k: random.permutation(k, 6))(random.split(KEY, 5))
    np.testing.assert_array_equal(np.sort(np.asarray(batch), 1), np.tile(np.arange(6), (5, 1)))
    assert len(np.unique(np.asarray(batch), axis=0)) > 1
    assert random.permutation(KEY, 0).shape == (0,)


def test_choice_draws_from_an_axis_of_an_array() -> None:
    x = np.arange(12.0).reshape(4, 3)
    drawn = np.asarray(random.choice(KEY, x, (2, 2), axis=1))
    assert drawn.shape == (4, 2, 2)
    assert np.isin(drawn[0], x[0]).all()
    whole = np.asarray(random.choice(KEY, x, (4,), replace=False))
    np.testing.assert_array_equal(np.sort(whole, 0), x)
    assert random.choice(KEY, 5).shape == ()
    assert random.choice(KEY, 0, (0,)).shape == (0,)


def test_weighted_draws_have_their_frequencies() -> None:
    for draws in (random.choice(KEY, 4, (8000,), p=P), random.categorical(KEY, np.log(P), shape=(8000,))):
        np.testing.assert_allclose(np.bincount(np.asarray(draws), minlength=4) / 8000, P, atol=0.02)


def test_categorical_takes_any_axis() -> None:
    assert random.categorical(KEY, LOGITS, 0).shape == (3,)
    assert random.categorical(KEY, LOGITS, 0, (5, 3)).shape == (5, 3)
    sharp = np.asarray([[0, 50, 0], [50, 0, 0]], np.float32)
    assert np.asarray(random.categorical(KEY, sharp)).tolist() == [1, 0]
    assert np.asarray(random.categorical(KEY, sharp.T, 0)).tolist() == [1, 0]


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="no int64 from 5 to 5 - 1"):
        random.randint(KEY, (2,), 5, 5)
    with pytest.raises(ArgumentError, match="no int8"):
        random.randint(KEY, (2,), 0, 200, "int8")
    with pytest.raises(DTypeError, match="dtype is float32"):
        random.randint(KEY, (2,), 0, 2, "float32")
    with pytest.raises(DTypeError, match="maxval is float32"):
        random.randint(KEY, (2,), 0, 2.5)
    with pytest.raises(DTypeError, match="p is of int64"):
        random.bernoulli(KEY, 1)
    for p in (1.5, -0.1, np.nan, np.float64(2)):
        with pytest.raises(ArgumentError, match="p is"):
            random.bernoulli(KEY, p)
    for weights in ([1.0, -1.0, 1.0], [1.0, np.nan, 1.0]):
        with pytest.raises(ArgumentError, match=r"p\[1\] is"):
            random.choice(KEY, 3, (2,), p=np.asarray(weights))
    with pytest.raises(ArgumentError, match="3 of 2 elements"):
        random.choice(KEY, 2, (3,), replace=False)
    with pytest.raises(ArgumentError, match="1 of 0 elements"):
        random.choice(KEY, 0)
    with pytest.raises(ShapeError, match="one probability for each"):
        random.choice(KEY, 3, (2,), p=P)
    with pytest.raises(ShapeError, match="does not end with"):
        random.categorical(KEY, LOGITS, -1, (3,))
    with pytest.raises(ArgumentError, match="4 of 3 categories"):
        random.categorical(KEY, LOGITS, -1, (4, 2), replace=False)
    with pytest.raises(DTypeError, match="floating-point"):
        random.categorical(KEY, np.asarray([1, 2]))
    with pytest.raises(DTypeError, match="no count"):
        random.permutation(KEY, 2.5)
    with pytest.raises(ShapeError, match="axis 1"):
        random.permutation(KEY, 5, axis=1)
