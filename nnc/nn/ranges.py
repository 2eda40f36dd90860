"""Integers that must lie in a range: lengths of sequences and indices of classes. Known values are checked before they are used."""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.errors import OutOfBoundsError, ShapeError, TraceError, user_error
from nnc.graph import spec_of
from nnc.numpy.operands import known


def read_lengths(where: str, name: str, lengths: Any, shape: tuple[int, ...], longest: int) -> Array:
    """Returns the number of valid steps of each sequence, as an array.

    Raises:
        ShapeError: they are no integers, or not one for each sequence.
        OutOfBoundsError: one is known to be negative or above `longest`.
    """
    lengths = nnp.asarray(lengths)
    if lengths.shape != shape or not dtypes.is_integer(lengths.dtype):
        problem = f"{name} must be integers of shape {shape}."
        fix = "pass one length for each sequence."
        raise user_error(ShapeError, where, problem, operands={name: spec_of(lengths)}, fix=fix)
    _check(where, name, lengths, longest, f"sequences have 0 to {longest} elements")
    return lengths


def read_classes(where: str, labels: Array, classes: int) -> Array:
    """Labels as indices, in which a traced one that is negative is out of bounds, too, and does not count from the end.

    Raises:
        OutOfBoundsError: one is known to be no class.
    """
    _check(where, "labels", labels, classes - 1, f"the classes are 0 to {classes - 1}")
    labels = nnp.astype(labels, dtypes.int64)  # a small dtype may not hold the number of classes
    return nnp.where(labels < 0, labels - classes, labels)  # as far before the first class as the label says


def _check(where: str, name: str, given: Array, top: int, rule: str) -> None:
    try:
        values = known(given, where, "pass known values.")  # values that are not known are not checked
    except TraceError:
        return
    wrong = values[(values < 0) | (values > top)]
    if wrong.size:
        problem = f"{name} hold {wrong[0]}, {rule}."
        fix = f"correct the {name}, or leave those examples out."
        raise user_error(OutOfBoundsError, where, problem, operands={name: spec_of(given)}, fix=fix)
