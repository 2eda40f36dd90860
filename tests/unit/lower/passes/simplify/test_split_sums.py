"""Sums that wait for other sums are taken apart, so that a batch norm's gradient is found in two passes over memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.graph import Graph, Node
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import names, run

_RNG = np.random.default_rng(6)
X, W = _RNG.normal(2, 3, (2048, 4)).astype(np.float32), _RNG.normal(size=(2048, 4)).astype(np.float32)
ROW = _RNG.normal(size=4).astype(np.float32)


def _rows(x: Any, w: Any) -> Any:
    """A tensor and its columns' means, which depend on another sum."""
    y = x * ROW + w * nnp.sum(x * w, axis=0)
    return y - nnp.mean(y, axis=0)


def _waiting(graph: Graph) -> int:
    """Counts the sums over many elements that depend on another one by multiplications and additions of as many."""
    made: dict[Any, Node] = {node.outputs[0]: node for node in graph.nodes}
    large = [node for node in graph.nodes if node.command.name == "reduce_sum" and node.inputs[0].spec.size == X.size]

    def depends(symbol: Any) -> bool:
        node = made.get(symbol)
        return node is not None and (node.command.name == "reduce_sum" or any(map(depends, node.inputs)))

    return sum(depends(node.inputs[0]) for node in large)


def test_a_sum_of_products_with_sums_does_not_wait_for_them() -> None:
    before = run(nnc.make_graph(_rows)(X, W), "inline_calls", "fold", "simplify", "cse", "dce")
    after = run(before, "split_sums", "cse", "dce")
    assert _waiting(before) == 2 and _waiting(after) == 0  # a mean is found in two ways, of which one does not overflow
    np.testing.assert_allclose(nnc.compile(_rows)(X, W), _rows(X, W), rtol=2e-4, atol=2e-3)


def test_the_sum_of_centred_values_is_not_taken() -> None:
    f = lambda x, w: _rows(x - nnp.mean(x, axis=0), w)
    graph = run(nnc.make_graph(f)(X, W), *names_of(SIMPLIFYING))
    sums = [node for node in graph.nodes if node.command.name == "reduce_sum"]
    assert (
        len(sums) == 5
    )  # of x for its mean, of products, of w; of x and w times a number, by which means stay in range
    np.testing.assert_allclose(nnc.compile(f)(X, W), f(X, W), rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: nnp.sum(x * ROW + w * nnp.sum(x * w, axis=0), axis=0),  # the whole is not read again
        lambda x, w: (y := x * ROW + w * 2) - nnp.mean(y, axis=0),  # no factor depends on a sum
        lambda x, w: (y := x * w + w * nnp.sum(x, axis=0)) - nnp.mean(y, axis=0),  # a factor differs from row to row
        lambda x, w: (y := x.T * nnp.sum(x) + w.T) - nnp.mean(y, axis=0),  # few elements for each sum
    ],
)
def test_other_sums_stay(function: Any) -> None:
    graph = run(nnc.make_graph(function)(X, W), "inline_calls", "fold", "simplify", "cse", "dce")
    assert names(run(graph, "split_sums")) == names(graph)


def test_a_factor_that_varies_along_a_summed_axis_stays_in_the_sum() -> None:
    x, w = X.reshape(64, 32, 4), W.reshape(64, 32, 4)

    def function(x: Any, w: Any) -> Any:
        y = x * nnp.sum(x, axis=1, keepdims=True) + w * nnp.sum(x * w, axis=(0, 1))
        return y - nnp.mean(y, axis=(0, 1))

    graph = run(nnc.make_graph(function)(x, w), "inline_calls", "fold", "simplify", "cse", "dce")
    assert names(run(graph, "split_sums")) == names(graph)
    np.testing.assert_allclose(nnc.compile(function)(x, w), function(x, w), rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize(("shape", "axis"), [((2048, 4), 1), ((4, 6, 40, 30), 1), ((8, 25, 30, 5), 3)])
def test_gradients_of_batch_norms_are_those_of_eager_mode(shape: tuple[int, ...], axis: int) -> None:
    x, w = (_RNG.normal(1, 2, shape).astype(np.float32) for _ in range(2))
    row = _RNG.normal(1, 0.2, shape[axis]).astype(np.float32)

    def loss(x: Any, scale: Any, bias: Any) -> Any:
        return nnp.sum(nn.relu(nn.batch_norm(x, row, row, scale, bias, axis=axis)[0]) * w)

    gradient = nnc.grad(loss, argnums=(0, 1, 2))
    for got, want in zip(nnc.compile(gradient)(x, row, row), gradient(x, row, row), strict=True):
        scale = float(np.abs(np.asarray(want)).max())
        np.testing.assert_allclose(np.asarray(got) / scale, np.asarray(want) / scale, atol=1e-5)
