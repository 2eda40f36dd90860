"""grad, vjp, jvp, linearize, linear_transpose, hvp, stop_gradient: alone, nested, and with every kind of argument."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import namedtuple
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    NncError,
    ShapeError,
    TraceError,
    TreeError,
    UnsupportedError,
)

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
X = np.array([0.3, -1.2, 0.7])


def close(a: Any, b: Any, tolerance: float = 1e-9) -> bool:
    return np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance)


# -- nesting -----------------------------------------------------------------------------------------------------------


def cube(x: Any) -> Any:
    return x * x * x


def forward(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: nnc.jvp(f, (x,), (np.float64(1),))[1]


def linearized(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: nnc.linearize(f, x)[1](np.float64(1))


def pulled(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: nnc.vjp(f, x)[1](np.float64(1))[0]


def graphed(f: Callable[..., Any]) -> Callable[..., Any]:
    return nnc.make_graph(nnc.grad(f))(np.float64(0))


def doubly_transposed(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: nnc.linear_transpose(lambda t: nnc.jvp(f, (x,), (t,))[1], x)(np.float64(1))[0]


WAYS = {
    "grad": nnc.grad, "forward": forward, "linearized": linearized, "pulled": pulled, "jacfwd": nnc.jacfwd,
    "jacrev": nnc.jacrev, "compiled": lambda f: nnc.compile(nnc.grad(f)), "inside": lambda f: nnc.grad(nnc.compile(f)),
    "checkpointed": lambda f: nnc.grad(nnc.checkpoint(f)), "graphed": graphed, "transposed": doubly_transposed,
    "mapped": lambda f: lambda x: nnc.vmap(nnc.grad(f))(nnp.stack([x, x]))[1],
    "of a sum of maps": lambda f: nnc.grad(lambda x: 0.5 * nnp.sum(nnc.vmap(f)(nnp.stack([x, x])))),
}  # fmt: skip


@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", WAYS)
def test_any_two_ways_of_differentiating_compose(outer: str, inner: str) -> None:
    if (outer, inner) == ("graphed", "graphed"):
        first = WAYS[inner](cube)
        assert close(WAYS[outer](first)(np.float64(2)), 12)
        return
    if inner == "graphed":  # a graph made inside a trace would capture nothing of it: it has its own inputs
        first = WAYS[inner](cube)
        assert close(WAYS[outer](first)(np.float64(2)), 12)
        return
    assert close(WAYS[outer](WAYS[inner](cube))(np.float64(2)), 12)


@pytest.mark.parametrize("names", [
    ("grad", "mapped", "grad"), ("forward", "grad", "checkpointed"), ("compiled", "jacrev", "mapped"),
    ("of a sum of maps", "linearized", "pulled"), ("jacfwd", "jacrev", "jacfwd"), ("mapped", "of a sum of maps", "forward"),
    ("transposed", "transposed", "grad"), ("compiled", "checkpointed", "checkpointed"), ("pulled", "inside", "transposed"),
])  # fmt: skip
def test_three_levels_give_the_third_derivative(names: tuple[str, str, str]) -> None:
    f = cube
    for name in reversed(names):
        f = WAYS[name](f)
    assert close(f(np.float64(2)), 6)


def test_ten_levels_of_grad_give_the_tenth_derivative() -> None:
    f: Any = nnp.exp
    for _ in range(10):
        f = nnc.grad(f)
    assert close(f(np.float64(0.5)), np.exp(0.5))


def test_perturbations_of_nested_functions_are_not_confused() -> None:
    one = np.float64(1)
    assert nnc.grad(lambda x: x * nnc.grad(lambda y: x + y)(one))(one) == 1
    assert forward(lambda x: x * forward(lambda y: x + y)(one))(one) == 1
    assert forward(lambda x: x * nnc.grad(lambda y: x + y)(one))(one) == 1
    assert nnc.grad(lambda x: x * forward(lambda y: x + y)(one))(one) == 1


def test_closures_over_tracers_of_several_levels_keep_them_apart() -> None:
    def f(x: Any) -> Any:
        return nnc.grad(lambda y: nnc.grad(lambda z: x * y * y * z * z * z)(x) * y)(x)

    # d/dz = 3xy²z² at z=x: 3x³y²; times y: 3x³y³; d/dy at y=x: 9x⁵ (z's x is held fixed); d/dx: 45x⁴
    assert close(f(np.float64(2)), 9 * 2**5)
    assert close(nnc.grad(f)(np.float64(2)), 45 * 2**4)
    assert close(nnc.compile(nnc.grad(f))(np.float64(2)), 45 * 2**4)
    assert close(nnc.vmap(nnc.grad(f))(np.array([1.0, 2.0])), [45, 45 * 2**4])


def test_a_vmapped_closure_over_differentiated_values_is_differentiated() -> None:
    def f(w: Any) -> Any:
        return nnp.sum(nnc.vmap(lambda row: nnp.sin(w @ row))(X[None] * np.arange(1.0, 4)[:, None]))

    nnc.testing.check_grads(f, (X,), order=2)


def test_grad_through_jacrev_and_vmap_of_hessian() -> None:
    def f(x: Any) -> Any:
        return nnp.sum(nnp.sin(x) * x[::-1])

    nnc.testing.check_grads(lambda x: nnp.sum(nnc.jacrev(lambda y: nnp.sin(y) * y[::-1])(x) ** 2), (X,), order=1)
    batch = np.stack([X, 2 * X])
    hessians = nnc.vmap(nnc.hessian(f))(batch)
    assert all(close(h, nnc.hessian(f)(row)) for h, row in zip(hessians, batch, strict=True))


def test_jvp_of_vjp_is_the_second_derivative_in_two_directions() -> None:
    def pull(x: Any, ct: Any) -> Any:
        return nnc.vjp(lambda y: nnp.sin(y), x)[1](ct)[0]

    _, moved = nnc.jvp(pull, (X, np.ones(3)), (np.ones(3), np.zeros(3)))
    assert close(moved, -np.sin(X))


def test_a_pullback_may_be_called_later_and_within_other_transforms() -> None:
    _, pull = nnc.vjp(lambda x: x * x, X)
    assert close(nnc.vmap(lambda ct: pull(ct)[0])(np.eye(3)), np.diag(2 * X))
    assert close(nnc.grad(lambda ct: nnp.sum(pull(ct)[0] ** 2))(np.ones(3)), 8 * X**2)
    assert close(nnc.compile(lambda ct: pull(ct)[0])(np.ones(3)), 2 * X)


def test_a_linear_map_may_be_applied_within_other_transforms() -> None:
    _, push = nnc.linearize(lambda x: nnp.sin(x), X)
    assert close(nnc.vmap(push)(np.eye(3)), np.diag(np.cos(X)))
    assert close(nnc.grad(lambda t: nnp.sum(push(t)))(X), np.cos(X))
    assert close(nnc.linear_transpose(push, X)(np.ones(3))[0], np.cos(X))


def test_transforms_apply_to_graphs() -> None:
    graph = nnc.make_graph(lambda x: nnp.sin(x) * x)(np.float64(0))
    first = np.cos(0.4) * 0.4 + np.sin(0.4)
    second = 2 * np.cos(0.4) - 0.4 * np.sin(0.4)
    x = np.float64(0.4)
    assert close(nnc.grad(graph)(x), first)
    assert close(forward(graph)(x), first)
    assert close(nnc.hessian(graph)(x), second)
    assert close(nnc.vmap(graph)(np.array([0.4, 0.4])), np.sin(0.4) * 0.4)
    assert close(nnc.grad(nnc.checkpoint(graph))(x), first)
    assert close(nnc.make_graph(nnc.grad(graph))(x)(x), first)
    assert close(nnc.compile(nnc.grad(nnc.grad(graph)))(x), second)


@pytest.mark.parametrize("transform", [
    nnc.grad, nnc.value_and_grad, nnc.jacfwd, nnc.jacrev, nnc.hessian, lambda f: lambda x: nnc.hvp(f, (x,), (x,)),
    lambda f: lambda x: nnc.jvp(f, (x,), (x,)), lambda f: lambda x: nnc.linearize(f, x)[1](x),
    lambda f: nnc.vmap(nnc.grad(lambda x: f(x[None]))), lambda f: nnc.grad(nnc.checkpoint(f)),
])  # fmt: skip
def test_the_graph_and_the_program_of_a_transform_agree_with_eager_mode(transform: Any) -> None:
    run = transform(lambda x: nnp.sum(nnp.sin(x) * nnp.cumsum(x)))
    expected = nnc.tree.leaves(run(X))
    outputs = nnc.make_graph(run)(X)(X)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert all(close(a, b) for a, b in zip(outputs, expected, strict=True))
    assert all(close(a, b) for a, b in zip(nnc.tree.leaves(nnc.compile(run)(X)), expected, strict=True))


# -- Python control flow, threads, generators ---------------------------------------------------------------------------


def test_python_decisions_on_values_work_under_grad() -> None:
    def f(x: Any) -> Any:
        while x < 10:
            x = x * 2 if x > 0 else -x
        return x

    assert nnc.grad(f)(3.0) == 4 and nnc.grad(f)(-3.0) == -4
    assert nnc.grad(nnc.grad(lambda x: f(x) * x))(3.0) == 8
    assert forward(lambda x: f(x))(np.float64(-3.0)) == -4


def test_numbers_and_indices_can_be_taken_of_values_under_grad() -> None:
    table = [1.0, 10.0, 100.0]
    assert nnc.grad(lambda x: x * table[int(x)])(2.5) == 100
    assert nnc.grad(lambda x: x * float(nnc.stop_gradient(x)))(3.0) == 3
    with pytest.warns(UserWarning, match="no derivative flows"):
        assert nnc.grad(lambda x: x * float(x))(3.0) == 3


def test_transforms_in_several_threads_do_not_meet() -> None:
    barrier = threading.Barrier(4)

    def work(k: int) -> float:
        barrier.wait()
        for _ in range(20):
            value = nnc.grad(lambda x: nnp.sum(nnc.vmap(lambda y: nnc.grad(lambda z: z * z * y * k)(y))(x)))(X)
        return value

    with ThreadPoolExecutor(4) as pool:
        assert all(close(found, 4 * k * X) for k, found in enumerate(pool.map(work, range(4))))


def test_a_transform_within_a_thread_may_use_values_of_the_enclosing_transform() -> None:
    def f(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return x * pool.submit(lambda: nnc.grad(lambda y: x * y * y)(3.0)).result()

    assert nnc.grad(f)(2.0) == 24  # 6x², where a confusion of the two traces gives 0 or 12
    assert nnc.grad(nnc.grad(f))(2.0) == 12


def test_generators_inside_and_around_transforms_leave_no_trace_behind() -> None:
    def gradients(f: Any) -> Any:
        for x in (1.0, 2.0):
            yield nnc.grad(f)(x)

    found = gradients(lambda x: x**3)
    assert next(found) == 3
    assert nnc.grad(lambda x: x * x)(5.0) == 10
    assert next(found) == 12
    assert nnc.grad(lambda x: sum(x * k for k in range(4)))(1.0) == 6
    with pytest.raises(ZeroDivisionError):
        nnc.grad(lambda x: x * (1 // 0))(1.0)
    assert nnc.make_graph(lambda x: x + 1)(1.0)(1.0) == 2


# -- arguments ---------------------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", "a b")


@dataclass(frozen=True)
class Frozen:
    w: Any
    name: str = "relu"


@dataclass
class Mutable:
    w: Any
    inner: Any = None
    act: Any = nnp.tanh


class Registered:
    def __init__(self, w: Any, tag: str) -> None:
        self.w, self.tag = w, tag


nnc.tree.register(Registered, lambda x: ((x.w,), x.tag), lambda tag, children: Registered(children[0], tag))


@pytest.mark.parametrize("tree", [
    {"b": X, "a": 2 * X}, [X, X], (X,), Pair(X, 2 * X), Frozen(X), Mutable(X, Frozen(X)), Registered(X, "t"),
    {"x": [Frozen(X), None, Pair(X, (X, {}))], "s": "text", "f": np.sin}, X, [None, X, "text"],
], ids=lambda t: type(t).__name__)  # fmt: skip
def test_a_gradient_has_the_structure_of_its_argument(tree: Any) -> None:
    arrays = [leaf for leaf in nnc.tree.leaves(tree) if isinstance(leaf, np.ndarray)]

    def f(value: Any) -> Any:
        return sum(nnp.sum(leaf**2) for leaf in nnc.tree.leaves(value) if nnc.tree.is_array(leaf))

    for run in (nnc.grad(f), nnc.compile(nnc.grad(f)), lambda t: nnc.vjp(f, t)[1](1.0)[0], nnc.grad(nnc.checkpoint(f))):
        found = run(tree)
        assert nnc.tree.structure(found) == nnc.tree.structure(tree)
        leaves = nnc.tree.leaves(found)
        assert [x for x in leaves if not nnc.tree.is_array(x)] == [
            x for x in nnc.tree.leaves(tree) if not nnc.tree.is_array(x)
        ]
        assert all(close(g, 2 * x) for g, x in zip(filter(nnc.tree.is_array, leaves), arrays, strict=True))


def test_argnums_choose_and_order_gradients() -> None:
    def f(x: Any, y: Any, *, w: Any = 1.0) -> Any:
        return x * y * y * w

    assert nnc.grad(f, 1)(2.0, 3.0) == 12
    assert nnc.grad(f, -1)(2.0, 3.0) == 12
    assert nnc.grad(f, (1, 0))(2.0, 3.0) == (12, 9)
    assert nnc.grad(f, (-1, -2))(2.0, 3.0) == (12, 9)
    assert nnc.grad(f, [0])(2.0, 3.0) == (9,)
    assert nnc.grad(f, ())(2.0, 3.0) == ()
    assert nnc.grad(f, argnames="w")(2.0, 3.0, w=1.0) == 18
    assert nnc.grad(f, argnames=("w",))(2.0, 3.0, w=1.0) == (18,)
    assert nnc.grad(f, (0,), argnames="w")(2.0, 3.0, w=2.0) == (18, 18)
    assert nnc.grad(f)(2.0, 3.0, w=5.0) == 45


@pytest.mark.parametrize("transform", [nnc.grad, nnc.value_and_grad, nnc.jacfwd, nnc.jacrev, nnc.hessian])
def test_naming_one_argument_twice_is_a_mistake(transform: Any) -> None:
    with pytest.raises(ArgumentError, match="twice"):
        transform(lambda x, y: x * y, (0, -2))(2.0, 3.0)
    with pytest.raises(ArgumentError):
        transform(lambda x, y: x * y, 2)(2.0, 3.0)


def test_aux_passes_through_every_transform() -> None:
    def f(x: Any) -> Any:
        return nnp.sum(x * x), {"seen": x, "name": "n", "none": None, "five": 5}

    def check(aux: Any) -> None:
        assert aux["name"] == "n" and aux["none"] is None and aux["five"] == 5 and close(aux["seen"], X)
        assert nnc.tree.is_array(aux["seen"]) and type(aux["seen"]) is nnc.Array

    gradient, aux = nnc.grad(f, has_aux=True)(X)
    check(aux)
    (value, aux), again = nnc.value_and_grad(f, has_aux=True)(X)
    check(aux)
    assert close(gradient, 2 * X) and close(again, 2 * X) and close(value, X @ X)
    value, pull, aux = nnc.vjp(f, X, has_aux=True)
    check(aux)
    assert close(pull(1.0)[0], 2 * X)
    value, moved, aux = nnc.jvp(f, (X,), (X,), has_aux=True)
    check(aux)
    assert close(moved, 2 * X @ X)
    value, push, aux = nnc.linearize(f, X, has_aux=True)
    check(aux)
    assert close(push(X), 2 * X @ X)
    for transform in (nnc.jacfwd, nnc.jacrev):
        jacobian, aux = transform(f, has_aux=True)(X)
        check(aux)
        assert close(jacobian, 2 * X)
    hessian, aux = nnc.hessian(f, has_aux=True)(X)
    check(aux)
    assert close(hessian, 2 * np.eye(3))
    second, (first, aux) = nnc.grad(
        lambda x: (lambda g, a: (nnp.sum(g), (g, a)))(*nnc.grad(f, has_aux=True)(x)), has_aux=True
    )(X)
    check(aux)
    assert close(second, 2) and close(first, 2 * X)


def test_integers_beside_floats_get_zeros_and_strings_stay() -> None:
    tree = {"x": X, "i": np.arange(3), "flag": np.array(True), "name": "n"}
    found = nnc.grad(lambda t: nnp.sum(t["x"] * t["i"]))(tree)
    assert close(found["x"], [0, 1, 2]) and found["name"] == "n"
    assert found["i"].dtype == np.int64 and not found["i"].data.any() and found["flag"].dtype == bool
    moved = nnc.jvp(lambda t: (t["x"] * 2, t["i"]), (tree,), (tree,))[1]
    assert close(moved[0], 2 * X) and not moved[1].data.any()
    with pytest.raises(DTypeError):
        nnc.grad(lambda i: i * 2.0)(3)
    assert nnc.grad(lambda i: i * 2.0, allow_int=True)(3).dtype == np.int64


@pytest.mark.parametrize(
    "call",
    [
        lambda f: nnc.jvp(f, (3, np.arange(2)), (1, np.ones(2, int))), lambda f: nnc.vjp(f, 3, np.arange(2)),
        lambda f: nnc.linearize(f, 3, np.arange(2)),
    ],
)  # fmt: skip
def test_integers_alone_have_no_derivative(call: Any) -> None:
    with pytest.raises(DTypeError, match="with respect to int64; a derivative needs floating-point input") as found:
        call(lambda x, y: x * 1.5 + y)
    assert "Fix: pass a float (1.0 instead of 1, x.astype('float32'))." in str(found.value)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_gradients_keep_the_dtype_of_their_argument(dtype: Any) -> None:
    x = nnc.asarray(np.asarray(X, dtype))

    def f(y: Any) -> Any:
        return nnp.mean(nnp.sin(y) ** 2 * 3 + 1.5 / nnp.exp(y) + nnp.maximum(y, 0)) * 2.0

    for found in (
        nnc.grad(f)(x), nnc.value_and_grad(f)(x)[0], nnc.vjp(f, x)[1](1.0)[0], nnc.jvp(f, (x,), (x,))[1],
        nnc.hessian(f)(x), nnc.jacrev(f)(x), nnc.compile(nnc.grad(f))(x), nnc.vmap(nnc.grad(f))(x[None]),
        nnc.grad(nnc.checkpoint(f))(x), nnc.hvp(f, (x,), (x,)), nnc.linearize(f, x)[1](x),
    ):  # fmt: skip
        assert found.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64], ids=lambda d: np.dtype(d).name)
def test_python_numbers_take_the_dtype_of_the_array_they_meet_in_every_transform(dtype: Any) -> None:
    x = nnc.asarray(np.asarray(X, dtype))

    def f(s: Any) -> Any:
        return nnp.sum(x * (s * 2 + 1))

    for run in (
        f, nnc.compile(f), nnc.checkpoint(f), lambda s: nnc.value_and_grad(f)(s)[0], lambda s: nnc.jvp(f, (s,), (1.0,))[1],
        lambda s: nnc.grad(lambda y: nnp.sum(nnc.checkpoint(lambda z, t: z * (t * 2))(y, s)))(x),
        lambda s: nnc.vmap(lambda row, t: row * t, in_axes=(0, None))(x, s), lambda s: x * nnc.checkpoint(lambda t: t * 2)(s),
        lambda s: nnc.grad(lambda y: nnp.sum(y * nnc.checkpoint(lambda t: t * 2)(s)))(x),
    ):  # fmt: skip
        assert run(3.0).dtype == dtype
    assert nnc.grad(f)(3.0).dtype == np.float32


def test_complex_gradients_follow_the_holomorphic_derivative() -> None:
    z = np.complex128(0.5 + 0.3j)
    found = nnc.grad(lambda x: nnp.exp(x) * x, holomorphic=True)(z)
    assert np.allclose(complex(found), np.exp(z) * (z + 1))
    assert np.allclose(complex(nnc.grad(nnc.grad(lambda x: x**3, holomorphic=True), holomorphic=True)(z)), 6 * z)
    with pytest.raises(DTypeError):
        nnc.grad(lambda x: x * x)(z)
    with pytest.raises(DTypeError):
        nnc.grad(lambda x: x * x, holomorphic=True)(1.0)
    steepest = nnc.grad(lambda x: nnp.abs(x) ** 2)(z)
    assert np.allclose(complex(steepest), 2 * np.conj(z))  # a real function of complex numbers: du/dx - i du/dy
    nnc.testing.check_grads(lambda x: nnp.abs(nnp.exp(x) * np.complex128(2 + 1j)), (z,), order=2)


def test_empty_arrays_have_empty_gradients() -> None:
    empty = np.zeros((0, 3))
    assert nnc.grad(lambda x: nnp.sum(x * 2))(empty).shape == (0, 3)
    assert nnc.jvp(lambda x: nnp.sin(x), (empty,), (empty,))[1].shape == (0, 3)
    assert nnc.vjp(lambda x: x @ np.ones((3, 2)), empty)[1](np.zeros((0, 2)))[0].shape == (0, 3)
    assert close(nnc.grad(lambda w: nnp.sum(empty @ w))(np.ones((3, 2))), np.zeros((3, 2)))


def test_unused_arguments_have_gradient_zero() -> None:
    def f(used: Any, unused: Any) -> Any:
        return used * 2

    assert nnc.grad(f, (0, 1))(1.0, 5.0) == (2, 0)
    assert nnc.grad(lambda x: 3.0)(1.0) == 0
    assert nnc.vjp(lambda x, y: x, 1.0, X)[1](1.0)[1].shape == (3,)
    assert nnc.jvp(lambda x: 3.0, (1.0,), (1.0,)) == (3, 0)
    assert nnc.linearize(lambda x: (x, 3.0), 1.0)[1](2.0) == (2, 0)
    assert nnc.grad(nnc.grad(lambda x: 3 * x))(1.0) == 0


def test_results_may_be_arguments_and_one_array_may_be_passed_twice() -> None:
    x = nnc.asarray(X)
    (a, b), pull = nnc.vjp(lambda x, y: (x, x), x, x)
    assert close(a, X) and close(b, X)
    first, second = pull((np.ones(3), np.full(3, 2.0)))
    assert close(first, [3, 3, 3]) and close(second, [0, 0, 0])
    assert [float(g) for g in nnc.grad(lambda x, y: x * x * y, (0, 1))(2.0, 2.0)] == [8, 4]
    gradients = nnc.grad(lambda x, y: nnp.sum(x * y * y), (0, 1))(x, x)
    assert close(gradients[0], X**2) and close(gradients[1], 2 * X**2)
    assert close(nnc.compile(nnc.grad(lambda x, y: nnp.sum(x * y * y), 1))(x, x), 2 * X**2)


def test_partials_methods_and_callable_objects_are_differentiated() -> None:
    class Scale:
        k = 3.0

        def method(self, x: Any) -> Any:
            return self.k * x

        def __call__(self, x: Any) -> Any:
            return self.k * x * x

    assert nnc.grad(partial(lambda k, x: k * x, 4.0))(1.0) == 4
    assert nnc.grad(Scale().method)(1.0) == 3
    assert nnc.grad(Scale())(2.0) == 12


def test_stop_gradient_holds_values_fixed_in_every_mode() -> None:
    def f(x: Any) -> Any:
        return x * nnc.stop_gradient(x)

    assert nnc.grad(f)(3.0) == 3 and nnc.grad(nnc.grad(f))(3.0) == 0
    assert nnc.jvp(f, (3.0,), (1.0,))[1] == 3
    assert close(nnc.vmap(nnc.grad(f))(X), X)
    held = nnc.stop_gradient({"x": X, "name": "n", "none": None})
    assert close(held["x"], X) and held["name"] == "n" and held["none"] is None


def test_a_transpose_agrees_with_the_matrix_and_refuses_nonlinear_functions() -> None:
    a = np.arange(6.0).reshape(2, 3)
    assert close(nnc.linear_transpose(lambda x: a @ x, X)(np.array([1.0, 2.0]))[0], a.T @ [1, 2])
    spec = nnc.ShapeDtypeStruct((3,), "float64")
    back = nnc.linear_transpose(lambda t: {"s": t["u"] + t["v"], "n": "text"}, {"u": spec, "v": spec})
    (found,) = back({"s": X, "n": "text"})
    assert close(found["u"], X) and close(found["v"], X)
    assert close(nnc.linear_transpose(lambda t: nnc.linear_transpose(lambda x: a @ x, X)(t)[0], a[:, 0])(X)[0], a @ X)
    for bad in (lambda x: x * x, lambda x: nnp.sin(x)):
        with pytest.raises(UnsupportedError):
            nnc.linear_transpose(bad, X)(X)


def test_hvp_is_the_product_with_the_hessian() -> None:
    def f(x: Any, y: Any) -> Any:
        return nnp.sum(nnp.sin(x) * y**2)

    h = nnc.hessian(f, (0, 1))(X, 2 * X)
    along = nnc.hvp(f, (X, 2 * X), (np.ones(3), X))
    assert close(along[0], h[0][0] @ np.ones(3) + h[0][1] @ X)
    assert close(along[1], h[1][0] @ np.ones(3) + h[1][1] @ X)
    assert close(nnc.compile(lambda x: nnc.hvp(lambda y: nnp.sum(y**3), (x,), (x,)))(X), 6 * X * X)


# -- mistakes ----------------------------------------------------------------------------------------------------------


def test_a_result_that_is_no_scalar_is_reported_with_its_shape() -> None:
    with pytest.raises(ShapeError, match=r"float64\[3\]"):
        nnc.grad(lambda x: x * 2)(X)
    with pytest.raises(ShapeError, match="tuple"):
        nnc.grad(lambda x: (x, x))(1.0)
    with pytest.raises(ShapeError, match="None"):
        nnc.grad(lambda x: None)(1.0)
    with pytest.raises(DTypeError):
        nnc.grad(lambda x: nnp.argmax(x))(X)
    with pytest.raises(NncError):
        nnc.grad(lambda x: x * 2, has_aux=True)(1.0)


def test_tangents_and_cotangents_must_match() -> None:
    with pytest.raises(ShapeError):
        nnc.jvp(nnp.sin, (X,), (np.ones(2),))
    with pytest.raises(DTypeError):
        nnc.jvp(nnp.sin, (X,), (np.ones(3, np.float32),))
    with pytest.raises(TreeError):
        nnc.jvp(lambda d: d["a"], ({"a": X},), ({"b": X},))
    _, pull = nnc.vjp(lambda x: {"y": x}, X)
    with pytest.raises(TreeError):
        pull(X)
    with pytest.raises(ShapeError):
        pull({"y": np.ones(2)})
    _, push = nnc.linearize(lambda x: x, X)
    with pytest.raises(ShapeError):
        push(np.ones(2))


def test_an_escaped_tracer_is_reported_with_where_it_was_made() -> None:
    kept: list[Any] = []
    nnc.grad(lambda x: kept.append(x * 2) or x)(1.0)  # the line that the message names
    with pytest.raises(TraceError, match=r"It was made at .*test_differentiate.py:\d+") as caught:
        kept[0] + 1
    assert "the line that the message names" in str(caught.value)
    with pytest.raises(TraceError, match="ended"):
        bool(kept[0])
    with pytest.raises(TraceError, match="ended"):
        nnc.grad(lambda x: x * kept[0])(1.0)


def test_numpy_functions_on_differentiated_values_are_refused() -> None:
    with pytest.raises(TraceError, match=r"use nnp\.asarray\(x\)"):
        nnc.grad(lambda x: np.sum(np.asarray(x)))(X)


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda f, x: nnc.vjp(f, x)[1], lambda f, x: nnc.linearize(f, x)[1], lambda f, x: nnc.linear_transpose(f, x),
], ids=["vjp", "linearize", "linear_transpose"])  # fmt: skip
def test_a_linear_function_keeps_no_argument_alive(make: Any) -> None:
    x = nnc.asarray(np.ones(100)) * 2
    seen = weakref.ref(x)
    kept = make(lambda x: nnp.sum(x[::2] * 2), x)
    del x
    gc.collect()
    assert seen() is None
    assert callable(kept)


def test_a_pullback_keeps_only_its_residuals() -> None:
    x = nnc.asarray(np.ones(100)) * 2
    refs: list[Any] = []

    def f(x: Any) -> Any:
        y = nnp.exp(x)  # its own derivative: y is kept, x is not
        unread = nnp.sin(x) * y
        refs.extend((weakref.ref(y.primal), weakref.ref(unread.primal)))
        return nnp.sum(y)

    seen = weakref.ref(x)
    _, pull = nnc.vjp(f, x)
    del x
    gc.collect()
    assert seen() is None and refs[0]() is not None and refs[1]() is None
    del pull
    gc.collect()
    assert refs[0]() is None


@pytest.mark.parametrize(
    ("result", "name"),
    [
        (lambda x: (x, x, x), "tuple"),
        (lambda x: (x,), "tuple"),
        (lambda x: [x, x], "list"),
        (lambda x: nnp.stack([x, x]), ""),
    ],
    ids=["three", "one", "list", "array"],
)
def test_a_function_with_aux_returns_a_pair(result: Any, name: str) -> None:
    for transform in (nnc.grad, nnc.value_and_grad, nnc.jacrev, nnc.jacfwd):
        with pytest.raises(ArgumentTypeError, match=rf"must return a pair \(value, aux\), not {name}"):
            transform(result, has_aux=True)(1.0)
