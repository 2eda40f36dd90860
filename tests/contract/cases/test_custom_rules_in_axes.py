"""Derivative rules of users within named axes: each result is summed over an axis once, and each axis is the one that was named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import nnc
import nnc.numpy as nnp
from nnc.distributed import PartitionSpec, make_mesh, shard_map
from nnc.scipy import special
from nnc.scipy.optimize import minimize

X, W = nnp.asarray([1.0, 2.0, 4.0]), nnp.asarray(3.0)
RUN = pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
KIND = pytest.mark.parametrize("kind", ["custom_vjp", "custom_jvp"])


def square(kind: str) -> Any:
    if kind == "custom_vjp":
        one = nnc.custom_vjp(lambda w: w * w)
        one.defvjp(lambda w: (w * w, w), lambda w, ct: (2 * w * ct,))
        return one
    other = nnc.custom_jvp(lambda w: w * w)
    other.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))
    return other


def over(name: str, fun: Callable[..., Any], *values: Any) -> Any:
    return nnc.vmap(fun, axis_name=name)(*values)


@RUN
@KIND
def test_a_rule_of_a_value_that_is_the_same_everywhere_counts_once(run: Callable[..., Any], kind: str) -> None:
    f, ones = square(kind), nnp.ones(2)
    assert run(nnc.grad(lambda w: over("i", lambda x: f(w) * x, X).sum()))(W) == 42
    nested = lambda w: over("i", lambda x: over("j", lambda y: f(w) * x * y, ones), nnp.ones(3)).sum()
    assert run(nnc.grad(nested))(W) == 36
    deep = lambda w: over(
        "k", lambda z: over("i", lambda x: over("j", lambda y: f(w) * x * y * z, ones), X), ones
    ).sum()
    assert run(nnc.grad(deep))(W) == 6 * 7 * 4
    middle = lambda w: over(
        "k", lambda z: over("i", lambda x: over("j", lambda y: f(w * x) * y * z, ones), X), ones
    ).sum()
    assert run(nnc.grad(middle))(W) == 6 * 21 * 4
    assert run(nnc.grad(nnc.grad(nested)))(W) == 12
    inside = lambda w: over("i", lambda x: nnc.grad(lambda w: f(w) * x)(w), X)
    np.testing.assert_array_equal(run(inside)(W), [42, 42, 42])


@RUN
@KIND
def test_shard_map_sums_them_once_as_well(run: Callable[..., Any], kind: str) -> None:
    f, mesh = square(kind), make_mesh((3,), ("i",), simulated=True)
    split, whole = PartitionSpec("i"), PartitionSpec()
    spread = shard_map(lambda w, x: f(w) * x, mesh=mesh, in_specs=(whole, split), out_specs=split)
    assert run(nnc.grad(lambda w: spread(w, X).sum()))(W) == 42
    summed = shard_map(lambda w, x: nnc.psum(f(w) * x.sum(), "i"), mesh=mesh, in_specs=(whole, split), out_specs=whole)
    assert run(nnc.grad(lambda w: summed(w, X)))(W) == 42


@RUN
@KIND
@pytest.mark.parametrize("sizes", [(3, 3), (2, 3)])
def test_a_rule_within_two_axes_asks_for_the_place_along_either(
    run: Callable[..., Any], kind: str, sizes: tuple[int, int]
) -> None:
    def placed(name: str) -> Any:
        place = lambda: nnc.axis_index(name)
        if kind == "custom_vjp":
            one = nnc.custom_vjp(lambda x: x * place())
            one.defvjp(lambda x: (x * place(), None), lambda _, ct: (ct * (1 + place()),))
            return one
        other = nnc.custom_jvp(lambda x: x * place())
        other.defjvp(lambda p, t: (p[0] * place(), t[0] * (1 + place())))
        return other

    grid = nnp.ones(sizes)
    for name, place in (("i", np.arange(sizes[0])[:, None]), ("j", np.arange(sizes[1]))):
        f = placed(name)
        whole = lambda x, f=f: nnc.vmap(nnc.vmap(f, axis_name="j"), axis_name="i")(x)
        wanted = np.broadcast_to(1 + place, sizes)
        np.testing.assert_array_equal(run(nnc.value_and_grad(lambda x, w=whole: w(x).sum()))(grid)[1], wanted)
        np.testing.assert_array_equal(run(lambda x, w=whole: nnc.vjp(w, x)[1](grid))(grid)[0], wanted)
        inner = lambda x, f=f: nnc.vmap(nnc.vmap(nnc.grad(f), axis_name="j"), axis_name="i")(x)
        np.testing.assert_array_equal(run(inner)(grid), wanted)
        if kind == "custom_jvp":
            np.testing.assert_array_equal(run(lambda x, w=whole: nnc.jvp(w, (x,), (grid,)))(grid)[1], wanted)
            slope = nnc.grad(lambda x, w=whole: (w(x) ** 2).sum())
            second = nnc.grad(lambda x, s=slope: s(x).sum())
            np.testing.assert_array_equal(run(second)(grid), 2 * np.broadcast_to(place * (1 + place), sizes))


@RUN
def test_a_result_varies_where_its_tangent_does(run: Callable[..., Any]) -> None:
    constant = nnc.custom_jvp(lambda x: nnp.asarray(1.0))
    constant.defjvp(lambda p, t: (nnp.asarray(1.0), t[0] * p[0]))
    backwards = nnc.custom_vjp(lambda x: nnp.asarray(1.0))
    backwards.defvjp(lambda x: (nnp.asarray(1.0), x), lambda x, ct: (ct * x,))
    through = nnc.custom_jvp(lambda x: nnc.pmean(x, "i"))
    through.defjvp(lambda p, t: (through(*p), t[0]))
    np.testing.assert_array_equal(
        run(lambda x: nnc.jvp(lambda x: over("i", constant, x), (x,), (nnp.ones(3),)))(X)[1], X
    )
    for f, wanted in ((constant, X), (backwards, X), (through, np.ones(3))):
        np.testing.assert_array_equal(run(nnc.grad(lambda x, f=f: over("i", f, x).sum()))(X), wanted)
        np.testing.assert_array_equal(run(lambda x, f=f: over("i", nnc.grad(f), x))(X), wanted)
    mean = float(np.mean(np.asarray(X)))
    found = run(lambda x: over("i", nnc.grad(lambda x: through(x) * x), x))(X)
    np.testing.assert_allclose(found, mean + np.asarray(X), rtol=1e-6)
    np.testing.assert_allclose(
        run(nnc.grad(lambda x: over("i", lambda x: through(x) * x, x).sum()))(X), found, rtol=1e-6
    )


@RUN
def test_a_collective_makes_a_result_the_same_everywhere_and_so_its_cotangent(run: Callable[..., Any]) -> None:
    total = nnc.custom_vjp(lambda x: nnc.psum(x, "i"))
    total.defvjp(lambda x: (nnc.psum(x, "i"), None), lambda _, ct: (ct,))
    assert run(lambda w: nnc.vmap(lambda x: total(w * x), out_axes=None, axis_name="i")(X))(W) == 21
    assert run(nnc.grad(lambda w: nnc.vmap(lambda x: total(w * x), out_axes=None, axis_name="i")(X)))(W) == 7
    tangent = nnc.custom_jvp(lambda x: nnc.psum(x, "i"))
    tangent.defjvp(lambda p, t: (tangent(*p), nnc.psum(2 * t[0], "i")))
    assert run(nnc.grad(lambda w: nnc.vmap(lambda x: tangent(w * x), out_axes=None, axis_name="i")(X)))(W) == 14


@RUN
def test_a_rule_that_reads_a_varying_value_from_outside_is_summed(run: Callable[..., Any]) -> None:
    def loss(w: Any, x: Any) -> Any:
        scale = nnc.custom_jvp(lambda w: w * nnc.stop_gradient(x))
        scale.defjvp(lambda p, t: (scale(*p), t[0] * x))
        return scale(w)

    np.testing.assert_array_equal(run(lambda w: over("i", lambda x: nnc.grad(loss)(w, x), X))(W), [7, 7, 7])


def test_solutions_are_differentiated_by_their_equations() -> None:
    least = lambda a: minimize(lambda z: nnp.sum((z - a**2) ** 2), nnp.zeros(1)).x[0]
    found = over("i", lambda x: (nnc.grad(least)(x), nnc.grad(lambda w: least(w * x))(W)), X)
    np.testing.assert_allclose(found, ([2, 4, 8], [2 * 3 * 21] * 3), rtol=1e-4)


@RUN
def test_branches_hold_collectives_where_all_places_take_the_same(run: Callable[..., Any]) -> None:
    test = lambda x: nnc.pmax(x, "i") > 2
    mean = lambda x: nnc.cond(test(x), lambda x: nnc.pmean(x**2, "i"), lambda x: x, x)
    np.testing.assert_array_equal(run(lambda x: over("i", mean, x))(X), [7, 7, 7])
    np.testing.assert_array_equal(run(nnc.grad(lambda x: over("i", mean, x).sum()))(X), [2, 4, 8])
    np.testing.assert_array_equal(run(lambda x: over("i", nnc.grad(mean), x))(X), [2, 4, 8])
    both = lambda x: nnc.cond(nnc.pmax(x, "i") > 9, lambda x: nnc.psum(x, "i"), lambda x: 1.5, x)
    np.testing.assert_array_equal(run(lambda x: over("i", both, x))(X), [1.5, 1.5, 1.5])
    pick = lambda x: nnc.switch(
        nnc.psum(1, "i") - 2, [lambda x: nnc.psum(x, "i"), lambda x: nnc.pmin(x, "i"), lambda x: x], x
    )
    np.testing.assert_array_equal(run(lambda x: over("i", pick, x))(X), [1, 1, 1])


def backwards(fun: Callable[..., Any], forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    made = nnc.custom_vjp(fun)
    made.defvjp(forward, backward)
    return made


@RUN
def test_outputs_vary_each_by_itself_and_constants_of_rules_over_no_axis(run: Callable[..., Any]) -> None:
    both = lambda w: (w, w * nnc.axis_index("k"))
    spread = lambda pick, f: lambda w: nnp.sum(over("k", lambda _: pick(f(w)), X))
    first, second = (lambda pair: pair[0]), (lambda pair: pair[1])
    w = nnp.asarray(2.0)
    for scaled in (
        lambda r, ct: r * 1.5 * ct,
        lambda r, ct: r * ct * nnp.float32(1.5),
        lambda r, ct: nnp.where(ct == ct, r * ct, 0.0) * 1.5,
        lambda r, ct: nnc.cond(True, lambda c: c * 1.5, lambda c: c, r * ct),
        lambda r, ct: nnc.scan(lambda c, s: (c * s, None), r * ct, nnp.asarray([0.5, 3.0]))[0],
        lambda r, ct: nnc.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, c[1] * 1.5), (0, r * ct))[1],
        nnc.checkpoint(lambda r, ct: nnp.exp(nnp.log(1.5)) * r * ct),
    ):
        f = backwards(both, lambda w: (both(w), w), lambda r, ct, s=scaled: (s(r, ct[0]),))
        np.testing.assert_allclose(run(nnc.grad(spread(first, f)))(w), 9, rtol=1e-6)
        np.testing.assert_allclose(run(nnc.grad(spread(second, f)))(w), 0)
        np.testing.assert_allclose(run(nnc.grad(spread(sum, f)))(w), 9, rtol=1e-6)
        g = backwards(both, lambda w: (both(w), w), lambda r, ct, s=scaled: (s(r, ct[1]),))
        np.testing.assert_allclose(run(nnc.grad(spread(second, g)))(w), 9, rtol=1e-6)
    named = lambda w: {"a": w, "b": [w * nnc.axis_index("i") + nnc.axis_index("k")]}
    tree = backwards(named, lambda w: (named(w), (w, 3.0)), lambda r, ct: (0.5 * r[0] * r[1] * ct["a"],))
    nested = lambda w: over("i", lambda x: over("k", lambda y: tree(w)["a"] * x * y, nnp.ones(2)), X).sum()
    assert run(nnc.grad(nested))(w) == 3 * 2 * 7
    moved = nnc.custom_jvp(both)
    moved.defjvp(lambda p, t: (both(*p), (t[0] * p[0] * 1.5, t[0] * nnc.axis_index("k"))))
    assert run(nnc.grad(spread(first, moved)))(w) == 9
    assert run(nnc.grad(spread(second, moved)))(w) == 3
    assert run(nnc.grad(nnc.grad(spread(first, moved))))(w) == 4.5


@RUN
def test_a_number_beside_a_collective_leaves_its_result_the_same_everywhere(run: Callable[..., Any]) -> None:
    each = lambda f: nnc.grad(lambda x: nnp.sum(over("i", f, x)))
    for fun, slope in (
        (lambda x: nnc.pmean(x, "i"), 1.0),
        (lambda x: nnc.psum(x, "i") * 0.5, 1.0),
        (lambda x: nnc.psum(x, "i"), 1.0),
        (lambda x: nnc.pmax(x, "i") + 1, 2.0),
    ):
        f = backwards(fun, lambda x, f=fun: (f(x), None), lambda _, ct, s=slope: (s * ct,))
        np.testing.assert_array_equal(run(each(f))(X), np.full(3, 3 * slope))
        whole = lambda x, f=f: nnc.vmap(f, out_axes=None, axis_name="i")(x)
        np.testing.assert_array_equal(run(nnc.grad(whole))(X), np.full(3, slope))


@RUN
def test_outputs_vary_where_the_derivatives_of_rules_do(run: Callable[..., Any]) -> None:
    place, w, weights = (lambda: nnc.axis_index("i")), nnp.asarray(2.0), X  # places 0, 1, 2 with weights 1, 2, 4

    def check(f: Any, wanted: float, pick: Callable[..., Any] = lambda y: y) -> None:
        outside = nnc.grad(lambda w: over("i", lambda x: pick(f(w)) * x, weights).sum())
        inside = lambda w: over("i", lambda x: nnc.grad(lambda w: pick(f(w)) * x)(w), weights)
        assert run(outside)(w) == wanted
        np.testing.assert_array_equal(run(inside)(w), np.full(3, wanted))

    twice, pair = (lambda w: w * 2), (lambda w: (w, w * place()))
    first, second = (lambda y: y[0]), (lambda y: y[1])
    tangent = nnc.custom_jvp(twice)
    tangent.defjvp(lambda p, t: (tangent(*p), t[0] * p[0] * place()))
    check(tangent, 2 * 10)
    assert run(nnc.grad(nnc.grad(lambda w: over("i", lambda x: tangent(w) * x, weights).sum())))(w) == 10
    check(backwards(twice, lambda w: (twice(w), w), lambda w, ct: (ct * w * place(),)), 2 * 10)
    check(backwards(twice, lambda w: (twice(w), w * place()), lambda r, ct: (ct * r,)), 2 * 10)
    mixed = backwards(pair, lambda w: (pair(w), w), lambda w, ct: (ct[0] * w + ct[1] * 3,))
    check(mixed, 2 * 7, first)
    check(mixed, 3 * 7, second)
    check(mixed, 5 * 7, sum)
    summed = backwards(pair, lambda w: (pair(w), w), lambda w, ct: (ct[0] * w + nnc.psum(ct[1] * 3, "i"),))
    check(summed, 5 * 7, sum)  # the rule sums by itself
    scaled = nnc.custom_jvp(pair)
    scaled.defjvp(lambda p, t: (scaled(*p), (t[0] * place(), t[0])))
    check(scaled, 10, first)
    check(scaled, 7, second)


def test_rules_that_call_functions_of_the_next_order_end() -> None:
    f = lambda w: over("i", lambda x: x * over("j", lambda y: y * special.bessel_jn(w, v=1)[1], X), X).sum()
    np.testing.assert_allclose(
        np.asarray(nnc.value_and_grad(f)(W)), [49 * scipy.special.jvp(1, 3.0, n) for n in (0, 1)], rtol=1e-5
    )


@RUN
@KIND
def test_a_constant_that_is_made_to_vary_is_not_summed(run: Callable[..., Any], kind: str) -> None:
    constant = lambda names: nnc.pvary(nnp.full(2, 1.5), names)
    for names, inner in (("i", False), (("i", "j"), True), ("j", True), ("i", True)):
        function = lambda w: (constant(names), nnc.pmean(w, names), w)  # noqa: B023
        if kind == "custom_vjp":
            f = nnc.custom_vjp(function)
            f.defvjp(lambda w: (f(w), w), lambda w, cts: (cts[0] * w + cts[1] + cts[2],))  # noqa: B023
        else:
            f = nnc.custom_jvp(function)
            f.defjvp(lambda p, t: (f(*p), (t[0] * p[0], t[0], t[0])))  # noqa: B023

        def mapped(w: Any) -> Any:
            within = lambda x: over("j", lambda y: f(w), nnp.ones(3)) if inner else f(w)  # noqa: B023
            return over("i", within, X)

        w = nnp.asarray([3.0, 5.0])
        found = run(mapped)(w)
        np.testing.assert_array_equal(found[0], np.full(found[0].shape, 1.5), err_msg=str(names))
        np.testing.assert_array_equal(found[1], np.broadcast_to(w, found[1].shape))
        places = found[0].size // 2
        np.testing.assert_array_equal(run(nnc.grad(lambda w: mapped(w)[0].sum()))(w), places * w, err_msg=str(names))
