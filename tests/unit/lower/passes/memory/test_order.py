from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import nnc
from nnc.base.options import Options
from nnc.compiled.pipeline import plan
from nnc.graph import Graph, GraphBuilder, TensorSpec, register, run_passes, structural_hash
from nnc.graph.rules import Rules
from nnc.lower.passes.memory.order import order
from nnc.lower.phases import SIMPLIFYING, names_of
from nnc.lower.plan.liveness import max_live
from nnc.lower.plan.views import find_views, runs
from tests.fuzz.programs.test_passes import graphs
from tests.unit.lower.passes.tools import check_same_bits, names, record, run

VECTOR = TensorSpec((1024,), "float32")


def peak(graph: Graph) -> int:
    """The largest number of bytes of node outputs that are live, each until the last reader of it or of a view of it."""
    views = find_views(graph)
    outputs = {views[symbol].base for symbol in graph.outputs}
    first, last = {}, {}
    for position, node in enumerate(graph.nodes):
        for symbol in (*node.inputs, *node.outputs) if runs(node, views) else ():
            first.setdefault(views[symbol].base, position)
            last[views[symbol].base] = position + 1
    tensors = [s for node in graph.nodes for s in node.outputs if views[s].base is s and s not in outputs and s in last]
    size = [-(-s.spec.nbytes // 64) * 64 for s in tensors]
    return max_live([first[s] for s in tensors], [last[s] for s in tensors], size)


def test_branches_are_reduced_one_after_the_other() -> None:
    def function(x: Any, y: Any) -> Any:
        a, b = nnc.numpy.exp(x), nnc.numpy.exp(y)
        return nnc.numpy.sum(a), nnc.numpy.sum(b)

    graph = run(record(function, VECTOR, VECTOR), "inline_calls")
    after = run(graph, "order")
    assert names(graph) == ["exp", "exp", "reduce_sum", "reduce_sum"]
    assert names(after) == ["exp", "reduce_sum", "exp", "reduce_sum"]
    assert peak(after) == peak(graph) // 2


def test_a_graph_that_no_order_improves_keeps_its_nodes() -> None:
    graph = record(lambda x: nnc.numpy.exp(nnc.numpy.sin(x)), VECTOR)
    assert order(graph, Options()).nodes is graph.nodes


def test_updates_run_as_soon_as_their_gradients_exist() -> None:
    """Four layers; gradients are all computed before any update."""

    def loss(weights: list[Any], x: Any) -> Any:
        for w in weights:
            x = nnc.numpy.tanh(x @ w)
        return nnc.numpy.sum(x * x)

    def step(weights: list[Any], x: Any) -> list[Any]:
        gradients = nnc.grad(loss)(weights, x)
        return [w - 0.5 * g for w, g in zip(weights, gradients, strict=True)]

    weights = [np.eye(64, dtype=np.float32)] * 4
    graph = nnc.make_graph(step)(weights, np.ones((8, 64), np.float32))
    graph = run(graph, *names_of(SIMPLIFYING))
    after = run_passes(graph, ("order",), Options(donated=(0, 1, 2, 3)), verify=True)
    check_same_bits(graph, after, [*weights, np.ones((8, 64), np.float32)])
    assert peak(after) < 0.7 * peak(graph)
    assert plan(after, Options(donated=(0, 1, 2, 3))).bound.donated == (0, 1, 2, 3)


def test_an_update_in_place_waits_for_the_other_readers_of_its_input() -> None:
    b = GraphBuilder()
    w, x = b.input(VECTOR), b.input(VECTOR)
    product = b.add("mul", w, x)
    total = b.add("reduce_sum", product, axes=(0,))
    gradient = b.add("neg", x)
    updated = b.add("sub", w, gradient)
    graph = b.build(total, updated)
    for donated in ((), (0,)):
        after = run_passes(graph, ("order",), Options(donated=donated), verify=True)
        position = {node.outputs[0]: i for i, node in enumerate(after.nodes)}
        assert not donated or position[updated] > position[product]
    assert plan(graph, Options(donated=(0,))).bound.donated == (0,)


register("test_order_effect", Rules(infer=lambda x: x, effect="debug"))


def test_effects_keep_their_order_in_the_graph_and_in_branches() -> None:
    b = GraphBuilder()
    x = b.input(VECTOR)
    effects = []
    for _ in range(3):
        big = b.add("exp", x)
        effects.append(b.add("test_order_effect", big))
    sums = [b.add("reduce_sum", y, axes=(0,)) for y in reversed(effects)]
    graph = b.build(*sums)
    after = run(graph, "order")
    assert peak(after) <= peak(graph)
    assert [node.outputs[0] for node in after.nodes if node.command.name == "test_order_effect"] == effects


def test_no_node_of_a_round_crosses_the_test() -> None:
    def function(x: Any) -> Any:
        def body(state: Any) -> Any:
            i, y = state
            a, b = nnc.numpy.exp(y), nnc.numpy.sin(y)
            return i + 1, y + nnc.numpy.sum(a) * 1e-3 + nnc.numpy.sum(b) * 1e-3

        return nnc.while_loop(lambda state: state[0] < 3, body, (0, x))[1]

    graph = nnc.make_graph(function)(np.ones(1024, np.float32))
    after = run(graph, "order")
    check_same_bits(graph, after, [np.ones(1024, np.float32)])
    (loop,) = [node for node in graph.walk() if node.command.name == "while"]
    (moved,) = [node for node in after.walk() if node.command.name == "while"]
    assert moved.params == loop.params
    assert set(moved.graphs[0].nodes[: loop.params["before"]]) == set(loop.graphs[0].nodes[: loop.params["before"]])
    assert peak(moved.graphs[0]) < peak(loop.graphs[0])


@given(graphs())
def test_random_graphs_compute_the_same_and_take_no_more(graph: Graph) -> None:
    after = run(graph, "order")
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(-1, 1, spec.shape).astype(spec.dtype) for spec in graph.input_specs]
    check_same_bits(graph, after, inputs)
    assert set(after.nodes) == set(graph.nodes) or any(node.graphs for node in graph.nodes)
    assert structural_hash(run(graph, "order")) == structural_hash(after)


@pytest.mark.parametrize("length", [3000])
def test_long_chains_do_not_recurse(length: int) -> None:
    b = GraphBuilder()
    x = y = b.input((16,), "float32")
    for _ in range(length):
        y = b.add("add", x, y)
    graph = b.build(y)
    assert order(graph, Options()).nodes is graph.nodes


PROGRAM = """
import numpy as np, nnc
from nnc.graph import run_passes, structural_hash
from nnc.compiled.pipeline import plan
from nnc.base.options import Options
f = lambda ws, x: nnc.numpy.sum(nnc.numpy.tanh(nnc.numpy.tanh(x @ ws[0]) @ ws[1]) ** 2)
g = nnc.make_graph(lambda ws, x: [w - g for w, g in zip(ws, nnc.grad(f)(ws, x))])
graph = g([np.ones((8, 8), np.float32)] * 2, np.ones((4, 8), np.float32))
after = run_passes(graph, ("inline_calls", "dce", "order"), Options())
print(structural_hash(after), plan(after, Options()).offsets)
"""


def test_another_process_with_another_hash_seed_gives_the_same_order_and_plan() -> None:
    def output(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment
        )
        return run.stdout

    first = output("1")
    assert first == output("2")
    assert len(first) > 80
