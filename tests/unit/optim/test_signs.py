"""Rprop's step sizes, and mistakes with optimizers that read signs."""

from __future__ import annotations

import numpy as np
import pytest

import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError


def test_step_sizes_of_rprop_stay_within_their_limits() -> None:
    optimizer = optim.rprop(1.0, min_step_size=0.4, max_step_size=1.3)
    state, sizes = optimizer.init(nnp.zeros(1)), []
    for g in (1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0):
        _, state = optimizer.update(nnp.asarray([g]), state)
        sizes.append(float(state[0].step_sizes[0]))
    expected = [1.0, 1.2, 1.3, 0.65, 0.65, 0.4, 0.4, 0.4]
    assert np.allclose(sizes, expected)


def test_a_gradient_that_changes_its_sign_makes_no_step_and_the_next_one_makes_a_short_one() -> None:
    optimizer = optim.rprop(1.0)
    state, steps = optimizer.init(nnp.zeros(1)), []
    for g in (1.0, -1.0, -1.0):
        updates, state = optimizer.update(nnp.asarray([g]), state)
        steps.append(float(updates[0]))
    assert steps == [-1.0, 0.0, 0.5]


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="eta_minus is 1.2, above eta_plus, 0.5(.|\n)*Fix: exchange"):
        optim.rprop(0.1, 1.2, 0.5)
    with pytest.raises(ArgumentError, match="min_step_size is 1.0, above max_step_size(.|\n)*Fix:"):
        optim.rprop(0.1, min_step_size=1.0, max_step_size=0.1)
    with pytest.raises(ArgumentTypeError, match="learning_rate is a function(.|\n)*Fix:"):
        optim.rprop(lambda count: 0.1)
    with pytest.raises(ArgumentTypeError, match="clip_value_fn is 2.0(.|\n)*Fix: write clip_value_fn"):
        optim.adopt(0.1, clip_value_fn=2.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="b3 is 1.5(.|\n)*Fix:"):
        optim.ademamix(0.1, b3=1.5)
    with pytest.raises(ArgumentTypeError, match="learning_rate is a function(.|\n)*Fix:"):
        optim.optimistic_adam(lambda count: 0.1)
