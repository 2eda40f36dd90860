"""Boxes of elements as several operands see them, and elements as the words by which they are moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Code, Value

Shape = tuple[int, ...]

_WORDS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def word_of(dtype: DType) -> DType:
    """Returns the unsigned dtype as which elements are moved; a complex128 is moved as two."""
    return _WORDS[min(dtype.itemsize, 8)]


def in_words(spec: TensorSpec, *strides: Shape) -> tuple[Shape, list[Shape]]:
    """Shape and strides in words: one more axis where an element is two."""
    if spec.dtype.itemsize <= 8:
        return spec.shape, list(strides)
    return (*spec.shape, 2), [(*s, 8) for s in strides]


class Axes(NamedTuple):
    """A box of elements as several operands see it: its sizes, and the strides of each operand in bytes."""

    shape: Shape
    strides: tuple[Shape, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def merged(self) -> Axes:
        """Without axes of size 1, and with neighbours that lie evenly in every operand made one."""
        kept: list[tuple[int, list[int]]] = []
        for axis, n in enumerate(self.shape):
            steps = [strides[axis] for strides in self.strides]
            if n == 1:
                continue
            if kept and all(outer == n * inner for outer, inner in zip(kept[-1][1], steps, strict=True)):
                kept[-1] = kept[-1][0] * n, steps
            else:
                kept.append((n, steps))
        return _axes(kept, len(self.strides))

    def ordered(self, by: int) -> Axes:
        """Returns the axes in falling order of one operand's strides, then merged."""
        rows = [(n, [s[axis] for s in self.strides]) for axis, n in enumerate(self.shape) if n != 1]
        rows.sort(key=lambda row: [-abs(row[1][by]), *(-abs(step) for step in row[1])])
        return _axes(rows, len(self.strides)).merged()

    def without(self, *axes: int) -> Axes:
        """Returns the axes that are left."""
        kept = [axis for axis in range(len(self.shape)) if axis not in axes]
        return Axes(
            tuple(self.shape[axis] for axis in kept), tuple(tuple(s[axis] for axis in kept) for s in self.strides)
        )

    def at(self, code: Code, pointers: Sequence[str], number: Value) -> list[str]:
        """Returns the operands' pointers at a position, counted in row-major order."""
        places = [code.integer(0)] * len(self.strides)
        for axis in reversed(range(len(self.shape))):
            size = code.integer(self.shape[axis])
            i = code.rem(number, size) if axis else number
            number = code.div(number, size)
            places = [
                code.add(place, code.mul(i, code.integer(strides[axis])))
                for place, strides in zip(places, self.strides, strict=True)
            ]
        return [code.offset(pointer, place) for pointer, place in zip(pointers, places, strict=True)]


def _axes(rows: Sequence[tuple[int, list[int]]], operands: int) -> Axes:
    return Axes(tuple(n for n, _ in rows), tuple(tuple(steps[k] for _, steps in rows) for k in range(operands)))
