"""The stored form of a lowered program: its plan, its schedule and the texts printed for the compiler, but no code.

It has two parts. The *head* holds all that a program needs to run, texts of kernels included, the *body*, compressed, all that can
be asked about it. There specs, source lines, graphs, views and steps stand in tables, so an object that a program shares is stored
once, and are read when they are first wanted; graphs, which are long, are bytes until then. Kernels with addresses or a state, and
kernels that run in Python, are chosen and made anew, by which a stored program notices that it does not belong here.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from nnc.base.fork import new_lock
from nnc.base.source import SourceLine
from nnc.device.target import Target
from nnc.graph import Graph, Kernel, Node, Symbol, command
from nnc.graph.serialize import (
    GraphReader,
    GraphWriter,
    decode_array,
    decode_params,
    encode_array,
    encode_params,
    read_spec,
    spec_tree,
)
from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.kernels.native import Compiler, Native
from nnc.lower.plan.schedule.types import Schedule, Signal
from nnc.lower.plan.stages import Bound, Branches, Buffer, Iteration, Kind, Loop, Planned, Step, Steps, View
from nnc.run.entry import EntryText
from nnc.run.native_program import NativeCode, Printed, ProgramAbi, ProgramParts, Result
from nnc.run.program import Program

Tree = dict[str, Any]
Choose = Callable[[Step], Kernel]


def encode_program(program: Program, sources: Sequence[SourceLine]) -> tuple[bytes, bytes] | None:
    """Returns the head and the body of a program, where `sources` are referred to by position; None where the program has other
    source lines.

    Raises:
        GraphError: a parameter has no stored form.
    """
    writer = _TableWriter(sources)
    planned, bound, schedule = program.planned, program.bound, program.schedule
    body: Tree = {
        "name": bound.name,
        "inputs": [writer.tables.spec(spec) for spec in bound.inputs],
        "constants": [encode_array(value) for value in bound.constants],
        "buffers": [writer.buffer(buffer) for buffer in bound.buffers],
        "steps": writer.all(bound.steps),
        "outputs": [writer.view(view) for view in bound.outputs],
        "intervals": bound.intervals,
        "donated": bound.donated,
        "joins": bound.joins,
        "kept": bound.kept,
        "offsets": planned.offsets,
        "arena": [planned.arena_bytes, planned.lower_bound],
        "flush_denormals": planned.flush_denormals,
        "precision": planned.precision,
        "recomputed": [writer.node(node) for node in planned.recomputed],
        "streams": schedule.streams,
        "signals": [[signal.before, signal.after] for signal in schedule.signals],
        "planned": [[float(begin), float(end)] for begin, end in schedule.planned],
    }
    natives = program.code.natives if program.code is not None else {}
    texts = _NumberedTexts()
    body["natives"] = [texts.row(natives.get(key)) for key in writer.steps]
    body["printed"] = [_device_row(program.printed.get(key)) for key in writer.steps]
    backends = [program.kernels[key].backend if key in program.kernels else None for key in writer.steps]
    head: Tree = {
        "concurrent": program.is_concurrent,
        "backends": backends,
        "chosen": [
            i
            for i, (backend, row, other) in enumerate(zip(backends, body["natives"], body["printed"], strict=True))
            if backend is not None and ("anew" in row if row is not None else other is None)
        ],
    }
    if program.code is not None:
        head["outside"] = _outside_tree(program.code.outside)
        head["entries"] = [
            [apart, *_printed_tree(printed, writer, natives, texts)]
            for apart, printed in tuple(program.code.printed.items())  # a call may add one
        ]
    head["texts"] = list(texts.numbers)
    if len(writer.tables.sources) > len(sources):
        return None
    tables = writer.tables.tables()
    tables["graphs"] = list(map(marshal.dumps, tables["graphs"]))
    body |= {**tables, "sources": len(sources), "views": writer.view_rows, "table": writer.step_rows}
    return marshal.dumps(head), zlib.compress(marshal.dumps(body), 1)


def _tree(content: bytes) -> Tree:
    """Returns the tree that `content` encodes.

    Raises:
        ValueError: it encodes no tree.
    """
    try:
        tree = marshal.loads(content)
    except (EOFError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(tree, dict):
        raise ValueError("no tree")
    return tree


# -- the head ----------------------------------------------------------------------------------------------------------


def _outside_tree(outside: ProgramAbi) -> Tree:
    writer = GraphWriter()
    return {
        "name": outside.name,
        "inputs": [writer.spec(spec) for spec in outside.inputs],
        "donated": outside.donated,
        "kept": outside.kept,
        "made": [writer.spec(spec) for spec in outside.made],
        "results": [[r.kind.value, r.index, _view_row(r.view, writer)] for r in outside.results],
        "constants": [encode_array(value) for value in outside.constants],
        "arena": outside.arena_bytes,
        "loops": outside.loops,
        "all": outside.runs_all,
        "specs": [spec_tree(spec) for spec in writer.specs],
    }


def _read_outside(tree: Tree) -> ProgramAbi:
    specs = list(map(read_spec, tree["specs"]))
    return ProgramAbi(
        name=tree["name"],
        inputs=tuple(specs[i] for i in tree["inputs"]),
        donated=tuple(tree["donated"]),
        kept=_pairs(tree["kept"]),
        made=tuple(specs[i] for i in tree["made"]),
        results=tuple(Result(Kind(kind), i, _read_view(row, specs.__getitem__)) for kind, i, row in tree["results"]),
        constants=_arrays(tree["constants"]),
        arena_bytes=tree["arena"],
        loops=tree["loops"],
        runs_all=tree["all"],
    )


def _printed_tree(
    printed: Printed, writer: _TableWriter, natives: Mapping[int, Native], texts: _NumberedTexts
) -> list[Any]:
    """Returns the row of an entry; steps with a state are given by their positions in the table."""
    text = printed.text
    for native in (*text.called, *text.held):
        texts.row(native)
    positions = {id(natives[key]): i for key, i in writer.steps.items() if key in natives}
    states = [positions[id(native)] for native in printed.states]
    names = [[native.name for native in row] for row in (text.called, text.held)]
    return [text.text, *names, states, [writer.all(steps) for steps in text.blocks]]


class _NumberedTexts:
    """Numbers the texts of compiled kernels."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[Any, ...], int] = {}

    def row(self, native: Native | None) -> Tree | None:
        """Returns the text and the numbers of a compiled kernel; the name alone where it is made anew."""
        if native is None:
            return None
        if native.symbols or native.state is not None:
            return {"anew": native.name}
        return {"text": self._number(native), "numbers": native.numbers}

    def _number(self, native: Native) -> int:
        """Returns the number of a text, which comes after the numbers of the kernels that it calls."""
        calls = tuple([self._number(called) for called in native.calls])
        text = native.text, native.inline, native.packed, native.light, calls
        return self.numbers.setdefault(text, len(self.numbers))


