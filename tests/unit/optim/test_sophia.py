"""Sophia's estimates of the Hessian, and Mechanic's scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError

SCALES = np.array([1.0, 10.0, 100.0])


def loss(p: Any) -> Any:
    return nnp.sum(nnp.asarray(SCALES) * p["w"] ** 2) / 2 + nnp.sum(p["w"]) * p["b"] + p["b"] ** 2


def test_the_mean_of_estimates_is_the_diagonal_of_the_hessian() -> None:
    estimator = optim.hutchinson_estimator_diag_hessian(random_seed=1)
    params: Any = {"w": nnp.asarray(np.array([0.3, -0.2, 0.1])), "b": nnp.asarray(np.array(0.5)), "name": "x"}
    update = nnc.compile(lambda params, state: estimator.update(params, state, params, obj_fn=loss))
    state, total = estimator.init(params), np.zeros(4)
    for _ in range(400):
        diagonal, state = update(params, state)
        total += np.append(np.asarray(diagonal["w"]), float(diagonal["b"]))
    assert np.allclose(total / 400, [*SCALES, 2.0], atol=0.3) and diagonal["name"] == "x"


@pytest.mark.parametrize("compiled", [False, True])
def test_an_estimate_is_made_once_in_each_interval(compiled: bool) -> None:
    calls: list[int] = []

    def measured(updates: Any, params: Any) -> Any:
        nnc.debug.callback(lambda: calls.append(1))
        return updates

    optimizer = optim.sophia(0.1, update_interval=3, hessian_diagonal_fn=optim.stateless(measured))
    p = nnp.ones(2)
    update, state = nnc.compile(optimizer.update) if compiled else optimizer.update, optimizer.init(p)
    for _ in range(7):
        _, state = update(p, state, p)
    assert len(calls) == 3


def test_directions_of_any_curvature_fall_alike() -> None:
    optimizer = optim.sophia(0.05, b2=0.5, weight_decay=0.0, gamma=1.0, update_interval=1)
    p: Any = {"w": nnp.asarray(np.ones(3)), "b": nnp.asarray(np.array(0.0))}
    state = optimizer.init(p)

    @nnc.compile
    def step(p: Any, state: Any) -> Any:
        grads = {**nnc.grad(loss)(p), "b": nnp.zeros_like(p["b"])}
        updates, state = optimizer.update(grads, state, p, obj_fn=loss)
        return optim.apply_updates(p, updates), state

    for _ in range(400):
        p, state = step(p, state)
    assert np.all(np.abs(p["w"]) < 0.05)


def test_mechanic_finds_a_scale_for_rates_that_are_far_off() -> None:
    for rate in (1e-4, 1.0, 1e4):
        optimizer = optim.mechanize(optim.sgd(rate), weight_decay=0.0, s_init=1e-8)

        @nnc.compile
        def step(p: Any, state: Any, optimizer: Any = optimizer) -> Any:
            updates, state = optimizer.update(2 * p, state, p)
            return optim.apply_updates(p, updates), state

        p = nnp.asarray(np.array([3.0, -4.0]))
        state = optimizer.init(p)
        for _ in range(300):
            p, state = step(p, state)
        assert float(nnp.sum(p * p)) < 2.5


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="update_interval is 0(.|\n)*Fix:"):
        optim.sophia(0.1, update_interval=0)
    with pytest.raises(ArgumentTypeError, match="hessian_diagonal_fn is(.|\n)*Fix:"):
        optim.sophia(0.1, hessian_diagonal_fn=loss)  # type: ignore[arg-type]
    optimizer = optim.sophia(0.1)
    with pytest.raises(
        ArgumentTypeError, match=r"obj_fn is None(.|\n)*Fix: call update\(grads, state, params, obj_fn=loss\)"
    ):
        optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)), nnp.ones(1))
    with pytest.raises(ArgumentError, match="num_betas is 0(.|\n)*Fix:"):
        optim.mechanize(optim.sgd(0.1), num_betas=0)
    with pytest.raises(ArgumentTypeError, match="base_optimizer is(.|\n)*Fix:"):
        optim.mechanize(optim.sgd)  # type: ignore[arg-type]
    optimizer = optim.mechanize(optim.sgd(0.1))
    with pytest.raises(ArgumentTypeError, match=r"update\(grads, state, params\)"):
        optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)))
