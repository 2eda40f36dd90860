"""Minima, roots and fixed points are SciPy's; their derivatives are those of the equation that they solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import nnc
import nnc.numpy as nnp
import nnc.scipy.optimize as opt
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TreeError

START = np.array([-1.2, 1, 1.3, 0.7])


def rosenbrock(x: Any, a: Any = 1.0) -> Any:
    return 100 * ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((a - x[:-1]) ** 2).sum()


def beale(x: Any) -> Any:
    return sum((c - x[0] + x[0] * x[1] ** k) ** 2 for k, c in ((1, 1.5), (2, 2.25), (3, 2.625)))


def bowl(x: Any, a: Any) -> Any:
    """A function whose minimum moves with `a`."""
    return ((x - a) ** 2).sum() + 0.1 * a[0] * nnp.exp(x).sum()


PROBLEMS: dict[str, tuple[Any, np.ndarray]] = {
    "rosenbrock": (rosenbrock, START),
    "beale": (beale, np.array([1.0, 1])),
    "quadratic": (lambda x: ((x - np.arange(3)) ** 2 * np.array([1, 10, 100])).sum(), np.ones(3)),
    "one number": (lambda x: (x[0] - 3) ** 4 + x[0], np.array([0.0])),
}
methods = pytest.mark.parametrize("method", ["BFGS", "L-BFGS"])


@methods
@pytest.mark.parametrize("name", PROBLEMS)
def test_minima_are_those_of_scipy(name: str, method: str) -> None:
    fun, start = PROBLEMS[name]
    got = opt.minimize(fun, start, method=method, tol=1e-9)
    want = scipy.optimize.minimize(
        lambda x: float(fun(x)), start, method="BFGS", jac=lambda x: np.asarray(nnc.grad(fun)(x)), tol=1e-9
    )
    np.testing.assert_allclose(np.asarray(got.x), want.x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(got.fun), want.fun, rtol=1e-8, atol=1e-12)
    assert bool(got.success) and int(got.status) == 0
    assert int(got.nfev) <= 3 * want.nfev and int(got.nit) <= int(got.nfev) == int(got.njev)
    np.testing.assert_array_equal(np.asarray(got.jac), np.asarray(nnc.grad(fun)(got.x)))


@methods
def test_compiled_and_mapped_minima_are_those_at_once(method: str) -> None:
    options = {"maxcor": 4} if method == "L-BFGS" else None
    alone = opt.minimize(rosenbrock, START, method=method, options=options)
    compiled = nnc.compile(lambda x: opt.minimize(rosenbrock, x, method=method, options=options))(START)
    rows = nnc.vmap(lambda x: opt.minimize(rosenbrock, x, method=method, options=options))(np.stack([START * 0, START]))
    for x in (compiled, nnc.tree.map(lambda x: x[1], rows)):
        np.testing.assert_allclose(np.asarray(x.x), np.asarray(alone.x), rtol=1e-6)
        assert int(x.nit) == int(alone.nit)
    np.testing.assert_allclose(np.asarray(rows.x[0]), np.ones(4), rtol=1e-4)


@methods
def test_minima_have_derivatives_of_the_equation_that_the_gradient_is_0(method: str) -> None:
    a = np.array([1.0, 2, 3])
    options = {"maxcor": 3} if method == "L-BFGS" else None

    def found(a: Any) -> Any:
        return opt.minimize(bowl, np.zeros(3), (a,), method=method, tol=1e-12, options=options)

    x = np.asarray(found(a).x)
    hessian = np.diag(2 + 0.1 * a[0] * np.exp(x))
    mixed = -2 * np.eye(3)
    mixed[:, 0] += 0.1 * np.exp(x)
    want = -np.linalg.solve(hessian, mixed)
    for jacobian in (nnc.jacfwd, nnc.jacrev):
        np.testing.assert_allclose(np.asarray(jacobian(lambda a: found(a).x)(a)), want, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(np.asarray(nnc.compile(nnc.jacrev(lambda a: found(a).x))(a)), want, rtol=1e-6, atol=1e-8)
    slope = -2 * (x - a) + np.array([0.1 * np.exp(x).sum(), 0, 0])  # the envelope theorem
    np.testing.assert_allclose(np.asarray(nnc.grad(lambda a: found(a).fun)(a)), slope, rtol=1e-6)
    second = np.asarray(nnc.hessian(lambda a: found(a).fun)(a))
    direct = 2 * np.eye(3) + mixed.T @ want
    np.testing.assert_allclose(second, direct, rtol=1e-5, atol=1e-7)
    guess = nnc.grad(lambda x: opt.minimize(bowl, x, (a,), method=method).x.sum())(np.zeros(3))
    np.testing.assert_array_equal(np.asarray(guess), np.zeros(3))


def test_hess_inv_approximates_the_inverse_hessian() -> None:
    scale = np.array([1.0, 10, 100])
    got = opt.minimize(lambda x: (x * x * scale).sum() / 2 + x[0] * x[1], np.ones(3), tol=1e-10)
    hessian = np.diag(scale) + np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(np.asarray(got.hess_inv), np.linalg.inv(hessian), rtol=1e-2, atol=1e-3)


@methods
def test_trees_and_float32(method: str) -> None:
    start = {"u": np.zeros((2, 2), np.float32), "w": np.float32(1)}
    got = opt.minimize(lambda x: ((x["u"] - 2) ** 2).sum() + (x["w"] * 3 + 1) ** 2, start, method=method)
    assert got.x["u"].dtype == got.fun.dtype == np.float32 and bool(got.success)
    np.testing.assert_allclose(np.asarray(got.x["u"]), np.full((2, 2), 2), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(got.x["w"]), -1 / 3, rtol=1e-4)
    assert got.jac["u"].shape == (2, 2)
    assert opt.minimize(lambda x: (x * x).sum() * np.ones(())[()], np.ones(2, np.float32)).x.dtype == np.float32
    assert opt.minimize(lambda x: (x * np.ones(2)).sum() ** 2, np.ones(2, np.float32)).x.dtype == np.float64


def test_status_says_how_a_search_ended() -> None:
    def ended(fun: Any, x: Any, **options: Any) -> int:
        result = opt.minimize(fun, x, options=options)
        assert bool(result.success) == (int(result.status) == 0)
        return int(result.status)

    assert ended(rosenbrock, START, maxiter=3) == 1
    assert ended(rosenbrock, START, maxiter=0) == 1
    assert ended(lambda x: x[0] * np.nan, np.ones(1)) == 3
    assert ended(lambda x: nnp.abs(x).sum() + nnp.abs(x[0] * 3 - x[1]), np.array([1.0, 0.3])) == 2  # a kink
    assert ended(lambda x: (x * x).sum(), np.zeros(2)) == 0
    exact = opt.minimize(lambda x: (x * x).sum(), np.ones(2), tol=0.0)
    assert int(exact.nit) < 50


def coupled(x: Any) -> Any:
    return nnp.stack([x[0] + 0.5 * (x[0] - x[1]) ** 3 - 1, 0.5 * (x[1] - x[0]) ** 3 + x[1]])


def broyden(x: Any) -> Any:
    """Broyden's tridiagonal function of Moré, Garbow and Hillstrom."""
    before, behind = nnp.concatenate([x[:1] * 0, x[:-1]]), nnp.concatenate([x[1:], x[:1] * 0])
    return (3 - 2 * x) * x - before - 2 * behind + 1


