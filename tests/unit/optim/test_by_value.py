"""Optimizers and scales that read the value of the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError

READERS: dict[str, Any] = {
    "polyak_sgd": optim.polyak_sgd, "momo": optim.momo, "momo_adam": optim.momo_adam,
    "reduce_on_plateau": optim.reduce_on_plateau,
}  # fmt: skip


def minimise(optimizer: optim.GradientTransformation, loss: Any, steps: int) -> float:
    @nnc.compile(max_traces=1)
    def step(p: Any, state: Any) -> Any:
        value, grads = nnc.value_and_grad(loss)(p)
        updates, state = optimizer.update(grads, state, p, value=value)
        return optim.apply_updates(p, updates), state

    p = nnp.asarray(np.array([2.0, -1.5]))
    state = optimizer.init(p)
    for _ in range(steps):
        p, state = step(p, state)
    return float(loss(p))


@pytest.mark.parametrize("name", ["polyak_sgd", "momo", "momo_adam"])
@pytest.mark.parametrize("height", [1.0, 1e-3, 1e3])
def test_step_sizes_by_the_value_fit_losses_of_any_height(name: str, height: float) -> None:
    loss = lambda p: height * nnp.sum(nnp.asarray(np.array([1.0, 3.0])) * p * p)
    optimizer = READERS[name](1e6 if name != "momo_adam" else 0.5)
    assert minimise(optimizer, loss, 100) < 1e-2 * height


@pytest.mark.parametrize("make", [optim.momo, optim.momo_adam])
def test_a_lower_bound_that_adapts_approaches_the_minimum(make: Any) -> None:
    loss = lambda p: nnp.sum(p * p) + 10.0
    bounds = {}
    for adapt in (True, False):
        optimizer, p = make(1.0, adapt_lower_bound=adapt), nnp.asarray(np.array([2.0, -1.5]))
        state = optimizer.init(p)
        for _ in range(60):
            value, grads = nnc.value_and_grad(loss)(p)
            updates, state = optimizer.update(grads, state, p, value=value)
            p = optim.apply_updates(p, updates)
        bounds[adapt] = float(state.lb)
    assert 9.8 < bounds[True] < 10.0 and bounds[False] == 0.0


def test_values_below_the_least_one_turn_steps_back_but_for_the_variant_that_stops() -> None:
    for variant, expected in (("sps", 1.0), ("sps+", 0.0)):
        optimizer = optim.polyak_sgd(f_min=2.0, variant=variant)  # type: ignore[arg-type]
        updates, _ = optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)), value=1.0)
        assert float(updates[0]) == expected


def test_a_plateau_shrinks_steps_and_a_cooldown_waits() -> None:
    optimizer = optim.reduce_on_plateau(0.5, patience=2, cooldown=2, min_scale=0.2)
    state, scales = optimizer.init(nnp.ones(1)), []
    for value in (1.0, *[1.0] * 8, 0.5, 0.5):
        updates, state = optimizer.update(nnp.ones(1), state, value=value)
        scales.append(round(float(updates[0]), 6))
    assert scales == [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25]


@pytest.mark.parametrize("name", READERS)
def test_a_missing_value_is_asked_for(name: str) -> None:
    optimizer = READERS[name]()
    with pytest.raises(
        ArgumentTypeError, match=f"{name if name != 'polyak_sgd' else 'scale_by_polyak'}(.|\n)*value=value"
    ):
        optimizer.update(nnp.ones(2), optimizer.init(nnp.ones(2)), nnp.ones(2))
    with pytest.raises(ArgumentError, match=r"value has shape \(2,\)(.|\n)*Fix:"):
        optimizer.update(nnp.ones(2), optimizer.init(nnp.ones(2)), nnp.ones(2), value=nnp.ones(2))


MISTAKES: dict[str, tuple[Any, str]] = {
    "an unknown variant": (lambda: optim.polyak_sgd(variant="spsl"), "variant is 'spsl'"),  # type: ignore[arg-type]
    "a factor above one": (lambda: optim.reduce_on_plateau(2.0), "factor is 2.0"),
    "no tolerance": (lambda: optim.reduce_on_plateau(rtol=0.0), "rtol and atol are both 0"),
    "no patience": (lambda: optim.reduce_on_plateau(patience=0), "patience is 0"),
    "an unknown first step": (lambda: optim.dog(init_step=("size", 1.0)), "init_step is"),  # type: ignore[arg-type]
    "no first step": (lambda: optim.dog(init_step=("distance", 0.0)), r"init_step\[1\] is 0.0"),
    "no first distance": (lambda: optim.dowg(eps=0.0), "eps is 0.0"),
    "momentum of one": (lambda: optim.madgrad(0.1, momentum=1.0), "momentum is 1.0"),
    "no scale of gradients": (lambda: optim.cocob(eps=0.0), "eps is 0.0"),
    "sums that are forgotten": (lambda: optim.scale_by_sm3(b2=0.0), "b2 is 0.0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistake_is_named_with_a_remedy(name: str) -> None:
    call, text = MISTAKES[name]
    with pytest.raises(ArgumentError, match=f"{text}(.|\n)*Fix:"):
        call()


def test_updating_without_parameters_where_they_are_read_raises() -> None:
    for optimizer in (
        optim.dog(), optim.dowg(), optim.cocob(), optim.madgrad(0.1), optim.scale_by_distance_over_gradients(), optim.momo(),
        optim.momo_adam(), optim.fromage(0.1),
    ):  # fmt: skip
        with pytest.raises(ArgumentTypeError, match=r"update\(grads, state, params\)"):
            optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)), value=1.0)


def test_sm3_keeps_one_vector_for_each_axis_and_divides_vectors_as_adagrad_does() -> None:
    state = optim.sm3(0.1).init({"w": nnp.ones((3, 4)), "b": nnp.ones(5), "c": 1.0, "n": None})
    assert [x.shape for x in state[0].mu["w"]] == [(3,), (4,)]
    assert [x.shape for x in state[0].mu["b"]] == [(5,)] and [x.shape for x in state[0].mu["c"]] == [()]
    ours, theirs = optim.sm3(0.1, momentum=0.0), optim.adagrad(0.1, 0.0, 1e-8)
    p = nnp.asarray(np.ones(3))
    a, b = ours.init(p), theirs.init(p)
    for g in np.random.default_rng(0).normal(size=(4, 3)):
        (u, a), (v, b) = ours.update(nnp.asarray(g), a, p), theirs.update(nnp.asarray(g), b, p)
        assert np.allclose(u, v)
