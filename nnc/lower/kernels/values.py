"""Values of a printed kernel at some place of its code: the values of symbols, made at their first use, and the addresses of
operands. Masks of the first lanes say which elements of the last, shorter vector of a row are read and written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.commands.index import fill_value
from nnc.graph import Node, Symbol
from nnc.lower.kernels.axes import word_of
from nnc.lower.kernels.builder import Code, Value, known_integer
from nnc.lower.kernels.domain import is_counted, is_gather, is_reduction, is_view
from nnc.lower.kernels.kernel_ir import Nest, instructions
from nnc.lower.kernels.scalars import scalar
from nnc.lower.kernels.sizes import is_number


def position(code: Code, index: Value, size: int, mode: str) -> tuple[Value, Value | None]:
    """Returns an index as an int64 within 0..size (which is not 0), and whether it was in range, where that depends on the
    index.
    """
    wide = code.convert(index, dtypes.uint64 if index.dtype in dtypes.UNSIGNED else dtypes.int64)
    zero, last = code.like(wide, 0), _number(code, wide, size - 1)
    if mode == "clip" and wide.dtype == dtypes.uint64:
        return code.bitcast(code.intrinsic("umin", wide, last), dtypes.int64), None
    if mode == "clip":
        return code.intrinsic("smax", code.intrinsic("smin", wide, last), zero), None
    if mode == "wrap":
        rest = code.rem(wide, _number(code, wide, size))
        if wide.dtype == dtypes.int64:
            rest = code.select(code.compare("lt", rest, zero), code.add(rest, _number(code, rest, size)), rest)
        return code.bitcast(rest, dtypes.int64), None
    count = code.bitcast(wide, dtypes.uint64)  # negative ones become large
    ok = code.compare("lt", count, _number(code, count, size))
    return code.bitcast(code.select(ok, wide, zero), dtypes.int64), ok


def _number(code: Code, x: Value, n: int) -> Value:
    """Returns an integer of the dtype and lanes of x, which may be a number of the kernel."""
    return code.like(x, n) if isinstance(n, int) else code.splat(code.convert(code.integer(n), x.dtype), x.lanes)


@dataclass(slots=True)
class Scope:
    """The known values at some place of the code: values of symbols, the iteration of each loop, and a mask of the lanes that
    count.
    """

    values: dict[Symbol, Value]
    iterations: dict[int, Value]
    mask: Value | None = None
    upper: Scope | None = None

    def find(self, symbol: Symbol) -> Value | None:
        """Returns the value of a symbol here."""
        block: Scope | None = self
        while block is not None:
            if symbol in block.values:
                return block.values[symbol]
            block = block.upper
        return None


class Values:
    """The values of a nest. `code` is the function that is being printed, `pointers` where its operands are given."""

    def __init__(self, nest: Nest, lanes: int) -> None:
        self.nest, self.graph, self.phases, self.lanes = nest, nest.graph, nest.phases, lanes
        self.loops, self.numbers = nest.machine.loops, nest.numbers
        self.writer = {node.outputs[0]: node for node in nest.graph.nodes}
        self.place = {symbol: i for i, symbol in enumerate(nest.operands)}
        self.reductions = [node for node in nest.graph.nodes if is_reduction(node)]
        loops = (*nest.outer, *nest.row)  # from the outside in, so that each loop moves a pointer once
        self._steps = [[(loop, strides[loop]) for loop in loops if strides[loop]] for strides in nest.strides]
        self.code: Code
        self.pointers: list[str] = []
        self.saved: dict[Symbol, str] = {}  # the addresses of saved values of a row

    def ramp(self, dtype: DType) -> Value:
        """0, 1, 2 … in the lanes of a vector."""
        kind = "i32" if dtype == dtypes.int32 else "i64"
        return Value(f"<{', '.join(f'{kind} {i}' for i in range(self.lanes))}>", dtype, self.lanes)

    # -- values that are kept for the next phase -----------------------------------------------------------------------

    def room_for_values(self) -> dict[Symbol, str]:
        """Memory on the stack for expensive values that a later phase reads again."""
        nest, phases, loops = self.nest, self.phases, self.loops
        if phases.count < 2 or not nest.in_row or len(nest.row) != 1:
            return {}
        n = nest.sizes[nest.row[0]] + self.lanes
        rooms: dict[Symbol, str] = {}
        left = loops.stack_bytes
        early = self._computed_early()
        for node in self.graph.nodes:
            symbol = node.outputs[0]
            work = instructions(node, loops.transcendental_instructions)
            if symbol not in early or is_view(node) or work < loops.saved_instructions:
                continue
            nbytes = n * symbol.dtype.itemsize
            if nbytes <= left and any(phases.rank[other] > phases.rank[symbol] for other in self._users(symbol)):
                rooms[symbol] = self.code.room(nbytes)
                left -= nbytes
        return rooms

    def _computed_early(self) -> set[Symbol]:
        """Returns symbols that vary along the row and are computed in the first phase that can do so."""
        rank, varies = self.phases.rank, self.phases.varies
        always = [node for node in self.reductions if node.outputs[0] not in self.phases.guards]
        stack = [(node.inputs[0], rank[node.outputs[0]] - 1) for node in always]
        stack += [(symbol, rank[symbol]) for symbol in self.graph.outputs if self.nest.is_full(symbol)]
        found: set[tuple[Symbol, int]] = set()
        while stack:
            symbol, phase = stack.pop()
            node = self.writer.get(symbol)
            if (symbol, phase) not in found and varies[symbol] and node is not None and not is_reduction(node):
                found.add((symbol, phase))
                stack += [(x, phase) for x in node.inputs]
        return {symbol for symbol, phase in found if rank[symbol] == phase}

    def _users(self, symbol: Symbol) -> Iterator[Symbol]:
        """Yields the symbols that are computed from a symbol, step by step."""
        known = {symbol}
        for node in self.graph.nodes:
            if not is_reduction(node) and not known.isdisjoint(node.inputs):
                known.add(node.outputs[0])
                yield node.outputs[0]

    def saved_at(self, symbol: Symbol, room: str, block: Scope) -> str:
        """Returns the address of the present elements of a value."""
        size = self.code.integer(symbol.dtype.itemsize)
        return self.code.offset(room, self.code.mul(block.iterations[self.nest.row[0]], size))

    # -- values --------------------------------------------------------------------------------------------------------

    def value(self, symbol: Symbol, block: Scope) -> Value:
        """Returns the value of a symbol for the present iterations."""
        known = block.find(symbol)
        if known is None:
            known = block.values[symbol] = self._make(symbol, block)
        return known

    def _make(self, symbol: Symbol, block: Scope) -> Value:
        code = self.code
        if is_number(self.nest.constants.get(symbol)):
            return self._constant(self.nest.constants[symbol], symbol.dtype)
        if symbol in self.graph.constants:
            return code.constant(self.graph.constants[symbol].reshape(-1)[0], symbol.dtype)
        if symbol in self.saved and self.nest.vector in block.iterations and self._is_past(symbol, block):
            return code.load(self.saved_at(symbol, self.saved[symbol], block), symbol.dtype, self.lanes)
        node = self.writer.get(symbol)
        if node is None:
            return self.load(self.place[symbol], block)
        if is_view(node):
            return self.value(node.inputs[0], block)
        if is_counted(node):
            return self._iota(node, block)
        if is_gather(node):
            return self._gather(node, block)
        operands = [self.value(x, block) for x in node.inputs]
        if operands:
            operands = code.match(*operands)
        return scalar(code, node.command, operands, symbol.dtype, node.params)

    def _constant(self, bits: int, dtype: DType) -> Value:
        """Returns the value with these bits, which is a number of the kernel."""
        if dtypes.is_bool(dtype):
            return self.code.compare("ne", self.code.integer(bits), self.code.integer(0))
        return self.code.bitcast(self.code.convert(self.code.integer(bits), word_of(dtype)), dtype)

    def _is_past(self, symbol: Symbol, block: Scope) -> bool:
        """Whether an earlier phase has saved a value: its reductions' results are known."""
        following = [n for n in self.reductions if self.phases.rank[n.outputs[0]] == self.phases.rank[symbol] + 1]
        return all(block.find(node.outputs[0]) is not None for node in following)

    def _iota(self, node: Node, block: Scope) -> Value:
        code, out = self.code, node.outputs[0]
        label = self.nest.domain.axes(out)[node.params["axis"]]
        if label < 0:
            return code.constant(0, out.dtype)
        loop = self.nest.loop_of[label]
        number = block.iterations[loop]
        if loop == self.nest.vector:
            number = code.add(code.splat(number, self.lanes), self.ramp(dtypes.int64))
        return code.convert(number, out.dtype)

    def _gather(self, node: Node, block: Scope) -> Value:
        """Returns an element at a computed place. Indices that raise where they are out of range have been checked before."""
        code, dtype, mode = self.code, node.outputs[0].dtype, node.params["mode"]
        x, *indices = node.inputs
        operand = self.place[x]
        place, inside = code.integer(0), Value("true", dtypes.bool_)
        for axis, index in zip(node.params["axes"], indices, strict=True):
            if mode == "error":
                at = code.convert(self.value(index, block), dtypes.int64)
            else:
                at, there = position(code, self.value(index, block), self.nest.places[operand][axis][0], mode)
                inside = code.and_(inside, there) if there is not None else inside
            place = code.add(place, code.mul(at, _number(code, at, self.nest.places[operand][axis][1])))
        pointer = self._pointer(operand, block)
        if not place.lanes:
            found = self._read(operand, code.offset(pointer, place), block)
        else:
            step = self._vector_step(operand)
            found = code.gather(pointer, code.add(place, self._strides(step)) if step else place, dtype, block.mask)
        if mode in ("drop", "fill"):
            outside = fill_value(dtype) if mode == "fill" else 0
            found = code.select(inside, found, code.constant(outside, dtype, max(found.lanes, inside.lanes)))
        return found

    # -- memory --------------------------------------------------------------------------------------------------------

    def _pointer(self, operand: int, block: Scope) -> str:
        code, pointer = self.code, self.pointers[operand]
        for loop, step in self._steps[operand]:
            if loop in block.iterations:
                pointer = code.offset(pointer, code.mul(block.iterations[loop], code.integer(step)))
        return pointer

    def _vector_step(self, operand: int) -> int:
        return self.nest.strides[operand][self.nest.vector] if self.nest.vector is not None else 0

    def load(self, operand: int, block: Scope) -> Value:
        """Reads an input."""
        return self._read(operand, self._pointer(operand, block), block)

    def _read(self, operand: int, pointer: str, block: Scope) -> Value:
        code, symbol, step = self.code, self.nest.operands[operand], self._vector_step(operand)
        if step == 0 or self.nest.vector not in block.iterations:
            return code.load(pointer, symbol.dtype)
        if step == symbol.dtype.itemsize:
            return code.load(pointer, symbol.dtype, self.lanes, block.mask)
        return code.gather(pointer, self._strides(step), symbol.dtype, block.mask)

    def store(self, operand: int, value: Value, block: Scope) -> None:
        """Writes an output."""
        code, symbol, step = self.code, self.nest.operands[operand], self._vector_step(operand)
        value = code.convert(value, symbol.dtype)
        pointer = self._pointer(operand, block)
        if step == 0 or self.nest.vector not in block.iterations:
            code.store(pointer, value)
        elif step == symbol.dtype.itemsize:
            code.store(pointer, self.spread(value), block.mask)
        else:
            code.scatter(pointer, self._strides(step), self.spread(value), block.mask)

    def _strides(self, step: int) -> Value:
        return self.code.mul(self.ramp(dtypes.int64), self.code.splat(self.code.integer(step), self.lanes))

    def spread(self, value: Value) -> Value:
        """Returns the value in all lanes."""
        return self.code.splat(value, self.lanes)


