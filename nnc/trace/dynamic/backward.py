"""Differentiates the record of a dynamic graph before it runs: the result is an ordinary graph, to be compiled and kept.

A recorded graph is split into its structure (plans and numbers, no values) and the bindings that have the numbers. The
structure alone decides on the derivative, so equal ones share a program. Values of the forward run are
inputs of the backward graph; only commands with sub-graphs are run once more within it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import nnc.trace.rules  # noqa: F401  (registers the rules of all commands)
from nnc.base.context import get_context, set_context
from nnc.base.records import record
from nnc.base.source import SourceLine
from nnc.commands.rules import add_tangents, is_differentiable
from nnc.errors import NncError
from nnc.graph import Graph, Node, Symbol, TensorSpec
from nnc.graph.registry import derivative
from nnc.trace.core.backward import transpose_graph
from nnc.trace.core.dual import DualTrace, run_linearize
from nnc.trace.core.dual_tracer import DualTracer
from nnc.trace.core.eager import Plan
from nnc.trace.core.staging import StagingTrace
from nnc.trace.dynamic.linear import LinearPart
from nnc.trace.dynamic.store import Binding, Operation

Step = tuple[Plan, tuple[int, ...], tuple[int, ...]]  # inputs that are constants as ~number


@record
class Structure:
    """The record, without values: bindings are numbers. `targets` are differentiated with respect to `sources`."""

    steps: tuple[Step, ...]
    targets: tuple[int, ...]
    sources: tuple[int, ...]
    specs: tuple[TensorSpec, ...]  # by number, at least of targets and sources


@record
class Backward:
    """The derivative of a structure, as a graph.

    Its inputs are cotangents (`cotangents` are positions among the targets), values (`feeds` are numbers of the structure) and
    `captured` arrays; its outputs are the gradients of those sources for which `reached` is set, in their order.
    """

    graph: Graph
    cotangents: tuple[int, ...]
    feeds: tuple[int, ...]
    captured: tuple[Any, ...]
    reached: tuple[bool, ...]
    moved: tuple[bool, ...]  # the targets that depend on the sources at all


def take_apart(
    operations: Sequence[Operation], targets: Sequence[Binding], sources: Sequence[Binding]
) -> tuple[Structure, list[Binding]]:
    """Returns the structure of operations, and the bindings in the order of their numbers."""
    bindings: list[Binding] = []
    numbers: dict[Binding, int] = {}

    def number(binding: Binding) -> int:
        found = numbers.get(binding)
        if found is None:
            found = numbers[binding] = len(bindings)
            bindings.append(binding)
        return found

    first = tuple([number(b) for b in targets])
    second = tuple([number(b) for b in sources])
    steps = tuple(
        [
            (
                operation.plan,
                tuple([~number(b) if b.constant else number(b) for b in operation.inputs]),
                tuple([number(b) for b in operation.outputs]),
            )
            for operation in operations
        ]
    )
    return Structure(steps, first, second, tuple([b.spec for b in bindings[: len({*first, *second})]])), bindings


def differentiate(structure: Structure, lines: Sequence[SourceLine | None]) -> Backward:
    """Derives the gradient program of a structure; `lines` are the user's, one for each step, for nodes and errors.

    Raises:
        UnsupportedError: a command has no derivative.
    """
    trace = StagingTrace("backward")
    specs = dict(enumerate(structure.specs))
    for plan, inputs, outputs in structure.steps:
        specs.update(zip((i if i >= 0 else ~i for i in inputs), plan.specs, strict=True))
        specs.update(zip(outputs, plan.outputs, strict=True))
    fed: dict[int, Any] = {}

    def value(i: int) -> Any:
        number = i if i >= 0 else ~i
        if number not in fed:
            fed[number] = trace.input(specs[number])
        return fed[number]

    with trace.recording(device=None):
        cotangents = [trace.input(specs[i]) for i in structure.targets]
        fun = lambda *seeds: _push_through(structure, lines, seeds, value)
        _, linear = run_linearize(fun, [value(i) for i in structure.sources], [True] * len(structure.sources))
        given = [ct for ct, on in zip(cotangents, linear.nonzero, strict=True) if on]
        count = len(structure.sources)
        found = transpose_graph(linear.staged.graph, count, linear.staged.captured, given)
        staged = trace.finish([x for x in found if x is not None]).without_unread()
    read = staged.graph.reads
    cts = tuple(i for i, tracer in enumerate(cotangents) if tracer.symbol in read)
    feeds = tuple(i for i, tracer in fed.items() if tracer.symbol in read)
    hidden = staged.graph.inputs[staged.num_explicit :]
    read_first = [*[cotangents[i].symbol for i in cts], *[fed[i].symbol for i in feeds]]
    return Backward(
        staged.graph.update(inputs=(*read_first, *hidden)), cts, feeds, staged.captured, tuple(x is not None for x in found),
        linear.nonzero,
    )  # fmt: skip


def _push_through(
    structure: Structure, lines: Sequence[SourceLine | None], seeds: Sequence[Any], value: Callable[[int], Any]
) -> list[Any]:
    """Pushes the tangents of the sources through the steps; values belong to the recorded run."""
    trace: DualTrace = seeds[0].owner
    given = dict(zip(structure.sources, seeds, strict=True))
    made = {i for _, _, outputs in structure.steps for i in outputs}
    known: dict[int, Any] = {i: dual for i, dual in given.items() if i not in made}
    for (plan, inputs, outputs), line in zip(structure.steps, lines, strict=True):
        if not any(i in known for i in inputs):
            moved: Sequence[Any] = [None] * len(outputs)
        else:
            with set_context(source=line):
                moved = _push(trace, plan, [known[i] if i in known else value(i) for i in inputs], outputs, value)
        for i, t in zip(outputs, moved, strict=True):
            if i in given:  # a source that is computed from others
                t = add_tangents(t, given[i].tangent)
            if t is not None and is_differentiable(t.spec):
                known[i] = DualTracer(trace, value(i), t, get_context().source)
    return [known[i] if i in known else value(i) for i in structure.targets]


def _push(
    trace: DualTrace, plan: Plan, operands: Sequence[Any], outputs: Sequence[int], value: Callable[[int], Any]
) -> Sequence[Any]:
    """Tangents of the results of one command."""
    linear: LinearPart | None = plan.known.get(LinearPart)
    if linear is not None:
        pairs = [trace.split(x) for x in operands]
        found = linear.push(
            [t for _, t in pairs], plan.specs,
            lambda place: pairs[place][0] if place < len(pairs) else value(outputs[place - len(pairs)]),
        )  # fmt: skip
        return [*found, *[None] * (len(outputs) - len(found))]
    rule = derivative.get(plan.command, None)
    if rule is not None and rule.jvp is not None and rule.linearize is None:
        pairs = [trace.split(x) for x in operands]
        primals, tangents = tuple(p for p, _ in pairs), tuple(t for _, t in pairs)
        static = {**plan.params, "graphs": plan.graphs} if plan.graphs else plan.params
        return rule.jvp(primals, tangents, tuple([value(i) for i in outputs]), **static)
    return [trace.split(x)[1] for x in trace.process(plan.command, operands, dict(plan.params), plan.graphs)]


# -- one command -------------------------------------------------------------------------------------------------------


@record
class Needs:
    """The values that the derivative of one command reads, as positions of inputs and of outputs; and the outputs that have a
    derivative.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    moved: tuple[bool, ...]


