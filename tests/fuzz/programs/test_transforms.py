"""Random programs: derivatives against finite differences and the other mode, vmap against a loop, compile against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp

SHAPE = (2, 3)
UNARY: list[Callable[[Any], Any]] = [
    nnp.sin, nnp.tanh, lambda x: nnp.exp(-x * x), lambda x: 1 / (2 + nnp.cos(x)), lambda x: x**3 / 4, lambda x: nnp.log(1 + x * x),
    lambda x: nnp.sqrt(1 + x * x), lambda x: x[::-1], lambda x: x - nnp.mean(x, axis=1, keepdims=True),
    lambda x: nnp.cumsum(x, axis=0) / 2, lambda x: x / (1 + nnp.sum(x * x)), lambda x: nnp.roll(x, 1, axis=1),
    lambda x: nnp.broadcast_to(nnp.sum(x, axis=0), SHAPE) / 3, lambda x: (x @ x.T) @ x / 4, lambda x: x.at[0].set(nnp.cos(x[1])),
    lambda x: nnp.concatenate([x[1:], x[:1] * 2]), lambda x: x.at[:, 1].add(x[:, 0]), lambda x: x.reshape(3, 2).T * 1.5,
    lambda x: nnp.stack([x[1], nnp.sin(x[0])]), lambda x: nnc.vmap(lambda row: row * row[0])(x),
    lambda x: nnc.checkpoint(nnp.sin)(x) * x,
    lambda x: nnp.where(nnp.asarray([[True, False, True]]), x, nnp.sin(x)), lambda x: nnc.stop_gradient(x) * 0 + x,
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - 2 * y, lambda x, y: x / (2 + nnp.sin(y)),
    lambda x, y: x @ y.T @ x / 4, lambda x, y: nnp.hypot(x, 1 + y * y), lambda x, y: nnp.logaddexp(x, y),
    lambda x, y: x * y[0, 1] + y[:, :1],
]  # fmt: skip

STEPS = st.lists(
    st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=8,
)
SEEDS = st.integers(0, 2**16)


def program(steps: list[tuple[int, int, int]]) -> Callable[..., Any]:
    """A function of two arrays of SHAPE; each step applies an operation to earlier values."""

    def run(x: Any, y: Any) -> Any:
        values = [nnc.asarray(x), nnc.asarray(y)]
        for operation, i, j in steps:
            a, b = values[-1 - i % len(values)], values[-1 - j % len(values)]
            values.append(UNARY[operation](a) if operation < len(UNARY) else BINARY[operation - len(UNARY)](a, b))
        return values[-1]

    return run


def points(seed: int, *shape: int) -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(seed)
    return tuple(rng.uniform(-1, 1, (*shape, *SHAPE)) for _ in range(2))


def close(a: Any, b: Any, tolerance: float = 1e-9) -> bool:
    return np.allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


@given(STEPS, SEEDS)
def test_derivatives_of_random_programs_equal_finite_differences(steps: list[tuple[int, int, int]], seed: int) -> None:
    nnc.testing.check_grads(program(steps), points(seed), order=1, atol=1e-5, rtol=1e-5, seed=seed)


@given(STEPS, SEEDS)
def test_second_derivatives_agree_in_all_four_orders_of_modes(steps: list[tuple[int, int, int]], seed: int) -> None:
    x, y = points(seed)
    t, ct = points(seed + 1)
    f = program(steps)

    def push(x: Any) -> Any:
        return nnc.jvp(lambda z: f(z, y), (x,), (t,))[1]

    def pull(x: Any) -> Any:
        return nnc.vjp(lambda z: f(z, y), x)[1](ct)[0]

    first = nnp.sum(ct * push(x))
    assert close(first, nnp.sum(t * pull(x)))
    second = nnp.sum(ct * nnc.jvp(push, (x,), (t,))[1])  # forward over forward
    assert close(second, nnp.sum(t * nnc.jvp(pull, (x,), (t,))[1]))  # forward over reverse
    assert close(second, nnp.sum(t * nnc.vjp(push, x)[1](ct)[0]))  # reverse over forward
    assert close(second, nnp.sum(t * nnc.vjp(pull, x)[1](t)[0]))  # reverse over reverse
    assert close(second, nnp.sum(ct * nnc.jvp(nnc.linearize(push, x)[1], (t,), (t,))[0]))


@given(STEPS, SEEDS)
def test_maps_of_random_programs_and_their_gradients_equal_loops(steps: list[tuple[int, int, int]], seed: int) -> None:
    xs, ys = points(seed, 3)
    f = program(steps)
    gradient = nnc.grad(lambda x, y: nnp.sum(nnp.sin(f(x, y))), (0, 1))
    for g in (f, lambda x, y: gradient(x, y)[0], lambda x, y: gradient(x, y)[1]):
        assert close(nnc.vmap(g)(xs, ys), np.stack([np.asarray(g(x, y)) for x, y in zip(xs, ys, strict=True)]))
        assert close(nnc.vmap(g, (0, None), chunk_size=2)(xs, ys[0]), np.stack([np.asarray(g(x, ys[0])) for x in xs]))
    together = nnc.grad(lambda x: nnp.sum(nnp.sin(nnc.vmap(f)(x, ys))))(xs)
    assert close(together, nnc.vmap(lambda x, y: gradient(x, y)[0])(xs, ys))


@given(STEPS, SEEDS)
def test_compiled_checkpointed_and_graphed_programs_equal_eager_ones(
    steps: list[tuple[int, int, int]], seed: int
) -> None:
    x, y = points(seed)
    f = program(steps)
    gradient = nnc.grad(lambda x, y: nnp.sum(nnp.sin(f(x, y))))
    expected = gradient(x, y)
    assert close(nnc.compile(f)(x, y), f(x, y), 1e-12)
    assert close(nnc.compile(gradient)(x, y), expected, 1e-12)
    assert close(nnc.grad(nnc.compile(lambda x, y: nnp.sum(nnp.sin(f(x, y)))))(x, y), expected, 1e-12)
    assert close(nnc.grad(nnc.checkpoint(lambda x, y: nnp.sum(nnp.sin(f(x, y)))))(x, y), expected, 1e-12)
    graph = nnc.make_graph(lambda x, y: nnp.sum(nnp.sin(f(x, y))))(x, y)
    assert close(nnc.grad(graph)(x, y), expected, 1e-12)
    assert close(nnc.make_graph(gradient)(x, y)(x, y), expected, 1e-12)
