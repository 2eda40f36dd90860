"""Loops and branches: `while`, `scan` and `case_of`, and the tapes that loops of unknown length write and read.

All state their sub-graphs' inputs in one order: the round (int64, counted from 0), elements of the sequences read, carried
values, captured values; and their outputs likewise: carried values of the next round, then what else a round yields. How they
are differentiated and batched stands in nnc/trace: scan_rules.py, while_rules.py, branch_rules.py.

A `Tape` is a sequence whose length is known only at run time. In graphs it is a 0-d value of dtype `TAPE` (with leading axes
under vmap, which its elements have, too); the number 0 stands for a tape of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from nnc import dtypes
from nnc.commands.rules import (
    Derivative,
    Linear,
    add_tangents,
    batch_elementwise,
    batch_with,
    check_same_spec,
    effect,
    linear_in_all,
    zeros,
)
from nnc.context import get_context, set_context
from nnc.dtypes import TAPE
from nnc.errors import ArgumentError, GraphError, OutOfBoundsError, ShapeError, user_error
from nnc.graph import Command, Graph, Node, TensorSpec, register

NDArray = np.ndarray[Any, Any]
Run = Callable[[Graph, Sequence[Any]], list[NDArray]]  # how a reference runs its sub-graphs
Handles = tuple[tuple[int, ...], ...]  # the leading axes of each tape that a loop yields; () where none has any
ROUND = TensorSpec((), dtypes.int64)


class Tape:
    """Rows of one spec, in memory that grows geometrically (or is taken at once where `capacity` is known).

    Rows may be tapes. Where an index is followed by `...`, NumPy reads and writes arrays there, too, and not elements.
    """

    __slots__ = ("_meter", "_rows", "length")

    def __init__(self, shape: tuple[int, ...], dtype: Any, capacity: int = 0) -> None:
        self._rows = np.empty((capacity, *shape), dtype)
        self.length = 0
        self._meter = get_context().meter
        if self._meter is not None:
            self._meter.add(self._rows.nbytes)

    def __del__(self) -> None:
        if self._meter is not None:
            self._meter.add(-self._rows.nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes taken, used or not."""
        return self._rows.nbytes

    def write(self, index: int, row: NDArray) -> None:
        """Sets a row; rows between the present end and `index` are 0 until written."""
        if index >= len(self._rows):
            grown = np.empty((max(index + 1, 2 * len(self._rows), 4), *self._rows.shape[1:]), self._rows.dtype)
            grown[: self.length] = self._rows[: self.length]
            if self._meter is not None:
                self._meter.add(grown.nbytes - self._rows.nbytes)
            self._rows = grown
        if index >= self.length:
            self._rows[self.length : index] = 0
            self.length = index + 1
        self._rows[index, ...] = row

    def read(self, index: int) -> NDArray:
        """A row."""
        return self._rows[index, ...]

    def rows(self) -> NDArray:
        """All rows."""
        return self._rows[: self.length]

    @classmethod
    def of(cls, rows: NDArray) -> Tape:
        """A tape of these rows."""
        tape = cls(rows.shape[1:], rows.dtype, len(rows))
        tape._rows[...], tape.length = rows, len(rows)
        return tape

    def each(self, numbers: Callable[..., NDArray], tapes: Callable[..., NDArray], *others: Tape) -> Tape | int:
        """A tape of what `numbers` makes of all rows, or, where the rows are tapes, `tapes` of one after the other."""
        rows = [tape.rows() for tape in (self, *others)]
        if self._rows.dtype != TAPE:
            return Tape.of(numbers(*rows))
        nothing = np.zeros(self._rows.shape[1:], TAPE)
        made = [tapes(*(row[i, ...] if i < len(row) else nothing for row in rows)) for i in range(self.length)]
        return Tape.of(np.stack(made)) if made else 0


def tape_spec(handle: tuple[int, ...] = ()) -> TensorSpec:
    """The spec of a tape; `handle` are the leading axes that vmap gave it."""
    return TensorSpec(handle, TAPE)


