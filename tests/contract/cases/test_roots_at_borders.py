"""Squares of roots that loops, branches and checkpointed functions take or hand out: smooth at 0, to the third derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.options import Options
from nnc.graph import run_passes
from nnc.lower.phases import SIMPLIFYING, names_of
from nnc.scipy.special import bessel_jn

Fun = Callable[[Any], Any]
DIRECTION = np.array([0.5, -2.0])
EYE = np.eye(2)


def f(x: Any) -> Any:
    return nnp.asarray(x, "float64")


ROOTS: dict[str, Fun] = {
    "norm": nnp.linalg.norm,
    "abs": nnp.abs,
    "hypot": lambda v: nnp.hypot(v[0], v[1]),
    "sqrt": lambda v: nnp.sqrt(nnp.sum(v * v)),
}
SMOOTH: dict[str, tuple[Fun, float]] = {  # of a root r, which may be a vector, and the second derivative at 0
    "square": (lambda r: nnp.sum(r**2), 2),
    "cube": (lambda r: nnp.sum(r**3), 0),
    "tanh": (lambda r: nnp.sum(r * nnp.tanh(r)), 2),
    "dot": (lambda r: nnp.dot(r, r), 2),
}


def _scan(root: Fun, v: Any) -> Any:
    return nnc.scan(lambda c, _: (c, root(v) * (1 + c)), f(0.0), None, length=2)[1][1]


AROUND: dict[str, Callable[[Fun], Fun]] = {
    "nothing": lambda root: root,
    "checkpoint": nnc.checkpoint,
    "checkpoint, twice": lambda root: nnc.checkpoint(lambda v: nnc.checkpoint(root)(v) * 1),
    "compile": nnc.compile,
    "vmap": lambda root: lambda v: nnc.vmap(root)(v[None])[0],
    "scan, a row": lambda root: lambda v: _scan(root, v),
    "scan, the carry": lambda root: lambda v: nnc.scan(lambda c, _: (root(v), None), 0 * root(v), None, length=3)[0],
    "scan, multiples": lambda root: lambda v: nnc.scan(lambda c, x: (c * x, None), root(v), f([2.0, 0.5]))[0],
    "scan, checkpoints": lambda root: (
        lambda v: nnc.scan(lambda c, _: (root(v), None), 0 * root(v), None, length=3, checkpoint="sqrt")[0]
    ),
    "fori_loop": lambda root: lambda v: nnc.fori_loop(0, 2, lambda i, c: root(v), 0 * root(v), unroll=2),
    "while_loop": lambda root: (
        lambda v: nnc.while_loop(
            lambda c: c[0] < 2, lambda c: (c[0] + 1, c[2], root(v)), (0, 0 * root(v), 0 * root(v))
        )[1]
    ),
    "while_loop, the start": lambda root: (
        lambda v: nnc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, -c[1]), (0, root(v)))[1]
    ),
    "cond": lambda root: lambda v: nnc.cond(v[0] < 1, root, lambda v: 0 * root(v), v),
    "cond in a loop": lambda root: (
        lambda v: nnc.fori_loop(0, 2, lambda i, c: nnc.cond(i < 1, lambda: root(v), lambda: c), 0 * root(v))
    ),
}


def _check(function: Fun, want: float, at: float, third: bool, name: str) -> None:
    """Holds three derivatives against those of a function whose second derivative is a multiple of the identity."""
    v = f([at, 0.0])
    slope, hessian = nnc.grad(function)(v), nnc.hessian(function)
    np.testing.assert_allclose(np.asarray(slope), [want * at, 0], rtol=1e-12, atol=1e-280, err_msg=f"{name}, first")
    value, change = nnc.jvp(hessian, (v,), (f(DIRECTION),))
    np.testing.assert_allclose(np.asarray(value), want * EYE, rtol=1e-12, atol=1e-140, err_msg=f"{name}, second")
    if third:
        np.testing.assert_allclose(np.asarray(change), 0 * EYE, atol=1e-12, err_msg=f"{name}, third")


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", ROOTS)
def test_smooth_functions_of_roots_from_elsewhere(kind: str, around: str) -> None:
    root = AROUND[around](ROOTS[kind])
    for name, (smooth, want) in SMOOTH.items():
        for at in (0.0, 1e-145 if kind == "sqrt" else 1e-200):  # 1e-200 squared is 0
            _check(lambda v: smooth(root(v)), want, at, name != "cube", f"{name} at {at}")  # noqa: B023


WITHIN: dict[str, Callable[[Fun, Any], Any]] = {  # where a smooth function of a root is computed
    "checkpoint": lambda smooth, r: nnc.checkpoint(smooth)(r),
    "scan, captured": lambda smooth, r: nnc.scan(lambda c, _: (c + smooth(r) / 2, None), f(0.0), None, length=2)[0],
    "scan, an element": lambda smooth, r: nnc.scan(lambda c, x: (c + smooth(x) / 2, None), f(0.0), nnp.stack([r, r]))[
        0
    ],
    "scan, the carry": lambda smooth, r: nnc.scan(lambda c, _: (-c, smooth(c) / 2), r, None, length=2)[1].sum(),
    "map": lambda smooth, r: nnc.map(smooth, r[None])[0],
    "while_loop": lambda smooth, r: nnc.while_loop(
        lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + smooth(r) / 2), (0, f(0.0))
    )[1],
    "cond": lambda smooth, r: nnc.cond(r.sum() < 1, smooth, lambda r: r.sum(), r),
    "switch": lambda smooth, r: nnc.switch(1, [lambda: 0 * r.sum(), lambda: smooth(r), lambda: r.sum()]),
}


@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("kind", ROOTS)
def test_smooth_functions_elsewhere_of_roots(kind: str, within: str) -> None:
    for name, (smooth, want) in SMOOTH.items():
        for at in (0.0, 1e-145 if kind == "sqrt" else 1e-200):
            function = lambda v: WITHIN[within](smooth, ROOTS[kind](v))  # noqa: B023
            _check(function, want, at, name != "cube", f"{name} at {at}")


PRODUCTS: dict[str, Fun] = {  # of a vector by itself
    "matmul": lambda r: r @ r,
    "dot": lambda r: nnp.dot(r, r),
    "vdot": lambda r: nnp.vdot(r, r),
    "inner": lambda r: nnp.inner(r, r),
    "vecdot": lambda r: nnp.vecdot(r, r),
    "tensordot": lambda r: nnp.tensordot(r, r, 1),
    "einsum": lambda r: nnp.einsum("i,i->", r, r),
    "einsum of rows": lambda r: nnp.einsum("ij,ij->j", r[None], r[None]).sum(),
    "sum": lambda r: nnp.sum(r * r),
    "compiled": nnc.compile(lambda r: r @ r),
    "a multiple and an odd function": lambda r: nnp.tanh(r) @ (2 * r) / 2,
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_a_vector_of_roots_by_itself(name: str) -> None:
    for at in (0.0, 1e-200):
        _check(lambda v: PRODUCTS[name](abs(v)), 2, at, True, f"at {at}")


def test_products_of_matrices_of_roots_by_themselves() -> None:
    v = np.array([[1.0, -2.0], [0.5, 3.0]])
    for product in (lambda a: a @ a, lambda a: a @ a.T, lambda a: nnp.einsum("ij,ij->i", a, a)):
        got = nnc.hessian(lambda v: nnp.sum(product(abs(v))))(f(v))  # noqa: B023
        want = nnc.hessian(lambda x: nnp.sum(product(x * np.sign(v))))(f(v))  # noqa: B023
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize("around", [name for name in AROUND if "compile" not in name and "vmap" not in name])
def test_roots_from_elsewhere_within_a_named_axis(around: str) -> None:
    def loss(v: Any) -> Any:
        row = lambda w: nnc.psum(nnp.sum(AROUND[around](nnp.linalg.norm)(w) ** 2), "i")
        return nnc.vmap(row, axis_name="i")(v * f([[1.0, 1.0], [2.0, 2.0]]))[0]

    np.testing.assert_allclose(np.asarray(nnc.hessian(loss)(f([0.0, 0.0]))), 10 * EYE)


def test_loops_that_hand_out_no_roots_stay_as_they_are() -> None:
    def loss(v: Any) -> Any:
        return nnc.scan(lambda c, x: (c + abs(x), abs(c) ** 2), f(0.0), v)[1].sum()

    graph = nnc.make_graph(nnc.grad(loss))(f([1.0, 2.0]))
    assert "with_square" not in {node.command.name for node in graph.walk()}


def test_unread_squares_leave_compiled_loops() -> None:
    def loss(v: Any) -> Any:
        return nnc.fori_loop(0, 9, lambda i, c: nnp.abs(c - v), 2.5 * v).sum()

    graph = nnc.make_graph(nnc.grad(loss))(f([1.0, 2.0]))
    left = run_passes(graph, names_of(SIMPLIFYING), Options())
    assert not {"square", "with_square"} & {node.command.name for node in left.walk()}
    np.testing.assert_array_equal(np.asarray(nnc.grad(loss)(f([1.0, 2.0]))), [0.5, 0.5])


CURVES: dict[
    str, tuple[Fun, float]
] = {  # smooth functions of a root that no formula names, and their second derivatives at 0
    "Matern 3/2": (lambda r: (1 + r) * nnp.exp(-r), -1),
    "Matern 5/2": (lambda r: (1 + r + r * r / 3) * nnp.exp(-r), -1 / 3),
    "Matern 7/2": (lambda r: (1 + r + 0.4 * r**2 + r**3 / 15) * nnp.exp(-r), -0.2),
    "scaled": (lambda r: 3 - 2 * (1 + np.sqrt(5) * r + 5 * r**2 / 3) * nnp.exp(-np.sqrt(5) * r), 10 / 3),
    "Wendland": (lambda r: nnp.maximum(1 - r, 0) ** 4 * (4 * r + 1), -20),
    "quotient": (lambda r: (1 + r) / nnp.exp(r), -1),
    "difference": (lambda r: nnp.exp(r) - r, 1),
    "square": (lambda r: (nnp.exp(r) - 1) ** 2, 2),
    "softplus": (lambda r: r + nnp.log1p(nnp.exp(-2 * r)), 1),
    "a root times a function": (lambda r: 2 * nnp.exp(-r) * (1 + r * nnp.exp(r)), 2),
    "along rays": (lambda r: nnp.exp(-r), 1),
}
FEW = ["Matern 3/2", "Wendland", "square", "softplus", "difference"]


@pytest.mark.parametrize("around", AROUND)
def test_functions_of_roots_from_elsewhere_that_bend_at_0(around: str) -> None:
    for name in FEW:
        smooth, want = CURVES[name]
        for what, function in (
            ("the root", lambda v: smooth(AROUND[around](nnp.linalg.norm)(v))),  # noqa: B023
            ("all", lambda v: AROUND[around](lambda v: smooth(nnp.linalg.norm(v)))(v)),  # noqa: B023
        ):
            found = np.asarray(nnc.hessian(function)(f([0.0, 0.0])))
            np.testing.assert_allclose(found, want * EYE, atol=1e-12, err_msg=f"{name}, {what}")


@pytest.mark.parametrize("within", WITHIN)
def test_functions_elsewhere_of_roots_that_bend_at_0(within: str) -> None:
    for name in FEW:
        smooth, want = CURVES[name]
        found = nnc.hessian(lambda v: WITHIN[within](smooth, nnp.hypot(v[0], v[1])))(f([0.0, 0.0]))  # noqa: B023
        np.testing.assert_allclose(np.asarray(found), want * EYE, atol=1e-12, err_msg=name)


def _norm(v: Any) -> Any:
    return nnp.linalg.norm(v)


def _rows(v: Any) -> Any:
    return nnp.linalg.norm(v[None], axis=1)


def matern(r: Any) -> Any:
    return (1 + r) * nnp.exp(-r)


SUMS: dict[str, tuple[Fun, float]] = {  # slopes that cancel behind other commands than elementwise ones
    "two sums": (lambda v: nnp.sum(nnp.exp(-_rows(v))) + nnp.sum(_rows(v) * nnp.exp(-_rows(v))), -1),
    "broadcast": (lambda v: nnp.sum(nnp.exp(-_rows(v))[:, None] * (1 + _rows(v))[:, None] * nnp.ones(3)), -3),
    "a multiple, broadcast": (lambda v: nnp.sum((1 + 2 * _rows(v))[:, None] * nnp.exp(-2 * _rows(v)[:, None])), -4),
    "product of vectors": (lambda v: (1 + _rows(v)) @ nnp.exp(-_rows(v)), -1),
    "einsum": (lambda v: nnp.einsum("i,i->", 1 + _rows(v), nnp.exp(-_rows(v))), -1),
    "stack": (lambda v: nnp.stack([nnp.exp(-_norm(v)), _norm(v) * nnp.exp(-_norm(v))]).sum(), -1),
    "cumsum": (lambda v: nnp.cumsum(nnp.stack([nnp.exp(-_norm(v)), _norm(v) * nnp.exp(-_norm(v))]))[1], -1),
    "different roots": (lambda v: nnp.exp(-_norm(v)) + _norm(2 * v) / 2, 1),
    "a root of the root": (lambda v: nnp.sqrt(1 + _norm(v)) - _norm(v) / 2, -0.25),
    "a product": (lambda v: nnp.prod(matern(nnp.linalg.norm(nnp.stack([v, v]), axis=1))), -2),
    "a polynomial": (lambda v: nnp.polyval(f([1.0, 2.0, 0.0, 1.0]), _norm(v)), 4),
    "a power": (lambda v: (1 + _norm(v)) ** 2.5 - 2.5 * _norm(v), 3.75),
    "complex": (lambda v: nnp.real(nnp.exp(1j * _norm(v))), -1),
    "sinc": (lambda v: nnp.sinc(_norm(v)), -np.pi**2 / 3),
    "i0": (lambda v: nnp.i0(_norm(v)), 0.5),
    "a sum in a loop": (lambda v: nnc.fori_loop(0, 3, lambda i, c: c + matern(_norm(v)), f(0.0)), -3),
    "slopes that cancel behind a loop": (
        lambda v: nnc.fori_loop(0, 3, lambda i, c: c + nnp.exp(-_norm(v)), f(0.0)) + 3 * _norm(v), 3
    ),
    "rows of a loop": (lambda v: nnc.map(lambda x: matern(_norm(x - v)), f(np.zeros((3, 2)))).sum(), -3),
    "mapped": (lambda v: nnc.vmap(lambda x: (1 + _norm(x)) * nnp.exp(-_norm(x)))(nnp.stack([v, v])).sum(), -2),
    "a mask": (lambda v: nnp.where(_norm(v) < 1, matern(_norm(v)), 0.0), -1),
    "behind a mask": (lambda v: nnp.where(_norm(v) > 0, matern(_norm(v)), 0.0), 0),
    "a pole behind a mask": (lambda v: nnp.where(_norm(v) > 0, 1 / _norm(v), 0.0), 0),
    "a pole": (lambda v: _norm(v) * nnp.log(_norm(v) + 1e-300) * 0 + _norm(v) ** 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", SUMS)
def test_slopes_that_cancel_elsewhere_leave_the_second_derivative(name: str, compiled: bool) -> None:
    function, want = SUMS[name]
    hessian = nnc.hessian(function)
    found = (nnc.compile(hessian) if compiled else hessian)(f([0.0, 0.0]))
    np.testing.assert_allclose(np.asarray(found), want * EYE, atol=1e-9)


def _ends(v: Any) -> tuple[Any, Any]:
    return _norm(v[:1]), nnp.abs(v[1])


def _product_of_kernels(a: Any, b: Any) -> Any:
    return (1 + a) * (1 + b) * nnp.exp(-(a + b))


SEVERAL: dict[str, tuple[Fun, Any]] = {  # functions of two roots, each of which is 0, and their second derivatives
    "a product of kernels": (lambda v: _product_of_kernels(*_ends(v)), -EYE),
    "factors that take turns": (
        lambda v: (lambda a, b: (1 + a) * nnp.exp(-a) * nnp.exp(-b) * (1 + b))(*_ends(v)), -EYE
    ),
    "a sum of roots": (lambda v: nnp.cos(sum(_ends(v))), -EYE),
    "one root far from 0": (
        lambda v: _product_of_kernels(_norm(v[:1]), _norm(v[1:] - 2)), np.diag([-3, 1]) * np.exp(-2)
    ),
    "squares": (lambda v: (_norm(v) ** 2 + 3) * _norm(v - 1) ** 2, 10 * EYE),
    "a square of a product": (lambda v: (_norm(v) * _norm(v - 1)) ** 2, 4 * EYE),
    "a square of functions of both": (
        lambda v: (nnp.abs(v[0] - 1) * nnp.exp(-nnp.abs(v[1]))) ** 2 * (1 + 2 * nnp.abs(v[1])), np.diag([2, -4])
    ),
    "a product with a square": (lambda v: _norm(v - 1) * _norm(v) * _norm(v), 2 * 2**0.5 * EYE),
    "a root of a function of a root": (lambda v: nnp.abs(1 + _norm(v)) * nnp.exp(-_norm(v)), -EYE),
    "elements": (
        lambda v: nnp.sum(_product_of_kernels(nnp.abs(v), nnp.abs(v[::-1] - 2))), -2 * np.exp(-2) * EYE
    ),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", SEVERAL)
def test_functions_of_several_roots_bend_along_each(name: str, compiled: bool) -> None:
    function, want = SEVERAL[name]
    hessian = nnc.hessian(function)
    found = (nnc.compile(hessian) if compiled else hessian)(f([0.0, 0.0]))
    np.testing.assert_allclose(np.asarray(found), want, rtol=1e-12, atol=1e-12)


def test_functions_of_many_roots_lose_their_curvature_in_linear_time() -> None:
    function = lambda v: nnp.exp(-sum(nnp.abs(v[i]) for i in range(30)))
    assert len(nnc.make_graph(nnc.hessian(function))(f(np.zeros(30))).nodes) < 4000


def test_bessel_functions_of_roots_bend_at_0() -> None:
    for function in (lambda v: bessel_jn(_norm(v), v=2), lambda v: bessel_jn(nnp.abs(v), v=2).sum(axis=1)):
        found = np.asarray(nnc.hessian(function)(f([0.0, 0.0])))
        np.testing.assert_allclose(found[0], -0.5 * EYE, atol=1e-12)
        np.testing.assert_allclose(found[2], 0.25 * EYE, atol=1e-12)


INNER: dict[str, Callable[[Fun, Any], Any]] = {  # where a gradient is taken that is differentiated outside
    "scan": lambda force, v: nnc.scan(lambda c, _: (c, force(c)), v, None, length=1)[1][0],
    "fori_loop": lambda force, v: nnc.fori_loop(0, 1, lambda i, c: force(c), v),
    "while_loop": lambda force, v: nnc.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, force(c[1])), (0, v))[1],
    "checkpoint": lambda force, v: nnc.checkpoint(force)(v),
    "cond": lambda force, v: nnc.cond(v[0] < 1, force, lambda v: v, v),
    "compile": lambda force, v: nnc.compile(force)(v),
}


@pytest.mark.parametrize("derive", [nnc.jacfwd, nnc.jacrev], ids=["forward", "reverse"])
@pytest.mark.parametrize("inner", INNER)
def test_gradients_within_loops_are_differentiated_outside(inner: str, derive: Any) -> None:
    force = nnc.grad(lambda v: matern(_norm(v)))
    for run in (lambda g: g, nnc.compile):
        found = run(derive(lambda v: INNER[inner](force, v)))(f([0.0, 0.0]))
        np.testing.assert_allclose(np.asarray(found), -EYE, atol=1e-12)


def test_first_derivatives_do_not_compute_the_second() -> None:
    def loss(v: Any) -> Any:
        return nnc.fori_loop(0, 3, lambda i, c: c + matern(_norm(v)), f(0.0)) + matern(_norm(v))

    calls = [node.command.name for node in nnc.make_graph(nnc.grad(loss))(f([1.0, 2.0])).walk()]
    assert "isfinite" not in calls
    calls = [node.command.name for node in nnc.make_graph(nnc.hessian(loss))(f([1.0, 2.0])).walk()]
    assert "isfinite" in calls


WITH: dict[str, Callable[[Fun], Fun]] = {
    "hessian": nnc.hessian,
    "reverse over reverse": lambda f: nnc.jacrev(nnc.grad(f)),
    "forward over forward": lambda f: nnc.jacfwd(nnc.jacfwd(f)),
    "compiled": lambda f: nnc.compile(nnc.hessian(f)),
    "mapped": lambda f: lambda v: nnc.vmap(nnc.hessian(f))(v[None])[0],
    "a gradient of mapped ones": lambda f: lambda v: nnc.jacrev(lambda v: nnc.vmap(nnc.grad(f))(v[None])[0])(v),
}


@pytest.mark.parametrize("how", WITH)
@pytest.mark.parametrize("kind", ["norm", "hypot", "sqrt"])
def test_slopes_that_cancel_at_0_leave_the_second_derivative(kind: str, how: str) -> None:
    for name, (smooth, want) in CURVES.items():
        function = lambda v: nnp.sum(smooth(ROOTS[kind](v)))  # noqa: B023
        np.testing.assert_array_equal(np.asarray(nnc.grad(function)(f([0.0, 0.0]))), 0)
        found = np.asarray(WITH[how](function)(f([0.0, 0.0])))
        if kind == "sqrt" and (name == "along rays" or how == "forward over forward"):
            assert not np.any(np.diag(found) == 0)  # infinite, or NaN: the slope of a square root is infinite at 0
        else:
            np.testing.assert_allclose(found, want * EYE, atol=1e-12, err_msg=name)
        if how == "hessian":
            elsewhere = np.asarray(WITH[how](function)(f([0.3, -0.4])))
            r, u = f(0.5), np.array([0.6, -0.8])
            first = nnc.grad(smooth)(r).item()
            second = nnc.grad(nnc.grad(smooth))(r).item()
            want_there = second * np.outer(u, u) + first / 0.5 * (EYE - np.outer(u, u))
            np.testing.assert_allclose(elsewhere, want_there, rtol=1e-10, atol=1e-12, err_msg=name)


def test_kernels_between_points_have_their_covariances_of_slopes() -> None:
    kernel = lambda a, b: CURVES["Matern 3/2"][0](nnp.linalg.norm(a - b))
    x = f([1.0, 2.0])
    np.testing.assert_allclose(np.asarray(nnc.jacfwd(nnc.grad(kernel, 1), 0)(x, x)), EYE)
    elements = lambda x: nnp.sum((1 + abs(x)) * nnp.exp(-abs(x)))
    np.testing.assert_allclose(np.asarray(nnc.hessian(elements)(f([0.0, 0.0]))), -EYE)
