"""Reading and writing at positions known only at run time: the geometry of gather and scatter, and how updates join elements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.graph import TensorSpec, command
from nnc.lower.kernels.axes import Shape
from nnc.lower.kernels.builder import Code, Slot, Value
from nnc.lower.kernels.reductions import Combine, shortcut
from nnc.lower.kernels.values import position
from nnc.lower.plan.stages import View

_ROUNDED = (dtypes.float16, dtypes.bfloat16)


class Indexed(NamedTuple):
    """The geometry that gather and scatter share: a box of rows of `x`, and the positions at which they lie."""

    x: View
    indices: tuple[View, ...]
    axes: Shape
    batch: int
    mode: str

    @property
    def outer(self) -> Shape:
        """Sizes of the shared axes and of the index arrays' own."""
        return self.indices[0].spec.shape

    @property
    def rest(self) -> Shape:
        """The axes of x that are read or written whole."""
        return tuple(axis for axis in range(self.batch, self.x.spec.ndim) if axis not in self.axes)

    @property
    def row(self) -> TensorSpec:
        """The spec of the row at one position."""
        return TensorSpec(tuple(self.x.spec.shape[axis] for axis in self.rest), self.x.spec.dtype)

    @property
    def is_out_of_reach(self) -> bool:
        """Whether every index is out of range, since an indexed axis is empty."""
        return math.prod(self.outer) > 0 and any(self.x.spec.shape[axis] == 0 for axis in self.axes)

    @property
    def refuses(self) -> bool:
        """Whether indices may be refused."""
        return self.mode == "error" or (self.mode in ("clip", "wrap") and self.is_out_of_reach)

    def strides(self, view: View) -> tuple[Shape, Shape]:
        """Strides of a tensor of shape B + I + rest, of its outer axes and of its rows."""
        return view.strides[: len(self.outer)], view.strides[len(self.outer) :]

    def row_strides(self, x: View) -> Shape:
        """Strides of a row of a tensor like x."""
        return tuple(x.strides[axis] for axis in self.rest)

    def outer_strides(self, x: View) -> Shape:
        """Strides of a tensor like x along the shared axes and, as 0, along the index arrays' own."""
        return (*x.strides[: self.batch], *(0 for _ in self.outer[self.batch :]))

    def find(self, code: Code, pointers: Sequence[str], x: View) -> tuple[Value, Value | None]:
        """Returns the bytes from the first row to the row that the indices at `pointers` name, and whether they are in range (None:
        they are). Indices out of range go to row 0.
        """
        place, inside = code.integer(0), None
        for pointer, index, axis in zip(pointers, self.indices, self.axes, strict=True):
            at, ok = position(code, code.load(pointer, index.spec.dtype), x.spec.shape[axis], self.mode)
            place = code.add(place, code.mul(at, code.integer(x.strides[axis])))
            if ok is not None:
                inside = ok if inside is None else code.and_(inside, ok)
        return place, inside

    def locate(self, code: Code, pointers: Sequence[str], x: View, bad: Slot | None) -> tuple[Value, Value | None]:
        """Returns the same as `find`; in mode "error", `bad` becomes true instead where indices are out of range."""
        place, inside = self.find(code, pointers, x)
        if inside is not None and bad is not None:
            code.write(bad, code.or_(code.read(bad), code.not_(inside)))
            return place, None
        return place, inside


def is_rounded(dtype: DType, op: str) -> bool:
    """Whether elements are kept in float32 until all updates are applied."""
    return dtype in _ROUNDED and op in ("add", "mul")


COMBINE: Mapping[str, Combine] = MappingProxyType(
    {
        op: shortcut[command(name)].combine
        for op, name in {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}.items()
    }
)
"""The element that results of an element and an update, by `op` of scatter."""