def tape_handles(shapes: Iterable[tuple[int, ...]]) -> Handles:
    """The parameter `handles` of a loop that yields tapes with these leading axes."""
    handles = tuple(shapes)
    return handles if any(handles) else ()


def _tape_specs(handles: Handles, count: int) -> list[TensorSpec]:
    if handles and len(handles) != count:
        raise user_error(
            ArgumentError, "loop", f"{count} tapes cannot have {len(handles)} handles.", fix="give one for each tape, or none.",
        )  # fmt: skip
    return [tape_spec(handle) for handle in handles or ((),) * count]


def _read(tape: NDArray, index: int, spec: TensorSpec) -> NDArray:
    return _row(tape.flat[0] if tape.size else 0, index, spec)


def _row(content: Any, index: int, spec: TensorSpec) -> NDArray:
    if isinstance(content, Tape) and index < content.length:
        return np.broadcast_to(content.read(index), spec.shape)
    return np.zeros(spec.shape, spec.dtype)  # of a tape of zeros, or for a row that is thrown away


def _add_tapes(x: NDArray, y: NDArray) -> NDArray:
    total = _as_handle(0, x.shape)
    sums: dict[tuple[int, int], Any] = {}  # all elements of a batch are one tape, and so is what they sum to
    for place in np.ndindex(x.shape):
        key = id(x[place]), id(y[place])
        if key not in sums:
            tapes = [tape for tape in (x[place], y[place]) if isinstance(tape, Tape)]
            sums[key] = _sum_of(*tapes) if len(tapes) == 2 else tapes[0] if tapes else 0
        total[place] = sums[key]
    return total


def _sum_of(x: Tape, y: Tape) -> Tape | int:
    """Rows that the shorter one lacks are 0."""
    return x.each(_add_rows, _add_tapes, y) if x.length >= y.length else y.each(_add_rows, _add_tapes, x)


def _add_rows(longer: NDArray, shorter: NDArray) -> NDArray:
    both = longer[: len(shorter)] + shorter
    if len(shorter) == len(longer):
        return np.asarray(both)
    rest = longer[len(shorter) :]
    return np.concatenate((both, np.broadcast_to(rest, (len(rest), *both.shape[1:]))))


def _as_handle(tape: Tape | int, handle: tuple[int, ...]) -> NDArray:
    value = np.empty(handle, TAPE)
    value[...] = tape
    return value


def _as_handles(tapes: Sequence[Tape], handles: Handles) -> list[NDArray]:
    return [_as_handle(tape, handle) for tape, handle in zip(tapes, handles or ((),) * len(tapes), strict=True)]


def run_graph(graph: Graph, values: Sequence[Any]) -> list[NDArray]:
    """The outputs of a sub-graph on NumPy arrays."""
    with set_context(staging=None):
        return [x if isinstance(x, np.ndarray) else x.concrete("sub-graph") for x in map(_wrap, graph.evaluate(values))]


def _wrap(x: Any) -> Any:
    return x if hasattr(x, "concrete") else np.asarray(x)


def check_inputs(name: str, given: Sequence[TensorSpec], graph: Graph, what: str = "its graph") -> None:
    """Raises unless a sub-graph takes operands of these specs."""
    wanted = graph.input_specs
    if len(given) != len(wanted):
        raise user_error(
            ArgumentError, name, f"{what} takes {len(wanted)} inputs, there are {len(given)} values for it.",
            operands={"given": ", ".join(map(str, given)), "taken": ", ".join(map(str, wanted))},
            fix="give the sub-graph the inputs that this command passes to it.",
        )  # fmt: skip
    for i, (spec, want) in enumerate(zip(given, wanted, strict=True)):
        if (spec.shape, spec.dtype) != (want.shape, want.dtype):
            raise user_error(
                ShapeError, name, f"input {i} of {what} does not match.", operands={"given": spec, "taken": want},
                fix="convert the value, or build the sub-graph for its spec.",
            )  # fmt: skip


