"""The native kernel of `triangular_solve`: tiles of the unknowns stay in registers while products of known unknowns are subtracted.

A panel of right-hand sides is solved from the first row to the last. A tile of rows is read, the rows above it, multiplied by their
part of the matrix, are subtracted as in a matrix product, and the small triangle on the diagonal is solved in registers (the
left-looking order, with the blocks of Goto and van de Geijn, "High-performance implementation of the level-3 BLAS", 2008). Upper
triangles are lower ones that are read backwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.cpu.kernels.vectors import (
    advance,
    cases,
    masks_of,
    read_row,
    split,
    write_row,
)
from nnc.backends.printer import Bound, Printer, add_native, times
from nnc.backends.products import Axis, merge_axes
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.records import record
from nnc.base.target import Target
from nnc.device.model import tile_rows
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step

_VECTORS = 3
_ROWS = 8  # of a tile: the triangle on its diagonal is solved row by row


@record
class System:
    """Lower triangles: a x = b for each iteration of `loops`. Distances are bytes; starts belong to the first row and column."""

    dtype: DType
    loops: tuple[Axis, ...]
    n: int
    width: int  # right-hand sides
    a: tuple[int, int]
    b: tuple[int, int]
    out: tuple[int, int]
    starts: tuple[int, int, int]
    unit_diagonal: bool


def _system(step: Step, *, lower: bool, transpose_a: bool = False, unit_diagonal: bool = False) -> System:
    (a, b), out = step.inputs, step.outputs[0]
    loops = merge_axes([
        Axis(size, x, y, z) for size, x, y, z in zip(b.spec.shape[:-2], a.strides, b.strides, out.strides, strict=False)
    ])  # fmt: skip
    n, width = b.spec.shape[-2:]
    a_steps, b_steps, out_steps = ((view.strides[-2], view.strides[-1]) for view in (a, b, out))
    if transpose_a:
        a_steps = a_steps[::-1]
    starts = (0, 0, 0)
    if lower == transpose_a:
        last = n - 1
        starts = last * sum(a_steps), last * b_steps[0], last * out_steps[0]
        a_steps, b_steps, out_steps = (
            (-a_steps[0], -a_steps[1]),
            (-b_steps[0], b_steps[1]),
            (-out_steps[0], out_steps[1]),
        )
    return System(b.spec.dtype, tuple(loops), n, width, a_steps, b_steps, out_steps, starts, unit_diagonal)


def _native(step: Step, machine: Target) -> Native | None:
    if not step.outputs[0].spec.size:
        return None
    return Solver.of(_system(step, **step.params), machine).native(step, machine)


class Solver:
    """Prints the kernel of one system."""

    def __init__(self, system: System, *, lanes: int, rows: int, buffered: bool) -> None:
        self.system, self.lanes, self.rows, self.buffered = system, lanes, rows, buffered
        self.size = system.dtype.itemsize
        self.columns = lanes * min(-(-system.width // lanes), _VECTORS)  # of a panel

    @classmethod
    def of(cls, system: System, machine: Target) -> Solver:
        """Returns the solver for a system, with tiles that fit into registers."""
        size = system.dtype.itemsize
        lanes = machine.vector_bytes // size
        while lanes > 2 and lanes // 2 >= system.width:
            lanes //= 2
        vectors = min(-(-system.width // lanes), _VECTORS)
        rows = min(tile_rows(machine.registers, vectors, _ROWS), system.n)
        buffered = system.n * lanes * vectors * size <= machine.products.solved_buffer_bytes
        return cls(system, lanes=lanes, rows=rows, buffered=buffered)

    def native(self, step: Step, machine: Target) -> Native:
        """Returns the finished kernel; it refuses a 0 on the diagonal."""
        system = self.system
        printer = Printer(step, machine, refuses=True)
        a, b, out = (
            printer.share(name, printer.main.offset(pointer, start))
            for name, pointer, start in zip(("a", "b", "x"), ("%in0", "%in1", "%out0"), system.starts, strict=True)
        )
        panels = -(-system.width // self.columns)
        count = panels
        for axis in system.loops:
            count *= axis.size

        def body(code: Code, begin: Bound, end: Bound) -> None:
            buffer = code.room(system.n * self.columns * self.size) if self.buffered else ""
            with code.loop(begin, end) as part:
                rest, panel = split(code, part, panels)
                pointers = advance(code, system.loops, rest, (a, b, out))
                if not system.unit_diagonal:
                    self._check(printer, code, pointers[0])
                first = times(code, panel, self.columns)
                pointers[1] = code.offset(pointers[1], times(code, first, system.b[1]))
                pointers[2] = code.offset(pointers[2], times(code, first, system.out[1]))
                for width, only_last in cases(self.columns, system.width - (panels - 1) * self.columns, panels):
                    if only_last is None:
                        self._panel(code, pointers, buffer, width)
                        continue
                    last = code.compare("eq", code.integer(panel), code.integer(panels - 1))
                    with code.when(last if only_last else code.not_(last)):
                        self._panel(code, pointers, buffer, width)

        volume = system.n * system.n * self.columns // 2
        printer.parts(count, max(1, machine.products.solved_part_volume // max(volume, 1)), body)
        return printer.native(inline=volume * count <= 1024)

    def _check(self, printer: Printer, code: Code, a: str) -> None:
        with code.loop(0, self.system.n) as i:
            element = code.load(code.offset(a, times(code, i, sum(self.system.a))), self.system.dtype)
            with code.when(code.compare("eq", element, code.like(element, 0))):
                printer.refuse(code)

    def _panel(self, code: Code, pointers: list[str], buffer: str, width: int) -> None:
        n, rows = self.system.n, self.rows
        whole = n // rows * rows
        if whole == rows:
            self.tile(code, pointers, buffer, 0, rows, width)
        else:
            with code.loop(0, whole, rows) as at:
                self.tile(code, pointers, buffer, at, rows, width)
        if n % rows:
            self.tile(code, pointers, buffer, whole, n % rows, width)

    def remainders(
        self, code: Code, pointers: list[str], buffer: str, at: Bound, rows: int, width: int
    ) -> list[list[Value]]:
        """Returns a tile of right-hand sides from row `at` on, less the contributions of the unknowns above."""
        system, lanes, dtype = self.system, self.lanes, self.system.dtype
        masks = masks_of(code, lanes, width)
        a = code.offset(pointers[0], times(code, at, system.a[0]))
        b = code.offset(pointers[1], times(code, at, system.b[0]))
        slots = []
        for i in range(rows):
            row = code.offset(b, i * system.b[0])
            vectors = [read_row(code, row, v * lanes, system.b[1], dtype, lanes, mask) for v, mask in enumerate(masks)]
            slots.append([code.slot(vector) for vector in vectors])
        with code.loop(0, at) as p:
            known = [self._known(code, pointers[2], buffer, p, v, mask) for v, mask in enumerate(masks)]
            column = code.offset(a, times(code, p, system.a[1]))
            for i, row_slots in enumerate(slots):
                factor = self._factor(code, column, i * system.a[0])
                for slot, vector in zip(row_slots, known, strict=True):
                    code.write(slot, code.fma(factor, vector, code.read(slot)))
        return [[code.read(slot) for slot in row_slots] for row_slots in slots]

    def tile(self, code: Code, pointers: list[str], buffer: str, at: Bound, rows: int, width: int) -> None:
        """Solves the rows from `at` on of a panel; those above are solved already."""
        system, lanes, dtype = self.system, self.lanes, self.system.dtype
        values = self.remainders(code, pointers, buffer, at, rows, width)
        a = code.offset(pointers[0], times(code, at, system.a[0]))
        x = code.offset(pointers[2], times(code, at, system.out[0]))
        triangle = code.offset(a, times(code, at, system.a[1]))
        for i in range(rows):
            if not system.unit_diagonal:
                pivot = code.splat(code.load(code.offset(triangle, i * sum(system.a)), dtype), lanes)
                values[i] = [code.div(value, pivot) for value in values[i]]
            for j in range(i + 1, rows):
                factor = self._factor(code, triangle, j * system.a[0] + i * system.a[1])
                values[j] = [code.fma(factor, top, value) for top, value in zip(values[i], values[j], strict=True)]
        for i, row_values in enumerate(values):
            for v, (value, mask) in enumerate(zip(row_values, masks_of(code, lanes, width), strict=True)):
                if self.buffered:
                    kept = code.offset(buffer, times(code, at, self.columns * self.size))
                    code.store(code.offset(kept, (i * self.columns + v * lanes) * self.size), value)
                write_row(code, code.offset(x, i * system.out[0]), v * lanes, system.out[1], value, mask, self.size)

    def _known(self, code: Code, out: str, buffer: str, p: Value, v: int, mask: Value | None) -> Value:
        """Returns a vector of a row that is solved."""
        if self.buffered:
            row = code.offset(buffer, times(code, p, self.columns * self.size))
            return code.load(code.offset(row, v * self.lanes * self.size), self.system.dtype, self.lanes)
        row = code.offset(out, times(code, p, self.system.out[0]))
        return read_row(code, row, v * self.lanes, self.system.out[1], self.system.dtype, self.lanes, mask)

    def _factor(self, code: Code, pointer: str, nbytes: int) -> Value:
        element = code.load(code.offset(pointer, nbytes), self.system.dtype)
        return code.neg(code.splat(element, self.lanes))


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return specs[0].dtype in (dtypes.float32, dtypes.float64)


add_native("triangular_solve", _native, _supports)
