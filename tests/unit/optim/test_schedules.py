from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim

SCHEDULES = {
    "linear": (optim.linear_schedule(1.0, 0.2, 4, 2), lambda t: 1 - 0.8 * min(max(t - 2, 0) / 4, 1)),
    "polynomial": (optim.polynomial_schedule(1.0, 0.1, 3, 5), lambda t: 0.1 + 0.9 * (1 - min(t / 5, 1)) ** 3),
    "exponential": (optim.exponential_decay(2.0, 3, 0.5), lambda t: 2 * 0.5 ** (t / 3)),
    "exponential from 4": (optim.exponential_decay(2.0, 3, 0.5, 4), lambda t: 2 * 0.5 ** (max(t - 4, 0) / 3)),
    "exponential stairs": (optim.exponential_decay(2.0, 3, 0.5, staircase=True), lambda t: 2 * 0.5 ** (t // 3)),
    "exponential with floor": (optim.exponential_decay(2.0, 1, 0.5, end_value=0.3), lambda t: max(2 * 0.5**t, 0.3)),
    "exponential growth": (optim.exponential_decay(0.1, 1, 2.0, end_value=1.0), lambda t: min(0.1 * 2**t, 1.0)),
    "cosine": (optim.cosine_decay_schedule(0.5, 6, 0.1), lambda t: 0.5 * (0.9 * (1 + math.cos(math.pi * min(t / 6, 1))) / 2 + 0.1)),
    "cosine squared": (
        optim.cosine_decay_schedule(0.5, 6, exponent=2.0),
        lambda t: 0.5 * ((1 + math.cos(math.pi * min(t / 6, 1))) / 2) ** 2,
    ),
    "warm-up": (optim.warmup_constant_schedule(0.1, 0.5, 4), lambda t: 0.1 + 0.4 * min(t / 4, 1)),
    "warm-up cosine": (
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 3, 9, 0.1),
        lambda t: t / 3 if t < 3 else 0.1 + 0.9 * (1 + math.cos(math.pi * min((t - 3) / 6, 1))) / 2,
    ),
    "no warm-up": (optim.warmup_cosine_decay_schedule(0.0, 1.0, 0, 9), lambda t: (1 + math.cos(math.pi * min(t / 9, 1))) / 2),
    "pieces": (optim.piecewise_constant_schedule(1.0, {2: 0.5, 5: 0.1}), lambda t: 1.0 if t < 2 else 0.5 if t < 5 else 0.05),
    "joined": (
        optim.join_schedules([optim.constant_schedule(0.3), optim.linear_schedule(1.0, 0.0, 4), lambda t: 7.0], [2, 8]),
        lambda t: 0.3 if t < 2 else 7.0 if t >= 8 else 1 - min((t - 2) / 4, 1),
    ),
    "interpolated": (
        optim.piecewise_interpolate_schedule("linear", 1.0, {8: 0.5, 4: 3.0}),
        lambda t: 1 + t / 2 if t < 4 else 3 - 1.5 * (t - 4) / 4 if t < 8 else 1.5,
    ),
    "interpolated from a step": (
        optim.piecewise_interpolate_schedule("cosine", 1.0, {0: 2.0, 4: 0.0}), lambda t: 1 + math.cos(math.pi * min(t / 4, 1)),
    ),
    "one cycle": (
        optim.cosine_onecycle_schedule(10, 1.0, 0.4, 5.0, 10.0),
        lambda t: 0.6 - 0.4 * math.cos(math.pi * t / 4) if t < 4 else 0.51 + 0.49 * math.cos(math.pi * min((t - 4) / 6, 1)),
    ),
    "linear one cycle": (
        optim.linear_onecycle_schedule(10, 1.0, 0.4, 0.8, 5.0, 10.0),
        lambda t: 0.2 + 0.2 * t if t < 4 else 1 - 0.2 * (t - 4) if t < 8 else 0.2 - 0.09 * min(t - 8, 2),
    ),
    "warm-up exponential": (
        optim.warmup_exponential_decay_schedule(0.0, 1.0, 4, 2, 0.5), lambda t: t / 4 if t < 4 else 0.5 ** ((t - 4) / 2),
    ),
    "restarts": (
        optim.sgdr_schedule([
            {"init_value": 0.0, "peak_value": p, "warmup_steps": 0, "decay_steps": n} for p, n in ((1.0, 4), (0.5, 8))
        ]),
        lambda t: (1 + math.cos(math.pi * t / 4)) / 2 if t < 4 else (1 + math.cos(math.pi * (t - 4) / 8)) / 4,
    ),
}  # fmt: skip
every_schedule = pytest.mark.parametrize("name", SCHEDULES)


@every_schedule
def test_a_schedule_follows_its_formula(name: str) -> None:
    schedule, formula = SCHEDULES[name]
    for t in range(12):
        assert math.isclose(float(schedule(t)), formula(t), rel_tol=1e-5, abs_tol=1e-7), t


@every_schedule
def test_counts_may_be_numbers_arrays_and_tracers(name: str) -> None:
    schedule, _ = SCHEDULES[name]
    compiled = nnc.compile(schedule, max_traces=2)
    for t in (0, 3, 9):
        rates = [schedule(t), schedule(np.int64(t)), schedule(nnp.asarray(np.int32(t))), compiled(np.array(t))]
        assert all(rate.shape == () and rate.dtype == np.float32 for rate in rates)
        assert np.allclose(rates, float(rates[0]), rtol=1e-6)


def test_a_constant_schedule_gives_its_value_back() -> None:
    assert optim.constant_schedule(0.1)(5) == 0.1


def test_a_schedule_in_a_compiled_loop_is_traced_once() -> None:
    optimizer = optim.sgd(optim.exponential_decay(1.0, 1, 0.5))

    @nnc.compile(max_traces=1)
    def step(state: Any) -> Any:
        return optimizer.update(nnp.ones(()), state)

    state, steps = optimizer.init(nnp.ones(())), []
    for _ in range(4):
        u, state = step(state)
        steps.append(float(u))
    assert np.allclose(steps, [-1, -0.5, -0.25, -0.125])


def test_a_python_float_schedule_is_accepted() -> None:
    optimizer = optim.sgd(lambda count: 0.5)
    assert float(optimizer.update(nnp.ones(()), optimizer.init(nnp.ones(())))[0]) == -0.5


def test_schedules_of_other_things_than_rates_may_be_negative() -> None:
    assert float(optim.linear_schedule(-1.0, 1.0, 4)(2)) == 0
    assert float(optim.cosine_decay_schedule(-0.1, 10)(0)) == pytest.approx(-0.1)
    assert float(optim.exponential_decay(-1.0, 1, 0.5)(2)) == -0.25