def check_carried(name: str, carried: Sequence[TensorSpec], following: Sequence[TensorSpec]) -> None:
    """Raises unless a round's carried values have the specs of those it started with."""
    for i, (before, after) in enumerate(zip(carried, following, strict=False)):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise user_error(
                ShapeError, name, f"carried value {i} changes its shape or dtype from round to round.",
                operands={"before": before, "after": after}, fix="make the round return what it takes, for example with .astype.",
            )  # fmt: skip


add_tapes = register(
    "add_tapes",
    2,
    infer=lambda x, y: check_same_spec("add_tapes", (x, y)),
    reference=_add_tapes,
    derivative=Derivative(
        lambda primals, tangents, outputs: (add_tangents(*tangents),),
        lambda cotangents, operands: tuple(cotangents[0] if isinstance(x, Linear) else None for x in operands),
    ),
    batch=batch_elementwise("add_tapes"),
)


def _each(function: Callable[..., Any], lead: int, shape: tuple[int, ...], *handles: NDArray) -> NDArray:
    """What a function makes of the tapes behind the first `lead` axes of handles, along which all elements are one tape.

    The axes behind them may be of a scan that stacked a tape of each round.
    """
    result = _as_handle(0, shape)
    if all(handle.size for handle in handles):
        first: tuple[Any, ...] = (0,) * lead
        inner = [handle[(*first, ...)] for handle in handles]
        found = np.empty(inner[0].shape, TAPE)
        for index in np.ndindex(found.shape):
            found[index] = function(*(x[index] for x in inner))
        result[...] = found
    return result


def _spread_tape(x: NDArray, *, count: int, axis: int) -> NDArray:
    def spread(content: Any) -> Any:
        if not isinstance(content, Tape):
            return content
        return content.each(
            lambda rows: np.expand_dims(rows, 1 + axis), lambda row: _spread_tape(row, count=count, axis=axis)
        )

    return _each(spread, axis, (*x.shape[:axis], count, *x.shape[axis:]), x)


def _sum_tape(x: NDArray, *, count: int, axis: int) -> NDArray:
    def total(content: Any) -> Any:
        if not isinstance(content, Tape):
            return content
        return content.each(add_up, lambda row: _sum_tape(row, count=count, axis=axis))

    def add_up(rows: NDArray) -> NDArray:
        every = (*rows.shape[: 1 + axis], count, *rows.shape[2 + axis :])  # a row for all stands for each
        return np.asarray(np.broadcast_to(rows, every).sum(1 + axis, dtype=rows.dtype))

    return _each(total, axis + 1, (*x.shape[:axis], *x.shape[axis + 1 :]), x)


def _tape_axis(params: dict[str, Any]) -> dict[str, Any]:
    return {**params, "axis": params["axis"] + 1}


# A tape of no batch among tapes of one: it gets the axis, of which its rows have one element that stands for all; and what the
# cotangents of all elements sum to.
spread_tape: Command = register(
    "spread_tape",
    1,
    infer=lambda x, count, axis: x.update(shape=(*x.shape[:axis], count, *x.shape[axis:])),
    reference=_spread_tape,
    derivative=linear_in_all(
        "spread_tape", lambda cotangents, operands, count, axis: (sum_tape(cotangents[0], count=count, axis=axis),)
    ),
    batch=batch_with("spread_tape", _tape_axis),
)
sum_tape: Command = register(
    "sum_tape",
    1,
    infer=lambda x, count, axis: x.update(shape=(*x.shape[:axis], *x.shape[axis + 1 :])),
    reference=_sum_tape,
    derivative=linear_in_all(
        "sum_tape", lambda cotangents, operands, count, axis: (spread_tape(cotangents[0], count=count, axis=axis),)
    ),
    batch=batch_with("sum_tape", _tape_axis),
)


