"""Sums stand behind the producers of their operands."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.lower.phases import FUSE, JOIN, SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import check_same_bits, names, run

_RNG = np.random.default_rng(3)
X = _RNG.normal(size=(2048, 32)).astype(np.float32)
W = _RNG.normal(size=(32, 32)).astype(np.float32)


def _late(x: Any, w: Any) -> Any:
    y = nnp.sin(x)
    return nnp.exp(y @ w), nnp.sum(y, axis=0), nnp.max(y)


def test_reductions_move_into_the_producer_of_their_operand() -> None:
    graph = run(nnc.make_graph(_late)(X, W), *names_of(SIMPLIFYING))
    after = run(graph, "reduce_in_producers")
    assert names(graph) == ["sin", "dot", "exp", "reduce_sum", "reduce_max"]
    assert names(after) == ["sin", "reduce_sum", "reduce_max", "dot", "exp"]
    check_same_bits(graph, after, [X, W])


def test_so_the_kernel_that_makes_it_adds_it_up() -> None:
    graph = run(nnc.make_graph(lambda x, w: _late(x, w)[:2])(X, W), *names_of(SIMPLIFYING))
    with_pass = run(graph, *names_of((FUSE, JOIN)))
    assert [len(node.outputs) for node in with_pass.nodes if node.command.name == "fused"] == [2]
    without = run(graph, *(name for name in names_of((FUSE, JOIN)) if name != "reduce_in_producers"))
    assert len(without.nodes) > len(with_pass.nodes)


def test_large_results_and_reductions_without_a_producer_kernel_stay() -> None:
    large = lambda x, w: (y := nnp.sin(x), nnp.exp(y @ w), nnp.sum(y.reshape(-1, 2), axis=1))
    given = lambda x, w: (nnp.exp(x @ w), nnp.sum(x, axis=0))
    for function in (large, given):
        graph = run(nnc.make_graph(function)(X, W), *names_of(SIMPLIFYING))
        assert run(graph, "reduce_in_producers").nodes == graph.nodes
