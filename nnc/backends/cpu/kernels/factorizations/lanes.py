"""Matrices side by side: as many as a vector has lanes are factorised at once, one in each lane.

A group of matrices is read into a buffer, element after element. Where there is one matrix alone, the rows of the buffer are
computed with by vectors instead. So algorithms work along rows: `each`, `dot` and `add_multiple` print either kind of loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnc.backends.cpu.kernels.vectors import split
from nnc.backends.factorizations import Specs, printed_rows, supports
from nnc.backends.printer import Bound, Printer, add_native, in_blocks, times
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View

Params = Mapping[str, Any]
Sizes = Callable[[Specs, Params], int]  # elements of the buffer for one matrix
# Batches are 1.7 to 12 times as fast as LAPACK's calls on Zen 3 (at 64 rows 0.4 to 2.6), systems 1.1 to 6.6 times on Zen 4.
FAST_ROWS = 32
_STACK_BYTES = 1 << 17  # of a group's buffer; a larger one lies in the workspace, of which all threads have one


@dataclass(frozen=True)
class Group:
    """Prints operations on the rows of a group's buffer.

    Attributes:
        lanes: matrices side by side; 0 for one alone.
        vector: lanes of the vectors with which the rows of one matrix alone are computed.
        pointer: the buffer.
        refuse: prints the note that an input is refused.
    """

    code: Code
    dtype: DType
    lanes: int
    vector: int
    pointer: str
    refuse: Callable[[], None]

    @property
    def step(self) -> int:
        """Bytes from element to element."""
        return max(self.lanes, 1) * self.dtype.itemsize

    def behind(self, elements: int) -> Group:
        """Returns the group with the rest of the buffer."""
        return replace(self, pointer=self.code.offset(self.pointer, elements * self.step))

    def at(self, position: Bound, pointer: str | None = None) -> str:
        """Returns the pointer to an element."""
        return self.code.offset(self.pointer if pointer is None else pointer, times(self.code, position, self.step))

    def load(self, position: Bound, pointer: str | None = None) -> Value:
        """Reads an element of each matrix."""
        return self.code.load(self.at(position, pointer), self.dtype, self.lanes)

    def store(self, position: Bound, value: Value, pointer: str | None = None) -> None:
        """Writes an element of each matrix."""
        self.code.store(self.at(position, pointer), value)

    def number(self, value: float) -> Value:
        """Returns a number for each matrix."""
        return self.code.constant(value, self.dtype, self.lanes)

    def each(self, begin: Bound, end: Bound, body: Callable[[Value, int], None]) -> None:
        """Runs `body(bytes, lanes)` for the elements of a row."""
        code, size = self.code, self.dtype.itemsize
        if self.lanes:
            with code.loop(begin, end) as k:
                body(code.mul(k, code.integer(self.step)), self.lanes)
        else:
            in_blocks(code, begin, end, self.vector, lambda k, lanes: body(code.mul(k, code.integer(size)), lanes))

    def dot(self, begin: Bound, end: Bound, x: str, y: str) -> Value:
        """Returns the sum of products of two rows."""
        code = self.code
        sums = {n: code.slot(code.constant(0, self.dtype, n)) for n in {self.lanes, self.lanes or self.vector}}

        def add(place: Value, lanes: int) -> None:
            left, right = (code.load(code.offset(row, place), self.dtype, lanes) for row in (x, y))
            code.write(sums[lanes], code.fma(left, right, code.read(sums[lanes])))

        self.each(begin, end, add)
        if self.lanes or not self.vector:
            return code.read(sums[self.lanes])
        return code.reduce("fadd", code.read(sums[self.vector]), code.read(sums[0]))

    def add_multiple(self, begin: Bound, end: Bound, target: str, factor: Value, x: str) -> None:
        """Adds a multiple of row `x` to row `target`."""
        code = self.code

        def add(place: Value, lanes: int) -> None:
            at = code.offset(target, place)
            value = code.load(code.offset(x, place), self.dtype, lanes)
            code.store(at, code.fma(code.splat(factor, lanes), value, code.load(at, self.dtype, lanes)))

        self.each(begin, end, add)

    def any(self, condition: Value) -> Value:
        """Whether a condition holds for one of the matrices."""
        return self.code.reduce("or", condition) if condition.lanes else condition

    def power_of_two(self, x: Value) -> Value:
        """Returns the power of 2 below a positive x, within bounds whose reciprocals are normal numbers."""
        code, info = self.code, np.finfo(self.dtype)
        mask = ((1 << info.nexp) - 1) << info.nmant
        bits = code.bitcast(x, dtypes.int64 if self.dtype.itemsize == 8 else dtypes.int32)
        power = code.bitcast(code.and_(bits, code.like(bits, mask)), self.dtype)
        least, most = (self.number(2.0**e) for e in (info.minexp + 4, info.maxexp - 4))
        power = code.select(code.compare("lt", power, least), least, power)
        return code.select(code.compare("gt", power, most), most, power)

    def largest(self, begin: Bound, end: Bound, row: str) -> Value:
        """Returns the largest absolute value of a row, but NaN."""
        code = self.code
        best = {n: code.slot(code.constant(0, self.dtype, n)) for n in {self.lanes, self.lanes or self.vector}}

        def keep(x: Value, lanes: int) -> None:
            size, now = code.intrinsic("fabs", x), code.read(best[lanes])
            code.write(best[lanes], code.select(code.compare("gt", size, now), size, now))

        self.each(begin, end, lambda place, n: keep(code.load(code.offset(row, place), self.dtype, n), n))
        if not self.lanes and self.vector:
            wide = code.read(best[self.vector])
            for lane in range(self.vector):
                keep(Value(code.let(f"extractelement {wide.typed}, i64 {lane}"), self.dtype), 0)
        return code.read(best[self.lanes])

    def reflect(self, begin: Bound, end: Bound, row: str) -> tuple[Value, Value]:
        """Overwrites a row x with the Householder vector v, whose first element is 1; returns beta and tau.

        (1 - tau v vᵀ) x = beta e, with LAPACK's signs (`larfg`): beta has the other sign than the first element.
        """
        code, after = self.code, code_next(self.code, begin)
        alpha, zero, one = self.load(begin, row), self.number(0), self.number(1)
        tail = self.largest(after, end, row)
        size = code.intrinsic("fabs", alpha)
        scale = self.power_of_two(code.select(code.compare("gt", tail, size), tail, size))
        inverse = code.div(one, scale)
        self.scale(after, end, row, inverse)
        square, first = self.dot(after, end, row, row), code.mul(alpha, inverse)
        # NaN is no largest value, but part of the sum.
        moves = code.or_(code.compare("gt", tail, zero), code.compare("uno", square, square))
        norm = code.intrinsic("sqrt", code.fma(first, first, square))
        norm = code.intrinsic("copysign", norm, code.neg(first))
        factor = code.div(one, code.select(moves, code.sub(first, norm), one))
        self.scale(after, end, row, factor)
        self.store(begin, one, row)
        tau = code.select(moves, code.div(code.sub(norm, first), norm), zero)
        return code.select(moves, code.mul(norm, scale), alpha), tau

    def scale(self, begin: Bound, end: Bound, row: str, factor: Value) -> None:
        """Multiplies a row by a number."""
        code = self.code

        def multiply(place: Value, lanes: int) -> None:
            at = code.offset(row, place)
            code.store(at, code.mul(code.load(at, self.dtype, lanes), code.splat(factor, lanes)))

        self.each(begin, end, multiply)

    def fill(self, begin: Bound, end: Bound, row: str, value: float) -> None:
        """Writes a number everywhere in a row."""
        code = self.code
        self.each(begin, end, lambda place, n: code.store(code.offset(row, place), code.constant(value, self.dtype, n)))


def code_next(code: Code, i: Bound) -> Bound:
    """i + 1, folded where known."""
    return i + 1 if isinstance(i, int) else code.add(i, code.integer(1))


# -- kernels of whole batches ------------------------------------------------------------------------------------------

Move = Callable[[Callable[[Bound], str], Sequence[str]], None]
"""Moves one matrix, given where its element at a position of the buffer lies, and the operands' pointers."""