ROOTS: dict[str, tuple[Any, np.ndarray]] = {
    "coupled": (coupled, np.zeros(2)),
    "broyden": (broyden, -np.ones(9)),
    "rosenbrock": (lambda x: nnp.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]]), np.array([-1.2, 1])),
    "far": (lambda x: nnp.arctan(x - 20) + (x - 20) * 1e-3, np.array([0.0])),
    "singular at first": (lambda x: nnp.stack([x[0] ** 2 - x[1], x[1] - 1]), np.array([0.0, 2])),
}


@pytest.mark.parametrize("name", ROOTS)
def test_roots_are_those_of_scipy(name: str) -> None:
    fun, start = ROOTS[name]
    want = scipy.optimize.root(lambda x: np.asarray(fun(x)), start, tol=1e-12)
    for run in (opt.root, nnc.compile(lambda f, x: opt.root(f, x, tol=1e-12), static_argnums=0)):
        got = run(fun, start)
        assert bool(got.success) and int(got.status) == 1
        if want.success:  # it finds none where the first Jacobian is singular
            np.testing.assert_allclose(np.asarray(got.x), want.x, rtol=1e-7)
        np.testing.assert_allclose(np.asarray(got.fun), np.zeros(start.shape), atol=1e-9)
        np.testing.assert_allclose(np.asarray(got.jac), np.asarray(nnc.jacfwd(fun)(got.x)), rtol=1e-3, atol=1e-3)


def test_failures_of_a_search_for_a_root_are_told() -> None:
    assert int(opt.root(lambda x: x * x + 1, np.array([3.0])).status) == 5
    assert int(opt.root(broyden, -np.ones(9), options={"maxfev": 3}).status) == 2
    assert int(opt.root(lambda x: x / 0.0, np.ones(1)).status) == 6
    assert int(opt.root(lambda x: x - 1, np.ones(2)).nfev) == 1


