"""Values of a nest in the code of one thread: vectors are aligned, elements at other places are read one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.operands import Operands
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.commands.index import fill_value
from nnc.graph import Graph, Node, Symbol
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.kernel_ir import Loops
from nnc.lower.kernels.launch import Launch
from nnc.lower.kernels.values import Scope, Values, position


class ThreadValues(Values):
    """The values of a nest; a thread computes `lanes` neighbours at a time.

    Args:
        lanes: the number of neighbours, a power of two.
    """

    code: GpuCode

    def __init__(self, operands: Operands, lanes: int) -> None:
        super().__init__(operands.nest, lanes if lanes > 1 else 0)
        self.operands, self.width = operands, lanes
        self.workspace, self.status = "", ""  # pointers

    # -- functions -----------------------------------------------------------------------------------------------------

    def begin(self, stem: str, threads: int, with_workspace: bool = False) -> None:
        """Begins a function of blocks of so many threads."""
        shared, pointers = self.operands.overwritten, []
        for i in range(len(self.operands.views)):
            is_input = i < len(self.graph.inputs)
            if i in shared or (shared and not is_input):
                pointers.append("")
            else:
                pointers.append("noalias readonly" if is_input else "noalias")
        places = [f"%p{i}" for i in range(len(pointers))]
        if with_workspace:
            self.workspace = f"%p{len(pointers)}"
            pointers.append("")
        if self.operands.may_fail:
            self.status = f"%p{len(pointers)}"
            pointers.append("")
        self.code = GpuCode(f"KERNEL_{stem}", pointers, threads, _are_of_16_bits(self.graph))
        shifts = self.operands.shifts or [0] * len(places)
        self.pointers = [self.code.offset(place, shift) for place, shift in zip(places, shifts, strict=True)]

    def text(self) -> str:
        """Returns the present function, which must have returned, with its declarations."""
        return self.code.module()

    def launch(self, grid: tuple[int, int], threads: int) -> Launch:
        """Describes the launch of the present function.

        Args:
            grid: the number of blocks along x and y.
            threads: threads of a block.
        """
        count = len(self.operands.views)
        taken = list(range(len(self.code.parameters)))
        if self.operands.may_fail:  # the status word stands behind the workspace, which not every function takes
            taken[-1] = count + self.operands.has_workspace
        return Launch(f"@{self.code.name}", (*grid, 1), (threads, 1, 1), tuple(taken))

    # -- numbers of threads and iterations -----------------------------------------------------------------------------

    def number(self, name: str, short: bool) -> Value:
        """Returns a number of the thread or of its block, in 32 or 64 bits."""
        found = self.code.special(name)
        return self.code.convert(found, dtypes.uint32 if short else dtypes.uint64)

    def take_apart(self, unit: Value, loops: Loops, counts: Sequence[int]) -> dict[int, Value]:
        """Returns the iteration of each loop from their joint number; loops run from the outside in."""
        code = self.code
        iterations: dict[int, Value] = {}
        for loop, count in reversed(list(zip(loops, counts, strict=True))[1:]):
            iterations[loop] = self.wide(code.rem(unit, code.like(unit, count)))
            unit = code.div(unit, code.like(unit, count))
        if loops:
            iterations[loops[0]] = self.wide(unit)
        return iterations

    def wide(self, x: Value) -> Value:
        """Returns a number of iterations as an int64."""
        return self.code.convert(x, dtypes.int64)

    # -- values --------------------------------------------------------------------------------------------------------

    def ramp(self, dtype: DType) -> Value:
        """0, 1, 2 … in the lanes of a vector."""
        return super().ramp(dtype) if self.lanes else self.code.constant(0, dtype)

    def _gather(self, node: Node, block: Scope) -> Value:
        """Returns an element at a computed place, or one for each lane."""
        code, mode, (x, *indices) = self.code, node.params["mode"], node.inputs
        operand = self.place[x]
        place, inside = code.integer(0), Value("true", dtypes.bool_)
        for axis, index in zip(node.params["axes"], indices, strict=True):
            given = self.value(index, block)
            at, there = (
                self._checked(given, x.shape[axis]) if mode == "error" else position(code, given, x.shape[axis], mode)
            )
            inside = code.and_(inside, there) if there is not None else inside
            place = code.add(place, code.mul(at, code.like(at, self.nest.places[operand][axis][1])))
        if mode == "error":
            self._refuse(inside, block.mask)
        pointer = self._pointer(operand, block)
        if not place.lanes:
            found = self._read(operand, code.offset(pointer, place), block)
        else:
            step = self._vector_step(operand)
            places = [code.offset(pointer, code.lane(place, lane)) for lane in range(place.lanes)]
            places = [code.offset(at, lane * step) for lane, at in enumerate(places)]
            found = self.guarded(block.mask, lambda: code.join([code.load(at, x.dtype) for at in places]))
        if mode in ("drop", "fill"):
            outside = fill_value(x.dtype) if mode == "fill" else 0
            found = code.select(inside, found, code.constant(outside, x.dtype, max(found.lanes, inside.lanes)))
        return found

    def _checked(self, index: Value, size: int) -> tuple[Value, Value]:
        """Returns an index as an int64, 0 where it is out of range, and whether it is in range."""
        code = self.code
        at = code.convert(index, dtypes.int64)  # an unsigned one of 64 bits that is too large becomes negative
        inside = code.and_(code.compare("ge", at, code.like(at, 0)), code.compare("lt", at, code.like(at, size)))
        return code.select(inside, at, code.like(at, 0)), inside

    def _refuse(self, inside: Value, mask: Value | None) -> None:
        """Sets the status word where an index is out of range."""
        code = self.code
        every = code.lane(inside, 0)
        for lane in range(1, inside.lanes):
            every = code.and_(every, code.lane(inside, lane))
        outside = code.not_(every)
        code.refuse(self.status, outside if mask is None else code.and_(outside, mask))

    # -- memory --------------------------------------------------------------------------------------------------------

    def _read(self, operand: int, pointer: str, block: Scope) -> Value:
        code, dtype, step = self.code, self.nest.operands[operand].dtype, self._vector_step(operand)
        if step == 0 or self.nest.vector not in block.iterations or not self.lanes:
            return self.guarded(block.mask, lambda: code.load(pointer, dtype))
        if step == dtype.itemsize:
            alignment = self.operands.alignment(operand, self.lanes)
            return self.guarded(block.mask, lambda: code.load(pointer, dtype, self.lanes, align=alignment))
        places = [code.offset(pointer, lane * step) for lane in range(self.lanes)]
        return self.guarded(block.mask, lambda: code.join([code.load(place, dtype) for place in places]))

    def guarded(self, mask: Value | None, load: Callable[[], Value]) -> Value:
        """Reads where a mask holds; elsewhere the value is 0."""
        return load() if mask is None else self.code.guarded(mask, load)

    def store(self, operand: int, value: Value, block: Scope) -> None:
        """Writes an output."""
        code, dtype, step = self.code, self.nest.operands[operand].dtype, self._vector_step(operand)
        value, pointer = code.convert(value, dtype), self._pointer(operand, block)
        if step == 0 or self.nest.vector not in block.iterations or not self.lanes:
            code.store(pointer, value)
        elif step == dtype.itemsize:
            code.store(pointer, self.spread(value), align=self.operands.alignment(operand, self.lanes))
        else:
            for lane in range(self.lanes):
                code.store(code.offset(pointer, lane * step), code.lane(self.spread(value), lane))

    def store_all(self, outputs: Sequence[tuple[int, Symbol]], block: Scope) -> None:
        """Computes outputs, given with their positions, and then writes them, since an output may lie where an input does."""
        found = [(len(self.graph.inputs) + i, self.value(symbol, block)) for i, symbol in outputs]
        if found:
            with self.under(block.mask):
                for operand, value in found:
                    self.store(operand, value, block)

    @contextmanager
    def under(self, condition: Value | None) -> Iterator[None]:
        """Prints the block under a condition; None: it always holds."""
        if condition is None:
            yield
        else:
            with self.code.when(condition):
                yield


def _are_of_16_bits(graph: Graph) -> bool:
    """Whether all floats that a graph reads and returns have 16 bits."""
    floats = [spec.dtype for spec in (*graph.input_specs, *graph.output_specs) if dtypes.is_inexact(spec.dtype)]
    return bool(floats) and all(dtype.itemsize == 2 for dtype in floats)
