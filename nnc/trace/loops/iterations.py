"""A loop's iteration, linearised once and abstractly; and the bookkeeping that `while` and `scan` share.

The forward part of a linearised iteration runs in the loop and yields, besides the iteration's own outputs, rows for the linear
part to read. Only values that depend on carried ones are kept so: elements of sequences are read again, and values that depend on
captured values alone are recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from nnc.array.array import as_value
from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.dtypes import TAPE
from nnc.commands.constants import iota
from nnc.commands.elementwise import convert, equal, select
from nnc.commands.index import dynamic_slice
from nnc.commands.loop import ITERATION, case_of, scan
from nnc.commands.reduce import argmax
from nnc.commands.roles import take_loop
from nnc.commands.rules import may_raise, zeros
from nnc.commands.shape import broadcast_to, transpose
from nnc.commands.tape import Handles, merge_tapes, spread_tape, sum_tape, tape_handles
from nnc.graph import Graph, Symbol, TensorSpec, bind, spec_of
from nnc.graph.registry import effect
from nnc.graph.rules import Tangents, Value
from nnc.trace.core.backward import fill as fill
from nnc.trace.core.backward import push_graph
from nnc.trace.core.dual import run_linearize
from nnc.trace.core.staging import Staged, stage

Flat = Callable[..., Sequence[Any]]
Flags = tuple[bool, ...]


def nodes_so_far() -> int:
    """Returns the number of nodes of the graph being staged: the place of the test of a `while`."""
    return int(get_context().staging.builder.num_nodes)


def prune(graph: Graph, keep: Sequence[int]) -> Graph:
    """Returns the graph with only these outputs and the nodes that they need."""
    return graph.restrict(tuple(graph.outputs[i] for i in keep))


def spread(found: Flags, flags: Flags) -> Flags:
    """`found` at the places that `flags` marks, False elsewhere."""
    rest = iter(found)
    return tuple(flag and next(rest) for flag in flags)


def both(x: Flags, y: Flags) -> Flags:
    """Returns the places that both mark."""
    return tuple(a and b for a, b in zip(x, y, strict=True))


# -- an iteration, linearised -----------------------------------------------------------------------------------------------


class Linearization(NamedTuple):
    """An iteration, linearised.

    `forward` yields the iteration's outputs and then rows to keep; it takes `captured` besides the iteration's inputs. `linear` is
    the linear part for `scan`: (iteration, kept rows, elements read again, tangents of elements, tangents of carried values,
    `shared`, tangents of captured values) -> tangents of carried values and of rows. `again` are the sequences whose elements it
    reads again, `shared` the captured values that it needs, by position among the iteration's captured values and `captured`.
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


class Iteration(NamedTuple):
    """An iteration's function and the parts of its inputs and outputs.

    `function(*inputs)` yields the first results (a condition), carried values, rows. `mark()` gives the node count at the test.
    """

    function: Flat
    specs: tuple[TensorSpec, ...]
    xs: int
    carries: int
    first: int = 0
    mark: Callable[[], int] = lambda: 0

    @property
    def captures(self) -> int:
        """The number of captured values."""
        return len(self.specs) - 1 - self.xs - self.carries


def moving_carries(part: Iteration, xs: Flags, carries: Flags, captured: Flags) -> tuple[Flags, Flags]:
    """Returns which carried values and rows get tangents in some iteration: the least fixed point."""
    while True:
        active = (False, *xs, *carries, *captured)
        found: list[Flags] = []

        def probe(*values: Any, active: Flags = active, found: list[Flags] = found) -> list[Any]:
            outputs, linear = run_linearize(part.function, values, active)
            found.append(linear.nonzero[part.first :])
            return outputs

        stage(probe, part.specs)
        following = tuple(a or b for a, b in zip(carries, found[0][: part.carries], strict=True))
        if following == carries:
            return carries, found[0][part.carries :]
        carries = following


