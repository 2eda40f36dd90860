"""Binds the symbols of a graph to numbered buffers: graph → `Bound`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import lcm
from typing import NamedTuple

import numpy as np

from nnc.base.options import Options
from nnc.commands.loop import ITERATION
from nnc.graph import Graph, Node, Symbol
from nnc.lower.plan.coalesce import Classes
from nnc.lower.plan.emit import COPIES, Body, Emitter, Workspace
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.rewrite import rewrite
from nnc.lower.plan.stages import Bound, Buffer, Intervals, Kind, Loop, NDArray, Step, Steps, View


def no_workspace(node: Node) -> int:
    """Returns no workspace, for plans that know no kernels."""
    return 0


class Emitted(NamedTuple):
    """The steps of a graph on tensors that each have memory of their own: the first are its inputs, `results` its outputs.
    `carried` are the moves of loop carries.
    """

    tensors: Sequence[Buffer]
    steps: Steps
    inputs: int
    results: Sequence[View]
    carried: Sequence[tuple[View, View]]


def emit(graph: Graph, workspace: Workspace = no_workspace) -> Emitted:
    """Returns the steps of a graph before any of its tensors share memory.

    Args:
        workspace: returns the bytes that the kernel of a node needs while it runs.
    """
    emitter = Emitter(Rings().size, workspace)
    inputs, steps, results = emitter.program(graph)
    return Emitted(emitter.tensors, steps, len(inputs), results, emitter.carried)


def bind_buffers(
    graph: Graph,
    options: Options,
    *,
    emitted: Emitted | None = None,
    join: bool = True,
    kept: tuple[tuple[int, str], ...] = (),
) -> Bound:
    """Returns the steps of `graph` on buffers.

    Args:
        emitted: the graph's steps, where they are known.
        join: whether parts of joined tensors may be written in place within the result, which saves copies and may cost memory.
        kept: see `Bound`.
    """
    emitted = emit(graph) if emitted is None else emitted
    steps, results = emitted.steps, emitted.results
    outputs = [view.buffer for view in results]
    classes = Classes(emitted.tensors, steps, outputs, options.donated)
    classes.share_carried(emitted.carried)
    classes.share_moves()
    if join:
        classes.place_parts(joins=True)
    classes.share_in_place()
    if join:
        classes.place_parts()
    classes.give_donated(outputs)
    ranges = classes.ranges()
    numbers, buffers, constants = _number(emitted, classes, ranges)
    steps, weights = rewrite(steps, classes, numbers)
    when = [0, *accumulate(weights)]
    intervals = [tuple((when[a], when[b]) for a, b in ranges[root] if when[a] < when[b]) for root in numbers]
    placed = [view.of(numbers[view.buffer]) for view in map(classes.place, results)]
    written = {view.buffer for step in walk(steps) for view in _written(step)}
    values = _constant_values(graph)
    return Bound(
        name=graph.name,
        inputs=graph.input_specs,
        constants=tuple(np.require(values[s], requirements=("C", "A")) for s in constants),
        buffers=tuple(buffers),
        steps=steps,
        outputs=tuple(placed),
        intervals=tuple(intervals),
        donated=tuple(i for i in range(emitted.inputs) if numbers[classes.find(i)] in written),
        joins=classes.has_parts(),
        kept=kept,
    )


def _constant_values(graph: Graph) -> dict[Symbol, NDArray]:
    """Returns the constants of a graph and of its sub-graphs."""
    values = dict(graph.constants)
    for node in graph.nodes:
        for inner in node.graphs:
            values.update(_constant_values(inner))
    return values


def _written(step: Step) -> tuple[View, ...]:
    """Returns the views that a step writes by itself: its outputs, and for a loop the number of its iteration."""
    counter = step.region.counter if isinstance(step.region, Loop) else None
    return step.outputs if counter is None else (*step.outputs, counter)


def _number(
    emitted: Emitted, classes: Classes, ranges: Mapping[int, Intervals]
) -> tuple[dict[int, int], list[Buffer], list[Symbol]]:
    """Numbers the classes of tensors; returns the numbers, the buffers in that order, and the symbols of the constants."""
    tensors, inputs = emitted.tensors, emitted.inputs
    live = classes.live.intervals

    def first(i: int) -> tuple[int, int]:
        return live[i][0][0] if live[i] else 0, i

    rest = sorted(range(inputs, len(tensors)), key=first)
    numbers: dict[int, int] = {}
    buffers: list[Buffer] = []
    constants: list[Symbol] = []
    counts: Counter[Kind] = Counter()
    for i in (*range(inputs), *rest):
        root = classes.find(i)
        if root in numbers or root not in ranges:
            continue
        kind = classes.kinds[root]
        numbers[root] = len(buffers)
        buffers.append(Buffer(kind, counts[kind], tensors[i].symbol, tensors[i].source))
        counts[kind] += 1
        if kind is Kind.CONSTANT:
            constants.append(tensors[i].symbol)
    return numbers, buffers, constants


class Rings:
    """The number of copies of an iteration that loops need so that nothing is moved between iterations; remembered by the
    iteration's graph.
    """

    def __init__(self) -> None:
        # holds the body, so that no other object gets its id
        self._known: dict[tuple[int, int | None], tuple[Body, int]] = {}

    def size(self, body: Body) -> int:
        """Returns the fewest copies with which all carried values stay in their places; 0 where `COPIES` are too few."""
        key = id(body.tail), body.length
        if key not in self._known:
            self._known[key] = body, next((n for n in _sizes(body) if self._suffices(body, n)), 0)
        return self._known[key][1]

    def _suffices(self, body: Body, ring: int) -> bool:
        emitter = Emitter(self.size, no_workspace)
        specs = body.tail.input_specs[1 : len(body.head.inputs) if body.head is not None else None]
        sequences = [spec.update(shape=(body.length or 1, *spec.shape)) for spec in specs[: body.xs]]
        given = [*([ITERATION] if body.is_counted else []), *sequences, *specs[body.xs :]]
        operands = [emitter.tensor(Kind.INPUT, Symbol(spec), index=i) for i, spec in enumerate(given)]
        targets = [None] * body.results
        steps, results = emitter.loop(body, operands, targets, None, ring=ring)
        classes = Classes(emitter.tensors, steps, [view.buffer for view in results])
        return classes.share_carried(emitter.carried)


def _sizes(body: Body) -> range:
    """Returns the numbers of copies that are worth a try, by the permutation of places in which an iteration hands values on
    unchanged.

    A value stays where it is while it goes from place to place, so the ring is no shorter than its way; values that go round in
    circles are back where they were after common multiples of the circles' lengths.
    """
    carried = body.tail.inputs[1 + body.xs :][: body.carries]
    places = {symbol: i for i, symbol in enumerate(carried)}
    origins = [places.get(symbol) for symbol in body.tail.outputs[: body.carries]]
    least = multiple = 1
    for i in range(body.carries):
        way, origin = [i], origins[i]
        while origin is not None and origin not in way:
            way.append(origin)
            origin = origins[origin]
        if origin == i:
            multiple = lcm(multiple, len(way))
        else:
            least = max(least, len(way) if origin is None else way.index(origin))
    return range(-(-least // multiple) * multiple, COPIES + 1, multiple)
