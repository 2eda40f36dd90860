"""Commands that a dynamic graph runs in one go, and the part of them that it records.

A command by itself is a *routine*, and so are all commands of a public function that was called before (nnc.calls.specialise). The
record of a routine, and the arrays kept for derivatives, follow from which operands are active; they are found once for each
such pattern.

A routine that ran so often that compiling would have taken as long is compiled for the pattern: one program stands for a kernel
for each command. The record stays the same. The program yields the values that are kept, so values between them take
neither time nor memory; views of kept values are made again. nnc.base.bounded states the rule for all memories of calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnc.array.array import Array, new_array
from nnc.base.source import user_source
from nnc.commands.properties import moves_elements
from nnc.commands.random import random_bits
from nnc.errors import NncError
from nnc.graph import Graph, Node, Symbol, TensorSpec
from nnc.graph.registry import alias, effect
from nnc.trace.core.eager import Plan, run_plan
from nnc.trace.core.eager_call import Step, take_apart
from nnc.trace.core.on_device import DeviceInterpreter
from nnc.trace.core.specialised import SpecialisedCall
from nnc.trace.dynamic.alias import VIEWS
from nnc.trace.dynamic.backward import Needs, needs_of
from nnc.trace.dynamic.linear import LinearPart
from nnc.trace.dynamic.store import ACTIVE, CONSTANT, FOREIGN, Binding, Operation

Kinds = tuple[int, ...]
Places = tuple[int, ...]
Run = Callable[[Sequence[Array]], Sequence[Array | None]]  # the values of the steps, at least the kept ones
Program = Callable[[Sequence[np.ndarray[Any, Any]]], list[np.ndarray[Any, Any]]]
MakeProgram = Callable[[Graph], Program | None]

_CALL, _BYTE = 5e-6, 5e-10  # seconds that a command takes, by estimate
ENOUGH = 5e-3  # seconds that a small program takes to compile; times are estimates, so that equal runs give equal bits

_LOG = logging.getLogger("nnc")


@dataclass(slots=True, eq=False)
class Record:
    """The record of a routine for operands of certain kinds.

    `made` are places whose values get a binding, with their kinds, and whether the arrays are kept; `operations` are commands
    with the places of their operands, of their results, and of the operands of their derivatives. `seconds` is how long it ran so
    far, by estimate, `run` how it runs since that was enough to compile it.
    """

    made: tuple[tuple[int, int, bool], ...]
    operations: tuple[tuple[Plan, Places, Places, Places], ...]
    seconds: float = 0.0
    run: Run | None = None

    def bind(
        self, routine: Routine, operands: Sequence[Binding], values: Sequence[Array | None]
    ) -> tuple[list[Binding], list[Operation]]:
        """Makes bindings for the results of a run, and the operations to record; `values` belong to all places."""
        bindings: list[Any] = [*operands, *[None] * (len(values) - len(operands))]
        for place, kind, is_kept in self.made:
            array = values[place] if is_kept else None
            bindings[place] = Binding(routine.specs[place], array, kind != ACTIVE, kind == FOREIGN, is_shared=True)
        operations = []
        if self.operations:
            source, at = user_source(), bindings.__getitem__
            for plan, inputs, outputs, reads in self.operations:
                taken, made, read = tuple(map(at, inputs)), tuple(map(at, outputs)), tuple(map(at, reads))
                operations.append(Operation(plan, taken, made, read, source))
        return [bindings[place] for place in routine.results], operations


@dataclass(frozen=True, slots=True, eq=False)
class Routine:
    """Commands on values that have places: first the operands, then `constants`, then the results of the steps.

    Variables will hold the values at `results`. Where the first of these views an operand, `views` are the commands through
    which it does, and `viewed` is the operand's place.
    """

    operands: int
    constants: tuple[Array, ...]
    steps: tuple[Step, ...]
    specs: tuple[TensorSpec, ...]
    results: Places
    viewed: int
    views: tuple[Plan, ...]
    name: str
    is_pure: bool  # running it again gives the same, does nothing else, and is more than a view
    nbytes: int  # of the results of the steps
    seconds: float  # that a run takes, by estimate, where a program would take less
    _records: dict[Kinds, Record] = field(default_factory=dict)

    @classmethod
    def of(
        cls, given: Sequence[TensorSpec], constants: Sequence[Array], steps: Sequence[Step], results: Places, name: str
    ) -> Routine:
        """Returns the routine of these steps on operands of the specs `given`."""
        operands = len(given)
        specs = [*given, *[x.spec for x in constants]]
        makers: dict[int, Step] = {}
        for plan, places in steps:
            makers[len(specs)] = plan, places
            for place, spec in zip(places, plan.specs, strict=True):
                specs[place] = spec  # of a number, which has the dtype in which it is read
            specs += plan.outputs
        views: list[Plan] = []
        viewed = results[0] if results else operands
        while viewed in makers and makers[viewed][0].command in VIEWS:
            plan, (viewed,) = makers[viewed]
            views.insert(0, plan)
        computing = [plan for plan, _ in steps if not moves_elements(plan.command)]
        nbytes = sum(spec.nbytes for plan in computing for spec in plan.outputs)
        return cls(
            operands, tuple(constants), tuple(steps), tuple(specs), results, viewed, tuple(views) if viewed < operands else (),
            name, bool(computing) and all(_is_pure(plan) for plan, _ in steps), nbytes,
            len(computing) * _CALL + nbytes * _BYTE if len(computing) > 1 else 0.0,
        )  # fmt: skip

    @property
    def first(self) -> int:
        """The place of the first step's first result."""
        return self.operands + len(self.constants)

    def placed(self) -> Iterator[tuple[Plan, Places, Places]]:
        """The steps with the places of their operands and of their results."""
        first = self.first
        for plan, places in self.steps:
            yield plan, places, tuple(range(first, first + len(plan.outputs)))
            first += len(plan.outputs)

    def run(self, operands: Sequence[Array]) -> Sequence[Array | None]:
        """Returns the results of all steps, command by command."""
        values = [*operands, *self.constants]
        for plan, places in self.steps:
            try:
                arrays = [values[i].memory for i in places]
            except AttributeError:
                arrays = [values[i].data for i in places]  # says that one was donated
            values += run_plan(plan, arrays)
        return values[self.first :]

    def run_on(self, device: DeviceInterpreter, operands: Sequence[Array]) -> Sequence[Array | None]:
        """Queues all steps on a device, and returns their results."""
        values = [*operands, *self.constants]
        for plan, places in self.steps:
            values += device.run(plan, [values[i] for i in places])
        return values[self.first :]

    def record(self, kinds: Kinds) -> Record:
        """Returns the record of the routine for operands of these kinds."""
        found = self._records.get(kinds)
        if found is None:
            found = self._records[kinds] = self._find_record(kinds)
        return found

    def _find_record(self, kinds: Kinds) -> Record:
        found = [*kinds, *[FOREIGN] * len(self.constants)]
        needed: list[Needs | None] = []
        for plan, places in self.steps:
            active = tuple([found[i] == ACTIVE for i in places])
            needed.append(needs_of(plan, active) if any(active) else None)
            found += _kinds_of(plan, max([found[i] for i in places], default=FOREIGN), needed[-1])
        wanted, read, bound = {*self.results}, set[int](), {*self.results}
        operations = []
        for (plan, places, outputs), needs in reversed([*zip(self.placed(), needed, strict=True)]):
            if needs is None or not any(needs.moved) or wanted.isdisjoint(outputs):
                continue
            reads = (*[places[i] for i in needs.inputs], *[outputs[i] for i in needs.outputs])
            operations.append((plan, places, outputs, reads))
            wanted.update([i for i in places if found[i] == ACTIVE])
            read.update(reads)
            bound.update(places, outputs)
        kept = {*self.results} | read
        made = tuple([(i, found[i], i in kept) for i in sorted(bound) if i >= self.operands])
        return Record(made, tuple(reversed(operations)))


