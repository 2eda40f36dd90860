"""Collectives over named axes: values and derivatives, inside and around other transforms."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.scipy.sparse.linalg import cg
from tests.unit.trace.core import collective_cases as cases

EXPECTED = json.loads(Path(__file__).with_name("jax_shard_map.json").read_text())
OPS = SimpleNamespace(
    psum=nnc.psum, pmean=nnc.pmean, all_gather=nnc.all_gather, psum_scatter=nnc.psum_scatter, ppermute=nnc.ppermute,
    all_to_all=nnc.all_to_all, axis_index=nnc.axis_index, axis_size=nnc.axis_size, scan=nnc.scan, cond=nnc.cond,
    grad=nnc.grad, jvp=nnc.jvp, asarray=nnp.asarray, pvary=nnc.pvary,
)  # fmt: skip


def same(got: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.__name__)
def test_values_and_derivatives_are_those_of_shard_map(case: cases.Case, compiled: bool) -> None:
    mapped = nnc.vmap(lambda x: cases.results(OPS, case, nnp.asarray(cases.W), x), axis_name="i")
    found = (nnc.compile(mapped) if compiled else mapped)(cases.X)
    for got, want in zip(found, EXPECTED[case.__name__], strict=True):
        same(got, want)


PLACES, ROWS = 3, np.arange(18.0).reshape(3, 2, 3) ** 2 / 7
W = np.array([0.5, -1.25, 2.0])


def places(fun: Any, *args: Any) -> Any:
    """The results of a function at all places of the axis "i"."""
    return nnc.vmap(fun, axis_name="i")(*args)


# -- values ------------------------------------------------------------------------------------------------------------


def test_sums_means_and_extrema_are_the_same_in_all_rows() -> None:
    found = places(lambda x: [f(x, "i") for f in (nnc.psum, nnc.pmean, nnc.pmax, nnc.pmin)], ROWS)
    for got, want in zip(found, (ROWS.sum(0), ROWS.mean(0), ROWS.max(0), ROWS.min(0)), strict=True):
        same(got, np.broadcast_to(want, ROWS.shape))


def test_results_that_are_the_same_need_no_axis_in_the_result() -> None:
    same(nnc.vmap(lambda x: nnc.psum(x, "i"), axis_name="i", out_axes=None)(ROWS), ROWS.sum(0))
    with pytest.raises(nnc.errors.ArgumentError, match="differs from row to row"):
        nnc.vmap(lambda x: x, axis_name="i", out_axes=None)(ROWS)


def test_bools_are_counted_and_integers_stay_integers() -> None:
    x = np.array([1, 5, 9])
    count, total, mean, largest, some = places(
        lambda x: (nnc.psum(x > 2, "i"), nnc.psum(x, "i"), nnc.pmean(x, "i"), nnc.pmax(x, "i"), nnc.pmax(x > 2, "i")), x
    )
    assert count.dtype == np.int32 and count.tolist() == [2, 2, 2]
    assert total.dtype == x.dtype and total.tolist() == [15, 15, 15]
    assert mean.tolist() == [5.0, 5.0, 5.0] and largest.tolist() == [9, 9, 9] and some.tolist() == [True] * 3


def test_values_that_are_the_same_everywhere_count_once_for_each_place() -> None:
    w = nnp.asarray(W)
    found = places(lambda x: (nnc.psum(w, "i"), nnc.pmean(w, "i"), nnc.pmax(w, "i"), nnc.psum(2.5, "i")), ROWS)
    for got, want in zip(found, (3 * W, W, W, 7.5), strict=True):
        same(got, np.broadcast_to(want, (3, *np.shape(want))))
    assert places(lambda x: x * 0 + nnc.psum(1, "i"), np.zeros(3)).tolist() == [3.0] * 3


def test_gathered_values_stand_where_axis_says() -> None:
    first, last, tiled = places(
        lambda x: (nnc.all_gather(x, "i"), nnc.all_gather(x, "i", axis=-1), nnc.all_gather(x, "i", axis=1, tiled=True)),
        ROWS,
    )
    same(first[1], ROWS)
    same(last[2], np.moveaxis(ROWS, 0, -1))
    same(tiled[0], np.concatenate(list(ROWS), axis=1))


def test_scattered_sums_are_parts_of_the_sum() -> None:
    x = np.arange(54.0).reshape(3, 3, 6)
    plain, tiled = places(
        lambda x: (nnc.psum_scatter(x, "i"), nnc.psum_scatter(x, "i", scatter_dimension=1, tiled=True)), x
    )
    same(plain, x.sum(0))
    same(tiled, np.stack(np.split(x.sum(0), 3, axis=1)))


def test_permuted_values_come_from_their_sources_and_others_are_zero() -> None:
    ring, part = places(
        lambda x: (nnc.ppermute(x, "i", [(k, (k + 1) % 3) for k in range(3)]), nnc.ppermute(x, "i", [(2, 0)])), ROWS
    )
    same(ring, np.roll(ROWS, 1, axis=0))
    same(part, np.stack([ROWS[2], ROWS[2] * 0, ROWS[2] * 0]))


def test_exchanged_parts_stand_in_the_order_of_their_senders() -> None:
    x = np.arange(54.0).reshape(3, 6, 3)
    plain, moved, tiled = places(
        lambda x: (
            nnc.all_to_all(x, "i", 1, 1), nnc.all_to_all(x, "i", 1, 0), nnc.all_to_all(x, "i", 0, 1, tiled=True)
        ),
        x,
    )  # fmt: skip
    same(plain, np.moveaxis(x, 2, 0).swapaxes(1, 2))
    same(moved, np.moveaxis(x, 2, 0))
    same(tiled, np.stack([np.concatenate([x[k, 2 * p : 2 * p + 2] for k in range(3)], axis=1) for p in range(3)]))


def test_pytrees_are_joined_leaf_by_leaf() -> None:
    tree = {"a": ROWS, "b": (ROWS[:, 0], ROWS[:, 1])}
    found = places(lambda t: nnc.psum(t, "i"), tree)
    same(found["a"][0], ROWS.sum(0))
    same(found["b"][1][2], ROWS[:, 1].sum(0))


def test_tuples_of_axes_count_the_first_one_slowest() -> None:
    x, y = np.array([1.0, 2.0]), np.array([10.0, 20.0, 30.0])

    def f(a: Any, b: Any) -> Any:
        z, both = a * b, ("i", "j")
        parts = nnp.arange(6.0) * z
        return (
            nnc.psum(z, both), nnc.pmax(z, both), nnc.all_gather(z, both), nnc.axis_index(both), nnc.ppermute(z, both, [(0, 5)]),
            nnc.psum_scatter(parts, both), nnc.all_to_all(parts, both, 0, 0), nnc.axis_size(both) + z * 0,
        )  # fmt: skip

    inner = nnc.vmap(f, in_axes=(None, 0), axis_name="j")
    found = nnc.vmap(inner, in_axes=(0, None), axis_name="i")(x, y)
    z = np.multiply.outer(x, y)
    for got, want in zip(found, (
        np.full((2, 3), z.sum()), np.full((2, 3), z.max()), np.broadcast_to(z.ravel(), (2, 3, 6)), np.arange(6).reshape(2, 3),
        np.array([[0, 0, 0], [0, 0, z[0, 0]]]), np.arange(6.0).reshape(2, 3) * z.sum(),
        np.multiply.outer(np.arange(6.0), z.ravel()).reshape(2, 3, 6), np.full((2, 3), 6.0),
    ), strict=True):  # fmt: skip
        same(got, want)


# -- which axis --------------------------------------------------------------------------------------------------------


def test_a_collective_joins_the_rows_of_its_axis_alone() -> None:
    x = np.arange(6.0).reshape(2, 3)

    def f(a: Any) -> Any:
        return nnc.psum(a, "i"), nnc.psum(a, "j")

    over_i, over_j = nnc.vmap(nnc.vmap(f, axis_name="j"), axis_name="i")(x)
    same(over_i, np.broadcast_to(x.sum(0), (2, 3)))
    same(over_j, np.broadcast_to(x.sum(1, keepdims=True), (2, 3)))


def test_mapped_axes_without_the_name_are_left_alone() -> None:
    x = np.arange(12.0).reshape(2, 3, 2) + 1
    inside = places(lambda rows: nnc.vmap(lambda v: v / nnc.psum(v, "i"))(rows), x)
    outside = nnc.vmap(lambda part: places(lambda v: v / nnc.psum(v, "i"), part), in_axes=1, out_axes=1)(x)
    same(inside, x / x.sum(0))
    same(outside, x / x.sum(0))
    x = x.swapaxes(1, 2)
    for collective in (
        lambda v: nnc.all_gather(v, "i"), lambda v: nnc.psum_scatter(v, "i"), lambda v: nnc.all_to_all(v, "i", 0, 0),
        lambda v: nnc.ppermute(v, "i", [(0, 1)]), lambda v: nnc.pmax(v, "i"),
    ):  # fmt: skip
        mapped = places(nnc.vmap(collective, in_axes=1), x)
        looped = np.stack([np.asarray(places(collective, x[:, :, k])) for k in range(3)], axis=1)
        same(mapped, looped)


def test_an_inner_axis_hides_an_outer_one_of_the_same_name() -> None:
    x = np.arange(6.0).reshape(2, 3)
    found = places(lambda row: nnc.psum(places(lambda v: nnc.psum(v, "i"), row), "i"), x)
    same(found, np.full((2, 3), x.sum()))


# -- derivatives -------------------------------------------------------------------------------------------------------


def test_gradients_of_values_that_are_the_same_are_sums_over_the_rows() -> None:
    w = nnp.asarray(np.array(2.0))
    x = np.array([1.0, 3.0])
    same(places(lambda x: nnc.grad(lambda w: w * x)(w), x), [4, 4])
    same(places(lambda x: nnc.grad(lambda w: w * x)(nnc.pvary(w, "i")), x), [1, 3])
    same(nnc.vmap(lambda x: nnc.grad(lambda w: w * x)(w))(x), [1, 3])


def test_hessians_within_an_axis_are_those_of_the_sum() -> None:
    def loss(w: Any, x: Any) -> Any:
        return nnc.psum(((w * x) ** 3).sum() + (w[0] * x[1]) ** 2, "i")

    x, w = ROWS[:, 0] / 10, nnp.asarray(W)
    want = np.diag(6 * W * (x**3).sum(0)) + np.diag([2 * (x[:, 1] ** 2).sum(), 0, 0])
    for transform in (nnc.hessian, lambda f: nnc.jacrev(nnc.jacfwd(f)), lambda f: nnc.jacrev(nnc.grad(f))):
        same(places(lambda x, t=transform: t(lambda w: loss(w, x))(w), x)[1], want)


def test_derivatives_of_extrema_are_shared_among_equal_places() -> None:
    x = np.array([1.0, 3.0, 3.0])
    same(places(lambda x: nnc.grad(lambda x: nnc.pmax(x * x, "i"))(x), x), [0, 3, 3])
    same(places(lambda x: nnc.grad(lambda x: nnc.pmin(x * x, "i"))(x), x), [2, 0, 0])
    same(places(lambda x: nnc.jvp(lambda x: nnc.pmax(x, "i"), (x,), (x,))[1], x), [3, 3, 3])


def test_derivatives_around_the_axis_are_those_of_the_whole_function() -> None:
    x = ROWS[:, 0] / 10

    def joined(w: Any) -> Any:
        return places(
            lambda x: nnc.psum((w * x).sum(), "i") ** 2 * nnc.pmean(x[0] * w[1], "i") + nnc.axis_index("i") * w[2], x
        ).sum()

    def plain(w: Any) -> Any:
        return 3 * (w * x).sum() ** 2 * (x[:, 0] * w[1]).mean() + 3 * w[2]

    w = nnp.asarray(W)
    for transform in (nnc.grad, nnc.jacfwd, nnc.hessian):
        same(transform(joined)(w), transform(plain)(w))


def test_cotangents_and_tangents_are_summed_and_spread_like_their_values() -> None:
    w = nnp.asarray(np.array(3.0))
    x = np.array([1.0, 2.0])
    same(places(lambda x: nnc.vjp(lambda w: w * 2, w)[1](x)[0], x), [6, 6])  # of a result that is the same
    same(places(lambda x: nnc.vjp(lambda v: v * x, x)[1](w)[0], x), [3, 6])
    same(places(lambda x: nnc.jvp(lambda w: nnc.psum(w * 2, "i"), (w,), (x,))[1], x), [6, 6])
    same(places(lambda x: nnc.linear_transpose(lambda w: w * x, w)(w)[0], x), [9, 9])
    same(places(lambda x: nnc.linearize(lambda v: nnc.psum(v * x, "i"), x)[1](w), x), [9, 9])


def test_rules_of_users_see_the_axis() -> None:
    @nnc.custom_vjp
    def scale(w: Any, x: Any) -> Any:
        return w * x

    scale.defvjp(lambda w, x: (w * x, (w, x)), lambda kept, ct: (ct * kept[1], ct * kept[0]))

    @nnc.custom_jvp
    def square(x: Any) -> Any:
        return x * x

    square.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))
    w, x = nnp.asarray(np.array(3.0)), np.array([1.0, 2.0])
    same(places(lambda x: nnc.grad(lambda w: scale(w * w, x))(w), x), [18, 18])
    same(places(lambda x: nnc.grad(nnc.grad(lambda w: scale(w * w, x)))(w), x), [6, 6])
    same(places(lambda x: nnc.grad(lambda w: square(w * x))(w), x), [30, 30])
    same(places(lambda x: nnc.grad(nnc.checkpoint(lambda w: nnc.psum((w * x) ** 2, "i") * w))(w), x), [135, 135])


def test_a_users_rule_whose_function_captures_a_varying_value_is_summed() -> None:
    def loss(w: Any, x: Any) -> Any:
        @nnc.custom_vjp
        def scale(w: Any) -> Any:
            return w * nnc.stop_gradient(x)

        scale.defvjp(lambda w: (scale(w), ()), lambda kept, ct: (ct * x,))
        return scale(w)

    same(places(lambda x: nnc.grad(loss)(nnp.asarray(np.array(3.0)), x), np.array([1.0, 2.0])), [3, 3])


def test_rules_of_users_join_values_within_the_axis_and_when_it_is_gone() -> None:
    @nnc.custom_vjp
    def total(v: Any) -> Any:
        return nnc.psum(v, "i")

    total.defvjp(lambda v: (nnc.psum(v, "i"), nnc.axis_index("i")), lambda place, ct: (ct + 0 * place,))

    @nnc.custom_vjp
    def gather_gradients(v: Any) -> Any:
        return v

    gather_gradients.defvjp(lambda v: (v, ()), lambda kept, ct: (nnc.psum(ct, "i"),))

    @nnc.custom_jvp
    def tenfold(v: Any) -> Any:
        return nnc.psum(v, "i")

    tenfold.defjvp(lambda primals, tangents: (tenfold(*primals), 10 * nnc.psum(tangents[0], "i")))
    w, x = nnp.asarray(np.array(3.0)), np.array([1.0, 2.0])
    repeated = lambda w, x: nnc.scan(lambda c, _: (total(c * x) * w, None), 1.0, None, 2)[0]
    several = lambda x: nnc.vmap(lambda u: total(w * x * u))(nnp.arange(3.0))
    same(places(several, x), np.multiply.outer([9, 9], np.arange(3)))
    for run in (lambda f: f, nnc.compile):
        same(run(nnc.grad(lambda w: places(lambda x: total(w * x), x).sum()))(w), 6)
        same(run(nnc.grad(lambda w: places(lambda x: nnc.psum(w * x, "i"), x).sum()))(w), 6)
        same(run(nnc.grad(lambda w: places(lambda x: tenfold(w * x), x).sum()))(w), 60)
        same(run(nnc.grad(lambda w: places(lambda x: repeated(w, x), x).sum()))(w), 2 * 9 * 2 * 3)
        each = lambda v: places(lambda v, x: gather_gradients(v) * x, v, x).sum()
        same(run(nnc.grad(each))(nnp.asarray(x)), [3, 3])
        inner = lambda w: places(lambda x: nnc.vmap(lambda u: total(w * x * u))(nnp.arange(3.0)), x).sum()
        same(run(nnc.grad(inner))(w), 2 * 3 * 3)
    same(places(lambda x: nnc.grad(lambda w: total(w * x))(w), x), [3, 3])


def test_solutions_of_linear_systems_may_be_spread_over_the_places() -> None:
    rng = np.random.default_rng(0)
    parts = rng.standard_normal((2, 3, 3))
    parts = parts @ parts.swapaxes(1, 2) + 3 * np.eye(3)
    b, total = rng.standard_normal(3), parts.sum(0)

    def local(a: Any, b: Any) -> Any:
        return (cg(lambda x: a @ x, b, tol=1e-13)[0] ** 2).sum()

    def joined(a: Any, b: Any) -> Any:
        return (cg(lambda x: nnc.psum(a @ x, "i"), b, tol=1e-13)[0] ** 2).sum()

    want = sum(np.linalg.solve(a, 2 * np.linalg.solve(a, b)) for a in parts)
    same(places(lambda a: nnc.grad(local, 1)(a, nnp.asarray(b)), parts)[1], want)
    x = np.linalg.solve(total, b)
    same(places(lambda a: nnc.grad(joined, 1)(a, nnp.asarray(b)), parts)[0], np.linalg.solve(total, 2 * x))
    want = -np.outer(np.linalg.solve(total, 2 * x), x)
    same(places(lambda a: nnc.grad(joined)(a, nnp.asarray(b)), parts)[0], want)


# -- loops and branches ------------------------------------------------------------------------------------------------


def power(w: Any, x: Any) -> Any:
    return nnc.scan(lambda c, _: (c * w * x, None), 1.0, None, 4)[0]


@pytest.mark.parametrize("checkpoint", [None, "sqrt", 2])
def test_carried_values_may_begin_to_vary(checkpoint: Any) -> None:
    def power(w: Any, x: Any) -> Any:
        return nnc.scan(lambda c, _: (c * w * x, None), 1.0, None, 4, checkpoint=checkpoint)[0]

    w, x = nnp.asarray(np.array(3.0)), np.array([1.0, 2.0])
    same(places(lambda x: power(w, x), x), [81, 81 * 16])
    same(places(lambda x: nnc.grad(power)(w, x), x), [4 * 27 * 17] * 2)
    same(places(lambda x: nnc.hessian(power)(w, x), x), [12 * 9 * 17] * 2)


def test_training_within_a_scan_moves_all_places_alike() -> None:
    x = np.array([1.0, 0.5])

    def train(x: Any) -> Any:
        step = lambda w, _: (w - 0.1 * nnc.grad(lambda w: (w * x - 1) ** 2)(w), nnc.psum((w * x - 1) ** 2, "i"))
        return nnc.scan(step, nnp.asarray(np.array(3.0)), None, 5)

    w, losses = nnc.compile(lambda x: nnc.vmap(train, axis_name="i", out_axes=None)(x))(x)
    want, seen = 3.0, []
    for _ in range(5):
        seen.append(((want * x - 1) ** 2).sum())
        want -= 0.1 * (2 * (want * x - 1) * x).sum()
    same(w, want)
    same(losses, seen)


def test_loops_whose_test_is_the_same_may_join_values() -> None:
    x = np.array([1.0, 2.0])

    def summed(x: Any, w: Any) -> Any:
        return nnc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, nnc.psum(c[1] * x * w, "i")), (0, 1.0))[1]

    same(places(lambda x: summed(x, nnp.asarray(np.array(1.0))), x), [9, 9])
    same(places(lambda x: nnc.grad(summed, 1)(x, nnp.asarray(np.array(1.0))), x), [18, 18])
    until = lambda x: nnc.while_loop(lambda c: nnc.pmax(c < 10, "i"), lambda c: c + nnc.psum(c, "i"), x)
    same(places(until, x), [13, 14])


def test_loops_whose_test_varies_run_each_row_to_its_own_end() -> None:
    x, w = np.array([1.0, 2.0]), nnp.asarray(np.array(3.0))

    def grow(w: Any, x: Any) -> Any:
        return nnc.while_loop(lambda c: c < 10, lambda c: c * w, x)

    same(places(lambda x: grow(w, x), x), [27, 18])
    same(places(lambda x: nnc.grad(grow)(w, x), x), [27 + 12] * 2)
    same(places(lambda x: nnc.hessian(grow)(w, x), x), [18 + 4] * 2)
    inner = lambda x: nnc.while_loop(lambda c: c < 10, lambda c: c + nnc.grad(lambda v: v * v * x)(w), x)
    same(places(inner, x), [13, 14])


def test_branches_agree_on_the_axes_over_which_results_vary() -> None:
    x, w = np.array([1.0, 2.0]), nnp.asarray(np.array(3.0))
    varying = lambda w, x: nnc.cond(x > 1, lambda w: w * w * x, lambda w: w, w)
    captured = lambda w, x: nnc.cond(x > 1, lambda: w * w * x, lambda: w)
    fixed = lambda w, x: nnc.cond(w > 1, lambda w: w * w * x, lambda w: w, w)
    other = lambda w, x: nnc.cond(w > 5, lambda w: w * w * x, lambda w: w, w)
    for branch, want, second in ((varying, 13, 4), (captured, 13, 4), (fixed, 18, 6), (other, 2, 0)):
        same(places(lambda x, b=branch: nnc.grad(b)(w, x), x), [want] * 2)
        same(places(lambda x, b=branch: nnc.hessian(b)(w, x), x), [second] * 2)


def test_compiled_functions_run_within_an_axis_and_around_it() -> None:
    x, w = np.array([1.0, 2.0]), nnp.asarray(np.array(3.0))
    inner = nnc.compile(lambda w, x: nnc.grad(lambda w: (w * x) ** 2)(w))
    same(nnc.compile(lambda w: places(lambda x: inner(w, x), x))(w), [30, 30])
    same(nnc.scan(lambda c, _: (c + places(lambda x: nnc.psum(c * x, "i"), x)[0], None), w, None, 2)[0], 48)
    summed = nnc.compile(lambda x: places(lambda x: nnc.psum(x, "i"), x))
    assert "psum" not in str(summed.lower(x).graph) and "reduce_sum" in str(summed.lower(x).graph)


def test_no_command_of_axes_is_left_in_the_graph_of_the_whole() -> None:
    def f(w: Any, x: Any) -> Any:
        return places(lambda x: nnc.grad(lambda w: nnc.psum((w * x) ** 2, "i") * w)(w), x)

    graph = nnc.make_graph(f)(3.0, np.array([1.0, 2.0]))
    assert not {node.command.name for node in graph.walk()} & {"psum", "pvary"}


@pytest.mark.parametrize("varies", [True, False])
@pytest.mark.parametrize("run", [lambda f: f, nnc.compile])
def test_means_of_integers_do_not_wrap_around(run: Any, varies: bool) -> None:
    x = nnp.asarray([100, 120], "int8")
    found = run(nnc.vmap(lambda v: nnc.pmean(v if varies else x, "i"), axis_name="i"))(x)
    assert found.dtype == np.float32
    assert found.tolist() == ([110.0, 110.0] if varies else [[100.0, 120.0]] * 2)
