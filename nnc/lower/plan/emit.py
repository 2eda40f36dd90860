"""Binds a graph, with all its sub-graphs, to steps on tensors that each have memory of their own.

Nothing is clever here: loop carries, results of branches and results of the graph are *moved* (a `copy` step) to where they
are wanted, and views are views. `coalesce` then lets the two sides of a move share memory where that is safe, which drops the
move. So one rule makes loops, branches, outputs, joins and in-place updates free of copies.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nnc.base.dtypes import TAPE, uint8
from nnc.base.source import SourceLine
from nnc.commands import roles
from nnc.commands.control import isolated
from nnc.commands.elementwise import copy
from nnc.commands.loop import split_iteration
from nnc.graph import Command, Graph, Node, Symbol, TensorSpec
from nnc.lower.plan.stages import Branches, Buffer, Iteration, Kind, Loop, Step, Steps, View
from nnc.lower.plan.views import shared_view

WORKSPACE = "workspace of "  # begins the names of tensors in which kernels work
COPIES = 64  # most copies of an iteration that a loop is unrolled to; beyond, carried values are copied
_PEELED = 4096  # bytes; smaller values are copied into a loop once rather than giving it a first iteration of its own


class Body(NamedTuple):
    """The common form of `while` and `scan`. An iteration takes its number, elements, carried and captured values.

    `head` yields the condition, exits and values for `tail`, which yields carried values and rows. A `scan` has no head;
    where its length is not known, its first operand tells it.
    """

    command: Command
    head: Graph | None
    tail: Graph
    xs: int
    carries: int
    exits: int
    rows: int
    length: int | None
    reverse: bool = False
    limit: int | None = None

    @classmethod
    def of(cls, loop: roles.NodeRoles) -> Body:
        """Returns the parts of a loop's node."""
        (body,), params, command = loop.graphs, loop.node.params, loop.node.command
        xs, carries, exits, rows = map(len, (loop.sequences, loop.carries, loop.exits, loop.rows))
        if not loop.test:
            return cls(command, None, body, xs, carries, exits, rows, loop.length, params.get("reverse", False))
        head, tail = split_iteration(body, carries, params["before"], exits)
        return cls(command, head, tail, xs, carries, exits, rows, None, limit=params.get("max_steps"))

    @property
    def is_counted(self) -> bool:
        """Whether an operand tells the number of iterations."""
        return self.head is None and self.length is None

    @property
    def room(self) -> int:
        """The most rows that a loop may yield."""
        return self.length if self.length is not None else self.limit or 0

    @property
    def results(self) -> int:
        """The number of values that a loop yields."""
        return self.carries + self.rows + (self.exits + 1 if self.head is not None else 0)

    def reads_counter(self) -> bool:
        """Whether an iteration reads its number."""
        graphs = (self.tail,) if self.head is None else (self.head, self.tail)
        return any(graph.inputs[0] in graph.reads for graph in graphs)


RingSize = Callable[[Body], int]
Workspace = Callable[[Node], int]  # bytes that the kernel of a node needs while it runs


