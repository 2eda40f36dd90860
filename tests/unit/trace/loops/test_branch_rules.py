"""Derivatives and batches of branches: the untaken one is neither run nor felt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.errors import ArgumentError, LinAlgError, NncError, OutOfBoundsError

RUN = pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
XS = np.array([1.3, 0.0, -1.0, 0.4])


def near(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-12)


def singular(x: Any) -> Any:
    return nnc.cond(x > 0, lambda x: nnp.sqrt(x) + nnp.log(x) / x, lambda x: x * x * 2 - x, x)


def exact(x: float, order: int) -> float:
    if x <= 0:
        return (2 * x * x - x, 4 * x - 1, 4.0)[order]
    log = np.log(x)
    return (
        np.sqrt(x) + log / x,
        0.5 / np.sqrt(x) + (1 - log) / x**2,
        -0.25 * x**-1.5 + (2 * log - 3) / x**3,
    )[order]


@RUN
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_untaken_branch_does_not_poison_values_or_derivatives(run: Callable[..., Any], order: int) -> None:
    wanted = [exact(x, order) for x in XS]
    for modes in ((nnc.grad, nnc.grad), (nnc.jacfwd, nnc.grad), (nnc.grad, nnc.jacfwd), (nnc.jacfwd, nnc.jacfwd)):
        f: Any = singular
        for mode in modes[:order]:
            f = mode(f)
        assert near([f(x) for x in XS], wanted)
        assert near(run(nnc.vmap(f))(XS), wanted)
    together = lambda xs: nnp.sum(nnc.vmap(singular)(xs))
    if order == 1:
        assert near(run(nnc.grad(together))(XS), wanted)
    if order == 2:
        assert near(run(nnc.hessian(together))(XS), np.diag(wanted))


@RUN
def test_operands_captures_and_outer_captures_all_get_gradients(run: Callable[..., Any]) -> None:
    def f(p: Any) -> Any:
        def inside(a: Any, b: Any) -> Any:
            return nnc.switch(p[3].astype("int64"), [lambda: a * p[1], lambda: b * b * p[2], lambda: a + p[1] * p[2]])

        return nnc.cond(p[0] > 0, lambda a, b: inside(a, b) * p[0], lambda a, b: a - p[2], p[1], p[2] * 2)

    for p in ([0.5, 2.0, 3.0, 0.2], [0.5, 2.0, 3.0, 1.2], [0.5, 2.0, 3.0, 2.2], [-0.5, 2.0, 3.0, 1.2]):
        x, h = np.array(p), 1e-6
        wanted = [(float(f(x + h * e)) - float(f(x - h * e))) / (2 * h) for e in np.eye(4)]
        assert np.allclose(run(nnc.grad(f))(x), wanted, atol=1e-7)
        assert np.allclose(run(nnc.jacfwd(f))(x), wanted, atol=1e-7)


@RUN
def test_inputs_that_a_branch_returns_or_does_not_read(run: Callable[..., Any]) -> None:
    f = lambda p, x, y: nnc.cond(p, lambda x, y: (y, x), lambda x, y: (x, x), x, y)
    x, y = np.arange(3.0), np.ones(3) * 7
    assert near(run(f)(True, x, y), (y, x)) and near(run(f)(False, x, y), (x, x))
    g = run(nnc.grad(lambda x, y, p: nnp.sum(f(p, x, y)[0] * x), (0, 1)))
    assert near(g(x, y, True), (y, x)) and near(g(x, y, False), (2 * x, 0 * x))
    assert float(nnc.grad(lambda x: nnc.cond(True, lambda: 3.0, lambda: 4.0) + 0 * x)(1.0)) == 0


@RUN
def test_rows_choose_their_own_branch_of_a_switch(run: Callable[..., Any]) -> None:
    branches = [lambda x: x * x, nnp.sin, lambda x: 0 * x + 3]
    f = lambda i, x: nnc.switch(i, branches, x)
    index, x = np.array([2, 0, 1, 0]), XS
    assert near(run(nnc.vmap(f))(index, x), [3, 0, np.sin(-1.0), 0.16])
    assert near(run(nnc.vmap(nnc.grad(f, 1)))(index, x), [0, 0, np.cos(-1.0), 0.8])
    assert near(run(nnc.vmap(f, in_axes=(0, None)))(index, np.float64(2)), [3, 4, np.sin(2.0), 4])
    assert near(run(nnc.vmap(f, in_axes=(None, 0)))(np.int64(1), x), np.sin(x))


@RUN
@pytest.mark.parametrize("index", [[0, 1, 3], [0, -1, 1]])
def test_a_row_whose_index_is_out_of_range_raises(run: Callable[..., Any], index: list[int]) -> None:
    wrong = index[-1] if index[-1] > 2 else -1
    with pytest.raises(OutOfBoundsError, match=rf"index {wrong} is out of range for 3 branches") as caught:
        run(nnc.vmap(lambda i, x: nnc.switch(i, [nnp.sin, nnp.cos, nnp.exp], x)))(np.array(index), np.ones(3))
    assert "test_branch_rules.py" in str(caught.value)
    clipped = nnc.vmap(lambda i, x: nnc.switch(i, [nnp.sin, nnp.cos, nnp.exp], x, mode="clip"))
    assert near(run(clipped)(np.array([-4, 1, 9]), np.ones(3)), [np.sin(1), np.cos(1), np.exp(1)])


def test_one_predicate_for_all_rows_stays_a_branch_and_many_become_a_select() -> None:
    f = lambda p, x: nnc.cond(p, nnp.sin, nnp.cos, x)
    one = nnc.make_graph(nnc.vmap(f, in_axes=(None, 0)))(np.bool_(True), np.ones(3))
    assert [len(node.graphs) for node in one.nodes if node.command.name == "case_of"] == [2]
    assert not {"sin", "cos", "select"} & {node.command.name for node in one.nodes}
    many = nnc.make_graph(nnc.vmap(f))(np.ones(3, bool), np.ones(3))
    assert {"sin", "cos", "select"} <= {node.command.name for node in many.nodes}


@RUN
def test_a_bypass_takes_the_gradient_straight_through(run: Callable[..., Any]) -> None:
    f = lambda i, x, y: nnc.case_of(i, {3: lambda x: (x * x, x), -2: lambda x: (x, 2 * x)}, x, bypass=(y, x))
    for i, value, slope in ((3, 4, (4, 0)), (-2, 2, (1, 0)), (0, 5, (0, 1)), (7, 5, (0, 1))):
        assert float(run(f)(np.int64(i), 2.0, 5.0)[0]) == value
        assert near(run(nnc.grad(lambda x, y, i: f(i, x, y)[0], (0, 1)))(2.0, 5.0, np.int64(i)), slope)
    rows = nnc.vmap(nnc.grad(lambda x, i: f(i, x, 5.0)[0]))(np.full(3, 2.0), np.array([3, 0, -2]))
    assert near(rows, [4, 0, 1])


def test_only_residuals_of_a_branch_are_kept_and_nested_branches_differentiate() -> None:
    def f(x: Any) -> Any:
        def deep(x: Any) -> Any:
            return nnc.cond(x > 1, lambda x: nnc.fori_loop(0, 3, lambda i, c: c * x, x), lambda x: nnp.exp(x) * x, x)

        return nnc.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, deep(c[1]) * 0.3), (0, x))[1]

    for x in (0.4, 0.9, 1.6, 2.5):
        h = 1e-5
        wanted = (float(f(np.float64(x + h))) - float(f(np.float64(x - h)))) / (2 * h)
        second = (float(nnc.grad(f)(np.float64(x + h))) - float(nnc.grad(f)(np.float64(x - h)))) / (2 * h)
        assert np.isclose(float(nnc.grad(f)(np.float64(x))), wanted, rtol=1e-6)
        for outer in (nnc.grad, nnc.jacfwd):
            for inner in (nnc.grad, nnc.jacfwd):
                assert np.isclose(float(outer(inner(f))(np.float64(x))), second, rtol=1e-6)


@RUN
def test_branches_may_keep_tapes_of_different_rows_for_each_row_of_a_batch(run: Callable[..., Any]) -> None:
    def grow(x: Any) -> Any:  # its tape holds vectors
        return nnc.while_loop(lambda c: nnp.sum(c) < 9, lambda c: nnp.sin(c) + c + 1, x)

    def total(x: Any) -> Any:  # its tape holds single numbers
        return x * nnc.while_loop(lambda c: c < 9, lambda c: c * c + 1.1, nnp.sum(x))

    def f(x: Any) -> Any:
        return nnp.sum(nnc.cond(x[0] > 0, grow, total, x))

    rows = np.array([[0.5, 1.0, 0.2], [-0.5, 1.0, 0.2]])
    found = run(lambda x: nnc.vmap(nnc.grad(f))(x))(rows)
    np.testing.assert_allclose(found, [nnc.grad(f)(row) for row in rows], rtol=1e-12)


@RUN
@pytest.mark.parametrize("size", [1, 2, 3])  # of the loop's carry, which the rows of the batch share
@pytest.mark.parametrize("limits", [{}, {"max_steps": 50}])
def test_rows_that_choose_a_branch_may_share_its_tape(
    run: Callable[..., Any], size: int, limits: dict[str, int]
) -> None:
    def f(x: Any, i: Any) -> Any:
        grow = lambda x: nnc.while_loop(lambda c: nnp.sum(c) < 1.5, lambda c: c * c + c, x, **limits)
        return nnp.sum(nnc.cond(i == 0, grow, lambda x: x, x))

    gradient, x, choices = nnc.grad(f), np.linspace(0.1, 0.4, size), np.array([0, 1, 0])
    found = run(nnc.vmap(gradient, (None, 0)))(x, choices)
    np.testing.assert_allclose(found, [gradient(x, i) for i in choices], rtol=1e-12)
    xs = np.stack([x, 2 * x])  # of two batches, one within the other, the inner one shares it
    found = run(nnc.vmap(nnc.vmap(gradient, (None, 0)), (0, None)))(xs, choices)
    np.testing.assert_allclose(found, [[gradient(x, i) for i in choices] for x in xs], rtol=1e-12)
    second = run(nnc.grad(lambda x: nnp.sum(nnc.vmap(gradient, (None, 0))(x, choices) ** 2)))(x)
    np.testing.assert_allclose(
        second, nnc.grad(lambda x: sum(nnp.sum(gradient(x, i) ** 2) for i in choices))(x), rtol=1e-9
    )


@RUN
def test_an_index_of_another_branch_is_no_error_in_the_derivative_of_a_batch(run: Callable[..., Any]) -> None:
    def f(short: Any, long: Any, i: Any) -> Any:
        branches = [lambda x, y, i: nnp.sin(x)[i % 4], lambda x, y, i: nnp.sin(y)[i + 3]]
        return nnc.switch(i % 2, branches, short, long, i)

    gradient, short, long = nnc.grad(f), np.linspace(0.1, 0.4, 4), np.linspace(0.1, 0.9, 9)
    choices = np.array([0, 1, 2, 5])
    found = run(nnc.vmap(gradient, (None, None, 0)))(short, long, choices)
    np.testing.assert_allclose(found, [gradient(short, long, i) for i in choices])


@RUN
@pytest.mark.parametrize("axes", [(0, 0, 0), (0, None, 0), (None, None, 0), (None, 0, 0)])
def test_rows_that_choose_a_branch_keep_a_tape_of_each_round_of_a_scan(run: Callable[..., Any], axes: Any) -> None:
    def f(x: Any, n: Any, i: Any) -> Any:
        def step(c: Any, v: Any) -> tuple[Any, Any]:
            c = nnc.fori_loop(0, n, lambda _, c: nnp.sin(c) + x, c * 0.5 + v)
            return c, c

        return nnc.cond(i == 0, lambda x: nnp.sum(nnc.scan(step, x, XS)[1]), lambda x: x * 2, x)

    gradient = nnc.grad(f)
    rows = [np.array([-0.8, 0.37, 1.6]), np.array([1, 2, 0]), np.array([0, 0, 1])]
    args = [row if axis == 0 else row[0] for row, axis in zip(rows, axes, strict=True)]
    every = [np.broadcast_to(arg, 3) for arg in args]
    found = run(nnc.vmap(gradient, axes))(*args)
    np.testing.assert_allclose(found, [gradient(*row) for row in zip(*every, strict=True)], rtol=1e-12)


@RUN
def test_rows_that_choose_a_branch_keep_the_tapes_of_loops_within_its_loops(run: Callable[..., Any]) -> None:
    def f(x: Any, k: Any) -> Any:
        inner = lambda c, n: nnc.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, nnp.sin(s[1]) + c * 0.3), (0, c))[
            1
        ]
        grow = lambda x: nnc.fori_loop(0, k, lambda i, c: nnp.tanh(inner(c, i + 1)) * x, x)
        return nnp.sum(nnc.cond(x[0] > 0, grow, lambda x: nnc.fori_loop(0, 3 - k, lambda i, c: inner(c * x, k), x), x))

    rows, counts = np.array([[-0.4, 0.7], [0.5, 1.2], [0.3, -0.8], [-0.9, 0.1]]), np.array([1, 3, 2, 2])
    gradient: Any = nnc.grad(f)
    second: Any = nnc.grad(lambda x, k: nnp.sum(gradient(x, k) ** 2))
    for g in (gradient, second):
        wanted = [g(x, k) for x, k in zip(rows, counts, strict=True)]
        np.testing.assert_allclose(run(nnc.vmap(g))(rows, counts), wanted, rtol=1e-9)
    found = run(nnc.grad(lambda rows: nnp.sum(nnc.vmap(gradient)(rows, counts) ** 2)))(rows)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


# -- rows that take another branch --------------------------------------------------------------------------------------

MATRICES = np.array(
    [[[2.0, 1.0], [1.0, 3.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.5], [0.5, 2.0]], [[-1.0, 2.0], [2.0, -4.0]]]
)
REFUSING: dict[str, tuple[Callable[[Any], Any], type[NncError]]] = {
    "solve": (lambda a: nnp.sum(nnp.linalg.solve(a, np.array([1.0, 2.0]))), LinAlgError),
    "inv": (lambda a: nnp.sum(nnp.linalg.inv(a) ** 2), LinAlgError),
    "cholesky": (lambda a: nnp.sum(nnp.linalg.cholesky(a)), LinAlgError),
    "index": (lambda a: a[0, nnp.where(a[0, 0] > 0.5, 1, 7)] ** 2 * a[1, 1], OutOfBoundsError),
    "max_steps": (
        lambda a: nnc.while_loop(lambda c: nnp.abs(c) < 5, lambda c: c * a[0, 0] + a[0, 0], a[0, 0], max_steps=9), ArgumentError,
    ),
    "solve in a loop": (lambda a: nnc.fori_loop(0, 2, lambda i, c: nnp.linalg.solve(a, c), a[0])[1], LinAlgError),
    "solve in a while": (
        lambda a: nnc.while_loop(lambda c: nnp.sum(c) > 0.05, lambda c: nnp.linalg.solve(a, c) / 2, nnp.abs(a[0]) + 1)[1],
        LinAlgError,
    ),
}  # fmt: skip


@RUN
@pytest.mark.parametrize("name", REFUSING)
def test_a_branch_raises_for_rows_that_take_it_alone(run: Callable[..., Any], name: str) -> None:
    body, error = REFUSING[name]
    guarded: Any = lambda a: nnc.cond(a[0, 0] > 0.5, body, lambda a: nnp.sum(a * a * a), a)
    for f in (guarded, nnc.grad(guarded), nnc.grad(lambda a: nnp.sum(nnc.grad(guarded)(a) ** 2))):
        wanted = np.stack([np.asarray(f(a)) for a in MATRICES])
        np.testing.assert_allclose(run(nnc.vmap(f))(MATRICES), wanted, rtol=1e-9, atol=1e-12)
        none = np.stack([np.asarray(f(a)) for a in MATRICES[1::2]])  # no row takes it
        np.testing.assert_allclose(run(nnc.vmap(f))(MATRICES[1::2]), none, rtol=1e-9, atol=1e-12)
    slope = run(nnc.grad(lambda rows: nnp.sum(nnc.vmap(guarded)(rows))))(MATRICES)
    np.testing.assert_allclose(slope, [nnc.grad(guarded)(a) for a in MATRICES], rtol=1e-9, atol=1e-12)
    wrong: Any = lambda a: nnc.cond(a[0, 0] < 0.5, body, lambda a: nnp.sum(a), a)
    with pytest.raises(error):
        run(nnc.vmap(wrong))(MATRICES)


@RUN
def test_branches_within_branches_and_batches_raise_for_their_rows_alone(run: Callable[..., Any]) -> None:
    def f(a: Any, i: Any) -> Any:
        solved = lambda a: nnp.sum(nnp.linalg.solve(a, np.array([1.0, 2.0])))
        inner = lambda a: nnc.switch(i, [lambda a: solved(a) * 2, lambda a: nnp.linalg.inv(a)[0, 1], nnp.sum], a)
        return nnc.cond(a[0, 0] > 0.5, inner, lambda a: nnp.sum(a * a), a)

    numbers = np.array([0, 1, 2])
    wanted = [[nnc.grad(f)(a, i) for i in numbers] for a in MATRICES]
    found = run(nnc.vmap(nnc.vmap(nnc.grad(f), (None, 0)), (0, None)))(MATRICES, numbers)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@RUN
def test_a_linear_branch_that_solves_is_transposed_by_rows(run: Callable[..., Any]) -> None:
    b = np.arange(8.0).reshape(4, 2) + 1

    def solved(b: Any) -> Any:
        return nnc.vmap(lambda a, b: nnc.cond(a[0, 0] > 0.5, lambda b: nnp.linalg.solve(a, b), lambda b: 3 * b, b))(
            MATRICES, b
        )

    each = [np.linalg.inv(a) if a[0, 0] > 0.5 else 3 * np.eye(2) for a in MATRICES]
    (found,) = run(lambda ct: nnc.linear_transpose(solved, b)(ct))(b)
    np.testing.assert_allclose(found, [m.T @ x for m, x in zip(each, b, strict=True)], rtol=1e-9)


@RUN
def test_rules_of_users_see_rows_that_take_their_branch_alone(run: Callable[..., Any]) -> None:
    @nnc.custom_jvp
    def energy(a: Any) -> Any:
        return nnp.sum(a * a)

    energy.defjvp(lambda primals, tangents: (energy(*primals), nnp.sum(nnp.linalg.inv(primals[0]) * tangents[0])))
    f: Any = lambda a: nnc.cond(a[0, 0] > 0.5, energy, nnp.sum, a)
    wanted = [np.linalg.inv(a) if a[0, 0] > 0.5 else np.ones((2, 2)) for a in MATRICES]
    np.testing.assert_allclose(run(nnc.vmap(nnc.grad(f)))(MATRICES), wanted, rtol=1e-9)
    np.testing.assert_allclose(run(nnc.grad(lambda rows: nnp.sum(nnc.vmap(f)(rows))))(MATRICES), wanted, rtol=1e-9)


@RUN
def test_a_batch_of_no_rows_takes_no_branch(run: Callable[..., Any]) -> None:
    f = lambda a: nnc.cond(a[0, 0] > 0.5, nnp.linalg.inv, lambda a: a * 2, a)
    assert run(nnc.vmap(f))(MATRICES[:0]).shape == (0, 2, 2)
    assert run(nnc.vmap(nnc.grad(lambda a: nnp.sum(f(a)))))(MATRICES[:0]).shape == (0, 2, 2)


def from_branch(two: Callable[[Any], Any], x: Any) -> Any:
    return nnc.cond(x[0, 0] > 0, two, lambda x: (x, x * 3), x)[1]


def from_rounds(two: Callable[[Any], Any], x: Any) -> Any:
    return nnc.scan(lambda c, row: (c, two(row)), 0.0, x[None])[1][1]


@RUN
@pytest.mark.parametrize("construct", [from_branch, from_rounds, lambda two, x: nnc.compile(two)(x)[1]])
@pytest.mark.parametrize(
    ("unread", "x"),
    [
        (nnp.linalg.qr, np.diag([1.0, 0.0, 0.0])),
        (lambda x: (x @ nnp.ones((3, 3)) / x,), np.diag([1.0, np.inf, -np.inf])),
    ],
    ids=["singular", "infinite"],
)
def test_a_result_without_a_reader_takes_no_part_in_the_gradient(
    run: Any, construct: Any, unread: Any, x: np.ndarray[Any, Any]
) -> None:
    gradient = run(nnc.grad(lambda x: nnp.sum(construct(lambda x: (unread(x)[0], x * 2), x))))
    assert np.array_equal(gradient(x), np.full((3, 3), 2.0))
    assert np.array_equal(nnc.vmap(gradient)(x[None]), np.full((1, 3, 3), 2.0))
