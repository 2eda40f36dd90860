"""Commands that are computed along with a product, and commands that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.compiled.pipeline as pipeline
import nnc.numpy as nnp
from nnc import nn
from nnc.backends.loaded import choose_kernel, compiler
from nnc.base.options import Options
from nnc.compiled.pipeline import lower, plan
from nnc.graph import Graph, Node, run_passes
from nnc.lower.phases import BEFORE_FUSION, JOIN, names_of

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no compiler")

RNG = np.random.default_rng(0)
X, W, B, R = (RNG.normal(size=shape).astype(np.float32) for shape in ((24, 20), (20, 36), (36,), (24, 36)))


def attached(function: Callable[..., Any], *args: Any, **options: Any) -> Graph:
    """Returns the graph of a function after products are joined with the nodes that follow them."""
    return run_passes(
        nnc.make_graph(function)(*args), (*names_of(BEFORE_FUSION), "fuse", "epilogue"), Options(**options), verify=True
    )


def commands(graph: Graph) -> list[str]:
    """The commands of a graph that do something."""
    return [
        node.command.name for node in graph.nodes if node.command.name not in ("broadcast_to", "reshape", "transpose")
    ]


def joined(graph: Graph) -> Node:
    """The only product with an epilogue."""
    (node,) = (node for node in graph.nodes if node.command.name == "with_epilogue")
    return node


def test_bias_and_activation_are_computed_along_with_a_product() -> None:
    graph = attached(lambda x, w, b: nn.gelu(x @ w + b), X, W, B)
    assert commands(graph) == ["with_epilogue"]
    inner = joined(graph).graphs[0]
    assert inner.nodes[0].command.name == "dot"
    assert inner.nodes[0].inputs == inner.inputs[:2]


def test_a_residual_may_be_written_over_and_operands_of_the_product_may_not() -> None:
    node = joined(attached(lambda x, w, r: x @ w + r, X, W, R))
    assert node.params["overwrite"] == ((2, 0),)
    square = joined(attached(lambda x, w: x @ w + x, np.eye(16, dtype=np.float32), np.eye(16, dtype=np.float32)))
    assert len(square.inputs) == 3  # x once for the product, and once for the sum
    assert square.inputs[0] is square.inputs[2]
    assert all(operand == 2 for operand, _ in square.params["overwrite"])


def test_a_product_that_others_read_later_is_one_more_result() -> None:
    def f(x: Any, w: Any, v: Any) -> Any:
        p = x @ w
        return nnp.exp(p), p @ v

    graph = attached(f, X, W, W.T.copy())
    assert commands(graph) == ["with_epilogue", "dot"]
    assert len(joined(graph).outputs) == 2


def test_a_product_that_is_read_before_stays_apart() -> None:
    def f(x: Any, w: Any, v: Any) -> Any:
        p = x @ w
        return nnp.exp(p) + nnp.sum(p @ v)

    assert "with_epilogue" not in [
        node.command.name for node in attached(f, X, W, W.T.copy()).nodes if node.outputs[0].shape == (24, 36)
    ]


def test_sums_over_the_axes_of_a_product_stay_apart() -> None:
    assert commands(attached(lambda x, w: nnp.sum(x @ w, axis=1), X, W)) == ["dot", "fused"]
    assert commands(attached(lambda x, w: nn.softmax(x @ w), X, W)) == ["dot", "fused"]


def test_a_product_that_is_stretched_stays_apart() -> None:
    graph = attached(lambda x, w, y: nnp.tanh(x @ w + y), X, W, np.ones((3, 24, 36), np.float32))
    assert commands(graph) == ["dot", "fused"]


def test_the_later_of_two_products_takes_their_sum() -> None:
    graph = attached(lambda x, w, y, v: nnp.tanh(x @ w + y @ v), X, W, X, W)
    assert commands(graph) == ["dot", "with_epilogue"]


def test_few_columns_stay_with_the_kernel_for_dot_products() -> None:
    assert commands(attached(lambda x, w: nnp.tanh(x @ w), X, W[:, :3])) == ["dot", "fused"]


def test_complex_products_have_no_epilogue() -> None:
    assert "with_epilogue" not in commands(attached(lambda x, w: nnp.exp(x @ w), X + 0j, W + 0j))


def test_without_compiled_programs_nothing_is_attached() -> None:
    assert "with_epilogue" not in commands(attached(lambda x, w: nnp.exp(x @ w), X, W, native=False))


def test_rounds_of_loops_have_epilogues_on_their_side_of_the_test() -> None:
    w = np.eye(16, dtype=np.float32)

    def f(x: Any) -> Any:
        return nnc.while_loop(lambda c: nnp.sum(c) < 100, lambda c: nnp.exp(c @ w) + 1, x)

    (loop,) = (node for node in attached(f, w).nodes if node.command.name == "while")
    assert commands(loop.graphs[0]) == ["fused", "with_epilogue"]
    assert loop.params["before"] == 1


def test_an_optimizer_step_needs_no_memory_for_the_gradient() -> None:
    def step(x: Any, ct: Any, m: Any, w: Any) -> Any:
        m = m * 0.9 + x.T @ ct
        return m, w - m * 0.1

    args = (X, R, np.zeros_like(W), W)
    graph = nnc.make_graph(step)(*args)
    assert commands(attached(step, *args)) == ["with_epilogue"]
    assert plan(graph, Options(donated=(2, 3))).arena_bytes == 0


def test_given_weights_are_updated_in_place_and_not_read_after_that() -> None:
    """The cotangent that is sent back stays a product of its own where the weights change before it is used."""

    def step(w: Any, ct: Any, x: Any, mask: Any) -> Any:
        back = ct @ w.T
        w = nnp.tanh(w) * 0.9
        return w, back * mask + nnp.sum(w)

    args = (np.eye(20, 36, dtype=np.float32), R, X, X)
    graph = nnc.make_graph(step)(*args)
    made = lower(graph, Options(donated=(0,)), choose_kernel, compiler())
    assert made.planned.peak <= lower(graph, Options(donated=(0,), native=False), choose_kernel).planned.peak
    w = args[0].copy()
    wanted = np.tanh(w) * np.float32(0.9)
    out, back = made.run([w, *args[1:]])
    np.testing.assert_allclose(out, wanted, 1e-6)
    np.testing.assert_allclose(back, R @ args[0].T * X + wanted.sum(), 1e-4, 1e-4)


@pytest.mark.parametrize(("n", "wanted"), [(512, "dot"), (8, "with_epilogue")])
def test_operands_are_not_kept_where_that_would_raise_the_peak(n: int, wanted: str) -> None:
    """The long rows of x are of no use after the product; they may wait for a sorted operand if that takes little memory itself."""

    def f(a: Any, w: Any, v: Any) -> Any:
        p = nnp.sort(nnp.sin(a), axis=0) @ w
        t = nnp.sort(nnp.sort(v, axis=0), axis=1)
        return nnp.tanh(p + nnp.sum(t))

    args = (np.ones((64, 4096), np.float32), np.ones((4096, 16), np.float32), np.ones((n, n), np.float32))
    graph = nnc.make_graph(f)(*args)
    found = commands(run_passes(graph, ("fuse", "epilogue"), Options(), verify=True))
    assert [name for name in found if name in ("dot", "with_epilogue")] == [wanted]


@pytest.mark.parametrize("donate", [False, True])
def test_training_steps_of_a_network_give_the_same_bits(donate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bias, activation and its mask, the residual, gradients, and the optimizer's step."""
    shapes = {"a": (20, 32), "b": (32,), "c": (32, 20), "d": (20,)}
    params = {name: RNG.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    target = RNG.normal(size=(24, 20)).astype(np.float32)

    def loss(params: Any, x: Any) -> Any:
        h = nn.relu(x @ params["a"] + params["b"])
        return nnp.mean((nnp.tanh(h @ params["c"] + params["d"]) + x - target) ** 2)

    def step(params: Any, x: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(params, x)
        return value, {name: p - 0.1 * grads[name] for name, p in params.items()}

    graph = nnc.make_graph(step)(params, X)
    found = []
    for phase in (JOIN, JOIN.without("epilogue")):
        monkeypatch.setattr(pipeline, "JOIN", phase)
        options = Options(donated=tuple(range(4)) if donate else ())
        made = lower(graph, options, choose_kernel, compiler())
        names = [made_step.command.name for made_step in made.bound.steps]
        assert ("with_epilogue" in names) is (phase is JOIN)
        found.append(made.run([*(params[name].copy() for name in sorted(params)), X]))
    for mine, other in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, other)
