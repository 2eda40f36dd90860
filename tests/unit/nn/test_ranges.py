"""Lengths and labels: known values are checked at once, traced values when they run."""

from __future__ import annotations

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import OutOfBoundsError, ShapeError
from nnc.nn.ranges import read_classes, read_lengths


def test_lengths_from_nothing_to_all_are_taken() -> None:
    lengths = read_lengths("f", "lengths", [0, 3], (2,), 3)
    np.testing.assert_array_equal(np.asarray(lengths), [0, 3])
    assert read_lengths("f", "lengths", np.zeros((0,), int), (0,), 3).shape == (0,)


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_known_length_out_of_range_is_named(wrong: int) -> None:
    with pytest.raises(OutOfBoundsError, match=f"f: lengths hold {wrong}, sequences have 0 to 3 elements"):
        read_lengths("f", "lengths", [1, wrong], (2,), 3)


@pytest.mark.parametrize("lengths", [[1.0, 2.0], [1], 1])
def test_lengths_are_integers_one_for_each_sequence(lengths: object) -> None:
    with pytest.raises(ShapeError, match=r"lengths must be integers of shape \(2,\)"):
        read_lengths("f", "lengths", lengths, (2,), 3)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_traced_label_that_is_no_class_is_out_of_bounds_when_it_is_used(wrong: int) -> None:
    scores = nnp.arange(3.0)
    picked = nnc.compile(lambda labels: nnp.take(scores, read_classes("f", labels, 3), axis=0))
    assert float(picked(np.array([2]))[0]) == 2
    with pytest.raises(OutOfBoundsError):
        picked(np.array([wrong]))
