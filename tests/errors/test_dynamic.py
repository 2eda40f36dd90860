"""Mistakes with dynamic graphs and with nnc.debug."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    MissingNameError,
    NotFiniteError,
    ShapeError,
    TraceError,
    UnsupportedError,
)
from tests.errors.reports import reports


@pytest.fixture
def g() -> nnc.DynamicGraph:
    return nnc.DynamicGraph()


def test_a_direction_is_missing(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.0, 2.0])
    with reports(ShapeError, "float32[2]", "nnp.sum"):
        g.backward(x * 2)


def test_a_direction_of_another_shape(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.0, 2.0])
    with reports(ShapeError, "float32[2]", "float32[3]"):
        g.backward(x * 2, df=nnp.ones(3))


def test_directions_for_other_losses(g: nnc.DynamicGraph) -> None:
    x = g.variable(1.0)
    with reports(ArgumentError, "1 values for 2 losses"):
        g.backward([x * 2, x * 3], df=[1.0])


def test_integers_have_no_derivative(g: nnc.DynamicGraph) -> None:
    x = g.variable(1)
    with reports(DTypeError, "f holds a variable of int64"):
        g.backward(x * 2)
    y = g.variable(1.0)
    with reports(DTypeError, "inputs holds a variable of int64"):
        g.backward(x * y, inputs=[x])


def test_a_command_without_a_derivative(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.0, 2.0])
    y = nnp.sum(nnp.nextafter(x, 2.0) * x)
    with reports(
        UnsupportedError, "nextafter: this command has no derivative", "nnc.stop_gradient", at="nextafter(x, 2.0)"
    ):
        g.backward(y)


def test_nothing_to_differentiate_by(g: nnc.DynamicGraph) -> None:
    x = g.variable(1.0)
    with g.no_grad():
        y = x * 2
    with reports(ArgumentError, "depends on no variable", "no_grad"):
        g.backward(y)


def test_objects_that_are_no_variable(g: nnc.DynamicGraph) -> None:
    with reports(ArgumentTypeError, "f holds Array(1., dtype=float32)", "g.variable"):
        g.backward(nnp.asarray(1.0))


def test_variables_of_two_graphs(g: nnc.DynamicGraph) -> None:
    x, y = g.variable(1.0), nnc.DynamicGraph().variable(np.ones(3))
    with reports(TraceError, "two dynamic graphs", "float64[3]", "x.array"):
        nnp.dot(x, y)


def test_a_variable_that_is_not_written(g: nnc.DynamicGraph) -> None:
    x = g.variable()
    with reports(ArgumentError, "holds no array yet", "x.set(array)"):
        nnp.sin(x)
    y = g.variable(1.0)
    y.free()
    with reports(ArgumentError, "has been freed"):
        y + 1


def test_a_traced_value_in_a_variable(g: nnc.DynamicGraph) -> None:
    with reports(TraceError, "float32[] is a traced value", at="g.variable(x)"):
        nnc.make_graph(lambda x: g.variable(x))(1.0)


def test_a_variable_is_pickled(g: nnc.DynamicGraph) -> None:
    with reports(TraceError, "belongs to its dynamic graph", "x.array"):
        pickle.dumps(g.variable(1.0))


def test_an_alias_is_set(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.0, 2.0])
    with reports(ArgumentTypeError, "alias", "base[1:3] = value"):
        x[:1].set([0.0])


def test_a_gradient_of_another_shape(g: nnc.DynamicGraph) -> None:
    x = g.variable([1.0, 2.0])
    with reports(ArgumentError, "float32[2]", "float32[3]"):
        x.grad = nnp.ones(3)


def test_objects_that_are_no_optimizer(g: nnc.DynamicGraph) -> None:
    x = g.variable(1.0)
    with reports(ArgumentTypeError, "'adam'", "nnc.optim.sgd"):
        g.minimize(x * x, "adam")


def test_gradients_are_missing(g: nnc.DynamicGraph) -> None:
    with reports(ArgumentError, "no variable has a gradient", "g.backward(loss)"):
        g.apply_gradients(nnc.optim.sgd(0.1))


def test_an_optimizer_meets_another_variable(g: nnc.DynamicGraph) -> None:
    x, y, optimizer = g.variable(1.0), g.variable(1.0), nnc.optim.sgd(0.1)
    g.minimize(x * x, optimizer)
    with reports(ArgumentError, "other variables", "before 1", "now 2"):
        g.minimize(x * y, optimizer)


def test_a_limit_that_is_no_number_of_bytes() -> None:
    with reports(ArgumentError, "memo_bytes", "much"):
        nnc.DynamicGraph(memo_bytes="much")


@pytest.mark.parametrize("wrap", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
def test_a_nan_is_made(wrap: Any) -> None:
    def fun(x: Any) -> Any:
        return nnp.log(x - 2)

    with nnc.debug.check_finite(), reports(NotFiniteError, "log", "NaN", "from -1 to -1", at="return nnp.log(x - 2)"):
        wrap(fun)(1.0)


def test_values_that_a_format_does_not_name() -> None:
    with reports(ArgumentError, "names 0 values, 1 were given", "f-string"):
        nnc.debug.print("x", 1)


def test_a_callback_that_cannot_be_called() -> None:
    with reports(ArgumentTypeError, "3, which cannot be called"):
        nnc.debug.callback(3)  # type: ignore[arg-type]


def test_backward_is_a_method_of_the_graph(g: nnc.DynamicGraph) -> None:
    x = g.variable(nnp.ones(3))
    with reports(MissingNameError, "'backward'", "graph.backward(y)"):
        (x * 2).sum().backward()
    assert not hasattr(x, "backward")
