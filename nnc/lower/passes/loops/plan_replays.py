"""Reverse passes of loops with `checkpoint=`, as loops over a schedule that is known before they run.

The reference of `pull_iterations` walks the schedule in Python. Where the number of iterations is known, so is every step of it:
which iteration runs again, from which kept state, and where its result is kept. Kept states become rows of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nnc.base import dtypes
from nnc.base.context import set_context
from nnc.base.options import Options
from nnc.commands.elementwise import add
from nnc.commands.index import dynamic_slice, dynamic_update_slice
from nnc.commands.loop import ITERATION, scan
from nnc.commands.replay import places, pull_iterations, walk_back
from nnc.commands.rules import zeros
from nnc.commands.shape import reshape
from nnc.graph import Graph, GraphBuilder, Node, Symbol, TensorSpec
from nnc.graph.graph import NDArray
from nnc.graph.registry import effect
from nnc.graph.remake import NewGraph, rewritten

_LONGEST = 1 << 18  # iterations that a schedule may run again; each takes 24 bytes of constants


def plan_replays(graph: Graph, options: Options) -> Graph:
    """Turns `pull_iterations` of known length into a `scan` of pull-backs, each behind a `scan` that runs iterations again. Loops
    with effects stay, and loops with very long schedules.

    Ensures: the same iterations run in the same order, and as many states are kept.

    Example:
        pull_iterations(xs, carried, ct){advance, pull}  →  scan … {scan … {kept[to] = advance(kept[from])}; pull(kept[place])}
    """
    return rewritten(graph, _ReplayLoops)


class ReplaySchedule(NamedTuple):
    """The steps of a reverse pass. Arrays of one row for each iteration are in the order of iterations.

    Attributes:
        rows: the number of states that are kept at a time.
        pulled: the row of the state before an iteration.
        begins: the first step that runs an iteration again before this one is pulled.
        counts: the number of such steps.
        steps: for each step the iteration that runs, the row of the state before it, and the row for the state behind it.
    """

    rows: int
    pulled: NDArray
    begins: NDArray
    counts: NDArray
    steps: NDArray

    @staticmethod
    def of(iterations: int, room: int) -> ReplaySchedule:
        """Returns the schedule of a loop, by Griewank and Walther's walk."""
        steps: list[tuple[int, int, int]] = []  # iteration, number of the state before it, and behind it
        pulls: list[tuple[int, int, int]] = []  # iteration, number of its state, steps so far

        def advance(step: int, state: list[NDArray]) -> list[NDArray]:
            steps.append((step, int(state[0]), len(steps) + 1))
            return [np.asarray(len(steps))]

        for step, state in walk_back([np.asarray(0)], iterations, room, advance):
            pulls.append((step, int(state[0]), len(steps)))
        return _with_rows(iterations, steps, pulls)


def _with_rows(iterations: int, steps: list[tuple[int, int, int]], pulls: list[tuple[int, int, int]]) -> ReplaySchedule:
    """Gives each state a row, until it is read for the last time."""
    row_of, free, rows = {0: 0}, list[int](), 1
    last: dict[int, tuple[int, int]] = {}  # the step, or the pull behind it, that reads a state last
    for k, (_, before, _) in enumerate(steps):
        last[before] = max(last.get(before, (0, 0)), (k, 1))
    for i, (_, state, done) in enumerate(pulls):
        last[state] = max(last.get(state, (0, 0)), (done, -len(pulls) + i))
    pulled, begins, counts = (np.zeros(iterations, np.int64) for _ in range(3))
    table, done = np.zeros((len(steps), 3), np.int64), 0
    for i, (step, state, until) in enumerate(pulls):
        begins[step], counts[step] = done, until - done
        for k in range(done, until):
            number, before, after = steps[k]
            source = row_of[before]
            if last[before] == (k, 1):
                free.append(source)
            if not free:
                free.append(rows)
                rows += 1
            row_of[after] = free.pop()
            table[k] = number, source, row_of[after]
        pulled[step], done = row_of[state], until
        if last[state] == (until, -len(pulls) + i):
            free.append(row_of[state])
    return ReplaySchedule(rows, pulled, begins, counts, table)


def _is_short(iterations: int, room: int) -> bool:
    """Whether so many iterations run again that a schedule may list them."""
    repeats = 1
    while math.comb(room + repeats, room) < iterations:
        repeats += 1
    return iterations * repeats <= _LONGEST


class _ReplayLoops(NewGraph):
    def add(self, node: Node) -> None:
        """See the base."""
        if node.command is not pull_iterations or not _can_plan(node):
            self.nodes.append(node)
            return
        builder = GraphBuilder("replay")
        for symbol in node.inputs:
            builder.adopt(symbol)
        with builder, set_context(source=node.source):
            results = _loops(node)
        self.nodes += builder.nodes
        self.constants.update(builder.build().constants)
        self.renamed.update(zip(node.outputs, results, strict=True))


