"""The pass that turns reverse passes of checkpointed loops into loops over a schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nnc
import nnc.numpy as nnp
from nnc.commands.replay import walk_back
from nnc.lower.passes.loops.plan_replays import ReplaySchedule

W = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32) / 2
XS = np.random.default_rng(1).standard_normal((37, 4)).astype(np.float32)


@given(iterations=st.integers(1, 120), room=st.integers(1, 12))
def test_a_schedule_pulls_each_iteration_from_the_state_before_it(iterations: int, room: int) -> None:
    schedule, again = ReplaySchedule.of(iterations, room), 0
    rows = [0] + [-1] * (schedule.rows - 1)  # a state is the number of iterations before it
    for step in reversed(range(iterations)):
        begin, count = schedule.begins[step], schedule.counts[step]
        assert begin == again
        again += count
        for number, source, target in schedule.steps[begin:again]:
            assert rows[source] == number
            rows[target] = number + 1
        assert rows[schedule.pulled[step]] == step
    runs = 0

    def advance(step: int, state: list[np.ndarray]) -> list[np.ndarray]:
        nonlocal runs
        runs += 1
        return state

    for _ in walk_back([np.zeros(1)], iterations, room, advance):
        pass
    assert again == len(schedule.steps) == runs
    assert schedule.rows <= room + 1  # the state on its way from one kept state to the next has a row of its own


def tanh(w: Any, h: Any, xs: Any, **how: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = nnp.tanh(h @ w + x)
        return h, 2 * h

    h, ys = nnc.scan(step, h, xs, **how)
    return h.sum() + (ys**2).mean()


def dropped(w: Any, h: Any, xs: Any, **how: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, key = carry
        key, now = nnc.random.split(key)
        return (nnp.tanh(h @ w + x) * nnc.random.bernoulli(now, 0.5, (4,)), key), None

    return nnc.scan(step, (h, nnc.random.key(3)), xs, **how)[0][0].sum()


def nested(w: Any, h: Any, xs: Any, **how: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h, _ = nnc.scan(lambda h, _: (nnp.tanh(h @ w + x), None), h, None, length=5, **how)
        return h, h.sum()

    return nnc.scan(step, h, xs, **how)[1].sum()


def stateless(w: Any, h: Any, xs: Any, **how: Any) -> Any:
    return nnc.scan(lambda _, x: ((), nnp.sin(x @ w)), (), xs, **how)[1].sum() + h.sum()


@pytest.mark.parametrize("checkpoint", ["sqrt", "binomial", 1, 5, 50])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("loop", [tanh, dropped, nested, stateless])
def test_gradients_are_those_of_a_loop_that_keeps_everything(loop: Any, reverse: bool, checkpoint: Any) -> None:
    def gradient(**how: Any) -> Any:
        return nnc.compile(nnc.grad(lambda *args: loop(*args, reverse=reverse, **how), argnums=(0, 1, 2)))

    args = W, np.ones(4, np.float32), XS
    planned = gradient(checkpoint=checkpoint)
    for x, y in zip(planned(*args), gradient()(*args), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    assert "pull_iterations" not in planned.lower(*args).compile().as_text()


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("loop", [tanh, dropped, nested, stateless])
def test_short_loops_run_few_iterations_again_or_none(loop: Any, length: int) -> None:
    def gradient(**how: Any) -> Any:
        return nnc.compile(nnc.grad(lambda *args: loop(*args, **how), argnums=(0, 1, 2)))

    args = W, np.ones(4, np.float32), XS[:length]
    for checkpoint in ("sqrt", 1, 5):
        for x, y in zip(gradient(checkpoint=checkpoint)(*args), gradient()(*args), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_a_gradient_keeps_few_states() -> None:
    def last(h: Any, **how: Any) -> Any:
        return nnc.scan(lambda h, _: (nnp.tanh(h + 1), None), h, None, length=1024, **how)[0].sum()

    h = np.zeros(1000, np.float32)

    def arena(**how: Any) -> int:
        return nnc.compile(nnc.grad(lambda h: last(h, **how))).lower(h).compile().memory_plan.arena_bytes

    assert arena(checkpoint="binomial") < 20 * h.nbytes < arena(checkpoint="sqrt") < 45 * h.nbytes < arena()


def test_a_loop_whose_schedule_is_long_runs_as_before() -> None:
    def last(h: Any) -> Any:
        return nnc.scan(lambda h, _: (nnp.sin(h), None), h, None, length=2000, checkpoint=1)[0].sum()

    h = np.ones(2, np.float32)
    assert "pull_iterations" in nnc.compile(nnc.grad(last)).lower(h).compile().as_text()
