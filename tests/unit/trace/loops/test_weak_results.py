"""Results of branches and loops take the dtype of arrays that they meet, as Python numbers do, where all of their values do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

HALF = nnp.ones(2, "bfloat16")
Case = Callable[[Any, Any], Any]  # of a condition and a strong float32 scalar
WEAK: dict[str, Case] = {
    "both branches": lambda p, s: nnc.cond(p, lambda: 0.1, lambda: 0.01),
    "an operand": lambda p, s: nnc.cond(p, lambda x: x * 2, lambda x: x, 3.0),
    "the only branch": lambda p, s: nnc.switch(0, [lambda: 2.0]),
    "bypass and branches": lambda p, s: nnc.case_of(p, [lambda: 1.0], bypass=2.0),
    "a counter": lambda p, s: nnc.fori_loop(0, 3, lambda i, c: c * 0.5, 1.0),
    "a dynamic counter": lambda p, s: nnc.fori_loop(0, nnp.asarray(3) + p, lambda i, c: c * 0.5, 1.0),
    "a while loop": lambda p, s: nnc.while_loop(lambda c: c < 3, lambda c: c + 1, 0.5),
    "a scan": lambda p, s: nnc.scan(lambda c, _: (c + 1, None), 0.5, length=3)[0],
    "a branch of a loop": lambda p, s: nnc.cond(p, lambda: nnc.fori_loop(0, 2, lambda i, c: c + 1.0, 0.0), lambda: 1.0),
}
STRONG: dict[str, Case] = {
    "one branch": lambda p, s: nnc.cond(p, lambda: s, lambda: 0.01),
    "the other branch": lambda p, s: nnc.cond(p, lambda: 0.01, lambda: s),
    "bypass": lambda p, s: nnc.case_of(p, [lambda: 1.0], bypass=s),
    "what follows": lambda p, s: nnc.fori_loop(0, 3, lambda i, c: c * s, 1.0),
    "what comes first": lambda p, s: nnc.fori_loop(0, 3, lambda i, c: 1.0, s),
    "what a while loop carries": lambda p, s: nnc.while_loop(lambda c: c < 3, lambda c: c + s, 0.5),
}


@pytest.mark.parametrize("wrap", [lambda f: f, nnc.compile, lambda f: nnc.compile(lambda p, s: f(p, s))])
@pytest.mark.parametrize("is_weak", [True, False])
def test_results_of_control_flow_are_weak_where_all_values_are(is_weak: bool, wrap: Any) -> None:
    for name, case in (WEAK if is_weak else STRONG).items():
        for p in (nnp.asarray(True), nnp.asarray(False)):
            found = wrap(case)(p, nnp.asarray(np.float32(1)))
            assert bool(found.weak) is is_weak, name
            product = wrap(lambda p, s, case=case: HALF * case(p, s))(p, nnp.asarray(np.float32(1)))
            assert product.dtype.name == ("bfloat16" if is_weak else "float32"), name


def test_each_value_of_a_carry_is_told_by_itself() -> None:
    weak, strong = nnc.fori_loop(0, 2, lambda i, c: (c[0] + 1, c[1] + HALF[0]), (1.0, 1.0))
    assert weak.weak and not strong.weak and strong.dtype.name == "bfloat16"


def test_derivatives_go_through_weak_results() -> None:
    def f(x: Any) -> Any:
        return nnc.cond(x > 0, lambda: nnc.fori_loop(0, 2, lambda i, c: c * x, 1.0), lambda: 0.5 * x)

    for x in (3.0, -3.0):
        assert float(nnc.grad(f)(x)) == (6.0 if x > 0 else 0.5)
        assert float(nnc.compile(nnc.grad(f))(x)) == (6.0 if x > 0 else 0.5)
    assert np.asarray(nnc.vmap(f)(np.array([3.0, -3.0]))).tolist() == [9.0, -1.5]


def _shifted(carry: Any, x: Any) -> tuple[Any, ...]:
    """An iteration that puts `x` first and moves the other values on; the last one depends on itself alone."""
    *values, count = carry
    return (x, *(value * 2 for value in values[:-1]), count + 1)


LOOPS: dict[str, Callable[[Any, tuple[Any, ...], int], tuple[Any, ...]]] = {
    "while_loop": lambda x, start, n: nnc.while_loop(
        lambda c: c[0] < n, lambda c: (c[0] + 1, _shifted(c[1], x)), (0, start)
    )[1],
    "fori_loop": lambda x, start, n: nnc.fori_loop(0, n, lambda i, c: _shifted(c, x), start),
    "scan": lambda x, start, n: nnc.scan(lambda c, _: (_shifted(c, x), None), start, None, length=n)[0],
    "unrolled scan": lambda x, start, n: nnc.scan(lambda c, _: (_shifted(c, x), None), start, None, length=n, unroll=2)[
        0
    ],
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_weak_value_that_is_made_of_a_strong_one_is_strong_after_enough_iterations(loop: str, size: int) -> None:
    x, start = nnp.asarray(3, dtype="int64"), (1,) * size + (0,)
    want = start
    for _ in range(6):
        want = _shifted(want, x)
    for run in (LOOPS[loop], nnc.compile(LOOPS[loop], static_argnums=2)):
        found = run(x, start, 6)
        assert [int(value) for value in found] == [int(value) for value in want]
        kinds = [(nnp.int32(0) + value).dtype.name for value in found]
        assert kinds == [(nnp.int32(0) + value).dtype.name for value in want] == ["int64"] * size + ["int32"]


@pytest.mark.parametrize("wrap", [lambda f: f, nnc.compile])
def test_a_weak_float32_that_turns_into_a_number_shows_float32(wrap: Any) -> None:
    x = nnp.asarray(0.25).as_weak()
    cases: list[Callable[[Any], Any]] = [
        lambda x: nnc.while_loop(lambda c: c < 3, lambda c: c + 1.5, x),
        lambda x: nnc.fori_loop(0, 2, lambda i, c: c + 1.5, x),
        lambda x: nnc.cond(x > 0, lambda x: x * 2, lambda x: x, x),
    ]
    for case in cases:
        found = wrap(case)(x)
        assert found.weak and np.asarray(found).dtype == found.dtype == np.float32
