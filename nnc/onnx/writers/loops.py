"""Branches and loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnc.graph import Node, Symbol
from nnc.onnx.writers.table import of_complex, refused, writes
from nnc.onnx.writers.writer import Writer, make_graph, value_info

Names = list[str]


def _infos(names: Sequence[str], symbols: Sequence[Symbol]) -> list[object]:
    return [value_info(name, symbol.spec.dtype, symbol.spec.shape) for name, symbol in zip(names, symbols, strict=True)]


@writes("case_of")
@writes("case_of", column=of_complex)
def _case_of(writer: Writer, node: Node, x: Names) -> Names:
    """Branches within each other; the last is taken for every other index."""
    return _branches(writer, node, x[0], x[1:], 0)


def _branches(writer: Writer, node: Node, index: str, operands: Names, place: int) -> Names:
    graph = node.graphs[place]
    if place == len(node.graphs) - 1:
        return writer.graph(graph, operands)
    is_here = writer.op("Equal", writer.cast(index, np.int64), writer.constant(np.int64(place)))
    then = Writer(writer.opset, writer)
    found = [then.op("Identity", name) for name in then.graph(graph, operands)]
    other = Writer(writer.opset, writer)
    others = [other.op("Identity", name) for name in _branches(other, node, index, operands, place + 1)]
    branches = {
        "then_branch": make_graph("then", then.nodes, [], _infos(found, node.outputs)),
        "else_branch": make_graph("else", other.nodes, [], _infos(others, node.outputs)),
    }
    results = writer.op("If", is_here, outputs=len(node.outputs), **branches)
    return [results] if isinstance(results, str) else list(results)


@writes("scan")
@writes("scan", column=of_complex)
def _scan(writer: Writer, node: Node, x: Names) -> Names:
    """ONNX reads its sequences behind the states, and the number of the iteration is one of them."""
    params, graph = node.params, node.graphs[0]
    sequences, carried, length = params["xs"], params["carries"], params["length"]
    if length is None or params.get("handles"):
        raise refused(node, "its number of iterations is not known")
    reads, states, captured = x[:sequences], x[sequences : sequences + carried], x[sequences + carried :]
    formal = [writer.new() for _ in range(1 + sequences + carried)]
    inner, found = writer.body(graph, [*formal, *captured])
    inputs = graph.inputs
    order = [*range(1 + sequences, 1 + sequences + carried), *range(1 + sequences)]
    infos = _infos([formal[place] for place in order], [inputs[place] for place in order])
    body = make_graph("iteration", inner.nodes, infos, _infos(found, graph.outputs))
    way, rows = int(bool(params.get("reverse"))), len(node.outputs) - carried
    turned = {"scan_output_directions": [way] * rows} if rows else {}
    # elements of a sequence that is read backwards have the numbers that they have forwards
    index = writer.constant(np.arange(length, dtype=np.int64))
    results = writer.op(
        "Scan", *states, index, *reads, outputs=len(node.outputs), body=body, num_scan_inputs=1 + sequences,
        scan_input_directions=[way] * (1 + sequences), **turned,
    )  # fmt: skip
    return [results] if isinstance(results, str) else list(results)


@writes("while")
@writes("while", column=of_complex)
def _while(writer: Writer, node: Node, x: Names) -> Names:
    """ONNX asks for the next iteration's condition, so the test is written before the loop and behind each iteration."""
    params, graph = node.params, node.graphs[0]
    carried = params["carries"]
    if params.get("tapes") or params.get("handles") or len(graph.outputs) != 1 + carried:
        raise refused(node, "its iterations are recorded for a derivative, and their number is not known")
    test, step = graph.update(outputs=graph.outputs[:1]), graph.update(outputs=graph.outputs[1:])
    states, captured = x[:carried], x[carried:]
    (first,) = writer.graph(test, [writer.constant(np.int64(0)), *states, *captured])
    count, going, *formal = (writer.new() for _ in range(2 + carried + 1))
    at, formal = formal[0], formal[1:]
    inner = Writer(writer.opset, writer)
    new = [inner.op("Identity", name) for name in inner.graph(step, [at, *formal, *captured])]
    following = inner.op("Add", at, inner.constant(np.int64(1)))
    (again,) = inner.graph(test, [following, *new, *captured])
    again = inner.op("Identity", again)
    shown = graph.inputs[1 : 1 + carried]
    number = graph.inputs[0]
    inputs = [
        value_info(count, np.int64, ()),
        value_info(going, np.bool_, ()),
        *_infos([at, *formal], [number, *shown]),
    ]
    outputs = [value_info(again, np.bool_, ()), *_infos([following, *new], [number, *shown])]
    body = make_graph("iteration", inner.nodes, inputs, outputs)
    most = params.get("max_steps")
    limit = "" if most is None else writer.constant(np.int64(most))
    results = writer.op("Loop", limit, first, writer.constant(np.int64(0)), *states, outputs=1 + carried, body=body)
    done, last = (results, []) if isinstance(results, str) else (results[0], list(results[1:]))
    return [*last, done][: len(node.outputs)]
