"""Elementwise commands wait for their readers where that takes no more memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given

import nnc
import nnc.numpy as nnp
from nnc.base.options import Options
from nnc.graph import Graph, GraphBuilder, verify
from nnc.lower.passes.memory.delay_cheap import delay_cheap
from nnc.lower.passes.memory.order import Description
from tests.fuzz.programs.test_passes import graphs
from tests.unit.lower.passes.tools import check_same_bits, names, run

X = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)


def staged(function: Any, *arguments: Any) -> Graph:
    return run(nnc.make_graph(function)(*arguments), "inline_calls", "dce")


def largest(graph: Graph) -> int:
    return max(Description(graph, free=graph.outputs).live_bytes())


def test_cheap_results_of_one_value_are_made_behind_independent_nodes() -> None:
    def f(x: Any) -> Any:
        y = nnp.exp(x)
        z, w = -y, nnp.sin(y)
        a = nnp.cumsum(x, axis=0)
        return z * a + w * y

    graph = staged(f, X)
    after = run(graph, "delay_cheap")
    assert names(graph)[:4] == ["exp", "neg", "sin", "cumsum"]
    assert names(after)[0] == "cumsum"
    assert largest(after) < largest(graph)
    check_same_bits(graph, after, [X])


def test_nodes_whose_operands_would_live_longer_for_fewer_bytes_stay() -> None:
    def f(x: Any) -> Any:
        total = nnp.cumsum(x, axis=1) + nnp.cumprod(x, axis=1)  # two values become one
        return nnp.cumsum(x, axis=0) * total

    graph = staged(f, X)
    assert run(graph, "delay_cheap").nodes == graph.nodes


def test_donated_inputs_do_not_live_longer() -> None:
    b = GraphBuilder("donated")
    x = b.input((8, 8), "float32")
    y, z = b.add("exp", x), b.add("neg", x)
    a = b.add("cumsum", z, axis=0)
    graph = b.build(b.add("mul", y, a), z)
    assert delay_cheap(graph, Options(donated=(0,))).nodes == graph.nodes
    assert names(delay_cheap(graph, Options())) == ["neg", "cumsum", "exp", "mul"]


@given(graphs())
def test_random_graphs_compute_the_same(graph: Graph) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=s.shape).astype(s.dtype) for s in graph.input_specs]
    after = delay_cheap(graph, Options())
    verify(after)
    check_same_bits(graph, after, inputs)
