"""How `case_of` is differentiated and batched.

Each branch is linearised by itself. Values that the linear parts read are handed over in slots that branches share where specs
agree, so only the branch that ran fills them; the linear part is a `case_of` of the same index, and so is its transpose. With an
index that differs from row to row, all branches run and the result is chosen row by row. Branches that may raise, and those with
loops, which might never end, see only rows that take them; rows of branches that call Python run one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np

from nnc.array.array import as_value
from nnc.base.dtypes import TAPE, int64, is_integer
from nnc.commands.elementwise import bitwise_and, convert, equal, greater_equal, less, select
from nnc.commands.loop import case_of
from nnc.commands.reduce import reduce_and, reduce_max, reduce_min, reduce_or
from nnc.commands.rules import lead, zeros
from nnc.commands.shape import broadcast_to
from nnc.graph import Graph, Symbol, TensorSpec, bind
from nnc.graph.registry import batch, derivative
from nnc.graph.rules import Derivative, Linear, Tangents, Value
from nnc.trace.core.backward import is_forward, push_graph, transpose_graph
from nnc.trace.core.batching import run_batched
from nnc.trace.core.dual import Linearized, run_jvp, run_linearize
from nnc.trace.core.staging import Staged, stage
from nnc.trace.loops.iterations import (
    Flags,
    choose_rows,
    fill,
    fill_zeros,
    flags_of,
    has_effects,
    in_place_of_others,
    is_for_own_rows,
    run_rows,
)


def share_captures(parts: Sequence[Staged]) -> tuple[list[Value], tuple[Graph, ...]]:
    """Returns all values that several graphs capture, and the graphs with all of them as their last inputs."""
    captured = {id(value): value for part in parts for value in part.captured}
    graphs = []
    for part in parts:
        own = {id(v): s for v, s in zip(part.captured, part.graph.inputs[part.num_explicit :], strict=True)}
        hidden = tuple(own.get(key) or Symbol(value.spec, "unused") for key, value in captured.items())
        graphs.append(part.graph.update(inputs=(*part.graph.inputs[: part.num_explicit], *hidden)))
    return list(captured.values()), tuple(graphs)


def _bind_staged(
    index: Value, operands: Sequence[Value], branches: Sequence[Staged], checked: bool = True
) -> list[Value]:
    """Binds a `case_of` of traced branches, which may capture values. `checked` says that nobody has checked the index yet."""
    captured, graphs = share_captures(branches)
    return list(bind(case_of, [index, *operands, *captured], {"checked": checked}, graphs))


def _push(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], checked: bool = True
) -> tuple[list[Value], Tangents]:
    index, operands, active = primals[0], primals[1:], flags_of(tangents[1:])
    nonzero: list[Flags] = []

    def branch(graph: Graph) -> Staged:
        def body(*values: Any) -> list[Any]:
            outputs, moved = run_jvp(
                lambda *v: graph.evaluate(v),
                values[: len(operands)],
                fill(values[len(operands) :], active),
            )
            nonzero.append(flags_of(moved))
            return [*outputs, *(t for t in moved if t is not None)]

        return stage(body, [*graph.input_specs, *compress(graph.input_specs, active)], name=graph.name)

    branches = [branch(graph) for graph in graphs]
    moving = tuple(any(column) for column in zip(*nonzero, strict=True))
    count = len(moving)

    def filled(staged: Staged, own: Flags) -> Staged:
        """Returns the branch with a tangent of each result that moves in some branch."""

        def change(results: Sequence[Any]) -> list[Any]:
            return [*results[:count], *fill_zeros(results[:count], fill(results[count:], own), moving)]

        return staged if own == moving else _with_results(staged, change)

    given = [t for t in tangents[1:] if t is not None]
    every = [filled(*pair) for pair in zip(branches, nonzero, strict=True)]
    results = _bind_staged(index, [*operands, *given], every, checked)
    return results[:count], tuple(fill(results[count:], moving))


def _with_results(staged: Staged, change: Callable[[list[Any]], Sequence[Any]]) -> Staged:
    """Returns a traced branch with other results, made of its own ones. It is not traced again: its nodes are recorded as they
    are.
    """
    graph = staged.graph
    specs = graph.input_specs[: staged.num_explicit]

    def changed(*values: Value) -> Sequence[Any]:
        return change([*map(as_value, graph.evaluate([*values, *staged.captured]))])

    return stage(changed, specs, name=graph.name)


def _linearize(
    primals: tuple[Value, ...], tangents: Tangents, graphs: tuple[Graph, ...], checked: bool = True
) -> tuple[list[Value], Tangents]:
    index, operands, active = primals[0], primals[1:], flags_of(tangents[1:])
    traced = [_linearize_branch(graph, active, is_forward(tangents)) for graph in graphs]
    moving = tuple(any(column) for column in zip(*(linear.nonzero for _, linear, _ in traced), strict=True))
    slots, assigned = _share_slots([kept for _, _, kept in traced])
    branches = [(staged, linear, places) for (staged, linear, _), places in zip(traced, assigned, strict=True)]
    forward = [_with_slots(staged, len(graphs[0].outputs), places, slots) for staged, _, places in branches]
    results = _bind_staged(index, operands, forward, checked)
    count = len(graphs[0].outputs)
    backward = [
        _linear_branch(staged, linear, places, slots, active, moving, count) for staged, linear, places in branches
    ]
    given = [t for t in tangents[1:] if t is not None]
    moved = _bind_staged(index, [*given, *operands, *results[count:]], backward, checked=False)
    return results[:count], tuple(fill(moved, moving))


def _linearize_branch(graph: Graph, active: Flags, forward: bool) -> tuple[Staged, Linearized, tuple[Symbol, ...]]:
    """Returns a branch that yields its results and the residuals of its linear part; the linear part; the symbols of residuals
    that are neither inputs nor captured.
    """
    box: list[Linearized] = []

    def body(*values: Any) -> list[Any]:
        outputs, linear = run_linearize(lambda *v: graph.evaluate(v), values, active, forward)
        box.append(linear)
        return [*outputs, *linear.staged.captured]

    staged = stage(body, graph.input_specs, name=graph.name)
    outside = {*staged.graph.inputs, *staged.graph.constants}
    kept = tuple(dict.fromkeys(s for s in staged.graph.outputs[len(graph.outputs) :] if s not in outside))
    return staged, box[0], kept


def _share_slots(kept: Sequence[Sequence[Symbol]]) -> tuple[list[TensorSpec], list[dict[int, Symbol]]]:
    """Slots for the residuals of branches, and the symbol that each branch puts into a slot.

    Branches share slots where specs agree. Tapes have slots of their own: the specs of their rows, which may differ, are not known.
    So have integers: in a batch, where rows choose, each branch reads its slots for all rows, and an index of another branch may
    be out of range. 0, which others leave there, is not.
    """
    slots: list[TensorSpec] = []
    assigned: list[dict[int, Symbol]] = []
    for symbols in kept:
        places: dict[int, Symbol] = {}
        for symbol in symbols:
            alone = symbol.spec.dtype == TAPE or is_integer(symbol.spec.dtype)
            alike = (i for i, s in enumerate(slots) if not alone and s == symbol.spec and i not in places)
            place = next(alike, len(slots))
            if place == len(slots):
                slots.append(symbol.spec)
            places[place] = symbol
        assigned.append(places)
    return slots, assigned


def _with_slots(staged: Staged, count: int, places: dict[int, Symbol], slots: Sequence[TensorSpec]) -> Staged:
    """Returns the branch with its slots filled and the others' zero."""

    def filled(results: list[Any]) -> list[Any]:
        kept = dict(zip(places, results[count:], strict=True))
        others = dict.fromkeys(spec for i, spec in enumerate(slots) if i not in kept)
        empty = {spec: zeros(spec) for spec in others}
        return [*results[:count], *(kept[i] if i in kept else empty[spec] for i, spec in enumerate(slots))]

    outputs = (*staged.graph.outputs[:count], *places.values())
    return _with_results(Staged(staged.graph.update(outputs=outputs), staged.captured), filled)


