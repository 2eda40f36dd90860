"""Forward mode through loops of unknown length: no values of iterations are kept, and the same derivatives as in reverse mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, UnsupportedError
from nnc.scipy.integrate import solve_ivp

RUN = pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
X = np.array([0.3, 0.8, -0.4])
SCALE = np.array([1.1, 0.9, 1.0])
Fun = Callable[..., Any]


def near(a: Any, b: Any, tolerance: float = 1e-9) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.allclose(a, b, rtol=tolerance, atol=tolerance)


def captures(x: Any) -> Any:
    """A loop that captures the argument, and whose number of iterations depends on it."""
    return nnc.while_loop(lambda c: nnp.sum(c[1]) < 10, lambda c: (c[0] + 1, c[1] * SCALE + x**2), (0, x))[1]


def branches(x: Any) -> Any:
    def body(c: Any) -> Any:
        i, v = c
        grow = lambda v: nnc.while_loop(lambda w: nnp.sum(w) < 2, lambda w: w * 1.2 + 0.1, v)
        return i + 1, nnc.cond(nnp.sum(v) > 1.0, lambda v: nnp.sin(v) * x, grow, v)

    return nnc.while_loop(lambda c: c[0] < 4, body, (0, x))[1]


def within_scan(x: Any) -> Any:
    def step(v: Any, n: Any) -> Any:
        v = nnc.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, nnp.sin(c[1]) + 0.1 * x), (0, v))[1]
        return v, v * v

    return nnc.scan(step, x, np.arange(4))[1]


def around_scan(x: Any) -> Any:
    body = lambda c: (c[0] + 1, nnc.scan(lambda s, r: (s + r, s * r), c[1][0], c[1])[1])
    return nnc.while_loop(lambda c: c[0] < 3, body, (0, x))[1]


def half(x: Any) -> Any:
    return nnc.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * x + x), (0, x))[1]


def zero_iterations(x: Any) -> Any:
    return nnc.while_loop(lambda c: c[0] < 0, lambda c: (c[0] + 1, c[1] * x), (0, nnp.sin(x)))[1]


def replayed(x: Any) -> Any:
    step = lambda c: (c[0] + 1, nnp.sin(c[1]) * x + c[1])
    v = nnc.while_loop(lambda c: c[0] < 9, step, (0, x), checkpoint="sqrt")[1]
    return nnc.scan(lambda s, r: (nnp.sin(s) + r, s), v, np.ones((7, 3)), checkpoint="sqrt")[1]


def bounded(x: Any) -> Any:
    return nnc.while_loop(lambda v: nnp.sum(v) < 20, lambda v: v * SCALE + x**2, x, max_steps=99)


def rows(x: Any) -> Any:
    """Rows that stop at different times."""
    return nnc.vmap(lambda a: nnc.while_loop(lambda v: v < 9, lambda v: v * v + v + a * a + 0.1, a))(x)


PROGRAMS = [captures, branches, within_scan, around_scan, half, zero_iterations, replayed, bounded, rows]


def linearized(f: Fun) -> Fun:
    def columns(x: Any) -> Any:
        return nnp.moveaxis(nnc.vmap(nnc.linearize(f, x)[1])(np.eye(3)), 0, -1)

    return columns


FORWARD = pytest.mark.parametrize(
    "forward", [nnc.jacfwd, lambda f: nnc.jacfwd(f, chunk_size=2), linearized], ids=["jacfwd", "chunks", "linearize"]
)


@RUN
@FORWARD
@pytest.mark.parametrize("f", PROGRAMS)
def test_forward_mode_equals_reverse_mode(run: Fun, forward: Fun, f: Fun) -> None:
    wanted = nnc.jacrev(f)(X)
    assert near(run(forward(f))(X), wanted)
    assert near(run(nnc.vmap(forward(f)))(np.stack([X, X / 2])), nnc.vmap(nnc.jacrev(f))(np.stack([X, X / 2])))


@FORWARD
@pytest.mark.parametrize("f", PROGRAMS)
def test_second_derivatives_equal_those_of_reverse_mode(forward: Fun, f: Fun) -> None:
    wanted = nnc.jacrev(nnc.jacrev(f))(X)
    for other in (lambda g: forward(nnc.jacrev(g)), lambda g: nnc.jacrev(forward(g)), lambda g: forward(forward(g))):
        assert near(other(f)(X), wanted, 1e-8)


@RUN
@FORWARD
@pytest.mark.parametrize("f", [f for f in PROGRAMS if f is not around_scan])
def test_forward_mode_keeps_nothing_of_iterations(run: Fun, forward: Fun, f: Fun) -> None:
    derivative = run(forward(f))
    with nnc.debug.tape_memory() as memory:
        derivative(X)
    assert memory.peak == 0


@pytest.mark.parametrize("f", [branches, within_scan, half, rows])
def test_reverse_mode_keeps_values_of_iterations(f: Fun) -> None:
    with nnc.debug.tape_memory() as memory:
        nnc.jacrev(f)(X)
    assert memory.peak > 0  # so the meter would show those of forward mode


@RUN
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64"])
def test_forward_mode_keeps_dtypes_beside_integers(run: Fun, dtype: str) -> None:
    x = X.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    is_complex = dtype == "complex64"
    wanted = nnc.jacrev(half, holomorphic=is_complex)(x)
    found = run(nnc.jacfwd(half, holomorphic=is_complex))(x)
    assert found.dtype.name == dtype
    moved = nnc.linearize(half, x)[1](nnp.ones_like(nnp.asarray(x)))
    tolerance = {"float16": 1e-2, "bfloat16": 5e-2, "complex64": 1e-5}[dtype]
    as_numbers = lambda a: np.asarray(a).astype(np.complex128)
    assert near(as_numbers(found), as_numbers(wanted), tolerance)
    assert near(as_numbers(moved), as_numbers(wanted).sum(-1), tolerance)


@RUN
@FORWARD
def test_the_steps_of_a_solver_are_not_kept(run: Fun, forward: Fun) -> None:
    times = None if run is not nnc.compile else np.array([1.0, 2.0])  # the number of steps is known in eager mode only

    def last(x: Any) -> Any:
        return solve_ivp(lambda t, y: nnp.sin(t) - x * y, (0.0, 2.0), np.ones(3), t_eval=times).y[:, -1]

    wanted = nnc.jacrev(last)(X)
    with nnc.debug.tape_memory() as memory:
        found = run(forward(last))(X)
    assert near(found, wanted) and memory.peak == 0


@pytest.mark.parametrize("f", [captures, branches, within_scan, rows])
def test_the_linear_map_of_a_loop_is_transposed_and_differentiated(f: Fun) -> None:
    y, push = nnc.linearize(f, X)
    ct = np.cos(np.arange(float(np.size(y)))).reshape(np.shape(y))
    wanted = nnc.vjp(f, X)[1](ct)[0]
    assert near(nnc.linear_transpose(push, X)(ct)[0], wanted)
    assert near(nnc.grad(lambda t: nnp.sum(push(t) * ct))(X), wanted)
    assert near(nnc.jvp(push, (X,), (X,))[1], push(X))
    both = nnc.vmap(lambda c: nnc.linear_transpose(push, X)(c)[0])(np.stack([ct, 2 * ct]))
    assert near(both, np.stack([wanted, 2 * np.asarray(wanted)]))


@FORWARD
def test_python_runs_as_often_as_without_a_derivative(forward: Fun) -> None:
    calls: list[str] = []

    def noted(name: str, x: Any) -> Any:
        return nnc.pure_callback(lambda v: (calls.append(name), v)[1], nnc.ShapeDtypeStruct((), "float64"), x)

    def f(x: Any) -> Any:
        factor = noted("before", nnc.stop_gradient(nnp.sum(x)))

        def body(c: Any) -> Any:
            nnc.debug.callback(lambda i: calls.append("debug"), c[0])
            return c[0] + 1, c[1] * noted("inside", nnc.stop_gradient(nnp.sum(c[1]))) + factor * x

        return nnc.while_loop(lambda c: c[0] < 3, body, (0, x))[1]

    f(X)
    once, calls[:] = sorted(calls), []
    found = forward(f)(X)
    assert sorted(calls) == once and len(once) == 7
    assert near(found, nnc.jacrev(f)(X))


def test_python_decides_on_values_behind_loops() -> None:
    """Primals are the same for all columns, also those that a loop computes before its test."""

    def f(x: Any) -> Any:
        y = nnp.sin(captures(x))
        y = y * 2 if y[0] > 0 else y * 3
        y = branches(y)
        return y * float(nnc.stop_gradient(y[1]))

    assert near(nnc.jacfwd(f)(X), nnc.jacrev(f)(X))
    value = nnc.jacfwd(lambda x: (captures(x), captures(x)), has_aux=True)(X)[1]
    assert near(value, captures(X))


def test_bounds_and_missing_rules_are_refused_as_in_reverse_mode() -> None:
    few = lambda x: nnc.while_loop(lambda v: nnp.sum(v) < 20, lambda v: v + x, x, max_steps=2)
    for derivative in (nnc.jacfwd(few), linearized(few), nnc.jacrev(few)):
        with pytest.raises(ArgumentError, match="max_steps=2"):
            derivative(X)
    outside = lambda x: nnc.while_loop(
        lambda v: nnp.sum(v) < 20, lambda v: nnc.pure_callback(np.exp, nnc.ShapeDtypeStruct((3,), "float64"), v), x
    )
    for derivative in (nnc.jacfwd(outside), linearized(outside), nnc.jacrev(outside)):
        with pytest.raises(UnsupportedError, match="has no derivative rule"):
            derivative(X)