@dataclass(frozen=True)
class Factorization:
    """A command's algorithm.

    Attributes:
        elements: elements of the buffer for one matrix.
        read: (code, step, element, pointers) reads a matrix into the buffer.
        run: (group, step) computes.
        write: (code, step, element, pointers) writes the results.
        refuses: whether inputs may be refused.
        fast_rows: rows and columns, right-hand sides among them, up to which batches take less time than LAPACK's calls.
    """

    elements: Sizes
    read: Callable[[Code, Step, Callable[[Bound], str], Sequence[str]], None]
    run: Callable[[Group, Step], None]
    write: Callable[[Code, Step, Callable[[Bound], str], Sequence[str]], None]
    refuses: bool = False
    fast_rows: int = 0

    def lanes(self, specs: Specs, params: Params, machine: Target) -> int:
        """Matrices side by side: as many as there are, as vectors have lanes, and as the stack holds; 0 for one."""
        batch, size = math.prod(specs[0].shape[:-2]), specs[0].dtype.itemsize
        lanes = machine.vector_bytes // size
        while lanes > 1 and (lanes > batch or lanes * size * self.elements(specs, params) > _STACK_BYTES):
            lanes //= 2
        return lanes if lanes > 1 else 0

    def workspace(self, specs: Specs, params: Params, machine: Target) -> int:
        """Bytes of the buffer where it is too large for the stack."""
        nbytes = self.elements(specs, params) * specs[0].dtype.itemsize
        return nbytes if nbytes > _STACK_BYTES else 0

    def native(self, step: Step, machine: Target) -> Native | None:
        """Prints the kernel."""
        specs, count = step.input_specs, math.prod(step.inputs[0].spec.shape[:-2])
        if not all(spec.size for spec in specs):
            return None
        lanes, dtype = self.lanes(specs, step.params, machine), specs[0].dtype
        room = self.workspace(specs, step.params, machine)
        printer = Printer(step, machine, workspace=room > 0, refuses=self.refuses)
        groups = -(-count // max(lanes, 1))
        axes, names = _batches(step, room > 0)

        def body(code: Code, begin: Bound, end: Bound) -> None:
            nbytes = self.elements(specs, step.params) * max(lanes, 1) * dtype.itemsize
            buffer = "%workspace" if room else code.room(nbytes)
            vector = machine.vector_bytes // dtype.itemsize
            group = Group(code, dtype, lanes, vector, buffer, lambda: printer.refuse(code))
            with keeping_denormals(code), code.loop(begin, end) as i:
                # The last group may lie over its neighbour: these matrices are factorised twice.
                first = times(code, i, max(lanes, 1))
                if lanes and count % lanes:
                    first = code.intrinsic("smin", code.integer(first), code.integer(count - lanes))
                self._move(group, step, self.read, first, (axes, names))
                self.run(group, step)
                self._move(group, step, self.write, first, (axes, names))

        volume = max(1, specs[0].size // count * min(specs[0].shape[-2:]) * max(lanes, 1))
        grain = groups if room or (lanes and count % lanes) else machine.products.solved_part_volume // volume
        printer.parts(groups, max(1, grain), body)
        return printer.native()

    def _move(
        self, group: Group, step: Step, move: Callable[..., None], first: Bound, batch: tuple[Axes, list[str]]
    ) -> None:
        code, size = group.code, group.dtype.itemsize
        axes, names = batch
        with code.loop(0, max(group.lanes, 1)) as lane:
            index: Bound = code.add(code.integer(first), lane)
            pointers = list(names)
            for axis in reversed(range(len(axes.shape))):
                index, i = split(code, index, axes.shape[axis])
                pointers = [
                    code.offset(p, times(code, i, strides[axis]))
                    for p, strides in zip(pointers, axes.strides, strict=True)
                ]
            mine = code.offset(group.pointer, code.mul(lane, code.integer(size)))
            move(code, step, lambda position: group.at(position, mine), pointers)


def _batches(step: Step, has_room: bool) -> tuple[Axes, list[str]]:
    outputs = step.outputs[:-1] if has_room else step.outputs
    views = (*step.inputs, *outputs)
    batch = step.inputs[0].spec.shape[:-2]
    names = [f"%in{i}" for i in range(len(step.inputs))] + [f"%out{i}" for i in range(len(outputs))]
    return Axes(batch, tuple(view.strides[: len(batch)] for view in views)).merged(), names


@contextmanager
def keeping_denormals(code: Code) -> Iterator[None]:
    """Computes with denormal numbers, as LAPACK does: a pivot may be one."""
    for line in ("i64 @nnc_float_mode()", "void @nnc_set_float_mode(i64)", "void @nnc_keep_denormals()"):
        code.declare(f"declare {line}")
    mode = code.let("call i64 @nnc_float_mode()")
    code.line("call void @nnc_keep_denormals()")
    yield
    code.line(f"call void @nnc_set_float_mode(i64 {mode})")


def add_factorization(name: str, made: Factorization) -> None:
    """Registers the printed kernel of a command. LAPACK's comes first, but declines where the printed one `pays`."""
    add_native(name, made.native, supports, made.workspace, priority=9)
    printed_rows.set(name, made.fast_rows)


def over_matrix(code: Code, view: View, pointer: str, body: Callable[[Value, Value, str], None]) -> None:
    """Runs `body(i, j, pointer)` for all elements of a view's matrix."""
    m, n = view.spec.shape[-2:]
    row_step, column_step = view.strides[-2:]
    with code.loop(0, m) as i:
        row = code.offset(pointer, times(code, i, row_step))
        with code.loop(0, n) as j:
            body(i, j, code.offset(row, times(code, j, column_step)))


def position(code: Code, i: Bound, j: Bound, columns: int) -> Bound:
    """Returns the position of an element in a buffer with rows of so many elements."""
    return code.add(code.integer(times(code, i, columns)), code.integer(j))
