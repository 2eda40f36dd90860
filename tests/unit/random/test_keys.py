"""Keys and bits; the literal numbers come from jax.random (0.10.2) for the same key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
from nnc import random
from nnc.commands.random import threefry2x32
from nnc.errors import ArgumentError, DTypeError, ShapeError

KEY = random.key(42)


def test_the_cipher_gives_the_vectors_of_its_authors() -> None:
    def words(*values: int) -> Any:
        return tuple(np.asarray(value, np.uint32) for value in values)

    assert [int(x) for x in threefry2x32(words(0, 0), words(0, 0))] == [0x6B200159, 0x99BA4EFE]
    ones = 0xFFFFFFFF
    assert [int(x) for x in threefry2x32(words(ones, ones), words(ones, ones))] == [0x1CB996FC, 0xBB002BE7]
    pi = threefry2x32(words(0x13198A2E, 0x03707344), words(0x243F6A88, 0x85A308D3))
    assert [int(x) for x in pi] == [0xC4923A9C, 0x483DF7A0]


def test_keys_hold_the_two_halves_of_their_seed() -> None:
    assert np.asarray(random.key(0)).tolist() == [0, 0]
    assert np.asarray(random.key(2**40 + 5)).tolist() == [256, 5]
    assert np.asarray(random.key(-3)).tolist() == [0xFFFFFFFF, 0xFFFFFFFD]
    assert np.asarray(nnc.compile(random.key)(-3)).tolist() == [0xFFFFFFFF, 0xFFFFFFFD]
    assert np.asarray(random.key(np.int32(-3))).tolist() == [0, 0xFFFFFFFD]
    many = nnc.vmap(random.key)(np.arange(3))
    assert np.asarray(many).tolist() == [[0, 0], [0, 1], [0, 2]]


def test_split_and_fold_in_give_the_keys_of_jax() -> None:
    keys = random.split(KEY, 3)
    assert np.asarray(keys).tolist() == [[1832780943, 270669613], [64467757, 2916123636], [2465931498, 255383827]]
    assert np.asarray(random.fold_in(KEY, 7)).tolist() == [2547012911, 1371500959]
    assert np.asarray(random.fold_in(KEY, np.asarray(7))).tolist() == [2547012911, 1371500959]
    assert random.split(KEY, (2, 3)).shape == (2, 3, 2)


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("uint8", [162, 217, 249, 215]),
        ("uint16", [5026, 12505, 63993, 49623]),
        ("uint32", [2098992034, 2919706841, 2646866425, 2409546199]),
        ("uint64", [7871734211187709741, 276886910877598708, 10591095138341673235, 13462782411356743825]),
    ],
)
def test_bits_are_those_of_jax(dtype: str, numbers: list[int]) -> None:
    got = random.bits(KEY, (2, 2), dtype)
    assert got.dtype == dtype
    assert np.asarray(got).ravel().tolist() == numbers


def test_long_draws_go_on_as_they_begin() -> None:
    assert np.asarray(random.bits(KEY, (70001,)))[-3:].tolist() == [3236234704, 3248217389, 214525572]


def test_draws_of_a_batch_of_keys_are_those_of_each_key() -> None:
    keys = random.split(KEY, 3)
    for draw in (lambda k: random.bits(k, (2, 4)), lambda k: random.split(k), lambda k: random.fold_in(k, 5)):
        got = np.asarray(nnc.vmap(draw)(keys))
        assert got.tolist() == [np.asarray(draw(k)).tolist() for k in keys]
    folded = nnc.vmap(random.fold_in, in_axes=(None, 0))(KEY, np.arange(3))
    assert np.asarray(folded).tolist() == [np.asarray(random.fold_in(KEY, i)).tolist() for i in range(3)]


def test_draws_can_be_traced() -> None:
    graph = nnc.make_graph(lambda seed: random.normal(random.key(seed), (3,)))(np.asarray(0))
    np.testing.assert_array_equal(np.asarray(graph(np.asarray(42))), np.asarray(random.normal(KEY, (3,))))


def test_objects_that_are_no_key_seed_or_shape_are_refused() -> None:
    with pytest.raises(DTypeError, match=r"nnc\.random\.key\(seed\)"):
        random.split(np.asarray([0, 1]))
    with pytest.raises(ShapeError, match=r"nnc\.vmap"):
        random.uniform(random.split(KEY), (2,))
    with pytest.raises(DTypeError, match="seed"):
        random.key(0.5)
    with pytest.raises(ArgumentError, match="64 bits"):
        random.key(2**64)
    with pytest.raises(ShapeError, match="a seed of shape"):
        random.key(np.arange(2))
    with pytest.raises(ArgumentError, match="negative size"):
        random.bits(KEY, (-1,))
    with pytest.raises(DTypeError, match="randint"):
        random.bits(KEY, (2,), "int32")
    with pytest.raises(ArgumentError, match="data is -1"):
        random.fold_in(KEY, -1)
    with pytest.raises(DTypeError, match="fold in one integer"):
        random.fold_in(KEY, 0.5)