class Emitter:
    """Collects tensors and steps. `ring_size` gives the number of copies of an iteration that a loop needs so that nothing is
    moved between them.
    """

    def __init__(self, ring_size: RingSize, workspace: Workspace) -> None:
        self.tensors: list[Buffer] = []
        self.ring_size, self.workspace = ring_size, workspace
        self.carried: list[tuple[View, View]] = []  # moves that loops rest on: (from, to)
        self._constants: dict[Symbol, View] = {}
        self._loops = 0

    def tensor(self, kind: Kind, symbol: Symbol, source: SourceLine | None = None, index: int = 0) -> View:
        """Returns a tensor of its own."""
        self.tensors.append(Buffer(Kind.TAPE if symbol.dtype == TAPE else kind, index, symbol, source))
        return View.whole(len(self.tensors) - 1, symbol.spec)

    def scratch(self, spec: TensorSpec, name: str | None, source: SourceLine | None) -> View:
        """Returns a tensor of the arena that no symbol of the graph stands for."""
        return self.tensor(Kind.ARENA, Symbol(spec, name or ""), source)

    # -- graphs --------------------------------------------------------------------------------------------------------

    def program(self, graph: Graph) -> tuple[list[View], Steps, list[View]]:
        """Inputs, steps and outputs of a whole graph; each output is a tensor of its own."""
        inputs = [self.tensor(Kind.INPUT, symbol, index=i) for i, symbol in enumerate(graph.inputs)]
        outputs: dict[Symbol, list[View]] = {}
        results = []
        for i, symbol in enumerate(graph.outputs):
            results.append(self.tensor(Kind.OUTPUT, Symbol(symbol.spec, symbol.name), index=i))
            outputs.setdefault(symbol, []).append(results[-1])
        steps, _ = self.graph(graph, inputs, {}, outputs)
        return inputs, steps, results

    def graph(
        self,
        graph: Graph,
        inputs: Sequence[View],
        targets: Mapping[Symbol, View],
        moved: Mapping[Symbol, Sequence[View]],
    ) -> tuple[Steps, list[View]]:
        """Emits the steps of a graph on `inputs`, and returns the places of its outputs.

        Args:
            targets: for some symbols, the places that nodes should write to.
            moved: for some symbols, the places that they are moved to as soon as they are known.
        """
        block = _GraphSteps(self, graph, inputs, targets)
        for symbol in (*graph.inputs, *graph.constants):
            block.move(symbol, moved)
        for position, node in enumerate(graph.nodes):
            block.node(position, node)
            for symbol in node.outputs:
                block.move(symbol, moved)
        return tuple(block.steps), [block.where(symbol) for symbol in graph.outputs]

    def constant(self, symbol: Symbol) -> View:
        """Returns the view of a constant, which is stored once for all copies."""
        if symbol not in self._constants:
            self._constants[symbol] = self.tensor(Kind.CONSTANT, symbol, index=len(self._constants))
        return self._constants[symbol]

    # -- loops ---------------------------------------------------------------------------------------------------------

    def loop(
        self, body: Body, operands: Sequence[View], targets: Sequence[View | None], source: SourceLine | None,
        peel: Sequence[bool] = (), ring: int | None = None,
    ) -> tuple[Steps, list[View]]:  # fmt: skip
        """Emits the steps of a loop, and returns the places of its results.

        Args:
            operands: [the number of iterations,] sequences, carried values, captured values.
            targets: the place where each result should be written; None: anywhere.
            peel: which carried values are read elsewhere after they entered the loop.
            ring: the number of copies that rotate; None: it is found.
        """
        self._loops += 1
        return _LoopEmitter(self, body, operands, targets, source, self._loops - 1).emit(peel, ring)


def move(sources: Sequence[View], targets: Sequence[View], line: SourceLine | None) -> Step:
    """Returns a step that copies values, each source to its target, as if all at once."""
    return Step(copy, tuple(sources), tuple(targets), {}, source=line)


def is_move(step: Step) -> bool:
    """Whether a step only copies its inputs."""
    return step.command is copy