def linearize_iteration(
    part: Iteration, xs: Flags, carries: Flags, captured: Flags, forward: bool = False
) -> Linearization:
    """Linearises an iteration in the inputs that are marked; `forward` as for `run_linearize`."""
    box: list[tuple[int, Flags, Graph]] = []

    def forward_body(*values: Any) -> list[Any]:
        outputs, linear = run_linearize(part.function, values, (False, *xs, *carries, *captured), forward)
        at = [i for i, kept in enumerate(linear.nonzero) if kept]
        graph = prune(linear.staged.graph, [k for k, i in enumerate(at) if i >= part.first])
        reads = graph.reads
        hidden = zip(graph.inputs[len(linear.input_specs) :], linear.staged.captured, strict=True)
        residuals = [(s, v) for s, v in hidden if s in reads]
        inputs = (*graph.inputs[: len(linear.input_specs)], *(s for s, _ in residuals))
        box[:] = [(part.mark(), linear.nonzero[part.first :], graph.update(inputs=inputs))]
        return [*outputs, *(v for _, v in residuals)]

    while True:  # until no carried value is found to have a tangent, mostly once: nested loops are linearised each time
        staged = stage(forward_body, part.specs, name="iteration")
        before, nonzero, linear = box[0]
        following = tuple(a or b for a, b in zip(carries, nonzero[: part.carries], strict=True))
        if following == carries:
            break
        carries = following
    moving = Moving(xs, carries, nonzero[part.carries :], captured)
    count = part.first + len(nonzero)
    residuals = staged.graph.outputs[count:]
    known = staged.graph.update(outputs=staged.graph.outputs[:count])
    sources = _sort(part, known, residuals)
    body = _linear_body(part, known, sources, residuals, linear, nonzero, moving)
    held = len(known.inputs) - 1 - part.xs - part.carries
    extra = tuple(range(held, held + len(body.captured)))
    return Linearization(
        forward=known.update(outputs=(*known.outputs, *sources.kept)),
        before=before,
        kept=len(sources.kept),
        captured=(*staged.captured, *body.captured),
        linear=_captures_as_shared(body, sum(captured)),
        again=sources.again,
        shared=(*sources.shared, *extra),
        carries=moving.carries,
        rows=moving.rows,
    )


class Moving(NamedTuple):
    """The inputs and rows of an iteration that have tangents."""

    xs: Flags
    carries: Flags
    rows: Flags
    captured: Flags


class _Sources(NamedTuple):
    """The sources of the linear part's residuals: kept rows, sequences read again (by position), or `compute`, a graph of the
    iteration's number and the captured values `shared` (by position) that yields `fixed`.
    """

    kept: tuple[Symbol, ...]
    again: tuple[int, ...]
    fixed: tuple[Symbol, ...]
    shared: tuple[int, ...]
    compute: Graph


def _sort(part: Iteration, forward: Graph, residuals: tuple[Symbol, ...]) -> _Sources:
    inputs = forward.inputs
    elements, held = inputs[1 : 1 + part.xs], inputs[1 + part.xs + part.carries :]
    varying = set(inputs[1 : 1 + part.xs + part.carries])
    for node in forward.nodes:
        if not varying.isdisjoint(node.inputs):
            varying.update(node.outputs)
    fixed = tuple(dict.fromkeys(s for s in residuals if s not in varying))
    compute = prune(forward.update(outputs=fixed), range(len(fixed)))
    needed = {s for node in compute.nodes for s in node.inputs} | set(fixed)
    shared = tuple(i for i, s in enumerate(held) if s in needed)
    return _Sources(
        kept=tuple(dict.fromkeys(s for s in residuals if s in varying and s not in elements)),
        again=tuple(i for i, s in enumerate(elements) if s in residuals),
        fixed=fixed,
        shared=shared,
        compute=compute.update(inputs=(inputs[0], *(held[i] for i in shared))),
    )


