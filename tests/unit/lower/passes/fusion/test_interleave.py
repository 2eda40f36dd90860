from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nnc.base.options import Options
from nnc.graph import Graph, TensorSpec, command, run_passes
from tests.figures import HERE
from tests.unit.lower.passes.tools import check_same_bits, names, record

SQUARE = TensorSpec((64, 64), "float64")


def two_chains(x: Any, y: Any) -> tuple[Any, Any]:
    dot, tanh, exp = command("dot"), command("tanh"), command("exp")
    for _ in range(2):
        x = tanh(dot(x, x, contract=((1,), (0,))))
    for _ in range(2):
        y = exp(dot(y, y, contract=((1,), (0,))))
    return x, y


def interleaved(graph: Graph, **changes: Any) -> Graph:
    return run_passes(graph, ("interleave",), Options(**changes), verify=True)


def test_chains_take_turns() -> None:
    graph = record(two_chains, SQUARE, SQUARE)
    after = interleaved(graph, streams=2)
    assert names(graph) == ["dot", "tanh", "dot", "tanh", "dot", "exp", "dot", "exp"]
    assert names(after) == ["dot", "dot", "tanh", "exp", "dot", "dot", "tanh", "exp"]
    assert set(after.nodes) == set(graph.nodes)
    inputs = [np.random.default_rng(k).uniform(-1, 1, SQUARE.shape) / 8 for k in range(2)]
    check_same_bits(graph, after, inputs)


def test_one_stream_changes_nothing() -> None:
    graph = record(two_chains, SQUARE, SQUARE)
    assert interleaved(graph, streams=1).nodes == graph.nodes
    assert interleaved(graph, streams="auto").nodes == graph.nodes


def test_auto_does_not_take_much_more_memory() -> None:
    machine = replace(HERE, cores=2)
    for size, commands in ((256, ["dot", "dot"]), (1024, ["dot", "tanh"])):  # half a megabyte a matrix, and eight
        graph = record(two_chains, *[TensorSpec((size, size), "float64")] * 2)
        assert names(interleaved(graph, streams="auto", kernel_threads=1, machine=machine))[:2] == commands
        assert names(interleaved(graph, streams=2))[:2] == ["dot", "dot"]


def test_a_single_chain_and_short_nodes_stay_as_they_are() -> None:
    single = record(lambda x: command("exp")(command("tanh")(command("neg")(x))), SQUARE)
    assert interleaved(single, streams=2).nodes == single.nodes
    empty = record(lambda x: x, SQUARE)
    assert interleaved(empty, streams=2).nodes == empty.nodes