def test_roots_have_derivatives_in_both_modes_and_rows() -> None:
    def found(a: Any) -> Any:
        return opt.root(lambda x: {"y": x["y"] ** 2 - a}, {"y": np.ones(2)}, tol=1e-14).x["y"]

    a = np.array([4.0, 9])
    for jacobian in (nnc.jacfwd, nnc.jacrev, lambda f: nnc.compile(nnc.jacrev(f))):
        np.testing.assert_allclose(np.asarray(jacobian(found)(a)), np.diag([1 / 4, 1 / 6]), rtol=1e-12)
    second = np.asarray(nnc.hessian(lambda a: found(a).sum())(a))
    np.testing.assert_allclose(second, np.diag([-1 / 32, -1 / 108]), rtol=1e-10)
    rows = np.asarray(nnc.vmap(nnc.grad(lambda a: found(a).sum()))(np.stack([a, a * 4])))
    np.testing.assert_allclose(rows, [[1 / 4, 1 / 6], [1 / 8, 1 / 12]], rtol=1e-12)


@pytest.mark.parametrize("method", ["del2", "iteration"])
def test_fixed_points_are_those_of_scipy_and_have_derivatives(method: str) -> None:
    start, c = np.array([1.2, 1.3]), np.array([10.0, 12])

    def step(x: Any, c: Any, d: Any) -> Any:
        return (c / (x + d)) ** 0.5

    want = scipy.optimize.fixed_point(step, start, args=(c, 3.0), method=method)
    got = opt.fixed_point(step, start, args=(c, 3.0), method=method)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-8)
    # x² (x + d) = c, so (3 x² + 2 d x) dx = dc
    grads = nnc.compile(nnc.grad(lambda c: opt.fixed_point(step, start, (c, 3.0), xtol=1e-13, method=method).sum()))(c)
    np.testing.assert_allclose(np.asarray(grads), 1 / (3 * want**2 + 6 * want), rtol=1e-8)


def test_large_systems_of_derivatives_are_solved_without_a_matrix() -> None:
    c = np.linspace(1, 2, 600)
    got = nnc.grad(
        lambda c: opt.fixed_point(lambda x: (x + c / x) / 2 + 0.1 * (x.mean() - x), np.ones(600), xtol=1e-13).sum()
    )(c)

    def sums(c: Any) -> float:
        return float(opt.fixed_point(lambda x: (x + c / x) / 2 + 0.1 * (x.mean() - x), np.ones(600), xtol=1e-13).sum())

    move = np.random.default_rng(0).normal(size=600)
    slope = (sums(c + 1e-5 * move) - sums(c - 1e-5 * move)) / 2e-5
    np.testing.assert_allclose(float((np.asarray(got) * move).sum()), slope, rtol=1e-6)


MISTAKES = {
    "method": (lambda: opt.minimize(rosenbrock, START, method="Powell"), ArgumentError, "method is 'Powell'"),
    "method of SciPy": (
        lambda: opt.minimize(rosenbrock, START, method="L-BFGS-B"),
        ArgumentError,
        '(?s)method is \'L-BFGS-B\'.*use "L-BFGS", which takes no bounds',
    ),
    "option": (lambda: opt.minimize(rosenbrock, START, options={"eps": 1}), ArgumentError, "no option 'eps'"),
    "option of the other": (lambda: opt.minimize(rosenbrock, START, options={"maxcor": 1}), ArgumentError, "'maxcor'"),
    "no memory": (
        lambda: opt.minimize(rosenbrock, START, method="l-bfgs", options={"maxcor": 0}), ArgumentError, "maxcor is 0",
    ),
    "no steps": (
        lambda: opt.minimize(rosenbrock, START, options={"line_search_maxiter": 0}), ArgumentError, "line_search_maxiter",
    ),
    "vector": (lambda: opt.minimize(lambda x: x, START), ShapeError, "one real number"),
    "nothing": (lambda: opt.minimize(rosenbrock, []), ArgumentTypeError, "holds no number"),
    "complex": (lambda: opt.minimize(rosenbrock, START * 1j), DTypeError, "complex"),
    "no function": (lambda: opt.root(None, START), ArgumentTypeError, "must be a function"),
    "arguments": (lambda: opt.root(coupled, np.zeros(2), (1, 2)), ArgumentTypeError, "coupled"),
    "root method": (lambda: opt.root(coupled, np.zeros(2), method="lm"), ArgumentError, "method is 'lm'"),
    "root shape": (lambda: opt.root(lambda x: x[:1], np.zeros(2)), ShapeError, "as many numbers"),
    "root tree": (lambda: opt.root(lambda x: [x], np.zeros(2)), TreeError, "the result of fun"),
    "fixed point method": (lambda: opt.fixed_point(nnp.cos, 1.0, method="anderson"), ArgumentError, "'anderson'"),
    "no fixed point": (lambda: opt.fixed_point(lambda x: x + 1, 1.0, maxiter=5), ArgumentError, "max_steps=5"),
    "no fixed point, compiled": (
        lambda: nnc.compile(lambda x: opt.fixed_point(lambda y: y + 1, x, maxiter=5))(1.0), ArgumentError, "max_steps=5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_worded(name: str) -> None:
    call, error, text = MISTAKES[name]
    with pytest.raises(error, match=text) as found:
        call()
    assert "Fix:" in str(found.value)