def _device_row(kernel: DeviceKernel | None) -> list[Any] | None:
    """Returns a kernel that is printed for a device."""
    if kernel is None:
        return None
    launches = [[x.function, x.grid, x.block, x.operands, x.shared, x.updates] for x in kernel.launches]
    return [kernel.text, launches, kernel.may_fail]


def _read_device_row(text: str, launches: Sequence[Sequence[Any]], may_fail: bool) -> DeviceKernel:
    return DeviceKernel(text, tuple(Launch(*each) for each in launches), may_fail)


def _view_row(view: View, tables: GraphWriter) -> list[Any]:
    return [view.buffer, tables.spec(view.spec), view.offset, view.strides, view.advances]


def _read_view(row: Sequence[Any], spec: Callable[[int], Any]) -> View:
    buffer, position, offset, strides, advances = row
    return View(buffer, spec(position), offset, tuple(strides), _pairs(advances))


def _arrays(trees: Sequence[Tree]) -> tuple[Any, ...]:
    return tuple(np.ascontiguousarray(decode_array(tree)) for tree in trees)


# -- the body ----------------------------------------------------------------------------------------------------------


class _TableWriter:
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
            self.view_rows.append(_view_row(view, self.tables))
        return self.views[view]

    def source(self, source: SourceLine | None) -> int | None:
        return None if source is None else self.tables.source(source)

    def buffer(self, buffer: Buffer) -> list[Any]:
        symbol, source = buffer.symbol, self.source(buffer.source)
        return [buffer.kind.value, buffer.index, self.tables.spec(symbol.spec), symbol.name, source]

    def node(self, node: Node) -> int:
        """Returns a node, as a graph of its own."""
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


