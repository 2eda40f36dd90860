"""The JSON form of a lowered program: its plan, its schedule and what was printed for the compiler, but no code.

Specs, source lines, graphs, views, steps and texts stand in tables, so what a program shares is stored once. Kernels are chosen
anew, and those with addresses or a state are made anew, by which a stored program notices that it does not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnc.graph import Graph, Kernel, Node, Symbol, TensorSpec, command
from nnc.graph.serialize import (
    GraphWriter,
    Tables,
    decode_array,
    decode_params,
    encode_array,
    encode_params,
    read_tables,
)
from nnc.lower.codegen.arguments import binder
from nnc.lower.codegen.entry import EntryText
from nnc.lower.codegen.native import Compiler, Native
from nnc.lower.native_program import NativeCode
from nnc.lower.program import Program
from nnc.lower.schedule.types import Schedule, Signal
from nnc.lower.stages import Bound, Branches, Buffer, Kind, Loop, Planned, Round, Step, Steps, View
from nnc.source import SourceLine

Tree = dict[str, Any]


def encode_program(program: Program, sources: Sequence[SourceLine]) -> Tree | None:
    """The stored form of a program; None where it has source lines beside `sources`, which stand in it as their positions.

    Raises:   GraphError: a parameter has no JSON form.
    """
    writer = _Writer(sources)
    planned, bound, schedule = program.planned, program.bound, program.schedule
    tree: Tree = {
        "name": bound.name,
        "inputs": [writer.tables.spec(spec) for spec in bound.inputs],
        "constants": [encode_array(value) for value in bound.constants],
        "buffers": [writer.buffer(buffer) for buffer in bound.buffers],
        "steps": writer.all(bound.steps),
        "outputs": [writer.view(view) for view in bound.outputs],
        "intervals": bound.intervals,
        "donated": bound.donated,
        "joins": bound.joins,
        "offsets": planned.offsets,
        "arena": [planned.arena_bytes, planned.lower_bound],
        "recomputed": [writer.node(node) for node in planned.recomputed],
        "streams": schedule.streams,
        "signals": [[signal.before, signal.after] for signal in schedule.signals],
        "planned": schedule.planned,
        "backends": [program.kernels[key].backend if key in program.kernels else None for key in writer.steps],
    }
    if program.code is not None:
        tree["natives"], tree["texts"] = writer.natives(program.code.natives)
        tree["entries"] = [writer.entry(apart, text) for apart, text in program.code.texts.items()]
    if len(writer.tables.sources) > len(sources):
        return None
    return {
        **tree,
        **writer.tables.tables(),
        "sources": len(sources),
        "views": writer.view_rows,
        "table": writer.step_rows,
    }


class _Writer:
    """Collects the tables."""

    def __init__(self, sources: Sequence[SourceLine]) -> None:
        self.tables = GraphWriter()
        for source in sources:
            self.tables.source(source)
        self.views: dict[View, int] = {}
        self.view_rows: list[Any] = []
        self.steps: dict[int, int] = {}  # by identity
        self.step_rows: list[Any] = []

    def view(self, view: View | None) -> int | None:
        if view is None:
            return None
        if view not in self.views:
            self.views[view] = len(self.views)
            spec = self.tables.spec(view.spec)
            self.view_rows.append([view.buffer, spec, view.offset, view.strides, view.rounds])
        return self.views[view]

    def source(self, source: SourceLine | None) -> int | None:
        return None if source is None else self.tables.source(source)

    def buffer(self, buffer: Buffer) -> list[Any]:
        symbol, source = buffer.symbol, self.source(buffer.source)
        return [buffer.kind.value, buffer.index, self.tables.spec(symbol.spec), symbol.name, source]

    def node(self, node: Node) -> int:
        """A node, as a graph of its own."""
        inputs = tuple(dict.fromkeys(node.inputs))
        return self.tables.graph(Graph(inputs, node.outputs, (node,)))

    def all(self, steps: Steps) -> list[int]:
        return [self.step(step) for step in steps]

    def step(self, step: Step) -> int:
        if id(step) not in self.steps:
            row = [
                step.command.name,
                [self.view(view) for view in step.inputs],
                [self.view(view) for view in step.outputs],
                encode_params(step.command, step.params, step.source),
                [self.tables.graph(graph) for graph in step.graphs],
                self.source(step.source),
                self.region(step.region),
            ]
            self.steps[id(step)] = len(self.steps)
            self.step_rows.append(row)
        return self.steps[id(step)]

    def region(self, region: Loop | Branches | None) -> Tree | None:
        if region is None:
            return None
        if isinstance(region, Branches):
            return {"branches": [self.view(region.index), [self.all(branch) for branch in region.branches]]}
        copies = [
            [self.all(c.head), self.view(c.test), self.all(c.leave), self.all(c.tail), self.all(c.turn)]
            for c in region.copies
        ]
        facts = [region.number, copies, region.first, region.length, region.reverse, region.limit, region.begins]
        return {"loop": [*facts, self.view(region.counter), self.view(region.count)]}

    def natives(self, natives: Mapping[int, Native]) -> tuple[list[Any], list[Any]]:
        """For each step the text and the numbers of its compiled kernel, the name alone where it is made anew, or None."""
        texts: dict[tuple[str, bool, bool], int] = {}
        rows: list[Any] = []
        for key in self.steps:
            native = natives.get(key)
            if native is None:
                rows.append(None)
            elif native.symbols or native.state is not None:
                rows.append({"anew": native.name})
            else:
                text = native.text, native.inline, native.packed
                rows.append({"text": texts.setdefault(text, len(texts)), "numbers": native.numbers})
        return rows, list(texts)

    def entry(self, apart: bool, text: EntryText) -> list[Any]:
        names = [[native.name for native in natives] for natives in (text.called, text.held)]
        return [apart, text.text, *names, [self.all(steps) for steps in text.blocks]]


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """A program read from its stored form, without kernels. Rows of `natives` and `entries` are as they are stored."""

    planned: Planned
    schedule: Schedule
    steps: Steps  # in the order of their table
    backends: tuple[str | None, ...]
    natives: Sequence[Any] | None  # None: nothing was compiled
    texts: tuple[Native, ...]
    entries: Sequence[Any]

    def program(self, choose: Callable[[Step], Kernel], compiler: Compiler | None) -> Program | None:
        """The program with its kernels; None where `choose` gives others than those that it was stored with."""
        program = Program.of(self.planned, self.schedule, choose)
        found = [program.kernels[id(step)].backend if id(step) in program.kernels else None for step in self.steps]
        if tuple(found) != self.backends:
            return None
        if self.natives is None:
            return program
        if compiler is None or not compiler.works():
            return None
        natives = self._natives(self.natives, program.kernels)
        if natives is None:
            return None
        known = {native.name: native for native in (*natives.values(), binder())}
        texts: dict[bool, EntryText] = {}
        for apart, text, called, held, blocks in self.entries:
            if not known.keys() >= {*called, *held}:
                return None
            texts[apart] = EntryText(
                text=text,
                called=tuple(known[name] for name in called),
                held=tuple(known[name] for name in held),
                blocks=tuple(tuple(self.steps[i] for i in block) for block in blocks),
            )
        return program.with_code(NativeCode(self.planned, program.kernels, natives, compiler, texts))

    def _natives(self, rows: Sequence[Any], kernels: Mapping[int, Kernel]) -> dict[int, Native] | None:
        natives: dict[int, Native] = {}
        for step, row in zip(self.steps, rows, strict=True):
            if row is None:
                continue
            if "text" in row:
                text, numbers = self.texts[row["text"]], tuple(row["numbers"])
                natives[id(step)] = replace(text, numbers=numbers) if numbers else text
                continue
            make = kernels[id(step)].native
            made: Native | None = make(step) if make is not None else None
            if made is None or made.name != row["anew"]:
                return None
            natives[id(step)] = made
        return natives


def decode_program(tree: Tree, sources: Sequence[SourceLine]) -> StoredProgram:
    """The program that `encode_program` made `tree` of, with `sources` in the place of those."""
    reader = _Reader(read_tables(tree | {"sources": [None] * tree["sources"]}, sources), tree["views"])
    for row in tree["table"]:
        reader.steps.append(reader.step(*row))
    graphs = reader.tables.graphs
    bound = Bound(
        name=tree["name"],
        inputs=tuple(reader.tables.specs[i] for i in tree["inputs"]),
        constants=tuple(np.ascontiguousarray(decode_array(value)) for value in tree["constants"]),
        buffers=tuple(reader.buffer(*row) for row in tree["buffers"]),
        steps=reader.all(tree["steps"]),
        outputs=tuple(reader.views[i] for i in tree["outputs"]),
        intervals=_pairs_of(tree["intervals"]),
        donated=tuple(tree["donated"]),
        joins=tree["joins"],
    )
    arena_bytes, lower_bound = tree["arena"]
    recomputed = tuple(graphs[i].nodes[0] for i in tree["recomputed"])
    schedule = Schedule(
        streams=tuple(map(tuple, tree["streams"])),
        signals=tuple(Signal(*signal) for signal in tree["signals"]),
        planned=_pairs(tree["planned"]),
    )
    return StoredProgram(
        planned=Planned(bound, tuple(tree["offsets"]), arena_bytes, lower_bound, recomputed),
        schedule=schedule,
        steps=tuple(reader.steps),
        backends=tuple(tree["backends"]),
        natives=tree.get("natives"),
        texts=tuple(Native(text, inline=inline, packed=packed) for text, inline, packed in tree.get("texts", ())),
        entries=tree.get("entries", ()),
    )


def _pairs(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(map(tuple, rows))


def _pairs_of(rows: Sequence[Sequence[Sequence[Any]]]) -> tuple[Any, ...]:
    return tuple(map(_pairs, rows))


class _Reader:
    """Makes views, buffers and steps of their rows."""

    def __init__(self, tables: Tables, views: Sequence[Any]) -> None:
        specs = tables.specs
        self.tables = tables
        self.views = [
            View(buffer, specs[spec], offset, tuple(strides), _pairs(rounds))
            for buffer, spec, offset, strides, rounds in views
        ]
        self.steps: list[Step] = []

    def view(self, position: int | None) -> View | None:
        return None if position is None else self.views[position]

    def source(self, position: int | None) -> SourceLine | None:
        return None if position is None else self.tables.sources[position]

    def buffer(self, kind: str, index: int, spec: int, name: str, source: int | None) -> Buffer:
        return Buffer(Kind(kind), index, Symbol(self._spec(spec), name), self.source(source))

    def _spec(self, position: int) -> TensorSpec:
        return self.tables.specs[position]

    def all(self, positions: Sequence[int]) -> Steps:
        return tuple(self.steps[i] for i in positions)

    def step(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        params: Tree,
        graphs: Sequence[int],
        source: int | None,
        region: Tree | None,
    ) -> Step:
        return Step(
            command(name),
            tuple(self.views[i] for i in inputs),
            tuple(self.views[i] for i in outputs),
            decode_params(params),
            tuple(self.tables.graphs[i] for i in graphs),
            self.source(source),
            self.region(region),
        )

    def region(self, tree: Tree | None) -> Loop | Branches | None:
        if tree is None:
            return None
        return self._loop(*tree["loop"]) if "loop" in tree else self._branches(*tree["branches"])

    def _branches(self, index: int, branches: Sequence[Sequence[int]]) -> Branches:
        return Branches(self.views[index], tuple(map(self.all, branches)))

    def _loop(
        self,
        number: int,
        copies: Sequence[Any],
        first: int,
        length: int | None,
        reverse: bool,
        limit: int | None,
        begins: Sequence[int],
        counter: int | None,
        count: int | None,
    ) -> Loop:
        return Loop(
            number=number,
            copies=tuple(
                Round(self.all(head), self.view(test), self.all(leave), self.all(tail), self.all(turn))
                for head, test, leave, tail, turn in copies
            ),
            first=first,
            counter=self.view(counter),
            length=length,
            reverse=reverse,
            limit=limit,
            begins=tuple(begins),
            count=self.view(count),
        )