def _linear_body(
    part: Iteration,
    forward: Graph,
    sources: _Sources,
    residuals: tuple[Symbol, ...],
    linear: Graph,
    nonzero: Flags,
    moving: Moving,
) -> Staged:
    """Returns the iteration of the linear `scan`; see `Linearization.linear` for its inputs."""
    inputs = forward.inputs
    elements, held = inputs[1 : 1 + part.xs], inputs[1 + part.xs + part.carries :]
    carried = list(compress((s.spec for s in inputs[1 + part.xs : 1 + part.xs + part.carries]), moving.carries))
    moved = [i for i, on in enumerate(nonzero) if on]

    def body(step: Any, *values: Any) -> list[Any]:
        rest = iter(values)
        known = {s: next(rest) for s in (*sources.kept, *(elements[i] for i in sources.again))}
        tangents = [next(rest) for _ in range(sum(moving.xs) + sum(moving.carries))]
        shared = [next(rest) for _ in sources.shared]
        known.update(zip(sources.fixed, sources.compute.evaluate([step, *shared]), strict=True))
        results = push_graph(linear, [*tangents, *rest, *(known[s] for s in residuals)])
        found = dict(zip(moved, results, strict=True))
        following = compress((found.get(i) for i in range(part.carries)), moving.carries)
        filled = [zeros(spec) if t is None else t for spec, t in zip(carried, following, strict=True)]
        return [*filled, *(found[part.carries + i] for i, on in enumerate(moving.rows) if on)]

    specs = [s.spec for s in sources.kept] + [elements[i].spec for i in sources.again]
    specs += [*compress((s.spec for s in elements), moving.xs), *carried, *(held[i].spec for i in sources.shared)]
    specs += compress((s.spec for s in held[: part.captures]), moving.captured)
    return stage(body, [ITERATION, *specs], name="linear iteration", linear=True)


def _captures_as_shared(body: Staged, tangents: int) -> Graph:
    """Returns the linear iteration with its captured values among the shared inputs, before the tangents of captured values."""
    explicit, hidden = body.graph.inputs[: body.num_explicit], body.graph.inputs[body.num_explicit :]
    at = len(explicit) - tangents
    return body.graph.update(inputs=(*explicit[:at], *hidden, *explicit[at:]))


# -- tangents of groups of values ---------------------------------------------------------------------------------------


def seeds_for(primals: Sequence[Any], tangents: Sequence[Any], flags: Flags) -> list[Any]:
    """Tangents of the values that move in some iteration: zeros for values that do not at first."""
    return [zeros(spec_of(p)) if t is None else t for p, t, on in zip(primals, tangents, flags, strict=True) if on]


def flags_of(tangents: Sequence[Any]) -> Flags:
    """Returns which tangents are not zero by construction."""
    return tuple(t is not None for t in tangents)


def separate(
    results: list[Any], carries: int, moving: Flags, rows: int, moved_rows: Flags
) -> tuple[list[Any], Tangents]:
    """Outputs and tangents of a loop that yields (carried, their tangents, rows, their tangents)."""
    at = carries + sum(moving)
    outputs = [*results[:carries], *results[at : at + rows]]
    return outputs, (*fill(results[carries:at], moving), *fill(results[at + rows :], moved_rows))


def doubled_specs(specs: Sequence[TensorSpec], counts: Sequence[int], kinds: Sequence[Flags]) -> list[TensorSpec]:
    """Specs of each group of inputs followed by the specs of its tangents."""
    result, at = [], 1
    for count, flags in zip(counts, kinds, strict=True):
        group = specs[at : at + count]
        result += [*group, *compress(group, flags)]
        at += count
    return result


def interleave(
    step: Any, values: Sequence[Any], counts: Sequence[int], kinds: Sequence[Flags]
) -> tuple[list[Any], list[Any]]:
    """(primals, tangents) of an iteration from groups of values, each followed by its tangents."""
    primals, tangents, rest = [step], [None], iter(values)
    for count, flags in zip(counts, kinds, strict=True):
        primals += [next(rest) for _ in range(count)]
        tangents += [next(rest) if on else None for on in flags]
    return primals, tangents


def fill_zeros(outputs: Sequence[Any], moved: Sequence[Any], flags: Flags) -> list[Any]:
    """Returns the tangents that `flags` marks, zeros where an iteration gives none."""
    return [zeros(spec_of(p)) if t is None else t for p, t, on in zip(outputs, moved, flags, strict=True) if on]


