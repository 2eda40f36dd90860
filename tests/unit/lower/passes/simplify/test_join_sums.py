from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.graph import Graph
from tests.unit.lower.passes.tools import evaluate, names, run

X = np.arange(1.0, 13.0, dtype=np.float32).reshape(4, 3)


def gradient(f: Any) -> tuple[Graph, Graph]:
    graph = nnc.make_graph(nnc.grad(f))(X)
    after = run(graph, "dce", "fold", "simplify", "join_sums", "parts", "dce")
    for x, y in zip(evaluate(graph, [X]), evaluate(after, [X]), strict=True):
        np.testing.assert_array_equal(x, y)
    return graph, after


def test_gradients_of_the_parts_of_a_tensor_are_joined() -> None:
    def f(x: Any) -> Any:
        return sum(nnp.sum(nnp.sin(part) * i) for i, part in enumerate(nnp.split(x, 4)))

    before, after = gradient(f)
    assert names(run(before, "dce")).count("add") == 3
    assert names(after).count("add") == 0 and names(after).count("assemble") <= 1


def test_parts_that_overlap_are_added() -> None:
    _, after = gradient(lambda x: nnp.sum(nnp.sin(x[:3])) + nnp.sum(nnp.cos(x[2:])))
    assert names(after).count("add") == 1


def test_values_that_others_read_stay() -> None:
    def f(x: Any) -> Any:
        low, high = nnc.vjp(lambda y: y[:2], x)[1](x[:2])[0], nnc.vjp(lambda y: y[2:], x)[1](x[:2])[0]
        return low + high, low

    graph = nnc.make_graph(f)(X)
    after = run(graph, "join_sums")
    assert names(after).count("add") == 1


def test_sums_within_loops_are_joined() -> None:
    part = lambda x, i: nnc.vjp(lambda y: y[i : i + 2], x)[1](x[:2])[0]
    graph = nnc.make_graph(lambda x: nnc.fori_loop(0, 3, lambda i, c: part(c, 0) + part(c, 2), x))(X)
    (node,) = run(graph, "dce", "join_sums", "dce").nodes
    assert names(node.graphs[0]).count("assemble") == 1