def _linear_branch(
    staged: Staged, linear: Linearized, assigned: dict[int, Symbol], slots: Sequence[TensorSpec], active: Flags, moving: Flags,
    count: int,
) -> Staged:  # fmt: skip
    """(tangents, operands, slots) -> tangents of the results that move in some branch."""
    places = {symbol: i for i, symbol in assigned.items()}
    explicit = staged.graph.inputs[: staged.num_explicit]
    hidden = staged.graph.inputs[staged.num_explicit :]
    reads = staged.graph.outputs[count:]
    operand_specs = [s.spec for s in explicit]
    seeds = list(compress(operand_specs, active))
    result_specs = staged.graph.output_specs[:count]

    def body(*values: Any) -> list[Any]:
        tangents, rest = values[: len(seeds)], values[len(seeds) :]
        known: dict[Symbol, Any] = dict(
            zip((*explicit, *hidden), (*rest[: len(explicit)], *staged.captured), strict=True)
        )
        known.update((s, as_value(v)) for s, v in staged.graph.constants.items())
        filled = rest[len(explicit) :]
        residuals = [filled[places[s]] if s in places else known[s] for s in reads]
        moved = iter(push_graph(linear.staged.graph, [*tangents, *residuals]))
        found = [next(moved) if on else None for on in linear.nonzero]
        return [zeros(spec) if t is None else t for t, spec, on in zip(found, result_specs, moving, strict=True) if on]

    return stage(body, [*seeds, *operand_specs, *slots], name=f"linear {staged.graph.name}", linear=True)