# -- batches of iterations -------------------------------------------------------------------------------------------------


def batched_handles(size: int, handles: Handles, batched: Sequence[bool]) -> Handles:
    """Returns the handles of tapes, some of which have the batch axis now."""
    old = handles or ((),) * len(batched)
    return tape_handles((size, *handle) if on else handle for handle, on in zip(old, batched, strict=True))


def choose_rows(rows: Value, new: Value, old: Value) -> Value:
    """`new` in the rows that are marked, `old` elsewhere; tapes are merged row by row."""
    if new.spec.dtype == TAPE:
        return merge_tapes(rows, new, old)
    mask = broadcast_to(rows, shape=new.spec.shape, axes=(0,)) if new.spec.ndim > 1 else rows
    return select(mask, new, old)


def is_for_own_rows(graph: Graph) -> bool:
    """Whether rows that have no part in the graph must not be given to it: a command may raise, or a loop may not end for them."""
    return any(may_raise(node) or take_loop(node) is not None for node in graph.walk())


def has_effects(graph: Graph) -> bool:
    """Whether the graph calls Python, which rows that have no part in it must not do."""
    return any(effect.get(node.command, None) in ("host", "debug") for node in graph.walk())


def run_rows(size: int, index: Value, values: Sequence[Value], batched: Flags, graphs: Sequence[Graph]) -> list[Value]:
    """Computes the results of one graph for each row, one row after the other; all results have the batch axis.

    Args:
        index: for each row, the number of the graph to run.
        values: the operands of the graphs.
        batched: which operands have the batch axis.
        graphs: the graphs; all take these operands, and have results of the same specs.
    """
    elements, shared = list(compress(values, batched)), [x for x, on in zip(values, batched, strict=True) if not on]

    def body(_: Any, chosen: Any, *parts: Any) -> Sequence[Any]:
        own, others = iter(parts[: len(elements)]), iter(parts[len(elements) :])
        operands = [next(own) if on else next(others) for on in batched]
        return bind(case_of, [chosen, *operands], {"checked": False}, tuple(graphs))

    row = lambda x: spec_of(x).update(shape=spec_of(x).shape[1:])
    staged = stage(body, [ITERATION, *map(row, [index, *elements]), *map(spec_of, shared)], name="row")
    params = {"xs": 1 + len(elements), "carries": 0, "length": size, "reverse": False, "checkpoint": None}
    return list(bind(scan, [index, *elements, *shared, *staged.captured], params, (staged.graph,)))


def in_place_of_others(rows: Value, values: Sequence[Value], batched: Sequence[bool]) -> list[Value]:
    """Batched values with the first marked row in place of the rows that are not marked; some row must be.

    So a command that runs for all rows, though it is for the marked ones, raises only where it does for one of these.
    """
    if not rows.spec.size:
        return list(values)
    first = convert(argmax(rows, axis=0), dtype=dtypes.int64)
    return [_repeat_row(rows, first, x) if on else x for x, on in zip(values, batched, strict=True)]


def _repeat_row(rows: Value, first: Value, x: Value) -> Value:
    size = x.spec.shape[0]
    if x.spec.dtype == TAPE:
        alone = equal(iota(shape=(size,), dtype=dtypes.int64, axis=0), broadcast_to(first, shape=(size,)))
        row = sum_tape(merge_tapes(alone, x, zeros(x.spec)), count=size, axis=0)
        return merge_tapes(rows, x, spread_tape(row, count=size, axis=0))
    starts = [first, *[as_value(np.int64(0))] * (x.spec.ndim - 1)]
    row = dynamic_slice(x, *starts, sizes=(1, *x.spec.shape[1:]), mode="clip")
    return choose_rows(rows, x, broadcast_to(row, shape=x.spec.shape))


def rows_first(x: Value) -> Value:
    """Returns the first two axes swapped."""
    return transpose(x, permutation=(1, 0, *range(2, x.spec.ndim)))