def _can_plan(node: Node) -> bool:
    length = node.params["length"]
    acts = {effect.get(inner.command) for graph in node.graphs for inner in graph.walk()}
    if not length or not acts <= {None, "random"}:  # draws of the same key are the same
        return False
    return _is_short(length, places(node.params["checkpoint"], length))


def _loops(node: Node) -> Sequence[Symbol]:
    """Adds both loops, and returns their results in the order of the node's."""
    (advance, pull), params, inputs = node.graphs, node.params, list(node.inputs)
    xs, reads, length = params["xs"], params["xs"] + params["rows"], params["length"]
    carries, moved = params["carries"], params["pulled"] + params["sums"]
    sequences, rest = inputs[:reads], inputs[reads:]
    start, cts, held = rest[:carries], rest[carries : carries + moved], rest[carries + moved :]
    schedule = ReplaySchedule.of(length, places(params["checkpoint"], length))
    numbers = [schedule.pulled, schedule.begins, schedule.counts]
    steps = schedule.steps
    if params["reverse"]:
        numbers = [x[::-1].copy() for x in numbers]
        steps = steps * np.array([-1, 1, 1]) + np.array([length - 1, 0, 0])
    kept = [
        _put(zeros(x.spec.update(shape=(schedule.rows, *x.shape))), x, np.zeros((), np.int64)) for x in start
    ]  # the first state has row 0
    table = [np.ascontiguousarray(column) for column in steps.T]
    outer = GraphBuilder(pull.name)
    step, place, begin, count = (outer.input(ITERATION) for _ in range(4))
    elements = [outer.input(x.spec.update(shape=x.shape[1:])) for x in sequences]
    states, sums = [outer.input(x.spec) for x in kept], [outer.input(x.spec) for x in cts]
    captured, whole = [outer.input(x.spec) for x in held], [outer.input(x.spec) for x in sequences[:xs]]
    columns = [outer.input((len(steps),), dtypes.int64) for _ in table]
    with outer:
        if len(steps) and states:
            again = _again(
                advance, [x.spec for x in kept], [x.spec for x in sequences[:xs]], [x.spec for x in held], len(steps)
            )
            common = {"xs": 0, "carries": carries, "length": None}
            states = list(scan(count, *states, begin, *columns, *whole, *captured, graphs=(again,), **common))
        before = [_take(x, place) for x in states]
        results = list(pull.evaluate([step, *elements, *before, *sums, *captured]))
    body = outer.build(*states, *results)
    common = {"xs": 3 + reads, "carries": carries + moved, "length": length, "reverse": not params["reverse"]}
    operands = [*numbers, *sequences, *kept, *cts, *held, *sequences[:xs], *table]
    found: Sequence[Symbol] = scan(*operands, graphs=(body,), tangents_only=True, **common)
    return found[carries:]


def _again(
    advance: Graph, kept: Sequence[TensorSpec], sequences: Sequence[TensorSpec], held: Sequence[TensorSpec], count: int
) -> Graph:
    """Returns one step of a schedule: an iteration that runs again, from one row of the kept states to another."""
    inner = GraphBuilder(advance.name)
    number, states, begin = inner.input(ITERATION), [inner.input(spec) for spec in kept], inner.input(ITERATION)
    columns = [inner.input((count,), dtypes.int64) for _ in range(3)]
    whole, captured = [inner.input(spec) for spec in sequences], [inner.input(spec) for spec in held]
    with inner:
        at = add(number, begin)
        step, source, target = (_take(column, at) for column in columns)
        elements, before = [_take(x, step) for x in whole], [_take(x, source) for x in states]
        results = advance.evaluate([step, *elements, *before, *captured])
        following = [_put(x, value, target) for x, value in zip(states, results, strict=True)]
    return inner.build(*following)


def _take(stack: Any, place: Any) -> Any:
    """Returns a row of a tensor."""
    _, *shape = stack.spec.shape
    zero = np.zeros((), np.int64)
    row = dynamic_slice(stack, place, *[zero] * len(shape), sizes=(1, *shape), mode="clip")
    return reshape(row, shape=tuple(shape))


def _put(stack: Any, row: Any, place: Any) -> Any:
    """Returns the tensor with another row."""
    zero = np.zeros((), np.int64)
    return dynamic_update_slice(
        stack, reshape(row, shape=(1, *row.spec.shape)), place, *[zero] * row.spec.ndim, mode="clip"
    )
