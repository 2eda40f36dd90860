"""nnc.debug.print and nnc.debug.callback: eager, compiled, in loops, under grad and vmap."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError


@pytest.mark.parametrize("wrap", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
def test_prints_come_in_order_and_each_time(wrap: Any, capsys: pytest.CaptureFixture[str]) -> None:
    @wrap
    def fun(x: Any) -> Any:
        nnc.debug.print("first {}", x)
        y = x * 2
        nnc.debug.print("then {y} of {x:.1f}", x=x, y=y)
        return 1.0  # nothing of it is read

    fun(1.5)
    fun(2.5)
    assert capsys.readouterr().out == "first 1.5\nthen 3.0 of 1.5\nfirst 2.5\nthen 5.0 of 2.5\n"


def test_equal_prints_are_not_merged(capsys: pytest.CaptureFixture[str]) -> None:
    @nnc.compile
    def fun(x: Any) -> Any:
        for _ in range(3):
            nnc.debug.print("x {}", x)
        return x

    fun(1)
    assert capsys.readouterr().out == "x 1\n" * 3


LOOPS = {
    "fori_loop": lambda body: lambda x: nnc.fori_loop(0, 3, lambda i, c: body(c), x),
    "while_loop": lambda body: lambda x: nnc.while_loop(lambda c: c < 8, body, x),
    "scan": lambda body: lambda x: nnc.scan(lambda c, _: (body(c), None), x, length=3)[0],
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("differentiated", [False, True])
def test_loops_call_back_in_each_iteration(loop: str, compiled: bool, differentiated: bool) -> None:
    seen: list[float] = []

    def body(c: Any) -> Any:
        nnc.debug.callback(lambda v: seen.append(float(v)), c)
        return c * 2

    fun: Any = LOOPS[loop](body)
    fun = nnc.grad(fun) if differentiated else fun
    fun = nnc.compile(fun) if compiled else fun
    assert float(fun(1.0)) == 8
    assert seen == [1.0, 2.0, 4.0]


def test_branches_call_back_where_they_are_taken() -> None:
    seen: list[str] = []

    def branch(name: str) -> Any:
        def run(x: Any) -> Any:
            nnc.debug.callback(lambda v: seen.append(name), x)
            return x

        return run

    fun = nnc.compile(lambda p, x: nnc.cond(p, branch("yes"), branch("no"), x))
    fun(True, 1.0)
    fun(False, 1.0)
    assert seen == ["yes", "no"]


def test_values_are_those_of_the_function_under_grad_and_one_row_each_under_vmap() -> None:
    seen: list[Any] = []

    def fun(x: Any, y: Any) -> Any:
        nnc.debug.callback(lambda a, b: seen.append((float(a), float(b))), x, y)
        return x * x * y

    assert float(nnc.grad(fun)(3.0, 2.0)) == 12
    assert seen == [(3.0, 2.0)]
    seen.clear()
    np.testing.assert_array_equal(nnc.vmap(fun, (0, None))(nnp.asarray([1.0, 2.0]), 3.0), [3, 12])
    assert seen == [(1.0, 3.0), (2.0, 3.0)]
    seen.clear()
    both = nnc.compile(nnc.vmap(nnc.grad(fun), (0, None)))
    np.testing.assert_array_equal(both(nnp.asarray([1.0, 2.0]), 3.0), [6, 12])
    assert seen == [(1.0, 3.0), (2.0, 3.0)]


def test_a_callback_reads_squares_and_norms_that_are_differentiated() -> None:
    seen: list[float] = []

    def f(x: Any, power: Any) -> Any:
        y = power(x)
        nnc.debug.callback(lambda v: seen.append(float(v)), y)
        return y

    x = nnp.asarray(3.0)
    for power, slope in ((nnp.square, 6.0), (lambda x: x * x, 6.0), (nnp.sqrt, 0.5 / 3**0.5), (lambda x: x**3, 27.0)):
        for run in (lambda f: f, nnc.compile):
            assert float(run(nnc.grad(lambda x, p=power: f(x, p)))(x)) == pytest.approx(slope)
    assert seen == pytest.approx([9, 9, 9, 9, 3**0.5, 3**0.5, 27, 27])


def test_callbacks_take_pytrees_and_settings_and_keep_their_arguments() -> None:
    seen: list[Any] = []
    fun = nnc.compile(
        lambda x: (nnc.debug.callback(lambda d, *, name: seen.append((d, name)), {"x": x}, name="a"), x)[1]
    )
    fun(nnp.arange(3))
    fun(nnp.arange(3) + 5)
    assert [name for _, name in seen] == ["a", "a"]
    np.testing.assert_array_equal(seen[0][0]["x"], [0, 1, 2])  # no memory that the second call wrote to
    assert type(seen[0][0]["x"]) is nnc.Array


def test_an_error_of_a_callback_reaches_the_caller() -> None:
    def refuse(x: Any) -> None:
        raise ValueError(f"no {x}")

    with pytest.raises(ValueError, match="no 3"):
        nnc.compile(lambda x: (nnc.debug.callback(refuse, x), x)[1])(3)


def test_mistakes_in_formats_are_found_at_once() -> None:
    with pytest.raises(ArgumentError, match="names 0 values, 1 were given"):
        nnc.debug.print("x is 3", 3)
    with pytest.raises(ArgumentError, match="names 1 values"):
        nnc.debug.print("{x}")
    with pytest.raises(ArgumentError, match="no format string"):
        nnc.debug.print("{", 1)
    with pytest.raises(ArgumentTypeError, match="cannot be called"):
        nnc.debug.callback(3)  # type: ignore[arg-type]


def test_callbacks_on_variables_of_a_dynamic_graph_run_each_time() -> None:
    g, seen = nnc.DynamicGraph(), []
    x = g.variable(2.0)
    for _ in range(2):
        nnc.debug.callback(lambda v: seen.append(float(v)), x)
    assert seen == [2.0, 2.0] and g.bookkeeping() == (0, 1)
    y = nnc.compile(lambda v: (nnc.debug.callback(lambda w: seen.append(float(w)), v), v * v)[1])(x)
    g.backward(y)
    assert float(x.grad) == 4 and seen.count(2.0) >= 3


def test_functions_that_are_called_back_are_not_kept() -> None:
    g = nnc.DynamicGraph()
    x = g.variable(1.0)
    kept = []
    for operand in (x, nnp.asarray(1.0)):
        big = np.ones(10)
        kept.append(weakref.ref(big))
        nnc.debug.callback(lambda v, big=big: None, operand)
        del big
    gc.collect()
    assert [ref() for ref in kept] == [None, None]
