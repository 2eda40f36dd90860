"""Prints a loop nest as LLVM's text.

Each iteration of the outer loops computes a row: phase by phase, each a loop over the row that reduces operands of the next ones.
The vector loop goes in steps of `lanes` elements, several of them at once where there is little to compute; the elements left over
are done under a mask. Outer loops run in threads (`nnc_parallel_for`) where their work is long enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from nnc.base import dtypes
from nnc.base.target import Target
from nnc.graph import Graph, Symbol
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.domain import Domain, is_gather
from nnc.lower.kernels.kernel_ir import Nesting, generic_form, graph_key, loops_of, make_nest, nest_of
from nnc.lower.kernels.native import PRINTED, Native
from nnc.lower.kernels.rows import NestRows
from nnc.lower.kernels.sizes import Numbers, derived, find_sized
from nnc.lower.kernels.values import Scope
from nnc.lower.plan.stages import Step, View

_PART = "@KERNEL.part"


def _type_of(name: str) -> str:
    """Returns the type of a kernel's parameter: a number, or a pointer."""
    return "i64" if name.startswith("n") else "ptr"


def _units_for(grain: int, instructions: int, lanes: int, units: int) -> int:
    """Returns how many of so many units, which together take these instructions, are enough for a thread."""
    return max(1, math.ceil(grain / max(instructions / lanes / units, 1)))


def print_graph(graph: Graph, inputs: Sequence[View], outputs: Sequence[View], machine: Target) -> Native:
    """Returns the kernel that computes a fused graph on operands that lie in these views."""
    return _NestPrinter(make_nest(graph, inputs, outputs, machine, guarded=True)).native()


class KernelPrinter:
    """Prints each kernel once: steps with equal sub-graphs and layouts share it, flat steps at any length."""

    def __init__(self, machine: Target) -> None:
        self._machine = machine

    def native(self, step: Step) -> Native:
        """Returns the kernel of a `fused` step."""
        graph, views = step.graphs[0], (*step.inputs, *step.outputs)
        form = generic_form(graph, views, self._machine.loops.generic_elements)
        if form is not None:
            length, key = form
            native = self._find(step, key)
            if native.numbers:
                return replace(native, numbers=(length,))
        sized = self._sized(step, step.like) if step.like is not None else None
        if sized is not None:
            return sized
        places = tuple([(view.spec.shape, view.strides) for view in views])
        return self._find(step, (graph_key(graph, True), places))

    def _sized(self, step: Step, other: Step) -> Native | None:
        """Returns the kernel that takes as numbers the integers that differ in another step; None where the two have other loops,
        or the vector loop is a short one that differs: numbers would make that slower.
        """
        graph, machine, views = step.graphs[0], self._machine, (*step.inputs, *step.outputs)
        domain = Domain.of(graph)
        here = loops_of(graph, domain, views, machine)
        there = loops_of(other.graphs[0], Domain.of(other.graphs[0]), (*other.inputs, *other.outputs), machine)
        n = here.sizes[here.vector] if here.vector is not None else 0
        if (
            here.integers == there.integers
            or here.form != there.form
            or (n < machine.vector_bytes and here.vector is not None and n != there.sizes[here.vector])
        ):
            return None

        def make(integers: tuple[Any, ...], numbers: Numbers) -> Native:
            loops = Nesting(*integers, *here.form)
            return _NestPrinter(nest_of(graph, domain, loops, views, machine, True, numbers)).native()

        kinds, constants, *rest = graph_key(graph, False)
        key = self, kinds, tuple([(number, dtype) for number, dtype, _ in constants]), *rest, here.form
        return find_sized(key, here.integers, there.integers, make)

    def _find(self, step: Step, key: Any) -> Native:
        return PRINTED.find((self, key), lambda: print_graph(step.graphs[0], step.inputs, step.outputs, self._machine))


