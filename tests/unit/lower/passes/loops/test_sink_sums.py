from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import Graph, Node, command
from tests.unit.lower.passes.tools import evaluate, names, run

PASSES = ("dce", "fold", "simplify", "cse", "licm", "dce", "sink_sums", "dce")
RNG = np.random.default_rng(2)
X, Y = RNG.normal(size=(5, 2, 3)), RNG.normal(size=(5, 2, 4))
C, H = RNG.normal(size=(3, 4)), RNG.normal(size=(2, 4))


def sunk(function: Any, *inputs: Any) -> tuple[Graph, Node]:
    """The graph after the pass, and its only loop."""
    graph = nnc.make_graph(function)(*inputs)
    after = run(graph, *PASSES)
    for x, y in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    (node,) = (node for node in after.nodes if node.graphs)
    return after, node


def iterations(h: Any, c: Any, x: Any, y: Any) -> Any:
    """A loop that carries something of its own, and a sum of products."""

    def round_(carried: Any, elements: Any) -> Any:
        h, c = carried
        x, y = elements
        h = nnp.tanh(h + y)
        return (h, c + x.T @ h), None

    return nnc.scan(round_, (h, c), (x, y))[0]


def test_a_sum_of_products_is_one_product_over_all_iterations() -> None:
    after, node = sunk(iterations, H, C, X, Y)
    assert sorted(names(after)) == ["add", "dot", "scan"]
    assert names(node.graphs[0]) == ["add", "tanh"]
    (dot,) = (x for x in after.nodes if x.command.name == "dot")
    assert dot.params["contract"] == ((0, 1), (0, 1))
    assert dot.inputs[0] is after.inputs[2]


def test_a_sum_that_starts_at_zero_is_not_added_to_zero() -> None:
    after, _node = sunk(lambda h, x, y: iterations(h, nnp.zeros((3, 4), "float64"), x, y), H, X, Y)
    assert sorted(name for name in names(after) if name != "broadcast_to") == ["dot", "scan"]


