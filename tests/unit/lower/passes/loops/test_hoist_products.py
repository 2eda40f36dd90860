from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import OutOfBoundsError
from nnc.graph import Graph
from tests.unit.lower.passes.tools import evaluate, names, run

PASSES = ("dce", "fold", "simplify", "cse", "licm", "hoist_products", "dce")
RNG = np.random.default_rng(1)
X, W, H = RNG.normal(size=(5, 2, 3)), RNG.normal(size=(3, 4)), RNG.normal(size=(2, 4))


def hoisted(function: Any, *inputs: Any) -> tuple[Graph, Graph]:
    """The graph after the pass, and the round of its only loop."""
    graph = nnc.make_graph(function)(*inputs)
    after = run(graph, *PASSES)
    for x, y in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    (node,) = (node for node in after.nodes if node.graphs)
    return after, node.graphs[0]


def test_elements_are_multiplied_by_a_captured_tensor_before_the_loop() -> None:
    after, body = hoisted(lambda x, w, h: nnc.scan(lambda h, x: (nnp.tanh(x @ w + h), h), h, x), X, W, H)
    assert names(after) == ["dot", "scan"]
    assert names(body) == ["add", "tanh"]
    assert after.nodes[0].outputs[0].shape == (5, 2, 4)


def test_producers_of_a_product_go_with_it_and_consumers_stay() -> None:
    def f(x: Any, w: Any, h: Any) -> Any:
        return nnc.scan(lambda h, x: (nnp.tanh(nnp.exp(nnp.sin(x).T.T @ w) + h), nnp.sin(x)), h, x)

    after, body = hoisted(f, X, W, H)
    assert set(names(after)) == {"sin", "dot", "scan"}
    assert sorted(names(body)) == ["add", "exp", "sin", "tanh"]


def test_a_product_of_a_product_is_made_before_the_loop_too() -> None:
    def f(x: Any, w: Any, h: Any) -> Any:
        return nnc.scan(lambda h, x: (nnp.tanh(nnp.exp(x @ w) @ w.T @ w + h), h), h, x)

    after, body = hoisted(f, X, W, H)
    assert names(after).count("dot") == 3
    assert names(body) == ["add", "tanh"]


def test_the_captured_tensor_may_stand_on_the_left() -> None:
    after, body = hoisted(lambda x, w, h: nnc.scan(lambda h, x: (nnp.tanh(w.T @ x.T + h.T).T, h), h, x), X, W, H)
    assert "dot" in names(after) and "dot" not in names(body)


def test_a_loop_in_reverse_reads_the_same_products() -> None:
    after, body = hoisted(lambda x, w, h: nnc.scan(lambda h, x: (nnp.tanh(x @ w + h), h), h, x, reverse=True), X, W, H)
    assert "dot" in names(after) and "dot" not in names(body)


def test_products_of_carried_values_and_of_two_elements_stay() -> None:
    def f(x: Any, w: Any, h: Any) -> Any:
        return nnc.scan(lambda h, x: (nnp.tanh(h @ w.T @ w) + (x @ x.T) @ h, None), h, x)[0]

    after, body = hoisted(f, X, W, H)
    assert "dot" not in names(after)
    assert names(body).count("dot") >= 3


def test_a_product_of_many_rows_is_fast_in_its_iteration() -> None:
    x, h = RNG.normal(size=(2, 300, 3)), RNG.normal(size=(300, 4))
    _after, body = hoisted(lambda x, w, h: nnc.scan(lambda h, x: (nnp.tanh(x @ w + h), h), h, x), x, W, h)
    assert "dot" in names(body)


def test_an_inner_loop_gives_its_product_to_the_outer_one_which_gives_it_away_as_well() -> None:
    def f(x: Any, w: Any, h: Any) -> Any:
        def outer(h: Any, x: Any) -> Any:
            return nnc.scan(lambda h, x: (nnp.tanh(x @ w + h), None), h, x)[0], None

        return nnc.scan(outer, h, x)[0]

    after, body = hoisted(f, RNG.normal(size=(3, 5, 2, 3)), W, H)
    assert names(after).count("dot") == 1
    assert all(node.command.name != "dot" for node in body.walk())


def test_an_iteration_with_an_index_out_of_range_raises_after_the_effects_of_earlier_ones() -> None:
    seen: list[int] = []

    def f(table: Any, w: Any, h: Any, places: Any) -> Any:
        def round_(h: Any, i: Any) -> Any:
            nnc.debug.callback(lambda i: seen.append(int(i)), i)
            return nnp.tanh(table[i] @ w + h), None

        return nnc.scan(round_, h, places)[0]

    graph = run(nnc.make_graph(f)(X, W, H, np.array([0, 4, 5, 1], np.int32)), *PASSES)
    assert "dot" not in names(graph)
    with pytest.raises(OutOfBoundsError):
        evaluate(graph, (X, W, H, np.array([0, 4, 5, 1], np.int32)))
    assert seen == [0, 4, 5]
