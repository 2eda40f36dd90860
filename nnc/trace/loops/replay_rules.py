"""How `pull_iterations`, the reverse pass of a checkpointed loop, is itself differentiated and batched.

Its derivatives are taken from the plain computation with the same result: a `scan` that keeps every state, and one that pulls the
iterations back. So they are right for every order, and only the first reverse pass has the small memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

from nnc.base import dtypes
from nnc.commands.elementwise import less
from nnc.commands.loop import scan
from nnc.commands.reduce import reduce_max
from nnc.commands.replay import pull_iterations
from nnc.commands.rules import lead
from nnc.commands.shape import broadcast_to
from nnc.graph import Graph, TensorSpec, bind
from nnc.graph.registry import batch, derivative
from nnc.graph.rules import Derivative, Linear, Tangents, Value
from nnc.trace.core.backward import is_forward, transpose_graph
from nnc.trace.core.batching import run_batched
from nnc.trace.core.dual import run_apart, run_jvp
from nnc.trace.core.staging import stage
from nnc.trace.loops.iterations import choose_rows, in_place_of_others, is_for_own_rows, rows_first

Flags = tuple[bool, ...]


def _plain(operands: Sequence[Any], graphs: tuple[Graph, ...], params: dict[str, Any]) -> list[Any]:
    """Computes the same results by two scans; the first one keeps every state."""
    advance, pull = graphs
    length, reverse, xs, carries = params["length"], params["reverse"], params["xs"], params["carries"]
    head, rest = ([operands[0]], operands[1:]) if length is None else ([], operands)
    sequences, rest = rest[: xs + params["rows"]], rest[xs + params["rows"] :]
    moved = params["pulled"] + params["sums"]
    start, cts, captured = rest[:carries], rest[carries : carries + moved], rest[carries + moved :]

    def keep(step: Any, *values: Any) -> list[Any]:
        return [*advance.evaluate([step, *values]), *values[xs : xs + carries]]

    keeping = stage(keep, advance.input_specs, name=advance.name)
    common = {"length": length}
    operands = [*head, *sequences[:xs], *start, *captured, *keeping.captured]
    states = bind(scan, operands, {**common, "xs": xs, "carries": carries, "reverse": reverse}, (keeping.graph,))[
        carries:
    ]
    reads = [*sequences, *states]
    common |= {"xs": len(reads), "carries": moved, "reverse": not reverse, "tangents_only": True}
    return list(bind(scan, [*head, *reads, *cts, *captured], common, (pull,)))


def _push(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], **params: Any
) -> tuple[list[Value], Tangents]:
    outputs, moved = run_jvp(lambda *values: _plain(values, graphs, params), primals, tangents)
    return outputs, tuple(moved)


def _linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], **params: Any
) -> tuple[list[Value], Tangents]:
    outputs, moved = run_apart(lambda *values: _plain(values, graphs, params), primals, tangents, is_forward(tangents))
    return outputs, tuple(moved)


def _transpose(cotangents: Tangents, operands: tuple[Any, ...], graphs: tuple[Graph, ...], **params: Any) -> Tangents:
    flags = [isinstance(x, Linear) for x in operands]
    staged = stage(lambda *values: _plain(values, graphs, params), [x.spec for x in operands], name="pull_iterations")
    linear = list(compress(staged.graph.inputs, flags))
    others = [s for s in staged.graph.inputs if s not in linear]
    known = [x for x in operands if not isinstance(x, Linear)]
    ordered = staged.graph.update(inputs=(*linear, *others))
    found = iter(transpose_graph(ordered, len(linear), [*known, *staged.captured], cotangents))
    return tuple(next(found) if on else None for on in flags)


def _batch(
    size: int, operands: tuple[Value, ...], batched: Flags, graphs: tuple[Graph, ...], **params: Any
) -> tuple[tuple[Value, ...], Flags]:
    """Carried values and cotangents get the batch axis; rows whose loop is done stay as they are."""
    advance, pull = graphs
    length, xs, carries = params["length"], params["xs"], params["carries"]
    skip, moved, reads = int(length is None), params["pulled"] + params["sums"], xs + params["rows"]
    per_row = length is None and batched[0]
    counts = [operands[0]] if per_row else []
    rest, flags = operands[skip:], batched[skip:]
    first = reads + carries + moved
    sequences = [rows_first(v) if on else v for v, on in zip(rest[:reads], flags, strict=False)]
    led = [lead(size, v, on) for v, on in zip(rest[reads:first], flags[reads:first], strict=True)]
    captured, held = rest[first:], flags[first:]

    def rows(graph: Graph, elements: Flags, inside: int, keep: slice) -> Any:
        every = (False, *elements, *(True,) * inside, *held)

        def body(step: Any, *values: Any) -> list[Any]:
            own = values[: len(values) - len(counts)]
            running = less(broadcast_to(step, shape=(size,)), values[-1]) if per_row else None
            given = [step, *own]
            if per_row and is_for_own_rows(graph):
                given = in_place_of_others(running, given, every)
            outputs, found = run_batched(lambda *v: graph.evaluate(v), size, given, every)
            full = [lead(size, y, f) for y, f in zip(outputs, found, strict=True)]
            if not per_row:
                return full
            return [choose_rows(running, new, old) for new, old in zip(full, own[keep], strict=True)]

        specs = [s.update(shape=(size, *s.shape)) if on else s for s, on in zip(graph.input_specs, every, strict=True)]
        return stage(body, [*specs, *(TensorSpec((size,), dtypes.int64) for _ in counts)], name=graph.name).graph

    forward = rows(advance, tuple(flags[:xs]), carries, slice(xs, xs + carries))
    back = rows(pull, tuple(flags[:reads]), carries + moved, slice(reads + carries, first))
    longest = [reduce_max(counts[0], axes=(0,)) if per_row else operands[0]] if length is None else []
    results = list(bind(pull_iterations, [*longest, *sequences, *led, *captured, *counts], params, (forward, back)))
    results[moved:] = [rows_first(y) for y in results[moved:]]
    return tuple(results), (True,) * len(results)


derivative.set(pull_iterations, Derivative(transpose=_transpose, push=_push, linearize=_linearize))
batch.set(pull_iterations, _batch)