def _transpose(
    cotangents: Tangents, operands: tuple[Any, ...], graphs: tuple[Graph, ...], checked: bool = True
) -> Tangents:
    index, rest = operands[0], operands[1:]
    flags, wanted = tuple(isinstance(x, Linear) for x in rest), flags_of(cotangents)
    fixed = [x for x in rest if not isinstance(x, Linear)]
    # by each branch: operands that no branch reaches get no zeros, as zero times infinity is not zero
    reached: list[Flags] = []

    def branch(graph: Graph) -> Staged:
        linear = tuple(compress(graph.inputs, flags))
        others = tuple(s for s, on in zip(graph.inputs, flags, strict=True) if not on)
        ordered = graph.update(inputs=(*linear, *others))

        def body(*values: Any) -> list[Any]:
            cts = fill(values[len(others) :], wanted)
            found = transpose_graph(ordered, len(linear), values[: len(others)], cts)
            reached.append(flags_of(found))
            return [zeros(s.spec) if ct is None else ct for s, ct in zip(linear, found, strict=True)]

        specs = [*(s.spec for s in others), *compress(graph.output_specs, wanted)]
        return stage(body, specs, name=f"transposed {graph.name}")

    given = compress(cotangents, wanted)
    branches = [branch(graph) for graph in graphs]
    pulled = tuple(any(column) for column in zip(*reached, strict=True))
    kept = [Staged(b.graph.update(outputs=tuple(compress(b.graph.outputs, pulled))), b.captured) for b in branches]
    found = iter(fill(_bind_staged(index, [*fixed, *given], kept, checked=False), pulled))
    return (None, *(next(found) if on else None for on in flags))


def _batch(
    size: int, operands: tuple[Value, ...], batched: Flags, graphs: tuple[Graph, ...], checked: bool = True
) -> tuple[Sequence[Value], Sequence[bool]]:
    index, rest, flags = operands[0], operands[1:], tuple(batched[1:])
    if not batched[0]:
        return _batch_branches(size, index, rest, flags, graphs, checked)
    if checked:
        index = _checked_rows(index, len(graphs))
    if any(map(has_effects, graphs)):
        return run_rows(size, index, rest, flags, graphs), (True,) * len(graphs[0].outputs)
    results: list[Value] | None = None
    for i, graph in enumerate(graphs):
        chosen = equal(index, broadcast_to(as_value(np.int64(i)), shape=(size,)))
        rows = (_batch_where if is_for_own_rows(graph) else _batch_all)(size, chosen, rest, flags, graph)
        if results is None:
            results = rows
            continue
        results = [choose_rows(chosen, new, old) for new, old in zip(rows, results, strict=True)]
    return results or [], (True,) * len(results or [])


