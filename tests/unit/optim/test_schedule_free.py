"""Schedule-free optimizers beside averages written out, and the parameters to evaluate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError


def test_parameters_to_evaluate_are_the_mean_of_all_iterates() -> None:
    optimizer, params = optim.schedule_free_sgd(0.25, b1=0.75), nnp.asarray(np.array([1.0, -2.0]))
    state, z, iterates = optimizer.init(params), np.array([1.0, -2.0]), []
    for g in np.random.default_rng(0).normal(size=(6, 2)):
        updates, state = optimizer.update(nnp.asarray(g), state, params)
        params = optim.apply_updates(params, updates)
        z = z - 0.25 * g
        iterates.append(z)
        mean = np.mean(iterates, axis=0)
        assert np.allclose(optim.schedule_free_eval_params(state, params), mean)
        assert np.allclose(params, 0.75 * mean + 0.25 * z)


def test_rates_that_warm_up_weight_the_iterates_by_their_square() -> None:
    optimizer, params = optim.schedule_free_sgd(1.0, warmup_steps=4), nnp.asarray(np.array([0.0]))
    state, iterates, weights, z = optimizer.init(params), [], [], 0.0
    for t in range(6):
        updates, state = optimizer.update(nnp.asarray(np.array([1.0])), state, params)
        params = optim.apply_updates(params, updates)
        z -= min(t / 4, 1.0)  # the base optimizer counts from 0, the average from 1, as in Optax
        iterates.append(z)
        weights.append(min((t + 1) / 4, 1.0) ** 2)
        expected = np.average(iterates, weights=weights)
        assert np.allclose(optim.schedule_free_eval_params(state, params), expected, rtol=1e-6)


def test_a_rate_of_zero_leaves_everything_in_its_place() -> None:
    optimizer, params = optim.schedule_free_adamw(0.0), nnp.ones(3)
    updates, state = optimizer.update(nnp.ones(3), optimizer.init(params), params)
    assert np.array_equal(updates, np.zeros(3))
    assert np.array_equal(optim.schedule_free_eval_params(state, params), params)


def test_16_bit_parameters_have_an_iterate_of_32_bits() -> None:
    params = nnp.ones(2, dtype="bfloat16")
    assert optim.schedule_free_adamw().init(params).z.dtype == np.float32
    assert str(optim.schedule_free_adamw(state_dtype="bfloat16").init(params).z.dtype) == "bfloat16"
    assert str(optim.schedule_free_eval_params(optim.schedule_free_sgd().init(params), params).dtype) == "bfloat16"


def test_parameters_and_state_may_be_donated_together() -> None:
    optimizer = optim.schedule_free_adamw(0.1)

    @nnc.compile(donate_argnums=(0, 1))
    def step(params: Any, state: Any) -> Any:
        updates, state = optimizer.update(params, state, params)
        return optim.apply_updates(params, updates), state

    params = nnp.asarray([1.0, -2.0])
    state = optimizer.init(params)
    for _ in range(3):
        params, state = step(params, state)
    assert 0 < float(params[0]) < 1.0 and -2.0 < float(params[1]) < 0


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentTypeError, match="base_optimizer is(.|\n)*Fix:"):
        optim.schedule_free(optim.sgd, 0.1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"b1 is 0; it must be above 0(.|\n)*Fix:"):
        optim.schedule_free_sgd(0.1, b1=0)
    with pytest.raises(ArgumentTypeError, match="learning_rate is a function(.|\n)*Fix:"):
        optim.schedule_free_sgd(lambda t: 0.1, warmup_steps=3)
    with pytest.raises(ArgumentTypeError, match="ScheduleFreeState(.|\n)*Fix:"):
        optim.schedule_free_eval_params(optim.sgd(0.1).init(nnp.ones(1)), nnp.ones(1))
    optimizer = optim.schedule_free_sgd(0.1)
    with pytest.raises(ArgumentTypeError, match=r"update\(grads, state, params\)"):
        optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)))