def test_gradients_of_captured_weights_are_such_sums() -> None:
    def loss(w: Any, b: Any, h: Any, x: Any) -> Any:
        h, _ = nnc.scan(lambda h, x: (nnp.tanh(x @ w + h + b), None), h, x)
        return (h * h).sum()

    graph = nnc.make_graph(nnc.grad(loss, argnums=(0, 1)))(C, H[0], H, X)
    after = run(graph, *PASSES)
    for x, y in zip(evaluate(graph, (C, H[0], H, X)), evaluate(after, (C, H[0], H, X)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
    backward = [node for node in after.nodes if node.graphs][-1]
    assert backward.params["carries"] == 1
    assert "dot" not in names(backward.graphs[0])
    assert [x.inputs[0].shape for x in after.nodes if x.command.name == "reduce_sum"][-1][0] == len(X)


def test_several_terms_views_and_parts_are_summed_by_themselves() -> None:
    def f(h: Any, c: Any, x: Any, y: Any) -> Any:
        def round_(carried: Any, elements: Any) -> Any:
            h, c = carried
            x, y = elements
            h = nnp.tanh(h + y)
            part = command("assemble")(x[:, :1].T @ h, shape=(3, 4), dtype=np.dtype("float64"), starts=((2, 0),))
            return (h, c - x.T @ y + (h.T @ x).T + (part - x.T @ y[:, ::-1])), None

        return nnc.scan(round_, (h, c), (x, y))[0]

    after, node = sunk(f, H, C, X, Y)
    assert node.params["carries"] == 1
    assert names(after).count("dot") == 4 and "dot" not in names(node.graphs[0])


@pytest.mark.parametrize("reverse", [False, True])
def test_elements_and_rows_are_added_up_after_the_loop(reverse: bool) -> None:
    def f(h: Any, y: Any) -> Any:
        def round_(carried: Any, y: Any) -> Any:
            h, total, sums = carried
            h = nnp.tanh(h * y)
            return (h, total + y, sums + h.sum(0)), h

        zeros = nnp.zeros((4,), "float64")
        return nnc.scan(round_, (h, h, zeros), y, reverse=reverse)

    _after, node = sunk(f, H, Y)
    assert node.params["carries"] == 1
    assert sorted(names(node.graphs[0])) == ["mul", "tanh"]


def test_a_sum_that_rounds_read_or_scale_stays() -> None:
    def f(h: Any, x: Any, y: Any) -> Any:
        def round_(carried: Any, elements: Any) -> Any:
            read, yielded, scaled = carried
            x, y = elements
            product = x.T @ nnp.sin(y)
            return (read + product * nnp.tanh(read[0, 0]), yielded + product, 0.5 * scaled + product), yielded

        zeros = nnp.zeros((3, 4), "float64")
        return nnc.scan(round_, (zeros, zeros, zeros), (x, y))

    _after, node = sunk(f, H, X, Y)
    assert node.params["carries"] == 3


def test_a_sum_that_is_smaller_than_its_operand_stays() -> None:
    def f(h: Any, y: Any) -> Any:
        def round_(carried: Any, y: Any) -> Any:
            h, total = carried
            h = nnp.tanh(h * y)
            return (h, total + (h * h).sum()), None

        return nnc.scan(round_, (h, nnp.zeros((), "float64")), y)[0]

    _after, node = sunk(f, H, Y)
    assert node.params["carries"] == 2


def test_a_product_that_sums_over_many_rows_in_each_round_stays() -> None:
    _after, node = sunk(iterations, np.ones((70, 4)), C, RNG.normal(size=(2, 70, 3)), RNG.normal(size=(2, 70, 4)))
    assert node.params["carries"] == 2


def test_a_sum_over_an_inner_loop_is_one_over_the_outer_loop() -> None:
    def f(c: Any, x: Any, y: Any) -> Any:
        def outer(c: Any, elements: Any) -> Any:
            return nnc.scan(lambda c, xy: (c + xy[0].T @ xy[1], None), c, elements)[0], None

        return nnc.scan(outer, c, (x, y))[0]

    x, y = RNG.normal(size=(3, 5, 2, 3)), RNG.normal(size=(3, 5, 2, 4))
    graph = nnc.make_graph(f)(C, x, y)
    after = run(graph, *PASSES)
    np.testing.assert_allclose(evaluate(graph, (C, x, y))[0], evaluate(after, (C, x, y))[0], rtol=1e-12)
    (dot,) = (node for node in after.nodes if node.command.name == "dot")
    assert dot.params["contract"] == ((0, 1, 2), (0, 1, 2))
    assert not any(symbol in after.outputs for node in after.nodes if node.graphs for symbol in node.outputs)


def test_a_difference_that_is_subtracted_adds_the_product_that_it_subtracts() -> None:
    def f(h: Any, c: Any, x: Any, y: Any) -> Any:
        def round_(carried: Any, elements: Any) -> Any:
            h, c = carried
            x, y = elements
            h = nnp.tanh(h + y)
            return (h, c - (x.T @ h - (x.T @ y - x[::-1].T @ h))), None

        return nnc.scan(round_, (h, c), (x, y))[0]

    after, node = sunk(f, H, C, X, Y)
    assert node.params["carries"] == 1
    assert names(after).count("dot") == 3 and "dot" not in names(node.graphs[0])


@pytest.mark.parametrize("subtracts", [True, False])
def test_elements_that_almost_cancel_are_not_summed_apart(subtracts: bool) -> None:
    x = (1e6 * RNG.normal(size=(50, 7))).astype(np.float32)
    y = x * np.float32(1 - 1e-5)

    def f(x: Any, y: Any) -> Any:
        def round_(c: Any, elements: Any) -> Any:
            x, y = elements
            return (c - (x - y) if subtracts else c - (x + y)), None

        return nnc.scan(round_, nnp.zeros(7, "float32"), (x, y if subtracts else -y))[0]

    after = run(nnc.make_graph(f)(x, y), *PASSES)
    wanted = -(x.astype(np.float64) - y).sum(0)
    np.testing.assert_allclose(evaluate(after, (x, y))[0], wanted, rtol=2e-5)
    np.testing.assert_allclose(nnc.compile(f)(x, y), wanted, rtol=2e-5)


def test_an_element_that_is_yielded_is_summed_with_its_sign() -> None:
    def f(h: Any, y: Any) -> Any:
        def round_(carried: Any, y: Any) -> Any:
            h, total = carried
            difference = nnp.tanh(h) - y
            return (nnp.tanh(h * y), total - difference), difference

        return nnc.scan(round_, (h, h), y)

    _after, node = sunk(f, H, Y)
    assert node.params["carries"] == 1


def test_products_are_subtracted_from_nothing_with_their_sign() -> None:
    def f(h: Any, x: Any, y: Any) -> Any:
        def round_(carried: Any, elements: Any) -> Any:
            h, c = carried
            h = nnp.tanh(h + elements[1])
            return (h, c - elements[0].T @ h), None

        return nnc.scan(round_, (h, nnp.zeros((3, 4), "float64")), (x, y))[0]

    _after, node = sunk(f, H, X, Y)
    assert node.params["carries"] == 1


@pytest.mark.parametrize(
    "following",
    [
        lambda c, x, y: x.T @ y - c,
        lambda c, x, y: c + c + x.T @ y,
        lambda c, x, y: c + nnp.exp(x.T @ y),
        lambda c, x, y: c + (x.T @ y) * (y[0] + 2),
        lambda c, x, y: c + nnp.maximum(x.T @ y, 0),
    ],
    ids=["turned around", "doubled", "exponentials of sums", "multiples of sums", "maxima of sums"],
)
def test_values_that_are_no_sums_over_time_stay(following: Any) -> None:
    def f(c: Any, x: Any, y: Any) -> Any:
        return nnc.scan(lambda c, xy: (following(c, *xy), None), c, (x, y))[0]

    _after, node = sunk(f, C, X, Y)
    assert node.params["carries"] == 1


def test_a_sum_that_another_carried_value_reads_stays() -> None:
    def f(h: Any, c: Any, x: Any, y: Any) -> Any:
        def round_(carried: Any, elements: Any) -> Any:
            h, c = carried
            x, y = elements
            return (nnp.tanh(h + y + c[0]), c + x.T @ y), None

        return nnc.scan(round_, (h, c), (x, y))[0]

    _after, node = sunk(f, H, C, X, Y)
    assert node.params["carries"] == 2
