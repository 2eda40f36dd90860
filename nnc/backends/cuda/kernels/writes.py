"""A scatter as the kernels of its launches see it: its operands, their parts, and the functions' parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.registry import Series
from nnc.backends.cuda.kernels.units import each_unit, places_of, unsigned
from nnc.base import dtypes
from nnc.base.target import GpuTarget
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes, in_words, word_of
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.indexed import Indexed
from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.plan.stages import Step, View


def in_parts(view: View, op: str) -> View:
    """Views a scatter's operand as words where elements are only moved, or complex numbers as their parts, along one more axis."""
    dtype = view.spec.dtype
    if op == "set":
        shape, (strides,) = in_words(view.spec, view.strides)
        return view.show(TensorSpec(shape, word_of(dtype)), view.offset, strides)
    if not dtypes.is_complex(dtype):
        return view
    real = dtypes.real_dtype(dtype)
    return view.show(TensorSpec((*view.spec.shape, 2), real), view.offset, (*view.strides, real.itemsize))


class Writes:
    """The writes of a scatter. Each function takes the step's inputs, its output, its workspace and its status word.

    Args:
        step: a scatter, or an update of a slice.
        box: the geometry of the result, in parts.
        updates: the updates, in parts.
        is_update: whether the result lies where the operand does.

    Attributes:
        target: the result, in parts.
        source: the pointer to the updates.
        pointer: the pointer to the result.
        workspace: the pointer to the workspace; "" where there is none.
        status: the pointer to the status word; "" where no index is refused.
    """

    def __init__(self, step: Step, machine: GpuTarget, box: Indexed, updates: View, is_update: bool) -> None:
        self.machine, self.step, self.box, self.updates, self.is_update = machine, step, box, updates, is_update
        self.target = box.x
        self._inputs, self._outputs = len(step.inputs), len(step.outputs)
        count = self._inputs + self._outputs
        self.source, self.pointer = "%p1", f"%p{self._inputs}"
        self.workspace = f"%p{self._inputs + 1}" if self._outputs > 1 else ""
        self.status = f"%p{count}" if box.mode == "error" else ""

    @property
    def count(self) -> int:
        """The number of updates, each of a row."""
        return math.prod(self.box.outer)

    @property
    def rows(self) -> int:
        """The number of rows of the result."""
        return math.prod(self.target.spec.shape[axis] for axis in self._row_axes)

    @property
    def _row_axes(self) -> tuple[int, ...]:
        """The axes that count rows."""
        return (*range(self.box.batch), *self.box.axes)

    @property
    def columns(self) -> Axes:
        """The elements of a row, of updates and of the result."""
        _, of_updates = self.box.strides(self.updates)
        return Axes(self.box.row.shape, (of_updates, self.box.row_strides(self.target))).ordered(0)

    def row(self, code: GpuCode, n: Value) -> tuple[Value, Value | None]:
        """Returns the row of an update (`rows` where it is dropped), and whether its indices are in range (None: they are known
        to be).

        Args:
            n: the number of the update, an int64.
        """
        box, spec = self.box, self.target.spec
        strides, step = [0] * spec.ndim, 1
        for axis in reversed(self._row_axes):
            strides[axis] = step
            step *= spec.shape[axis]
        numbers = self.target.show(spec, 0, tuple(strides))
        outer = Axes(box.outer, (box.outer_strides(numbers), *(index.strides for index in box.indices))).merged()
        first, *to_indices = places_of(code, outer, unsigned(code, n, self.count))
        row, inside = box.find(code, [code.offset(self.index(k), at) for k, at in enumerate(to_indices)], numbers)
        row = code.add(first, row)
        return (row if inside is None else code.select(inside, row, code.integer(self.rows))), inside

    def update_at(self, code: GpuCode, n: Value) -> str:
        """Returns the address of the first element of an update.

        Args:
            n: the number of the update, unsigned.
        """
        of_outer, _ = self.box.strides(self.updates)
        (place,) = places_of(code, Axes(self.box.outer, (of_outer,)).merged(), n)
        return code.offset(self.source, place)

    def target_at(self, code: GpuCode, row: Value) -> str:
        """Returns the address of the first element of a row of the result.

        Args:
            row: the number of the row, unsigned.
        """
        shape, strides = self.target.spec.shape, self.target.strides
        sizes = tuple(shape[axis] for axis in self._row_axes)
        steps = tuple(strides[axis] for axis in self._row_axes)
        (place,) = places_of(code, Axes(sizes, (steps,)).merged(), row)
        return code.offset(self.pointer, place)

    @property
    def row_alignment(self) -> int:
        """Bytes that divide the places of all rows and updates."""
        of_outer, _ = self.box.strides(self.updates)
        return math.gcd(self.alignment, *of_outer, *self.target.strides[: self.box.batch])

    @property
    def alignment(self) -> int:
        """Bytes that divide the places of rows and updates beside their strides."""
        views, axes = (self.target, self.updates), self.box.axes
        moves = [nbytes for view in views for nbytes in (view.offset, *(by for _, by in view.advances))]
        return math.gcd(self.machine.grids.aligned_bytes, *moves, *(self.target.strides[axis] for axis in axes))

    def index(self, number: int) -> str:
        """Returns the pointer to an array of indices, by its number."""
        return f"%p{number + self._inputs - len(self.box.indices)}"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.machine.grids.threads

    def begin(self, stem: str, threads: int) -> GpuCode:
        """Begins a function.

        Args:
            stem: the function's name without KERNEL_.
            threads: threads of a block.
        """
        pointers = ["", *["noalias readonly"] * (self._inputs - 1), *["noalias"] * self._outputs]
        return GpuCode(f"KERNEL_{stem}", [*pointers, ""] if self.status else pointers, threads)

    @contextmanager
    def each(self, series: Series, stem: str, count: int) -> Iterator[tuple[GpuCode, Value]]:
        """Adds a launch with a thread for each of so many units: yields its code and the number of the thread's unit."""
        code = self.begin(stem, self.threads)
        with each_unit(code, count, self.threads) as unit:
            yield code, unit
        self.end(series, code, -(-count // self.threads), self.threads)

    def end(self, series: Series, code: GpuCode, blocks: int, threads: int) -> None:
        """Ends a function, and adds its launch to the series.

        Args:
            blocks: blocks of the grid.
            threads: threads of a block.
        """
        code.ret()
        operands = tuple(range(len(code.parameters)))
        kept = (self._inputs,) if self.is_update else ()
        launch = Launch(f"@{code.name}", (blocks, 1, 1), (threads, 1, 1), operands, updates=kept)
        series.add(DeviceKernel(code.module(), (launch,), bool(self.status)), operands)
