"""Second derivatives of attention, for some queries at a time: the same values, in memory linear in the number of tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import nn
from nnc.commands import attention_blocks

_RNG = np.random.default_rng(4)

CASES: dict[str, tuple[tuple[int, int, int, int], dict[str, Any]]] = {  # queries, keys, heads, heads of keys; settings
    "shared heads": ((24, 20, 4, 2), {}),
    "causal": ((37, 20, 2, 2), {"is_causal": True}),
    "window": ((37, 37, 2, 1), {"local_window_size": (3, 5)}),
    "full bias": ((40, 40, 2, 2), {"bias": _RNG.normal(size=(1, 2, 40, 40))}),
    "bias and mask": ((37, 20, 2, 2), {"bias": _RNG.normal(size=(2, 1, 1, 20)), "mask": _RNG.random((2, 2, 37, 20)) > 0.3}),
}  # fmt: skip


def products(**settings: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Products with the Hessian: forward over reverse, and reverse over reverse."""
    gradient = nnc.grad(lambda *x: nnp.sum(nn.dot_product_attention(*x, **settings) ** 2), (0, 1, 2))

    def reverse(q: Any, k: Any, v: Any, *t: Any) -> Any:
        along = lambda *x: sum(nnp.sum(a * b) for a, b in zip(gradient(*x), t, strict=True))
        return nnc.grad(along, (0, 1, 2))(q, k, v)

    return lambda q, k, v, *t: nnc.jvp(gradient, (q, k, v), t)[1], reverse


@pytest.mark.parametrize("name", CASES)
def test_blocks_of_queries_give_the_derivatives_of_all_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (count, keys, heads, own), settings = CASES[name]
    operands = [_RNG.normal(size=s) for s in ((2, count, heads, 8), (2, keys, own, 8), (2, keys, own, 8))] * 2
    for product in products(**settings):
        wanted = product(*operands)
        monkeypatch.setattr(attention_blocks, "QUERIES", 8)
        for found in (product(*operands), nnc.compile(lambda *x, f=product: f(*x))(*operands)):
            for x, y in zip(found, wanted, strict=True):
                np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-9, atol=1e-11)
        monkeypatch.undo()


def test_rows_of_a_batch_and_third_derivatives_go_through_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _RNG.normal(size=(3, 20, 1, 4))
    loss = lambda y: nnp.sum(nn.dot_product_attention(y, 0.5 * y, y) ** 2)
    second = lambda y: nnc.jvp(nnc.grad(loss), (y,), (nnp.cos(y),))[1]
    third = lambda y: nnc.grad(lambda z: nnp.sum(nnp.sin(second(z))))(y)
    wanted = [np.asarray(f(x[:, None])) for f in (lambda y: nnp.stack([second(row) for row in y]), third)]
    monkeypatch.setattr(attention_blocks, "QUERIES", 8)
    np.testing.assert_allclose(np.asarray(nnc.vmap(second)(x[:, None])), wanted[0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(np.asarray(third(x[:, None])), wanted[1], rtol=1e-9, atol=1e-11)


def test_the_memory_of_second_derivatives_is_linear_in_the_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_blocks, "QUERIES", 32)
    for product in products():
        compiled = nnc.compile(product)
        peaks = []
        for count in (256, 512):
            operands = [np.zeros((1, count, 1, 16), np.float32)] * 6
            peaks.append(compiled.lower(*operands).compile().memory_plan.peak)
        assert peaks[1] < 2.1 * peaks[0]
        assert peaks[1] < 512 * 512 * 4 / 2
