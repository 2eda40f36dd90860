"""make_graph and eval_shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError, TraceError

X = np.array([0.3, -1.2, 0.7])


def test_a_graph_has_an_input_for_each_leaf_and_captured_arrays_as_constants() -> None:
    w = np.arange(6.0).reshape(2, 3)
    graph = nnc.make_graph(lambda p, s: (w @ p["a"] + p["b"], s))({"a": X, "b": np.float64(1), "n": "text"}, 2)
    assert [str(spec) for spec in graph.input_specs] == ["float64[3]", "float64[]", "int64[]"]
    assert any(value.shape == (2, 3) for value in graph.constants.values())
    found = graph(X, 1.0, 3)
    assert np.allclose(np.asarray(found[0]), w @ X + 1) and found[1] == 3


def test_a_captured_array_is_taken_once() -> None:
    w = nnc.asarray(X)
    graph = nnc.make_graph(lambda x: x * w + w * w)(X)
    assert len(graph.constants) == 1


def test_nodes_name_the_line_of_the_user_also_in_derivatives() -> None:
    def loss(x: Any) -> Any:
        y = nnp.sin(x)  # the sine
        return nnp.sum(y)

    graph = nnc.make_graph(nnc.grad(loss))(X)
    (cos,) = [node for node in graph.walk() if node.command.name == "cos"]
    assert "the sine" in str(cos.source.describe())  # type: ignore[union-attr]


def test_shapes_stand_for_arrays_and_nothing_is_computed() -> None:
    @dataclass
    class State:
        w: Any
        kind: str = "dense"

    huge = nnc.ShapeDtypeStruct((10**6, 10**6), "bfloat16")
    out = nnc.eval_shape(
        lambda s, x: {"y": s.w @ x, "kind": s.kind, "none": None},
        State(huge),
        nnc.ShapeDtypeStruct((10**6, 2), "bfloat16"),
    )
    assert out == {"y": nnc.ShapeDtypeStruct((10**6, 2), "bfloat16"), "kind": "dense", "none": None}
    gradient = nnc.eval_shape(nnc.grad(lambda x: nnp.sum(x * 2)), huge)
    assert gradient == huge
    assert nnc.eval_shape(nnc.hessian(lambda x: nnp.sum(x**3)), nnc.ShapeDtypeStruct((5,), "float16")).shape == (5, 5)
    assert nnc.eval_shape(nnc.vmap(lambda x: x > 0), nnc.ShapeDtypeStruct((5, 2), "float16")).dtype == bool
    assert nnc.eval_shape(lambda x, *, k: x * k, 1.0, k=X).shape == (3,)


def test_shapes_may_be_asked_for_within_a_transform() -> None:
    assert nnc.grad(lambda x: x * nnc.eval_shape(lambda y: y * nnp.ones((2, 3)), x).size)(1.0) == 6


def test_an_abstract_value_names_the_line_that_asked_and_a_remedy() -> None:
    def f(x: Any) -> Any:
        if x > 0:  # the decision
            return x
        return -x

    for run in (
        nnc.make_graph(f),
        nnc.compile(f),
        lambda x: nnc.eval_shape(f, x),
        lambda x: nnc.linear_transpose(f, x)(x),
    ):
        with pytest.raises(TraceError, match="the decision") as caught:
            run(1.0)
        assert "nnc.cond" in str(caught.value) and "bool[]" in str(caught.value)
    for ask in (float, int, bool, complex, np.asarray, lambda x: x.item(), lambda x: [1, 2][x], lambda x: x.tolist()):
        with pytest.raises((TraceError, TypeError), match="test_specs"):
            nnc.make_graph(ask)(np.int64(1))


def test_a_graph_may_not_capture_a_value_of_an_enclosing_trace() -> None:
    with pytest.raises(TraceError, match="captures"):
        nnc.grad(lambda x: nnc.make_graph(lambda y: x * y)(1.0)(2.0))(3.0)
    with pytest.raises(ArgumentTypeError):
        nnc.make_graph(3)  # type: ignore[arg-type]
