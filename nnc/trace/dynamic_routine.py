"""Commands that a dynamic graph runs in one go, and what of them it records.

A command by itself is a *routine*, and so are all those of a public function that was called before (nnc.graph.specialise). What is
recorded of it, and which arrays are kept for derivatives, follows from which operands are active; it is found once for each
such pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnc.array import Array
from nnc.commands.random import random_bits
from nnc.commands.rules import alias, effect
from nnc.graph import TensorSpec
from nnc.source import user_source
from nnc.trace.dynamic_alias import VIEWS
from nnc.trace.dynamic_backward import Needs, needs_of
from nnc.trace.dynamic_linear import LinearPart
from nnc.trace.dynamic_store import ACTIVE, CONSTANT, FOREIGN, Binding, Operation
from nnc.trace.eager import Plan, run_plan
from nnc.trace.eager_call import Step, take_apart
from nnc.trace.specialised import SpecialisedCall

Kinds = tuple[int, ...]
Places = tuple[int, ...]
Run = Callable[[Sequence[Array]], Sequence[Array | None]]  # what the steps yield, at least what is kept

_CALL, _BYTE = 5e-6, 5e-10  # seconds that a command takes, by estimate


@dataclass(slots=True, eq=False)
class Record:
    """What of a routine is recorded for operands of certain kinds.

    `made` are places whose values get a binding, with their kinds, and whether the arrays are kept; `operations` are commands
    with the places of what they take, of what they yield, and of what their derivatives read. `seconds` is how long it ran so far,
    by estimate, `run` how it runs since it was looked at (nnc.trace.dynamic_hot).
    """

    made: tuple[tuple[int, int, bool], ...]
    operations: tuple[tuple[Plan, Places, Places, Places], ...]
    seconds: float = 0.0
    run: Run | None = None

    def bind(
        self, routine: Routine, operands: Sequence[Binding], values: Sequence[Array | None]
    ) -> tuple[list[Binding], list[Operation]]:
        """Bindings for the results of a run, and the operations to record; `values` are those of all places."""
        bindings: list[Any] = [*operands, *[None] * (len(values) - len(operands))]
        for place, kind, is_kept in self.made:
            array = values[place] if is_kept else None
            bindings[place] = Binding(routine.specs[place], array, kind != ACTIVE, kind == FOREIGN)
        operations = []
        if self.operations:
            source, at = user_source(), bindings.__getitem__
            for plan, inputs, outputs, reads in self.operations:
                taken, made, read = tuple(map(at, inputs)), tuple(map(at, outputs)), tuple(map(at, reads))
                operations.append(Operation(plan, taken, made, read, source))
        return [bindings[place] for place in routine.results], operations


@dataclass(frozen=True, slots=True, eq=False)
class Routine:
    """Commands on values that have places: first those of the operands, then `constants`, then what the steps yield.

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
    nbytes: int  # of what the steps yield
    seconds: float  # that a run takes, by estimate, where a program would take less
    _records: dict[Kinds, Record] = field(default_factory=dict)

    @classmethod
    def of(
        cls, given: Sequence[TensorSpec], constants: Sequence[Array], steps: Sequence[Step], results: Places, name: str
    ) -> Routine:
        """The routine of these steps on operands of the specs `given`."""
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
        computing = [plan for plan, _ in steps if plan.command not in alias]
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
        """The steps with the places of what they take and of what they yield."""
        first = self.first
        for plan, places in self.steps:
            yield plan, places, tuple(range(first, first + len(plan.outputs)))
            first += len(plan.outputs)

    def run(self, operands: Sequence[Array]) -> Sequence[Array | None]:
        """What all steps yield, command by command."""
        values = [*operands, *self.constants]
        for plan, places in self.steps:
            try:
                arrays = [values[i].memory for i in places]
            except AttributeError:
                arrays = [values[i].data for i in places]  # says that one was donated
            values += run_plan(plan, arrays)
        return values[self.first :]

    def record(self, kinds: Kinds) -> Record:
        """What is recorded of it for operands of these kinds."""
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
    """The routine of one command, of which variables will hold the first `results`, or all."""
    known: Routine | None = plan.known.get(Routine)
    if known is None:
        count = len(plan.specs)
        held = tuple(range(count, count + (len(plan.outputs) if results is None else results)))
        known = plan.known[Routine] = Routine.of(plan.specs, (), [(plan, tuple(range(count)))], held, plan.command.name)
    return known


def routine_of_call(call: SpecialisedCall) -> Routine:
    """The routine of a call of a public function."""
    known: Routine | None = call.known.get(Routine)
    if known is None:
        steps, constants, place = take_apart(call.graph)
        name, given = call.graph.name, call.graph.input_specs
        known = call.known[Routine] = Routine.of(given, list(map(Array, constants)), steps, (place,), name)
    return known


def _kinds_of(plan: Plan, most: int, needs: Needs | None) -> list[int]:
    """The kinds of a command's results; `most` is the highest of its operands'."""
    if needs is None:
        return [min(most, CONSTANT)] * len(plan.outputs)
    linear: LinearPart | None = plan.known.get(LinearPart)
    shown = len(plan.outputs) if linear is None else linear.results  # the others are residuals
    return [ACTIVE if moves else CONSTANT if i < shown else FOREIGN for i, moves in enumerate(needs.moved)]


def _is_pure(plan: Plan) -> bool:
    """Whether running the command again gives the same and does nothing else."""
    commands = (plan.command, *[node.command for graph in plan.graphs for node in graph.walk()])
    return all(command not in effect and command is not random_bits for command in commands)
