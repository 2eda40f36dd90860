"""Collectives over named axes by their definitions: functions of the list of all rows' values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.base import dtypes
from nnc.testing.fuzz.lockstep import Lockstep

Names = str | tuple[str, ...]


class Collectives:
    """The collectives of `nnc` for rows in lockstep."""

    lockstep: Lockstep

    def _folded(self, x: Any, names: Names, fold: Callable[[list[Any]], Any]) -> Any:
        for name in (names,) if isinstance(names, str) else names:
            x = self.lockstep.meet(name, lambda values: [fold(values)] * len(values), x)
        return x

    def _joined(self, x: Any, name: str, chosen: Callable[[list[Any], int], Any]) -> Any:
        return self.lockstep.meet(name, lambda values: [chosen(values, i) for i in range(len(values))], x)

    def psum(self, x: Any, axis_name: Names) -> Any:
        """The sum of all rows' values; bools are counted."""
        if not dtypes.is_scalar(x) and dtypes.is_bool(x.dtype):
            x = x.astype("int32")
        return self._folded(x, axis_name, _sum)

    def pmean(self, x: Any, axis_name: Names) -> Any:
        """The mean of all rows' values."""
        return self.psum(x / 1, axis_name) / self.axis_size(axis_name)  # sums of integers might wrap around

    def pmax(self, x: Any, axis_name: Names) -> Any:
        """The largest value."""
        return self._folded(x, axis_name, lambda values: nnp.max(nnp.stack(values), 0))

    def pmin(self, x: Any, axis_name: Names) -> Any:
        """The smallest value."""
        return self._folded(x, axis_name, lambda values: nnp.min(nnp.stack(values), 0))

    def all_gather(self, x: Any, axis_name: str, *, axis: int = 0, tiled: bool = False) -> Any:
        """The values of all rows, stacked or concatenated."""
        join = nnp.concatenate if tiled else nnp.stack
        return self._joined(x, axis_name, lambda values, i: join(values, axis))

    def psum_scatter(self, x: Any, axis_name: str, *, scatter_dimension: int = 0, tiled: bool = False) -> Any:
        """Each row's part of the sum."""
        return self._joined(x, axis_name, lambda xs, i: _part(_sum(xs), i, len(xs), scatter_dimension, tiled))

    def all_to_all(self, x: Any, axis_name: str, split_axis: int, concat_axis: int, *, tiled: bool = False) -> Any:
        """Each row's parts of the values of all rows, joined."""
        join = nnp.concatenate if tiled else nnp.stack

        def parts(values: list[Any], i: int) -> Any:
            return join([_part(x, i, len(values), split_axis, tiled) for x in values], concat_axis)

        return self._joined(x, axis_name, parts)

    def ppermute(self, x: Any, axis_name: str, perm: Sequence[tuple[int, int]]) -> Any:
        """The value of another row, or zeros."""
        sources = {target: source for source, target in perm}
        return self._joined(x, axis_name, lambda xs, i: xs[sources[i]] if i in sources else nnp.zeros_like(xs[i]))

    def axis_index(self, axis_name: Names) -> Any:
        """The place of this row."""
        place = 0
        for name in (axis_name,) if isinstance(axis_name, str) else axis_name:
            place = place * self.lockstep.size(name) + self.lockstep.place(name)
        return nnc.asarray(np.int32(place))

    def axis_size(self, axis_name: Names) -> int:
        """The number of rows."""
        size = 1
        for name in (axis_name,) if isinstance(axis_name, str) else axis_name:
            size *= self.lockstep.size(name)
        return size

    def pvary(self, x: Any, axis_name: Names) -> Any:
        """The same value."""
        return x


def _sum(values: list[Any]) -> Any:
    total = values[0]
    for x in values[1:]:
        total = total + x
    return total


def _part(x: Any, i: int, count: int, axis: int, tiled: bool) -> Any:
    """Part `i` of `count` along an axis, which goes unless the parts are blocks."""
    size, axis = x.shape[axis], axis % x.ndim
    if size % count if tiled else size != count:
        raise nnc.errors.ShapeError(f"{size} elements do not make {count} parts")
    width = size // count
    block = x[(slice(None),) * axis + (slice(i * width, (i + 1) * width),)]
    return block if tiled else block[(slice(None),) * axis + (0,)]
