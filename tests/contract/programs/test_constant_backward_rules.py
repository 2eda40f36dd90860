"""Backward rules that do not depend on the cotangent, within functions and loops some of whose results nobody reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp


def ruled(x: Any) -> Any:
    """The identity; its rule gives 2 x as the cotangent of x for every cotangent of the result."""
    f = nnc.custom_vjp(lambda x: x * 1)
    f.defvjp(lambda x: (x * 1, x), lambda x, ct: (2 * x,))
    return f(x)


def pair(x: Any) -> Any:
    return nnp.sqrt(nnp.sum(x * x)), ruled(x)


def in_while(x: Any, **how: Any) -> Any:
    step = lambda c: (c[0] + 1, nnp.sum(x) + c[1], ruled(c[2]))
    return nnc.while_loop(lambda c: c[0] < 1, step, (0, nnp.zeros(()), x), **how)[1:]


def in_scan(x: Any, **how: Any) -> Any:
    last, rows = nnc.scan(lambda c, _: (ruled(c), nnp.sum(c)), x, nnp.arange(1.0), **how)
    return rows, last


SURROUNDINGS = {
    "checkpoint": nnc.checkpoint(pair), "scan": in_scan, "checkpointed scan": lambda x: in_scan(x, checkpoint=1), "while": in_while,
    "checkpointed while": lambda x: in_while(x, checkpoint=1), "branch": lambda x: nnc.cond(x[0] > 0, pair, pair, x),
    "compiled": nnc.compile(pair), "nested": nnc.checkpoint(nnc.checkpoint(pair)),
}  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("surrounding", SURROUNDINGS)
def test_the_rule_counts_where_other_results_are_not_read(surrounding: str, compiled: bool) -> None:
    f, x = SURROUNDINGS[surrounding], np.float32([3, 4])
    slope = nnc.grad(lambda x: nnp.sum(f(x)[1]))
    np.testing.assert_allclose((nnc.compile(slope) if compiled else slope)(x), 2 * x, rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_the_rule_counts_beside_a_root_that_is_handed_out(compiled: bool) -> None:
    x = np.float32([3, 4])
    slope = nnc.grad(lambda x: (lambda root, y: root + nnp.sum(y))(*nnc.checkpoint(pair)(x)))
    np.testing.assert_allclose((nnc.compile(slope) if compiled else slope)(x), x / 5 + 2 * x, rtol=1e-6)
