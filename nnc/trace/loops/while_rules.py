"""How `while` is differentiated and batched.

Its iterations are linearised as in a `scan`; their rows go to tapes, since their number is not known, and the linear part is a
`scan` of that many iterations. The results of the last, unfinished iteration are differentiated by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.later import later
from nnc.commands.elementwise import add, convert
from nnc.commands.loop import ITERATION, split_iteration, while_
from nnc.commands.reduce import reduce_or
from nnc.commands.rules import lead, zeros
from nnc.commands.tape import Handles, tape_handles
from nnc.graph import Graph, TensorSpec, bind
from nnc.graph.registry import batch, derivative
from nnc.graph.rules import Derivative, Tangents, Value
from nnc.trace.core.backward import is_forward
from nnc.trace.core.batching import run_batched
from nnc.trace.core.dual import run_apart, run_jvp
from nnc.trace.core.pulls import has_backward_rules
from nnc.trace.core.staging import stage
from nnc.trace.loops.iterations import (
    Flags,
    Iteration,
    batched_handles,
    choose_rows,
    doubled_specs,
    fill,
    fill_zeros,
    flags_of,
    has_effects,
    in_place_of_others,
    interleave,
    is_for_own_rows,
    linearize_iteration,
    nodes_so_far,
    run_rows,
    seeds_for,
)
from nnc.trace.loops.scan_rules import Replay, ScanOperands, linear_scan, push_scan, run_again

_bounded_tangents = later(f"{__package__}.bounded", "bounded_tangents")


class _WhileParts(NamedTuple):
    """A `while` taken apart at its test."""

    head: Graph
    tail: Graph
    specs: tuple[TensorSpec, ...]
    carries: int
    exits: int
    tapes: int

    @classmethod
    def of(cls, graph: Graph, carries: int, before: int, tapes: int) -> _WhileParts:
        exits = len(graph.outputs) - 1 - carries - tapes
        head, tail = split_iteration(graph, carries, before, exits)
        return cls(head, tail, graph.input_specs, carries, exits, tapes)

    def iteration(self, with_exits: bool) -> Iteration:
        """(condition, [exits,] carried values, tape rows) of an iteration, noting where the test stands."""
        at: list[int] = []

        def body(*values: Any) -> list[Any]:
            condition, *known = self.head.evaluate(values)
            at.append(nodes_so_far())
            first = [condition, *(known[: self.exits] if with_exits else [])]
            return [*first, *self.tail.evaluate([*values, *known[self.exits :]])]

        first = 1 + (self.exits if with_exits else 0)
        return Iteration(body, self.specs, 0, self.carries, first, lambda: at[-1])

    def leave(self, *values: Any) -> list[Any]:
        """Returns the exits of an iteration that is left at its test."""
        return self.head.evaluate(values)[1 : 1 + self.exits]


def _while_linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handles: Handles = (), checkpoint: str | int | None = None,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    parts = _WhileParts.of(graphs[0], carries, before, tapes)
    program, is_pure = get_context().program, not has_effects(graphs[0])
    if program is not None and program.max_steps is not None and is_pure and not (tapes or is_forward(tangents)):
        return _while_bounded(primals, tangents, graphs, parts, before, max_steps or program.max_steps)
    if checkpoint is not None or (is_forward(tangents) and is_pure):
        return _while_repeated(primals, tangents, graphs, parts, before, max_steps, handles, checkpoint)
    flags = flags_of(tangents[:carries]), flags_of(tangents[carries:])
    lin = linearize_iteration(parts.iteration(True), (), *flags)
    condition, *outputs = lin.forward.outputs
    exits, following, rows = outputs[: parts.exits], outputs[parts.exits :][:carries], outputs[parts.exits + carries :]
    forward = lin.forward.update(outputs=(condition, *following, *exits, *rows))
    widened = [*primals, *lin.captured[: len(forward.inputs) - len(graphs[0].inputs)]]
    params: dict[str, Any] = {"carries": carries, "before": lin.before, "tapes": tapes + lin.kept}
    own_handles = handles or ((),) * tapes
    params |= {"max_steps": max_steps, "handles": tape_handles((*own_handles, *[()] * lin.kept))}
    results = list(bind(while_, widened, params, (forward,)))
    own = results[: carries + parts.exits + 1 + tapes]
    kept, iterations = results[len(own) :], own[carries + parts.exits]
    t_captured = [t for t in tangents[carries:] if t is not None]
    moved = linear_scan(
        lin, [iterations], kept, (), primals[carries:], (),
        seeds_for(primals[:carries], tangents[:carries], lin.carries), t_captured,
        {"length": None, "reverse": False, "handles": tape_handles(compress(own_handles, lin.rows))},
    )  # fmt: skip
    t_carries, t_rows = fill(moved[: sum(lin.carries)], lin.carries), fill(moved[sum(lin.carries) :], lin.rows)
    t_exits = _exit_tangents(parts, iterations, own[:carries], primals[carries:], t_carries, tangents[carries:])
    return own, (*t_carries, *t_exits, None, *t_rows)


def _while_bounded(
    primals: tuple[Value, ...],
    tangents: Tangents,
    graphs: tuple[Graph, ...],
    parts: _WhileParts,
    before: int,
    most: int,
) -> tuple[list[Value], Tangents]:
    n = parts.carries
    outputs = list(bind(while_, primals, {"carries": n, "before": before, "max_steps": most}, graphs))
    iterations, forward = outputs[n + parts.exits], is_forward(tangents)

    def iteration(*values: Any) -> Sequence[Any]:
        _, *known = parts.head.evaluate(values)
        following: Sequence[Any] = parts.tail.evaluate([*values, *known[parts.exits :]])
        return following

    moved = _bounded_tangents(iteration, iterations, most, primals, tangents, n, forward)
    return outputs, (*moved, *_exit_tangents(parts, iterations, outputs[:n], primals[n:], moved, tangents[n:]), None)


def _while_repeated(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], parts: _WhileParts, before: int,
    max_steps: int | None, handles: Handles, checkpoint: str | int | None,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    """Returns the results, and tangents that run the iterations again: forwards, or backwards where `checkpoint` is given."""
    n, late = parts.carries, 1 + parts.carries + parts.exits
    params = {"carries": n, "before": before, "max_steps": max_steps, "checkpoint": checkpoint}
    outputs = list(bind(while_, primals, {**params, "tapes": parts.tapes, "handles": handles}, graphs))
    iterations = outputs[n + parts.exits]
    if checkpoint is None or (is_forward(tangents) and not has_effects(graphs[0])):
        body = graphs[0].restrict((*graphs[0].outputs[1 : 1 + n], *graphs[0].outputs[late:]))
        operands, given = (iterations, *primals), (None, *tangents)
        moved = push_scan(operands, given, (body,), xs=0, carries=n, length=None, handles=handles, run=run_again)[1]
    else:
        start = ScanOperands([iterations], (), primals[:n], primals[n:])
        loop = Replay(parts.iteration(False), start, None, False, checkpoint, has_backward_rules(graphs[0]))
        t = ScanOperands([], (), tangents[:n], tangents[n:])
        moved = tuple(loop.tangents(t, [y.spec for y in outputs[:n]]))
    t_exits = _exit_tangents(parts, iterations, outputs[:n], primals[n:], moved[:n], tangents[n:])
    return outputs, (*moved[:n], *t_exits, None, *moved[n:])


def _exit_tangents(
    parts: _WhileParts,
    iterations: Any,
    carried: Sequence[Any],
    captured: Sequence[Any],
    t_carries: Sequence[Any],
    t_captured: Sequence[Any],
) -> list[Any]:
    """Tangents of the results of the last, unfinished iteration, at the final carried values."""
    if not parts.exits:
        return []
    tangents = [None, *t_carries, *t_captured]
    return run_apart(parts.leave, [iterations, *carried, *captured], tangents, is_forward(tangents))[1]


def _while_push(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handles: Handles = (), checkpoint: str | int | None = None,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    parts = _WhileParts.of(graphs[0], carries, before, tapes)
    flags = flags_of(tangents[:carries]), flags_of(tangents[carries:])
    part = parts.iteration(False)
    moving, counts = flags[0], (carries, part.captures)
    box: list[Any] = []

    def body(step: Any, *values: Any) -> list[Any]:
        points, directions = interleave(step, values, counts, (moving, flags[1]))
        known, t_known = run_jvp(lambda *v: parts.head.evaluate(v), points, directions)
        at = nodes_so_far()
        first = 1 + parts.exits
        handed = [*points, *known[first:]], [*directions, *t_known[first:]]
        outputs, moved = run_jvp(lambda *v: parts.tail.evaluate(v), *handed)
        filled = fill_zeros(outputs[:carries], moved[:carries], moving)
        exits = [*known[1 : 1 + parts.exits], *(t for t in t_known[1 : 1 + parts.exits] if t is not None)]
        box[:] = [at, flags_of(t_known[1 : 1 + parts.exits]), flags_of(moved)]
        rows = (t for t in moved[carries:] if t is not None)
        return [known[0], *outputs[:carries], *filled, *exits, *outputs[carries:], *rows]

    while True:  # as linearize_iteration does
        specs = doubled_specs(graphs[0].input_specs, counts, (moving, flags[1]))
        staged = stage(body, [ITERATION, *specs], name=graphs[0].name)
        following = tuple(a or b for a, b in zip(moving, box[2][:carries], strict=True))
        if following == moving:
            break
        moving = following
    rows = box[2][carries:]
    seeds = seeds_for(primals[:carries], tangents[:carries], moving)
    t_captured = [t for t in tangents[carries:] if t is not None]
    operands = [*primals[:carries], *seeds, *primals[carries:], *t_captured, *staged.captured]
    params: dict[str, Any] = {"carries": carries + len(seeds), "before": box[0], "tapes": tapes + sum(rows)}
    own_handles = handles or ((),) * tapes
    moved_handles = tape_handles((*own_handles, *compress(own_handles, rows)))
    params |= {"max_steps": max_steps, "handles": moved_handles, "checkpoint": checkpoint}
    results = list(bind(while_, operands, params, (staged.graph,)))
    at, moved_exits = carries + len(seeds), tuple(box[1])
    after = at + parts.exits + sum(moved_exits)
    outputs = [*results[:carries], *results[at : at + parts.exits], *results[after : after + 1 + tapes]]
    t_exits = fill(results[at + parts.exits : after], moved_exits)
    return outputs, (*fill(results[carries:at], moving), *t_exits, None, *fill(results[after + 1 + tapes :], rows))


def _while_batch(
    size: int, operands: tuple[Value, ...], batched: Flags, graphs: tuple[Graph, ...], carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handles: Handles = (), checkpoint: str | int | None = None,
) -> tuple[tuple[Value, ...], Flags]:  # fmt: skip
    """Batches the loop: where the condition is batched, iterations go on until all rows are done; rows that are done stay as they
    are.
    """
    parts, own = _WhileParts.of(graphs[0], carries, before, tapes), graphs[0]
    flags, captured = tuple(batched[:carries]), tuple(batched[carries:])
    per_row = _condition_is_batched(parts, size, (False, *flags, *captured))
    box: list[Any] = []

    def body(step: Any, *values: Any) -> list[Any]:
        counts, rest = ([values[carries]], values[carries + 1 :]) if per_row else ([], values[carries:])
        carried = values[:carries]
        every = (per_row, *flags, *captured)
        first = [*(counts or [step]), *carried, *rest]
        known, found = run_batched(lambda *v: parts.head.evaluate(v), size, first, every)
        condition = reduce_or(known[0], axes=(0,)) if per_row else known[0]
        exits, exit_flags = known[1 : 1 + parts.exits], found[1 : 1 + parts.exits]
        at = nodes_so_far()
        handed = [*first, *known[1 + parts.exits :]], [*every, *found[1 + parts.exits :]]
        outputs, out_flags = _batch_tail(size, parts.tail, known[0] if per_row else None, *handed)
        following = [
            lead(size, y, f) if on else y for y, f, on in zip(outputs[:carries], out_flags, flags, strict=False)
        ]
        if per_row:
            following = [choose_rows(known[0], new, old) for new, old in zip(following, carried, strict=True)]
            following.append(add(counts[0], convert(known[0], dtype=dtypes.int64)))
        rows = [lead(size, y, f) if per_row else y for y, f in zip(outputs[carries:], out_flags[carries:], strict=True)]
        box[:] = [at, [per_row or f for f in out_flags[carries:]], tuple(out_flags[:carries]), found[0], exit_flags]
        return [condition, *following, *exits, *rows]

    def row_spec(spec: TensorSpec, on: bool) -> TensorSpec:
        return spec.update(shape=(size, *spec.shape)) if on else spec

    counter = TensorSpec((size,), dtypes.int64)
    # until no carried value is found to have the batch axis, mostly once: nested loops are traced each time
    while True:
        flags = (True,) * carries if per_row else flags
        specs = [row_spec(s, on) for s, on in zip(own.input_specs, (False, *flags, *captured), strict=True)]
        staged = stage(
            body, [*specs[: 1 + carries], *([counter] if per_row else []), *specs[1 + carries :]], name=own.name
        )
        found = tuple(a or b for a, b in zip(flags, box[2], strict=True))
        if found == flags and per_row == box[3]:
            break
        per_row, flags = box[3], found
    carried = [lead(size, v, o) if on else v for v, o, on in zip(operands[:carries], batched, flags, strict=False)]
    start = [*carried, *([zeros(counter)] if per_row else [])]
    params = {
        "carries": len(start), "before": box[0], "tapes": tapes, "max_steps": max_steps,
        "handles": batched_handles(size, handles, box[1]), "checkpoint": checkpoint,
    }  # fmt: skip
    results = list(bind(while_, [*start, *operands[carries:], *staged.captured], params, (staged.graph,)))
    n = len(start)
    iterations = results[carries] if per_row else results[n + parts.exits]
    outputs = (*results[:carries], *results[n : n + parts.exits], iterations, *results[n + parts.exits + 1 :])
    return outputs, (*flags, *box[4], per_row, *box[1])


def _batch_tail(
    size: int, tail: Graph, running: Value | None, values: Sequence[Any], batched: Sequence[bool]
) -> tuple[list[Any], list[bool]]:
    """Returns the part of an iteration behind the test, for all rows or for those that are `running`; which results have the
    batch axis.
    """
    if running is not None and has_effects(tail):
        idle = stage(lambda *_: [zeros(spec) for spec in tail.output_specs], tail.input_specs, name="done").graph
        results = run_rows(size, convert(running, dtype=dtypes.int64), values, tuple(batched), (idle, tail))
        return results, [True] * len(results)
    if running is not None and is_for_own_rows(tail):
        values = in_place_of_others(running, values, batched)
    return run_batched(lambda *v: tail.evaluate(v), size, values, batched)


def _condition_is_batched(parts: _WhileParts, size: int, every: Flags) -> bool:
    found: list[bool] = []

    def probe(*values: Any) -> list[Any]:
        outputs, flags = run_batched(lambda *v: parts.head.evaluate(v), size, values, every)
        found.append(flags[0])
        return outputs

    stage(probe, [s.update(shape=(size, *s.shape)) if on else s for s, on in zip(parts.specs, every, strict=True)])
    return found[0]


derivative.set(while_, Derivative(push=_while_push, linearize=_while_linearize))
batch.set(while_, _while_batch)