class _GraphSteps:
    """One graph being bound: the views of its symbols, and its steps so far."""

    def __init__(self, emitter: Emitter, graph: Graph, inputs: Sequence[View], targets: Mapping[Symbol, View]) -> None:
        self.emitter, self.graph, self.targets = emitter, graph, targets
        self.places: dict[Symbol, View] = dict(zip(graph.inputs, inputs, strict=True))
        self.steps: list[Step] = []
        self.line: SourceLine | None = None
        self._last: dict[Symbol, int] | None = None
        self._planned = planned_tapes(graph)

    def where(self, symbol: Symbol) -> View:
        """Returns the view of memory that holds a symbol."""
        view = self.places.get(symbol)
        return view if view is not None else self.emitter.constant(symbol)

    def move(self, symbol: Symbol, moved: Mapping[Symbol, Sequence[View]]) -> None:
        """Moves a symbol to the place where it is wanted."""
        for target in moved.get(symbol, ()):
            self.steps.append(move([self.where(symbol)], [target], self.line))

    def node(self, position: int, node: Node) -> None:
        """Binds a node."""
        self.line = node.source
        operands = [self.where(symbol) for symbol in node.inputs]
        shared = shared_view(node, operands)
        if shared is not None:
            self.places[node.outputs[0]] = shared
            return
        if node.command is isolated:
            self._apart(node, operands)
            return
        loop = roles.take_apart(node) if node.graphs and not _has_tapes(node, self._planned) else None
        if loop is not None and loop.is_loop:
            self._loop(position, loop, operands)
        elif loop is not None and loop.is_branch:
            self._branches(node, operands)
        else:
            results = [self._result(symbol, node) for symbol in node.outputs]
            nbytes = self.emitter.workspace(node)
            if nbytes:
                spec = TensorSpec((nbytes,), uint8)
                results.append(self.emitter.scratch(spec, f"{WORKSPACE}{node.command.name}", node.source))
            self.steps.append(
                Step(node.command, tuple(operands), tuple(results), node.params, node.graphs, node.source)
            )

    def _result(self, symbol: Symbol, node: Node) -> View:
        view = self.targets.get(symbol)
        if view is None:
            view = self.emitter.tensor(Kind.ARENA, symbol, node.source)
        self.places[symbol] = view
        return view

    def _apart(self, node: Node, operands: Sequence[View]) -> None:
        """Binds the sub-graph of a node where the node stands."""
        graph, results = node.graphs[0], [self._result(symbol, node) for symbol in node.outputs]
        moved: dict[Symbol, list[View]] = {}
        for symbol, view in zip(graph.outputs, results, strict=True):
            moved.setdefault(symbol, []).append(view)
        self.steps += self.emitter.graph(graph, operands, {}, moved)[0]

    def _branches(self, node: Node, operands: Sequence[View]) -> None:
        results = [self._result(symbol, node) for symbol in node.outputs]
        branches = []
        for graph in node.graphs:
            steps, yielded = self.emitter.graph(graph, operands[1:], {}, {})
            branches.append((*steps, move(yielded, results, node.source)) if results else steps)
        region = Branches(operands[0], tuple(branches))
        self.steps.append(Step(node.command, (), (), node.params, source=node.source, region=region))

    def _loop(self, position: int, loop: roles.NodeRoles, operands: Sequence[View]) -> None:
        body, node = Body.of(loop), loop.node
        first = body.xs + body.is_counted
        peel = [self._is_read_again(position, node, i) for i in range(first, first + body.carries)]
        targets = [self.targets.get(symbol) for symbol in node.outputs]
        steps, results = self.emitter.loop(body, operands, targets, node.source, peel)
        self.steps += steps
        self.places.update(zip(node.outputs, results, strict=True))

    def _is_read_again(self, position: int, node: Node, place: int) -> bool:
        """Whether the value that a loop takes must outlive its first iteration."""
        symbol, view = node.inputs[place], self.where(node.inputs[place])
        if view.spec.nbytes < _PEELED:
            return False
        if self._last is None:
            self._last = {s: i for i, other in enumerate(self.graph.nodes) for s in other.inputs}
            self._last.update(dict.fromkeys(self.graph.outputs, len(self.graph.nodes)))
        owned = self.emitter.tensors[view.buffer].kind is Kind.ARENA and symbol not in self.graph.inputs
        return not owned or self._last[symbol] > position or node.inputs.count(symbol) > 1


def _has_tapes(node: Node, planned: Container[Symbol] = ()) -> bool:
    """Whether a loop or branch takes or yields tapes whose length is known only at run time: no plan has a place for them."""
    symbols = [*node.inputs, *node.outputs]
    for graph in node.graphs:
        symbols += [*graph.inputs, *graph.outputs]
    return any(symbol.dtype == TAPE and symbol not in planned for symbol in symbols)


def planned_tapes(graph: Graph) -> set[Symbol]:
    """Returns the tapes of a graph that are stacks of a known number of rows: a `while` with `max_steps` fills them, scans read
    them.
    """
    tapes: dict[Symbol, TensorSpec] = {}
    written: list[tuple[Symbol, ...]] = []
    for node in graph.nodes:
        params = node.params
        if params.get("tapes") and params.get("max_steps") and not params.get("handles"):
            outputs = node.outputs[-params["tapes"] :]
            if not _has_tapes(node, outputs):
                rows = node.graphs[0].output_specs[-params["tapes"] :]
                tapes.update(zip(outputs, rows, strict=True))
                written.append(outputs)
    for symbol in graph.outputs:
        tapes.pop(symbol, None)
    readers = [node for node in graph.nodes if any(symbol.dtype == TAPE for symbol in node.inputs)]
    while True:  # a consumer that needs one real tape needs all of its own to be real
        refused = {s for node in readers if not _reads_rows(node, tapes) for s in node.inputs if s in tapes}
        refused |= {s for outputs in written if any(o not in tapes for o in outputs) for s in outputs if s in tapes}
        if not refused:
            return set(tapes)
        for symbol in refused:
            del tapes[symbol]


def _reads_rows(node: Node, tapes: Mapping[Symbol, TensorSpec]) -> bool:
    """Whether a node is a loop that reads rows of these tapes as they were written, and no others."""
    loop = roles.take_loop(node)
    if loop is None or not loop.lead or _has_tapes(node, tapes):
        return False
    rows = [(x.operand, x.inner[0].spec) for x in loop.sequences]
    others = node.inputs[len(loop.lead) + len(rows) :]
    return all(s not in tapes or tapes[s] == spec for s, spec in rows) and tapes.keys().isdisjoint(others)


