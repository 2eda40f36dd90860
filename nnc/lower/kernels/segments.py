"""Runs loops that write or read tapes many iterations at a time.

No memory plan holds a tape, so a reference runs such a loop from Python, iteration by iteration. A *segment* is a graph without
tapes: a loop of at most so many iterations as its stacks have rows. It runs as a program of its own, and its stacks are parts
of tapes, so a loop costs Python time for each segment and not for each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnc.base.bounded import remembered
from nnc.base.dtypes import TAPE
from nnc.commands.elementwise import add, bitwise_and, less, sub
from nnc.commands.index import dynamic_slice, dynamic_update_slice
from nnc.commands.loop import ITERATION, Run, check_steps, scan, split_iteration, while_
from nnc.commands.shape import reshape
from nnc.commands.tape import Handles, NDArray, Spare, Tape, as_handles, read_rows
from nnc.graph import Graph, GraphBuilder, Symbol, TensorSpec, reference
from nnc.graph.registry import effect

MOST_ROWS = 1024  # iterations; a call of a program takes some 20 µs, so it adds 0.02 µs to each
STACK_BYTES = 1 << 16  # of a segment's stacks: to write it takes as long as a call. A running loop's tapes take no less
_ONE = np.int64(1)


def run_while(
    *arrays: NDArray, spare: Spare, graphs: tuple[Graph, ...], run: Run, carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handles: Handles = (), checkpoint: str | int | None = None,
) -> list[NDArray]:  # fmt: skip
    """Returns the results of `while`, as its reference does."""
    body = graphs[0]
    rows = body.output_specs[len(body.outputs) - tapes :]
    count = _rows_at_once(body, rows, max_steps)
    if not count or not tapes:
        params = {"carries": carries, "before": before, "tapes": tapes, "max_steps": max_steps, "handles": handles}
        whole: list[NDArray] = reference[while_](*arrays, graphs=graphs, run=run, **params)
        return whole
    segment = _while_segment(body, carries, before, tapes, count)
    kept = [Tape(spec.shape, spec.dtype, -(-(max_steps or 0) // count) * count, spare) for spec in rows]
    carried, step = list(arrays[:carries]), 0
    while True:
        most = count if max_steps is None else min(count, max_steps - step)
        stacks = [tape.room(step, count) for tape in kept]
        values = [np.int64(step), np.int64(most), *stacks, *carried, *arrays[carries:]]
        goes_on, done, *results = run(segment, values)
        carried = results[:carries]
        step += int(done)
        _keep(kept, stacks, results[len(results) - tapes :], step)
        if not goes_on:
            exits = results[carries : len(results) - tapes]
            return [*carried, *exits, np.asarray(step, np.int64), *as_handles(_trimmed(kept), handles)]
        check_steps(step, max_steps)


def run_scan(
    *arrays: NDArray, spare: Spare, graphs: tuple[Graph, ...], run: Run, xs: int, carries: int, length: int | None,
    reverse: bool = False, handles: Handles = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> list[NDArray]:  # fmt: skip
    """Returns the results of `scan`, as its reference does."""
    body = graphs[0]
    elements, rows = body.input_specs[1 : 1 + xs], body.output_specs[carries:]
    count = _rows_at_once(body, [*elements, *rows])
    if not count or length is not None:
        params = {"xs": xs, "carries": carries, "length": length, "reverse": reverse, "handles": handles}
        whole: list[NDArray] = reference[scan](*arrays, graphs=graphs, run=run, **params)
        return whole
    segment, total = _scan_segment(body, xs, carries, reverse, count), int(arrays[0])
    sequences, carried, captured = arrays[1 : 1 + xs], list(arrays[1 + xs :][:carries]), arrays[1 + xs + carries :]
    kept = [Tape(spec.shape, spec.dtype, -(-total // count) * count, spare) for spec in rows]
    starts = range(0, total, count)
    for start in reversed(starts) if reverse else starts:
        done = min(count, total - start)
        lent: list[NDArray] = []
        read = [read_rows(x, start, done, count, s, spare, lent) for x, s in zip(sequences, elements, strict=True)]
        stacks = [tape.room(start, count) for tape in kept]
        results = run(segment, [np.int64(start), np.int64(done), *read, *stacks, *carried, *captured])
        carried = results[:carries]
        _keep(kept, stacks, results[carries:], total)
        for memory in lent:
            spare.give(memory)
    return [*carried, *as_handles(_trimmed(kept), handles)]


def _trimmed(tapes: Sequence[Tape]) -> Sequence[Tape]:
    for tape in tapes:
        tape.trim()
    return tapes


def _keep(tapes: Sequence[Tape], stacks: Sequence[NDArray], results: Sequence[NDArray], length: int) -> None:
    """Sets the length of tapes whose rows a segment has written, in place or not."""
    for tape, stack, result in zip(tapes, stacks, results, strict=True):
        if result is not stack:
            stack[...] = result
        tape.length = length


def _rows_at_once(body: Graph, rows: Sequence[TensorSpec], most: int | None = None) -> int:
    """Returns the number of rows of a segment's stacks; 0 where iterations must run one by one."""
    if not _runs_in_segments(body):
        return 0
    room = STACK_BYTES // max(1, sum(spec.nbytes for spec in rows))
    count = min(MOST_ROWS, max(1, 1 << room.bit_length() >> 1))
    return count if most is None or count < most else max(1, most)


