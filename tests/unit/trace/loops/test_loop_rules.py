"""Derivatives and batches of loops: nested, of every order, with rows that stop at different times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import UnsupportedError
from nnc.graph import Graph, from_json, structural_hash, structurally_equal, to_json, verify

RUN = pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
X = np.array([0.3, 0.8, -0.4])
ROWS = np.stack([X, X * 0.5, X + 1, X - 2])


def near(a: Any, b: Any, tolerance: float = 1e-9) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.allclose(a, b, rtol=tolerance, atol=tolerance)


def slopes(f: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    """Finite differences along each entry of `x`, last axis."""
    ends = [
        (np.asarray(f(x + step * e.reshape(x.shape))) - np.asarray(f(x - step * e.reshape(x.shape)))) / (2 * step)
        for e in np.eye(x.size)
    ]
    return np.stack(ends, -1).reshape(*ends[0].shape, *x.shape)


def nested(x: Any) -> Any:
    """A while around a branch and a scan, which capture values of several levels."""

    def body(c: Any) -> Any:
        i, v, s = c
        v = nnc.cond(nnp.sum(v) > 1.0, lambda v: nnp.sin(v) * s, lambda v: v * v + x, v)
        s, rows = nnc.scan(lambda s, r: (s * 0.9 + r * x[0] + 0.1 * i, s * r), s, v)
        return i + 1, rows, s

    _, v, s = nnc.while_loop(lambda c: c[0] < 4, body, (0, x, x[1] * 2))
    return nnp.sum(v) * s


def growing(x: Any) -> Any:
    """A loop whose number of iterations depends on `x`."""
    return nnc.while_loop(lambda c: nnp.sum(c[1]) < 10, lambda c: (c[0] + 1, c[1] * 1.3 + x**2), (0, x))


def power(x: Any) -> Any:
    return nnp.sum(nnp.sin(growing(x)[1]))


MODES = [nnc.jacfwd, nnc.jacrev]


@RUN
@pytest.mark.parametrize("f", [nested, power])
@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", MODES)
def test_hessians_agree_with_finite_differences_in_all_four_orders_of_modes(
    run: Callable[..., Any], f: Any, outer: Any, inner: Any
) -> None:
    assert near(run(inner(f))(X), slopes(f, X), 1e-6)
    assert near(run(outer(inner(f)))(X), slopes(nnc.grad(f), X), 1e-6)


def test_third_derivatives_agree_in_mixed_modes() -> None:
    f = lambda t: nested(X * t)
    t = np.float64(1.0)
    wanted = (float(nnc.grad(nnc.grad(f))(t + 1e-5)) - float(nnc.grad(nnc.grad(f))(t - 1e-5))) / 2e-5
    for modes in ((0, 0, 0), (1, 1, 1), (0, 1, 0), (1, 0, 1)):
        g: Any = f
        for mode in modes:
            g = MODES[mode](g)
        assert near(g(t), wanted, 1e-6)


@pytest.mark.parametrize("f", [nested, power])
def test_the_jvp_of_a_gradient_is_the_gradient_of_the_jvp(f: Any) -> None:
    v = np.array([0.3, -0.2, 1.0])
    wanted = nnc.hessian(f)(X) @ v
    assert near(nnc.jvp(nnc.grad(f), (X,), (v,))[1], wanted)
    assert near(nnc.grad(lambda x: nnc.jvp(f, (x,), (v,))[1])(X), wanted)
    assert near(nnc.grad(lambda x: nnp.sum(nnc.grad(f)(x) * v))(X), wanted)
    assert near(nnc.hvp(f, (X,), (v,)), wanted)


@RUN
@pytest.mark.parametrize("f", [nested, power])
@pytest.mark.parametrize(
    "transform", [lambda f: f, nnc.grad, nnc.jacfwd, nnc.hessian], ids=["value", "grad", "fwd", "hess"]
)
def test_rows_equal_runs_by_themselves(run: Callable[..., Any], f: Any, transform: Any) -> None:
    wanted = np.stack([np.asarray(transform(f)(x)) for x in ROWS])
    assert near(run(nnc.vmap(transform(f)))(ROWS), wanted)


@RUN
def test_gradients_of_rows_together_and_cotangents_in_rows(run: Callable[..., Any]) -> None:
    g = run(nnc.grad(lambda rows: nnp.sum(nnc.vmap(power)(rows))))
    assert near(g(ROWS), np.stack([np.asarray(nnc.grad(power)(x)) for x in ROWS]))
    last = lambda x: growing(x)[1]
    assert near(run(nnc.jacrev(last))(X), nnc.jacfwd(last)(X))
    whole = np.asarray(run(nnc.jacrev(nnc.vmap(nnc.grad(power))))(ROWS))
    for i, x in enumerate(ROWS):
        assert near(whole[i, :, i], nnc.hessian(power)(x))
        assert not whole[i, :, [k for k in range(len(ROWS)) if k != i]].any()


def test_a_loop_over_a_map_over_a_gradient_over_a_loop() -> None:
    def step(i: Any, rows: Any) -> Any:
        return rows - 0.01 * nnc.vmap(nnc.grad(power))(rows) * (i + 1)

    rows = ROWS
    for i in range(3):
        rows = rows - 0.01 * np.stack([np.asarray(nnc.grad(power)(x)) for x in rows]) * (i + 1)
    assert near(nnc.compile(lambda r: nnc.fori_loop(0, 3, step, r))(ROWS), rows)


@RUN
def test_each_row_counts_its_own_rounds_and_then_stands_still(run: Callable[..., Any]) -> None:
    limits = np.array([0, 3, 1, 5])

    def f(n: Any, x: Any) -> Any:
        return nnc.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, nnp.log(np.float64(2.5) - c[0]) * c[1]), (0, x))

    counts, values = run(nnc.vmap(f))(limits[:3], np.ones(3))
    assert list(np.asarray(counts)) == [0, 3, 1]
    assert near(values, [1, np.log(2.5) * np.log(1.5) * np.log(0.5), np.log(2.5)])
    # the fourth row runs into nan; rows that are done before see nothing of it, nor do their gradients
    with np.errstate(invalid="ignore"):
        slope = run(nnc.vmap(nnc.grad(lambda n, x: f(n, x)[1], 1)))(limits, np.ones(4))
    assert near(np.asarray(slope)[:3], values) and np.isnan(np.asarray(slope)[3])


def test_singular_rounds_after_a_row_is_done_do_not_poison_its_gradient() -> None:
    def f(x: Any, n: Any) -> Any:
        step = lambda c: (c[0] + 1.0, nnp.sqrt(2.0 - c[0]) * c[1] + 1.0 / (c[0] - 2.0))
        return nnc.while_loop(lambda c: c[0] < n, step, (0.0 * x, x))[1]

    limits = np.array([1.0, 2.0, 2.0])
    wanted = [float(nnc.grad(f)(np.float64(0.7), n)) for n in limits]
    with np.errstate(all="ignore"):
        found = nnc.vmap(nnc.grad(f))(np.full(4, 0.7), np.array([*limits, 3.0]))
        together = nnc.grad(lambda x: nnp.sum(nnc.vmap(f)(x, np.array([*limits, 3.0]))[:3]))(np.full(4, 0.7))
    assert near(np.asarray(found)[:3], wanted) and near(np.asarray(together)[:3], wanted)


@RUN
def test_captured_values_get_gradients_summed_over_rounds_of_all_loops(run: Callable[..., Any]) -> None:
    def f(p: Any) -> Any:
        def outer(i: Any, c: Any) -> Any:
            return nnc.fori_loop(0, nnp.asarray(2) + i, lambda j, d: d * p[0] + nnp.sin(p[1]) * j + i * p[2], c) * p[1]

        return nnc.fori_loop(0, 3, outer, p[0] * p[1])

    assert near(run(nnc.grad(f))(X), slopes(f, X), 1e-7)
    assert near(run(nnc.hessian(f))(X), slopes(nnc.grad(f), X), 1e-6)


@RUN
@pytest.mark.parametrize("loop", ["while", "scan"])
def test_a_rule_in_a_loop_may_capture_more_arrays_than_the_iteration_reads(run: Callable[..., Any], loop: str) -> None:
    factors = [nnp.asarray(X + k) for k in range(4)]

    @nnc.custom_jvp
    def grown(x: Any) -> Any:
        return x * 1.5

    @grown.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return grown(x), sum((a * x * t for a in factors), 0 * t)

    def f(x: Any) -> Any:
        if loop == "while":
            return nnp.sum(nnc.while_loop(lambda x: nnp.sum(x) < 10, grown, x))  # three iterations
        return nnp.sum(nnc.scan(lambda x, _: (grown(x), None), x, None, length=3)[0])

    x, wanted = ROWS[2], np.ones(3)
    for _ in range(3):
        wanted, x = wanted * sum(X + k for k in range(4)) * x, x * 1.5
    assert near(run(nnc.grad(f))(ROWS[2]), wanted)


@RUN
def test_complex_and_16_bit_carries_have_derivatives(run: Callable[..., Any]) -> None:
    z = np.complex128(0.2 + 0.3j)
    f = lambda z: nnc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * c[1] + z), (0, z))[1]
    exact, c = 1 + 0j, z
    for _ in range(3):
        exact, c = 2 * c * exact + 1, c * c + z
    assert near(run(nnc.grad(f, holomorphic=True))(z), exact)
    assert near(nnc.jvp(f, (z,), (1 + 0j,))[1], exact)
    x = np.asarray(1.5, ml_dtypes.bfloat16)
    slope = run(nnc.grad(lambda a: nnc.fori_loop(0, nnp.asarray(3), lambda i, c: c * a, a)))(x)
    assert slope.dtype == ml_dtypes.bfloat16 and abs(float(slope) - 4 * 1.5**3) < 0.1


def test_integers_in_carries_pass_gradients_by() -> None:
    def f(x: Any) -> Any:
        def step(c: Any) -> Any:
            n, flag, v = c
            return n * 2, ~flag, nnp.where(flag, v * n.astype("float64"), v + x)

        return nnc.while_loop(lambda c: c[0] < 20, step, (nnp.asarray(1), True, x))[2]

    n, flag, v, t = 1, True, 0.7, 1.0
    while n < 20:
        v, t = (v * n, t * n) if flag else (v + 0.7, t + 1)
        n, flag = n * 2, not flag
    assert np.isclose(float(f(np.float64(0.7))), v) and np.isclose(float(nnc.grad(f)(np.float64(0.7))), t)


@RUN
@pytest.mark.parametrize("iterations", [0, 1, 4])
def test_zero_iterations_have_derivatives_of_every_order(run: Callable[..., Any], iterations: int) -> None:
    f = lambda x, n: nnc.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, x * x))[1]
    k, x = iterations + 2, 1.3
    args = np.float64(x), np.int64(iterations)
    assert near(run(nnc.grad(f))(*args), k * x ** (k - 1))
    assert near(run(nnc.grad(nnc.grad(f)))(*args), k * (k - 1) * x ** (k - 2))
    assert near(run(nnc.jacfwd(nnc.grad(f)))(*args), k * (k - 1) * x ** (k - 2))


def test_an_implicit_fixed_point_agrees_with_the_implicit_function_theorem() -> None:
    solve = lambda a: nnc.while_loop(
        lambda x: nnp.abs(nnp.cos(a * x) - x) > 1e-13, lambda x: nnp.cos(a * x), 0.5 + 0 * a
    )
    a = np.float64(0.8)
    x = float(solve(a))
    s = np.sin(a * x)
    assert near(nnc.grad(solve)(a), -s * x / (1 + a * s), 1e-8)
    assert near(nnc.jacfwd(solve)(a), -s * x / (1 + a * s), 1e-8)


# -- linear loops ------------------------------------------------------------------------------------------------------


def dot(a: Any, b: Any) -> float:
    return sum(
        float(np.sum(np.asarray(x) * np.asarray(y)))
        for x, y in zip(nnc.tree.leaves(a), nnc.tree.leaves(b), strict=True)
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("what", ["sequence", "start", "captured", "mixed"])
def test_linear_scans_run_backwards(what: str, reverse: bool) -> None:
    a = np.arange(9.0).reshape(3, 3) / 10
    rows = np.cos(np.arange(12.0)).reshape(4, 3)

    def f(x: Any) -> Any:
        if what == "sequence":
            return nnc.scan(lambda c, r: (a @ c + r, nnp.sum(c)), np.zeros(3), x, reverse=reverse)
        if what == "start":
            return nnc.scan(lambda c, r: (a @ c * r, c + c), x[0], rows, reverse=reverse)
        if what == "captured":
            return nnc.scan(lambda c, r: (c * 0.5 + x[1] * r, x[2] - c), np.zeros(3), rows, reverse=reverse)

        def step(c: Any, r: Any) -> Any:  # c[0] and c[3] depend on nothing linear, c[2] only after a round
            fixed, v, late, n = c
            return (fixed * 1.5 + fixed**2, v * fixed + r[0] * nnp.sum(r[1]), v, n + 1), v * n.astype("float64") - late

        start = (np.float64(0.3), nnp.sum(x), np.float64(0), 0)
        (_, v, late, _), ys = nnc.scan(step, start, (x[:, 1], rows), reverse=reverse)
        return (v, late), ys

    x = np.sin(np.arange(12.0)).reshape(4, 3)
    y = f(x)
    ct = nnc.tree.map(lambda v: np.cos(np.arange(np.size(v)) + 1.0).reshape(np.shape(v)), y)
    assert np.isclose(dot(nnc.linear_transpose(f, x)(ct)[0], x), dot(ct, y))


def test_a_scan_that_is_not_linear_is_not_run_backwards() -> None:
    with pytest.raises(UnsupportedError, match="not linear"):
        nnc.linear_transpose(lambda x: nnc.scan(lambda c, _: (c * c, None), x, length=3)[0], 1.0)(1.0)


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [nested, power])
@pytest.mark.parametrize(
    ("transform", "x"),
    [
        (nnc.grad, X),
        (nnc.jacfwd, X),
        (nnc.hessian, X),
        (nnc.vmap, ROWS),
        (lambda f: nnc.vmap(nnc.grad(f)), ROWS),
        (lambda f: nnc.jacrev(nnc.vmap(f)), ROWS),
    ],
    ids=["grad", "fwd", "hessian", "vmap", "vmap-grad", "rev-vmap"],
)
def test_graphs_of_derivatives_verify_and_are_stored_with_their_loops(f: Any, transform: Any, x: Any) -> None:
    graph: Graph = verify(nnc.make_graph(transform(f))(x))
    again = from_json(to_json(graph))
    assert structurally_equal(graph, again) and structural_hash(graph) == structural_hash(again)
    assert near(again(x), graph(x))
    assert "while" in str(graph) and str(again) == str(graph)


# -- rows that are done --------------------------------------------------------------------------------------------------


@RUN
@pytest.mark.parametrize("checkpoint", [None, "binomial"])
def test_rounds_raise_for_rows_that_still_run_alone(run: Callable[..., Any], checkpoint: Any) -> None:
    table = nnp.asarray(np.arange(1.0, 5.0))

    def f(x: Any, count: Any) -> Any:
        def round(c: Any) -> Any:  # a row that is done would read behind the table, and solve with a singular matrix
            i, v = c
            matrix = nnp.stack([nnp.stack([3.5 - i, 0 * i]), nnp.stack([v[0], 3.5 - i])]) * nnp.where(
                i < count, 1.0, 0.0
            )
            return i + 1, nnp.linalg.solve(matrix, v) * table[i + 4 - count]

        return nnp.sum(nnc.while_loop(lambda c: c[0] < count, round, (0, x), checkpoint=checkpoint)[1])

    rows, counts = np.array([[0.3, 0.8], [0.5, -1.0], [1.5, 0.2]]), np.array([3, 0, 2])
    for g in (f, nnc.grad(f), nnc.grad(lambda x, n: nnp.sum(nnc.grad(f)(x, n) ** 2))):
        wanted = np.stack([np.asarray(g(x, n)) for x, n in zip(rows, counts, strict=True)])
        assert near(run(nnc.vmap(g))(rows, counts), wanted)
    together = run(nnc.grad(lambda rows: nnp.sum(nnc.vmap(f)(rows, counts))))(rows)
    assert near(together, np.stack([np.asarray(nnc.grad(f)(x, n)) for x, n in zip(rows, counts, strict=True)]))


# -- tapes that a scan stacks --------------------------------------------------------------------------------------------


def stacking(x: Any) -> Any:
    """A scan, each iteration of which runs a `while` of its own length, so that the tapes of the iterations differ."""

    def round(c: Any, k: Any) -> Any:
        y = nnc.while_loop(lambda s: s[0] < k, lambda s: (s[0] + 1, nnp.sin(s[1]) * s[1] + c * 0.3), (0, c))[1]
        return y, y

    c, ys = nnc.scan(round, x, np.array([1, 3, 2]))
    return c + nnp.sum(ys * ys)


@RUN
def test_derivatives_of_every_order_of_a_scan_around_a_while_agree_with_finite_differences(
    run: Callable[..., Any],
) -> None:
    x, h = np.float64(0.4), 1e-5
    f: Any = stacking
    for _ in range(4):
        slope = (float(f(x + h)) - float(f(x - h))) / (2 * h)
        f = nnc.grad(f)
        assert near(run(f)(x), slope, 1e-6)


def choosing(x: Any, k: Any) -> Any:
    """A scan that chooses between loops of unknown length by row."""

    def grow(c: Any, n: Any) -> Any:
        return nnc.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, nnp.sin(s[1]) * s[1] + x * 0.3), (0, c))[1]

    def turn(c: Any, n: Any) -> Any:
        return nnc.fori_loop(0, n, lambda i, c: nnp.sin(c) * x + c * 0.1, c)

    def round(c: Any, j: Any) -> Any:
        y = nnc.switch((j + k) % 3, [lambda c: grow(c, k + 1), lambda c: turn(c, j + k), lambda c: c * c], c)
        return y, y * x

    c, ys = nnc.scan(round, x, np.arange(4))
    return c + nnp.sum(ys)


@RUN
def test_second_derivatives_of_rows_that_choose_loops_of_unknown_length_within_a_scan(run: Callable[..., Any]) -> None:
    xs, ks, h = np.array([0.33, 0.51, 0.73]), np.array([0, 1, 2]), 1e-5
    gradient: Any = nnc.grad(choosing)
    wanted = [(float(gradient(x + h, k)) - float(gradient(x - h, k))) / (2 * h) for x, k in zip(xs, ks, strict=True)]
    pushed = lambda f: lambda x, k: nnc.jvp(lambda x: f(x, k), (x,), (np.float64(1),))[1]
    for f in (
        lambda xs: nnc.vmap(nnc.grad(gradient))(xs, ks),
        lambda xs: nnc.vmap(pushed(gradient))(xs, ks),
        nnc.grad(lambda xs: nnp.sum(nnc.vmap(gradient)(xs, ks))),
        nnc.grad(lambda xs: nnp.sum(nnc.vmap(pushed(choosing))(xs, ks))),
        nnc.grad(lambda xs: nnp.sum(nnc.grad(lambda xs: nnp.sum(nnc.vmap(choosing)(xs, ks)))(xs))),
    ):
        assert near(run(f)(xs), wanted, 1e-6)
