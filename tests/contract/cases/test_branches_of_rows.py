"""Branches and loops of many rows: a branch runs for the rows that take it, and nested branches stay linear in their depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

RUN = pytest.mark.parametrize("run", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
X = nnp.asarray([1.0, -1.0, 0.25])


def shrunk(x: Any) -> Any:
    """Never ends for a negative number."""
    return nnc.while_loop(lambda y: (y <= 0) | (y > 1e-6), lambda y: y * 0.1, x)


def guarded(x: Any) -> Any:
    return nnc.cond(x >= 0, shrunk, lambda x: 3 * x, x)


@RUN
def test_a_loop_that_never_ends_for_a_row_does_not_run_for_it(run: Callable[..., Any]) -> None:
    np.testing.assert_allclose(run(nnc.vmap(guarded))(X), [1e-7, -3, 2.5e-7], rtol=1e-5)
    slopes = [1e-7, 3, 1e-6]
    np.testing.assert_allclose(run(nnc.vmap(nnc.grad(guarded)))(X), slopes, rtol=1e-5)
    np.testing.assert_allclose(run(nnc.grad(lambda x: nnc.vmap(guarded)(x).sum()))(X), slopes, rtol=1e-5)
    np.testing.assert_allclose(run(lambda x: nnc.jvp(nnc.vmap(guarded), (x,), (nnp.ones(3),)))(X)[1], slopes, rtol=1e-5)
    np.testing.assert_allclose(run(nnc.vmap(guarded, axis_name="i"))(X), [1e-7, -3, 2.5e-7], rtol=1e-5)
    grid = nnp.asarray([[1.0, -1.0], [-1.0, -2.0]])
    np.testing.assert_allclose(run(nnc.vmap(nnc.vmap(guarded)))(grid), [[1e-7, -3], [-3, -6]], rtol=1e-5)
    np.testing.assert_allclose(run(nnc.vmap(nnc.vmap(nnc.grad(guarded))))(grid), [[1e-7, 3], [3, 3]], rtol=1e-5)
    np.testing.assert_array_equal(run(nnc.vmap(guarded))(-X[:1]), [-3])


@RUN
def test_a_loop_in_an_iteration_does_not_run_for_rows_that_are_done(run: Callable[..., Any]) -> None:
    def halved(x: Any) -> Any:
        """The inner loop never ends for 0, with which rows stop."""
        inner = lambda c: nnc.while_loop(lambda y: (y == 0) | (y > 0.5), lambda y: y * 0.5, c)
        return nnc.while_loop(lambda c: c != 0, lambda c: nnp.where(c > 1, inner(c), 0 * c), x)

    np.testing.assert_array_equal(run(nnc.vmap(halved))(nnp.asarray([8.0, 0.0, 0.3])), [0, 0, 0])
    choice = lambda i, x: nnc.switch(
        i, [shrunk, lambda x: 2 * x, lambda x: nnc.fori_loop(0, 3, lambda k, c: c + x, x)], x
    )
    found = run(nnc.vmap(choice))(np.array([1, 0, 2, 1]), nnp.asarray([-1.0, 1.0, -2.0, 0.0]))
    np.testing.assert_allclose(found, [-2, 1e-7, -8, 0], rtol=1e-5)


@RUN
def test_python_is_called_for_rows_that_take_the_branch(run: Callable[..., Any]) -> None:
    seen: list[float] = []

    def noted(x: Any) -> Any:
        nnc.debug.callback(lambda v: seen.append(float(v)), x)
        return x * 2

    def root(x: Any) -> Any:
        return nnc.pure_callback(lambda v: np.sqrt(v), nnc.ShapeDtypeStruct((), "float32"), x)

    f = lambda x: nnc.cond(x > 0, noted, lambda x: x * x, x)
    np.testing.assert_array_equal(run(nnc.vmap(f))(X), [2, 1, 0.5])
    assert sorted(seen) == [0.25, 1]
    seen.clear()
    np.testing.assert_array_equal(run(nnc.vmap(nnc.grad(f)))(X), [2, -2, 2])
    assert sorted(seen) == [0.25, 1]
    seen.clear()
    loop = lambda x: nnc.while_loop(lambda c: c < 3, lambda c: noted(c) / 2 + 1, x)
    np.testing.assert_array_equal(run(nnc.vmap(loop))(nnp.asarray([1.0, 2.0, 5.0])), [3, 3, 5])
    assert sorted(seen) == [1, 2, 2]
    with np.errstate(invalid="raise"):
        np.testing.assert_array_equal(run(nnc.vmap(lambda x: nnc.cond(x > 0, root, lambda x: x, x)))(X), [1, -1, 0.5])
    rows = nnc.vmap(nnc.vmap(f))
    seen.clear()
    np.testing.assert_array_equal(run(rows)(nnp.asarray([[1.0, -1.0], [-1.0, -2.0]])), [[2, 1], [1, 4]])
    assert seen == [1]


def nested(test: Callable[[Any], Any], around: Callable[[Any], Any], depth: int) -> Callable[[Any], Any]:
    def run(x: Any, depth: int) -> Any:
        return x if depth == 0 else nnc.cond(test(x), lambda x: around(run(x, depth - 1)), lambda x: x, x)

    return lambda x: run(x, depth)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "vmap": nnc.vmap,
    "vmap of vmap": lambda f: lambda x: nnc.vmap(nnc.vmap(f))(x[None]),
    "vmap of jvp": lambda f: nnc.vmap(lambda x: nnc.jvp(f, (x,), (x,))),
    "jvp of vmap": lambda f: lambda x: nnc.jvp(nnc.vmap(f), (x,), (x,)),
    "vmap of grad": lambda f: nnc.vmap(nnc.grad(f)),
    "grad of vmap": lambda f: nnc.grad(lambda x: nnc.vmap(f)(x).sum()),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("varies", [True, False])
@pytest.mark.parametrize("loop", [True, False])
def test_nested_branches_are_traced_once_each(transform: str, varies: bool, loop: bool) -> None:
    runs: list[int] = []

    def around(x: Any) -> Any:
        runs.append(1)
        return nnc.while_loop(lambda y: y > 1, lambda y: y / 2, x * 1.1) if loop else x * 1.1

    def size(depth: int) -> int:
        f = nested(lambda x: x > 0 if varies else nnp.asarray(True), around, depth)
        return sum(1 for _ in nnc.make_graph(TRANSFORMS[transform](f))(nnp.ones(2)).walk())

    sizes = [size(depth) for depth in (4, 8, 12)]
    assert len(runs) == 4 + 8 + 12, "the user's function is traced once for each branch"
    steps = np.diff(sizes)
    assert steps[1] <= 2 * steps[0], "residuals are handed out of each branch around theirs: at most quadratic"
    if "grad" not in transform:
        assert steps[1] == steps[0]


@pytest.mark.parametrize("transform", ["vmap of jvp", "jvp of vmap", "vmap of grad", "grad of vmap"])
@pytest.mark.parametrize("kind", ["while", "scan", "branch"])
def test_nested_loops_ask_a_rule_as_often_at_every_depth(transform: str, kind: str) -> None:
    asked: list[int] = []
    inner = nnc.custom_jvp(lambda x: x * 0.5)
    inner.defjvp(lambda p, t: (asked.append(1), (p[0] * 0.5, t[0] * 0.5))[1])

    def run(x: Any, depth: int) -> Any:
        if depth == 0:
            return inner(x)
        if kind == "scan":
            return nnc.scan(lambda c, _: (run(c, depth - 1), None), x, None, 2)[0]
        loop = lambda x: nnc.while_loop(lambda c: c > 0.3, lambda c: run(c, depth - 1), x)
        return loop(x) if kind == "while" else nnc.cond(True, loop, lambda x: x, x)

    counts = []
    for depth in (2, 4, 6):
        asked.clear()
        nnc.make_graph(TRANSFORMS[transform](lambda x, d=depth: run(x, d)))(nnp.ones(2))
        counts.append(len(asked))
    assert counts[0] == counts[1] == counts[2] < 4


def test_one_predicate_for_all_rows_stays_a_branch_at_every_depth() -> None:
    graph = nnc.make_graph(nnc.vmap(nested(lambda _: nnp.asarray(True), lambda x: x * 1.1, 14)))(nnp.ones(2))
    names = [node.command.name for node in graph.walk()]
    assert names.count("case_of") == 14 and "select" not in names


@RUN
def test_a_branch_may_yield_a_constant_beside_rows(run: Callable[..., Any]) -> None:
    f = lambda p, x: nnc.cond(p, lambda x: (1.5, x), lambda x: (x, 2 * x), x)
    for taken, wanted in ((True, ([1.5, 1.5, 1.5], X)), (False, (X, 2 * X))):
        np.testing.assert_array_equal(run(nnc.vmap(f, in_axes=(None, 0)))(taken, X), wanted)
        slope = run(lambda p, x: nnc.jvp(lambda x: nnc.vmap(f, in_axes=(None, 0))(p, x), (x,), (nnp.ones(3),))[1])(
            taken, X
        )
        np.testing.assert_array_equal(slope, ([0, 0, 0], [1, 1, 1]) if taken else ([1, 1, 1], [2, 2, 2]))
