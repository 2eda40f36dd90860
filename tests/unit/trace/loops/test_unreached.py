"""Operands on which no result with a cotangent depends take no part in derivatives: zero times infinity is not zero.

A product with infinities and NaN stands before each loop, branch or recomputation, which does not let a cotangent through to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.trace.loops.backwards import Backwards, Pulled

W = np.array([[np.inf, 1.0], [1.0, np.nan]], np.float32)
X = np.ones((2, 2), np.float32)
STEPS = {"length": 3}


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "scan: captured": lambda y, v: nnc.scan(lambda c, _: (nnp.where(y > 0, c * 2, c), None), v, None, **STEPS)[0],
    "scan: sequence": lambda y, v: nnc.scan(lambda c, r: (nnp.where(r[0] > 0, c * 2, c), None), v, y)[0],
    "scan: unread carried value": lambda y, v: nnc.scan(
        lambda c, _: ((c[0] * 2, c[1] * c[0]), None), (v, y), None, **STEPS
    )[0][0],
    "scan: unread rows": lambda y, v: nnc.scan(lambda c, _: (c * 2, y @ c), v, None, **STEPS)[0],
    "scan: two in a circle": lambda y, v: nnc.scan(
        lambda c, _: ((c[0] * 2, c[2], c[1]), None), (v, y, y), None, **STEPS
    )[0][0],
    "scan: recomputed": lambda y, v: nnc.scan(
        lambda c, _: ((c[0] * 2, c[1] * c[0]), None), (v, y), None, checkpoint="sqrt", **STEPS
    )[0][0],
    "scan: recomputed, captured": lambda y, v: nnc.scan(
        lambda c, _: (nnp.where(y > 0, c * 2, c), None), v, None, checkpoint="sqrt", **STEPS
    )[0],
    "scan: recomputed, sequence": lambda y, v: nnc.scan(
        lambda c, r: (nnp.where(r[0] > 0, c * 2, c), None), v, y, checkpoint="sqrt"
    )[0],
    "while_loop: recomputed, captured": lambda y, v: nnc.while_loop(
        lambda c: c[1] < 3, lambda c: (nnp.where(y > 0, c[0], c[0] * 2), c[1] + 1), (v, 0), checkpoint="sqrt"
    )[0],
    "scan of recomputed": lambda y, v: nnc.scan(nnc.checkpoint(lambda c, r: (c * 2, r * c)), v, y)[0],
    "fori_loop": lambda y, v: nnc.fori_loop(0, 3, lambda i, c: (c[0] * 2, c[1] * c[0]), (v, y))[0],
    "while_loop": lambda y, v: nnc.while_loop(
        lambda c: c[2] < 3, lambda c: (c[0] * 2, c[1] * c[0], c[2] + 1), (v, y, 0)
    )[0],
    "while_loop: captured": lambda y, v: nnc.while_loop(
        lambda c: c[1] < 3, lambda c: (nnp.where(y > 0, c[0], c[0] * 2), c[1] + 1), (v, 0)
    )[0],
    "checkpoint: unread": lambda y, v: nnc.checkpoint(lambda y, v: (v * 2, y * 3))(y, v)[0],
    "checkpoint: captured": lambda y, v: nnc.checkpoint(lambda v: (v * 2, y @ y))(v)[0],
    "cond": lambda y, v: nnc.cond(y[0, 0] > 0, lambda y, v: v, lambda y, v: v * 2, y, v),
    "cond: unread": lambda y, v: nnc.cond(v[0, 0] > 0, lambda v: (v, y @ v), lambda v: (v * 2, y), v)[0],
    "switch": lambda y, v: nnc.switch(1, [lambda y, v: v, lambda y, v: v * 2], y, v),
    "cond in scan": lambda y, v: nnc.scan(
        lambda c, r: (nnc.cond(r[0] > 0, lambda r, c: c, lambda r, c: c * 2, r, c), None), v, y
    )[0],
    "cond in checkpoint": lambda y, v: nnc.checkpoint(
        lambda y, v: nnc.cond(v[0, 0] > 0, lambda y, v: v, lambda y, v: v * 2, y, v)
    )(y, v),
    "vmap": lambda y, v: nnc.vmap(
        lambda y, v: nnc.scan(lambda c, _: ((c[0] * 2, c[1] * c[0]), None), (v, y), None, length=3)[0][0]
    )(y, v),
    "compiled": lambda y, v: nnc.compile(lambda y, v: (v * 2, y @ v))(y, v)[0],
}


@pytest.mark.parametrize("within", ["eager", "compiled"])
@pytest.mark.parametrize("case", CASES)
def test_an_infinity_beside_an_operand_without_a_cotangent_makes_no_nan(case: str, within: str) -> None:
    def pulled(x: Any, v: Any) -> Any:
        _, pull = nnc.vjp(lambda x, v: CASES[case](x @ W, v), x, v)
        return pull(np.ones((2, 2), np.float32))

    found = (nnc.compile(pulled) if within == "compiled" else pulled)(X, X)
    assert np.array_equal(np.asarray(found[0]), np.zeros((2, 2)))
    finite = nnc.vjp(lambda v: CASES[case](nnp.asarray(X @ W), v), X)[1](np.ones((2, 2), np.float32))[0]
    assert np.array_equal(np.asarray(found[1]), np.asarray(finite))


def test_a_loop_carries_no_zeros_backwards() -> None:
    def loss(x: Any, v: Any) -> Any:
        return nnp.sum(nnc.scan(lambda c, r: ((c[0] * 2 + r, c[1] * c[0]), c[1]), (v, x), x)[0][0])

    graph = nnc.make_graph(nnc.grad(loss, (0, 1)))(X, X)
    carried = [node.params["carries"] for node in graph.walk() if node.command.name == "scan"]
    assert carried[-1] == 1


def test_operands_that_a_later_iteration_reaches_get_their_cotangents() -> None:
    """The value of one iteration comes to the result after three more."""

    def last(a: Any, b: Any, c: Any, d: Any) -> Any:
        return nnc.scan(lambda s, _: ((s[1], s[2], s[3], s[3] * 2), None), (a, b, c, d), None, length=2)[0][0]

    found = nnc.grad(lambda *xs: nnp.sum(last(*xs)), (0, 1, 2, 3))(*[np.full(2, k, np.float32) for k in (1, 2, 3, 4)])
    assert [np.asarray(g).tolist() for g in found] == [[0, 0], [0, 0], [1, 1], [0, 0]]
    found = nnc.jacrev(
        lambda xs: nnp.stack(nnc.scan(lambda s, _: ((s[1], s[0] * 2), None), tuple(xs), None, length=3)[0])
    )(nnp.asarray([1.0, 2.0]))
    assert np.asarray(found).tolist() == [[0, 2], [4, 0]]


def test_an_iteration_is_traced_backwards_once_where_rules_return_all_cotangents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traced: list[Any] = []
    trace = Backwards._stage
    monkeypatch.setattr(Backwards, "_stage", lambda self, pulled: (traced.append(pulled), trace(self, pulled))[1])

    def loss(x: Any, v: Any) -> Any:
        return nnp.sum(nnc.scan(lambda c, r: ((nnp.tanh(c[0] @ v) + r, c[1] * 2), c[0]), (v, x), x)[0][0])

    nnc.grad(loss, (0, 1))(X, X)
    assert traced == [Pulled(xs=(False, False, True), carries=(True, False), captured=(False, True))]
