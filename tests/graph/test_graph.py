"""Graphs as data: what they read, and their parts."""

from __future__ import annotations

import numpy as np

from nnc.graph import GraphBuilder, verify


def test_a_restricted_graph_keeps_only_what_its_outputs_need() -> None:
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
