"""Loops and branches: `while`, `scan` and `case_of`.

All state their sub-graphs' inputs in one order: the iteration (int64, counted from 0), elements of the sequences read, carried
values, captured values; and their outputs likewise: carried values of the next iteration, then other results of an iteration: rows,
of tapes (`tape.py`) where the number of iterations is not known. How they are differentiated and batched stands in nnc/trace:
scan_rules.py, while_rules.py, branch_rules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.bounded import remembered
from nnc.base.context import set_context
from nnc.base.dtypes import TAPE
from nnc.commands.roles import NodeRoles, branches, carries_of, reads_of, yields_of
from nnc.commands.tape import Handles, Tape, as_handles, read_row, tape_specs
from nnc.errors import ArgumentError, GraphError, OutOfBoundsError, ShapeError, user_error
from nnc.graph import Graph, Node, TensorSpec, register
from nnc.graph.registry import effect
from nnc.graph.rules import Rules

NDArray = np.ndarray[Any, Any]
Run = Callable[[Graph, Sequence[Any]], list[NDArray]]  # how a reference runs its sub-graphs
ITERATION = TensorSpec((), dtypes.int64)


def run_graph(graph: Graph, values: Sequence[Any]) -> list[NDArray]:
    """Returns the outputs of a sub-graph on NumPy arrays."""
    with set_context(staging=None):
        return [x if isinstance(x, np.ndarray) else x.concrete("sub-graph") for x in map(_wrap, graph.evaluate(values))]


def _wrap(x: Any) -> Any:
    return x if hasattr(x, "concrete") else np.asarray(x)


def check_inputs(name: str, given: Sequence[TensorSpec], graph: Graph, what: str = "its graph") -> None:
    """Raises unless a sub-graph takes operands of these specs."""
    wanted = graph.input_specs
    if len(given) != len(wanted):
        problem = f"{what} takes {len(wanted)} inputs, there are {len(given)} values for it."
        operands = {"given": ", ".join(map(str, given)), "taken": ", ".join(map(str, wanted))}
        fix = "give the sub-graph the inputs that this command passes to it."
        raise user_error(ArgumentError, name, problem, operands=operands, fix=fix)
    for i, (spec, want) in enumerate(zip(given, wanted, strict=True)):
        if (spec.shape, spec.dtype) != (want.shape, want.dtype):
            problem = f"input {i} of {what} does not match."
            fix = "convert the value, or build the sub-graph for its spec."
            raise user_error(ShapeError, name, problem, operands={"given": spec, "taken": want}, fix=fix)


def check_carried(name: str, carried: Sequence[TensorSpec], following: Sequence[TensorSpec]) -> None:
    """Raises unless an iteration's carried values have the specs of the values it started with."""
    for i, (before, after) in enumerate(zip(carried, following, strict=False)):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            problem = f"carried value {i} changes its shape or dtype from iteration to iteration."
            fix = "make the iteration return values of the specs that it takes, for example with .astype."
            raise user_error(ShapeError, name, problem, operands={"before": before, "after": after}, fix=fix)


# -- while -------------------------------------------------------------------------------------------------------------


def _while_infer(
    *specs: TensorSpec, graphs: tuple[Graph, ...], carries: int, before: int, tapes: int = 0,
    max_steps: int | None = None, handles: Handles = (), checkpoint: str | int | None = None,
) -> tuple[TensorSpec, ...]:  # fmt: skip
    body = graphs[0]
    check_inputs("while", (ITERATION, *specs), body, "the iteration")
    outputs = body.output_specs
    exits = len(outputs) - 1 - carries - tapes
    if exits < 0 or not 0 <= carries <= len(specs) or not 0 <= before <= len(body.nodes):
        problem = (
            f"an iteration with {len(outputs)} outputs and {len(body.nodes)} nodes cannot carry {carries} values, write {tapes} "
            f"tapes and test after {before} nodes."
        )
        fix = "let the iteration yield the condition, the carried values, the exits and the tapes' rows."
        raise user_error(ArgumentError, "while", problem, fix=fix)
    if outputs[0] != TensorSpec((), dtypes.bool_):
        problem = "the condition must be a single bool."
        fix = "compare a scalar, or reduce with .any() or .all()."
        raise user_error(ShapeError, "while", problem, operands={"condition": outputs[0]}, fix=fix)
    check_carried("while", specs[:carries], outputs[1 : 1 + carries])
    early = {*body.inputs, *body.constants, *(s for node in body.nodes[:before] for s in node.outputs)}
    if any(symbol not in early for symbol in (body.outputs[0], *body.outputs[1 + carries : 1 + carries + exits])):
        problem = f"the condition and the exits must be known after the first {before} nodes of the iteration."
        raise user_error(GraphError, "while", problem, fix="put the nodes they need before the test.")
    return (
        *specs[:carries],
        *outputs[1 + carries : 1 + carries + exits],
        ITERATION,
        *tape_specs(handles, tapes),
    )


