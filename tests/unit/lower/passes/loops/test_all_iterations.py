"""The passes on `scan` together: recurrent networks, their gradients and second derivatives keep their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.backends.choose import choose_kernel
from nnc.base.options import Options
from nnc.compiled.pipeline import lower
from nnc.graph import Graph, run_passes
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.fuzz.programs.test_graphs_of_loops import arguments, graphs
from tests.unit.lower.passes.tools import evaluate, names

PASSES = ("hoist_products", "sink_sums", "sink_products", "dce", "rematerialize_residuals", "dce")
RNG = np.random.default_rng(0)
ROWS, SIZE = 3, 4
Cell = Callable[[Any, Any, Any], tuple[Any, Any]]


def elman(weights: Any, h: Any, x: Any) -> tuple[Any, Any]:
    h = nnp.tanh(x @ weights["w"] + h @ weights["u"] + weights["b"])
    return h, h


def gated(weights: Any, h: Any, x: Any) -> tuple[Any, Any]:
    """Yields a product of its carry; the weight is read twice."""
    gate = nnc.nn.sigmoid(nnp.sin(x) @ weights["w"].T + h @ weights["u"])
    h = gate * h + (1 - gate) * nnp.tanh(h @ weights["u"].T + weights["b"])
    return h, nnp.exp(h @ weights["w"]) + x


def deep(weights: Any, h: Any, x: Any) -> tuple[Any, Any]:
    """A loop in each round."""
    h, inner = nnc.scan(lambda c, i: elman(weights, c, x * i), h, nnp.arange(2.0, dtype="float64"))
    return nnp.cos(h), inner.sum(0) @ weights["w"]


def mean_only(weights: Any, h: Any, x: Any) -> tuple[Any, Any]:
    """The carried values are a sum that iterations only add to, and a sum of rows."""
    return h + nnp.tanh(x).T[:ROWS, :] @ x @ weights["w"] + x, nnp.sqrt(h * h + 1)


CELLS: tuple[Cell, ...] = (elman, gated, deep, mean_only)


def inputs_of(length: int) -> tuple[Any, ...]:
    weights = {
        "w": RNG.normal(size=(SIZE, SIZE)) / 2,
        "u": RNG.normal(size=(SIZE, SIZE)) / 2,
        "b": RNG.normal(size=SIZE),
    }
    return weights, RNG.normal(size=(ROWS, SIZE)), RNG.normal(size=(length, ROWS, SIZE))


def loss_of(cell: Cell, reverse: bool) -> Callable[..., Any]:
    def loss(weights: Any, h: Any, xs: Any) -> Any:
        h, ys = nnc.scan(lambda h, x: cell(weights, h, x), h, xs, reverse=reverse)
        return (h * h).sum() + nnp.sin(ys).sum()

    return loss


def check(graph: Graph, args: Any, passes: tuple[str, ...] = names_of(SIMPLIFYING)) -> Graph:
    """The graph after the passes, which computes the same up to rounding."""
    after = run_passes(graph, passes, Options(), verify=True)
    leaves = nnc.tree.leaves(args)
    for x, y in zip(evaluate(graph, leaves), evaluate(after, leaves), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
    return after


def test_the_passes_are_part_of_the_pipeline() -> None:
    assert [name for name in names_of(SIMPLIFYING) if name in PASSES and name != "dce"] == [
        x for x in PASSES if x != "dce"
    ]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 5])
@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_networks_and_their_gradients_keep_their_values(cell: Cell, length: int, reverse: bool) -> None:
    args = inputs_of(length)
    loss = loss_of(cell, reverse)
    check(nnc.make_graph(loss)(*args), args)
    check(nnc.make_graph(nnc.value_and_grad(loss, argnums=(0, 1, 2)))(*args), args)


@pytest.mark.parametrize("cell", CELLS)
def test_vmapped_gradients_keep_their_values(cell: Cell) -> None:
    weights, h, xs = inputs_of(3)
    args = weights, np.stack([h, 2 * h]), np.stack([xs, -xs], 2)
    gradient = nnc.vmap(nnc.grad(loss_of(cell, True), argnums=(0, 2)), in_axes=(None, 0, 2))
    check(nnc.make_graph(gradient)(*args), args)


@pytest.mark.parametrize("cell", CELLS[:3])
def test_second_derivatives_keep_their_values(cell: Cell) -> None:
    args = inputs_of(3)
    gradient = nnc.grad(loss_of(cell, False))

    def product(weights: Any, h: Any, xs: Any) -> Any:
        return nnc.jvp(lambda w: gradient(w, h, xs), (weights,), (weights,))[1]

    def back(weights: Any, h: Any, xs: Any) -> Any:
        return nnc.grad(lambda w: sum((x * x).sum() for x in nnc.tree.leaves(gradient(w, h, xs))))(weights)

    check(nnc.make_graph(product)(*args), args)
    check(nnc.make_graph(back)(*args), args)


@pytest.mark.parametrize("cell", CELLS)
def test_programs_agree_with_their_graphs(cell: Cell) -> None:
    args = inputs_of(4)
    graph = nnc.make_graph(nnc.value_and_grad(loss_of(cell, True), argnums=(0, 1, 2)))(*args)
    program = lower(graph, Options(verify_passes=True), choose_kernel)
    leaves = [np.array(x) for x in nnc.tree.leaves(args)]
    for x, y in zip(program.run(leaves), evaluate(graph, leaves), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


def test_under_a_budget_of_memory_loops_keep_their_products_and_sums() -> None:
    args = inputs_of(5)
    graph = nnc.make_graph(nnc.grad(loss_of(elman, False)))(*args)
    options = Options(memory_budget=1 << 30)
    before = run_passes(graph, ("dce", "cse", "licm", "dce"), options)
    after = run_passes(before, ("hoist_products", "sink_sums", "sink_products"), options)
    assert after.nodes == before.nodes


@pytest.mark.parametrize(("iterations", "stays"), [(2, False), (40, True)])
def test_rows_of_all_iterations_take_at_most_a_few_times_the_memory_of_the_loop(iterations: int, stays: bool) -> None:
    """Each number of a sequence becomes a hundred, so the products of many iterations take much more than the weights."""
    x, wide = RNG.normal(size=(iterations, 1, 1)), RNG.normal(size=(1, 100))

    def f(x: Any, wide: Any) -> Any:
        return nnc.scan(lambda c, x: (nnp.tanh(x @ wide + c).sum(), None), nnp.zeros((), "float64"), x)[0]

    after = check(nnc.make_graph(f)(x, wide), (x, wide))
    (node,) = (node for node in after.nodes if node.graphs)
    assert ("dot" in names(node.graphs[0])) == stays


@given(graphs(), st.integers(0, 3))
def test_random_loops_keep_their_values(graph: Graph, iterations: int) -> None:
    after = run_passes(graph, ("dce", "cse", "licm", "dce", *PASSES), Options(), verify=True)
    inputs = arguments(graph, iterations)
    for x, y in zip(evaluate(graph, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
