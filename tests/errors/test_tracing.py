"""Mistakes with values that are not known while a function is traced."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

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
    with reports(TraceError, "int", "int64[]", "static_argnames='n'"):
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

    with reports(TraceError, "index", "int64[]", "static_argnames='n'"):
        nnc.compile(count)(3)


def test_a_shape_that_depends_on_a_value_under_compile() -> None:
    with reports(TraceError, "int64[]", "static_argnums"):
        nnc.compile(lambda n: nnp.zeros((n, 2)))(3)


def test_a_numpy_array_of_a_value_under_compile() -> None:
    with reports(TraceError, "NumPy", "float32[2]"):
        nnc.compile(lambda x: np.asarray(x) + 1)(nnp.ones(2))


def test_a_numpy_function_of_a_value_under_grad() -> None:
    with reports(TraceError, "NumPy", "float32[]", "nnp.sin(x)"):
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


@functools.lru_cache
def square(x: Any) -> Any:
    return x * x


UNHASHABLE: list[tuple[Any, Any]] = [
    (lambda i: {0: 1.0, 1: 2.0}[i], 1),
    (lambda x: len({x}), 1),
    (lambda x: square(x), 1),
]


@pytest.mark.parametrize(("use", "argument"), UNHASHABLE)
def test_a_hash_of_a_value_under_compile(use: Any, argument: Any) -> None:
    with reports(TraceError, "traced array (int64[])", "index an array with `table[i]`", "static_argnames="):
        nnc.compile(use)(argument)


def test_a_hash_of_a_value_under_grad_and_vmap() -> None:
    for transform, argument in ((nnc.grad, 1.0), (nnc.vmap, nnp.ones(3))):
        with reports(TraceError, "traced array (float32[])", "no argument of a cached function"):
            transform(lambda x: square(x))(argument)


FUNCTIONS = [nnp.sin, nnp.cos]
VALUES: list[tuple[str, Any, Any]] = [
    ("use nnp.sin(x)", lambda x: np.sin(x), 1.0),
    ("use nnp.sin(x)", lambda x: math.sin(x), 1.0),
    ("use nnp.linalg.norm(x, ord=1)", lambda x: np.linalg.norm(x, ord=1), np.ones(3)),
    ("use nnp.stack([x, x])", lambda x: np.array([x, x]), 1.0),
    ("use nnp.asarray(x)", lambda x: np.asarray(x), np.ones(3)),
    ("nnc.fori_loop(0, n, body, init); or declare n static", lambda n: list(range(n)), 3),
    ("nnc.fori_loop(n, 9, body, init); or declare n static", lambda n: list(range(n, 9)), 3),
    ("nnp.asarray([1.0, 2.0])[i]; or declare i static", lambda i: [1.0, 2.0][i], 1),
    ("nnc.switch(i, FUNCTIONS, *operands); or declare i static", lambda i: FUNCTIONS[i](1.0), 1),
    ("nnc.cond, nnp.where or nnc.while_loop", lambda i: "abc"[i], 1),
    ("x.astype('float32')", lambda x: float(x), 1.0),
    ("static_argnames='n'", lambda n: int(n), 1),
    ("nnc.debug.print", lambda x: x.tolist(), 1.0),
    ("nnc.debug.print", lambda x: "%.2f" % x, 1.0),  # noqa: UP031  (the mistake)
]


@pytest.mark.parametrize(("fix", "use", "argument"), VALUES)
def test_the_fix_fits_the_expression_that_asks_for_a_value(fix: str, use: Any, argument: Any) -> None:
    with reports(TraceError, fix):
        nnc.compile(use)(argument)


def test_a_numpy_function_under_grad_is_named_in_the_fix() -> None:
    with reports(TraceError, "use nnp.sin(x), or nnc.stop_gradient(x)"):
        nnc.grad(lambda x: np.sin(x))(1.0)


def test_a_flag_that_is_no_static_argument() -> None:
    def scale(x: Any, *, training: bool = True) -> Any:
        if training:
            return x * 2
        return x

    with reports(TraceError, "declare training static, with nnc.compile(..., static_argnames='training')"):
        nnc.compile(scale)(1.0, training=False)


def test_a_flag_within_a_tree_has_no_name_to_declare() -> None:
    with reports(TraceError, "nnc.cond", "static_argnums"):
        nnc.compile(lambda x: x["w"] if x["on"] else 0)({"w": 1.0, "on": True})


def test_a_value_in_code_without_a_file() -> None:
    use = eval("lambda x: float(x)")  # the mistake's text is nowhere
    with pytest.raises(TraceError, match="leave this out of the traced function"):
        nnc.compile(use)(1.0)
