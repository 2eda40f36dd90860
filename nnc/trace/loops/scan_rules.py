"""How `scan` is differentiated, transposed and batched; and the loops that run their iterations again (`checkpoint=`).

The linear part of a loop is a `scan` over the rows that its forward part kept. The transpose of a linear `scan` is a `scan` in the
other direction, in which cotangents of captured values are carried and summed. Since `scan` has these rules itself, derivatives of
every order exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

from nnc.base import dtypes
from nnc.commands.constants import full_like
from nnc.commands.elementwise import less
from nnc.commands.loop import ITERATION, scan
from nnc.commands.reduce import reduce_max
from nnc.commands.replay import pull_iterations
from nnc.commands.rules import add_tangents, lead, zeros
from nnc.commands.shape import broadcast_to
from nnc.commands.tape import Handles, tape_handles
from nnc.graph import Graph, Symbol, TensorSpec, bind, spec_of
from nnc.graph.registry import batch, derivative
from nnc.graph.rules import Derivative, Linear, Tangents, Value
from nnc.trace.core.backward import fill_cotangents, is_forward, transpose_graph
from nnc.trace.core.batching import run_batched
from nnc.trace.core.dual import run_apart, run_jvp, run_linearize
from nnc.trace.core.pulls import apply_pull_only, has_backward_rules
from nnc.trace.core.staging import Staged, stage
from nnc.trace.loops.backwards import Backwards
from nnc.trace.loops.branch_rules import share_captures
from nnc.trace.loops.iterations import (
    Flags,
    Iteration,
    Linearization,
    batched_handles,
    both,
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
    moving_carries,
    rows_first,
    seeds_for,
    separate,
    spread,
)


class ScanOperands(NamedTuple):
    """The operands of a scan by role; `length` holds the length where it is dynamic."""

    length: list[Any]
    xs: tuple[Any, ...]
    carries: tuple[Any, ...]
    captured: tuple[Any, ...]

    @classmethod
    def of(cls, operands: Sequence[Any], xs: int, carries: int, length: int | None) -> ScanOperands:
        """Sorts the operands of a scan with these parameters."""
        rest = tuple(operands)
        head, rest = ([rest[0]], rest[1:]) if length is None else ([], rest)
        return cls(head, rest[:xs], rest[xs : xs + carries], rest[xs + carries :])


def linear_scan(
    lin: Linearization, length: list[Any], kept: Sequence[Any], sequences: Sequence[Any], captured: Sequence[Any],
    t_xs: Sequence[Any], t_carries: Sequence[Any], t_captured: Sequence[Any], params: dict[str, Any],
) -> list[Any]:  # fmt: skip
    """Runs the linear part of a loop; yields tangents of the carried values and rows that move."""
    reads = [*kept, *(sequences[i] for i in lin.again), *t_xs]
    everything = [*captured, *lin.captured]
    operands = [*length, *reads, *t_carries, *(everything[i] for i in lin.shared), *t_captured]
    return list(
        bind(
            scan,
            operands,
            {**params, "xs": len(reads), "carries": len(t_carries), "tangents_only": True},
            (lin.linear,),
        )
    )


# -- loops that keep only where they began -----------------------------------------------------------------------------


class Replay(NamedTuple):
    """The linear map of a loop whose iterations are run again when it is pulled back (`checkpoint=`)."""

    part: Iteration
    operands: ScanOperands
    length: int | None
    reverse: bool
    checkpoint: str | int
    has_rules: bool  # of users, for its backward pass

    def tangents(self, given: ScanOperands, specs: Sequence[TensorSpec]) -> list[Any]:
        """Tangents of the last carried values and of rows (`specs`), from tangents of sequences, first and captured values."""
        x, part = self.operands, self.part
        flags = flags_of(given.xs), flags_of(given.carries), flags_of(given.captured)
        while True:
            moving, rows = moving_carries(part, *flags)
            if not any((*moving, *rows)):
                return [None] * (len(moving) + len(rows))
            advance, back, reached = self._graphs(flags[0], moving, flags[2], rows)
            fewer = both(flags[0], reached[0]), flags[1], both(flags[2], reached[1])
            if fewer == flags:
                break
            flags = fewer  # the others would get zeros, and zero times infinity is not zero
        captured, graphs = share_captures((advance, back))
        wanted = [spec for spec, on in zip(specs, (*moving, *rows), strict=True) if on]
        sums = list(compress((v.spec for v in x.captured), flags[2]))

        def pull(cts: Sequence[Any]) -> list[Any]:
            ct_carries, ct_rows = cts[: sum(moving)], cts[sum(moving) :]
            operands = [*x.length, *x.xs, *ct_rows, *x.carries, *ct_carries, *map(zeros, sums), *x.captured, *captured]
            params = {
                "xs": part.xs, "rows": len(ct_rows), "carries": part.carries, "pulled": len(ct_carries), "sums": len(sums),
                "length": self.length, "checkpoint": self.checkpoint, "reverse": self.reverse,
            }  # fmt: skip
            results = bind(pull_iterations, operands, params, graphs)
            first = dict(zip([i for i, on in enumerate(moving) if on], results, strict=False))
            ct_first = [first[i] for i, on in enumerate(flags[1]) if on]
            return [
                *results[len(ct_carries) + len(sums) :],
                *ct_first,
                *results[len(ct_carries) : len(ct_carries) + len(sums)],
            ]

        seeds = list(compress((*given.xs, *given.carries, *given.captured), (*flags[0], *flags[1], *flags[2])))
        return fill(apply_pull_only(pull, seeds, wanted, leaves_out=not self.has_rules), (*moving, *rows))

    def _graphs(
        self, xs: Flags, carries: Flags, captured: Flags, rows: Flags
    ) -> tuple[Staged, Staged, tuple[Flags, Flags]]:
        """Returns an iteration; its pull-back: (iteration, elements, cotangents of rows, carried, cotangents, sums, captured
        values); and the sequences and captured values that this reaches.
        """
        part = self.part
        elements, held = part.specs[1 : 1 + part.xs], part.specs[1 + part.xs + part.carries :]
        carried = part.specs[1 + part.xs : 1 + part.xs + part.carries]
        active = (False, *xs, *carries, *captured)

        def forward(*values: Any) -> Sequence[Any]:
            return part.function(*values)[part.first : part.first + part.carries]

        advance = stage(forward, part.specs, name="iteration")
        row_specs: list[TensorSpec] = []

        def probe(*values: Any) -> Sequence[Any]:
            outputs = part.function(*values)
            row_specs.extend(spec_of(y) for y in outputs[part.first + part.carries :])
            return outputs

        stage(probe, part.specs)
        ct_rows = list(compress(row_specs, rows))
        reached: list[tuple[Flags, Flags]] = []

        def back(step: Any, *values: Any) -> list[Any]:
            rest = iter(values)
            x, ct_y = [next(rest) for _ in elements], [next(rest) for _ in ct_rows]
            state, ct = [next(rest) for _ in carried], [next(rest) for _ in range(sum(carries))]
            sums, fixed = [next(rest) for _ in range(sum(captured))], list(rest)
            _, linear = run_linearize(part.function, [step, *x, *state, *fixed], active)
            known = dict(zip([i for i, on in enumerate((*carries, *rows)) if on], (*ct, *ct_y), strict=True))
            cts = [known.get(i - part.first) for i, on in enumerate(linear.nonzero) if on]
            found = transpose_graph(linear.staged.graph, sum(active), linear.staged.captured, cts)
            filled = [zeros(s) if v is None else v for v, s in zip(found, linear.input_specs, strict=True)]
            a, b = sum(xs), sum(xs) + sum(carries)
            is_found = flags_of(found)
            reached.append((spread(is_found[:a], xs), spread(is_found[b:], captured)))
            return [*filled[a:b], *(add_tangents(s, v) for s, v in zip(sums, filled[b:], strict=True)), *filled[:a]]

        specs = [*elements, *ct_rows, *carried, *compress(carried, carries), *compress(held, captured), *held]
        return advance, stage(back, [ITERATION, *specs], name="iteration back"), reached[-1]


# -- scan --------------------------------------------------------------------------------------------------------------


def _scan_iteration(graph: Graph, xs: int, carries: int) -> Iteration:
    return Iteration(lambda *values: graph.evaluate(values), graph.input_specs, xs, carries)


def _scan_linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], xs: int, carries: int, length: int | None,
    reverse: bool = False, handles: Handles = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    x, t = ScanOperands.of(primals, xs, carries, length), ScanOperands.of(tangents, xs, carries, length)
    forward = is_forward(tangents)
    if forward and (length is None or checkpoint is not None) and not has_effects(graphs[0]):
        whole: dict[str, Any] = {"xs": xs, "carries": carries, "length": length, "reverse": reverse, "handles": handles}
        whole |= {"tangents_only": tangents_only, "checkpoint": checkpoint}
        outputs = list(bind(scan, primals, whole, graphs))
        return outputs, push_scan(primals, tangents, graphs, **whole, run=run_again)[1]
    if checkpoint is not None:
        plain = {"xs": xs, "carries": carries, "length": length, "reverse": reverse, "checkpoint": checkpoint}
        outputs = list(bind(scan, primals, plain, graphs))
        part, has_rules = _scan_iteration(graphs[0], xs, carries), has_backward_rules(graphs[0])
        loop = Replay(part, x, length, reverse, checkpoint, has_rules)
        return outputs, tuple(loop.tangents(t, [y.spec for y in outputs]))
    lin = linearize_iteration(
        _scan_iteration(graphs[0], xs, carries), flags_of(t.xs), flags_of(t.carries), flags_of(t.captured), forward
    )
    params: dict[str, Any] = {"length": length, "reverse": reverse, "tangents_only": tangents_only}
    own_handles = handles or ((),) * len(lin.rows)
    own_params = {"xs": xs, "carries": carries, "handles": tape_handles((*own_handles, *[()] * lin.kept))}
    widened = [*primals, *lin.captured[: len(lin.forward.inputs) - len(graphs[0].inputs)]]
    outputs = list(bind(scan, widened, {**params, **own_params}, (lin.forward,)))
    own, kept = outputs[: len(graphs[0].outputs)], outputs[len(graphs[0].outputs) :]
    moved = linear_scan(
        lin, x.length, kept, x.xs, x.captured, [v for v in t.xs if v is not None], seeds_for(x.carries, t.carries, lin.carries),
        [v for v in t.captured if v is not None],
        {**params, "handles": tape_handles(compress(own_handles, lin.rows))},
    )  # fmt: skip
    return own, tuple(fill(moved, (*lin.carries, *lin.rows)))


# How a loop runs again for tangents that may be transposed.
run_again = partial(run_apart, forward=True)


def push_scan(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], xs: int, carries: int, length: int | None,
    reverse: bool = False, handles: Handles = (), tangents_only: bool = False, checkpoint: str | int | None = None,
    run: Callable[..., tuple[list[Any], list[Any]]] = run_jvp,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    """Returns the results of a scan and their tangents, by one loop for both; `run` differentiates an iteration."""
    graph = graphs[0]
    x, t = ScanOperands.of(primals, xs, carries, length), ScanOperands.of(tangents, xs, carries, length)
    part = _scan_iteration(graph, xs, carries)
    flags = flags_of(t.xs), flags_of(t.carries), flags_of(t.captured)
    moving, counts = flags[1], (xs, carries, part.captures)
    box: list[Flags] = []

    def body(step: Any, *values: Any) -> list[Any]:
        outputs, moved = run(part.function, *interleave(step, values, counts, (flags[0], moving, flags[2])))
        box[:] = [flags_of(moved)]
        filled = fill_zeros(outputs[:carries], moved[:carries], moving)
        return [*outputs[:carries], *filled, *outputs[carries:], *(v for v in moved[carries:] if v is not None)]

    while True:  # as linearize_iteration does
        specs = doubled_specs(graph.input_specs, counts, (flags[0], moving, flags[2]))
        staged = stage(body, [ITERATION, *specs], name=graph.name, linear=run is run_again)
        following = tuple(a or b for a, b in zip(moving, box[0][:carries], strict=True))
        if following == moving:
            break
        moving = following
    rows = box[0][carries:]
    given = (
        [v for v in t.xs if v is not None],
        seeds_for(x.carries, t.carries, moving),
        [v for v in t.captured if v is not None],
    )
    operands = [*x.length, *x.xs, *given[0], *x.carries, *given[1], *x.captured, *given[2], *staged.captured]
    own_handles = handles or ((),) * len(rows)
    params: dict[str, Any] = {
        "xs": xs + len(given[0]),
        "carries": carries + len(given[1]),
        "length": length,
        "reverse": reverse,
        "handles": tape_handles((*own_handles, *compress(own_handles, rows))),
    }
    params |= {"tangents_only": tangents_only, "checkpoint": checkpoint}
    results = list(bind(scan, operands, params, (staged.graph,)))
    return separate(results, carries, moving, len(graph.outputs) - carries, rows)


def _scan_transpose(
    cotangents: Tangents, operands: tuple[Any, ...], graphs: tuple[Graph, ...], xs: int, carries: int, length: int | None,
    reverse: bool = False, handles: Handles = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> Tangents:  # fmt: skip
    graph, parts = graphs[0], ScanOperands.of(operands, xs, carries, length)
    if not tangents_only and not all(isinstance(x, Linear) for x in parts.carries):
        return _transpose_of_some(cotangents, parts, graph, length, reverse)
    x_on, c_on = (tuple(isinstance(x, Linear) for x in group) for group in (parts.xs, parts.captured))
    reads, fixed = (
        [x for x in parts.xs if not isinstance(x, Linear)],
        [x for x in parts.captured if not isinstance(x, Linear)],
    )
    staged, pulled = Backwards(graph, x_on, carries, c_on, flags_of(cotangents)).trace()
    cts = fill_cotangents(graph.output_specs[:carries], cotangents[:carries])
    sums = [zeros(spec) for spec in compress((s.spec for s in graph.inputs[1 + xs + carries :]), pulled.captured)]
    given = [
        *parts.length,
        *reads,
        *(ct for ct in cotangents[carries:] if ct is not None),
        *compress(cts, pulled.carries),
    ]
    moved = sum(pulled.carries)
    params: dict[str, Any] = {
        "xs": len(given) - len(parts.length) - moved,
        "carries": moved + len(sums),
        "length": length,
        "reverse": not reverse,
        "handles": tape_handles(x.spec.shape for x in compress(parts.xs, pulled.xs)) if length is None else (),
    }
    params["tangents_only"] = True
    results = list(bind(scan, [*given, *sums, *fixed, *staged.captured], params, (staged.graph,)))
    ct_carries, totals, ct_xs = results[:moved], results[moved : moved + len(sums)], results[moved + len(sums) :]
    nothing = [None] * len(parts.length)
    return (*nothing, *fill(ct_xs, pulled.xs), *fill(ct_carries, pulled.carries), *fill(totals, pulled.captured))


def _transpose_of_some(
    cotangents: Tangents, parts: ScanOperands, graph: Graph, length: int | None, reverse: bool
) -> Tangents:
    """Transposes a scan that carries values besides the ones that depend on the linear operands.

    A scan of their own yields these, as sequences for the others, which start from zero or from a linear operand.
    """
    xs, carries = len(parts.xs), len(parts.carries)
    elements, carried = graph.inputs[1 : 1 + xs], graph.inputs[1 + xs : 1 + xs + carries]
    operands = (*parts.xs, *parts.carries, *parts.captured)
    active = {s for s, x in zip(graph.inputs[1:], operands, strict=True) if isinstance(x, Linear)}
    depends = _depends(graph, carried, active)
    own = [i for i in range(carries) if not depends[i]]
    known_xs = [(s, x) for s, x in zip(elements, parts.xs, strict=True) if s not in active]
    known = [(s, x) for s, x in zip(graph.inputs[1 + xs + carries :], parts.captured, strict=True) if s not in active]
    forward = graph.restrict((*(graph.outputs[i] for i in own), *(carried[i] for i in own))).update(
        inputs=(graph.inputs[0], *(s for s, _ in known_xs), *(carried[i] for i in own), *(s for s, _ in known))
    )
    params: dict[str, Any] = {"length": length, "reverse": reverse}
    values = [*parts.length, *(x for _, x in known_xs), *(parts.carries[i] for i in own), *(x for _, x in known)]
    own_params = {**params, "xs": len(known_xs), "carries": len(own)}
    found = list(bind(scan, values, own_params, (forward,)))[len(own) :] if own else []
    moved = [i for i in range(carries) if depends[i]]
    linear = graph.update(
        inputs=(graph.inputs[0], *elements, *(carried[i] for i in (*own, *moved)), *graph.inputs[1 + xs + carries :]),
        outputs=(*(graph.outputs[i] for i in moved), *graph.outputs[carries:]),
    )
    starts = [Linear(parts.carries[i].spec) for i in moved]
    cts = _scan_transpose(
        (*(cotangents[i] for i in moved), *cotangents[carries:]),
        (*parts.length, *parts.xs, *found, *starts, *parts.captured),
        (linear,), xs=xs + len(own), carries=len(moved), tangents_only=True, **params,
    )  # fmt: skip
    cts = cts[len(parts.length) :]
    back = dict(zip(moved, cts[xs + len(own) :], strict=False))
    ct_carries = [back[i] if isinstance(x, Linear) else None for i, x in enumerate(parts.carries)]
    return (*[None] * len(parts.length), *cts[:xs], *ct_carries, *cts[xs + len(own) + len(moved) :])


def _depends(graph: Graph, carried: Sequence[Symbol], active: set[Symbol]) -> Flags:
    """Returns which carried values depend on the inputs `active` in some iteration: the least fixed point."""
    while True:
        reached = set(active)
        for node in graph.nodes:
            if not reached.isdisjoint(node.inputs):
                reached.update(node.outputs)
        more = {s for s, y in zip(carried, graph.outputs, strict=False) if y in reached}
        if more <= active:
            return tuple(s in active for s in carried)
        active = active | more


def _scan_batch(
    size: int, operands: tuple[Value, ...], batched: Flags, graphs: tuple[Graph, ...], xs: int, carries: int, length: int | None,
    reverse: bool = False, handles: Handles = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> tuple[tuple[Value, ...], Flags]:  # fmt: skip
    graph, x, b = (
        graphs[0],
        ScanOperands.of(operands, xs, carries, length),
        ScanOperands.of(batched, xs, carries, length),
    )
    per_row = length is None and bool(b.length[0])
    counts = [x.length[0]] if per_row else []
    flags = tuple(bool(f) or per_row for f in b.carries)
    box: list[Flags] = []

    def body(step: Any, *values: Any) -> list[Any]:
        own = values[: len(values) - len(counts)]
        every = (False, *map(bool, b.xs), *flags, *map(bool, b.captured))
        running = less(broadcast_to(step, shape=(size,)), values[-1]) if per_row else None
        given = [step, *own]
        if per_row and is_for_own_rows(graph):
            given = in_place_of_others(running, given, every)
        outputs, found = run_batched(lambda *v: graph.evaluate(v), size, given, every)
        carried = [lead(size, y, f) if on else y for y, f, on in zip(outputs[:carries], found, flags, strict=False)]
        rows = [lead(size, y, f) if per_row else y for y, f in zip(outputs[carries:], found[carries:], strict=True)]
        box[:] = [tuple(f or per_row for f in found[carries:]), tuple(found[:carries])]
        if per_row:
            carried = [choose_rows(running, new, old) for new, old in zip(carried, own[xs : xs + carries], strict=True)]
            rows = [choose_rows(running, row, full_like(row, 0)) for row in rows]
        return [*carried, *rows]

    def row_spec(spec: TensorSpec, on: bool) -> TensorSpec:
        return spec.update(shape=(size, *spec.shape)) if on else spec

    # until no carried value is found to have the batch axis, mostly once: nested loops are traced each time
    while True:
        every = (False, *map(bool, b.xs), *flags, *map(bool, b.captured))
        specs = [row_spec(s, on) for s, on in zip(graph.input_specs, every, strict=True)]
        staged = stage(body, [*specs, *(TensorSpec((size,), dtypes.int64) for _ in counts)], name=graph.name)
        following = tuple(a or b for a, b in zip(flags, box[1], strict=True))
        if following == flags:
            break
        flags = following
    sequences = [rows_first(v) if on and length is not None else v for v, on in zip(x.xs, b.xs, strict=True)]
    carried = [lead(size, v, bool(o)) if on else v for v, o, on in zip(x.carries, b.carries, flags, strict=True)]
    longest = [reduce_max(counts[0], axes=(0,)) if per_row else x.length[0]] if length is None else []
    row_flags = box[0]
    params: dict[str, Any] = {
        "xs": xs,
        "carries": carries,
        "length": length,
        "reverse": reverse,
        "handles": batched_handles(size, handles, row_flags) if length is None else (),
    }
    params |= {"tangents_only": tangents_only, "checkpoint": checkpoint}
    results = list(
        bind(scan, [*longest, *sequences, *carried, *x.captured, *counts, *staged.captured], params, (staged.graph,))
    )
    if length is not None:
        results[carries:] = [rows_first(y) if on else y for y, on in zip(results[carries:], row_flags, strict=True)]
    return tuple(results), (*flags, *row_flags)


derivative.set(scan, Derivative(transpose=_scan_transpose, push=push_scan, linearize=_scan_linearize))
batch.set(scan, _scan_batch)
