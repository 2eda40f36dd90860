"""Loops and branches against arithmetic: numbers that libnnc's own tests use, and closed forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.graph import Graph, GraphBuilder, from_json, structural_hash, to_json, verify

F64 = np.float64


def both(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    """`f` by itself and compiled."""
    return [f, nnc.compile(f)]


def powers(x: Any, y: Any) -> Any:
    return nnc.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * y), (0, x))[1]


def test_five_rounds_of_a_product() -> None:
    for f in both(powers):
        np.testing.assert_allclose(f(0.34, 1.11), 0.57292, atol=1e-5)
    for f in both(nnc.grad(powers)):
        np.testing.assert_allclose(f(0.34, 1.11), 1.685058, atol=1e-6)


def test_logarithm_loop_and_its_gradient() -> None:
    def f(x: Any, y: Any, v: Any) -> Any:
        return v * nnc.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, nnp.log(c[1] * y)), (0, x))[1]

    for g in both(f):
        np.testing.assert_allclose(g(1.0, 3.2, 0.22), 0.348778, atol=1e-5)
    for g in both(nnc.grad(f, 1)):
        np.testing.assert_allclose(g(1.0, 3.2, 0.22), 0.189601, atol=1e-6)


def test_the_initial_carry_survives_the_loop() -> None:
    def f(z: Any, x: Any, y: Any) -> Any:
        return z * nnc.fori_loop(0, 5, lambda _, c: c * x, y) + z

    for g in both(f):
        np.testing.assert_allclose(g(1.2, 0.92, 3.2), 3.73087, atol=1e-5)


def piecewise(x: Any) -> Any:
    index = nnp.where(x < 0, 0, nnp.where(x < 1, -1, nnp.where(x < 2, 1, 2)))
    return nnc.case_of(index, [lambda x: x * 0, lambda x: 0.5 * x + 0.5, lambda x: x * 0 + 1.5], x)


POINTS = np.array([-1.0, 0.76, 1.226, 2.1])


def test_a_piecewise_function_with_a_bypass_and_its_gradient() -> None:
    for f in both(piecewise):
        np.testing.assert_allclose([f(x) for x in POINTS], [0, 0.76, 1.113, 1.5], atol=1e-12)
    for f in both(nnc.grad(piecewise)):
        assert [float(f(x)) for x in POINTS] == [0, 1, 0.5, 0]
    np.testing.assert_allclose(nnc.vmap(piecewise)(POINTS), [0, 0.76, 1.113, 1.5], atol=1e-12)
    np.testing.assert_array_equal(nnc.vmap(nnc.grad(piecewise))(POINTS), [0, 1, 0.5, 0])


def test_a_branch_within_a_loop() -> None:
    def f(x: Any) -> Any:
        return nnc.fori_loop(0, 4, lambda _, c: piecewise(c), x) * 0.3

    for g in both(f):
        np.testing.assert_allclose([g(F64(1.226)), g(F64(0.8))], [0.3042375, 0.24], atol=1e-12)
    np.testing.assert_allclose(nnc.grad(f)(F64(1.226)), 0.3 / 16, atol=1e-12)


def newton(a: Any) -> Any:
    return nnc.while_loop(lambda x: abs(x * x - a) > 1e-13, lambda x: (x + a / x) / 2, a)


@pytest.mark.parametrize("a", [2.0, 9.0, 100.0])
def test_newtons_square_root_to_the_third_derivative(a: float) -> None:
    first, second = nnc.grad(newton), nnc.grad(nnc.grad(newton))
    np.testing.assert_allclose(newton(F64(a)), np.sqrt(a), rtol=1e-12)
    for f in both(first):
        np.testing.assert_allclose(f(F64(a)), 0.5 * a**-0.5, rtol=1e-6)
    for f in both(second):
        np.testing.assert_allclose(f(F64(a)), -0.25 * a**-1.5, rtol=1e-6)
    np.testing.assert_allclose(nnc.grad(second)(F64(a)), 0.375 * a**-2.5, rtol=1e-4)
    np.testing.assert_allclose(nnc.jvp(first, (F64(a),), (F64(1),))[1], -0.25 * a**-1.5, rtol=1e-6)
    np.testing.assert_allclose(
        nnc.grad(lambda a: nnc.jvp(newton, (a,), (F64(1),))[1])(F64(a)), -0.25 * a**-1.5, rtol=1e-6
    )


def test_rows_of_a_loop_stop_each_in_its_own_iteration() -> None:
    a = np.array([2.0, 9.0, 100.0, 1e6])
    count = lambda a: nnc.while_loop(
        lambda c: abs(c[1] ** 2 - a) > 1e-9 * a, lambda c: (c[0] + 1, (c[1] + a / c[1]) / 2), (0, a)
    )
    iterations, roots = nnc.vmap(count)(a)
    assert [int(n) for n in iterations] == [int(count(x)[0]) for x in a]
    np.testing.assert_allclose(roots, np.sqrt(a))
    np.testing.assert_allclose(nnc.vmap(nnc.grad(newton))(a[:3]), 0.5 / np.sqrt(a[:3]), rtol=1e-6)
    h = nnc.hessian(lambda v: nnp.sum(nnc.vmap(newton)(v)))
    for f in both(h):
        np.testing.assert_allclose(f(a[:3]), np.diag(-0.25 * a[:3] ** -1.5), atol=1e-9)


def test_a_fixed_point_and_a_runge_kutta_solution_agree_with_finite_differences() -> None:
    def fixed_point(w: Any) -> Any:
        step = lambda x: nnp.tanh(w @ x + 1)
        start = nnp.zeros(3, dtype="float64")
        far = lambda c: nnp.max(abs(c[1] - c[0])) > 1e-14
        return nnp.sum(nnc.while_loop(far, lambda c: (c[1], step(c[1])), (start + 1, start))[1])

    def pendulum(y0: Any) -> Any:
        rate = lambda y: nnp.stack([y[1], -nnp.sin(y[0])])

        def step(_: Any, y: Any) -> Any:
            h = 0.05
            a = rate(y)
            b = rate(y + h / 2 * a)
            c = rate(y + h / 2 * b)
            return y + h / 6 * (a + 2 * b + 2 * c + rate(y + h * c))

        return nnp.sum(nnc.fori_loop(0, 40, step, y0) ** 2)

    rng = np.random.default_rng(0)
    nnc.testing.check_grads(fixed_point, (rng.normal(size=(3, 3)) / 4,), order=2, atol=1e-5, rtol=1e-5)
    nnc.testing.check_grads(pendulum, (np.array([0.5, 1.0]),), order=2, atol=1e-5, rtol=1e-5)


def test_an_lstm_by_scan_equals_its_unrolled_form() -> None:
    rng = np.random.default_rng(1)
    params = {"w": rng.normal(size=(5, 16)) / 3, "u": rng.normal(size=(4, 16)) / 3, "b": rng.normal(size=16)}
    xs = rng.normal(size=(6, 2, 5))

    def cell(p: Any, state: Any, x: Any) -> Any:
        h, c = state
        i, f, g, o = nnp.split(x @ p["w"] + h @ p["u"] + p["b"], 4, axis=-1)
        c = nnc.nn.sigmoid(f) * c + nnc.nn.sigmoid(i) * nnp.tanh(g)
        h = nnc.nn.sigmoid(o) * nnp.tanh(c)
        return (h, c), h

    start = (np.zeros((2, 4)), np.zeros((2, 4)))

    def scanned(p: Any, xs: Any) -> Any:
        (h, c), ys = nnc.scan(lambda s, x: cell(p, s, x), start, xs)
        return nnp.sum(ys**2) + nnp.sum(h * c)

    def unrolled(p: Any, xs: Any) -> Any:
        state, ys = start, []
        for k in range(6):
            state, y = cell(p, state, xs[k])
            ys.append(y)
        return nnp.sum(nnp.stack(ys) ** 2) + nnp.sum(state[0] * state[1])

    for f in both(nnc.value_and_grad(scanned, (0, 1))):
        found, wanted = f(params, xs), nnc.value_and_grad(unrolled, (0, 1))(params, xs)
        for a, b in zip(nnc.tree.leaves(found), nnc.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)


def test_carries_of_several_steps_and_carries_that_swap() -> None:
    def fibonacci(a: Any, b: Any, c: Any) -> Any:
        return nnc.fori_loop(0, 9, lambda _, t: (t[1], t[2], t[0] * 0.5 + t[1] - t[2] * 0.2), (a, b, c))

    def plain(a: Any, b: Any, c: Any) -> Any:
        for _ in range(9):
            a, b, c = b, c, a * 0.5 + b - c * 0.2
        return a, b, c

    x = (F64(1.0), F64(-2.0), F64(0.7))
    np.testing.assert_allclose(fibonacci(*x), plain(*x))
    np.testing.assert_allclose(
        nnc.jacrev(lambda v: nnp.stack(fibonacci(*v)))(np.array(x)),
        nnc.jacfwd(lambda v: nnp.stack(plain(*v)))(np.array(x)),
    )
    swap = lambda n: nnc.fori_loop(0, n, lambda _, t: (t[1], t[0]), (1.0, 2.0))
    assert [tuple(map(float, nnc.compile(swap, static_argnums=0)(n))) for n in (0, 1, 2, 3)] == [
        (1, 2),
        (2, 1),
        (1, 2),
        (2, 1),
    ]
    twice = lambda x: nnc.fori_loop(0, 3, lambda _, t: (t[0] * 2, t[1] + t[0]), (x, x))
    assert tuple(map(float, twice(1.0))) == (8, 8)


# -- graphs built by hand ----------------------------------------------------------------------------------------------


def hand_built(limit: int, *, test_last: bool) -> Graph:
    """z = log(x·y), x ← z; the test count < limit stands before or after the product. Yields the last z (exit) and iterations."""
    body = GraphBuilder("round")
    count, x, y = body.input((), "int64"), body.input((), "float32"), body.input((), "float32")
    go = lambda: body.add("less", count, body.constant(np.int64(limit)))
    if test_last:
        z = body.add("log", body.add("mul", x, y))
        graph = body.build(go(), z, z)
        before = 3
    else:
        condition = go()
        z = body.add("log", body.add("mul", x, y))
        graph = body.build(condition, z, x)
        before = 1
    parent = GraphBuilder("parent")
    a, b = parent.input((), "float32"), parent.input((), "float32")
    last, leaving, iterations = parent.add("while", a, b, graphs=(graph,), carries=1, before=before)
    return parent.build(last, leaving, iterations, a)


def test_the_condition_may_stand_anywhere_in_an_iteration() -> None:
    """Tested last with count < 4, the product runs five times; nodes behind a false test do not run in that iteration."""
    graph = verify(hand_built(4, test_last=True))
    carried, leaving, iterations, start = graph(1.0, 3.2)
    np.testing.assert_allclose(0.22 * leaving, 0.348778, atol=1e-5)
    assert int(iterations) == 4 and float(start) == 1.0
    first = hand_built(5, test_last=False)(1.0, 3.2)
    np.testing.assert_allclose(first[0], leaving)
    assert int(first[2]) == 5
    assert float(carried) != float(leaving)


def test_a_hand_built_loop_differentiates_batches_and_is_stored() -> None:
    graph = hand_built(4, test_last=True)
    exit_of = lambda g: lambda x, y: 0.22 * g(x, y)[1]
    for f in (nnc.grad(exit_of(graph), 1), nnc.compile(nnc.grad(exit_of(graph), 1))):
        np.testing.assert_allclose(f(1.0, 3.2), 0.189601, atol=1e-6)
    np.testing.assert_allclose(nnc.jvp(exit_of(graph), (1.0, 3.2), (0.0, 1.0))[1], 0.189601, atol=1e-6)
    ys = np.array([3.2, 4.0], np.float32)
    np.testing.assert_allclose(
        nnc.vmap(exit_of(graph), (None, 0))(1.0, ys), [exit_of(graph)(1.0, y) for y in ys], rtol=1e-6
    )
    again = from_json(to_json(graph))
    assert structural_hash(again) == structural_hash(graph)
    np.testing.assert_array_equal(again(1.0, 3.2)[1], graph(1.0, 3.2)[1])


def test_an_inner_loop_reads_the_outer_loops_counter() -> None:
    def f(x: Any) -> Any:
        inner = lambda i, c: nnc.fori_loop(0, 3, lambda j, d: d + i * 10 + j, c)
        return nnc.fori_loop(0, 2, inner, x)

    for g in both(f):
        assert int(g(0)) == sum(i * 10 + j for i in range(2) for j in range(3))


def test_a_loop_that_nobody_reads_is_dropped() -> None:
    def f(x: Any) -> Any:
        nnc.while_loop(lambda c: c < 10, lambda c: c + 1, x)
        return x * 2

    text = nnc.compile(f).lower(1.0).compile().as_text()
    assert "while" not in text and "fused" in text


def test_reaching_max_steps_with_the_condition_still_true_is_an_error() -> None:
    f = lambda x: nnc.while_loop(lambda c: c < 10, lambda c: c + 1, x, max_steps=3)
    for g in both(f):
        with pytest.raises(nnc.errors.ArgumentError, match="max_steps=3"):
            g(0)
        assert int(g(8)) == 10


def test_an_index_out_of_range_raises_unless_it_is_clipped() -> None:
    branches = [lambda x: x, lambda x: -x]
    for f in both(lambda i: nnc.switch(i, branches, 2.0)):
        with pytest.raises(IndexError, match="index 2 is out of range for 2 branches"):
            f(2)
    with pytest.raises(IndexError):
        nnc.vmap(lambda i: nnc.switch(i, branches, 2.0))(np.array([0, 5]))
    assert [float(nnc.switch(i, branches, 2.0, mode="clip")) for i in (-3, 0, 1, 9)] == [2, 2, -2, -2]


def test_only_the_branch_that_is_chosen_runs() -> None:
    boom = lambda x: nnp.asarray([1.0])[nnc.stop_gradient(x).astype(int)] + x  # out of range where x >= 1
    f = lambda p, x: nnc.cond(p, boom, lambda x: x * 3, x)
    for g in both(f):
        assert float(g(False, 5.0)) == 15
        with pytest.raises(IndexError):
            g(True, 5.0)


def test_an_untaken_branch_does_not_poison_gradients_of_rows() -> None:
    f = lambda x: nnc.cond(x > 0, nnp.sqrt, lambda x: x * 2, x)
    np.testing.assert_allclose(nnc.vmap(nnc.grad(f))(np.array([-1.0, 0.0, 4.0])), [2, 2, 0.25])


def test_captured_values_get_the_sum_of_their_gradients_over_rounds() -> None:
    def f(w: Any, n: Any) -> Any:
        return nnc.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + w * w), (0, 0.0))[1]

    for g in both(nnc.grad(f)):
        assert float(g(3.0, 7)) == 42


@pytest.mark.parametrize("transform", [lambda f: f, nnc.grad, nnc.compile])
def test_a_loop_of_no_iterations_returns_its_initial_carry(transform: Callable[..., Any]) -> None:
    f = transform(lambda x: nnc.while_loop(lambda c: c > 100, lambda c: c * 2, x))
    assert float(f(3.0)) == (1 if transform is nnc.grad else 3)
    assert nnc.fori_loop(5, 2, lambda i, c: c + 1, 1.0) == 1
    carry, ys = nnc.scan(lambda c, x: (c + x, c), 1.0, nnp.zeros(0))
    assert float(carry) == 1 and ys.shape == (0,)


def test_mismatching_carries_and_branches_list_every_path_and_both_sides() -> None:
    with pytest.raises(nnc.errors.ShapeError) as caught:
        nnc.while_loop(
            lambda c: True,
            lambda c: {"a": nnp.ones(3), "b": c["b"].astype("float64")},
            {"a": nnp.ones(2), "b": nnp.ones(2)},
        )
    text = str(caught.value)
    assert 'carry["a"]: float32[2] at first, float32[3] after an iteration' in text
    assert 'carry["b"]: float32[2] at first, float64[2] after an iteration' in text
    assert "test_control_flow_numbers.py" in text and "Fix:" in text
    with pytest.raises(nnc.errors.TreeError, match="differ in structure"):
        nnc.cond(True, lambda x: (x, x), lambda x: [x, x], 1.0)
    with pytest.raises(nnc.errors.ShapeError, match=r"float32\[2\] from two, float32\[\] from one"):
        nnc.cond(True, named("one", lambda x: x), named("two", lambda x: nnp.ones(2)), 1.0)


def named(name: str, f: Callable[..., Any]) -> Callable[..., Any]:
    f.__name__ = name
    return f


def test_a_mismatch_names_the_lines_where_both_sides_were_written() -> None:
    first = named("first", lambda x: (x, x))
    second = named("second", lambda x: x)
    with pytest.raises(nnc.errors.TreeError) as caught:
        nnc.cond(True, first, second, 1.0)
    for fun in (first, second):
        assert f"test_control_flow_numbers.py:{fun.__code__.co_firstlineno}" in str(caught.value)
    with pytest.raises(nnc.errors.TreeError) as caught:
        nnc.while_loop(lambda c: c < 3, first, 1.0)
    assert f"first at tests/contract/programs/test_control_flow_numbers.py:{first.__code__.co_firstlineno}" in str(
        caught.value
    )
