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
from types import MappingProxyType
from typing import Any

import numpy as np

from nnc.base.fork import new_lock
from nnc.base.source import SourceLine
from nnc.base.target import Target
from nnc.graph import Graph, Kernel, Node, Symbol, TensorSpec, command
from nnc.graph.serialize import (
    GraphReader,
    GraphWriter,
    decode_array,
    decode_params,
    encode_array,
    encode_params,
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
    writer = _Writer(sources)
    body: Tree = {
        "planned": writer.tree(_fields(program.planned)[:-1]),  # but for the machine
        "schedule": writer.tree(program.schedule),
    }
    natives = program.code.natives if program.code is not None else {}
    texts = _NumberedTexts()
    body["natives"] = [texts.row(natives.get(key)) for key in writer.steps]
    body["printed"] = [writer.tree(program.printed.get(key)) for key in writer.steps]
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
        outer = _Writer()
        head["outside"] = {"value": outer.tree(program.code.outside), **outer.rows()}
        head["entries"] = [
            [apart, *_printed_tree(printed, writer, natives, texts)]
            for apart, printed in tuple(program.code.printed.items())  # a call may add one
        ]
    head["texts"] = list(texts.numbers)
    if len(writer.tables.sources) > len(sources):
        return None
    body |= writer.rows()
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


def _printed_tree(printed: Printed, writer: _Writer, natives: Mapping[int, Native], texts: _NumberedTexts) -> list[Any]:
    """Returns the row of an entry; steps with a state are given by their positions in the table."""
    text = printed.text
    for native in (*text.called, *text.held):
        texts.row(native)
    positions = {id(natives[key]): i for key, i in writer.steps.items() if key in natives}
    states = [positions[id(native)] for native in printed.states]
    names = [[native.name for native in row] for row in (text.called, text.held)]
    return [text.text, *names, states, writer.tree(text.blocks)]


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


# -- values ------------------------------------------------------------------------------------------------------------


# Classes whose values are stored as their fields. Views and steps have tables, like specs, source lines and graphs.
_RECORDS: Mapping[str, Callable[..., Any]] = MappingProxyType({
    cls.__name__: cls
    for cls in (Bound, Branches, Buffer, DeviceKernel, Iteration, Launch, Loop, ProgramAbi, Result, Schedule, Signal)
})  # fmt: skip


_PLAIN = frozenset({type(None), bool, int, float, str})


def _fields(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, name) for name in record.__match_args__])


class _Writer:
    """Encodes values as trees: a tuple as a list, all but plain values as a tuple of a tag and their parts; collects the
    tables.
    """

    def __init__(self, sources: Sequence[SourceLine] = ()) -> None:
        self.tables = GraphWriter()
        for source in sources:
            self.tables.source(source)
        self.steps: dict[int, int] = {}  # by identity
        self._views: dict[View, int] = {}
        self._view_rows: list[Any] = []
        self._step_rows: list[Any] = []

    def rows(self) -> Tree:
        """Returns the tables, with graphs as bytes."""
        tables = self.tables.tables()
        packed = {"sources": len(self.tables.sources), "graphs": list(map(marshal.dumps, tables["graphs"]))}
        return {**tables, **packed, "views": self._view_rows, "steps": self._step_rows}

    def tree(self, value: Any) -> Any:
        """Returns a value as a tree."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return [item if type(item) in _PLAIN else self.tree(item) for item in value]
        if kind in _WRITTEN:
            tag, write = _WRITTEN[kind]
            return tag, write(self, value)
        return (kind.__name__, *self.tree(_fields(value)))

    def _view(self, view: View) -> int:
        if view not in self._views:
            self._views[view] = len(self._views)
            self._view_rows.append(self.tree(_fields(view)))
        return self._views[view]

    def _node(self, node: Node) -> int:
        """Returns the position of a graph of this node alone."""
        return self.tables.graph(Graph(tuple(dict.fromkeys(node.inputs)), node.outputs, (node,)))

    def _step(self, step: Step) -> int:
        if id(step) not in self.steps:
            params = encode_params(step.command, step.params, step.source)
            parts = [self.tree(x) for x in (step.inputs, step.outputs, step.graphs, step.source, step.region)]
            self.steps[id(step)] = len(self.steps)
            self._step_rows.append([step.command.name, params, *parts])
        return self.steps[id(step)]


_WRITTEN: Mapping[type, tuple[str, Callable[[_Writer, Any], Any]]] = MappingProxyType(
    {
        View: ("view", _Writer._view),
        Step: ("step", _Writer._step),
        TensorSpec: ("spec", lambda writer, spec: writer.tables.spec(spec)),
        SourceLine: ("source", lambda writer, source: writer.tables.source(source)),
        Graph: ("graph", lambda writer, graph: writer.tables.graph(graph)),
        Node: ("node", _Writer._node),
        Symbol: ("symbol", lambda writer, symbol: [writer.tables.spec(symbol.spec), symbol.name]),
        Kind: ("kind", lambda writer, kind: kind.value),
        np.ndarray: ("array", lambda writer, array: encode_array(array)),
    }
)


class _Packed(Sequence[Any]):
    """Rows of a table that are taken out of their bytes when they are asked for."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, position: Any) -> Any:
        return marshal.loads(self._rows[position])


