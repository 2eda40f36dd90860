"""nnc.pure_callback: a Python function for its results, eager, compiled, in loops and branches, under vmap and grad."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

SCALAR = nnc.ShapeDtypeStruct((), "float32")
X = np.arange(3, dtype=np.float32)
each_mode = pytest.mark.parametrize("wrap", [lambda f: f, nnc.compile], ids=["eager", "compiled"])


def simulate(x: Any) -> Any:
    assert type(x) is np.ndarray
    return np.sin(x) * 2


def call(x: Any, **options: Any) -> Any:
    return nnc.pure_callback(simulate, nnc.ShapeDtypeStruct(x.shape, x.dtype), x, **options)


@each_mode
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "float16"])
def test_the_result_is_that_of_the_function(wrap: Any, dtype: str) -> None:
    found = wrap(lambda x: call(x * 2) + 1)(nnp.asarray(X, dtype))
    assert found.dtype == dtype and type(found) is nnc.Array
    np.testing.assert_allclose(found, np.sin(2 * X) * 2 + 1, rtol=1e-2 if dtype == "float16" else 1e-6)


@each_mode
def test_arguments_and_results_are_pytrees_and_settings_pass(wrap: Any) -> None:
    def both(value: Any, mode: str, *, scale: Any) -> Any:
        assert mode == "fast" and type(scale) is np.ndarray and scale.shape == ()
        return {"sum": value["a"].sum() * scale, "parts": (value["b"] + 1, None)}

    def fun(a: Any, b: Any) -> Any:
        announced = {"sum": SCALAR, "parts": (b, None)}
        return nnc.pure_callback(both, announced, {"a": a, "b": b}, "fast", scale=2.0)

    found = wrap(fun)(X, np.array([1, 2]))
    assert found["sum"].shape == () and float(found["sum"]) == 6
    assert found["parts"][0].tolist() == [2, 3] and found["parts"][1] is None


@each_mode
def test_functions_without_arguments_or_results_are_called(wrap: Any) -> None:
    seen: list[int] = []

    def count() -> Any:
        seen.append(1)
        return np.float32(len(seen))

    fun = wrap(lambda x: x + nnc.pure_callback(count, SCALAR))
    assert [float(fun(nnp.float32(10))) for _ in range(2)] == [11, 12], "the value is not that of the trace"
    assert wrap(lambda x: (nnc.pure_callback(lambda x: (), (), x), x)[1])(3.0) == 3


def test_python_numbers_take_the_announced_dtype_and_other_libraries_arrays_count() -> None:
    fun = nnc.compile(
        lambda x: nnc.pure_callback(lambda x: (float(x), 3), (SCALAR, nnc.ShapeDtypeStruct((), "int8")), x)
    )
    a, b = fun(0.5)
    assert (a.dtype, float(a), b.dtype, int(b)) == (np.float32, 0.5, np.int8, 3)
    assert float(nnc.pure_callback(lambda x: nnp.asarray(x) * 2, SCALAR, nnp.float32(2))) == 4


@each_mode
def test_arguments_are_copies_and_so_are_results(wrap: Any) -> None:
    kept: list[Any] = []
    table = np.ones(3, np.float32)

    def scribble(x: Any) -> Any:
        kept.append(x.copy())
        x[:] = 7
        return table

    x = nnp.asarray(X)
    fun = wrap(lambda x: (nnc.pure_callback(scribble, x, x), x * 1))
    first, same = fun(x)
    table[:] = 5
    second, _ = fun(x)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(same, X)
    assert first.tolist() == [1, 1, 1] and second.tolist() == [5, 5, 5]
    assert all(np.array_equal(each, X) for each in kept)


def body(x: Any) -> Any:
    return call(x) + 1


def expected(x: Any, times: int) -> Any:
    for _ in range(times):
        x = np.sin(x) * 2 + 1
    return x


LOOPS = {
    "fori_loop": lambda x: nnc.fori_loop(0, 3, lambda i, c: body(c), x),
    "while_loop": lambda x: nnc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, body(c[1])), (0, x))[1],
    "scan": lambda x: nnc.scan(lambda c, _: (body(c), c), x, length=3)[0],
    "map": lambda x: nnc.map(lambda row: body(body(body(row))), x),
    "cond": lambda x: nnc.cond(x[0] < 1, lambda c: body(body(body(c))), lambda c: c, x),
    "checkpoint": lambda x: body(nnc.checkpoint(lambda c: body(body(c)))(x)),
}


@each_mode
@pytest.mark.parametrize("name", LOOPS)
def test_it_runs_within_loops_and_branches(name: str, wrap: Any) -> None:
    np.testing.assert_allclose(wrap(LOOPS[name])(nnp.asarray(X)), expected(X, 3), rtol=1e-6)


def test_branches_that_are_not_taken_call_nothing_and_conditions_may_call() -> None:
    calls: list[float] = []

    def below(x: Any) -> Any:
        calls.append(float(x))
        return x < 2

    fun = nnc.compile(
        lambda x: nnc.while_loop(
            lambda c: nnc.pure_callback(below, nnc.ShapeDtypeStruct((), "bool"), c), lambda c: c + 1, x
        )
    )
    assert float(fun(0.0)) == 2 and calls == [0, 1, 2]
    calls.clear()
    branch = nnc.compile(
        lambda p: nnc.cond(p, lambda: nnc.pure_callback(below, nnc.ShapeDtypeStruct((), "bool"), 1.0), lambda: False)
    )
    assert not branch(False) and calls == []
    assert branch(True) and calls == [1]


def test_calls_of_which_nothing_is_read_are_left_out_and_the_others_stay() -> None:
    calls: list[Any] = []

    def note(x: Any) -> Any:
        calls.append(float(x))
        return x

    def fun(x: Any) -> Any:
        nnc.pure_callback(note, SCALAR, x * 5)
        return nnc.pure_callback(note, SCALAR, x) + nnc.pure_callback(note, SCALAR, nnp.float32(8))

    run = nnc.compile(fun)
    assert float(run(nnp.float32(1))) == 9
    assert sorted(calls) == [1, 8]
    assert float(run(nnp.float32(2))) == 10
    assert sorted(calls) == [1, 2, 8, 8], "a call of constants is made in each run, as tracing is no call"


SHAPES = {
    "sequential": [((3,), ())] * 2,
    "expand_dims": [((2, 3), (1,))],
    "broadcast_all": [((2, 3), (2,))],
}


@each_mode
@pytest.mark.parametrize("method", SHAPES)
def test_vmap_calls_as_its_method_says(method: str, wrap: Any) -> None:
    seen: list[Any] = []

    def scaled(x: Any, by: Any) -> Any:
        seen.append((x.shape, by.shape))
        return x * by[..., None]

    def fun(x: Any, by: Any) -> Any:
        return nnc.pure_callback(scaled, nnc.ShapeDtypeStruct((3,), "float32"), x, by, vmap_method=method)

    x, by = nnp.asarray([X, X + 1]), nnp.float32(2)
    np.testing.assert_array_equal(wrap(nnc.vmap(fun, (0, None)))(x, by), [X * 2, X * 2 + 2])
    assert seen == SHAPES[method]
    columns = wrap(nnc.vmap(fun, (1, 0), out_axes=1))(nnp.asarray([X, X + 1]).T, nnp.asarray(X[:2]))
    np.testing.assert_array_equal(columns, np.stack([X * 0, X + 1], 1))


@pytest.mark.parametrize("method", SHAPES)
def test_nested_vmaps_batch_each_axis(method: str) -> None:
    def outer(x: Any, y: Any) -> Any:
        return nnc.pure_callback(np.add, SCALAR, x, y, vmap_method=method)

    table = nnc.vmap(nnc.vmap(outer, (None, 0)), (0, None))
    np.testing.assert_array_equal(nnc.compile(table)(X, X * 10), X[:, None] + 10 * X)
    np.testing.assert_array_equal(nnc.vmap(lambda x: nnc.scan(lambda c, _: (call(c, vmap_method=method), None), x, length=2)[0])(X),
                                  np.sin(np.sin(X) * 2) * 2)  # fmt: skip


def test_vmap_of_results_that_differ_in_rank_and_of_no_rows() -> None:
    announced = (SCALAR, nnc.ShapeDtypeStruct((2,), "float32"))
    fun = nnc.vmap(lambda x: nnc.pure_callback(lambda x: (x, np.stack([x, -x])), announced, x))
    a, b = fun(nnp.asarray(X))
    np.testing.assert_array_equal(b, np.stack([a, -a], 1))
    assert [x.shape for x in fun(nnp.zeros((0,)))] == [(0,), (0, 2)]


@nnc.custom_jvp
def with_rule(x: Any) -> Any:
    return call(x)


@with_rule.defjvp
def with_rule_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    slope = nnc.pure_callback(lambda x: 2 * np.cos(x), nnc.ShapeDtypeStruct(x.shape, x.dtype), x)
    return with_rule(x), slope * t


@each_mode
def test_custom_jvp_gives_it_a_derivative(wrap: Any) -> None:
    gradient = wrap(nnc.grad(lambda x: nnp.sum(with_rule(x) ** 2)))(nnp.asarray(X))
    np.testing.assert_allclose(gradient, 8 * np.sin(X) * np.cos(X), rtol=1e-5)
    mapped = wrap(nnc.vmap(nnc.grad(lambda x: with_rule(x))))(nnp.asarray(X))
    np.testing.assert_allclose(mapped, 2 * np.cos(X), rtol=1e-6)
    loop = wrap(nnc.grad(lambda x: nnp.sum(nnc.scan(lambda c, _: (with_rule(c), None), x, length=2)[0])))(
        nnp.asarray(X)
    )
    np.testing.assert_allclose(loop, 4 * np.cos(2 * np.sin(X)) * np.cos(X), rtol=1e-5)


def test_gradients_pass_by_stopped_arguments_and_integer_results() -> None:
    stopped = nnc.grad(lambda x: nnp.sum(x * call(nnc.stop_gradient(x))))(X)
    np.testing.assert_allclose(stopped, 2 * np.sin(X), rtol=1e-6)

    def place(x: Any) -> Any:
        return x[nnc.pure_callback(lambda x: np.argmax(x), nnc.ShapeDtypeStruct((), "int64"), x)]

    assert nnc.compile(nnc.grad(place))(X).tolist() == [0, 0, 1]


@each_mode
@pytest.mark.parametrize(
    "place", [lambda f: f, nnc.vmap, lambda f: lambda x: nnc.fori_loop(0, 2, lambda i, c: f(c), x)]
)
def test_an_exception_of_the_function_reaches_the_user(wrap: Any, place: Any) -> None:
    def fail(x: Any) -> Any:
        raise ZeroDivisionError(f"at {x[0] if x.shape else x}")

    fun = wrap(place(lambda x: nnc.pure_callback(fail, x, x) * 2))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match=r"at 0\.0"):
            fun(nnp.asarray(X))


def test_it_runs_in_the_callers_thread_and_may_call_compiled_functions() -> None:
    threads: list[Any] = []
    double = nnc.compile(lambda x: x * 2)

    def inner(x: Any) -> Any:
        threads.append(threading.current_thread())
        return np.asarray(double(x))

    @nnc.compile(streams=2)
    def fun(x: Any) -> Any:
        return nnp.linalg.inv(x @ x) + nnc.pure_callback(inner, x, x)

    x = nnp.eye(64)
    for _ in range(2):
        np.testing.assert_allclose(fun(x), np.eye(64) * 3)
    assert set(threads) == {threading.current_thread()}


def test_functions_that_were_called_are_not_kept() -> None:
    g = nnc.DynamicGraph()
    kept = []
    for operand in (g.variable(1.0), nnp.asarray(1.0)):
        big = np.ones(10)
        kept.append(weakref.ref(big))
        nnc.pure_callback(lambda v, big=big: v, SCALAR, operand)
        del big
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


@each_mode
def test_it_runs_on_devices_other_than_the_cpu(wrap: Any) -> None:
    x = nnc.device_put(nnp.asarray(X), "sim:0")
    found = wrap(lambda x: call(x * 2) + 1)(x)
    assert found.device == "sim:0"
    np.testing.assert_allclose(nnc.device_put(found, "cpu"), np.sin(2 * X) * 2 + 1, rtol=1e-6)


@each_mode
def test_weak_numbers_have_the_dtype_that_they_show(wrap: Any) -> None:
    seen: list[Any] = []

    def note(x: Any) -> Any:
        seen.append(x.dtype)
        return x

    def fun(x: Any) -> Any:
        nnc.debug.callback(note, x)
        return nnc.pure_callback(note, nnc.ShapeDtypeStruct(x.shape, x.dtype), x)

    for x, dtype in ((nnp.log(2.0), "float32"), (nnp.log(2j), "complex64"), (nnp.asarray(3), "int64")):
        assert wrap(fun)(x).dtype == dtype
        assert seen[-2:] == [np.dtype(dtype)] * 2
