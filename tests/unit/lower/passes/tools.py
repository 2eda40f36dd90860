"""How the tests of passes make graphs, run passes on them, and compare their results bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nnc  # noqa: F401  (registers every command)
from nnc.array.array import Array
from nnc.base.options import Options
from nnc.graph import Graph, GraphBuilder, TensorSpec, run_passes

EXACT = (
    "inline_calls",
    "dce",
    "fold",
    "simplify",
    "parts",
    "cse",
    "licm",
    "fold",
    "simplify",
    "cse",
    "dce",
    "inline_barriers",
)


def record(function: Callable[..., Any], *specs: TensorSpec, name: str = "test") -> Graph:
    """The graph of a function of symbols that calls commands."""
    b = GraphBuilder(name)
    inputs = [b.input(spec) for spec in specs]
    with b:
        outputs = function(*inputs)
    return b.build(*(outputs if isinstance(outputs, tuple) else (outputs,)))


def run(graph: Graph, *names: str) -> Graph:
    """The graph after these passes, verified after each."""
    return run_passes(graph, names, Options(), verify=True)


def names(graph: Graph) -> list[str]:
    """The commands of a graph, without its sub-graphs' commands."""
    return [node.command.name for node in graph.nodes]


def evaluate(graph: Graph, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The outputs on NumPy arrays, one command after the other."""
    return [np.asarray(x) for x in graph.evaluate([Array(np.array(x)) for x in inputs])]


def check_same_bits(before: Graph, after: Graph, inputs: Sequence[Any]) -> None:
    """Both graphs compute the same, but for the payload of NaN."""
    assert after.input_specs == before.input_specs
    for x, y in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_array_equal(x, y)
        if x.dtype.kind == "f":
            numbers = ~np.isnan(x)
            np.testing.assert_array_equal(np.signbit(x[numbers]), np.signbit(y[numbers]))


def check_after(graph: Graph, passes: Sequence[str], inputs: Sequence[Any], count: int) -> Graph:
    """The graph after the passes, which must have so many nodes, at any depth, and compute the same."""
    after = run(graph, *passes)
    check_same_bits(graph, after, inputs)
    assert sum(1 for _ in after.walk()) == count, str(after)
    return after