@remembered
def _runs_in_segments(body: Graph) -> bool:
    """Whether no program of a segment is refused: tapes of tapes are Python objects, and a segment runs the nodes before the test
    once more than the loop does, which Python must not notice.
    """
    specs = (*body.input_specs, *body.output_specs)
    kinds = {effect[node.command] for node in body.walk() if node.command in effect}
    return kinds <= {"random"} and all(spec.dtype != TAPE for spec in specs)


@remembered
def _while_segment(body: Graph, carries: int, before: int, tapes: int, count: int) -> Graph:
    """(first iteration, how many at most, stacks, carried, captured values) -> (whether the test holds, how many, carried, exits,
    stacks).
    """
    exits = len(body.outputs) - 1 - carries - tapes
    head, tail = split_iteration(body, carries, before, exits)
    carried, captured = body.input_specs[1 : 1 + carries], body.input_specs[1 + carries :]
    stacks = _stacked(body.output_specs[len(body.outputs) - tapes :], count)
    inner = GraphBuilder(body.name)
    with inner:
        step, *state = map(inner.input, (ITERATION, *carried))
        written = [*map(inner.input, stacks)]
        first, most, *held = map(inner.input, (ITERATION, ITERATION, *captured))
        values = [add(first, step), *state, *held]
        test, *known = head.evaluate(values)
        goes_on = bitwise_and(test, less(step, most))
        at = inner.num_nodes
        results = tail.evaluate([*values, *known[exits:]])
        written = [_put(x, row, step) for x, row in zip(written, results[carries:], strict=True)]
        iteration = inner.build(*_symbols(inner, [goes_on, *results[:carries], *written, test, *known[:exits]]))
    return _loop(iteration, [], stacks, carried, captured, {"carries": carries + tapes, "before": at})


@remembered
def _scan_segment(body: Graph, xs: int, carries: int, reverse: bool, count: int) -> Graph:
    """(first iteration, how many, rows to read, stacks, carried, captured values) -> (carried, stacks)."""
    carried, captured = body.input_specs[1 + xs : 1 + xs + carries], body.input_specs[1 + xs + carries :]
    stacks, reads = (_stacked(specs, count) for specs in (body.output_specs[carries:], body.input_specs[1 : 1 + xs]))
    inner = GraphBuilder(body.name)
    with inner:
        step, *state = map(inner.input, (ITERATION, *carried))
        written = [*map(inner.input, stacks)]
        first, most, *held = map(inner.input, (ITERATION, ITERATION, *reads, *captured))
        goes_on = less(step, most)
        place = sub(sub(most, _ONE), step) if reverse else step
        elements = [_take(x, place) for x in held[:xs]]
        results = body.evaluate([add(first, place), *elements, *state, *held[xs:]])
        written = [_put(x, row, place) for x, row in zip(written, results[carries:], strict=True)]
        iteration = inner.build(*_symbols(inner, [goes_on, *results[:carries], *written]))
    return _loop(iteration, reads, stacks, carried, captured, {"carries": carries + len(stacks), "before": 1})


def _loop(
    iteration: Graph, reads: Sequence[TensorSpec], stacks: Sequence[TensorSpec], carried: Sequence[TensorSpec],
    captured: Sequence[TensorSpec], params: dict[str, Any],
) -> Graph:  # fmt: skip
    """Returns the graph of a segment with this iteration, which writes to the stacks that it is given. Where there are exits, the
    first of them and the number of iterations come first.
    """
    b = GraphBuilder(f"{iteration.name}, many times")
    first, most = map(b.input, (ITERATION, ITERATION))
    read, written, state, held = ([*map(b.input, specs)] for specs in (reads, stacks, carried, captured))
    results = b.record(while_, (*state, *written, first, most, *read, *held), params, (iteration,), None)
    n, late = len(carried), params["carries"]
    counts, exits = ((results[late], results[-1]), results[late + 1 : -1]) if len(results) > late + 1 else ((), ())
    at = 2 + len(reads)
    donated = tuple(range(at, at + len(stacks)))
    return b.build(*counts, *results[:n], *exits, *results[n:late], attrs={"donated": donated})


def _stacked(specs: Sequence[TensorSpec], count: int) -> list[TensorSpec]:
    return [spec.update(shape=(count, *spec.shape)) for spec in specs]


def _put(stack: Any, row: Any, place: Any) -> Any:
    rows = reshape(row, shape=(1, *stack.spec.shape[1:]))
    return dynamic_update_slice(stack, rows, place, *[np.int64(0)] * (stack.spec.ndim - 1), mode="clip")


def _take(stack: Any, place: Any) -> Any:
    shape = stack.spec.shape[1:]
    rows = dynamic_slice(stack, place, *[np.int64(0)] * len(shape), sizes=(1, *shape), mode="clip")
    return reshape(rows, shape=shape)


def _symbols(builder: GraphBuilder, values: Sequence[Any]) -> list[Symbol]:
    return [x if isinstance(x, Symbol) else builder.constant(x) for x in values]