def _merge_tapes(mask: NDArray, x: NDArray, y: NDArray) -> NDArray:
    def merge(*tapes: Any) -> Any:
        contents = [tape for tape in tapes if isinstance(tape, Tape) and tape.length]
        if not contents:
            return 0
        like = contents[0].rows()
        shape = np.broadcast_shapes(
            mask.shape + (1,) * (like.ndim - 1 - mask.ndim), *(t.rows().shape[1:] for t in contents)
        )
        rows = mask.reshape(mask.shape + (1,) * (len(shape) - mask.ndim))
        spec, length = TensorSpec(shape, like.dtype), max(t.length for t in contents)
        merged = Tape(shape, like.dtype, length)
        for index in range(length):
            found = [_row(tape, index, spec) for tape in tapes]
            merged.write(index, _merge_tapes(mask, *found) if spec.dtype == TAPE else np.where(rows, *found))
        return merged

    return _each(merge, mask.ndim, x.shape, x, y)


# For rows of a batch that took different branches: the rows of `x` where `mask` holds, those of `y` elsewhere.
merge_tapes: Command = register(
    "merge_tapes",
    3,
    infer=lambda mask, x, y: check_same_spec("merge_tapes", (x, y)),
    reference=_merge_tapes,
    derivative=linear_in_all(
        "merge_tapes",
        lambda cotangents, operands: (
            None,
            merge_tapes(operands[0], cotangents[0], zeros(cotangents[0].spec))
            if isinstance(operands[1], Linear)
            else None,
            merge_tapes(operands[0], zeros(cotangents[0].spec), cotangents[0])
            if isinstance(operands[2], Linear)
            else None,
        ),
    ),
    batch=batch_elementwise("merge_tapes"),
)

# -- while -------------------------------------------------------------------------------------------------------------


def _while_infer(
    *specs: TensorSpec, graphs: tuple[Graph, ...], carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handles: Handles = (), checkpoint: str | int | None = None,
) -> tuple[TensorSpec, ...]:  # fmt: skip
    body = graphs[0]
    check_inputs("while", (ROUND, *specs), body, "the round")
    outputs = body.output_specs
    exits = len(outputs) - 1 - carries - tapes
    if exits < 0 or not 0 <= carries <= len(specs) or not 0 <= before <= len(body.nodes):
        raise user_error(
            ArgumentError, "while",
            f"a round with {len(outputs)} outputs and {len(body.nodes)} nodes cannot carry {carries} values, write {tapes} "
            f"tapes and test after {before} nodes.",
            fix="let the round yield the condition, the carried values, the exits and the tapes' rows.",
        )  # fmt: skip
    if outputs[0] != TensorSpec((), dtypes.bool_):
        raise user_error(
            ShapeError, "while", "the condition must be a single bool.", operands={"condition": outputs[0]},
            fix="compare a scalar, or reduce with .any() or .all().",
        )  # fmt: skip
    check_carried("while", specs[:carries], outputs[1 : 1 + carries])
    early = {*body.inputs, *body.constants, *(s for node in body.nodes[:before] for s in node.outputs)}
    if any(symbol not in early for symbol in (body.outputs[0], *body.outputs[1 + carries : 1 + carries + exits])):
        raise user_error(
            GraphError, "while", f"the condition and the exits must be known after the first {before} nodes of the round.",
            fix="put the nodes they need before the test.",
        )  # fmt: skip
    return (
        *specs[:carries],
        *outputs[1 + carries : 1 + carries + exits],
        ROUND,
        *_tape_specs(handles, tapes),
    )


@lru_cache(maxsize=512)
def split_round(body: Graph, carries: int, before: int, exits: int) -> tuple[Graph, Graph]:
    """A round as two graphs: up to the test (yields the condition, the exits and what it hands over), and from there on.

    The second takes the round's inputs and what the first hands over, and yields the carried values and tape rows.
    """
    head_nodes, tail_nodes = body.nodes[:before], body.nodes[before:]
    later = body.outputs[1 : 1 + carries] + body.outputs[1 + carries + exits :]
    needed = {*later, *(s for node in tail_nodes for s in node.inputs)}
    handed = tuple(symbol for node in head_nodes for symbol in node.outputs if symbol in needed)
    test = (body.outputs[0], *body.outputs[1 + carries : 1 + carries + exits])
    head = body.update(outputs=(*test, *handed), nodes=head_nodes, name=f"{body.name}, before the test")
    return head, body.update(inputs=(*body.inputs, *handed), outputs=later, nodes=tail_nodes)


