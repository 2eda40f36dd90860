"""Each invariant of a graph, broken once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnc.base.source import SourceLine
from nnc.errors import GraphError
from nnc.graph import Command, Graph, GraphBuilder, Node, Symbol, TensorSpec, command, verify
from nnc.graph.rules import Rules

SPEC = TensorSpec((2,), "float32")
LINE = SourceLine("model.py", 12, "loss")


def node(name: str, inputs: tuple[Symbol, ...], *outputs: Symbol, **params: object) -> Node:
    """A node made at model.py:12."""
    return Node(command(name), inputs, outputs, params, source=LINE)


def refusal(graph: Graph) -> str:
    """The message with which verify refuses `graph`."""
    with pytest.raises(GraphError) as caught:
        verify(graph)
    return str(caught.value)


def test_a_graph_that_was_built_is_returned_as_it_is(squares: Graph) -> None:
    assert verify(squares) is squares


def test_a_symbol_written_twice_is_named_with_both_writers() -> None:
    x, y = Symbol(SPEC, "x"), Symbol(SPEC, "y")
    message = refusal(Graph((x,), (y,), (node("neg", (x,), y), node("exp", (x,), y))))
    assert "%1 y: float32[2] is written twice: by node 0 (neg) (at model.py:12 in loss) and by node 1 (exp)" in message
    assert "at model.py:12 in loss" in message
    assert "is written twice: by an input and by node 0 (neg)" in refusal(Graph((x,), (x,), (node("neg", (x,), x),)))
    assert "by an input and by a constant" in refusal(Graph((x,), (x,), (), {x: np.zeros(2, np.float32)}))


def test_reading_before_writing_differs_from_reading_unwritten_symbols() -> None:
    x, y, z = (Symbol(SPEC) for _ in range(3))
    early = refusal(Graph((x,), (z,), (node("neg", (y,), z), node("neg", (x,), y))))
    assert "node 0 (neg): input 0, %1: float32[2], is read before the node that writes it" in early
    assert "is written nowhere in this graph" in refusal(Graph((x,), (z,), (node("neg", (y,), z),)))
    assert "graph output 1, %1: float32[2], is written nowhere" in refusal(Graph((x,), (x, y), ()))


def test_the_number_of_inputs_and_of_outputs_must_be_the_commands() -> None:
    x, y, z = (Symbol(SPEC) for _ in range(3))
    assert "add: it takes 2 inputs, 1 were given" in refusal(Graph((x,), (y,), (node("add", (x,), y),)))
    assert "it has 2 outputs, the command yields 1" in refusal(Graph((x,), (y,), (node("neg", (x,), y, z),)))


def test_recorded_specs_must_be_those_that_the_command_infers() -> None:
    x, y = Symbol(SPEC), Symbol(SPEC.update(shape=(3,)))
    message = refusal(Graph((x,), (y,), (node("neg", (x,), y),)))
    assert "node 0 (neg): output 0, %1: float32[3], has another spec than inferred" in message
    assert "recorded float32[3]   inferred float32[2]" in message


def test_operands_that_the_command_does_not_take_are_reported_with_the_node() -> None:
    x, y = Symbol(SPEC), Symbol(SPEC)
    message = refusal(Graph((x,), (y,), (node("neg", (x,), y, axis=0),)))
    assert "node 0 (neg): the command does not take these inputs" in message and "axis" in message


def test_a_constant_must_have_the_shape_and_dtype_of_its_symbol() -> None:
    x = Symbol(SPEC)
    assert "constant %0: float32[2] has another shape or dtype than its value, float64[2]" in refusal(
        Graph((), (x,), (), {x: np.zeros(2)})
    )


def test_parameters_must_be_hashable(new_command: Callable[..., Command]) -> None:
    new = new_command("test_listed", Rules(infer=lambda x, *, items: x))
    b = GraphBuilder()
    out = b.add(new, b.input((), "int8"), items=[1, 2])
    assert "parameter items=[1, 2] is not hashable (list)" in refusal(b.build(out))


def test_a_command_that_is_not_the_registered_one_is_refused() -> None:
    x, y = Symbol(SPEC), Symbol(SPEC)
    assert "command 'neg' is not registered" in refusal(Graph((x,), (y,), (Node(Command("neg"), (x,), (y,)),)))


def test_assembled_parts_must_not_overlap() -> None:
    x, y = Symbol(SPEC), Symbol(SPEC.update(shape=(3,)))
    wrong = node("assemble", (x, x), y, shape=(3,), dtype=SPEC.dtype, starts=((0,), (1,)))
    assert "overlap" in refusal(Graph((x,), (y,), (wrong,)))


def test_sub_graphs_are_checked_and_named_by_their_node(call: Command) -> None:
    x, out, inner, wrong = (Symbol(SPEC) for _ in range(4))
    body = Graph((inner,), (wrong,), ())
    message = refusal(Graph((x,), (out,), (Node(call, (x,), (out,), graphs=(body,)),)))
    assert "node 0 (test_call), sub-graph 0, graph output 0, %3: float32[2], is written nowhere" in message


def test_sub_graphs_are_closed(call: Command) -> None:
    x, out, inner, result = (Symbol(SPEC) for _ in range(4))
    reads = Graph((inner,), (result,), (node("add", (inner, x), result),))
    message = refusal(Graph((x,), (out,), (Node(call, (x,), (out,), graphs=(reads,)),)))
    assert "input 1, %0: float32[2], belongs to an enclosing graph; a sub-graph is closed" in message
    writes = Graph((inner,), (x,), (node("neg", (inner,), x),))
    message = refusal(Graph((x,), (out,), (Node(call, (x,), (out,), graphs=(writes,)),)))
    assert "node 0 (neg) writes %0: float32[2], a symbol of an enclosing graph" in message


def test_one_sub_graph_may_serve_two_nodes(call: Command, squares: Graph) -> None:
    b = GraphBuilder()
    x = b.input((2, 3), "float32")
    (once,) = b.add(call, x, x, graphs=(squares,))
    (twice,) = b.add(call, once, x, graphs=(squares,))
    verify(b.build(twice))


def test_operands_that_are_no_symbols_are_named_so() -> None:
    x, y = Symbol(SPEC), Symbol(SPEC)
    wrong = Node(command("neg"), (SPEC,), (y,))  # type: ignore[arg-type]
    assert "a TensorSpec, not a symbol" in refusal(Graph((x,), (y,), (wrong,)))
