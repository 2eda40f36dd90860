from __future__ import annotations

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.graph import Graph, run_passes
from nnc.options import Options
from tests.lower.passes.tools import names


def two_chains(size: int) -> Graph:
    """Two chains, each of which needs some memory of its own between its ends."""

    def function(x: nnc.Array, y: nnc.Array) -> tuple[nnc.Array, nnc.Array]:
        return nnp.sum(nnp.cumsum(nnp.sin(x), axis=0)), nnp.sum(nnp.cumsum(nnp.cos(y), axis=0))

    graph = nnc.make_graph(function)(*(np.ones((size, 256), np.float32) for _ in range(2)))
    return run_passes(graph, ("inline_calls", "dce", "order"), Options())


def test_chains_that_take_little_memory_take_turns() -> None:
    graph = two_chains(512)
    after = run_passes(graph, ("interleave",), Options(streams=2), verify=True)
    assert names(graph) == ["sin", "cumsum", "reduce_sum", "cos", "cumsum", "reduce_sum"]
    assert names(after)[:2] == ["sin", "cos"]


def test_chains_whose_memory_would_add_up_stay_one_after_the_other() -> None:
    graph = two_chains(4096)
    after = run_passes(graph, ("interleave",), Options(streams=2), verify=True)
    assert after.nodes == graph.nodes
