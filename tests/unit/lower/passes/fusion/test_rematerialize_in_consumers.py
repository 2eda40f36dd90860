"""Values that cost no more than a read are made where they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.lower.phases import BEFORE_FUSION, FUSE, JOIN, SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import check_same_bits, names, run

_RNG = np.random.default_rng(7)
X = _RNG.normal(size=(4096, 32)).astype(np.float32)  # half a megabyte
ROW = _RNG.normal(1, 0.2, 32).astype(np.float32)


def test_each_reader_has_a_copy_of_its_own() -> None:
    def f(x: Any) -> Any:
        y = x - ROW
        return nnp.sum(y * y, axis=0), nnp.exp(y), nnp.max(y, axis=0)

    graph = run(nnc.make_graph(f)(X), *names_of(SIMPLIFYING))
    after = run(graph, "rematerialize_in_consumers")
    assert (names(graph).count("sub"), names(after).count("sub")) == (1, 3)
    check_same_bits(graph, after, [X])


def test_results_small_values_and_results_of_kernels_are_made_once() -> None:
    result = lambda x: (y := x - ROW, nnp.exp(y), nnp.sum(y, axis=0))
    small = lambda x: (y := x[:100] - ROW) * nnp.sum(nnp.exp(y), axis=0)
    made = lambda x: (y := nnp.sin(x) - ROW) * nnp.sum(nnp.exp(y), axis=0)
    two = lambda x: (y := x - x[::-1]) * nnp.sum(nnp.exp(y), axis=0)
    for function in (result, small, made, two):
        graph = run(nnc.make_graph(function)(X), *names_of(SIMPLIFYING))
        assert names(run(graph, "rematerialize_in_consumers")).count("sub") == 1


def test_a_value_that_stays_in_memory_is_read_instead_of_a_cheap_result_of_it() -> None:
    w = np.eye(32, dtype=np.float32)

    def f(x: Any, w: Any) -> Any:
        y = nnp.sin(x)
        z = y * ROW
        return nnp.cos(nnp.exp(y @ w) @ w) * y + z

    def alone(x: Any, w: Any) -> Any:
        y = nnp.sin(x)
        z = y * ROW
        return nnp.exp(y @ w) + z

    graph = run(nnc.make_graph(f)(X, w), *names_of(SIMPLIFYING))
    after = run(graph, "rematerialize_in_consumers")
    assert names(graph)[:4] == ["sin", "broadcast_to", "mul", "dot"]
    assert names(after)[-2:] == ["mul", "add"] and len(after.nodes) == len(graph.nodes)
    check_same_bits(graph, after, [X, w])
    graph = run(nnc.make_graph(alone)(X, w), *names_of(SIMPLIFYING))
    assert names(run(graph, "rematerialize_in_consumers")) == names(graph)


def test_of_a_chain_of_such_values_every_other_is_made_at_its_readers() -> None:
    w = np.eye(32, dtype=np.float32)

    def f(x: Any, w: Any) -> Any:
        y = x * ROW
        z = y + ROW
        return nnp.exp(y), nnp.exp(z), nnp.cos(nnp.exp(z) @ w) * y * z

    graph = run(nnc.make_graph(f)(X, w), *names_of(SIMPLIFYING))
    check_same_bits(graph, run(graph, "rematerialize_in_consumers"), [X, w])


def _step(x: Any, scale: Any, bias: Any, w: Any) -> Any:
    def loss(x: Any, scale: Any, bias: Any) -> Any:
        return nnp.sum(nnp.where((y := nn.batch_norm(x, ROW, ROW, scale, bias)[0]) > 0, y, 0) * w)

    return nnc.grad(loss, argnums=(0, 1, 2))(x, scale, bias)


def test_a_batch_norm_and_its_gradient_go_over_memory_as_rarely_as_they_must() -> None:
    """Statistics; those of scaled rows, which only rows that leave the range need; sums of the gradient; the gradient, which alone
    is written."""
    x = np.tile(X, (16, 1))  # longer than tensors that are gone through in several phases
    graph = run(nnc.make_graph(_step)(x, ROW, ROW, x), *names_of((*BEFORE_FUSION, FUSE, JOIN)))
    sweeps = [node for node in graph.nodes if any(s.spec.size == x.size for s in (*node.inputs, *node.outputs))]
    kernels = [node for node in sweeps if node.command.name == "fused"]
    written = [s for node in kernels for s in node.outputs if s.spec.size == x.size]
    assert len(kernels) == 4 and len(written) == 1
    compiled = nnc.compile(_step)
    assert compiled.lower(x, ROW, ROW, x).compile().memory_plan.peak < 2.1 * x.nbytes
    exact = _step(*(a.astype(np.float64) for a in (x, ROW, ROW, x)))
    for got, want in zip(compiled(x, ROW, ROW, x), exact, strict=True):
        scale = float(np.abs(np.asarray(want)).max())
        np.testing.assert_allclose(np.asarray(got) / scale, np.asarray(want) / scale, atol=5e-6)
