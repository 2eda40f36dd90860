"""Mistakes with values that are not known while a function is traced."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentTypeError, OutOfBoundsError, ShapeError, TraceError
from tests.errors.reports import reports


def test_an_if_on_a_value_under_compile() -> None:
    @nnc.compile
    def positive(x: Any) -> Any:
        if x > 0:
            return x
        return -x

    with reports(TraceError, "bool", "bool[]", "nnc.cond", "tracing positive for compile"):
        positive(1.0)


def test_a_while_on_a_value_under_compile() -> None:
    @nnc.compile
    def halve(x: Any) -> Any:
        while nnp.sum(x) > 1:
            x = x / 2
        return x

    with reports(TraceError, "nnc.while_loop"):
        halve(nnp.ones(4))


def test_int_of_a_value_under_compile() -> None:
    with reports(TraceError, "int", "int64[]", "static_argnums"):
        nnc.compile(lambda n: nnp.ones(3) * int(n))(2)


def test_float_of_a_value_under_compile() -> None:
    with reports(TraceError, "float", "float32[]"):
        nnc.compile(lambda x: float(x) * 2)(2.0)


def test_item_of_a_value_under_compile() -> None:
    with reports(TraceError, "item", "float32[]"):
        nnc.compile(lambda x: x.sum().item())(nnp.ones(2))


def test_a_range_over_a_value_under_compile() -> None:
    def count(n: Any) -> Any:
        total = 0
        for i in range(n):
            total = total + i
        return total

    with reports(TraceError, "index", "int64[]", "static_argnums"):
        nnc.compile(count)(3)


def test_a_shape_that_depends_on_a_value_under_compile() -> None:
    with reports(TraceError, "int64[]", "static_argnums"):
        nnc.compile(lambda n: nnp.zeros((n, 2)))(3)


def test_a_numpy_array_of_a_value_under_compile() -> None:
    with reports(TraceError, "NumPy", "float32[2]"):
        nnc.compile(lambda x: np.asarray(x) + 1)(nnp.ones(2))


def test_a_numpy_function_of_a_value_under_grad() -> None:
    with reports(TraceError, "NumPy", "float32[]", "nnc.numpy"):
        nnc.grad(lambda x: np.sin(x))(1.0)


def test_a_mask_of_unknown_size_under_compile() -> None:
    with reports(TraceError, "bool[3]", "where"):
        nnc.compile(lambda x: x[x > 0])(nnp.ones(3))


def test_an_if_on_a_row_under_vmap() -> None:
    def clip(x: Any) -> Any:
        return x if x < 1 else 1.0

    with reports(TraceError, "bool", "while", "vmap"):
        nnc.vmap(clip)(nnp.ones(3))


def test_a_traced_value_that_escapes_through_a_list() -> None:
    kept: list[Any] = []

    @nnc.compile
    def leak(x: Any) -> Any:
        kept.append(x * 2)
        return x

    leak(nnp.ones(3))
    with reports(TraceError, "float32[3]", "after that trace ended", "It was made at", "kept.append(x * 2)"):
        kept[0] + 1


def test_a_value_under_grad_that_escapes_through_a_list() -> None:
    kept: list[Any] = []

    def leak(x: Any) -> Any:
        kept.append(x * x)
        return x

    nnc.grad(leak)(3.0)
    with reports(TraceError, "float32[]", "kept.append(x * x)"):
        nnp.exp(kept[0])


def test_the_value_of_an_escaped_tracer() -> None:
    kept: list[Any] = []
    nnc.vmap(lambda x: kept.append(x * 2) or x)(nnp.ones(3))
    with reports(TraceError, "float32[]", "after that trace ended"):
        float(kept[0])


def test_assigning_to_an_element_of_a_traced_array() -> None:
    def clear(x: Any) -> Any:
        x[0] = 0.0
        return x

    with reports(ArgumentTypeError, "immutable", "float32[2]", "tracing clear for compile"):
        nnc.compile(clear)(nnp.ones(2))


def test_a_static_index_out_of_range_shows_while_tracing() -> None:
    with reports(OutOfBoundsError, "index 4", "size 3"):
        nnc.make_graph(lambda x: x[4])(nnc.ShapeDtypeStruct((3,), "float32"))


def test_shapes_that_do_not_fit_name_the_transform_that_was_tracing() -> None:
    def loss(w: Any, x: Any) -> Any:
        return nnp.sum(x @ w)

    with reports(ShapeError, "float32[5,3]", "float32[4,2]", "while tracing loss for grad"):
        nnc.grad(loss)(nnp.ones((4, 2)), nnp.ones((5, 3)))


def test_capturing_a_value_of_an_enclosing_trace_in_a_graph() -> None:
    def outer(x: Any) -> Any:
        nnc.make_graph(lambda y: x + y)(1.0)
        return x

    with reports(TraceError, "float32[]", "enclosing"):
        nnc.grad(outer)(1.0)
