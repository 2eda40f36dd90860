"""custom_jvp and custom_vjp: rules of the user under every transform. The rules are wrong on purpose, so that use shows."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, ArgumentTypeError, DTypeError, NncError, ShapeError, TreeError, UnsupportedError

X = np.array([0.3, -1.2, 0.7])
ONE = np.float64(1)


def close(a: Any, b: Any) -> bool:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-9)


def by_jvp() -> Any:
    """sin with derivative 10 cos."""
    f = nnc.custom_jvp(lambda x: nnp.sin(x))
    f.defjvp(lambda primals, tangents: (f(*primals), 10 * nnp.cos(primals[0]) * tangents[0]))
    return f


def by_vjp() -> Any:
    """The same."""
    f = nnc.custom_vjp(lambda x: nnp.sin(x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * nnp.cos(x) * ct,))
    return f


RULES = pytest.mark.parametrize("make", [by_jvp, by_vjp])


@RULES
def test_the_value_is_the_functions_and_the_derivative_the_rules(make: Callable[[], Any]) -> None:
    f, x = make(), np.float64(0.4)
    first, second = 10 * np.cos(x), -10 * np.sin(x)
    for run in (f, nnc.compile(f), nnc.checkpoint(f), nnc.make_graph(f)(x), lambda x: nnc.vmap(f)(x[None])[0]):
        assert close(run(x), np.sin(x))
        assert close(nnc.grad(run)(x), first)
        assert close(nnc.jvp(run, (x,), (ONE,))[1], first)
        assert close(nnc.linearize(run, x)[1](ONE), first)
        assert close(nnc.grad(nnc.grad(run))(x), second)
        assert close(nnc.jvp(nnc.grad(run), (x,), (ONE,))[1], second)
        assert close(nnc.grad(lambda x, run=run: nnc.jvp(run, (x,), (ONE,))[1])(x), second)
        assert close(nnc.hessian(run)(x), second)
        assert close(nnc.make_graph(nnc.grad(run))(x)(x), first)
        assert close(nnc.grad(nnc.grad(nnc.grad(run)))(x), -first)


@RULES
def test_rows_of_a_map_have_the_rules_derivative(make: Callable[[], Any]) -> None:
    f = make()
    diagonal = np.diag(10 * np.cos(X))
    assert close(nnc.vmap(nnc.grad(f))(X), 10 * np.cos(X))
    for jacobian in (nnc.jacfwd, nnc.jacrev):
        assert close(jacobian(nnc.vmap(f))(X), diagonal)
        assert close(jacobian(nnc.vmap(nnc.vmap(f)))(X[None])[0, :, 0], diagonal)
        assert close(nnc.compile(jacobian(nnc.vmap(f)))(X), diagonal)
    assert close(nnc.vmap(nnc.grad(nnc.grad(f)))(X), -10 * np.sin(X))
    assert close(nnc.hessian(lambda x: nnp.sum(nnc.vmap(f)(x)))(X), np.diag(-10 * np.sin(X)))
    graph = nnc.make_graph(nnc.vmap(f))(X)
    assert close(nnc.grad(lambda x: nnp.sum(graph(x)))(X), 10 * np.cos(X))
    assert close(nnc.vmap(lambda x: nnc.jvp(f, (x,), (ONE,))[1])(X), 10 * np.cos(X))


@RULES
def test_rules_hold_within_checkpoint_and_under_a_map_of_it(make: Callable[[], Any]) -> None:
    f = make()
    g = nnc.checkpoint(lambda x: f(x) * x)
    expected = 10 * np.cos(X) * X + np.sin(X)
    assert close(nnc.vmap(nnc.grad(g))(X), expected)
    assert close(nnc.grad(lambda x: nnp.sum(nnc.vmap(g)(x)))(X), expected)
    assert close(nnc.jvp(lambda x: nnc.vmap(g)(x), (X,), (np.ones(3),))[1], expected)


def test_trees_with_static_leaves_pass_through_a_custom_vjp() -> None:
    @nnc.custom_vjp
    def f(p: Any, x: Any, n: Any) -> Any:
        return {"y": p["w"] * x, "name": p["name"], "none": None, "i": n}

    def bwd(kept: Any, ct: Any) -> Any:
        p, x = kept
        return {"w": ct["y"] * x * 10, "name": p["name"], "none": None}, None, None

    f.defvjp(lambda p, x, n: (f(p, x, n), (p, x)), bwd)
    p = {"w": X, "name": "text", "none": None}

    def loss(p: Any) -> Any:
        out = f(p, 2.0, 3)
        assert out["name"] == "text" and out["none"] is None
        return nnp.sum(out["y"])

    for run in (nnc.grad(loss), nnc.vmap(nnc.grad(loss)), nnc.compile(nnc.grad(loss))):
        found = run(p)
        assert close(found["w"], np.full(3, 20.0)) and found["name"] == "text" and found["none"] is None
    assert nnc.grad(f_of_x := lambda x: nnp.sum(f(p, x, 3)["y"]))(2.0) == 0 and f_of_x(2.0) == nnp.sum(X * 2)


def test_trees_and_integers_pass_through_a_custom_jvp() -> None:
    f = nnc.custom_jvp(lambda x, i: {"y": x * i, "i": i})

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, i), (t, t_i) = primals, tangents
        assert t_i.dtype == np.int64
        return f(x, i), {"y": 10 * t * i, "i": t_i}

    i = np.arange(3)
    value, moved = nnc.jvp(f, (X, i), (np.ones(3), i))
    assert close(value["y"], X * i) and close(moved["y"], 10 * i) and not moved["i"].data.any()
    assert close(nnc.grad(lambda x: nnp.sum(f(x, i)["y"]))(X), 10 * i)
    assert close(nnc.grad(lambda x: nnp.sum(nnc.vmap(f)(x, i)["y"]))(X), 10 * i)


def test_rules_of_arguments_that_are_not_differentiated_do_not_run() -> None:
    calls: list[str] = []

    def rule(name: str, factor: float):
        def of_one(t, result, x, y):
            calls.append(name)
            return factor * t

        return of_one

    f = nnc.custom_jvp(lambda x, y: x * y)
    f.defjvps(rule("x", 2.0), rule("y", 3.0))
    assert float(nnc.grad(f)(1.0, 5.0)) == 2 and calls == ["x"]
    assert float(nnc.compile(nnc.grad(f, 1))(1.0, 5.0)) == 3 and set(calls[1:]) == {"y"}
    assert [float(g) for g in nnc.grad(f, (0, 1))(1.0, 5.0)] == [2, 3]
    pair = nnc.custom_jvp(lambda x, k: x[0] * x[1])
    pair.defjvps(lambda t, result, x, k: t[0] + 10 * t[1], None)  # of a part of a tuple zeros are filled in
    assert float(nnc.grad(lambda a: pair((a, 4.0), 3))(1.0)) == 1


def test_defjvps_sums_the_rules_of_the_arguments() -> None:
    f = nnc.custom_jvp(lambda x, y, z: (x * y * z, x))
    f.defjvps(lambda t, out, x, y, z: (5 * t * y * z, t), None, lambda t, out, x, y, z: (out[0] * t, 0 * t))
    found = nnc.jacrev(f, (0, 1, 2))(2.0, 3.0, 4.0)
    assert found == ((60, 0, 24), (1, 0, 0)) == nnc.jacfwd(f, (0, 1, 2))(2.0, 3.0, 4.0)
    silent = nnc.custom_jvp(lambda x: x * x)
    silent.defjvps(None)
    assert nnc.grad(silent)(3.0) == 0
    with pytest.raises(ArgumentError, match="nondiff_argnums"):
        nnc.custom_jvp(lambda x, k: x, nondiff_argnums=(1,)).defjvps(None)


def test_nondiff_argnums_are_handed_over_first_in_the_order_given() -> None:
    @partial(nnc.custom_vjp, nondiff_argnums=(2, 0))
    def f(k: float, x: Any, g: Any) -> Any:
        return g(x) * k

    f.defvjp(lambda k, x, g: (f(k, x, g), x), lambda g, k, x, ct: (ct * k * 100 if g is nnp.sin else None,))
    assert nnc.grad(f, 1)(2.0, 3.0, nnp.sin) == 200
    assert close(nnc.vmap(nnc.grad(f, 1), (None, 0, None))(2.0, X, nnp.sin), np.full(3, 200.0))
    assert close(nnc.grad(lambda x: nnp.sum(nnc.vmap(lambda y: f(2.0, y, nnp.sin))(x)))(X), np.full(3, 200.0))

    @partial(nnc.custom_jvp, nondiff_argnums=-1)
    def h(x: Any, double: bool) -> Any:
        return x * 2 if double else x

    h.defjvp(lambda double, primals, tangents: (h(*primals, double), 7 * tangents[0] if double else tangents[0]))
    assert nnc.grad(h)(1.0, True) == 7 and nnc.grad(h)(1.0, False) == 1
    assert close(nnc.grad(lambda x: nnp.sum(nnc.vmap(lambda y: h(y, True))(x)))(X), np.full(3, 7.0))
    with pytest.raises(ArgumentError, match="nondiff_argnums"):
        nnc.custom_jvp(lambda x: x, nondiff_argnums=3)(1.0)


def test_methods_may_have_rules() -> None:
    class Scale:
        @nnc.custom_vjp
        def apply(self, x: Any) -> Any:
            return x * 2

        apply.defvjp(lambda self, x: (x * 2, None), lambda kept, ct: (None, ct * 9))

    assert nnc.grad(Scale().apply)(1.0) == 9
    assert close(nnc.grad(lambda x: nnp.sum(nnc.vmap(Scale().apply)(x)))(X), np.full(3, 9.0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_python_numbers_in_and_out_of_rules_take_the_dtype_they_meet(dtype: str) -> None:
    x = nnp.asarray(0.5, dtype=dtype)
    f = nnc.custom_vjp(lambda x, s: x * s)
    f.defvjp(lambda x, s: (x * s, None), lambda kept, ct: (7.0, 8.0))
    assert nnc.grad(f)(x, 2.0).dtype.name == dtype and nnc.grad(f)(x, 2.0) == 7
    assert nnc.make_graph(f)(x, 2.0).output_specs[0].dtype.name == dtype
    assert nnc.vmap(f, (0, None))(x[None], 2.0).dtype.name == dtype
    g = nnc.custom_jvp(lambda x: x * 2)
    g.defjvp(lambda primals, tangents: (primals[0] * 2, 7.0))
    assert nnc.jvp(g, (x,), (x,))[1].dtype.name == dtype


def test_empty_arrays_have_rules_too() -> None:
    f = nnc.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), lambda kept, ct: (ct * 3,))
    assert nnc.grad(lambda x: nnp.sum(f(x)))(np.zeros((0, 2))).shape == (0, 2)
    assert nnc.vmap(nnc.grad(lambda x: nnp.sum(f(x))))(np.zeros((0, 2))).shape == (0, 2)


@RULES
def test_a_captured_value_that_is_differentiated_is_refused_and_other_captures_are_fine(
    make: Callable[[], Any],
) -> None:
    def bind(w: Any) -> Any:
        if make is by_jvp:
            f = nnc.custom_jvp(lambda x: x * w)
            f.defjvp(lambda p, t: (p[0] * w, t[0] * w))
        else:
            f = nnc.custom_vjp(lambda x: x * w)
            f.defvjp(lambda x: (x * w, None), lambda kept, ct: (ct * w,))
        return f

    for run in (
        nnc.grad(lambda w: bind(w)(3.0)), nnc.grad(lambda w: bind(w)(w * 3.0)),
        nnc.grad(lambda w: nnc.vmap(bind(w))(nnp.ones(3)).sum()), lambda w: nnc.jvp(lambda w: bind(w)(w), (w,), (w,)),
    ):  # fmt: skip
        with pytest.raises(UnsupportedError, match="captures a value that is being differentiated"):
            run(2.0)
    assert nnc.grad(lambda x: bind(4.0)(x))(3.0) == 4
    assert nnc.grad(lambda w: bind(nnc.stop_gradient(w))(w))(3.0) == 3
    assert close(nnc.vmap(lambda w: bind(w)(3 * ONE))(X), 3 * X)
    assert close(nnc.vmap(lambda w: nnc.grad(bind(w))(3 * ONE))(X), X)


def test_a_pullback_keeps_the_residuals_and_nothing_else() -> None:
    f = nnc.custom_vjp(lambda x: nnp.sum(x * 2))
    f.defvjp(lambda x: (nnp.sum(x * 2), None), lambda kept, ct: (ct * np.ones(100, np.float32),))
    x = nnp.ones(100) * 1
    seen = weakref.ref(x)
    _, pull = nnc.vjp(f, x)
    del x
    gc.collect()
    assert seen() is None and nnp.sum(pull(1.0)[0]) == 100


def test_mistakes_in_rules_are_named() -> None:
    bare: tuple[Any, ...] = (nnc.custom_jvp(lambda x: x), nnc.custom_vjp(lambda x: x))
    for f in bare:
        assert f(1.0) == 1
        with pytest.raises(UnsupportedError, match="no derivative rule"):
            nnc.grad(f)(1.0)
        with pytest.raises(ArgumentError, match="keyword"):
            f(x=1.0)

    def with_vjp(fwd: Any, bwd: Any) -> Any:
        f = nnc.custom_vjp(lambda x: x * 2)
        f.defvjp(fwd, bwd)
        return nnc.grad(f)

    def kept(x: Any) -> Any:
        return x * 2, None

    for bwd, kind in (
        (lambda r, ct: ct, ArgumentTypeError), (lambda r, ct: (ct, ct), ArgumentTypeError), (lambda r, ct: (ct[None],), ShapeError),
        (lambda r, ct: (ct.astype("float64"),), DTypeError), (lambda r, ct: ([ct],), TreeError),
    ):  # fmt: skip
        with pytest.raises(kind, match="the bwd rule of"):
            with_vjp(kept, bwd)(nnp.asarray(1.0))
    with pytest.raises(ArgumentTypeError, match="the fwd rule of"):
        with_vjp(lambda x: x * 2, lambda r, ct: (ct,))(1.0)

    def with_jvp(rule: Any) -> Any:
        f = nnc.custom_jvp(lambda x: x * 2)
        f.defjvp(rule)
        return nnc.grad(f)

    for rule, kind in (
        (lambda p, t: p[0], ArgumentTypeError), (lambda p, t: (p[0], t), TreeError), (lambda p, t: (p[0], t[0][None]), ShapeError),
        (lambda p, t: (p[0], t[0] * t[0]), UnsupportedError),
    ):  # fmt: skip
        with pytest.raises(kind):
            with_jvp(rule)(1.0)
    with pytest.raises(NncError, match="while running the bwd rule of"):
        with_vjp(kept, lambda r, ct: (ct @ ct,))(1.0)


def _in_scan(f: Any, x: Any) -> Any:
    return nnc.scan(lambda c, y: (f(c * y), f(y * x)), x, np.array([0.5, 1.5, 1.0]))


def _in_while(f: Any, x: Any) -> Any:
    return nnc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1] * x)), (0, x))[1]


def _in_branch(f: Any, x: Any) -> Any:
    return nnc.cond(nnp.sum(x) > 0, lambda: f(f(x)), lambda: x)


def _in_nested_scan(f: Any, x: Any) -> Any:
    return nnc.scan(lambda c, _: (nnc.scan(lambda c, y: (f(c * y), None), c, x)[0], None), x[0], length=2)[0]


@pytest.mark.parametrize("place", [_in_scan, _in_while, _in_branch, _in_nested_scan])
def test_rules_known_by_their_transpose_alone_work_in_loops_and_branches(place: Callable[..., Any]) -> None:
    x = np.array([0.3, 0.7, 1.1])
    own = nnc.custom_vjp(nnp.sin)
    own.defvjp(lambda x: (nnp.sin(x), nnp.cos(x)), lambda cosine, ct: (cosine * ct,))
    total = lambda f: lambda x: sum(nnp.sum(y) for y in nnc.tree.leaves(place(f, x)))
    want = nnc.grad(total(nnp.sin))
    for f in (own, nnc.checkpoint(nnp.sin)):
        first = nnc.grad(total(f))
        np.testing.assert_allclose(np.asarray(first(x)), np.asarray(want(x)))
        np.testing.assert_allclose(np.asarray(nnc.compile(first)(x)), np.asarray(want(x)))
        np.testing.assert_allclose(np.asarray(nnc.vmap(first)(np.stack([x, x]))[1]), np.asarray(want(x)))
        second = nnc.grad(lambda x, first=first: nnp.sum(first(x) ** 2))(x)
        np.testing.assert_allclose(np.asarray(second), np.asarray(nnc.grad(lambda x: nnp.sum(want(x) ** 2))(x)))


# -- backward rules that are not linear, within loops and branches ----------------------------------------------------------


def _converged(ct: Any) -> Any:
    return nnc.while_loop(lambda c: nnp.max(nnp.abs(c)) > 1, lambda c: c / 2, ct)


BACKWARD: dict[str, Callable[[Any, Any], Any]] = {
    "shifted": lambda r, ct: ct + 1, "constant": lambda r, ct: r, "clipped": lambda r, ct: nnp.clip(ct, -0.1, 0.1),
    "masked": lambda r, ct: nnp.where(r > 0.5, ct, 7.0), "without NaN": lambda r, ct: nnp.nan_to_num(ct) * r,
    "set": lambda r, ct: ct.at[0].set(9.0), "normalised": lambda r, ct: ct / nnp.linalg.norm(ct),
    "stopped": lambda r, ct: nnc.stop_gradient(ct), "cubed": lambda r, ct: ct**3 * r, "converged": lambda r, ct: _converged(ct),
    "padded": lambda r, ct: nnp.pad(ct[1:], (1, 0), constant_values=4.0),
}  # fmt: skip


def _taken(f: Any, x: Any) -> Any:
    return nnc.cond(x[0] > 0, f, lambda x: x, x)


# Programs of a function, each beside the same one without loops and branches.
AROUND: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "scan": (lambda f, x: nnc.scan(lambda c, _: (f(c) * 3, None), x, None, length=3)[0], lambda f, x: f(f(f(x) * 3) * 3) * 3),
    "unrolled scan": (
        lambda f, x: nnc.scan(lambda c, _: (f(c) * 3, None), x, None, length=3, unroll=2)[0], lambda f, x: f(f(f(x) * 3) * 3) * 3,
    ),
    "rows": (
        lambda f, x: nnc.scan(lambda c, _: (c * 2, f(c) * c), x, None, length=2)[1].sum(0),
        lambda f, x: f(x) * x + f(x * 2) * (x * 2),
    ),
    "elements": (lambda f, x: nnc.map(f, nnp.stack([x, x * 2])).sum(0), lambda f, x: f(x) + f(x * 2)),
    "fori": (lambda f, x: nnc.fori_loop(0, 2, lambda i, c: f(c) * 3, x), lambda f, x: f(f(x) * 3) * 3),
    "while": (
        lambda f, x: nnc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1]) * 3), (0, x))[1], lambda f, x: f(f(x) * 3) * 3,
    ),
    "cond": (_taken, lambda f, x: f(x)),
    "switch": (lambda f, x: nnc.switch(1, [lambda x: x, lambda x: f(x) * x], x), lambda f, x: f(x) * x),
    "cond in scan": (
        lambda f, x: nnc.scan(lambda c, _: (_taken(f, c) * 3, None), x, None, length=2)[0], lambda f, x: f(f(x) * 3) * 3,
    ),
    "scan in scan": (
        lambda f, x: nnc.scan(
            lambda c, _: (nnc.scan(lambda d, _: (f(d) * 3, None), c, None, length=2)[0], None), x, None, length=2
        )[0],
        lambda f, x: f(f(f(f(x) * 3) * 3) * 3) * 3,
    ),
    "checkpointed scan": (
        lambda f, x: nnc.checkpoint(lambda x: nnc.scan(lambda c, _: (f(c) * 3, None), x, None, length=2)[0])(x),
        lambda f, x: f(f(x) * 3) * 3,
    ),
    "replayed scan": (
        lambda f, x: nnc.scan(lambda c, _: (f(c) * 3, None), x, None, length=4, checkpoint="sqrt")[0],
        lambda f, x: f(f(f(f(x) * 3) * 3) * 3) * 3,
    ),
    "scan of checkpoint": (
        lambda f, x: nnc.scan(nnc.checkpoint(lambda c, _: (f(c) * 3, None)), x, None, length=2)[0], lambda f, x: f(f(x) * 3) * 3,
    ),
    "captured": (
        lambda f, x: nnc.scan(lambda c, _: (c + f(x) * c, None), x, None, length=2)[0],
        lambda f, x: (lambda c: c + f(x) * c)(x + f(x) * x),
    ),
}  # fmt: skip


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("rule", BACKWARD)
def test_backward_rules_run_as_they_are_within_loops_and_branches(rule: str, around: str) -> None:
    f = nnc.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, x), lambda r, ct: (BACKWARD[rule](r, ct),))
    x, weights = np.array([0.3, 0.8, 1.5]), np.array([1.0, -2.0, 0.5])
    looped, plain = ((lambda x, run=run: nnp.sum(run(f, x) * weights)) for run in AROUND[around])
    want = nnc.grad(plain)(x)
    for gradient in (nnc.grad(looped), nnc.compile(nnc.grad(looped))):
        np.testing.assert_allclose(np.asarray(gradient(x)), np.asarray(want), rtol=1e-12)
    rows = np.stack([x, x + 0.1])
    each = np.stack([np.asarray(nnc.grad(plain)(row)) for row in rows])
    np.testing.assert_allclose(np.asarray(nnc.vmap(nnc.grad(looped))(rows)), each, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(nnc.grad(lambda r: nnp.sum(nnc.vmap(looped)(r)))(rows)), each, rtol=1e-12)


@pytest.mark.parametrize("around", ["plain", "scan", "cond", "rows"])
@pytest.mark.parametrize("rule", BACKWARD)
def test_forward_mode_refuses_backward_rules_that_are_not_linear(rule: str, around: str) -> None:
    f = nnc.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, x), lambda r, ct: (BACKWARD[rule](r, ct),))
    run = (lambda x: f(x)) if around == "plain" else partial(AROUND[around][0], f)
    x = np.array([0.3, 0.8, 1.5])
    if rule == "stopped":
        return  # stop_gradient(ct) has the value of ct, so it is linear
    for push in (lambda: nnc.jvp(run, (x,), (x,)), lambda: nnc.linearize(run, x)[1](x)):
        for call in (push, nnc.compile(push)):
            with pytest.raises(UnsupportedError, match="not linear"):
                call()


def test_zeros_beside_a_cotangent_are_linear() -> None:
    def back(r: Any, ct: Any) -> tuple[Any]:
        padded = nnp.concatenate([nnp.zeros(2), ct[2:]]) + nnp.zeros_like(ct).at[0].set(ct[0]) + 0 * np.zeros(3)
        return (nnp.where(r > 5, nnp.pad(ct[1:], (1, 0)), padded),)

    f = nnc.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, x), back)
    assert close(nnc.jvp(f, (X,), (np.array([1.0, 2.0, 3.0]),))[1], [1, 0, 3])
    assert close(nnc.linear_transpose(lambda x: back(0.0, x)[0], X)(np.ones(3))[0], [1, 0, 1])


def test_a_function_that_adds_a_constant_has_no_transpose() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)nnc.linear_transpose: add: a part does not depend.*x \* 2 \+ 1"):
        nnc.linear_transpose(lambda x: x * 2 + 1, X)
    with pytest.raises(UnsupportedError, match="a result: a part does not depend"):
        nnc.linear_transpose(lambda x: nnp.ones(3), X)