def routine_of(plan: Plan, results: int | None = None) -> Routine:
    """Makes the routine of one command; variables will hold its first `results`, or all."""
    known: Routine | None = plan.known.get(Routine)
    if known is None:
        count = len(plan.specs)
        held = tuple(range(count, count + (len(plan.outputs) if results is None else results)))
        known = plan.known[Routine] = Routine.of(plan.specs, (), [(plan, tuple(range(count)))], held, plan.command.name)
    return known


def routine_of_call(call: SpecialisedCall) -> Routine:
    """Returns the routine of a call of a public function."""
    known: Routine | None = call.known.get(Routine)
    if known is None:
        steps, constants, place = take_apart(call.graph)
        name, given = call.graph.name, call.graph.input_specs
        known = call.known[Routine] = Routine.of(given, list(map(Array, constants)), steps, (place,), name)
    return known


def runner(routine: Routine, record: Record, make: MakeProgram) -> Run:
    """Decides how a routine runs: command by command, or, as soon as that has taken as long as compiling, as a program."""
    if record.run is not None:
        return record.run
    record.seconds += routine.seconds
    if record.seconds < ENOUGH:
        return routine.run
    record.run = routine.run
    try:
        record.run = _compiled(routine, record, make)
    except NncError as error:
        _LOG.debug("dynamic graph: %s is not compiled: %s", routine.name, str(error).splitlines()[0])
    return record.run


