"""Optimizers that refused schedules, lost digits, or count otherwise than their namesakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim

START = np.linspace(-1.0, 2.0, 6).reshape(3, 2)
GRADS = np.random.default_rng(0).normal(size=(8, 3, 2)) * (
    np.random.default_rng(1).random((8, 3, 2)) < 0.6
)  # some are 0


def path(optimizer: Any) -> np.ndarray[Any, Any]:
    params: Any = nnp.asarray(START)
    state = optimizer.init(params)

    @nnc.compile(max_traces=1)
    def step(params: Any, state: Any, g: Any) -> Any:
        updates, state = optimizer.update(g, state, params)
        return optim.apply_updates(params, updates), state

    for g in GRADS:
        params, state = step(params, state, g)
    return np.asarray(params)


NUMBERS: dict[str, tuple[Callable[..., Any], dict[str, float]]] = {
    "momentum": (optim.sgd, {"learning_rate": 0.1, "momentum": 0.9}),
    "b1 and b2": (optim.adam, {"learning_rate": 0.1, "b1": 0.8, "b2": 0.9, "eps": 1e-3}),
    "max_norm": (optim.clip_by_global_norm, {"max_norm": 0.3}),
    "step_size": (optim.scale, {"step_size": -0.1}),
    "decay": (optim.ema, {"decay": 0.7}),
    "weight_decay": (optim.adamw, {"learning_rate": 0.1, "weight_decay": 0.3}),
    "momentum_decay": (optim.nadam, {"learning_rate": 0.1, "momentum_decay": 0.01}),
    "threshold": (optim.radam, {"learning_rate": 0.1, "b2": 0.9, "threshold": 4.0}),
    "factors": (optim.rprop, {"learning_rate": 0.01, "eta_minus": 0.4, "eta_plus": 1.3}),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_any_number_of_an_optimizer_may_be_a_schedule(name: str) -> None:
    make, numbers = NUMBERS[name]
    expected = path(make(**numbers))
    as_schedules = {key: lambda count, value=value: value for key, value in numbers.items()}
    for given in (numbers, as_schedules):
        np.testing.assert_allclose(path(optim.inject_hyperparams(make)(**given)), expected, 1e-14, 1e-15)
    state = optim.inject_hyperparams(make)(**as_schedules).init(nnp.asarray(START))
    assert {key: float(value) for key, value in state.hyperparams.items()} == numbers


def test_a_schedule_of_momentum_is_followed() -> None:
    optimizer = optim.inject_hyperparams(optim.sgd)(learning_rate=1.0, momentum=lambda count: 0.5 * count)
    state, steps = optimizer.init(nnp.ones(1)), []
    for _ in range(3):
        updates, state = optimizer.update(nnp.ones(1), state)
        steps.append(float(updates[0]))
    assert steps == [-1.0, -1.5, -2.5]


@pytest.mark.parametrize(
    "make", [optim.sgd, optim.adam, optim.lion, optim.fromage, optim.schedule_free_sgd, optim.muon, optim.adafactor]
)
def test_rates_of_python_functions_keep_the_digits_of_float64(make: Callable[..., Any]) -> None:
    expected = path(optim.inject_hyperparams(make)(learning_rate=0.1))
    np.testing.assert_allclose(path(make(lambda count: 0.1)), expected, 1e-14, 1e-15)


def test_step_sizes_of_rprop_have_the_digits_of_float64() -> None:
    optimizer, params = optim.rprop(0.01), nnp.asarray([1.0], "float64")
    state, size = optimizer.init(params), 0.01
    for g, factor in ((1.0, 1.0), (1.0, 1.2), (2.0, 1.2), (-1.0, 0.5), (-3.0, 1.0), (-1.0, 1.2)):
        updates, state = optimizer.update(nnp.asarray([g], "float64"), state, params)
        size *= factor
        assert updates[0] == (0 if factor == 0.5 else -np.sign(g) * size)


def test_rprop_takes_at_once_the_steps_that_optax_takes_one_call_later() -> None:
    optax = pytest.importorskip("optax")
    jax = pytest.importorskip("jax")
    ours, theirs = optim.rprop(0.01), optax.rprop(0.01)
    with jax.enable_x64(True):
        p, q = nnp.asarray(START), jax.numpy.asarray(START)
        state, peer_state, last = ours.init(p), theirs.init(q), np.zeros(START.shape)
        for g in [*GRADS, *-GRADS, *GRADS[:4]]:
            late, peer_state = theirs.update(jax.numpy.asarray(g), peer_state, q)
            now, state = ours.update(nnp.asarray(g), state, p)
            changes = g * -last < 0  # of the sign, where Optax drops the step that is due
            np.testing.assert_allclose(np.where(changes, 0, last), late, 1e-12, 1e-15)
            last = np.asarray(now)


@pytest.mark.parametrize("patience", [0, 1, 3])
@pytest.mark.parametrize("cooldown", [0, 2])
def test_the_patience_of_pytorch_is_one_less(patience: int, cooldown: int) -> None:
    torch = pytest.importorskip("torch")
    losses = np.random.default_rng(5).integers(0, 9, 40) / 4.0 + np.linspace(2, 0, 40)
    weight = torch.nn.Parameter(torch.zeros(1))
    peer = torch.optim.SGD([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
        peer, factor=0.5, patience=patience, cooldown=cooldown, eps=0
    )
    ours = optim.reduce_on_plateau(0.5, patience + 1, cooldown=cooldown)
    state = ours.init(nnp.ones(1))
    for loss in losses:
        _, state = ours.update(nnp.ones(1), state, value=loss)
        scheduler.step(loss)
        assert float(state.scale) == peer.param_groups[0]["lr"]
