"""A loss that only the caller reads does not part the kernels before and behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.numpy as nnp
from nnc.base.options import Options
from nnc.graph import GraphBuilder
from tests.unit.lower.passes.tools import check_same_bits, evaluate, names, run

X = np.random.default_rng(9).normal(size=(32, 64)).astype(np.float32)


def loss(x: Any) -> Any:
    return nnp.mean(nnp.log(nnp.sum(nnp.exp(x), axis=1)))


def test_a_total_of_rows_runs_last() -> None:
    graph = run(nnc.make_graph(nnc.value_and_grad(loss))(X), "dce", "fold", "simplify", "dce")
    after = run(graph, "split_reductions")
    check_same_bits(graph, after, [X])
    total = next(node for node in after.nodes if node.outputs[0] is after.outputs[0])
    assert total is after.nodes[-1] and total is not graph.nodes[-1]


def test_a_loss_and_its_gradient_are_one_kernel_and_that_of_the_total() -> None:
    plan = nnc.compile(nnc.value_and_grad(loss)).lower(X).compile().memory_plan
    assert plan.peak < X.nbytes / 8 + X.nbytes


def test_totals_of_large_tensors_and_of_given_ones_stay() -> None:
    def whole(x: Any) -> Any:
        return nnp.sum(x * x), x + 1

    graph = nnc.make_graph(whole)(X)
    assert run(graph, "split_reductions").nodes == graph.nodes

    def row(x: Any, r: Any) -> Any:
        return nnp.sum(r * 2), x + 1

    graph = nnc.make_graph(row)(X, X[0])
    assert names(run(graph, "split_reductions"))[-1] == "reduce_sum"
    given = nnc.graph.run_passes(graph, ("split_reductions",), Options(donated=(1,)), verify=True)
    assert given.nodes == graph.nodes


def test_values_that_others_read_stay_in_front_of_them() -> None:
    def f(x: Any) -> Any:
        total = nnp.sum(nnp.sum(x, axis=1))
        return total, x / total

    graph = nnc.make_graph(f)(X)
    assert run(graph, "split_reductions").nodes == graph.nodes


@pytest.mark.parametrize("first", [(0,), (1,), (2,), (0, 2), (1, 3)])
@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 1, 2, 3), (1, 2, 3), (0, 2, 3)])
def test_sums_in_two_steps_are_over_the_axes_named(first: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))

    b = GraphBuilder()
    operand = b.input(x.shape, "float64")
    weighted = b.add("mul", operand, b.add("softmax", operand, axes=first))
    after = run(b.build(b.add("reduce_sum", weighted, axes=axes)), "split_reductions")
    assert names(after).count("reduce_sum") == (2 if set(first) < set(axes) else 1)
    (got,) = evaluate(after, [x])
    np.testing.assert_allclose(got, (x * scipy.special.softmax(x, first)).sum(axes), 1e-12)