def _while_reference(
    *arrays: NDArray, graphs: tuple[Graph, ...], run: Run, carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handles: Handles = (), checkpoint: str | int | None = None,
) -> list[NDArray]:  # fmt: skip
    body = graphs[0]
    exits = len(body.outputs) - 1 - carries - tapes
    head, tail = split_round(body, carries, before, exits)
    rows = [Tape(s.spec.shape, s.spec.dtype, max_steps or 0) for s in body.outputs[1 + carries + exits :]]
    carried, captured, step = list(arrays[:carries]), arrays[carries:], 0
    while True:
        values = [np.asarray(step, np.int64), *carried, *captured]
        condition, *known = run(head, values)
        if not condition:
            break
        check_steps(step, max_steps)
        results = run(tail, [*values, *known[exits:]])
        carried = results[:carries]
        for tape, row in zip(rows, results[carries:], strict=True):
            tape.write(step, row)
        step += 1
    return [*carried, *known[:exits], np.asarray(step, np.int64), *_as_handles(rows, handles)]


def check_steps(step: int, limit: int | None) -> None:
    """Raises where a round begins that `max_steps` does not allow."""
    if limit is not None and step >= limit:
        raise user_error(
            ArgumentError, "while_loop", f"the condition still holds after max_steps={limit} rounds.",
            fix="raise max_steps, or leave it out for a loop of any length.",
        )  # fmt: skip


def _while_rewritten(params: Mapping[str, Any], old: tuple[Graph, ...], new: tuple[Graph, ...]) -> Mapping[str, Any]:
    """The test stays behind all that stood before it and is still there, and behind what the condition and the exits need."""
    before, outputs = params["before"], new[0].outputs
    early = {symbol for node in old[0].nodes[:before] for symbol in node.outputs}
    late = 1 + params["carries"]
    early.update((outputs[0], *outputs[late : len(outputs) - params.get("tapes", 0)]))
    places = [i for i, node in enumerate(new[0].nodes, 1) if not early.isdisjoint(node.outputs)]
    silent = [i for i, node in enumerate(new[0].nodes, 1) if _only_acts(node)]  # passes keep their number and order
    places += silent[: sum(map(_only_acts, old[0].nodes[:before]))]
    return {**params, "before": max(places, default=0)}


def _only_acts(node: Node) -> bool:
    """Whether a node yields nothing, but has an effect, by itself or within its sub-graphs."""
    if node.outputs:
        return False
    return node.command in effect or any(inner.command in effect for graph in node.graphs for inner in graph.walk())


while_ = register(
    "while", None, None, infer=_while_infer, reference=_while_reference, rewritten=_while_rewritten,
    refuses=lambda *specs, max_steps=None, **params: max_steps is not None,
)  # fmt: skip

# -- scan --------------------------------------------------------------------------------------------------------------


def _split_scan(
    operands: Sequence[Any], xs: int, carries: int, length: int | None
) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
    """(sequences, carried values, captured values) of a scan's operands; the first is the length where that is dynamic."""
    rest = operands if length is not None else operands[1:]
    return rest[:xs], rest[xs : xs + carries], rest[xs + carries :]


