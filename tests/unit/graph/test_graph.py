"""Graphs as data: their operands, and their parts."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import nnc
from nnc.errors import ShapeError
from nnc.graph import Command, GraphBuilder, command, verify


def test_a_restricted_graph_keeps_only_nodes_that_its_outputs_need() -> None:
    b = GraphBuilder("both")
    x, y = b.input((2,), "float32"), b.input((2,), "float32")
    two, three = b.constant(np.full(2, 2, np.float32)), b.constant(np.full(2, 3, np.float32))
    doubled, tripled = b.add("mul", x, two), b.add("mul", y, three)
    graph = b.build(doubled, tripled)
    part = verify(graph.restrict((doubled,)))
    assert [node.outputs for node in part.nodes] == [(doubled,)]
    assert [*part.constants] == [two]
    assert (part.inputs, part.name) == (graph.inputs, "both")
    assert part.reads == {x, two, doubled}
    assert graph.reads == {x, y, two, three, doubled, tripled}


def test_an_output_that_is_an_input_needs_no_node() -> None:
    b = GraphBuilder()
    x = b.input((2,), "float32")
    b.add("neg", x)
    part = b.build(x).restrict((x,))
    assert (part.nodes, part.outputs, part.reads) == ((), (x,), {x})


def test_an_updated_node_is_another_one_with_only_the_fields_that_nodes_have() -> None:
    b = GraphBuilder()
    x = b.input((2,), "float32")
    node = b.build(b.add("neg", x)).nodes[0]
    other = node.update(command=command("exp"), source=None)
    assert (other.command.name, other.inputs, other.outputs, other.source) == ("exp", (x,), node.outputs, None)
    assert node.command.name == "neg" and node.source is not None
    with pytest.raises(AttributeError):
        node.update(comand=command("exp"))
    with pytest.raises(FrozenInstanceError):
        other.inputs = ()  # type: ignore[misc]


def test_graphs_cannot_be_changed() -> None:
    b = GraphBuilder()
    graph = b.build(b.add("neg", b.input((2,), "float32")))
    for name in ("nodes", "outputs", "name"):
        with pytest.raises(FrozenInstanceError):
            setattr(graph, name, getattr(graph, name))


def test_nodes_are_counted_with_those_of_sub_graphs(call: Command) -> None:
    b = GraphBuilder()
    x = b.input((2,), "float32")
    inner = b.build(b.add("exp", b.add("neg", x)))
    b = GraphBuilder()
    x = b.input((2,), "float32")
    graph = b.build(b.add("neg", b.add(call, b.add(call, x, graphs=(inner,))[0], graphs=(inner,))[0]))
    assert (inner.num_nodes, graph.num_nodes) == (2, 7)


def test_numbers_take_the_dtypes_of_a_graph_that_is_called_and_arrays_must_have_them() -> None:
    graph = nnc.make_graph(lambda x, y: x * y)(np.float32(1), np.arange(2.0))
    for number in (2, 2.0, np.float32(2)):
        found = graph(number, np.arange(2.0))
        assert found.dtype == np.float64 and found.tolist() == [0, 2]
    for wrong in (
        (1.0, np.arange(2)),
        (np.ones((), np.float64), np.arange(2.0)),
        (1.0, np.arange(2, dtype=np.float32)),
    ):
        with pytest.raises(ShapeError, match="has another shape or dtype"):
            graph(*wrong)