class _Packed(Sequence[Any]):
    """Rows of a table that are taken out of their bytes when they are asked for."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, position: Any) -> Any:
        return marshal.loads(self._rows[position])


class _StepReader:
    """Makes views, buffers and steps of their rows, when they are first wanted."""

    def __init__(self, tree: Tree, sources: Sequence[SourceLine]) -> None:
        tables = {"sources": [None] * tree["sources"], "graphs": _Packed(tree["graphs"])}
        self.tables = GraphReader(tree | tables, sources)
        self._view_rows, self._step_rows = tree["views"], tree["table"]
        self._views: list[View | None] = [None] * len(self._view_rows)
        self._steps: list[Step | None] = [None] * len(self._step_rows)

    def view(self, position: int) -> View:
        found = self._views[position]
        if found is None:
            found = self._views[position] = _read_view(self._view_rows[position], self.tables.spec)
        return found

    def view_or_none(self, position: int | None) -> View | None:
        return None if position is None else self.view(position)

    def views(self, positions: Sequence[int]) -> tuple[View, ...]:
        return tuple(map(self.view, positions))

    def source(self, position: int | None) -> SourceLine | None:
        return None if position is None else self.tables.sources[position]

    def buffer(self, kind: str, index: int, spec: int, name: str, source: int | None) -> Buffer:
        return Buffer(Kind(kind), index, Symbol(self.tables.spec(spec), name), self.source(source))

    def all(self, positions: Sequence[int]) -> Steps:
        return tuple(map(self.step, positions))

    def table(self) -> Steps:
        """Returns all steps, in the order of their table."""
        return self.all(range(len(self._step_rows)))

    def step(self, position: int) -> Step:
        found = self._steps[position]
        if found is None:
            found = self._steps[position] = self._read_step(*self._step_rows[position])
        return found

    def _read_step(
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
            self.views(inputs),
            self.views(outputs),
            decode_params(params),
            tuple(map(self.tables.graph, graphs)),
            self.source(source),
            self._region(region),
        )

    def _region(self, tree: Tree | None) -> Loop | Branches | None:
        if tree is None:
            return None
        return self._loop(*tree["loop"]) if "loop" in tree else self._branches(*tree["branches"])

    def _branches(self, index: int, branches: Sequence[Sequence[int]]) -> Branches:
        return Branches(self.view(index), tuple(map(self.all, branches)))

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
                Iteration(self.all(head), self.view_or_none(test), self.all(leave), self.all(tail), self.all(turn))
                for head, test, leave, tail, turn in copies
            ),
            first=first,
            counter=self.view_or_none(counter),
            length=length,
            reverse=reverse,
            limit=limit,
            begins=tuple(begins),
            count=self.view_or_none(count),
        )


# -- the program -------------------------------------------------------------------------------------------------------


class StoredProgram:
    """A program in its stored form, with `sources` instead of the lines that it was stored with.

    Raises:
        ValueError: these are not the parts of a program.
    """

    def __init__(self, parts: Sequence[bytes], sources: Sequence[SourceLine]) -> None:
        head, self._packed = parts
        self.head, self._sources = _tree(head), sources

    @cached_property
    def outside(self) -> ProgramAbi | None:
        """The outer form of the compiled program, enough to call it; None where it is not compiled."""
        return _read_outside(self.head["outside"]) if "outside" in self.head else None

    @cached_property
    def body(self) -> Tree:
        """The tables."""
        return _tree(zlib.decompress(self._packed))

    @cached_property
    def texts(self) -> list[Native]:
        """The compiled kernels whose texts it holds."""
        found: list[Native] = []
        for text, inline, packed, light, calls in self.head["texts"]:
            called = tuple([found[i] for i in calls])
            found.append(Native(text, inline=inline, packed=packed, light=light, calls=called))
        return found

    @cached_property
    def reader(self) -> _StepReader:
        """The reader of the tables."""
        return _StepReader(self.body, self._sources)

    def program(self, choose: Choose, compiler: Compiler | None, machine: Target) -> Program | None:
        """Returns the program; None where `choose` gives other kernels than it was stored with."""
        head, kernels = self.head, _Kernels(self, choose, machine)
        if not all(map(kernels.is_same, head["chosen"])):
            return None
        program = Program(kernels.parts, head["concurrent"])
        if self.outside is None:
            return program
        if compiler is None or not compiler.works():
            return None
        printed: dict[bool, Printed] = {}
        for apart, *row in head["entries"]:
            entry = self._printed(kernels, *row)
            if entry is None:
                return None
            printed[apart] = entry
        return program.with_code(NativeCode(self.outside, kernels.parts, compiler, printed))

    def _printed(
        self,
        kernels: _Kernels,
        text: str,
        called: Sequence[str],
        held: Sequence[str],
        states: Sequence[int],
        blocks: Sequence[Sequence[int]],
    ) -> Printed | None:
        """Returns the text of an entry; None where a kernel that is made anew is another now."""
        anew = [kernels.native(i) for i in self.head["chosen"]]
        known = {n.name: n for n in (*anew, *self.texts) if n is not None}
        with_state = [native for i in states if (native := kernels.native(i)) is not None]
        if not known.keys() >= {*called, *held} or len(with_state) < len(states):
            return None
        printed = EntryText(
            text=text,
            called=tuple(known[name] for name in called),
            held=tuple(known[name] for name in held),
            blocks=tuple(self.reader.all(block) for block in blocks),
        )
        return Printed(printed, tuple(with_state))


class _Kernels:
    """The kernels of a stored program's steps, by their positions in the table, chosen and made when they are first wanted."""

    def __init__(self, stored: StoredProgram, choose: Choose, machine: Target) -> None:
        self._stored, self._choose, self._machine = stored, choose, machine
        self._chosen: dict[int, Kernel] = {}
        self._natives: dict[int, Native | None] = {}
        self._parts: ProgramParts | None = None
        self._lock = new_lock()

    def is_same(self, position: int) -> bool:
        """Whether a step has a kernel of the backend that it was stored with."""
        return self._choose_kernel(position).backend == str(self._stored.head["backends"][position])

    def _choose_kernel(self, position: int) -> Kernel:
        if position not in self._chosen:
            self._chosen[position] = self._choose(self._stored.reader.step(position))
        return self._chosen[position]

    def native(self, position: int) -> Native | None:
        """Returns the compiled kernel of a step, made anew; None where it has none, or another than it was stored with."""
        if position not in self._natives:
            row = self._stored.body["natives"][position]
            make = self._choose_kernel(position).native if row is not None else None
            made: Native | None = make(self._stored.reader.step(position)) if make is not None else None
            self._natives[position] = made if made is not None and made.name == row["anew"] else None
        return self._natives[position]

    def parts(self) -> ProgramParts:
        """Returns the parts of the program."""
        with self._lock:
            if self._parts is None:
                self._parts = self._read_parts()
            return self._parts

    def _read_parts(self) -> ProgramParts:
        stored = self._stored
        tree, reader = stored.body, stored.reader
        kernels: dict[int, Kernel] = {}
        natives: dict[int, Native] = {}
        for i, (step, backend, row) in enumerate(
            zip(reader.table(), stored.head["backends"], tree["natives"], strict=True)
        ):
            if backend is not None:  # compiled code belongs to this backend, even if another would be chosen today
                kernels[id(step)] = replace(self._choose_kernel(i), backend=backend)
            native = None if row is None else self.native(i) if "anew" in row else stored.texts[row["text"]]
            if native is not None:
                natives[id(step)] = replace(native, numbers=tuple(row["numbers"])) if row.get("numbers") else native
        rows = zip(reader.table(), tree["printed"], strict=True)
        printed = {id(step): _read_device_row(*row) for step, row in rows if row is not None}
        planned = _read_plan(tree, reader, self._machine)
        return ProgramParts(planned, _read_schedule(tree), kernels, natives, printed)