@remembered
def split_iteration(body: Graph, carries: int, before: int, exits: int) -> tuple[Graph, Graph]:
    """Returns an iteration as two graphs: up to the test (yields the condition, the exits and values for the second graph), and
    from there on.

    The second takes the iteration's inputs and the values from the first, and yields the carried values and tape rows.
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
    head, tail = split_iteration(body, carries, before, exits)
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
    return [*carried, *known[:exits], np.asarray(step, np.int64), *as_handles(rows, handles)]


def check_steps(step: int, limit: int | None) -> None:
    """Raises where an iteration begins that `max_steps` does not allow."""
    if limit is not None and step >= limit:
        problem = f"the condition still holds after max_steps={limit} iterations."
        fix = "raise max_steps, or leave it out for a loop of any length."
        raise user_error(ArgumentError, "while_loop", problem, fix=fix)


def _while_rewritten(params: Mapping[str, Any], old: tuple[Graph, ...], new: tuple[Graph, ...]) -> Mapping[str, Any]:
    """Returns the test stays behind all that stood before it and is still there, and behind the nodes that the condition and
    the exits need.
    """
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


def _while_roles(node: Node) -> NodeRoles:
    body, carries, tapes = node.graphs[0], node.params["carries"], node.params.get("tapes", 0)
    exits = len(body.outputs) - 1 - carries - tapes
    yields, results = body.outputs[1 + carries :], node.outputs[carries:]
    return NodeRoles(
        node,
        node.graphs,
        counter=body.inputs[:1],
        test=body.outputs[:1],
        carries=carries_of(node.inputs[:carries], body.inputs[1:], body.outputs[1:], node.outputs),
        captured=reads_of(node.inputs[carries:], (body.inputs[1 + carries :],)),
        exits=yields_of((yields[:exits],), results[:exits]),
        iterations=results[exits : exits + 1],
        rows=yields_of((yields[exits:],), results[exits + 1 :]),
    )


while_ = register(
    "while", Rules(
        infer=_while_infer, reference=_while_reference,
        refuses=lambda *specs, max_steps=None, **params: max_steps is not None,
    ), arity=None, outputs=None, rewritten=_while_rewritten, roles=_while_roles,
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
            problem = "a scan of unknown length takes its length (int64) and reads tapes."
            operands = {f"operand {i}": spec for i, spec in enumerate(specs)}
            fix = "give the length, or stack the rows."
            raise user_error(ArgumentError, "scan", problem, operands=operands, fix=fix)
    else:
        for i, spec in enumerate(sequences):
            if not spec.shape or spec.shape[0] != length:
                problem = f"sequence {i} does not have {length} rows."
                fix = "give sequences of one length along axis 0."
                raise user_error(ShapeError, "scan", problem, operands={"sequence": spec}, fix=fix)
        elements = tuple(spec.update(shape=spec.shape[1:]) for spec in sequences)
    check_inputs("scan", (ITERATION, *elements, *carried, *captured), body, "the iteration")
    outputs = body.output_specs
    check_carried("scan", carried, outputs[:carries])
    rows = outputs[carries:]
    if length is None:
        return (*carried, *tape_specs(handles, len(rows)))
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
            read_row(s, step, spec) if length is None else s[step, ...]
            for s, spec in zip(sequences, elements, strict=True)
        ]
        results = run(body, [np.asarray(step, np.int64), *read, *carried, *captured])
        carried = results[:carries]
        for tape, row in zip(tapes, results[carries:], strict=False):
            tape.write(step, row)
        for stack, row in zip(stacks, results[carries:], strict=False):
            stack[step, ...] = row
    return [*carried, *stacks, *as_handles(tapes, handles)]


def _scan_roles(node: Node) -> NodeRoles:
    body, xs, carries = node.graphs[0], node.params["xs"], node.params["carries"]
    lead = 1 if node.params["length"] is None else 0
    operands, inner = node.inputs[lead:], body.inputs[1:]
    return NodeRoles(
        node,
        node.graphs,
        lead=node.inputs[:lead],
        counter=body.inputs[:1],
        sequences=reads_of(operands[:xs], (inner[:xs],)),
        carries=carries_of(operands[xs : xs + carries], inner[xs:], body.outputs, node.outputs),
        captured=reads_of(operands[xs + carries :], (inner[xs + carries :],)),
        rows=yields_of((body.outputs[carries:],), node.outputs[carries:]),
        length=node.params["length"],
    )


scan = register(
    "scan",
    Rules(infer=_scan_infer, reference=_scan_reference),
    arity=None,
    outputs=None,
    roles=_scan_roles,
)

# -- case_of -----------------------------------------------------------------------------------------------------------


def _case_infer(
    index: TensorSpec, *specs: TensorSpec, graphs: tuple[Graph, ...], checked: bool = True
) -> tuple[TensorSpec, ...]:
    if index != ITERATION:
        fix = "convert it with .astype('int64')."
        raise user_error(ShapeError, "case_of", "the index must be a single int64.", operands={"index": index}, fix=fix)
    if not graphs:
        raise user_error(ArgumentError, "case_of", "there is no branch.", fix="give at least one branch.")
    for i, branch in enumerate(graphs):
        check_inputs("case_of", specs, branch, f"branch {i}")
        if [(s.shape, s.dtype) for s in branch.output_specs] != [(s.shape, s.dtype) for s in graphs[0].output_specs]:
            problem = f"branch {i} yields other shapes or dtypes than branch 0."
            operands = {f"branch {k}": ", ".join(map(str, graphs[k].output_specs)) for k in (0, i)}
            fix = "make all branches yield the same specs."
            raise user_error(ShapeError, "case_of", problem, operands=operands, fix=fix)
    return graphs[0].output_specs


def check_branch(index: int, branches: int) -> int:
    """`index`; raises where there is no such branch."""
    if not 0 <= index < branches:
        fix = 'give an index in range, or mode="clip"; nnc.case_of has bypass= for indices without a branch.'
        raise user_error(OutOfBoundsError, "switch", f"index {index} is out of range for {branches} branches.", fix=fix)
    return index


def _case_reference(
    index: NDArray, *arrays: NDArray, graphs: tuple[Graph, ...], run: Run, checked: bool = True
) -> list[NDArray]:
    return run(graphs[check_branch(int(index), len(graphs))], arrays)


case_of = register(
    "case_of", Rules(
        infer=_case_infer, reference=_case_reference, refuses=lambda *specs, checked=True: checked,
    ), arity=None, outputs=None, roles=lambda node: branches(node, 1),
)  # fmt: skip