def needs_of(plan: Plan, active: tuple[bool, ...]) -> Needs:
    """Finds the values that the derivative of a command reads, if these inputs are differentiated."""
    found: Needs | None = plan.known.get(active)
    if found is None:
        found = plan.known[active] = _find_needs(plan, active)
    return found


def _find_needs(plan: Plan, active: tuple[bool, ...]) -> Needs:
    floats = tuple(map(is_differentiable, plan.outputs))
    count, rule = len(plan.specs), derivative.get(plan.command, None)
    sources = tuple(i for i, on in enumerate(active) if on and is_differentiable(plan.specs[i]))
    if not sources or not any(floats):
        return Needs((), (), (False,) * len(floats))
    linear: LinearPart | None = plan.known.get(LinearPart)
    if linear is not None:
        places = sorted({x for x in linear.values if isinstance(x, int)})
        hidden = (False,) * (len(floats) - linear.results)
        return Needs(
            tuple(x for x in places if x < count), tuple(x - count for x in places if x >= count),
            (*linear.nonzero, *hidden),
        )  # fmt: skip
    if plan.graphs or rule is None or rule.linearize is not None:
        return Needs(tuple(range(count)), (), floats)
    inputs = tuple(i if on else ~i for i, on in enumerate(active))
    outputs = tuple(range(count, count + len(floats)))
    targets = tuple(i for i, on in zip(outputs, floats, strict=True) if on)
    structure = Structure(((plan, inputs, outputs),), targets, sources, ())
    try:
        with set_context(modes=get_context().modes - {"check_finite"}):
            backward = differentiate(structure, [None])
    except NncError:  # there is no derivative: whichever call asks for it gets the error
        return Needs(tuple(range(count)), tuple(range(len(floats))), floats)
    moved = dict(zip(targets, backward.moved, strict=True))
    read = backward.feeds
    return Needs(
        tuple(i for i in read if i < count), tuple(i - count for i in read if i >= count),
        tuple(moved.get(i, False) for i in outputs),
    )  # fmt: skip


# -- inspection -------------------------------------------------------------------------------------------------------


def as_graph(operations: Sequence[Operation], leaves: Sequence[Binding], name: str) -> Graph:
    """Makes a graph of the record: from values that no operation made to values that variables hold or nothing reads."""
    made = {b for operation in operations for b in operation.outputs}
    inputs = dict.fromkeys(b for operation in operations for b in operation.inputs if b not in made)
    inputs.update(dict.fromkeys(b for b in leaves if b not in made))
    outputs = [b for op in operations for b in op.outputs if b.handles or not (b.uses or b.foreign)]
    nodes = tuple(
        Node(
            operation.plan.command, _symbols(operation.inputs),
            _symbols([b for b in operation.outputs if not b.foreign]), operation.plan.params, operation.plan.graphs,
            operation.source,
        )
        for operation in operations
    )  # fmt: skip
    return Graph(_symbols(tuple(inputs)), _symbols(outputs), nodes, name=name)


def _symbols(bindings: Sequence[Binding]) -> tuple[Symbol, ...]:
    return tuple(b.symbol for b in bindings)
