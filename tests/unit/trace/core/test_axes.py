"""Named axes: over which of them values vary."""

from __future__ import annotations

from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.base.context import get_context
from nnc.trace.core.axes import names_of, varying_over

X = nnp.asarray([1.0, 2.0])


def axes_in(fun: Any, *values: Any) -> list[str]:
    """The axes over which the results of a function vary within axes "i" and "j", of which the first argument varies over "i", the
    second over "j".
    """
    seen: list[str] = []

    def run(a: Any, b: Any) -> Any:
        results = fun(a, b)
        seen.extend("".join(sorted(axis.name for axis in varying_over(x) or ())) for x in results)
        return a

    nnc.vmap(lambda a: nnc.vmap(lambda b: run(a, b), axis_name="j")(X), axis_name="i")(X)
    return seen


def test_results_vary_over_the_axes_of_their_operands() -> None:
    w = nnp.asarray(np.array([3.0, 4.0]))
    assert axes_in(lambda a, b: (w, a, b, a + b, a * w, nnp.exp(w), w[0])) == ["", "i", "j", "ij", "i", "", ""]


def test_sums_do_not_vary_and_parts_do() -> None:
    found = axes_in(
        lambda a, b: (
            nnc.psum(a, "i"), nnc.psum(a * b, "i"), nnc.pmean(a * b, ("i", "j")), nnc.pmax(b, "i"), nnc.all_gather(a, "i"),
            nnc.pvary(a, "j"), nnc.axis_index("i"), nnc.axis_index(("i", "j")), nnc.ppermute(b, "i", [(0, 1)]),
        )
    )  # fmt: skip
    assert found == ["", "j", "", "j", "i", "ij", "i", "ij", "ij"]


def test_loops_and_branches_vary_over_the_axes_of_any_iteration_or_branch() -> None:
    zero = nnp.asarray(0.0)

    def results(a: Any, b: Any) -> tuple[Any, ...]:
        (first, second), rows = nnc.scan(lambda c, _: ((c[0] + 1, c[1] + c[0] * b), c[1] * a), (zero, zero), None, 2)
        fixed = nnc.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + a), (0, zero))
        moving = nnc.while_loop(lambda c: c[0] < b, lambda c: (c[0] + 1, c[1] * 2), (zero, zero))
        return (
            first, second, rows, *fixed, *moving, nnc.cond(a > 1, lambda: b, lambda: b), nnc.cond(zero > 1, lambda: b, lambda: zero)
        )  # fmt: skip

    assert axes_in(results) == ["", "j", "ij", "", "i", "j", "j", "ij", "j"]


def test_values_from_outside_vary_within_a_branch_and_a_loop_that_not_all_places_run_alike() -> None:
    w, seen = nnp.asarray(3.0), list[str]()

    def note(x: Any) -> Any:
        seen.append("".join(sorted(axis.name for axis in varying_over(x) or ())))
        return x

    def results(a: Any, b: Any) -> tuple[Any, ...]:
        own = nnp.sin(w)
        return (
            nnc.cond(a > 1, lambda: note(w) * note(b) * note(own), lambda: b), nnc.cond(w > 1, lambda: note(w), lambda: w),
            nnc.while_loop(lambda c: c < b, lambda c: c + note(w), nnp.asarray(0.0)),
        )  # fmt: skip

    axes_in(results)
    assert seen[:4] == ["i", "ij", "i", ""] and set(seen[4:]) == {"", "j"}


def test_gradients_vary_as_their_arguments_do() -> None:
    w = nnp.asarray(3.0)
    loss = lambda w, a, b: nnc.scan(lambda c, _: (c * w * a + b, None), 1.0, None, 3)[0]
    checkpointed = lambda w, a, b: nnc.scan(lambda c, _: (c * w * a + b, None), 1.0, None, 3, checkpoint=2)[0]
    for fun in (loss, checkpointed, nnc.checkpoint(loss)):
        assert axes_in(lambda a, b, fun=fun: nnc.grad(fun, (0, 1, 2))(w, a, b)) == ["", "i", "j"]
        assert axes_in(lambda a, b, fun=fun: [nnc.hessian(fun)(w, a, b)]) == [""]


def test_values_outside_of_axes_vary_over_none() -> None:
    assert get_context().axes == ()
    assert varying_over(X) == varying_over(1.0) == frozenset()
    assert varying_over(nnc.device_put(X, "sim:0")) == varying_over(nnc.DynamicGraph().variable(X)) == frozenset()
    seen: list[Any] = []
    nnc.make_graph(lambda x: seen.append(varying_over(x)) or x)(X)
    assert seen == [frozenset()]


def test_names_stand_in_the_order_of_axes() -> None:
    seen: list[str] = []
    nnc.vmap(
        lambda a: nnc.vmap(lambda b: seen.append(names_of(varying_over(a * b) or frozenset())) or b, axis_name="a")(X),
        axis_name="z",
    )(X)
    assert seen == ["'z' and 'a'"]
