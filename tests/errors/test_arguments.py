"""Functions called with other arguments than they take: nnc's, and users' functions that nnc calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nnc
import nnc.numpy as nnp
from nnc import random
from nnc.errors import ArgumentError, ArgumentTypeError
from tests.errors.reports import reports


def pair(first: Any, second: Any) -> Any:
    return first + second


def nothing() -> Any:
    return 1.0


X = nnp.ones(3)
TOO_FEW: dict[str, Callable[[], object]] = {
    "compile": lambda: nnc.compile(pair)(1.0),
    "lower": lambda: nnc.compile(pair).lower(1.0),
    "static": lambda: nnc.compile(pair, static_argnums=1)(1.0),
    "donated": lambda: nnc.compile(pair, donate_argnums=1)(X),
    "grad": lambda: nnc.grad(pair)(1.0),
    "jvp": lambda: nnc.jvp(pair, (1.0,), (1.0,)),
    "vjp": lambda: nnc.vjp(pair, 1.0),
    "hessian": lambda: nnc.hessian(pair)(1.0),
    "vmap": lambda: nnc.vmap(pair)(X),
    "checkpoint": lambda: nnc.grad(nnc.checkpoint(pair))(1.0),
    "custom_vjp": lambda: nnc.custom_vjp(pair)(1.0),
    "make_graph": lambda: nnc.make_graph(pair)(1.0),
    "eval_shape": lambda: nnc.eval_shape(pair, 1.0),
    "DynamicGraph": lambda: nnc.DynamicGraph().evaluate(pair, 1.0),
    "nested": lambda: nnc.compile(nnc.vmap(nnc.grad(pair)))(X),
}
CALLED_BY_NNC: dict[str, Callable[[], object]] = {
    "nnc.scan": lambda: nnc.scan(nothing, 0.0, X),
    "nnc.fori_loop": lambda: nnc.fori_loop(0, 2, nothing, 0.0),
    "nnc.while_loop": lambda: nnc.while_loop(nothing, lambda c: c, 0.0),
    "nnc.cond": lambda: nnc.cond(True, nothing, lambda x: x, 2.0),
    "nnc.switch": lambda: nnc.switch(0, [nothing], 2.0),
    "nnc.map": lambda: nnc.map(nothing, X),
    "nnc.associative_scan": lambda: nnc.associative_scan(nothing, X),
    "nnc.debug.callback": lambda: nnc.compile(lambda x: (nnc.debug.callback(nothing, x), x)[1])(X),
    "nnc.nn.Lambda": lambda: nnc.nn.Sequential([nnc.nn.Lambda(nothing)])(X),
    "fromfunction": lambda: nnp.fromfunction(nothing, (2, 2)),
    "apply_along_axis": lambda: nnp.apply_along_axis(nothing, 0, X),
    "vectorize": lambda: nnp.vectorize(nothing)(X),
}
OF_NNC: dict[str, Callable[[], object]] = {
    "reshape": lambda: nnp.reshape(X),  # type: ignore[call-arg]
    "zeros": lambda: nnp.zeros(),  # type: ignore[call-arg]
    "pad": lambda: nnp.pad(X),  # type: ignore[call-arg]
    "sum": lambda: X.sum(0, None, False, 1, 2, 3, 4, 5),
    "cond": lambda: nnc.cond(True),  # type: ignore[call-arg]
    "uniform": lambda: random.uniform(),  # type: ignore[call-arg]
    "load": lambda: nnc.io.load(),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("name", TOO_FEW)
def test_a_function_called_with_one_argument_too_few(name: str) -> None:
    with reports(
        ArgumentTypeError,
        "pair",
        "missing",
        "'second'",
        "signature pair(first: 'Any', second: 'Any')",
        "given 1 positional",
    ):
        TOO_FEW[name]()


@pytest.mark.parametrize("name", CALLED_BY_NNC)
def test_a_function_that_nnc_calls_with_more_arguments_than_it_takes(name: str) -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        CALLED_BY_NNC[name]()
    text = str(caught.value)
    assert text.startswith(f"{name}: nothing does not take") and "signature nothing()" in text and "\nFix: " in text


@pytest.mark.parametrize("name", OF_NNC)
def test_a_function_of_nnc_called_with_a_wrong_number_of_arguments(name: str) -> None:
    with reports(ArgumentTypeError, f"{name}: it", "signature", "given"):
        OF_NNC[name]()


def test_too_many_arguments_and_unknown_names() -> None:
    with reports(ArgumentTypeError, "too many positional", "given 3 positional arguments"):
        nnc.compile(pair)(1.0, 2.0, 3.0)
    with reports(ArgumentTypeError, "pair", "given 1 positional argument, third="):
        nnc.compile(pair)(1.0, third=2.0)


def test_rules_of_custom_derivatives_with_other_parameters() -> None:
    @nnc.custom_vjp
    def reverse(x: Any) -> Any:
        return x * 2

    reverse.defvjp(lambda x: (x, None), lambda ct: (ct,))
    with reports(ArgumentTypeError, "the bwd rule of reverse", "bwd(residuals, cotangent)"):
        nnc.grad(reverse)(1.0)

    @nnc.custom_jvp
    def forward(x: Any) -> Any:
        return x * 2

    forward.defjvp(lambda primals: primals)
    with reports(ArgumentTypeError, "the jvp rule of forward", "rule(primals, tangents)"):
        nnc.jvp(forward, (1.0,), (1.0,))


def test_argument_numbers_out_of_range() -> None:
    with reports(ArgumentError, "nnc.grad", "argument 5", "pair(first"):
        nnc.grad(pair, argnums=5)(1.0, 2.0)
    with reports(ArgumentError, "nnc.vmap", "1 entries for 2"):
        nnc.vmap(pair, in_axes=(0,))(X, X)
    with reports(ArgumentError, "static_argnums", "argument 3", "takes 2"):
        nnc.compile(pair, static_argnums=3)


def test_a_type_error_within_the_function_stays_as_it_is() -> None:
    def wrong(x: Any) -> Any:
        return pair(x)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="missing 1 required positional argument") as caught:
        nnc.compile(wrong)(1.0)
    assert type(caught.value) is TypeError