def _compiled(routine: Routine, record: Record, make: MakeProgram) -> Run:
    """Returns the routine as a program that returns a view of a result for each view that is kept."""
    first = routine.first
    makers = {place: (plan, places) for plan, places, outputs in routine.placed() for place in outputs}
    yielded: list[int] = []
    views: dict[int, tuple[Any, int]] = {}

    def want(place: int) -> None:
        if place < first or place in views or place in yielded:
            return
        plan, places = makers[place]
        if plan.command in alias and len(places) == 1:
            want(places[0])
            views[place] = plan, places[0]
        else:
            yielded.append(place)

    for place, _, is_kept in record.made:
        if is_kept:
            want(place)
    graph, read = _as_graph(routine, yielded)
    program = make(graph)
    if program is None:
        return routine.run
    _LOG.debug("dynamic graph: compiled %s, which ran %d times", routine.name, round(record.seconds / routine.seconds))
    specs, unknown = [symbol.spec for symbol in graph.outputs], [None] * (len(routine.specs) - first)

    def run(operands: Sequence[Array]) -> Sequence[Array | None]:
        values: list[Any] = [*operands, *routine.constants, *unknown]
        found = program([values[i].data for i in read])
        for place, data, spec in zip(yielded, found, specs, strict=True):
            values[place] = new_array(data, spec)
        for place, (plan, source) in views.items():
            (values[place],) = run_plan(plan, [values[source].data])
        return values[first:]

    return run


def _as_graph(routine: Routine, yielded: Sequence[int]) -> tuple[Graph, list[int]]:
    """Returns the commands as a graph that yields the values at these places, and the places that it reads."""
    symbols: dict[int, Symbol] = {}
    nodes, read = [], []
    for plan, places, ours in routine.placed():
        for place, spec in (*zip(places, plan.specs, strict=True), *zip(ours, plan.outputs, strict=True)):
            if place not in symbols:
                symbols[place] = Symbol(spec)
                if place < routine.first:
                    read.append(place)
        inputs, made = (tuple([symbols[i] for i in some]) for some in (places, ours))
        nodes.append(Node(plan.command, inputs, made, plan.params, plan.graphs))
    outputs = tuple([symbols[i] for i in yielded])
    return Graph(tuple([symbols[i] for i in read]), outputs, tuple(nodes), name=routine.name), read


def _kinds_of(plan: Plan, most: int, needs: Needs | None) -> list[int]:
    """Returns the kinds of a command's results; `most` is the highest of its operands'."""
    if needs is None:
        return [min(most, CONSTANT)] * len(plan.outputs)
    linear: LinearPart | None = plan.known.get(LinearPart)
    shown = len(plan.outputs) if linear is None else linear.results  # the others are residuals
    return [ACTIVE if moves else CONSTANT if i < shown else FOREIGN for i, moves in enumerate(needs.moved)]


def _is_pure(plan: Plan) -> bool:
    """Whether running the command again gives the same and does nothing else."""
    commands = (plan.command, *[node.command for graph in plan.graphs for node in graph.walk()])
    return all(command not in effect and command is not random_bits for command in commands)