class _FormReader:
    """Reads values of trees; views and steps when they are first wanted."""

    def __init__(self, tree: Tree, sources: Sequence[SourceLine] = ()) -> None:
        tables = {"sources": [None] * tree["sources"], "graphs": _Packed(tree["graphs"])}
        self.tables = GraphReader(tree | tables, sources)
        self._view_rows, self._step_rows = tree["views"], tree["steps"]
        self._views: dict[int, View] = {}
        self._steps: dict[int, Step] = {}

    def value(self, tree: Any) -> Any:
        """Returns the value of a tree."""
        if type(tree) in (list, tuple):
            items = [item if type(item) in _PLAIN else self.value(item) for item in tree]
            return tuple(items) if type(tree) is list else self._tagged(*items)
        return tree

    def _tagged(self, tag: str, *values: Any) -> Any:
        record = _RECORDS.get(tag)
        return _READ[tag](self, *values) if record is None else record(*values)

    def table(self) -> Steps:
        """Returns all steps, in the order of their table."""
        return tuple(map(self.step, range(len(self._step_rows))))

    def step(self, position: int) -> Step:
        """Returns the step at a position of the table."""
        if position not in self._steps:
            name, params, *parts = self._step_rows[position]
            inputs, outputs, graphs, source, region = map(self.value, parts)
            found = Step(command(name), inputs, outputs, decode_params(params), graphs, source, region)
            self._steps[position] = found
        return self._steps[position]

    def _view(self, position: int) -> View:
        if position not in self._views:
            self._views[position] = View(*self.value(self._view_rows[position]))
        return self._views[position]


_READ: Mapping[str, Callable[[_FormReader, Any], Any]] = MappingProxyType(
    {
        "view": _FormReader._view,
        "step": _FormReader.step,
        "spec": lambda reader, position: reader.tables.spec(position),
        "source": lambda reader, position: reader.tables.sources[position],
        "graph": lambda reader, position: reader.tables.graph(position),
        "node": lambda reader, position: reader.tables.graph(position).nodes[0],
        "symbol": lambda reader, parts: Symbol(reader.tables.spec(parts[0]), parts[1]),
        "kind": lambda reader, value: Kind(value),
        "array": lambda reader, tree: np.ascontiguousarray(decode_array(tree)),
    }
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
        tree = self.head.get("outside")
        return None if tree is None else _FormReader(tree).value(tree["value"])

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
    def reader(self) -> _FormReader:
        """The reader of the tables."""
        return _FormReader(self.body, self._sources)

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
        blocks: Sequence[Any],
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
            blocks=self.reader.value(blocks),
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
        rows = zip(reader.table(), reader.value(tree["printed"]), strict=True)
        printed = {id(step): kernel for step, kernel in rows if kernel is not None}
        planned = Planned(*(*reader.value(tree["planned"]), self._machine))
        return ProgramParts(planned, reader.value(tree["schedule"]), kernels, natives, printed)
