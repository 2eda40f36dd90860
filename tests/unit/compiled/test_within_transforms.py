"""Transforms of compiled functions, and calls of compiled functions within transforms that are not compiled."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
import nnc.testing.devices
from nnc.errors import ArgumentError, DTypeError, NncError, ShapeError, TraceError

Fun = Callable[..., Any]
X = np.linspace(-1.2, 1.5, 6)
W = np.linspace(0.3, 1.1, 6)


@nnc.custom_vjp
def _doubled_slope(x: Any) -> Any:
    return x * x


_doubled_slope.defvjp(lambda x: (x * x, x), lambda x, ct: (4 * x * ct,))


@nnc.custom_jvp
def _own_push(x: Any) -> Any:
    return nnp.sin(x)


@_own_push.defjvp
def _own_push_rule(primals: Any, tangents: Any) -> Any:
    return nnp.sin(primals[0]), 3 * nnp.cos(primals[0]) * tangents[0]


# of (x, w); each result is one number
FUNCTIONS: dict[str, Fun] = {
    "elementwise": lambda x, w: nnp.sum(nnp.tanh(x * w) ** 2 + nnp.exp(-x)),
    "product": lambda x, w: nnp.sum(nnp.sin(nnp.outer(x, w) @ x)),
    "only one argument": lambda x, w: nnp.sum(x**3),
    "norm": lambda x, w: nnp.linalg.norm(x - 0.5) * nnp.sum(w),
    "scan": lambda x, w: nnc.scan(lambda c, y: (nnp.sin(c * y) + y, c * c), 0.5, x)[1] @ w,
    "while": lambda x, w: nnp.sum(nnc.while_loop(lambda v: v[0] < 3, lambda v: (v[0] + 1, v[1] * w + x), (0, x))[1]),
    "cond": lambda x, w: nnc.cond(nnp.sum(x) > 0, lambda: nnp.sum(x * w), lambda: nnp.sum(nnp.cos(x))),
    "checkpoint": lambda x, w: nnc.checkpoint(lambda y: nnp.sum(nnp.sin(nnp.sin(y) * w)))(x),
    "custom_vjp": lambda x, w: nnp.sum(_doubled_slope(x) * w),
    "custom_jvp": lambda x, w: nnp.sum(_own_push(x) * w),
    "solve": lambda x, w: nnp.sum(nnp.linalg.solve(nnp.outer(x, x) + 3 * nnp.eye(6), w)),
    "indexing": lambda x, w: nnp.sum(x[nnp.argsort(w)] * nnp.asarray(w).at[2].set(nnp.sum(x))),
    "constant": lambda x, w: nnp.sum(w) + 0 * x[0],
    "stopped": lambda x, w: nnp.sum(nnc.stop_gradient(x) * x * w),
}
ONLY_REVERSE = ("custom_vjp",)

Y = np.stack([X, X[::-1]])
REVERSE: dict[str, Callable[[Fun], Any]] = {
    "grad": lambda f: nnc.grad(f, argnums=(0, 1))(X, W),
    "value_and_grad": lambda f: nnc.value_and_grad(f)(X, W),
    "vjp": lambda f: nnc.vjp(f, X, W)[1](2.0),
    "within": lambda f: nnc.grad(lambda x: nnp.sin(f(x * x, W)) * f(x, W))(X),
    "within, a constant argument": lambda f: nnc.value_and_grad(lambda w: f(X, w) ** 2)(W),
    "vmap of grad": lambda f: nnc.vmap(nnc.grad(f), in_axes=(0, None))(Y, W),
    "grad of vmap": lambda f: nnc.grad(lambda y: nnp.sum(nnc.vmap(f, (0, None))(y, W) ** 2))(Y),
    "vmap of grad within": lambda f: nnc.vmap(nnc.grad(lambda x: f(x, W) * x[0]))(Y),
    "aux": lambda f: nnc.grad(lambda x: (f(x, W), f(x, x)), has_aux=True)(X),
}
FORWARD: dict[str, Callable[[Fun], Any]] = {
    "jvp": lambda f: nnc.jvp(f, (X, W), (W, X)),
    "jvp within": lambda f: nnc.jvp(lambda x: f(nnp.sin(x), W) * 2, (X,), (W,)),
    "linearize": lambda f: nnc.linearize(f, X, W)[1](W, X),
    "jacfwd": lambda f: nnc.jacfwd(f)(X, W),
    "vmap": lambda f: nnc.vmap(f, (0, None))(Y, W),
    "vmap within": lambda f: nnc.vmap(lambda x: f(x, W) + f(x * 2, x))(Y),
    "vmap over a name": lambda f: nnc.vmap(lambda x: f(nnc.pmean(x, "i"), x), axis_name="i")(Y),
}
BOTH: dict[str, Callable[[Fun], Any]] = {
    "hessian": lambda f: nnc.hessian(f)(X, W),
    "hvp": lambda f: nnc.hvp(f, (X, W), (W, X)),
    "grad of grad": lambda f: nnc.grad(lambda x: nnp.sum(nnc.grad(f)(x, W) ** 2))(X),
    "grad of grad within": lambda f: nnc.grad(lambda x: nnp.sum(nnc.grad(lambda y: f(y * x, W))(x) ** 2))(X),
    "hessian within": lambda f: nnc.hessian(lambda x: nnp.sin(f(x, W)))(X),
    "third": lambda f: nnc.jvp(lambda x: nnc.hvp(lambda y: f(y, W) * 3, (x,), (W,)), (X,), (W,)),
}
CASES = [
    (name, transform)
    for name in FUNCTIONS
    for transform in (*REVERSE, *FORWARD, *BOTH)
    if transform in REVERSE or name not in ONLY_REVERSE
]


@pytest.mark.parametrize(("name", "transform"), CASES)
def test_transforms_of_compiled_and_of_plain_functions_are_equal(name: str, transform: str) -> None:
    f, apply = FUNCTIONS[name], {**REVERSE, **FORWARD, **BOTH}[transform]
    expected = _result_or_error(lambda: apply(f))
    compiled = nnc.compile(f)
    for _ in range(2):
        found = _result_or_error(lambda: apply(compiled))
        if isinstance(expected, NncError):
            assert type(found) is type(expected)
            continue
        assert not isinstance(found, Exception), found
        assert nnc.tree.structure(found) == nnc.tree.structure(expected)
        for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(expected), strict=True):
            assert x.dtype == y.dtype and x.weak == y.weak
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def _result_or_error(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except NncError as error:
        return error


# -- one program ---------------------------------------------------------------------------------------------------------


def _squares(x: Any, scale: Any = 1.0) -> Any:
    return nnp.sum(x * x) * scale


def test_equal_transforms_of_a_compiled_function_are_one_compiled_function() -> None:
    f = nnc.compile(_squares)
    for transform in (
        nnc.grad, nnc.value_and_grad, nnc.vmap, nnc.jacfwd, nnc.jacrev, nnc.hessian, lambda g: nnc.grad(g, (0, 1)),
        lambda g: nnc.vmap(g, in_axes=({"a": [0, None]}, None)), lambda g: nnc.grad(nnc.vmap(g)),
    ):  # fmt: skip
        assert transform(f) is transform(f) and transform(f) is not f
    assert nnc.grad(f, 0) is not nnc.grad(f, 1) and nnc.vmap(f, 0) is not nnc.vmap(f, False)
    for x in (X, 2 * X, 3 * X):
        np.testing.assert_array_equal(nnc.grad(f)(x), 2 * x)
    slope: Any = nnc.grad(f)
    assert slope.cache_info()[:3] == (2, 1, 1) and f.cache_info()[:3] == (0, 0, 0)
    assert "reused a program" in nnc.debug.explain(slope)
    f.cache_clear()
    assert nnc.grad(f) is not slope


def test_a_transform_in_chunks_runs_chunk_by_chunk() -> None:
    f, traces = nnc.compile(lambda x: nnp.sum(x * x)), []
    mapped = nnc.vmap(lambda x: traces.append(None) or f(x), chunk_size=2)
    np.testing.assert_allclose(mapped(np.ones((6, 4))), [4] * 6)
    assert len(traces) == 3
    assert type(nnc.vmap(f, chunk_size=2)) is not type(f)
    np.testing.assert_allclose(nnc.vmap(f, chunk_size=2)(np.ones((6, 4))), [4] * 6)


def test_a_function_that_is_called_within_others_runs_as_programs() -> None:
    traces = 0

    @nnc.compile
    def model(w: Any, x: Any) -> Any:
        nonlocal traces
        traces += 1
        return {"y": nnp.tanh(x @ w), "settings": "plain", "rows": len(x)}

    def loss(w: Any, x: Any) -> Any:
        return nnp.mean(model(w, x)["y"] ** 2)

    w, x = np.ones((3, 2)) / 3, np.linspace(-1, 1, 12).reshape(4, 3)
    for _ in range(4):
        found = nnc.grad(loss)(w, x)
    assert traces == 1 and "ran as programs" in nnc.debug.explain(model)
    np.testing.assert_allclose(found, nnc.grad(lambda w: nnp.mean(nnp.tanh(x @ w) ** 2))(w), rtol=1e-12)
    nnc.grad(loss)(w, x[:2])
    assert traces == 2


# -- roles and options ---------------------------------------------------------------------------------------------------


def test_roles_and_names_of_arguments_hold_in_transforms() -> None:
    def f(x: Any, n: int, /, y: Any, *others: Any, power: int = 2, scale: Any = 1.0) -> Any:
        return (nnp.sum(x**n) + nnp.sum(y**power) + sum(map(nnp.sum, others))) * scale

    compiled = nnc.compile(f, static_argnums=1, static_argnames="power", donate_argnames="y")
    x, y = nnp.asarray(X), nnp.asarray(W)
    for g in (f, compiled):
        np.testing.assert_allclose(nnc.grad(g)(x, 3, y=y, power=3, scale=2.0), 6 * X**2)
        np.testing.assert_allclose(nnc.grad(g, argnames="y")(x, 3, y=y, power=3), 3 * W**2)
        for slope in nnc.grad(g, argnums=(0, 2, 3), argnames="scale")(x, 3, y, x, scale=1.0)[:1]:
            np.testing.assert_allclose(slope, 3 * X**2)
        np.testing.assert_allclose(nnc.grad(lambda v, g=g: g(v, 2, v, power=3))(x), 2 * X + 3 * X**2)
        np.testing.assert_allclose(nnc.vmap(g, (0, None, None))(x[None], 2, y), [np.sum(X**2) + np.sum(W**2)])
        with pytest.raises(ArgumentError, match="which was not passed by keyword"):
            nnc.grad(g, argnames="y")(x, 3, y)
        with pytest.raises(ArgumentError, match="argnums names argument 2"):
            nnc.grad(g, argnums=2)(x, 3, y=y)
    assert float(y[0]) == W[0]  # not donated


def test_options_hold_in_transforms() -> None:
    f = nnc.compile(_squares, max_traces=1, dynamic_axes={"x": {0: "rows"}}, memory_budget="1MiB", streams=2)
    slope: Any = nnc.grad(f)
    assert slope.options == f.options
    slope(X, 1.0)
    with pytest.raises(TraceError, match="max_traces=1"):
        slope(X[:3], 1.0)
    np.testing.assert_array_equal(nnc.vmap(f, (0, None))(Y, 1.0), np.sum(Y * Y, axis=1))


class _Line:
    def __init__(self, slope: Any) -> None:
        self.slope = slope

    @nnc.compile
    def loss(self, x: Any) -> Any:
        return nnp.sum(x * x) * self.slope


def test_methods_are_transformed_for_their_object() -> None:
    one, two = _Line(1.0), _Line(2.0)
    for _ in range(3):
        np.testing.assert_array_equal(nnc.grad(one.loss)(X), 2 * X)
        np.testing.assert_array_equal(nnc.grad(two.loss)(X), 4 * X)
        np.testing.assert_array_equal(nnc.vmap(two.loss)(Y), 2 * np.sum(Y * Y, axis=1))
        np.testing.assert_array_equal(nnc.jvp(two.loss, (X,), (X,))[1], 4 * np.sum(X * X))


@dataclass
class _State:
    w: Any
    step: float


def test_numbers_in_fields_change_without_a_new_trace() -> None:
    traces = 0

    @nnc.compile
    def f(state: _State) -> Any:
        nonlocal traces
        traces += 1
        return nnp.sum(state.w**2) * state.step

    nnc.tree.register_dataclass(_State)
    for i in range(8):
        w = X + i
        np.testing.assert_allclose(nnc.grad(lambda w, i=i: f(_State(w, float(i))))(w), 2 * w * i)
        np.testing.assert_allclose(nnc.grad(f)(_State(w, float(i))).w, 2 * w * i)
    assert traces <= 4


def test_captured_values_that_change_are_seen() -> None:
    scale = {"by": 2.0}
    f = nnc.compile(lambda x: nnp.sum(x * x) * scale["by"])
    within = nnc.grad(lambda x: f(x) + 0.0)
    for by in (2.0, 3.0, 5.0):
        scale["by"] = by
        np.testing.assert_array_equal(nnc.grad(f)(X), 2 * X * by)
        np.testing.assert_array_equal(within(X), 2 * X * by)


def test_values_of_an_enclosing_transform_are_captured() -> None:
    def outer(x: Any) -> Any:
        inner = nnc.compile(lambda y: nnp.sum(nnp.sin(x * y)))
        return nnp.sum(nnc.grad(inner)(x) + nnc.vmap(inner)(nnp.stack([x, x]))[0])

    def plain(x: Any) -> Any:
        inner = lambda y: nnp.sum(nnp.sin(x * y))
        return nnp.sum(nnc.grad(inner)(x) + nnc.vmap(inner)(nnp.stack([x, x]))[0])

    np.testing.assert_allclose(nnc.grad(outer)(X), nnc.grad(plain)(X), rtol=1e-12)


def test_effects_happen_once_in_each_call() -> None:
    seen: list[float] = []

    @nnc.compile
    def f(x: Any) -> Any:
        nnc.debug.callback(lambda y: seen.append(float(y)), nnp.sum(x))
        return nnp.sum(x * x)

    for i, run in enumerate((lambda: nnc.grad(f)(X), lambda: nnc.grad(lambda x: f(x) + 1)(X)) * 2):
        run()
        assert len(seen) == i + 1


def test_modes_that_look_at_commands_see_those_of_transforms() -> None:
    f = nnc.compile(lambda x: nnp.sum(nnp.log(x)))
    for run in (nnc.grad(f), nnc.grad(lambda x: f(x) * 1.0)):
        with nnc.debug.check_finite(), pytest.raises(NncError, match="log"):
            run(nnp.asarray([0.0, 1.0]))
        with nnc.debug.eager():
            np.testing.assert_allclose(run(W), 1 / W)


def test_mistakes_are_told_as_without_a_program() -> None:
    f = nnc.compile(lambda x: x * x)
    for run, kind in (
        (lambda: nnc.grad(f)(X), ShapeError), (lambda: nnc.grad(f)(2), DTypeError),
        (lambda: nnc.grad(lambda x: f(x))(X), ShapeError), (lambda: nnc.vmap(f)(1.0), ShapeError),
        (lambda: nnc.jvp(f, (X,), (X[:2],)), ShapeError), (lambda: nnc.grad(f, argnums=3)(X), ArgumentError),
    ):  # fmt: skip
        with pytest.raises(kind) as told:
            run()
        assert "test_within_transforms.py" in str(told.value)


def test_transforms_run_where_the_arrays_are() -> None:
    weights = nnp.asarray(W)
    f = nnc.compile(lambda x: nnp.sum(nnp.sin(x * weights)))
    x = nnc.device_put(nnp.asarray(X), "sim:0")
    for slope in (nnc.grad(f)(x), nnc.grad(lambda x: f(x) * 1.0)(x), nnc.vjp(f, x)[1](1.0)[0]):
        assert slope.device == "sim:0"
        np.testing.assert_allclose(slope, np.cos(X * W) * W, rtol=1e-12)
    mapped = nnc.vmap(lambda x: f(x) * 1.0)(nnp.stack([x, x]))
    assert mapped.device == "sim:0"
    np.testing.assert_allclose(mapped, [np.sum(np.sin(X * W))] * 2, rtol=1e-12)


def test_a_backward_pass_outlives_the_arrays_it_came_from() -> None:
    f, x = nnc.compile(lambda x: x * x * x), X.copy()
    _, pull = nnc.vjp(f, x)
    x[:] = 0
    np.testing.assert_allclose(pull(np.ones(6))[0], 3 * X**2)


def test_cotangents_that_are_zero_take_no_part() -> None:
    f = nnc.compile(lambda x: (nnp.sum(x), nnp.log(x)))
    np.testing.assert_array_equal(nnc.grad(lambda x: f(x)[0])(nnp.asarray([0.0, 1.0])), [1, 1])


def test_programs_of_transforms_go_with_their_function() -> None:
    def use() -> Any:
        f = nnc.compile(lambda x: nnp.sum(x * x))
        nnc.grad(f)(X), nnc.grad(lambda x: f(x) + 1)(X)
        return weakref.ref(nnc.grad(f))

    gone = use()
    gc.collect()
    assert gone() is None


# -- explanations --------------------------------------------------------------------------------------------------------


def test_a_call_within_a_transform_that_is_not_compiled_is_explained() -> None:
    square = nnc.compile(lambda x: nnp.sum(x * x))
    x = np.float32([1, 2])
    assert "has not been called yet" in nnc.debug.explain(square)
    np.testing.assert_array_equal(nnc.grad(square)(x), 2 * x)
    assert "transforms of it were made" in nnc.debug.explain(square)
    np.testing.assert_array_equal(nnc.vmap(lambda x: square(x))(x[None]), [5])
    assert "ran as programs" in nnc.debug.explain(square)
    nnc.linearize(square, x)
    assert "compile the transform" in nnc.debug.explain(square)
    square(x)
    assert "first call" in nnc.debug.explain(square)
    square(x)
    assert "reused" in nnc.debug.explain(square)