class _LoopEmitter:
    """Emits one loop: copies of its iteration, such that the results of a copy lie where the next one reads them."""

    def __init__(
        self, emitter: Emitter, body: Body, operands: Sequence[View], targets: Sequence[View | None],
        source: SourceLine | None, number: int,
    ) -> None:  # fmt: skip
        self.emitter, self.body, self.source, self.number = emitter, body, source, number
        xs, carries = body.xs, body.carries
        self.count = operands[0] if body.is_counted else None
        operands = operands[1:] if body.is_counted else operands
        self.start, self.captured = list(operands[xs : xs + carries]), list(operands[xs + carries :])
        self.targets = targets
        self.elements = [self._element(view) for view in operands[:xs]]
        self.mine = len(emitter.tensors)  # tensors from here on belong to the loop
        self.counter: View | None = None
        rows = body.tail.outputs[carries:]
        self.stacks = [self._stack(row, t) for row, t in zip(rows, targets[body.results - body.rows :], strict=True)]
        self.begins = tuple(stack.buffer for stack in self.stacks if stack.buffer >= self.mine)
        self.rows = [self._element(stack) for stack in self.stacks]
        # carried values that are rows, too, are read where the iteration before wrote them
        places = dict(reversed([*zip(rows, self.rows, strict=True)]))
        written = {symbol for node in body.tail.nodes for symbol in node.outputs}
        self.row_targets = {symbol: row for symbol, row in places.items() if symbol in written}

    def _element(self, sequence: View) -> View:
        """Returns the element that an iteration reads or writes."""
        spec = sequence.spec.update(shape=sequence.spec.shape[1:])
        advances = (*sequence.advances, (self.number, sequence.strides[0]))
        return View(sequence.buffer, spec, sequence.offset, sequence.strides[1:], advances)

    def _stack(self, row: Symbol, target: View | None) -> View:
        spec = row.spec.update(shape=(self.body.room, *row.spec.shape))
        return target if target is not None else self.emitter.scratch(spec, row.name, self.source)

    # -- whole loops ----------------------------------------------------------------------------------------------------

    def emit(self, peel: Sequence[bool], ring: int | None) -> tuple[Steps, list[View]]:
        """Returns the steps (operands are moved first) and the places of the results."""
        body = self.body
        if body.length == 0:
            return (), [*self.start, *self.stacks]
        if ring is None:
            ring = self.emitter.ring_size(body)
        keeps_rows = any(symbol in self.row_targets for symbol in body.tail.outputs[: body.carries])
        first = 1 if any(peel) or keeps_rows else 0
        count = first + max(ring, 1)
        wraps = body.length is None or body.length > count
        if not wraps:
            assert body.length is not None
            count, first = body.length, 0
        if body.reads_counter() or body.head is not None:
            self.counter = self.emitter.scratch(body.tail.inputs[0].spec, None, self.source)
        results = [] if body.length is not None else self._results()
        entering: list[Step] = []
        taken = self.start if first or not wraps else self._enter(self.start, entering)
        entry = taken
        copies: list[Iteration] = []
        yielded: list[list[View]] = []
        for k in range(count):
            c, given = self._copy(taken, results)
            yielded.append(given)
            taken = [self._of_last_iteration(view) for view in given]
            if k + 1 == first:  # the peeled iteration: the ring's places are filled from it
                moves: list[Step] = []
                taken = entry = self._enter(taken, moves, stay=[view in self.rows for view in given])
                c = replace(c, turn=tuple(moves))
            copies.append(c)
        if wraps:
            copies[-1] = self._around(copies[-1], taken, entry, keep=ring == 0)
        loop = Loop(
            self.number,
            tuple(copies),
            first,
            self.counter,
            body.length,
            body.reverse,
            body.limit,
            self.begins,
            self.count,
        )
        step = Step(body.command, (), (), {}, source=self.source, region=loop)
        if body.length is not None:
            assert loop.last is not None
            at = 0 if body.reverse else body.length - 1
            results = [self._after(view, at) for view in yielded[loop.last]]
        return (*entering, step), [*results, *self.stacks]

    def _results(self) -> list[View]:
        """Places for the results of a loop of unknown length: carried values; of a `while` also exits and the number of
        iterations.
        """
        specs = [view.spec for view in self.start]
        if self.body.head is not None:
            specs += [symbol.spec for symbol in self.body.head.outputs[1 : 1 + self.body.exits]]
            specs.append(self.body.tail.inputs[0].spec)
        return [
            target if target is not None else self.emitter.scratch(spec, None, self.source)
            for spec, target in zip(specs, self.targets, strict=False)
        ]

    def _enter(self, values: Sequence[View], moves: list[Step], stay: Sequence[bool] = ()) -> list[View]:
        """Returns the places of the ring's first copy for carried values, and the moves to these.

        Args:
            stay: which values are rows, which are not moved; empty where the values come from outside the loop.
        """
        places = []
        for i, view in enumerate(values):
            if stay and stay[i]:
                places.append(view)
                continue
            place = self.emitter.scratch(view.spec, self._name(view), self.source)
            moves.append(move([view], [place], self.source))
            if stay:
                self.emitter.carried.append((view, place))
            places.append(place)
        return places

    def _name(self, view: View) -> str | None:
        return self.emitter.tensors[view.buffer].symbol.name

    # -- copies --------------------------------------------------------------------------------------------------------

    def _copy(self, taken: Sequence[View], results: Sequence[View]) -> tuple[Iteration, list[View]]:
        """Emits one copy of the iteration on these carried values; returns the places of the carried values for the next one,
        too.
        """
        body, counter = self.body, self.counter
        number = counter if counter is not None else View.whole(-1, body.tail.inputs[0].spec)  # nothing reads it
        inputs = [number, *self.elements, *taken, *self.captured]
        head: Steps = ()
        leave: list[Step] = []
        test = None
        if body.head is not None:
            head, known = self.emitter.graph(body.head, inputs, {}, {})
            test, exits = known[0], known[1 : 1 + body.exits]
            inputs += known[1 + body.exits :]
            leave = [move([*taken, *exits, number], results, self.source)]
        elif body.is_counted:
            leave = [move(taken, results, self.source)] if results else []
        tail, yielded = self.emitter.graph(body.tail, inputs, self.row_targets, {})
        steps = list(tail)
        for view, row in zip(yielded[body.carries :], self.rows, strict=True):
            if view != row:
                steps.append(move([view], [row], self.source))
        given: list[View] = []
        for view in yielded[: body.carries]:
            if not self._can_carry(view) or any(view.buffer == other.buffer and not view.advances for other in given):
                fresh = self.emitter.scratch(view.spec, self._name(view), self.source)
                steps.append(move([view], [fresh], self.source))
                view = fresh
            given.append(view)
        return Iteration(head, test, tuple(leave), tuple(steps)), given

    def _can_carry(self, view: View) -> bool:
        """Whether the next iteration can read a value in place: in memory of the loop's own, alone and whole."""
        if view in self.rows:
            return True
        if self.counter is not None and view.buffer == self.counter.buffer:
            return False
        tensor = self.emitter.tensors[view.buffer]
        return view.buffer >= self.mine and tensor.kind is Kind.ARENA and view.covers(tensor.nbytes)

    def _of_last_iteration(self, view: View) -> View:
        """Returns the view that holds a value of this iteration, seen from the next one."""
        step = dict(view.advances).get(self.number, 0)
        offset = view.offset + (step if self.body.reverse else -step)
        return View(view.buffer, view.spec, offset, view.strides, view.advances)

    def _after(self, view: View, last: int) -> View:
        """Returns the view that holds a value of the last iteration, seen from behind the loop."""
        step = dict(view.advances).get(self.number, 0)
        advances = tuple(pair for pair in view.advances if pair[0] != self.number)
        return View(view.buffer, view.spec, view.offset + last * step, view.strides, advances)

    def _around(self, c: Iteration, taken: Sequence[View], entry: Sequence[View], keep: bool) -> Iteration:
        """Returns the last copy, with the moves to the places of the ring's first.

        Args:
            keep: whether the moves stay; then values that lie in one another's places are moved out of the way first.
        """
        pairs = [(a, b) for a, b in zip(taken, entry, strict=True) if a != b]
        moves: list[Step] = []
        if keep:
            places = {b.buffer for b in entry}
            for i, (a, b) in enumerate(pairs):
                if a.buffer in places:
                    aside = self.emitter.scratch(a.spec, self._name(a), self.source)
                    moves.append(move([a], [aside], self.source))
                    pairs[i] = aside, b
        else:
            self.emitter.carried += pairs
        moves += [move([a], [b], self.source) for a, b in pairs]
        return replace(c, turn=(*c.turn, *moves))
