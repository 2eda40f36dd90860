"""Rows of a nest on a GPU: the threads of a row each reduce a part of it, then exchange their results.

Neighbouring threads take neighbouring vectors of a row, or, where neighbours in memory belong to different rows, the vectors of
neighbouring rows (`Layout.across`). A thread keeps its vectors in registers from phase to phase, or reads them anew in each.
Every sum is formed in one fixed order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nnc.backends.cuda.kernels.layout import Layout
from nnc.backends.cuda.kernels.operands import Operands
from nnc.backends.cuda.kernels.values import ThreadValues
from nnc.base import dtypes
from nnc.base.dtypes import accumulator
from nnc.graph import Node, Symbol
from nnc.lower.kernels.builder import Carried, Value
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.reductions import across, combine, identity, rounded
from nnc.lower.kernels.values import Scope

Outputs = list[tuple[int, Symbol]]


def print_rows(operands: Operands, layout: Layout) -> DeviceKernel:
    """Prints a nest with a row, as one launch.

    Inputs may lie where outputs do. Only the thread that reads an element of a row writes it; inputs with one element a row are
    read by all threads of the row, which wait for one another before such an output is written.

    Args:
        layout: the layout of one part.
    """
    printer = Rows(operands, layout)
    return DeviceKernel(printer.whole(), (printer.launch((layout.blocks, 1), layout.threads),), operands.may_fail)


class Rows(ThreadValues):
    """Prints the rows of one nest."""

    def __init__(self, operands: Operands, layout: Layout) -> None:
        super().__init__(operands, layout.width)
        self.layout = layout
        self.member: Value  # number of the thread within its row, in 32 bits
        self.row: Value  # number of the row within its block
        self.unit: Value  # number of the row, or of the vector of rows
        self.inside: Value | None = None  # whether there is such a row; None: always
        self.first: Value | int = 0  # the first vector of the row that is traversed here
        self.end: Value | int = layout.count

    # -- functions -----------------------------------------------------------------------------------------------------

    def whole(self) -> str:
        """Prints all phases as one function."""
        self.begin("rows", self.layout.threads)
        outer = self.enter()
        blocks = list(self._kept_blocks(outer)) if self.layout.kept else None
        for phase in range(self.phases.count):
            self.know_rows(outer, phase)
            reduced = self.reduced_in(phase)
            totals = self.traverse(outer, blocks, reduced, self.full_outputs(phase))
            self.know_results(outer, reduced, totals)
        self.write_rows(outer)
        self.code.ret()
        return self.text()

    def reduced_in(self, phase: int) -> list[Node]:
        """Returns the reductions that a phase computes."""
        return [node for node in self.reductions if self.phases.rank[node.outputs[0]] == phase + 1]

    def full_outputs(self, phase: int) -> Outputs:
        """Outputs with an element for each iteration that a phase writes."""
        found = enumerate(self.graph.outputs)
        return [(i, s) for i, s in found if self.nest.is_full(s) and self.phases.rank[s] == phase]

    def row_outputs(self) -> Outputs:
        """Outputs with an element for each row."""
        return [(i, symbol) for i, symbol in enumerate(self.graph.outputs) if not self.nest.is_full(symbol)]

    # -- threads -------------------------------------------------------------------------------------------------------

    def enter(self) -> Scope:
        """Finds the row of the thread, and the thread's number within it."""
        code, layout, nest = self.code, self.layout, self.nest
        self.inside = None
        thread = self.number("tid.x", True)
        inner, outer = (layout.rows, layout.members) if layout.across else (layout.members, layout.rows)
        low = code.rem(thread, code.like(thread, inner)) if inner > 1 else code.like(thread, 0)
        high = code.div(thread, code.like(thread, inner)) if outer > 1 else code.like(thread, 0)
        self.row, self.member = (low, high) if layout.across else (high, low)
        block = self.number("ctaid.x", self.operands.is_short(layout.blocks * layout.rows))
        unit = code.add(code.mul(block, code.like(block, layout.rows)), code.convert(self.row, block.dtype))
        if layout.units % layout.rows:
            last = code.like(unit, layout.units - 1)
            self.inside = code.compare("le", unit, last)
            unit = code.intrinsic("umin", unit, last)
        self.unit = unit
        counts = [nest.sizes[loop] // (layout.width if loop == nest.vector else 1) for loop in nest.outer]
        iterations = self.take_apart(unit, nest.outer, counts)
        if layout.across and nest.vector is not None:
            iterations[nest.vector] = code.mul(iterations[nest.vector], code.integer(layout.width))
        return Scope({}, iterations)

    def at(self, outer: Scope, position: Value) -> Scope:
        """Returns the values at a position of the row: a number of a vector or an element."""
        nest, width = self.nest, self.layout.width
        counts = [nest.sizes[loop] // (width if loop == nest.vector else 1) for loop in nest.row]
        if len(nest.row) > 1 and self.operands.is_short(self.layout.count):
            position = self.code.convert(position, self.member.dtype)
        elif len(nest.row) > 1:
            position = self.code.convert(position, dtypes.uint64)
        iterations = self.take_apart(position, nest.row, counts)
        if nest.vector in iterations:
            iterations[nest.vector] = self.code.mul(iterations[nest.vector], self.code.integer(width))
        return Scope({}, {**outer.iterations, **iterations}, None, outer)

    def know_rows(self, outer: Scope, phase: int) -> None:
        """Computes values that are constant along the row and known before this phase."""
        for symbol in (*self.graph.inputs, *self.writer):
            is_due = self.phases.rank[symbol] == phase and not self.phases.varies[symbol]
            if is_due and symbol not in self.operands.gathered:
                self.value(symbol, outer)

    def know_results(self, outer: Scope, reduced: Sequence[Node], totals: Sequence[Value]) -> None:
        """Notes the results of reductions; each thread of a row has its share."""
        for node, total in zip(reduced, self.exchange(reduced, totals), strict=True):
            outer.values[node.outputs[0]] = rounded(self.code, node, total)

    def write_rows(self, outer: Scope) -> None:
        """Writes the outputs with one element a row, by the first thread of each row."""
        code, outputs = self.code, self.row_outputs()
        self.know_rows(outer, self.phases.count)
        if not outputs:
            return
        for _, symbol in outputs:
            self.value(symbol, outer)
        if self.operands.overwrites_rows and (self.layout.members > 1 or self.inside is not None):
            code.barrier()
        with self.under(self.is_first_member()):
            self.store_all(outputs, outer)

    def is_first_member(self) -> Value | None:
        """Whether the thread is the first of a row that there is; None: always."""
        code = self.code
        first = code.compare("eq", self.member, code.like(self.member, 0)) if self.layout.members > 1 else None
        return self._both(first, self.inside)

    def _both(self, x: Value | None, y: Value | None) -> Value | None:
        return self.code.and_(x, y) if x is not None and y is not None else y if x is None else x

    # -- vectors that are kept -----------------------------------------------------------------------------------------

    def _kept_blocks(self, outer: Scope) -> Iterator[Scope]:
        """The vectors of the thread, whose elements are all read before anything is computed with them."""
        code, layout = self.code, self.layout
        member = self.wide(self.member)
        for turn in range(layout.kept):
            position = code.add(member, code.integer(turn * layout.members))
            mask = self.inside
            if (turn + 1) * layout.members > layout.count:
                mask = self._both(mask, code.compare("lt", position, code.integer(layout.count)))
            block = self.at(outer, position)
            block.mask = mask
            self._read_all(block)
            yield block

    def _read_all(self, block: Scope) -> None:
        """Reads the inputs that vary along the row."""
        for symbol in self.graph.inputs:
            if self.phases.varies[symbol] and symbol not in self.operands.gathered:
                self.value(symbol, block)

    # -- phases --------------------------------------------------------------------------------------------------------

    def traverse(
        self, outer: Scope, kept: Sequence[Scope] | None, reduced: Sequence[Node], full: Outputs
    ) -> list[Value]:
        """Returns the work of one phase on the vectors of the thread: writes outputs, and returns the sum of each reduction."""
        if kept is None:
            return self._loop(outer, reduced, full)
        totals = [identity(self.code, node, self.lanes) for node in reduced]
        for block in kept:
            totals = [self._add(node, total, block) for node, total in zip(reduced, totals, strict=True)]
            self.store_all(full, block)
        return totals

    def _add(self, node: Node, total: Value, block: Scope) -> Value:
        """Returns a sum with the operand of a reduction at one more vector."""
        code = self.code
        value = code.splat(code.convert(self.value(node.inputs[0], block), total.dtype), self.lanes)
        if block.mask is not None:
            value = code.select(block.mask, value, identity(code, node, self.lanes))
        return combine(code, node, total, value)

    def _loop(self, outer: Scope, reduced: Sequence[Node], full: Outputs) -> list[Value]:
        """Goes along the row, several vectors at a time; where that takes long, sums are put aside before they lose digits."""
        code, layout = self.code, self.layout
        start = code.add(self.integer(self.first), self.wide(self.member))
        end = self.integer(self.end)
        if self.inside is not None:
            end = code.select(self.inside, end, code.integer(0))
        together = self._vectors_at_once(reduced)
        stride, piece = layout.members, self.operands.grids.summands * together * layout.members
        if layout.length <= 2 * piece or not reduced:
            return self._piece(outer, reduced, full, start, end)
        sums = Carried([identity(code, node, self.lanes) for node in reduced])
        with code.loop(start, end, piece, [sums]) as begin:
            stop = code.intrinsic("smin", code.add(begin, code.integer(piece - stride + 1)), end)
            found = self._piece(outer, reduced, full, begin, stop)
            sums.values = [combine(code, *each) for each in zip(reduced, sums.values, found, strict=True)]
        return sums.values

    def _vectors_at_once(self, reduced: Sequence[Node]) -> int:
        """Returns the number of vectors that the thread reads at once; each has its own sums in registers."""
        together, width = self.operands.grids.vectors_at_once, self.layout.width
        words = sum(max(accumulator(node.inputs[0].dtype).itemsize // 4, 1) * width for node in reduced)
        while together > 1 and together * words > self.operands.grids.kept_words:
            together //= 2
        return together if self.layout.length >= 2 * together * self.layout.members else 1

    def _piece(self, outer: Scope, reduced: Sequence[Node], full: Outputs, start: Value, end: Value) -> list[Value]:
        """Returns the vectors of the thread from `start` on and in front of `end`."""
        code, stride, together = self.code, self.layout.members, self._vectors_at_once(reduced)
        sums = [Carried([identity(code, node, self.lanes) for node in reduced]) for _ in range(together)]
        place = Carried([start])
        if together > 1:
            until = code.sub(end, code.integer((together - 1) * stride))
            with code.loop(start, until, together * stride, [*sums, place]) as i:
                self._several(
                    outer, reduced, full, [code.add(i, code.integer(c * stride)) for c in range(together)], sums
                )
                place.values = [code.add(i, code.integer(together * stride))]
        with code.loop(place.values[0], end, stride, sums[:1]) as i:
            self._several(outer, reduced, full, [i], sums[:1])
        return self.in_pairs(reduced, [each.values for each in sums])

    def _several(
        self, outer: Scope, reduced: Sequence[Node], full: Outputs, places: Sequence[Value], sums: Sequence[Carried]
    ) -> None:
        """Processes several vectors; all are read before anything is computed with them."""
        blocks = [self.at(outer, place) for place in places]
        for block in blocks:
            self._read_all(block)
        for block, total in zip(blocks, sums, strict=True):
            total.values = [self._add(node, value, block) for node, value in zip(reduced, total.values, strict=True)]
        for block in blocks:
            self.store_all(full, block)

    def in_pairs(self, reduced: Sequence[Node], sums: Sequence[Sequence[Value]]) -> list[Value]:
        """Sums of the same reductions as one each, pair by pair."""
        found = [list(each) for each in sums]
        while len(found) > 1:
            half = len(found) // 2
            pairs = zip(found[:half], found[half : 2 * half], strict=True)
            joined = [[combine(self.code, *each) for each in zip(reduced, x, y, strict=True)] for x, y in pairs]
            found = [*joined, *found[2 * half :]]
        return found[0]

    def integer(self, number: Value | int) -> Value:
        """Returns a number of vectors as an int64."""
        return number if isinstance(number, Value) else self.code.integer(number)

    # -- exchange ------------------------------------------------------------------------------------------------------

    def exchange(self, reduced: Sequence[Node], totals: Sequence[Value]) -> list[Value]:
        """Makes the results of each thread those of all threads of its row."""
        if not self.layout.across:
            totals = [across(self.code, node, total) for node, total in zip(reduced, totals, strict=True)]
        if self.layout.members == 1 or not reduced:
            return list(totals)
        return self._exchange_across(reduced, totals) if self.layout.across else self._exchange_along(reduced, totals)

    def _exchange_along(self, reduced: Sequence[Node], totals: Sequence[Value]) -> list[Value]:
        """Exchanges within warps, and then, where a row has several, between the warps of the row with one barrier."""
        code, layout, lanes = self.code, self.layout, self.operands.grids.lanes
        sums = [self._butterfly(node, x, min(layout.members, lanes)) for node, x in zip(reduced, totals, strict=True)]
        if layout.members <= lanes:
            return sums
        warps = layout.members // lanes
        thread = self.number("tid.x", True)
        lane = code.rem(thread, code.like(thread, lanes))
        rooms = [code.shared(layout.threads // lanes * x.dtype.itemsize) for x in sums]
        with code.when(code.compare("eq", lane, code.like(lane, 0))):
            for room, x in zip(rooms, sums, strict=True):
                code.store(self._element(room, code.div(thread, code.like(thread, lanes)), x), x)
        code.barrier()
        first = code.mul(self.row, code.like(self.row, warps))
        mine = code.add(first, code.rem(lane, code.like(lane, warps)))
        found = [code.load(self._element(room, mine, x), x.dtype) for room, x in zip(rooms, sums, strict=True)]
        return [self._butterfly(node, x, warps) for node, x in zip(reduced, found, strict=True)]

    def _butterfly(self, node: Node, x: Value, members: int) -> Value:
        """Returns the sum of so many neighbouring lanes of a warp, in each of them."""
        by = members // 2
        while by:
            x = combine(self.code, node, x, self.code.exchange("bfly", x, by))
            by //= 2
        return x

    def _exchange_across(self, reduced: Sequence[Node], totals: Sequence[Value]) -> list[Value]:
        """Exchanges between threads of the same columns; each adds up the sums of all."""
        code, layout = self.code, self.layout
        thread = self.number("tid.x", True)
        rooms = [code.shared(layout.threads * layout.width * x.dtype.itemsize) for x in totals]
        for room, x in zip(rooms, totals, strict=True):
            code.store(self._element(room, thread, x), x, align=self.aligned(x))
        code.barrier()
        results = []
        for node, room, x in zip(reduced, rooms, totals, strict=True):
            places = [code.add(self.row, code.like(self.row, m * layout.rows)) for m in range(layout.members)]
            found = [[code.load(self._element(room, i, x), x.dtype, x.lanes, align=self.aligned(x))] for i in places]
            results += self.in_pairs([node], found)
        return results

    def _element(self, room: str, number: Value, like: Value) -> str:
        """Returns the address of a value in shared memory, by its number."""
        nbytes = like.dtype.itemsize * max(like.lanes, 1)
        return self.code.offset(room, self.code.mul(self.wide(number), self.code.integer(nbytes)))

    def aligned(self, x: Value) -> int:
        """Bytes that divide the addresses of values in shared memory and in the workspace."""
        return min(x.dtype.itemsize * max(x.lanes, 1), self.operands.grids.vector_bytes)