def _batch_all(size: int, chosen: Value, rest: Sequence[Value], flags: Flags, graph: Graph) -> list[Value]:
    """Returns a branch for all rows."""
    outputs, found = run_batched(lambda *v: graph.evaluate(v), size, rest, flags)
    return [lead(size, y, f) for y, f in zip(outputs, found, strict=True)]


def _batch_where(size: int, chosen: Value, rest: Sequence[Value], flags: Flags, graph: Graph) -> list[Value]:
    """Returns a branch that may raise or holds a loop: it runs if a row takes it, and gets such a row in place of each that
    does not.
    """

    def body(chosen: Any, *values: Any) -> list[Any]:
        return _batch_all(size, chosen, in_place_of_others(chosen, values, flags), flags, graph)

    specs = [chosen.spec, *_row_specs(graph, size, flags)]
    taken = stage(body, specs, name=graph.name)
    idle = stage(
        lambda *_: [zeros(spec) for spec in taken.graph.output_specs], specs, name=f"no row takes {graph.name}"
    )
    some = convert(reduce_or(chosen, axes=(0,)), dtype=int64)
    return _bind_staged(some, [chosen, *rest], [idle, taken], checked=False)


def _checked_rows(index: Value, count: int) -> Value:
    """Returns the rows' indices, after a branch on them that exists only where all are in range: one that is not raises when
    run.
    """
    low, high = as_value(np.int64(0)), as_value(np.int64(count))
    inside = bitwise_and(
        greater_equal(index, broadcast_to(low, shape=index.spec.shape)),
        less(index, broadcast_to(high, shape=index.spec.shape)),
    )
    smallest, largest = reduce_min(index, axes=(0,)), reduce_max(index, axes=(0,))
    worst = select(less(smallest, low), smallest, largest)
    identity = stage(lambda x: [x], [index.spec], name="check")
    return bind(case_of, [select(reduce_and(inside, axes=(0,)), low, worst), index], {}, (identity.graph,) * count)[0]


def _batch_branches(
    size: int, index: Value, rest: Sequence[Value], flags: Flags, graphs: tuple[Graph, ...], checked: bool
) -> tuple[list[Value], Flags]:
    """One index for all rows: the branch that is chosen runs for all of them."""
    every: list[Flags] = []

    def branch(graph: Graph) -> Staged:
        def body(*values: Any) -> list[Any]:
            outputs, found = run_batched(lambda *v: graph.evaluate(v), size, values, flags)
            every.append(tuple(found))
            return outputs

        return stage(body, _row_specs(graph, size, flags), name=graph.name)

    branches = [branch(graph) for graph in graphs]
    together = tuple(any(column) for column in zip(*every, strict=True))

    def led(staged: Staged, own: Flags) -> Staged:
        """Returns the branch, whose results have the batch axis where those of some branch have it."""

        def change(results: Sequence[Any]) -> list[Any]:
            return [lead(size, y, f) if on else y for y, f, on in zip(results, own, together, strict=True)]

        return staged if own == together else _with_results(staged, change)

    return _bind_staged(index, rest, [led(*pair) for pair in zip(branches, every, strict=True)], checked), together


def _row_specs(graph: Graph, size: int, flags: Flags) -> list[TensorSpec]:
    return [s.update(shape=(size, *s.shape)) if on else s for s, on in zip(graph.input_specs, flags, strict=True)]


derivative.set(case_of, Derivative(transpose=_transpose, push=_push, linearize=_linearize))
batch.set(case_of, _batch)
