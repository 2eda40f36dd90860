"""How `while` and `scan` are differentiated and batched.

Both are one scheme. A round is linearised once, abstractly: its forward part runs in the loop and writes the values that the
linear part reads to sequences (tapes, where the length is unknown), its linear part becomes a `scan` over those. Only what
depends on carried values is written; what depends on captured values alone is computed again. The transpose of a linear `scan`
is a `scan` in the other direction, in which cotangents of captured values are carried and summed. Since `scan` has these rules
itself, derivatives of every order exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from nnc import dtypes
from nnc.commands.elementwise import add, convert, full_like, less, select
from nnc.commands.loop import ROUND, TAPE, scan, split_round, while_
from nnc.commands.reduce import reduce_max, reduce_or
from nnc.commands.replay import pull_rounds
from nnc.commands.rules import (
    Cotangents,
    Derivative,
    Linear,
    Tangents,
    Value,
    add_tangents,
    batch,
    derivative,
    lead,
    zeros,
)
from nnc.commands.shape import broadcast_to, transpose
from nnc.context import get_context
from nnc.errors import UnsupportedError, user_error
from nnc.graph import Graph, Symbol, TensorSpec, bind, spec_of
from nnc.trace.backward import apply_pull_only, push_graph, transpose_graph
from nnc.trace.batching import run_batched
from nnc.trace.branch_rules import share_captures
from nnc.trace.dual import run_jvp, run_linearize
from nnc.trace.staging import Staged, stage

Flat = Callable[..., Sequence[Any]]
Flags = tuple[bool, ...]


def nodes_so_far() -> int:
    """How many nodes the graph being staged has: where the test of a `while` stands."""
    return int(get_context().staging.builder.num_nodes)


def prune(graph: Graph, keep: Sequence[int]) -> Graph:
    """The graph with only these outputs and the nodes that they need."""
    outputs = tuple(graph.outputs[i] for i in keep)
    needed, nodes = set(outputs), []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    constants = {s: v for s, v in graph.constants.items() if s in needed}
    return graph.update(outputs=outputs, nodes=tuple(reversed(nodes)), constants=constants)


def _fill(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """`values` at the places that `flags` marks, None elsewhere."""
    rest = iter(values)
    return [next(rest) if flag else None for flag in flags]


# -- a round, linearised -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Linearization:
    """A round, linearised.

    `forward` yields the round's outputs and then rows to keep; it takes `captured` besides the round's inputs. `linear` is the
    linear part for `scan`: (round, kept rows, elements read again, tangents of elements, tangents of carried values, `shared`,
    tangents of captured values) -> tangents of carried values and of rows. `again` are the sequences whose elements it reads
    again, `shared` the captured values that it needs, by position among the round's captured values and `captured`.
    """

    forward: Graph
    before: int
    kept: int
    captured: tuple[Value, ...]
    linear: Graph
    again: tuple[int, ...]
    shared: tuple[int, ...]
    carries: Flags
    rows: Flags


@dataclass(frozen=True, slots=True)
class _Round:
    """A round's function and the parts of its inputs and outputs.

    `run(*inputs)` yields what comes first (a condition), carried values, rows. `mark()` gives the node count at the test.
    """

    run: Flat
    specs: tuple[TensorSpec, ...]
    xs: int
    carries: int
    first: int = 0
    mark: Callable[[], int] = lambda: 0

    @property
    def captures(self) -> int:
        return len(self.specs) - 1 - self.xs - self.carries


def _moving_carries(part: _Round, xs: Flags, carries: Flags, captured: Flags) -> tuple[Flags, Flags]:
    """Which carried values and rows get tangents in some round: the least fixed point."""
    while True:
        active = (False, *xs, *carries, *captured)
        found: list[Flags] = []

        def probe(*values: Any, active: Flags = active, found: list[Flags] = found) -> list[Any]:
            outputs, linear = run_linearize(part.run, values, active)
            found.append(linear.nonzero[part.first :])
            return outputs

        stage(probe, part.specs)
        following = tuple(a or b for a, b in zip(carries, found[0][: part.carries], strict=True))
        if following == carries:
            return carries, found[0][part.carries :]
        carries = following


def linearize_round(part: _Round, xs: Flags, carries: Flags, captured: Flags) -> Linearization:
    """Linearises a round in the inputs that are marked."""
    carries, rows = _moving_carries(part, xs, carries, captured)
    active = (False, *xs, *carries, *captured)
    box: list[Any] = []

    def run(*values: Any) -> list[Any]:
        outputs, linear = run_linearize(part.run, values, active)
        at = [i for i, kept in enumerate(linear.nonzero) if kept]
        wanted = [k for k, i in enumerate(at) if i >= part.first]
        pruned = prune(linear.staged.graph, wanted)
        used = {s for node in pruned.nodes for s in node.inputs} | set(pruned.outputs)
        hidden = linear.staged.graph.inputs[len(linear.input_specs) :]
        residuals = [(s, v) for s, v in zip(hidden, linear.staged.captured, strict=True) if s in used]
        box.extend((part.mark(), linear.nonzero, pruned.update(inputs=(*pruned.inputs[: sum(active)], *(s for s, _ in residuals)))))
        return [*outputs, *(v for _, v in residuals)]

    staged = stage(run, part.specs, name="round")
    before, nonzero, linear = box
    graph, count = staged.graph, part.first + len(nonzero) - part.first
    return _arrange(part, staged, before, graph.update(outputs=graph.outputs[:count]), graph.outputs[count:], linear, nonzero, xs, carries, captured, rows)


def _arrange(
    part: _Round, staged: Staged, before: int, forward: Graph, residuals: tuple[Symbol, ...], linear: Graph,
    nonzero: Flags, xs: Flags, carries: Flags, captured: Flags, rows: Flags,
) -> Linearization:  # fmt: skip
    """Sorts what the linear part reads: kept in rows, read again from a sequence, or computed from captured values."""
    inputs = forward.inputs
    elements, held = inputs[1 : 1 + part.xs], inputs[1 + part.xs + part.carries :]
    varying = {*elements, *inputs[1 + part.xs : 1 + part.xs + part.carries]}
    for node in forward.nodes:
        if not varying.isdisjoint(node.inputs):
            varying.update(node.outputs)
    kept = tuple(dict.fromkeys(s for s in residuals if s in varying and s not in elements))
    again = tuple(i for i, s in enumerate(elements) if s in residuals)
    fixed = tuple(dict.fromkeys(s for s in residuals if s not in varying))
    constant = prune(forward.update(outputs=fixed), range(len(fixed)))
    needed = {s for node in constant.nodes for s in node.inputs} | set(fixed)
    shared = tuple(i for i, s in enumerate(held) if s in needed)
    takes = constant.update(inputs=(inputs[0], *(held[i] for i in shared)))
    moved = [i for i, on in enumerate(nonzero[part.first :]) if on]

    def run(step: Any, *values: Any) -> list[Any]:
        rest = iter(values)
        known = {s: next(rest) for s in kept} | {elements[i]: next(rest) for i in again}
        t_xs, t_carries = [next(rest) for _ in range(sum(xs))], [next(rest) for _ in range(sum(carries))]
        known.update(zip(fixed, takes.evaluate([step, *(next(rest) for _ in shared)]), strict=True))
        found = dict(zip(moved, push_graph(linear, [*t_xs, *t_carries, *rest, *(known[s] for s in residuals)]), strict=True))
        carried = [found.get(i) for i in range(part.carries)]
        filled = [zeros(s) if t is None else t for s, t in zip(specs, compress(carried, carries), strict=True)]
        return [*filled, *(found[part.carries + i] for i, on in enumerate(rows) if on)]

    specs = list(compress((s.spec for s in inputs[1 + part.xs : 1 + part.xs + part.carries]), carries))
    operands = [s.spec for s in kept] + [elements[i].spec for i in again]
    operands += [*compress((s.spec for s in elements), xs), *specs, *(held[i].spec for i in shared)]
    operands += compress((s.spec for s in held[: part.captures]), captured)
    body = stage(run, [ROUND, *operands], name="linear round")
    if body.captured:
        extra = tuple(range(len(held), len(held) + len(body.captured)))
        body, shared = _captures_as_shared(body, sum(captured)), (*shared, *extra)
        hidden_values = (*staged.captured, *_captured_values(body))
    else:
        hidden_values = staged.captured
    return Linearization(
        forward.update(outputs=(*forward.outputs, *kept)), before, len(kept), hidden_values, body.graph, again, shared, carries, rows
    )


def _captures_as_shared(body: Staged, tangents: int) -> Staged:
    """The linear round with what it captures put among the shared inputs, before the tangents of captured values."""
    explicit = body.graph.inputs[: body.num_explicit]
    hidden = body.graph.inputs[body.num_explicit :]
    at = len(explicit) - tangents
    return Staged(body.graph.update(inputs=(*explicit[:at], *hidden, *explicit[at:])), body.captured)


def _captured_values(body: Staged) -> tuple[Value, ...]:
    return body.captured


def _linear_scan(
    lin: Linearization, length: list[Any], kept: Sequence[Any], sequences: Sequence[Any], captured: Sequence[Any],
    t_xs: Sequence[Any], t_carries: Sequence[Any], t_captured: Sequence[Any], params: dict[str, Any],
) -> list[Any]:  # fmt: skip
    """Runs the linear part of a loop; yields tangents of the carried values and rows that move."""
    reads = [*kept, *(sequences[i] for i in lin.again), *t_xs]
    everything = [*captured, *lin.captured]
    operands = [*length, *reads, *t_carries, *(everything[i] for i in lin.shared), *t_captured]
    return list(bind(scan, operands, {**params, "xs": len(reads), "carries": len(t_carries), "tangents_only": True}, (lin.linear,)))


def _seeds(primals: Sequence[Any], tangents: Sequence[Any], flags: Flags) -> list[Any]:
    """Tangents of the values that move in some round: zeros for those that do not at first."""
    return [zeros(spec_of(p)) if t is None else t for p, t, on in zip(primals, tangents, flags, strict=True) if on]


def _given(tangents: Sequence[Any]) -> Flags:
    return tuple(t is not None for t in tangents)


@dataclass(frozen=True, slots=True)
class _ScanParts:
    """The operands of a scan by role; `length` holds the length where it is dynamic."""

    length: list[Any]
    xs: tuple[Any, ...]
    carries: tuple[Any, ...]
    captured: tuple[Any, ...]

    @classmethod
    def of(cls, operands: Sequence[Any], xs: int, carries: int, length: int | None) -> _ScanParts:
        rest = tuple(operands)
        head, rest = ([rest[0]], rest[1:]) if length is None else ([], rest)
        return cls(head, rest[:xs], rest[xs : xs + carries], rest[xs + carries :])


# -- loops that keep only where they began -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replay:
    """The linear map of a loop whose rounds are run again when it is pulled back (`checkpoint=`)."""

    part: _Round
    operands: _ScanParts
    length: int | None
    reverse: bool
    checkpoint: str | int

    def tangents(self, given: _ScanParts, specs: Sequence[TensorSpec]) -> list[Any]:
        """Tangents of the last carried values and of rows (`specs`), from those of sequences, first and captured values."""
        x, part = self.operands, self.part
        flags = _given(given.xs), _given(given.carries), _given(given.captured)
        moving, rows = _moving_carries(part, *flags)
        advance, back = self._graphs(flags[0], moving, flags[2], rows)
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
            results = bind(pull_rounds, operands, params, graphs)
            first = dict(zip([i for i, on in enumerate(moving) if on], results, strict=False))
            ct_first = [first[i] for i, on in enumerate(flags[1]) if on]
            return [*results[len(ct_carries) + len(sums) :], *ct_first, *results[len(ct_carries) : len(ct_carries) + len(sums)]]

        seeds = [t for t in (*given.xs, *given.carries, *given.captured) if t is not None]
        return _fill(apply_pull_only(pull, seeds, wanted), (*moving, *rows))

    def _graphs(self, xs: Flags, carries: Flags, captured: Flags, rows: Flags) -> tuple[Staged, Staged]:
        """A round, and its pull-back: (round, elements, cotangents of rows, carried, cotangents, sums, captured values)."""
        part = self.part
        elements, held = part.specs[1 : 1 + part.xs], part.specs[1 + part.xs + part.carries :]
        carried = part.specs[1 + part.xs : 1 + part.xs + part.carries]
        active = (False, *xs, *carries, *captured)

        def forward(*values: Any) -> Sequence[Any]:
            return part.run(*values)[part.first : part.first + part.carries]

        advance = stage(forward, part.specs, name="round")
        row_specs: list[TensorSpec] = []

        def probe(*values: Any) -> Sequence[Any]:
            outputs = part.run(*values)
            row_specs.extend(spec_of(y) for y in outputs[part.first + part.carries :])
            return outputs

        stage(probe, part.specs)
        ct_rows = list(compress(row_specs, rows))

        def back(step: Any, *values: Any) -> list[Any]:
            rest = iter(values)
            x, ct_y = [next(rest) for _ in elements], [next(rest) for _ in ct_rows]
            state, ct = [next(rest) for _ in carried], [next(rest) for _ in range(sum(carries))]
            sums, fixed = [next(rest) for _ in range(sum(captured))], list(rest)
            _, linear = run_linearize(part.run, [step, *x, *state, *fixed], active)
            known = dict(zip([i for i, on in enumerate((*carries, *rows)) if on], (*ct, *ct_y), strict=True))
            cts = [known.get(i - part.first) for i, on in enumerate(linear.nonzero) if on]
            found = transpose_graph(linear.staged.graph, sum(active), linear.staged.captured, cts)
            filled = [zeros(s) if v is None else v for v, s in zip(found, linear.input_specs, strict=True)]
            a, b = sum(xs), sum(xs) + sum(carries)
            return [*filled[a:b], *(add_tangents(s, v) for s, v in zip(sums, filled[b:], strict=True)), *filled[:a]]

        specs = [*elements, *ct_rows, *carried, *compress(carried, carries), *compress(held, captured), *held]
        return advance, stage(back, [ROUND, *specs], name="round back")


# -- scan --------------------------------------------------------------------------------------------------------------


def _scan_round(graph: Graph, xs: int, carries: int) -> _Round:
    return _Round(lambda *values: graph.evaluate(values), graph.input_specs, xs, carries)


def _scan_linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], xs: int, carries: int, length: int | None,
    reverse: bool = False, handle: tuple[int, ...] = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    x, t = _ScanParts.of(primals, xs, carries, length), _ScanParts.of(tangents, xs, carries, length)
    if checkpoint is not None:
        params = {"xs": xs, "carries": carries, "length": length, "reverse": reverse, "checkpoint": checkpoint}
        outputs = list(bind(scan, primals, params, graphs))
        loop = Replay(_scan_round(graphs[0], xs, carries), x, length, reverse, checkpoint)
        return outputs, tuple(loop.tangents(t, [y.spec for y in outputs]))
    lin = linearize_round(_scan_round(graphs[0], xs, carries), _given(t.xs), _given(t.carries), _given(t.captured))
    params = {"length": length, "reverse": reverse, "handle": handle, "tangents_only": tangents_only}
    widened = [*primals, *lin.captured[: len(lin.forward.inputs) - len(graphs[0].inputs)]]
    outputs = list(bind(scan, widened, {**params, "xs": xs, "carries": carries}, (lin.forward,)))
    own, kept = outputs[: len(graphs[0].outputs)], outputs[len(graphs[0].outputs) :]
    moved = _linear_scan(
        lin, x.length, kept, x.xs, x.captured, [v for v in t.xs if v is not None], _seeds(x.carries, t.carries, lin.carries),
        [v for v in t.captured if v is not None], params,
    )  # fmt: skip
    return own, tuple(_fill(moved, (*lin.carries, *lin.rows)))


def _scan_push(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], xs: int, carries: int, length: int | None,
    reverse: bool = False, handle: tuple[int, ...] = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    graph = graphs[0]
    x, t = _ScanParts.of(primals, xs, carries, length), _ScanParts.of(tangents, xs, carries, length)
    part = _scan_round(graph, xs, carries)
    flags = _given(t.xs), _given(t.carries), _given(t.captured)
    moving, rows = _moving_carries(part, *flags)
    kinds = (flags[0], moving, flags[2])

    def run(step: Any, *values: Any) -> list[Any]:
        outputs, moved = run_jvp(part.run, *_interleave(step, values, (xs, carries, part.captures), kinds))
        filled = _filled(outputs[:carries], moved[:carries], moving)
        wanted = [v for v, on in zip(moved[carries:], rows, strict=True) if on]
        return [*outputs[:carries], *filled, *outputs[carries:], *wanted]

    given = [v for v in t.xs if v is not None], _seeds(x.carries, t.carries, moving), [v for v in t.captured if v is not None]
    specs = _doubled_specs(graph.input_specs, (xs, carries, part.captures), kinds)
    staged = stage(run, [ROUND, *specs], name=graph.name)
    operands = [*x.length, *x.xs, *given[0], *x.carries, *given[1], *x.captured, *given[2], *staged.captured]
    params = {"xs": xs + len(given[0]), "carries": carries + len(given[1]), "length": length, "reverse": reverse, "handle": handle}
    params |= {"tangents_only": tangents_only, "checkpoint": checkpoint}
    results = list(bind(scan, operands, params, (staged.graph,)))
    return _separate(results, carries, moving, len(graph.outputs) - carries, rows)


def _separate(results: list[Any], carries: int, moving: Flags, rows: int, moved_rows: Flags) -> tuple[list[Any], Tangents]:
    """Outputs and tangents of a loop that yields (carried, their tangents, rows, their tangents)."""
    at = carries + sum(moving)
    outputs = [*results[:carries], *results[at : at + rows]]
    return outputs, (*_fill(results[carries:at], moving), *_fill(results[at + rows :], moved_rows))


def _doubled_specs(specs: Sequence[TensorSpec], counts: Sequence[int], kinds: Sequence[Flags]) -> list[TensorSpec]:
    """Specs of each group of inputs followed by those of its tangents."""
    result, at = [], 1
    for count, flags in zip(counts, kinds, strict=True):
        group = specs[at : at + count]
        result += [*group, *compress(group, flags)]
        at += count
    return result


def _interleave(step: Any, values: Sequence[Any], counts: Sequence[int], kinds: Sequence[Flags]) -> tuple[list[Any], list[Any]]:
    """(primals, tangents) of a round from groups of values, each followed by its tangents."""
    primals, tangents, rest = [step], [None], iter(values)
    for count, flags in zip(counts, kinds, strict=True):
        primals += [next(rest) for _ in range(count)]
        tangents += [next(rest) if on else None for on in flags]
    return primals, tangents


def _filled(outputs: Sequence[Any], moved: Sequence[Any], flags: Flags) -> list[Any]:
    """The tangents that `flags` marks, zeros where a round gives none."""
    return [zeros(spec_of(p)) if t is None else t for p, t, on in zip(outputs, moved, flags, strict=True) if on]


def _scan_transpose(
    cotangents: Cotangents, operands: tuple[Any, ...], graphs: tuple[Graph, ...], xs: int, carries: int, length: int | None,
    reverse: bool = False, handle: tuple[int, ...] = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> Tangents:  # fmt: skip
    graph, parts = graphs[0], _ScanParts.of(operands, xs, carries, length)
    if not tangents_only and not all(isinstance(x, Linear) for x in parts.carries):
        raise user_error(
            UnsupportedError, "scan", "only some of the carried values depend linearly on the input, so it cannot be run backwards.",
            fix="carry only values that are linear in the input; capture the others.",
        )  # fmt: skip
    x_on, c_on = (tuple(isinstance(x, Linear) for x in group) for group in (parts.xs, parts.captured))
    flags = (False, *x_on, *(True,) * carries, *c_on)
    linear = [s for s, on in zip(graph.inputs, flags, strict=True) if on]
    others = [s for s, on in zip(graph.inputs, flags, strict=True) if not on]
    ordered = graph.update(inputs=(*linear, *others))
    reads, fixed = [x for x in parts.xs if not isinstance(x, Linear)], [x for x in parts.captured if not isinstance(x, Linear)]
    rows = len(graph.outputs) - carries

    def run(step: Any, *values: Any) -> list[Any]:
        rest = iter(values)
        known_xs, ct_rows = [next(rest) for _ in reads], [next(rest) for _ in range(rows)]
        ct_carries, sums = [next(rest) for _ in range(carries)], [next(rest) for _ in range(sum(c_on))]
        found = transpose_graph(ordered, len(linear), [step, *known_xs, *rest], [*ct_carries, *ct_rows])
        filled = [zeros(s.spec) if ct is None else ct for s, ct in zip(linear, found, strict=True)]
        n = sum(x_on)
        totals = [s if ct is None else add_tangents(s, ct) for s, ct in zip(sums, found[n + carries :], strict=True)]
        return [*filled[n : n + carries], *totals, *filled[:n]]

    held = [s.spec for s in graph.inputs[1 + xs + carries :]]
    specs = [*(s.spec for s, on in zip(graph.inputs[1 : 1 + xs], x_on, strict=True) if not on), *graph.output_specs[carries:]]
    specs += [*graph.output_specs[:carries], *compress(held, c_on), *(s for s, on in zip(held, c_on, strict=True) if not on)]
    staged = stage(run, [ROUND, *specs], name=f"transposed {graph.name}")
    sums = [zeros(spec) for spec in compress(held, c_on)]
    given = [*parts.length, *reads, *cotangents[carries:], *cotangents[:carries], *sums, *fixed, *staged.captured]
    params = {"xs": len(reads) + rows, "carries": carries + len(sums), "length": length, "reverse": not reverse, "handle": handle}
    params["tangents_only"] = True
    results = list(bind(scan, given, params, (staged.graph,)))
    ct_xs = _fill(results[carries + len(sums) :], x_on)
    nothing = [None] * len(parts.length)
    return (*nothing, *ct_xs, *results[:carries], *_fill(results[carries : carries + len(sums)], c_on))


def _scan_batch(
    size: int, operands: tuple[Value, ...], batched: Flags, graphs: tuple[Graph, ...], xs: int, carries: int, length: int | None,
    reverse: bool = False, handle: tuple[int, ...] = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> tuple[tuple[Value, ...], Flags]:  # fmt: skip
    graph, x, b = graphs[0], _ScanParts.of(operands, xs, carries, length), _ScanParts.of(batched, xs, carries, length)
    per_row = length is None and bool(b.length[0])
    counts = [x.length[0]] if per_row else []
    flags = tuple(bool(f) or per_row for f in b.carries)
    flags = _batched_carries(lambda *v: graph.evaluate(v), size, graph.input_specs, tuple(map(bool, b.xs)), flags, tuple(map(bool, b.captured)))
    box: list[Flags] = []

    def run(step: Any, *values: Any) -> list[Any]:
        own = values[: len(values) - len(counts)]
        every = (False, *map(bool, b.xs), *flags, *map(bool, b.captured))
        outputs, found = run_batched(lambda *v: graph.evaluate(v), size, [step, *own], every)
        carried = [lead(size, y, f) if on else y for y, f, on in zip(outputs[:carries], found, flags, strict=False)]
        together = any(found[carries:]) and length is None
        rows = [lead(size, y, f) if per_row or together else y for y, f in zip(outputs[carries:], found[carries:], strict=True)]
        box.append(tuple(f or per_row or together for f in found[carries:]))
        if per_row:
            running = less(broadcast_to(step, shape=(size,)), values[-1])
            carried = [choose_rows(running, new, old) for new, old in zip(carried, own[xs : xs + carries], strict=True)]
            rows = [choose_rows(running, row, full_like(row, 0)) for row in rows]
        return [*carried, *rows]

    def row_spec(spec: TensorSpec, on: bool) -> TensorSpec:
        return spec.update(shape=(size, *spec.shape)) if on else spec

    every = (False, *map(bool, b.xs), *flags, *map(bool, b.captured))
    specs = [row_spec(s, on) for s, on in zip(graph.input_specs, every, strict=True)]
    staged = stage(run, [*specs, *(TensorSpec((size,), dtypes.int64) for _ in counts)], name=graph.name)
    sequences = [rows_first(v) if on and length is not None else v for v, on in zip(x.xs, b.xs, strict=True)]
    carried = [lead(size, v, bool(o)) if on else v for v, o, on in zip(x.carries, b.carries, flags, strict=True)]
    longest = [reduce_max(counts[0], axes=(0,)) if per_row else x.length[0]] if length is None else []
    row_flags = box[-1]
    inner = (size, *handle) if any(row_flags) else handle
    params = {"xs": xs, "carries": carries, "length": length, "reverse": reverse, "handle": inner if length is None else ()}
    params |= {"tangents_only": tangents_only, "checkpoint": checkpoint}
    results = list(bind(scan, [*longest, *sequences, *carried, *x.captured, *counts, *staged.captured], params, (staged.graph,)))
    if length is not None:
        results[carries:] = [rows_first(y) if on else y for y, on in zip(results[carries:], row_flags, strict=True)]
    return tuple(results), (*flags, *row_flags)


def choose_rows(rows: Value, new: Value, old: Value) -> Value:
    """`new` in the rows that are marked, `old` elsewhere; tapes, which have no rows to choose from, stay as they are."""
    if new.spec.dtype == TAPE:
        return new
    mask = broadcast_to(rows, shape=new.spec.shape, axes=(0,)) if new.spec.ndim > 1 else rows
    return select(mask, new, old)


def rows_first(x: Value) -> Value:
    """The first two axes swapped."""
    return transpose(x, permutation=(1, 0, *range(2, x.spec.ndim)))


def _batched_carries(run: Flat, size: int, specs: Sequence[TensorSpec], xs: Flags, carries: Flags, captured: Flags) -> Flags:
    """Which carried values have the batch axis in some round: the least fixed point."""
    while True:
        every = (False, *xs, *carries, *captured)
        found: list[Flags] = []

        def probe(*values: Any, every: Flags = every, found: list[Flags] = found) -> list[Any]:
            outputs, flags = run_batched(run, size, values, every)
            found.append(tuple(flags))
            return outputs

        stage(probe, [s.update(shape=(size, *s.shape)) if on else s for s, on in zip(specs, every, strict=True)])
        following = tuple(a or b for a, b in zip(carries, found[0], strict=False))
        if following == carries:
            return carries
        carries = following


derivative.set(scan, Derivative(transpose=_scan_transpose, push=_scan_push, linearize=_scan_linearize))
batch.set(scan, _scan_batch)

# -- while -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _WhileParts:
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
        head, tail = split_round(graph, carries, before, exits)
        return cls(head, tail, graph.input_specs, carries, exits, tapes)

    def round(self, with_exits: bool) -> _Round:
        """(condition, [exits,] carried values, tape rows) of a round, noting where the test stands."""
        at: list[int] = []

        def run(*values: Any) -> list[Any]:
            condition, *known = self.head.evaluate(values)
            at.append(nodes_so_far())
            first = [condition, *(known[: self.exits] if with_exits else [])]
            return [*first, *self.tail.evaluate([*values, *known[self.exits :]])]

        first = 1 + (self.exits if with_exits else 0)
        return _Round(run, self.specs, 0, self.carries, first, lambda: at[-1])

    def leave(self, *values: Any) -> list[Any]:
        """The exits of a round that is left at its test."""
        return self.head.evaluate(values)[1 : 1 + self.exits]


def _while_linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handle: tuple[int, ...] = (), checkpoint: str | int | None = None,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    parts = _WhileParts.of(graphs[0], carries, before, tapes)
    if checkpoint is not None:
        return _while_replayed(primals, tangents, graphs, parts, before, max_steps, checkpoint)
    flags = _given(tangents[:carries]), _given(tangents[carries:])
    lin = linearize_round(parts.round(True), (), *flags)
    forward = lin.forward
    n, first = len(forward.outputs), 1 + parts.exits
    reordered = forward.update(
        outputs=(forward.outputs[0], *forward.outputs[first : first + carries], *forward.outputs[1:first], *forward.outputs[first + carries :])
    )
    widened = [*primals, *lin.captured[: len(forward.inputs) - len(graphs[0].inputs)]]
    params = {"carries": carries, "before": lin.before, "tapes": tapes + lin.kept, "max_steps": max_steps, "handle": handle}
    results = list(bind(while_, widened, params, (reordered,)))
    del n
    own = results[: carries + parts.exits + 1 + tapes]
    kept, rounds = results[len(own) :], own[carries + parts.exits]
    t_captured = [t for t in tangents[carries:] if t is not None]
    moved = _linear_scan(
        lin, [rounds], kept, (), primals[carries:], (), _seeds(primals[:carries], tangents[:carries], lin.carries), t_captured,
        {"length": None, "reverse": False, "handle": handle},
    )  # fmt: skip
    t_carries, t_rows = _fill(moved[: sum(lin.carries)], lin.carries), _fill(moved[sum(lin.carries) :], lin.rows)
    t_exits = _exit_tangents(parts, rounds, own[:carries], primals[carries:], t_carries, tangents[carries:])
    return own, (*t_carries, *t_exits, None, *t_rows)


def _while_replayed(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], parts: _WhileParts, before: int,
    max_steps: int | None, checkpoint: str | int,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    n = parts.carries
    params = {"carries": n, "before": before, "max_steps": max_steps, "checkpoint": checkpoint}
    outputs = list(bind(while_, primals, params, graphs))
    rounds = outputs[n + parts.exits]
    operands = _ScanParts([rounds], (), primals[:n], primals[n:])
    loop = Replay(parts.round(False), operands, None, False, checkpoint)
    t_carries = loop.tangents(_ScanParts([], (), tangents[:n], tangents[n:]), [y.spec for y in outputs[:n]])
    t_exits = _exit_tangents(parts, rounds, outputs[:n], primals[n:], t_carries, tangents[n:])
    return outputs, (*t_carries, *t_exits, None)


def _exit_tangents(
    parts: _WhileParts, rounds: Any, carried: Sequence[Any], captured: Sequence[Any], t_carries: Sequence[Any], t_captured: Sequence[Any]
) -> list[Any]:
    """Tangents of what the last, unfinished round yields, at the final carried values."""
    if not parts.exits:
        return []
    tangents = [None, *t_carries, *t_captured]
    _, linear = run_linearize(parts.leave, [rounds, *carried, *captured], _given(tangents))
    moved = push_graph(linear.staged.graph, [*(t for t in tangents if t is not None), *linear.staged.captured])
    return _fill(moved, linear.nonzero)


def _while_push(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handle: tuple[int, ...] = (), checkpoint: str | int | None = None,
) -> tuple[list[Value], Tangents]:  # fmt: skip
    parts = _WhileParts.of(graphs[0], carries, before, tapes)
    flags = _given(tangents[:carries]), _given(tangents[carries:])
    part = parts.round(False)
    moving, rows = _moving_carries(part, (), *flags)
    kinds, counts = (moving, flags[1]), (carries, part.captures)
    box: list[Any] = []

    def run(step: Any, *values: Any) -> list[Any]:
        values, directions = _interleave(step, values, counts, kinds)
        known, t_known = run_jvp(lambda *v: parts.head.evaluate(v), values, directions)
        box[:] = [nodes_so_far(), [t is not None for t in t_known[1 : 1 + parts.exits]]]
        first = 1 + parts.exits
        handed = [*values, *known[first:]], [*directions, *t_known[first:]]
        outputs, moved = run_jvp(lambda *v: parts.tail.evaluate(v), *handed)
        filled = _filled(outputs[:carries], moved[:carries], moving)
        exits = [*known[1 : 1 + parts.exits], *(t for t in t_known[1 : 1 + parts.exits] if t is not None)]
        return [known[0], *outputs[:carries], *filled, *exits, *outputs[carries:], *compress(moved[carries:], rows)]

    staged = stage(run, [ROUND, *_doubled_specs(graphs[0].input_specs, counts, kinds)], name=graphs[0].name)
    seeds, t_captured = _seeds(primals[:carries], tangents[:carries], moving), [t for t in tangents[carries:] if t is not None]
    operands = [*primals[:carries], *seeds, *primals[carries:], *t_captured, *staged.captured]
    params = {"carries": carries + len(seeds), "before": box[0], "tapes": tapes + sum(rows), "max_steps": max_steps, "handle": handle}
    params["checkpoint"] = checkpoint
    results = list(bind(while_, operands, params, (staged.graph,)))
    at, moved_exits = carries + len(seeds), tuple(box[1])
    after = at + parts.exits + sum(moved_exits)
    outputs = [*results[:carries], *results[at : at + parts.exits], *results[after : after + 1 + tapes]]
    t_exits = _fill(results[at + parts.exits : after], moved_exits)
    return outputs, (*_fill(results[carries:at], moving), *t_exits, None, *_fill(results[after + 1 + tapes :], rows))


def _while_batch(
    size: int, operands: tuple[Value, ...], batched: Flags, graphs: tuple[Graph, ...], carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handle: tuple[int, ...] = (), checkpoint: str | int | None = None,
) -> tuple[tuple[Value, ...], Flags]:  # fmt: skip
    """Where the condition is batched, rounds go on until all rows are done; rows that are done stay as they are."""
    parts, own = _WhileParts.of(graphs[0], carries, before, tapes), graphs[0]
    flags, captured = tuple(batched[:carries]), tuple(batched[carries:])
    per_row = False
    while True:
        flags = _batched_carries(lambda *v: own.evaluate(v)[1 : 1 + carries], size, own.input_specs, (), flags, captured)
        if per_row or not _condition_is_batched(parts, size, (False, *flags, *captured)):
            break
        per_row, flags = True, (True,) * carries
    box: list[Any] = []

    def run(step: Any, *values: Any) -> list[Any]:
        counts, rest = ([values[carries]], values[carries + 1 :]) if per_row else ([], values[carries:])
        carried = values[:carries]
        every = (per_row, *flags, *captured)
        first = [*(counts or [step]), *carried, *rest]
        known, found = run_batched(lambda *v: parts.head.evaluate(v), size, first, every)
        condition = reduce_or(known[0], axes=(0,)) if per_row else known[0]
        exits = [lead(size, y, f) for y, f in zip(known[1 : 1 + parts.exits], found[1:], strict=False)]
        at = nodes_so_far()
        handed = [*first, *known[1 + parts.exits :]], [*every, *found[1 + parts.exits :]]
        outputs, out_flags = run_batched(lambda *v: parts.tail.evaluate(v), size, *handed)
        following = [lead(size, y, f) if on else y for y, f, on in zip(outputs[:carries], out_flags, flags, strict=False)]
        if per_row:
            following = [choose_rows(known[0], new, old) for new, old in zip(following, carried, strict=True)]
            following.append(add(counts[0], convert(known[0], dtype=dtypes.int64)))
        together = per_row or any(out_flags[carries:])
        rows = [lead(size, y, f) if together else y for y, f in zip(outputs[carries:], out_flags[carries:], strict=True)]
        box[:] = [at, together]
        return [condition, *following, *exits, *rows]

    def row_spec(spec: TensorSpec, on: bool) -> TensorSpec:
        return spec.update(shape=(size, *spec.shape)) if on else spec

    counter = TensorSpec((size,), dtypes.int64)
    specs = [row_spec(s, on) for s, on in zip(own.input_specs, (False, *flags, *captured), strict=True)]
    staged = stage(run, [*specs[: 1 + carries], *([counter] if per_row else []), *specs[1 + carries :]], name=own.name)
    carried = [lead(size, v, o) if on else v for v, o, on in zip(operands[:carries], batched, flags, strict=False)]
    start = [*carried, *([zeros(counter)] if per_row else [])]
    params = {
        "carries": len(start), "before": box[0], "tapes": tapes, "max_steps": max_steps,
        "handle": (size, *handle) if box[1] and tapes else handle, "checkpoint": checkpoint,
    }  # fmt: skip
    results = list(bind(while_, [*start, *operands[carries:], *staged.captured], params, (staged.graph,)))
    n = len(start)
    rounds = results[carries] if per_row else results[n + parts.exits]
    outputs = (*results[:carries], *results[n : n + parts.exits], rounds, *results[n + parts.exits + 1 :])
    return outputs, (*flags, *(True,) * parts.exits, per_row, *(box[1],) * tapes)


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