def _scan_infer(
    *specs: TensorSpec, graphs: tuple[Graph, ...], xs: int, carries: int, length: int | None, reverse: bool = False,
    handles: Handles = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> tuple[TensorSpec, ...]:  # fmt: skip
    body = graphs[0]
    sequences, carried, captured = _split_scan(specs, xs, carries, length)
    if length is None:
        elements = body.input_specs[1 : 1 + xs]
        wrong = specs[0].dtype != dtypes.int64 or specs[0].shape != () or any(s.dtype != TAPE for s in sequences)
        if wrong:
            raise user_error(
                ArgumentError, "scan", "a scan of unknown length takes its length (int64) and reads tapes.",
                operands={f"operand {i}": spec for i, spec in enumerate(specs)}, fix="give the length, or stack the rows.",
            )  # fmt: skip
    else:
        for i, spec in enumerate(sequences):
            if not spec.shape or spec.shape[0] != length:
                raise user_error(
                    ShapeError, "scan", f"sequence {i} does not have {length} rows.", operands={"sequence": spec},
                    fix="give sequences of one length along axis 0.",
                )  # fmt: skip
        elements = tuple(spec.update(shape=spec.shape[1:]) for spec in sequences)
    check_inputs("scan", (ROUND, *elements, *carried, *captured), body, "the round")
    outputs = body.output_specs
    check_carried("scan", carried, outputs[:carries])
    rows = outputs[carries:]
    if length is None:
        return (*carried, *_tape_specs(handles, len(rows)))
    return (*carried, *(spec.update(shape=(length, *spec.shape)) for spec in rows))


def _scan_reference(
    *arrays: NDArray, graphs: tuple[Graph, ...], run: Run, xs: int, carries: int, length: int | None,
    reverse: bool = False, handles: Handles = (), tangents_only: bool = False, checkpoint: str | int | None = None,
) -> list[NDArray]:  # fmt: skip
    body = graphs[0]
    sequences, start, captured = _split_scan(arrays, xs, carries, length)
    count = int(arrays[0]) if length is None else length
    elements, rows = body.input_specs[1 : 1 + xs], body.output_specs[carries:]
    tapes = [Tape(spec.shape, spec.dtype, count) for spec in rows] if length is None else []
    stacks = [np.empty((count, *spec.shape), spec.dtype) for spec in rows] if length is not None else []
    carried = list(start)
    for step in reversed(range(count)) if reverse else range(count):
        read = [
            _read(s, step, spec) if length is None else s[step, ...]
            for s, spec in zip(sequences, elements, strict=True)
        ]
        results = run(body, [np.asarray(step, np.int64), *read, *carried, *captured])
        carried = results[:carries]
        for tape, row in zip(tapes, results[carries:], strict=False):
            tape.write(step, row)
        for stack, row in zip(stacks, results[carries:], strict=False):
            stack[step, ...] = row
    return [*carried, *stacks, *_as_handles(tapes, handles)]


scan = register("scan", None, None, infer=_scan_infer, reference=_scan_reference)

# -- case_of -----------------------------------------------------------------------------------------------------------


def _case_infer(
    index: TensorSpec, *specs: TensorSpec, graphs: tuple[Graph, ...], checked: bool = True
) -> tuple[TensorSpec, ...]:
    if index != ROUND:
        raise user_error(
            ShapeError, "case_of", "the index must be a single int64.", operands={"index": index},
            fix="convert it with .astype('int64').",
        )  # fmt: skip
    if not graphs:
        raise user_error(ArgumentError, "case_of", "there is no branch.", fix="give at least one branch.")
    for i, branch in enumerate(graphs):
        check_inputs("case_of", specs, branch, f"branch {i}")
        if [(s.shape, s.dtype) for s in branch.output_specs] != [(s.shape, s.dtype) for s in graphs[0].output_specs]:
            raise user_error(
                ShapeError, "case_of", f"branch {i} yields other shapes or dtypes than branch 0.",
                operands={
                    "branch 0": ", ".join(map(str, graphs[0].output_specs)),
                    f"branch {i}": ", ".join(map(str, branch.output_specs)),
                },
                fix="make all branches yield the same specs.",
            )  # fmt: skip
    return graphs[0].output_specs


def check_branch(index: int, branches: int) -> int:
    """`index`; raises where there is no such branch."""
    if not 0 <= index < branches:
        raise user_error(
            OutOfBoundsError, "switch", f"index {index} is out of range for {branches} branches.",
            fix='give an index in range, or mode="clip"; nnc.case_of has bypass= for indices without a branch.',
        )  # fmt: skip
    return index


def _case_reference(
    index: NDArray, *arrays: NDArray, graphs: tuple[Graph, ...], run: Run, checked: bool = True
) -> list[NDArray]:
    return run(graphs[check_branch(int(index), len(graphs))], arrays)


case_of = register(
    "case_of", None, None, infer=_case_infer, reference=_case_reference,
    refuses=lambda *specs, checked=True: checked,
)  # fmt: skip
