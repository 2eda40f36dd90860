"""Linearisation: values that are computed once, and values that are kept for the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.trace.core.dual import run_jvp, run_linearize

X = nnc.asarray(np.arange(1.0, 13).reshape(4, 3) / 10)


def kept(f: Any, *primals: Any) -> list[tuple[int, ...]]:
    """Shapes of the residuals of the linear map of `f`."""
    _, linear = run_linearize(lambda *xs: [f(*xs)], primals, [True] * len(primals))
    return [value.spec.shape for value in linear.staged.captured]


@pytest.mark.parametrize(("f", "count"), [
    (lambda x: nnp.sum(x), 0), (lambda x: nnp.sum(x, axis=0), 0), (lambda x: x.T.reshape(2, 6)[1:], 0),
    (lambda x: nnp.concatenate([x, -x]) + 1, 0), (lambda x: x - nnp.flip(x, 0), 0), (lambda x: nnp.cumsum(x, axis=1), 0),
    (lambda x: nnp.sin(x), 1), (lambda x: nnp.exp(x), 1), (lambda x: x * x, 1), (lambda x: nnp.log(x), 1),
    (lambda x: nnp.maximum(x, 0), 1), (lambda x: (nnp.sin(x) * nnp.exp(x), x + 1)[1], 0),
    (lambda x: nnp.sin(nnp.cos(nnp.exp(x))), 3), (lambda x: nnc.stop_gradient(nnp.exp(x)) + x, 0),
])  # fmt: skip
def test_only_residuals_of_the_reverse_pass_are_kept(f: Any, count: int) -> None:
    assert len(kept(f, X)) == count


def test_a_product_keeps_each_factor_once() -> None:
    assert sorted(kept(lambda x, y: x @ y, X, X.T)) == [(3, 4), (4, 3)]
    assert len(kept(lambda x: nnp.sin(x) + nnp.sin(x) * 1, X)) <= 3


def test_tangents_that_are_zero_cost_nothing() -> None:
    calls: list[str] = []

    def f(x: Any, y: Any) -> Any:
        out = nnp.sin(y) * 2
        calls.append(type(out).__name__)
        return [out, x]

    _, moved = run_jvp(f, [X, X], [X, None])
    assert calls == ["Array"] and moved[0] is None and moved[1] is X


def test_outputs_that_do_not_move_are_marked() -> None:
    outputs, linear = run_linearize(lambda x: [x * 2, 3.0, nnp.argmax(x)], [X], [True])
    assert linear.nonzero == (True, False, False) and len(outputs) == 3
    pushed = linear.push([X])
    assert np.allclose(np.asarray(pushed[0]), np.asarray(X) * 2) and pushed[1] == 0 and pushed[2].dtype == np.int64


def test_the_primal_runs_once() -> None:
    calls: list[int] = []

    def f(x: Any) -> Any:
        calls.append(1)
        return nnp.sin(x)

    _, push = nnc.linearize(f, X)
    _, pull = nnc.vjp(f, X)
    for _ in range(3):
        push(X)
        pull(X)
    nnc.jacfwd(f)(X)
    assert len(calls) == 3
