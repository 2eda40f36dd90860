"""Loops that keep few states (`checkpoint=`): the same derivatives as without, in the memory that is promised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp

STRATEGIES = ["sqrt", "binomial", 1, 3, 50]
XS = np.linspace(-1, 1, 13)


def chain(checkpoint: Any) -> Callable[..., Any]:
    def loop(x: Any, w: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, nnp.sin(c[1] * w) + 0.1 * c[1]

        return nnc.while_loop(lambda c: c[0] < 20, body, (0, x), checkpoint=checkpoint)[1]

    return loop


def recurrence(checkpoint: Any, *, reverse: bool = False, unroll: int = 1) -> Callable[..., Any]:
    def loop(x: Any, w: Any, xs: Any = XS) -> Any:
        def step(c: Any, x: Any) -> Any:
            return nnp.tanh(c * w + x), c * x * w

        last, ys = nnc.scan(step, x, xs, reverse=reverse, unroll=unroll, checkpoint=checkpoint)
        return last**2 + nnp.sum(ys * ys)

    return loop


def newton(checkpoint: Any) -> Callable[[Any], Any]:
    return lambda a: nnc.while_loop(
        lambda x: abs(x * x - a) > 1e-12, lambda x: (x + a / x) / 2, a, checkpoint=checkpoint
    )


POINT = (np.float64(0.3), np.float64(1.3))
ROWS = np.array([0.1, 0.2, 3.0])
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "value": lambda f: f(*POINT),
    "grad": lambda f: nnc.grad(f, (0, 1))(*POINT),
    "compiled grad": lambda f: nnc.compile(nnc.grad(f, (0, 1)))(*POINT),
    "jvp": lambda f: nnc.jvp(f, POINT, POINT)[1],
    "linearize": lambda f: nnc.linearize(f, *POINT)[1](*POINT),
    "rows of grad": lambda f: nnc.vmap(nnc.grad(f, (0, 1)), (0, None))(ROWS, POINT[1]),
    "grad of rows": lambda f: nnc.grad(lambda v: nnp.sum(nnc.vmap(f, (0, None))(v, POINT[1])))(ROWS),
    "grad of grad": lambda f: nnc.grad(nnc.grad(f, 1), 1)(*POINT),
    "jvp of grad": lambda f: nnc.jvp(nnc.grad(f, 1), POINT, POINT)[1],
    "hessian": lambda f: nnc.hessian(lambda v: f(v[0], v[1]))(np.array(POINT)),
    "reverse over reverse": lambda f: nnc.jacrev(nnc.jacrev(lambda v: f(v[0], v[1])))(np.array(POINT)),
}


def agree(a: Any, b: Any) -> None:
    for x, y in zip(nnc.tree.leaves(a), nnc.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
@pytest.mark.parametrize("checkpoint", STRATEGIES)
def test_every_transform_of_a_checkpointed_loop_is_that_of_the_plain_one(
    checkpoint: Any, transform: Callable[[Any], Any]
) -> None:
    agree(transform(chain(checkpoint)), transform(chain(None)))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_every_transform_of_a_checkpointed_scan_is_that_of_the_plain_one(
    transform: Callable[[Any], Any], reverse: bool
) -> None:
    agree(transform(recurrence("sqrt", reverse=reverse)), transform(recurrence(None, reverse=reverse)))


def test_sequences_of_a_checkpointed_scan_get_their_gradient_also_when_unrolled() -> None:
    plain = nnc.grad(recurrence(None), 2)(*POINT, XS)
    agree(nnc.grad(recurrence("binomial"), 2)(*POINT, XS), plain)
    agree(nnc.grad(recurrence(2, unroll=4), 2)(*POINT, XS), plain)


def test_rows_with_different_numbers_of_rounds_pull_back_their_own() -> None:
    a = np.array([2.0, 4.0, 9.0, 100.0])
    agree(nnc.vmap(nnc.grad(newton("sqrt")))(a), 0.5 / np.sqrt(a))


def test_a_loop_without_rounds_is_the_identity_also_backwards() -> None:
    f = lambda x: nnc.while_loop(lambda c: c > 10, lambda c: c / 2, x, checkpoint="sqrt")
    assert nnc.grad(f)(3.0) == 1


def peak(n: int, checkpoint: Any) -> int:
    def loop(x: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, c[1] * 0.999 + 0.001 * nnp.sin(c[1])

        return nnp.sum(nnc.while_loop(lambda c: c[0] < n, body, (0, x), checkpoint=checkpoint)[1])

    with nnc.debug.tape_memory() as memory:
        nnc.compile(nnc.grad(loop))(np.ones(100))
    assert memory.current == 0
    return memory.peak


STATE = 8 * 100 + 8  # the vector and the counter


@pytest.mark.parametrize("n", [64, 1024, pytest.param(16384, marks=pytest.mark.slow)])
def test_memory_of_the_tape_keeps_its_promise(n: int) -> None:
    found = {strategy: peak(n, strategy) for strategy in (None, "sqrt", "binomial")}
    print(f"n = {n}: {found}")
    assert 800 * n <= found[None] <= 2 * 800 * n  # one row a round, in memory that doubles
    assert found["sqrt"] <= (np.sqrt(n) + 2) * STATE
    assert found["binomial"] <= (np.log2(n) + 2) * STATE


def test_an_integer_is_the_most_states_that_are_kept() -> None:
    assert peak(200, 4) <= 4 * STATE


def test_max_steps_takes_the_tape_at_once_and_no_more() -> None:
    loop = lambda x: nnc.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, nnp.sin(c[1])), (0, x), max_steps=10)[1]
    with nnc.debug.tape_memory() as memory:
        nnc.grad(loop)(np.float64(1.0))
    assert memory.peak == 10 * 8
