from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import Graph, Node
from tests.unit.lower.passes.tools import evaluate, names, run

PASSES = ("dce", "fold", "simplify", "cse", "licm", "dce", "sink_products", "dce")
RNG = np.random.default_rng(3)
X, H, V = RNG.normal(size=(5, 2, 4)), RNG.normal(size=(2, 4)), RNG.normal(size=(4, 6))


def sunk(function: Any, *inputs: Any) -> tuple[Graph, Node]:
    """The graph after the pass, and its only loop."""
    graph = nnc.make_graph(function)(*inputs)
    after = run(graph, *PASSES)
    for x, y in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    (node,) = (node for node in after.nodes if node.graphs)
    return after, node


@pytest.mark.parametrize("reverse", [False, True])
def test_logits_of_all_steps_are_one_product(reverse: bool) -> None:
    def f(h: Any, v: Any, x: Any) -> Any:
        def round_(h: Any, x: Any) -> Any:
            h = nnp.tanh(h + x)
            return h, nnp.exp(h @ v)

        return nnc.scan(round_, h, x, reverse=reverse)

    after, node = sunk(f, H, V, X)
    assert names(after) == ["scan", "dot", "exp"]
    assert names(node.graphs[0]) == ["add", "tanh"]


def test_a_product_that_the_next_round_needs_stays() -> None:
    def f(h: Any, v: Any, x: Any) -> Any:
        def round_(h: Any, x: Any) -> Any:
            y = (h + x) @ v
            return nnp.tanh(y @ v.T), y

        return nnc.scan(round_, h, x)

    after, _node = sunk(f, H, V, X)
    assert "dot" not in names(after)


def test_a_product_that_a_row_in_the_loop_needs_is_not_made_twice() -> None:
    """The element at an index may raise, so it stays in the loop, and the product with it."""

    def f(h: Any, v: Any, x: Any, i: Any) -> Any:
        def round_(h: Any, given: Any) -> Any:
            x, i = given
            h = nnp.tanh(h + x)
            y = h @ v
            return h, (y, y[:, i])

        return nnc.scan(round_, h, (x, i))

    after, node = sunk(f, H, V, X, np.arange(len(X), dtype=np.int32) % V.shape[1])
    assert "dot" not in names(after) and names(node.graphs[0]).count("dot") == 1


def test_a_product_that_is_smaller_than_its_operands_stays_unless_that_is_a_row_anyway() -> None:
    narrow = V[:, :1]

    def f(keep: bool) -> Any:
        def g(h: Any, v: Any, x: Any) -> Any:
            def round_(h: Any, x: Any) -> Any:
                h = nnp.tanh(h + x)
                return h, ((h @ v, h) if keep else h @ v)

            return nnc.scan(round_, h, x)

        return g

    after, node = sunk(f(False), H, narrow, X)
    assert "dot" not in names(after)
    after, node = sunk(f(True), H, narrow, X)
    assert "dot" in names(after) and "dot" not in names(node.graphs[0])


def test_gradients_of_a_sequence_are_one_product() -> None:
    def loss(x: Any, v: Any, h: Any) -> Any:
        h, _ = nnc.scan(lambda h, x: (nnp.tanh((x @ v) @ v.T + h), None), h, x)
        return (h * h).sum()

    graph = nnc.make_graph(nnc.grad(loss))(X, V, H)
    after = run(graph, "dce", "fold", "simplify", "cse", "licm", "hoist_products", "sink_products", "dce")
    np.testing.assert_allclose(evaluate(graph, (X, V, H))[0], evaluate(after, (X, V, H))[0], rtol=1e-12)
    assert all("dot" not in names(node.graphs[0]) for node in after.nodes if node.graphs)
    assert names(after).count("dot") == 4


def test_an_effect_in_the_iteration_keeps_its_operands() -> None:
    seen: list[Any] = []

    def f(h: Any, v: Any, x: Any) -> Any:
        def round_(h: Any, x: Any) -> Any:
            y = h @ v
            nnc.debug.callback(lambda y: seen.append(np.array(y)), y)
            return nnp.tanh(h + x), y

        return nnc.scan(round_, h, x)

    _after, node = sunk(f, H, V, X)
    assert "dot" in names(node.graphs[0])
    assert len(seen) == 2 * len(X)
