"""Optimizers that find their learning rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError

MAKERS = pytest.mark.parametrize("make", [optim.prodigy, optim.dadapt_adamw], ids=lambda make: make.__name__)


@MAKERS
@pytest.mark.parametrize("distance", [0.1, 10.0])
def test_the_estimate_grows_from_a_millionth_to_about_the_distance_of_the_minimum(make: Any, distance: float) -> None:
    optimizer, target = make(), nnp.asarray(np.full(4, distance))

    @nnc.compile(max_traces=1)
    def step(p: Any, state: Any) -> Any:
        updates, state = optimizer.update(nnp.sign(p - target), state, p)
        return optim.apply_updates(p, updates), state

    p = nnp.asarray(np.zeros(4))
    state = optimizer.init(p)
    for _ in range(250):
        p, state = step(p, state)
    assert distance / 20 < float(state.estim_lr) < distance * 3
    assert np.allclose(p, target, atol=distance * 0.8)


@MAKERS
def test_zero_gradients_leave_the_estimate(make: Any) -> None:
    optimizer, p = make(estim_lr0=0.5), nnp.ones(2)
    updates, state = optimizer.update(nnp.zeros(2), optimizer.init(p), p)
    assert float(state.estim_lr) == 0.5 and np.array_equal(updates, [0, 0])


@MAKERS
def test_mistakes_are_named(make: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"betas is 0.9, not a pair(.|\n)*Fix: write betas=\(0.9, 0.999\)"):
        make(betas=0.9)
    with pytest.raises(ArgumentError, match=r"betas\[1\] is 1.5(.|\n)*Fix:"):
        make(betas=(0.9, 1.5))
    with pytest.raises(ArgumentError, match="estim_lr0 is 0; it must be above 0(.|\n)*Fix:"):
        make(estim_lr0=0)
    optimizer = make()
    with pytest.raises(ArgumentTypeError, match=r"update\(grads, state, params\)"):
        optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)))
