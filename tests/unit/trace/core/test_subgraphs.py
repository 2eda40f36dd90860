"""checkpoint: same values and derivatives, less kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from nnc.graph import Graph
from nnc.trace.core.dual import run_linearize

X = np.array([0.3, -1.2, 0.7])


def close(a: Any, b: Any) -> bool:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9)


def chain(x: Any) -> Any:
    for _ in range(4):
        x = nnp.sin(x) * 1.5
    return x


def kept(f: Any, *primals: Any) -> int:
    """Counts the arrays with elements that the linear map of `f` keeps."""
    values = [nnc.asarray(x) for x in primals]
    _, linear = run_linearize(lambda *xs: [f(*xs)], values, [True] * len(values))
    return len(linear.staged.captured)


def count(graph: Graph, name: str) -> int:
    return sum(node.command.name == name for node in graph.walk())


def test_values_and_derivatives_are_those_of_the_function() -> None:
    f = nnc.checkpoint(chain)

    def total(g: Any) -> Any:
        return lambda x: nnp.sum(g(x))

    assert close(f(X), chain(X))
    for way in (
        nnc.grad, nnc.hessian, nnc.jacrev, lambda g: lambda x: nnc.jvp(g, (x,), (x,))[1], lambda g: nnc.compile(nnc.grad(g)),
        lambda g: nnc.grad(lambda x: nnp.sum(nnc.grad(g)(x) ** 2)), lambda g: lambda x: nnc.hvp(g, (x,), (x,)),
        lambda g: nnc.grad(lambda x: nnp.sum(nnc.hessian(g)(x))), lambda g: nnc.compile(nnc.hessian(g)),
    ):  # fmt: skip
        assert close(way(total(f))(X), way(total(chain))(X))
    assert close(nnc.vmap(nnc.grad(f))(X), nnc.vmap(nnc.grad(chain))(X))
    assert close(nnc.grad(total(nnc.vmap(f)))(X), nnc.grad(total(chain))(X))
    assert close(nnc.vmap(nnc.hessian(f))(X), nnc.vmap(nnc.hessian(chain))(X))
    assert close(nnc.compile(nnc.vmap(nnc.grad(nnc.grad(f))))(X), nnc.vmap(nnc.grad(nnc.grad(chain)))(X))


def test_nothing_but_the_inputs_is_kept() -> None:
    assert kept(chain, X) > 4
    assert kept(nnc.checkpoint(chain), X) == 0  # the pull-back itself holds X
    assert kept(lambda x: nnc.checkpoint(chain)(nnc.checkpoint(chain)(x)), X) == 0


def test_the_backward_graph_computes_the_forward_values_again() -> None:
    plain = nnc.make_graph(nnc.grad(lambda x: nnp.sum(chain(x))))(X)
    again = nnc.make_graph(nnc.grad(lambda x: nnp.sum(nnc.checkpoint(chain)(x))))(X)
    assert count(plain, "sin") == 4 and count(plain, "cos") == 4
    assert count(again, "sin") == 8 and count(again, "cos") == 4
    (barrier,) = [node for node in again.walk() if node.command.name == "call"]
    assert barrier.params["barrier"] is True  # so that no pass merges recomputed values with the earlier ones
    mapped = nnc.make_graph(nnc.vmap(nnc.grad(nnc.checkpoint(chain))))(X)
    assert [node.params["barrier"] for node in mapped.walk() if node.command.name == "call"] == [True]


def test_captured_values_are_differentiated_and_not_kept() -> None:
    def loss(w: Any) -> Any:
        return nnp.sum(nnc.checkpoint(lambda x: chain(x * w))(X))  # the argument is concrete, the captured value is not

    assert close(nnc.grad(loss)(X), nnc.grad(lambda w: nnp.sum(chain(X * w)))(X))
    assert close(nnc.hessian(loss)(X), nnc.hessian(lambda w: nnp.sum(chain(X * w)))(X))
    assert kept(loss, X) == 0
    batch = np.stack([X, 2 * X])
    assert close(nnc.vmap(nnc.grad(loss))(batch), np.stack([nnc.grad(loss)(row) for row in batch]))
    assert close(
        nnc.grad(lambda w: nnp.sum(nnc.vmap(loss)(w)))(batch), np.stack([nnc.grad(loss)(row) for row in batch])
    )


def test_checkpoints_nest() -> None:
    def f(x: Any) -> Any:
        return nnc.checkpoint(lambda y: nnp.sin(y * x) * nnc.checkpoint(nnp.cos)(y))(x * 2)

    def plain(x: Any) -> Any:
        return nnp.sin(2 * x * x) * nnp.cos(2 * x)

    x = np.float64(0.4)
    for way in (
        nnc.grad,
        lambda g: nnc.grad(nnc.grad(g)),
        nnc.hessian,
        lambda g: nnc.compile(nnc.grad(nnc.grad(nnc.grad(g)))),
    ):
        assert close(way(nnc.checkpoint(f))(x), way(plain)(x))


def test_arguments_and_results_are_trees_with_integers_and_static_leaves() -> None:
    def f(p: Any, i: Any, *, k: Any) -> Any:
        return {"y": p["w"] * i * k, "arg": nnp.argmax(p["w"]), "name": p["name"], "none": None}

    p = {"w": X, "name": "text", "none": None}

    def loss(p: Any) -> Any:
        out = nnc.checkpoint(f)(p, np.arange(3), k=2.0)
        assert out["name"] == "text" and out["none"] is None
        return nnp.sum(out["y"]) + 0.0 * out["arg"]

    found = nnc.grad(loss)(p)
    assert close(found["w"], 2 * np.arange(3)) and found["name"] == "text"
    assert close(nnc.grad(lambda p: nnp.sum(nnc.vmap(nnc.checkpoint(lambda q: q["w"] ** 2))(p)))(p)["w"], 2 * X)


def test_static_arguments_may_be_counted_from_either_end() -> None:
    for numbers in (1, -1, (1,), (-1,)):
        f = nnc.checkpoint(lambda x, double: x * 2 if double else x, static_argnums=numbers)
        assert nnc.grad(f)(1.0, True) == 2 and nnc.grad(f)(1.0, False) == 1
    with pytest.raises(ArgumentError, match="static_argnums"):
        nnc.checkpoint(lambda x: x, static_argnums=2)(1.0)


def test_constants_of_a_checkpointed_graph_survive_a_map() -> None:
    graph = nnc.make_graph(lambda x: nnp.sum(nnp.sin(x * X)))(X)
    rows = np.stack([X, 2 * X])
    assert close(nnc.vmap(nnc.grad(nnc.checkpoint(graph)))(rows), np.cos(rows * X) * X)
    assert close(nnc.hessian(nnc.checkpoint(graph), chunk_size=2)(X), np.diag(-np.sin(X * X) * X * X))


def test_mistakes_are_reported() -> None:
    with pytest.raises(UnsupportedError, match="policies"):
        nnc.checkpoint(lambda x: x, policy=lambda *_: True)
    with pytest.raises(ArgumentTypeError, match="must be a function"):
        nnc.checkpoint(3)  # type: ignore[arg-type]
