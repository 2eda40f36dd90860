"""Elements that are read or changed in few places: cross entropies need no tensor like the logits, in any spelling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.base.options import Options
from nnc.commands import elementwise as ew
from nnc.commands.reduce import reduce_sum
from nnc.commands.shape import broadcast_to
from nnc.compiled.pipeline import plan
from nnc.errors import ShapeError
from nnc.graph import PASSES, Graph, GraphBuilder
from nnc.lower.phases import SIMPLIFYING, names_of
from tests.unit.lower.passes.tools import evaluate, names, run

_RNG = np.random.default_rng(7)
N, K = 64, 50
ROWS = np.arange(N)
X = _RNG.normal(size=(N, K)).astype(np.float32)
Y = (ROWS % K).astype(np.int32)
WEIGHTS = _RNG.uniform(0.5, 2, K).astype(np.float32)
MASK = (_RNG.uniform(size=N) > 0.3).astype(np.float32)


def _by_hand(x: Any, y: Any) -> Any:
    top = nnp.max(x, axis=-1, keepdims=True)
    logarithm = nnp.log(nnp.sum(nnp.exp(x - top), axis=-1)) + top[:, 0]
    return nnp.mean(logarithm - nnp.take_along_axis(x, y[:, None], axis=-1)[:, 0])


def _log_softmax_by_hand(x: Any) -> Any:
    shifted = x - nnc.stop_gradient(nnp.max(x, axis=-1, keepdims=True))
    return shifted - nnp.log(nnp.sum(nnp.exp(shifted), axis=-1, keepdims=True))


def _with_padding(x: Any, y: Any) -> Any:
    valid = y != 3
    chosen = nnp.take_along_axis(nn.log_softmax(x), nnp.where(valid, y, 0)[:, None], axis=-1)[:, 0]
    return -nnp.sum(nnp.where(valid, chosen, 0)) / nnp.sum(valid.astype("float32"))


def _focal(x: Any, y: Any) -> Any:
    chosen = nn.log_softmax(x)[nnp.arange(N), y]
    return -nnp.mean((1 - nnp.exp(chosen)) ** 2 * chosen)


def _shifted_first(x: Any, y: Any) -> Any:
    x = x - nnp.max(x, axis=-1, keepdims=True)
    return nnp.mean(nn.logsumexp(x, axis=-1) - nnp.take_along_axis(x, y[:, None], axis=-1)[:, 0])


CROSS_ENTROPIES: dict[str, Callable[..., Any]] = {
    "the loss": lambda x, y: nn.softmax_cross_entropy(x, y).mean(),
    "the loss, smoothed": lambda x, y: nn.softmax_cross_entropy(x, y, label_smoothing=0.1).mean(),
    "the loss, weighted": lambda x, y: nn.softmax_cross_entropy(x, y, weights=WEIGHTS, reduction="mean"),
    "one-hot": lambda x, y: -nnp.mean(nnp.sum(nn.one_hot(y, K) * nn.log_softmax(x), axis=-1)),
    "one-hot, summed at once": lambda x, y: -nnp.sum(nn.log_softmax(x) * nn.one_hot(y, K)) / N,
    "one-hot, smoothed": lambda x, y: -nnp.mean(
        nnp.sum((0.9 * nn.one_hot(y, K) + 0.1 / K) * nn.log_softmax(x), axis=-1)
    ),
    "one-hot, masked": lambda x, y: (
        nnp.sum(-nnp.sum(nn.one_hot(y, K) * nn.log_softmax(x), axis=-1) * MASK) / MASK.sum()
    ),
    "one-hot, weighted": lambda x, y: -nnp.mean(nnp.sum(nn.one_hot(y, K) * nn.log_softmax(x) * WEIGHTS, axis=-1)),
    "one-hot, by hand": lambda x, y: -nnp.mean(nnp.sum(nn.one_hot(y, K) * _log_softmax_by_hand(x), axis=-1)),
    "one-hot of a clipped softmax": lambda x, y: -nnp.mean(
        nnp.sum(nn.one_hot(y, K) * nnp.log(nnp.clip(nn.softmax(x), 1e-7, 1)), axis=-1)
    ),
    "rows of an identity": lambda x, y: -nnp.mean(nnp.sum(nnp.eye(K, dtype="float32")[y] * nn.log_softmax(x), axis=-1)),
    "an inner product": lambda x, y: -nnp.einsum("nk,nk->", nn.one_hot(y, K), nn.log_softmax(x)) / N,
    "labels compared": lambda x, y: -nnp.sum((y[:, None] == nnp.arange(K)) * nn.log_softmax(x)) / N,
    "labels chosen by where": lambda x, y: -nnp.sum(nnp.where(y[:, None] == nnp.arange(K), nn.log_softmax(x), 0)) / N,
    "take_along_axis": lambda x, y: -nnp.mean(nnp.take_along_axis(nn.log_softmax(x), y[:, None], axis=-1)),
    "rows and labels": lambda x, y: -nnp.mean(nn.log_softmax(x)[nnp.arange(N), y]),
    "rows and labels, smoothed": lambda x, y: nnp.mean(
        -0.9 * nn.log_softmax(x)[nnp.arange(N), y] - 0.1 * nnp.mean(nn.log_softmax(x), axis=-1)
    ),
    "rows and labels, weighted": lambda x, y: nnp.sum(
        -nn.log_softmax(x)[nnp.arange(N), y] * nnp.asarray(WEIGHTS)[y]
    ) / nnp.sum(nnp.asarray(WEIGHTS)[y]),
    "rows and labels, by hand": lambda x, y: -nnp.mean(_log_softmax_by_hand(x)[nnp.arange(N), y]),
    "padding": _with_padding,
    "focal": _focal,
    "log of softmax": lambda x, y: -nnp.mean(nnp.log(nn.softmax(x))[nnp.arange(N), y]),
    "log of softmax, take_along_axis": lambda x, y: -nnp.mean(
        nnp.take_along_axis(nnp.log(nn.softmax(x)), y[:, None], axis=-1)
    ),
    "log of the chosen": lambda x, y: -nnp.mean(nnp.log(nn.softmax(x)[nnp.arange(N), y])),
    "log of a little more": lambda x, y: -nnp.mean(nnp.log(nn.softmax(x) + 1e-7)[nnp.arange(N), y]),
    "logsumexp less the chosen": lambda x, y: nnp.mean(nn.logsumexp(x, axis=-1) - x[nnp.arange(N), y]),
    "shifted first": _shifted_first,
    "example by example": lambda x, y: -nnp.mean(nnc.vmap(lambda row, label: nn.log_softmax(row)[label])(x, y)),
    "sequences": lambda x, y: -nnp.mean(
        nnp.take_along_axis(nn.log_softmax(x.reshape(8, 8, K)), y.reshape(8, 8)[..., None], axis=-1)
    ),
    "by hand": _by_hand,
}  # fmt: skip


@pytest.mark.parametrize("spelling", CROSS_ENTROPIES)
def test_a_compiled_cross_entropy_has_no_temporary_as_large_as_the_logits(spelling: str) -> None:
    loss = CROSS_ENTROPIES[spelling]
    for function, results in ((loss, 0), (nnc.value_and_grad(loss), 1)):
        compiled = nnc.compile(function)
        arena = compiled.lower(X, Y).compile().memory_plan.peak
        assert arena - results * X.nbytes < X.nbytes / 4
        for got, want in zip(
            nnc.tree.leaves(compiled(X, Y)), nnc.tree.leaves(function(X, Y)), strict=True
        ):  # fmt: skip
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-7)


def test_a_loss_of_short_logits_makes_no_long_ones() -> None:
    x = nnp.asarray(X).astype("bfloat16")
    loss = nnc.compile(nnc.value_and_grad(lambda x, y: nn.softmax_cross_entropy(x.astype("float32"), y).mean()))
    assert loss.lower(x, Y).compile().memory_plan.arena_bytes < X.nbytes / 3


def test_short_labels_of_short_logits_choose_among_many_classes() -> None:
    x, y = nnp.asarray(_RNG.normal(size=(2, 600))).astype("bfloat16"), np.asarray([3, 90], np.int8)
    gradient = nnc.grad(lambda x: nn.softmax_cross_entropy(x.astype("float32"), y).sum())
    found, want = (np.asarray(f(x)).astype(np.float32) for f in (nnc.compile(gradient), gradient))
    np.testing.assert_allclose(found, want, rtol=1e-2, atol=1e-4)
    assert (found < 0).sum() == 2


def test_underflowing_probabilities_have_the_logarithm_of_zero() -> None:
    x = np.asarray([[0, 200, 0], [0, 1, 2]], np.float32)
    f = nnc.compile(lambda x: nnp.log(nn.softmax(x))[nnp.arange(2), np.asarray([0, 1])])
    np.testing.assert_allclose(f(x), [-np.inf, np.log(np.exp(-1) / (1 + np.exp(-1) + np.exp(-2)))], rtol=1e-6)


def picked(function: Callable[..., Any], *inputs: Any) -> Graph:
    """The graph after all rewrites, which computes the same."""
    graph = nnc.make_graph(function)(*inputs)
    after = run(graph, *names_of(SIMPLIFYING))
    for x, y in zip(evaluate(after, inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6)
    return after


INDEX = np.asarray([3, 0, 3, 7])
ELEMENTS: list[Callable[..., Any]] = [
    lambda x: nnp.exp(nnp.sin(x) * 2)[INDEX], lambda x: (x - x.sum(0))[INDEX], lambda x: (x - x[:1])[INDEX, INDEX],
    lambda x: (x * x.sum(1, keepdims=True))[:, INDEX], lambda x: nnp.take_along_axis(x + 1, Y[:, None], axis=1),
    lambda x: nnp.where(x > 0, x, -x)[INDEX, INDEX], lambda x: nn.softmax(x)[nnp.arange(N), Y],
    lambda x: nnp.exp(x)[INDEX][:, INDEX],
]  # fmt: skip


@pytest.mark.parametrize("function", ELEMENTS)
def test_values_read_in_few_places_are_computed_there(function: Callable[..., Any]) -> None:
    after = picked(function, X)
    computed = [node for node in after.nodes if node.command.name in ("sin", "mul", "add", "sub", "exp", "select")]
    assert all(node.outputs[0].spec.size < X.size / 4 for node in computed)


def test_values_in_memory_for_others_are_read_there() -> None:
    """A hidden layer stays the last node of its product: its products before the activation would have to be kept, too."""
    w = np.ones((K, K), np.float32)

    def layer(x: Any) -> Any:
        h = nn.relu(x @ w)
        return h, h[INDEX]

    graph = picked(layer, X)
    maxima = [node for node in graph.nodes if node.command.name in ("maximum", "select")]
    assert all(node.outputs[0].shape == X.shape for node in maxima)


def test_a_row_of_a_table_that_is_read_and_stepped_is_all_that_is_touched() -> None:
    table, y = _RNG.normal(size=(500, 8)).astype(np.float32), np.asarray([3, 3, 40, 7])

    def step(table: Any) -> Any:
        return table - 0.1 * nnc.grad(lambda t: nnp.sum(nnp.sin(t[y])))(table)

    large = [node for node in picked(step, table).nodes if node.outputs[0].shape == table.shape]
    assert [node.command.name for node in large] == ["scatter"]


def test_equal_rows_of_a_table_are_added_up_as_in_the_program_as_written() -> None:
    """The last update of each row is found in a table with a number for each row; that and the step are the same bit for bit."""
    table, y = _RNG.normal(size=(500, 8)).astype(np.float32), np.asarray([3, 3, 40, 7, 3])
    step = nnc.compile(lambda t, w: t - 0.1 * nnc.grad(lambda t: nnp.sum(t[y] * w))(t))
    weights = _RNG.normal(size=(5, 8)).astype(np.float32)
    np.testing.assert_array_equal(step(table, weights), step.__wrapped__(nnp.asarray(table), weights))


def test_a_scatter_into_zeros_goes_into_the_tensor_that_they_are_added_to() -> None:
    """A table of embeddings that is the last layer, too; two look-ups in one table."""
    tied = nnc.grad(lambda table, y: nnp.sum(table[y] ** 2) + nnp.sum(table**3) + nnp.sum(nnp.sin(table)))
    twice = nnc.grad(lambda table, y: nnp.sum(table[y] ** 2) + nnp.sum(table**2) + nnp.sum(table[y + 1] ** 3))
    table, y = _RNG.normal(size=(50, 8)).astype(np.float32), np.asarray([3, 3, 40, 7])
    for gradient, scatters in ((tied, 1), (twice, 2)):
        graph = picked(gradient, table, y)
        found = [
            node for node in graph.nodes if node.command.name == "scatter" and node.outputs[0].shape == table.shape
        ]
        assert len(found) == scatters and names(graph)[-1] == "scatter"


def scattered(function: Callable[..., Any], mode: str) -> tuple[Graph, list[Any]]:
    """Returns the graph of a function of a scattered tensor, with a label that appears twice; and inputs."""
    b = GraphBuilder("scattered")
    x, ct, index = b.input((4, 6), "float32"), b.input((4, 2), "float32"), b.input((4, 2), "int64")
    with b:
        out = function(b.add("scatter", x, ct, index, axes=(1,), batch=1, mode=mode, op="add"))
    inputs = [_RNG.normal(size=s).astype(np.float32) for s in ((4, 6), (4, 2))]
    return b.build(*(out if isinstance(out, tuple) else (out,))), [
        *inputs,
        np.asarray([[0, 0], [5, 2], [1, 0], [3, 3]]),
    ]


CHANGES: list[Callable[..., Any]] = [
    lambda s: reduce_sum(s, axes=(1,)), lambda s: reduce_sum(s, axes=(0, 1)), ew.neg, lambda s: ew.sub(ew.exp(s), s),
    lambda s: ew.mul(ew.neg(s), broadcast_to(reduce_sum(s, axes=(1,)), shape=(4, 6), axes=(0,))),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["error", "clip", "wrap", "drop"])
@pytest.mark.parametrize("change", CHANGES)
def test_sums_and_products_of_scattered_elements_are_right(change: Callable[..., Any], mode: str) -> None:
    graph, inputs = scattered(change, mode)
    inputs[2] = inputs[2] + (0 if mode == "error" else 4)
    after = run(graph, "sink_gathers", "dce")
    for x, y in zip(evaluate(after, inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("change", CHANGES)
def test_an_index_out_of_range_raises_although_only_sums_are_wanted(change: Callable[..., Any]) -> None:
    graph, inputs = scattered(change, "error")
    inputs[2][1, 1] = 6
    with pytest.raises(IndexError):
        evaluate(run(graph, "sink_gathers", "dce"), inputs)
    column = nnc.compile(lambda x, i: nnp.sum(nnp.zeros(9)[i] + x))
    with pytest.raises(IndexError):
        column(X[0, 0], np.asarray([9]))


_ROWS = np.asarray([5, 2, 5, 61], np.int32)
_WIDE = _RNG.normal(size=(K, K)).astype(np.float32)
_TALL = _RNG.normal(size=(1024, K)).astype(np.float32)
OF_ROWS: dict[str, Callable[..., Any]] = {
    "gelu": nn.gelu,
    "gelu with erf": lambda x: nn.gelu(x, approximate=False),
    "silu": nn.silu,
    "tanh": nnp.tanh,
    "after a bias": lambda x: nn.gelu(x + WEIGHTS),
    "softmax": nn.softmax,
    "layer norm": nn.layer_norm,
    "gelu of layer norm": lambda x: nn.gelu(nn.layer_norm(x)),
}


@pytest.mark.parametrize("function", OF_ROWS.values(), ids=OF_ROWS)
def test_rows_of_a_layer_take_no_more_memory_with_their_gradients_than_all(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = nnc.value_and_grad(lambda x, w, i: nnp.sum(function(x @ w)[i] ** 2), (0, 1))
    lowered = nnc.compile(loss).lower(_TALL, _WIDE, _ROWS)
    found, want = nnc.compile(loss)(_TALL, _WIDE, _ROWS), loss(_TALL, _WIDE, _ROWS)
    for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-3)
    peak = plan(lowered.graph, Options()).peak
    of_last = 4 * len(_TALL)  # bytes of the table that says for each row which of its updates is last
    monkeypatch.setitem(PASSES, "sink_gathers", replace(PASSES["sink_gathers"], function=lambda graph, _: graph))
    assert peak <= plan(lowered.graph, Options()).peak + of_last


def test_updates_of_the_same_places_are_scattered_once() -> None:
    def function(x: Any, i: Any, u: Any) -> Any:
        zeros = nnp.zeros_like(x)
        return zeros.at[i].add(u) * 0.3 - zeros.at[i].add(2 * u) + x

    arguments = X, _ROWS, X[:4]
    graph = picked(function, *arguments)
    assert [n.outputs[0].shape for n in graph.nodes if n.command.name == "scatter"].count(X.shape) == 1
    np.testing.assert_allclose(
        evaluate(graph, arguments)[0], np.asarray(function(*map(nnp.asarray, arguments))), rtol=1e-5
    )


def test_rounds_of_loops_read_few_elements_too() -> None:
    def loop(x: Any) -> Any:
        return nnc.fori_loop(0, 3, lambda i, c: c - nnp.mean(nn.log_softmax(x * c)[nnp.arange(N), Y]), 1.0)

    graph = picked(loop, X)
    (node,) = (node for node in graph.nodes if node.graphs)
    assert "gather" in names(node.graphs[0]) and "log_softmax" not in names(node.graphs[0])


def test_the_index_of_picked_log_probabilities_has_an_axis_for_them() -> None:
    b = GraphBuilder("sink_gathers")
    with pytest.raises(ShapeError, match="the index has 1 axes, x has 2"):
        b.add("pick_log_softmax", b.input((4, 6), "float32"), b.input((4,), "int64"), mode="clip")