# -- masks -------------------------------------------------------------------------------------------------------------

# LLVM 22 miscompiles a masked store whose mask it finds to be constant with a single lane, where the value is an integer that was
# truncated: the scalar store that it makes of it has the width from before the truncation, and so overwrites the elements behind. A
# known mask is therefore written out, so that `Code.store` sees it; the mask of a count that is known only when the kernel runs is
# hidden from the optimizer, which could otherwise find the count by unrolling or inlining a loop.


def known_lanes(count: int, lanes: int) -> Value:
    """Returns the constant mask of the first `count` of `lanes` lanes."""
    bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return Value(f"<{bits}>", dtypes.bool_, lanes)


def first_lanes(code: Code, count: Value, lanes: int) -> Value:
    """Returns the mask of the first `count` of `lanes` lanes; `count` is an int64 of any sign."""
    known = known_integer(count)
    if known is not None:
        return known_lanes(known, lanes)
    inside = code.intrinsic("smin", count, code.integer(lanes))
    inside = code.convert(code.intrinsic("smax", inside, code.integer(0)), dtypes.int32)
    hidden = code.share(f'call i32 asm "", "=r,0"({inside.typed}) nounwind willreturn memory(none)')
    ramp = Value(f"<{', '.join(f'i32 {lane}' for lane in range(lanes))}>", dtypes.int32, lanes)
    return code.compare("lt", ramp, Value(hidden, dtypes.int32))