class _NestPrinter(NestRows):
    """Prints one nest as a function, and a thread's part of it as another."""

    # -- the function --------------------------------------------------------------------------------------------------

    def native(self) -> Native:
        """Returns the kernel."""
        nest = self.nest
        names = [f"p{i}" for i in range(len(nest.operands))]
        numbers = self.numbers or Numbers()
        if self.is_generic and nest.vector is not None:
            numbers.lead(nest.sizes[nest.vector])
        parameters = [("ptr", name) for name in names] + [("i64", "n")] * self.is_generic
        main = Code("KERNEL", parameters)
        self._look_at_indices(main)
        units, grain = self.units(), self._grain()
        if self.is_split:
            return self._in_parts(main, names)
        has_parts = self.is_generic or (self.numbers is not None and bool(nest.outer)) or units > grain
        if self.is_inline or not has_parts:
            self._begin(main, [f"%{name}" for name in names])
            self._rows(main.integer(0), self._unit_count(main))
            main.ret(main.integer(0))
            return self._native(numbers, main)
        fields = [*names, *(["n"] if self.is_generic else [])]
        with self._part_function(fields) as (part, given):
            if self.is_generic:
                self.size_of_vector_loop = Value(given.pop(), dtypes.int64)
            self._begin(part, given)
            self._rows(Value("%first", dtypes.int64), Value("%end", dtypes.int64))
        self._call_parts(main, fields, grain)
        main.ret(main.integer(0))
        return self._native(numbers, main, part)

    def _native(self, numbers: Numbers, *codes: Code) -> Native:
        """Returns the kernel of finished functions, the first of which is called with the numbers."""
        codes[0].parameters += numbers.parameters
        return Native(self._text(codes), inline=self.is_inline, numbers=numbers.printed)

    def _call_parts(self, main: Code, fields: Sequence[str], grain: int, count: Value | None = None) -> None:
        """Runs the function of parts in threads, with `fields` as its arguments; `count` parts, or those of all units."""
        room = main.room(8 * len(fields))
        for i, name in enumerate(fields):
            main.line(f"store {_type_of(name)} %{name}, ptr {main.offset(room, 8 * i)}")
        main.declare("declare void @nnc_parallel_for(ptr, ptr, i64, i64)")
        count = count or self._unit_count(main)
        main.line(f"call void @nnc_parallel_for(ptr {_PART}, ptr {room}, {count.typed}, i64 {grain})")

    @contextmanager
    def _part_function(self, fields: list[str]) -> Iterator[tuple[Code, list[str]]]:
        """Prints the function of parts around the block, and adds the numbers that it reads to the fields."""
        part = Code(
            "KERNEL.part", [("ptr", "fields"), ("i64", "first"), ("i64", "end")], "void", "nounwind", "internal"
        )
        given = [part.let(f"load {_type_of(x)}, ptr {part.offset('%fields', 8 * i)}") for i, x in enumerate(fields)]
        numbers = part.in_front()
        yield part, given
        part.ret()
        if self.numbers is not None:
            numbers += self.numbers.loads("%fields", len(fields))
            fields += [name for _, name in self.numbers.parameters]

    @staticmethod
    def _text(codes: Sequence[Code]) -> str:
        declarations = sorted(set().union(*(code.declarations for code in codes)))
        return "\n".join([*declarations, *(code.text() for code in codes)])

    def _begin(self, code: Code, pointers: list[str]) -> None:
        self.code, self.pointers = code, pointers

    def _look_at_indices(self, main: Code) -> None:
        """Refuses indices out of range, before anything is written."""
        looked: list[tuple[Symbol, int]] = []
        for node in self.graph.nodes:
            if is_gather(node) and node.params["mode"] == "error":
                operand = self.place[node.inputs[0]]
                for axis, index in zip(node.params["axes"], node.inputs[1:], strict=True):
                    size = self.nest.places[operand][axis][0]
                    if not any(index is other and size == n for other, n in looked):
                        looked.append((index, size))
        if not looked:
            return
        known = {
            s: int(value.reshape(-1)[0]) for s, value in self.graph.constants.items() if dtypes.is_integer(s.dtype)
        }
        outside = any(not 0 <= known[index] < size for index, size in looked if index in known)
        bad = main.slot(main.constant(outside, dtypes.bool_))
        given = [(self.place[index], size, index.dtype) for index, size in looked if index not in known]
        for operand, size, dtype in sorted(given, key=lambda pair: pair[:2]):
            with ExitStack() as stack:
                pointer = f"%p{operand}"
                for n, step in self.nest.places[operand]:
                    if n > 1 and step:
                        i = stack.enter_context(main.loop(0, n))
                        pointer = main.offset(pointer, main.mul(i, main.integer(step)))
                at = main.convert(main.load(pointer, dtype), dtypes.int64)
                beyond = main.or_(main.compare("lt", at, main.integer(0)), main.compare("ge", at, main.integer(size)))
                main.write(bad, main.or_(main.read(bad), beyond))
        refuse, go_on = main.label("refuse"), main.label("go")
        main.branch(main.read(bad), refuse, go_on)
        main.place(refuse)
        main.ret(main.integer(1))
        main.place(go_on)

    # -- long rows -----------------------------------------------------------------------------------------------------

    def _in_parts(self, main: Code, names: Sequence[str]) -> Native:
        region = len(self.reductions) * self.sums_of_all_rows() * 8
        sums = main.let(f"getelementptr i8, ptr {main.room(self.loops.row_parts * region)}, i64 0")
        fields = [*names, sums.removeprefix("%")]
        with self._part_function(fields) as (part, (*pointers, self.partial)):
            self._begin(part, pointers)
            with part.loop(Value("%first", dtypes.int64), Value("%end", dtypes.int64)) as self.part:
                self._rows(part.integer(0), part.integer(self.units()))
        self._call_parts(main, fields, 1, main.integer(self.loops.row_parts))
        self._begin(main, [f"%{name}" for name in names])
        self.part, self.partial = None, sums
        self._rows(main.integer(0), main.integer(self.units()))
        main.ret(main.integer(0))
        return self._native(self.numbers or Numbers(), main, part)

    # -- outer loops ---------------------------------------------------------------------------------------------------

    def _unit_count(self, code: Code) -> Value:
        if not self.is_generic:
            return code.integer(self.units())
        return code.div(code.add(Value("%n", dtypes.int64), code.integer(self.step - 1)), code.integer(self.step))

    def _grain(self) -> int:
        """Returns the least iterations of the outer loops for a thread of their own."""
        work, grain = self.nest.work, self.loops.grain
        if self.is_generic:
            return _units_for(grain, work * self.copies, 1, 1)
        return derived(_units_for, grain, self.nest.size * work, max(self.lanes, 1), max(self.units(), 1))

    def _rows(self, first: Value, end: Value) -> None:
        """Prints the iterations of the outer loops in a range of their joint number."""
        code, steps, split = self.code, self.steps(), self.outer_loops_in_one()
        if self.is_generic:
            self.flat(first, end)
            return
        if not steps:
            self.row(Scope({}, {}))
            return
        with code.loop(first, end) as unit:
            iterations: dict[int, Value] = {}
            rest = unit
            for loop, count in reversed(steps[1:split]):
                iterations[loop] = code.rem(rest, code.integer(count))
                rest = code.div(rest, code.integer(count))
            iterations[steps[0][0]] = rest
            with ExitStack() as stack:
                for loop, count in steps[split:]:
                    iterations[loop] = stack.enter_context(code.loop(0, count))
                if self.nest.vector in iterations:
                    number = iterations[self.nest.vector]
                    iterations[self.nest.vector] = code.mul(number, code.integer(self.step))
                self.row(Scope({}, iterations))
