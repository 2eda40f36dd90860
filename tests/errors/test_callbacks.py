"""Mistakes with nnc.pure_callback."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TreeError, UnsupportedError
from tests.errors.reports import reports

SCALAR = nnc.ShapeDtypeStruct((), "float32")
X = np.arange(3, dtype=np.float32)
each_mode = pytest.mark.parametrize("wrap", [lambda f: f, nnc.compile], ids=["eager", "compiled"])


def simulate(x: Any) -> Any:
    return np.sin(x) * 2


def call(x: Any) -> Any:
    return nnc.pure_callback(simulate, nnc.ShapeDtypeStruct(x.shape, x.dtype), x)


def test_without_a_rule_the_error_of_a_gradient_names_custom_jvp() -> None:
    for fun in (
        lambda: nnc.grad(lambda x: nnp.sum(call(x)))(X),
        lambda: nnc.compile(nnc.grad(lambda x: nnp.sum(call(x))))(X),
        lambda: nnc.jvp(call, (X,), (X,)),
        lambda: nnc.grad(lambda x: nnp.sum(nnc.scan(lambda c, _: (call(c), None), x, length=2)[0]))(X),
        lambda: nnc.vmap(nnc.grad(call))(X),
    ):
        with reports(
            UnsupportedError,
            "nnc.pure_callback",
            "simulate",
            "nnc.custom_jvp",
            ".defjvp",
            "float32[",
            at="return nnc.pure_callback(",
        ):
            fun()
    g = nnc.DynamicGraph()
    x = g.variable(X)
    with reports(UnsupportedError, "nnc.pure_callback", "nnc.custom_jvp", at="return nnc.pure_callback("):
        g.backward(nnp.sum(call(x)))


@each_mode
@pytest.mark.parametrize(
    ("result", "kind", "words"),
    [
        (lambda x: x[:2], ShapeError, ("has shape (2,)", "announces (3,)")),
        (lambda x: x[None], ShapeError, ("has shape (1, 3)",)),
        (lambda x: x.astype(np.float64), DTypeError, ("dtype float64", "announces float32", ".astype('float32')")),
        (lambda x: 1.0, ShapeError, ("has shape ()",)),
        (lambda x: (x, x), TreeError, ("another structure",)),
        (lambda x: [1.0, 2.0, 3.0], TreeError, ("another structure", "lists of numbers are containers")),
        (lambda x: None, TreeError, ("another structure",)),
        (lambda x: "text", ArgumentTypeError, ("is a str, not an array", "np.asarray")),
    ],
)  # fmt: skip
def test_results_that_were_not_announced_name_the_users_line(wrap: Any, result: Any, kind: Any, words: Any) -> None:
    fun = wrap(lambda x: nnc.pure_callback(result, nnc.ShapeDtypeStruct((3,), "float32"), x * 2) + 1)
    with reports(kind, "nnc.pure_callback", *words, at="fun = wrap(lambda x: nnc.pure_callback(result"):
        fun(X)


def test_results_of_numbers_are_checked_too() -> None:
    announced = {"n": nnc.ShapeDtypeStruct((), "int8"), "x": SCALAR}
    with reports(DTypeError, 'at ["n"] is 300', "int8 does not hold"):
        nnc.pure_callback(lambda: {"n": 300, "x": 1.0}, announced)
    with reports(DTypeError, 'at ["n"] has dtype float64', "announces int8"):
        nnc.pure_callback(lambda: {"n": 3.0, "x": 1.0}, announced)
    with reports(DTypeError, 'at ["x"] has dtype float64', "announces float32"):
        nnc.pure_callback(lambda: {"n": 3, "x": np.float64(1)}, announced)
    with reports(ShapeError, "has shape (2, 1)", "announces (2,)", "vmap_method"):
        nnc.vmap(lambda x: nnc.pure_callback(lambda x: x[:, None], SCALAR, x, vmap_method="expand_dims"))(X[:2])


def test_wrong_arguments_are_errors() -> None:
    with reports(ArgumentTypeError, "nnc.pure_callback", "must be a function"):
        nnc.pure_callback(3, SCALAR)  # type: ignore[arg-type]
    with reports(ArgumentTypeError, "nnc.pure_callback", "'float32'", "nnc.ShapeDtypeStruct"):
        nnc.pure_callback(simulate, "float32", X)
    with reports(ArgumentTypeError, "1.0, which has no shape", "nnc.ShapeDtypeStruct"):
        nnc.pure_callback(simulate, (SCALAR, 1.0), X)
    with reports(ArgumentError, "vmap_method is 'vectorized'", '"broadcast_all"'):
        nnc.pure_callback(simulate, SCALAR, X, vmap_method="vectorized")
    with reports(ArgumentTypeError, "simulate", "signature"):
        nnc.pure_callback(simulate, SCALAR, X, X)
