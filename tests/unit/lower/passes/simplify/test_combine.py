from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.graph import Graph, RewriteRule, check_rule, find_pass
from nnc.lower.passes.simplify.combine import RULES
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import EXACT, names, run

_RNG = np.random.default_rng(5)
X = _RNG.normal(size=(4, 6)).astype(np.float32)
W = _RNG.normal(size=(4, 6)).astype(np.float32)
LABELS = np.asarray([0, 5, 5, 3])
PROBABILITIES = np.abs(W) / np.abs(W).sum(1, keepdims=True) * (W > -1)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_each_rule_holds_up_to_rounding(rule: RewriteRule) -> None:
    check_rule(rule)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_the_pass_concerns_each_rule(rule: RewriteRule) -> None:
    concerns = find_pass("combine").concerns
    assert all(any(step.command.name in concerns for step in pattern.form.steps) for pattern in rule.patterns)


def combined(function: Callable[..., Any], *inputs: Any) -> Graph:
    return run(nnc.make_graph(function)(*inputs), *names_of(SIMPLIFYING))


SOFTMAXES = [
    (nn.softmax, "softmax"), (lambda x: nn.softmax(x, axis=0), "softmax"), (lambda x: nn.softmax(x, axis=(0, 1)), "softmax"),
    (nn.log_softmax, "log_softmax"), (lambda x: nnp.special.logsumexp(x, axis=1), "logsumexp"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "name"), SOFTMAXES)
def test_functions_over_an_axis_are_one_command(function: Callable[[Any], Any], name: str) -> None:
    assert names(combined(function, X)) == [name]


@pytest.mark.parametrize(("function", "name"), SOFTMAXES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_compiled_values_are_those_of_the_eager_function(function: Callable[[Any], Any], name: str, dtype: str) -> None:
    rows = np.stack([X[0], X[1] * 100, np.where(X[2] > 0, -np.inf, X[2]), np.full(6, -np.inf)]).astype(
        nnp.asarray(X).dtype
    )
    x = nnp.asarray(rows).astype(dtype)
    wide = np.float64 if dtype != "float32" else np.float32
    bound = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 4e-2, "float16": 5e-3}[dtype]
    eager, compiled = (np.asarray(f(x)).astype(wide) for f in (function, nnc.compile(function)))
    np.testing.assert_allclose(compiled, eager, rtol=bound, atol=bound)


@pytest.mark.parametrize(("function", "name"), SOFTMAXES)
def test_gradients_use_the_softmax(function: Callable[[Any], Any], name: str) -> None:
    loss = lambda x, w: (
        function(x)
        * nnp.broadcast_to(w[: function(x).shape[0]] if function(x).ndim == 2 else w[0, :4], function(x).shape)
    ).sum()
    gradient = nnc.grad(loss)
    graph = combined(gradient, X, W)
    assert "softmax" in names(graph)
    assert not {"exp", "reduce_max", "div", "reciprocal"} & set(names(graph))
    np.testing.assert_allclose(nnc.compile(gradient)(X, W), gradient(X, W), rtol=2e-5, atol=1e-6)


def test_the_cross_entropy_of_labels_makes_no_log_probabilities() -> None:
    loss = lambda x: nn.softmax_cross_entropy(x, LABELS).mean()
    found = names(combined(loss, X))
    assert "pick_log_softmax" in found and not {"log_softmax", "exp", "gather"} & set(found)
    np.testing.assert_allclose(nnc.compile(loss)(X), loss(X), rtol=1e-6)


def test_the_gradient_of_cross_entropy_makes_no_one_hot_labels() -> None:
    gradient = nnc.grad(lambda x, labels: nn.softmax_cross_entropy(x, labels).mean())
    graph = combined(gradient, X, LABELS)
    large = [node.command.name.removeprefix("safe_") for node in graph.nodes if node.outputs[0].spec.size == X.size]
    assert sorted(large) == ["broadcast_to", "mul", "scatter", "softmax"]
    np.testing.assert_allclose(nnc.compile(gradient)(X, LABELS), gradient(X, LABELS), rtol=1e-5, atol=1e-7)


def test_rows_may_be_counted_in_other_ways_than_by_arange() -> None:
    rows = np.arange(4)[::-1]
    for f in (
        lambda x: nn.log_softmax(x)[rows, LABELS].sum(),
        lambda x: nn.log_softmax(x)[nnp.arange(3), LABELS[:3]].sum(),
    ):
        np.testing.assert_allclose(nnc.compile(nnc.grad(f))(X), nnc.grad(f)(X), rtol=2e-5, atol=1e-6)


def test_an_index_out_of_range_still_raises() -> None:
    loss = lambda x, labels: nn.softmax_cross_entropy(x, labels).mean()
    for function in (loss, nnc.grad(loss), nnc.value_and_grad(loss)):
        with pytest.raises(IndexError, match="out of range"):
            nnc.compile(function)(X, np.asarray([0, 6, 1, 1]))


def test_large_logits_keep_the_precision_of_their_differences() -> None:
    x = np.asarray([[1e4, 1e4 + 1, 1e4 - 2]], np.float32)
    exact = np.log(np.exp(-1.0) / (1 + np.exp(-1.0) + np.exp(-3.0)))
    found = nnc.compile(lambda x: -nn.softmax_cross_entropy(x, np.asarray([0])))(x)
    np.testing.assert_allclose(found, [exact], rtol=1e-6)


LOSSES: list[Callable[..., Any]] = [
    lambda x, w: nn.softmax_cross_entropy(x, LABELS).sum(),
    lambda x, w: nn.softmax_cross_entropy(x, PROBABILITIES).mean(),
    lambda x, w: nn.softmax_cross_entropy(x.T, LABELS[:, None].T.repeat(6, 0)[:, 0] * 0 + 1).mean(),
    lambda x, w: nn.sigmoid_cross_entropy(x, (w > 0).astype("float32")).mean(),
    nn.mse, nn.mae, nn.huber,
    lambda x, w: nn.layer_norm(x, w[0], w[1]).sum() + nn.rms_norm(x, w[2]).sum(),
    lambda x, w: (nn.softmax(x, where=w > 0) * w).sum(),
    lambda x, w: (nn.log_softmax(x) * nn.softmax(w)).sum(),
]  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_and_gradients_of_the_whole_pipeline_are_those_of_eager_mode(loss: Callable[..., Any]) -> None:
    step = nnc.value_and_grad(loss, (0, 1))
    for eager, compiled in zip(nnc.tree.leaves(step(X, W)), nnc.tree.leaves(nnc.compile(step)(X, W)), strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=3e-5, atol=1e-6)
    before = run(nnc.make_graph(step)(X, W), "inline_calls", "dce")
    assert len(combined(step, X, W).nodes) < 0.9 * len(before.nodes)


def test_softmax_within_a_loop_is_combined() -> None:
    graph = combined(lambda x: nnc.fori_loop(0, 3, lambda i, c: nn.softmax(c + i.astype("float32")), x), X)
    (node,) = (node for node in graph.nodes if node.graphs)
    assert "softmax" in names(node.graphs[0]) and "exp" not in names(node.graphs[0])


def test_exact_passes_alone_combine_nothing() -> None:
    assert "exp" in names(run(nnc.make_graph(nn.softmax)(X), *EXACT))