def _read_plan(tree: Tree, reader: _StepReader, machine: Target) -> Planned:
    graphs = reader.tables.graph
    bound = Bound(
        name=tree["name"],
        inputs=tuple(map(reader.tables.spec, tree["inputs"])),
        constants=_arrays(tree["constants"]),
        buffers=tuple(reader.buffer(*row) for row in tree["buffers"]),
        steps=reader.all(tree["steps"]),
        outputs=reader.views(tree["outputs"]),
        intervals=tuple(map(_pairs, tree["intervals"])),
        donated=tuple(tree["donated"]),
        joins=tree["joins"],
        kept=_pairs(tree["kept"]),
    )
    arena_bytes, lower_bound = tree["arena"]
    recomputed = tuple(graphs(i).nodes[0] for i in tree["recomputed"])
    offsets, flushes = tuple(tree["offsets"]), tree["flush_denormals"]
    return Planned(bound, offsets, arena_bytes, lower_bound, recomputed, flushes, tree["precision"], machine)


def _read_schedule(tree: Tree) -> Schedule:
    return Schedule(
        streams=tuple(map(tuple, tree["streams"])),
        signals=tuple(Signal(*signal) for signal in tree["signals"]),
        planned=_pairs(tree["planned"]),
    )


def _pairs(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(map(tuple, rows))
