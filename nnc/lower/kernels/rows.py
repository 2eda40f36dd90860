"""Rows of a nest: the work of one iteration of the outer loops, phase by phase.

A row lies along the vector loop, or across it: then neighbouring rows are traversed side by side, a few vectors of them in
registers or, where rows are wide, many in memory near the processor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from nnc.base import dtypes
from nnc.graph import Node, Symbol
from nnc.lower.kernels.builder import Slot, Value, known_integer
from nnc.lower.kernels.cascade import Bound, Cut, cut_of, pieces
from nnc.lower.kernels.kernel_ir import Nest
from nnc.lower.kernels.reductions import across, combine, dtype_of_total, identity, loses_digits, rounded
from nnc.lower.kernels.row_phases import Guard
from nnc.lower.kernels.sizes import is_number
from nnc.lower.kernels.values import Scope, Values, first_lanes


class NestRows(Values):
    """Prints the rows of one nest."""

    def __init__(self, nest: Nest) -> None:
        lanes, self.copies = _choose_lanes(nest)
        super().__init__(nest, lanes)
        self.is_inline = self.numbers is None and (
            nest.size * nest.work <= self.loops.inline_instructions * max(self.lanes, 1)
        )
        self.is_generic = nest.is_flat and (self.numbers is not None or nest.size >= self.loops.generic_elements)
        self.is_split = self._sums_in_parts()
        self.is_wide = self._sums_wide_rows()
        if self.is_wide:
            self.copies = int(min(self.loops.column_vectors, -(-nest.sizes[nest.outer[-1]] // lanes)))
        self.size_of_vector_loop: Value | None = None
        self.part: Value | None = None  # the part of the rows that is being summed
        self.partial = ""  # the address of the sums of parts

    def _sums_in_parts(self) -> bool:
        """Whether rows are so few and long that threads take parts of them, whose sums are added at the end."""
        nest = self.nest
        if not nest.row or not self._has_one_phase() or self.row_units() < self.loops.row_parts:
            return False
        columns = math.prod(nest.sizes[loop] for loop in nest.outer)
        return (
            self.units() < self.loops.row_parts // 2
            and columns <= self.loops.summed_columns
            and 4 * nest.size * nest.work >= self.loops.row_parts * self.loops.grain * max(self.lanes, 1)
        )

    def _has_one_phase(self) -> bool:
        """Whether one loop over a row computes all but the reductions that most rows skip."""
        nest, rank = self.nest, self.phases.rank
        found = [rank[node.outputs[0]] - 1 for node in self.reductions if node.outputs[0] not in self.phases.guards]
        found += [rank[symbol] for symbol in nest.graph.outputs if nest.is_full(symbol)]
        return bool(found) and not any(found)

    def row_units(self) -> int:
        """Returns the number of pieces into which the outermost loop of a row can be cut."""
        loop = self.nest.row[0]
        return -(-self.nest.sizes[loop] // (self.step if loop == self.nest.vector else 1))

    def sums_of_all_rows(self) -> int:
        """Returns the number of sums of one reduction, with room for whole vectors."""
        return math.prod(count * (self.step if loop == self.nest.vector else 1) for loop, count in self.steps())

    def sum_at(self, part: Value, reduction: int, block: Scope) -> str:
        """Returns the address of the sum of a part."""
        code, at = self.code, self.code.integer(0)
        for loop, count in self.steps():
            width = count * (self.step if loop == self.nest.vector else 1)
            at = code.add(code.mul(at, code.integer(width)), block.iterations[loop])
        region = code.add(code.mul(part, code.integer(len(self.reductions))), code.integer(reduction))
        at = code.add(code.mul(region, code.integer(self.sums_of_all_rows())), at)
        return code.offset(self.partial, code.mul(at, code.integer(8)))

    def _fold(self, columns: Sequence[Scope]) -> None:
        """Adds the sums of parts."""
        code = self.code
        for r, node in enumerate(self.reductions):
            for block in columns if node.outputs[0] not in self.phases.guards else ():
                width = 0 if self.nest.in_row else self.lanes
                total = code.slot(identity(code, node, width, dtype_of_total(node)))
                with code.loop(0, self.loops.row_parts) as part:
                    found = code.load(self.sum_at(part, r, block), total.dtype, width)
                    code.write(total, combine(code, node, code.read(total), found))
                block.values[node.outputs[0]] = rounded(code, node, code.read(total))

    def _row_range(self, loop: int) -> tuple[Bound, Bound]:
        """Returns the iterations of a loop of the row that are traversed here."""
        n = self.nest.sizes[loop]
        if self.part is None or loop != self.nest.row[0]:
            return 0, n
        code, piece = self.code, self.step if loop == self.nest.vector else 1
        units = code.integer(self.row_units())
        parts = code.integer(self.loops.row_parts)
        first = code.div(code.mul(self.part, units), parts)
        end = code.div(code.mul(code.add(self.part, code.integer(1)), units), parts)
        if piece == 1:
            return first, end
        first, end = code.mul(first, code.integer(piece)), code.mul(end, code.integer(piece))
        return first, code.intrinsic("smin", end, code.integer(n))

    @property
    def step(self) -> int:
        """Elements that one iteration of the vector loop computes."""
        return self.lanes * self.copies

    def steps(self) -> list[tuple[int, int]]:
        """Outer loops and how many iterations each makes, the vector loop in steps."""
        nest = self.nest
        counts = [(loop, nest.sizes[loop]) for loop in nest.outer]
        return [(loop, -(-count // self.step) if loop == nest.vector else count) for loop, count in counts]

    def outer_loops_in_one(self) -> int:
        """Returns the number of outer loops that are traversed as one, whose iterations are dealt out to threads."""
        units, steps = 1, self.steps()
        for i, (_, count) in enumerate(steps):
            units *= count
            if units >= 64:
                return i + 1
        return len(steps)

    def units(self) -> int:
        """Returns the number of iterations of the outer loops that are dealt out to threads."""
        return math.prod(count for _, count in self.steps()[: self.outer_loops_in_one()])

    # -- wide rows -----------------------------------------------------------------------------------------------------

    def _sums_wide_rows(self) -> bool:
        """Whether columns are summed that are so many that going down a few of them at a time would touch a page for each element.

        Then many columns are summed at once, with their sums in memory near the processor.
        """
        nest = self.nest
        if nest.in_row or not nest.row or self.is_split or not self._has_one_phase() or nest.vector is None:
            return False
        far = max(abs(steps[loop]) for steps in nest.strides for loop in nest.row)
        return far >= self.loops.far_bytes and nest.sizes[nest.vector] >= 4 * self.lanes * self.copies

    def _wide_row(self, outer: Scope) -> None:
        nest, code, vector = self.nest, self.code, self.nest.vector
        assert vector is not None
        reduced = [node for node in self.reductions if node.outputs[0] not in self.phases.guards]
        kinds = [identity(code, node, self.lanes) for node in reduced]
        wide = [identity(code, node, self.lanes, dtype_of_total(node)) for node in reduced]
        totals = [code.room(self.step * kind.dtype.itemsize) for kind in wide]
        rooms = [code.room(self.step * kind.dtype.itemsize) for kind in kinds]

        def columns(iterations: dict[int, Value], body: Callable[[Scope, list[str], list[str]], None]) -> None:
            """Runs `body` for each vector of columns, with the places of its totals and of its sums."""
            with code.loop(0, self.copies) as c:
                start = code.add(outer.iterations[vector], code.mul(c, code.integer(self.lanes)))
                block = Scope({}, {**outer.iterations, **iterations, vector: start}, self._mask(start))

                def places(memory: Sequence[str], kinds: Sequence[Value]) -> list[str]:
                    at = [code.mul(c, code.integer(self.lanes * kind.dtype.itemsize)) for kind in kinds]
                    return [code.offset(room, x) for room, x in zip(memory, at, strict=True)]

                body(block, places(totals, wide), places(rooms, kinds))

        def begin(kinds: Sequence[Value], places: list[str]) -> None:
            for kind, place in zip(kinds, places, strict=True):
                code.store(place, kind)

        def add(block: Scope, total: list[str], piece: list[str]) -> None:
            for node, kind, place in zip(reduced, kinds, piece, strict=True):
                value = code.splat(code.convert(self.value(node.inputs[0], block), kind.dtype), self.lanes)
                code.store(place, combine(code, node, code.load(place, kind.dtype, self.lanes), value))
            self._compute([block], [(s, i) for i, s in enumerate(nest.graph.outputs) if nest.is_full(s)])

        def put_aside(block: Scope, total: list[str], piece: list[str]) -> None:
            for node, kind, whole, into, place in zip(reduced, kinds, wide, total, piece, strict=True):
                sum_ = code.load(place, kind.dtype, self.lanes)
                known = code.load(into, whole.dtype, self.lanes)
                code.store(into, combine(code, node, known, code.convert(sum_, whole.dtype)))

        def finish(block: Scope, total: list[str], piece: list[str]) -> None:
            for node, kind, place in zip(reduced, wide, total, strict=True):
                block.values[node.outputs[0]] = rounded(code, node, code.load(place, kind.dtype, self.lanes))
            self._phases([block], is_summed=True)
            rows = [(s, i) for i, s in enumerate(nest.graph.outputs) if not nest.is_full(s)]
            self._compute([block], rows)

        columns({}, lambda block, total, piece: begin(wide, total))
        n, others = nest.sizes[nest.row[0]], math.prod(nest.sizes[loop] for loop in nest.row[1:])
        step = max(1, self.loops.summands // others)
        with code.loop(0, n, step) as first:
            columns({}, lambda block, total, piece: begin(kinds, piece))
            with ExitStack() as stack:
                end = code.intrinsic("smin", code.add(first, code.integer(step)), code.integer(n))
                iterations = {nest.row[0]: stack.enter_context(code.loop(first, end))}
                iterations |= {loop: stack.enter_context(code.loop(0, nest.sizes[loop])) for loop in nest.row[1:]}
                columns(iterations, add)
            columns({}, put_aside)
        columns({}, finish)

    # -- one row -------------------------------------------------------------------------------------------------------

    def row(self, outer: Scope) -> None:
        """Prints one iteration of the outer loops."""
        nest, vector = self.nest, self.nest.vector
        if not nest.row:
            self._elements(outer)
            return
        if self.is_wide:
            self._wide_row(outer)
            return
        columns = [outer] if nest.in_row else self._copies(outer, outer.iterations[vector])  # type: ignore[index]
        self.saved = self.room_for_values()
        if self.is_split and self.part is None:
            self._fold(columns)
        self._phases(columns, is_summed=self.is_split and self.part is None)
        if self.part is not None:
            return
        self._know_rows(columns, self.phases.count)
        for block in columns:
            for i, symbol in enumerate(nest.graph.outputs):
                if not nest.is_full(symbol):
                    self.store(len(nest.graph.inputs) + i, self.value(symbol, block), block)

    def _know_rows(self, columns: Sequence[Scope], phase: int) -> None:
        """Computes values that are constant along the row and known before this phase."""
        for block in columns:
            for symbol in (*self.graph.inputs, *self.writer):
                if self.phases.rank[symbol] == phase and not self.phases.varies[symbol]:
                    self.value(symbol, block)

    def _copies(self, outer: Scope, start: Value | None) -> list[Scope]:
        """Yields the vectors that are computed at once, from element `start` of the vector loop on."""
        if start is None:
            return [outer]
        code, vector = self.code, self.nest.vector
        assert vector is not None
        blocks = []
        for c in range(self.copies):
            at = code.add(start, code.integer(c * self.lanes)) if c else start
            blocks.append(Scope({}, {**outer.iterations, vector: at}, self._mask(at), outer))
        return blocks

    def _mask(self, start: Value, even: bool | None = None) -> Value | None:
        """Returns a mask of the lanes that are elements of the vector loop; None where all are."""
        code, n = self.code, self.nest.sizes[self.nest.vector]  # type: ignore[index]
        if not self.is_generic and (n % self.step == 0 if even is None else even):
            return None
        size = code.integer(n)
        if self.is_generic:
            size = self.size_of_vector_loop or Value("%n", dtypes.int64)
        left = code.sub(size, start)
        count = known_integer(left)
        return None if count is not None and count >= self.lanes else first_lanes(code, left, self.lanes)

    # -- without a row -------------------------------------------------------------------------------------------------

    def flat(self, first: Value, end: Value) -> None:
        """The steps first to end of a flat nest of any length: whole ones, then the vectors of the last one."""
        code, step = self.code, self.code.integer(self.step)
        size = self.size_of_vector_loop or Value("%n", dtypes.int64)
        whole, outer = code.div(size, step), Scope({}, {})
        for symbol in self.graph.inputs:
            if not self._steps[self.place[symbol]]:  # one value: it, and values computed from it, are not read again
                self.value(symbol, outer)
        with code.loop(first, code.intrinsic("smin", end, whole)) as unit:
            self._whole_step(outer, code.mul(unit, step))
        rest = code.mul(code.intrinsic("smax", first, whole), step)
        self._rest(outer, rest, code.intrinsic("smin", code.mul(end, step), size))

    def _elements(self, outer: Scope) -> None:
        """One step of the vector loop where nothing is reduced. Only the last one, if it is no whole one, has masks: under them
        memory far from the processor is read and written at half the pace.
        """
        vector, code = self.nest.vector, self.code
        start = outer.iterations[vector] if vector is not None else None
        n = self.nest.sizes[vector] if vector is not None else 0
        if start is None or (not is_number(n) and n % self.step == 0) or known_integer(start) is not None:
            self._compute(self._copies(outer, start), self._all_outputs())
            return
        is_whole = code.compare("le", code.add(start, code.integer(self.step)), code.integer(n))
        with code.when(is_whole):
            self._whole_step(outer, start)
        with code.when(code.not_(is_whole)):
            self._rest(outer, start, code.integer(n), even=not is_number(n) and n % self.lanes == 0)

    def _whole_step(self, outer: Scope, start: Value) -> None:
        """The vectors from element `start` of the vector loop on that are worked on at once."""
        starts = [self.code.add(start, self.code.integer(c * self.lanes)) for c in range(self.copies)]
        self._compute([self._block(outer, at, None) for at in starts], self._all_outputs())

    def _rest(self, outer: Scope, first: Value, end: Value, even: bool = False) -> None:
        """Prints the elements that fill no whole step, vector by vector; `even`: they fill whole vectors."""
        with self.code.loop(first, end, self.lanes) as start:
            self._compute([self._block(outer, start, self._mask(start, even))], self._all_outputs())

    def _block(self, outer: Scope, start: Value, mask: Value | None) -> Scope:
        return Scope({}, {**outer.iterations, self.nest.vector: start}, mask, outer)  # type: ignore[dict-item]

    def _all_outputs(self) -> list[tuple[Symbol, int]]:
        return [(symbol, i) for i, symbol in enumerate(self.nest.graph.outputs)]

    # -- phases --------------------------------------------------------------------------------------------------------

    def _phases(self, columns: Sequence[Scope], is_summed: bool) -> None:
        """The loops over a row; `is_summed`: without those whose sums are known."""
        for phase in range(self.phases.count if self.part is None else 1):
            self._know_rows(columns, phase)
            if not is_summed:
                self._phase(columns, phase)
            if self.part is None:
                for guard in dict.fromkeys(self.phases.guards.values()):
                    self._guarded(columns, phase, guard)

    def _reduced_in(self, phase: int, guard: Guard | None) -> list[Node]:
        """Returns the reductions of a phase that have this guard."""
        rank, guards = self.phases.rank, self.phases.guards
        outs = [(node, node.outputs[0]) for node in self.reductions]
        return [node for node, out in outs if rank[out] == phase + 1 and guards.get(out) == guard]

    def _phase(self, columns: Sequence[Scope], phase: int) -> None:
        """One loop over the row: reduces, and writes the outputs that vary along it."""
        nest, code = self.nest, self.code
        reduced = self._reduced_in(phase, None)
        full = [
            (symbol, i)
            for i, symbol in enumerate(nest.graph.outputs)
            if nest.is_full(symbol) and self.phases.rank[symbol] == phase
        ]
        if not reduced and not full:
            return
        for node, values in zip(reduced, self._reduce(columns, reduced, full, phase), strict=True):
            for block, value in zip(columns, values, strict=True):
                if self.part is not None:
                    whole = code.convert(value, dtype_of_total(node))
                    code.store(self.sum_at(self.part, self.reductions.index(node), block), whole)
                else:
                    block.values[node.outputs[0]] = rounded(code, node, value)

    def _guarded(self, columns: Sequence[Scope], phase: int, guard: Guard) -> None:
        """One loop over the row for reductions that few rows need, where one of these rows does."""
        code, reduced = self.code, self._reduced_in(phase, guard)
        if not reduced:
            return
        width = 0 if self.nest.in_row else self.lanes
        results = [[code.slot(identity(code, node, width, node.outputs[0].dtype)) for _ in columns] for node in reduced]
        with code.when(self._is_needed(columns, guard)):
            for node, slots, values in zip(reduced, results, self._reduce(columns, reduced, (), phase), strict=True):
                for slot, value in zip(slots, values, strict=True):
                    code.write(slot, rounded(code, node, value))
        for node, slots in zip(reduced, results, strict=True):
            for block, slot in zip(columns, slots, strict=True):
                block.values[node.outputs[0]] = code.read(slot)

    def _is_needed(self, columns: Sequence[Scope], guard: Guard) -> Value:
        """Whether a guard is met by one of the rows that are traversed side by side."""
        code, found = self.code, None
        for block in columns:
            met = self.value(guard.condition, block)
            met = met if guard.holds else code.not_(met)
            if met.lanes and block.mask is not None:
                met = code.and_(met, block.mask)
            found = met if found is None else code.or_(*code.match(found, met))
        assert found is not None
        return code.reduce("or", found) if found.lanes else found

    def _reduce(
        self, columns: Sequence[Scope], reduced: Sequence[Node], full: Sequence[tuple[Symbol, int]], phase: int
    ) -> list[list[Value]]:
        """Goes through the row; the results of reductions in each column."""
        cut = self._cut(reduced)
        sums = self._sums(reduced, self.copies if self.nest.in_row else len(columns), wide=cut is not None)
        self._go_through(columns, reduced, sums, full, phase, cut)
        found = []
        for node, slots in zip(reduced, sums, strict=True):
            values = [self.code.read(slot) for slot in slots]
            if self.nest.in_row:
                total = values[0]
                for other in values[1:]:
                    total = combine(self.code, node, total, other)
                values = [across(self.code, node, total)]
            found.append(values)
        return found

    def _sums(self, reduced: Sequence[Node], count: int, *, wide: bool = False) -> list[list[Slot]]:
        """Variables for each reduction and each of some vectors that are worked on at once; `wide`: for totals of pieces."""
        code, found = self.code, []
        for node in reduced:
            dtype = dtype_of_total(node) if wide else None
            found.append([code.slot(identity(code, node, self.lanes, dtype)) for _ in range(count)])
        return found

    def _cut(self, reduced: Sequence[Node]) -> Cut | None:
        """Returns the loop of the row that goes piece by piece, where sums are so long that they would lose digits."""
        if not any(map(loses_digits, reduced)):
            return None
        nest = self.nest
        counts = [-(-nest.sizes[loop] // (self.step if loop == nest.vector else 1)) for loop in nest.row]
        if self.part is not None:
            counts[0] = -(-counts[0] // self.loops.row_parts)
        return cut_of(counts, self.loops.summands, self.loops.short_sums)

    @contextmanager
    def _pieces(
        self, first: Bound, end: Bound, length: int, reduced: Sequence[Node], totals: Sequence[Sequence[Slot]]
    ) -> Iterator[tuple[Value, Value, Sequence[Sequence[Slot]]]]:
        """Pieces of a range, each with sums of its own, which are added to the totals behind it."""
        code = self.code
        with pieces(code, first, end, length) as (begin, stop):
            sums = self._sums(reduced, len(totals[0]) if totals else 0)
            yield begin, stop, sums
            for node, slots, into in zip(reduced, sums, totals, strict=True):
                for slot, total in zip(slots, into, strict=True):
                    piece = code.convert(code.read(slot), total.dtype)
                    code.write(total, combine(code, node, code.read(total), piece))

    def _go_through(
        self, columns: Sequence[Scope], reduced: Sequence[Node], totals: Sequence[Sequence[Slot]],
        full: Sequence[tuple[Symbol, int]], phase: int, cut: Cut | None,
    ) -> None:  # fmt: skip
        """The loops of a row, each in a range of its own, one of them piece by piece where sums are long."""
        nest, sums = self.nest, totals
        iterations: dict[int, Value] = {}
        with ExitStack() as stack:
            for position, loop in enumerate(nest.row):
                first, end = self._row_range(loop)
                piece = cut.piece if cut is not None and cut.loop == position else 0
                if loop == nest.vector:
                    self._along_row(columns[0], iterations, (first, end), reduced, sums, full, phase, piece)
                    return
                if piece:
                    first, end, sums = stack.enter_context(self._pieces(first, end, piece, reduced, totals))
                iterations[loop] = stack.enter_context(self.code.loop(first, end))
            blocks = [Scope({}, {**b.iterations, **iterations}, b.mask, b) for b in columns]
            self._body(blocks, reduced, sums, full, phase)

    def _along_row(
        self, row: Scope, iterations: dict[int, Value], bounds: tuple[Bound, Bound], reduced: Sequence[Node],
        sums: Sequence[Sequence[Slot]], full: Sequence[tuple[Symbol, int]], phase: int, piece: int,
    ) -> None:  # fmt: skip
        """Prints the vector loop of a row: whole steps, so many a `piece` where that is not 0, then the elements left over."""
        nest, code, vector = self.nest, self.code, self.nest.vector
        assert vector is not None
        n = nest.sizes[vector]
        first, end = bounds
        whole = n - n % self.step

        def at(start: Value, mask: Value | None) -> Scope:
            return Scope({}, {**row.iterations, **iterations, vector: start}, mask, row)

        if whole:
            until = code.intrinsic("smin", end, code.integer(whole)) if isinstance(end, Value) else whole
            with ExitStack() as stack:
                here: tuple[Bound, Bound, Sequence[Sequence[Slot]]] = first, until, sums
                if piece:
                    here = stack.enter_context(self._pieces(first, until, piece * self.step, reduced, sums))
                start = stack.enter_context(code.loop(here[0], here[1], self.step))
                starts = [code.add(start, code.integer(c * self.lanes)) for c in range(self.copies)]
                self._body([at(s, None) for s in starts], reduced, here[2], full, phase)
        if is_number(n) or whole < n:
            rest: Bound = code.integer(whole) if is_number(n) else whole
            if isinstance(first, Value):
                rest = code.intrinsic("smax", first, code.integer(whole))
            with code.loop(rest, end, self.lanes) as start:
                mask = self._mask(start, even=not is_number(n) and n % self.lanes == 0)
                self._body([at(start, mask)], reduced, sums, full, phase)

    def _body(
        self, blocks: Sequence[Scope], reduced: Sequence[Node], sums: Sequence[Sequence[Slot]],
        full: Sequence[tuple[Symbol, int]], phase: int,
    ) -> None:  # fmt: skip
        code = self.code
        for node, slots in zip(reduced, sums, strict=True):
            for block, slot in zip(blocks, slots, strict=False):
                value = code.convert(self.value(node.inputs[0], block), slot.dtype)
                value = code.splat(value, self.lanes) if self.lanes else value
                if block.mask is not None and self.nest.in_row:
                    value = code.select(block.mask, value, identity(code, node, self.lanes, slot.dtype))
                code.write(slot, combine(code, node, code.read(slot), value))
        self._compute(blocks, full)
        for symbol, room in self.saved.items():
            if self.phases.rank[symbol] == phase:
                for block in blocks:
                    known = block.find(symbol)
                    if known is not None:
                        code.store(self.saved_at(symbol, room, block), self.spread(known), block.mask)

    def _compute(self, blocks: Sequence[Scope], outputs: Sequence[tuple[Symbol, int]]) -> None:
        """Computes values first, then stores, since an output may lie where an input does."""
        first = len(self.graph.inputs)
        found = [(first + i, self.value(symbol, block), block) for block in blocks for symbol, i in outputs]
        for operand, value, block in found:
            self.store(operand, value, block)


def _has_short_floats(nest: Nest) -> bool:
    """Whether there are 16-bit floats, which processors flush where LLVM makes numbers of vectors of one."""
    symbols = (symbol for node in nest.graph.nodes for symbol in (*node.inputs, *node.outputs))
    return any(dtypes.is_float(symbol.dtype) and symbol.dtype.itemsize == 2 for symbol in symbols)


def _choose_lanes(nest: Nest) -> tuple[int, int]:
    """Chooses the number of lanes of a vector, and of vectors that are worked on at once."""
    if nest.vector is None:
        return 0, 1
    loops, n, most = nest.machine.loops, nest.sizes[nest.vector], max(nest.machine.vector_bytes // nest.widest, 2)
    lanes = most
    while lanes >= 2 * n and lanes > 2:
        lanes //= 2
    whole = lanes if is_number(n) else n & -n  # the most lanes of vectors that fill a row
    if (
        whole < lanes
        and n <= 4 * most
        and not nest.in_row
        and nest.size > n
        and (whole > 1 or not _has_short_floats(nest))
    ):
        # A masked store must have reached memory before the next row is read, since that begins in its vector: 8 ns a row in place.
        return whole, n // whole if n // whole * nest.work <= loops.inline_instructions else 1
    most = loops.unrolled_instructions
    pairs = 2 * most if nest.in_row else most // 2  # with one vector, each addition to a sum waits for the last one
    copies = 4 if nest.work <= most // 4 else 2 if nest.work <= pairs else 1
    while copies > 1 and copies * lanes > n:
        copies //= 2
    return lanes, copies
