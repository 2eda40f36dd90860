"""Sharpness-aware minimisation: where its gradients are taken, and which minima it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError


def loss(p: Any) -> Any:
    return nnp.sum(nnp.asarray(np.array([1.0, 3.0])) * p * p)


def grad(p: Any) -> Any:
    return nnc.grad(loss)(p)


def steps_of(optimizer: optim.GradientTransformation, count: int, **extra: Any) -> list[np.ndarray]:
    params, path = nnp.asarray(np.array([2.0, -1.0])), []
    state = optimizer.init(params)
    for _ in range(count):
        updates, state = optimizer.update(grad(params), state, params, **extra)
        params = optim.apply_updates(params, updates)
        path.append(np.asarray(params))
    return path


def adversary() -> optim.GradientTransformation:
    return optim.chain(optim.normalize(), optim.sgd(0.1))


def test_every_other_update_climbs_along_the_unit_gradient_and_the_next_descends_from_the_start() -> None:
    path = steps_of(optim.sam(optim.sgd(0.05), adversary()), 4)
    p = np.array([2.0, -1.0])
    for climbed, stepped in (path[:2], path[2:]):
        g = np.asarray(grad(nnp.asarray(p)))
        up = p + 0.1 * g / np.linalg.norm(g)
        assert np.allclose(climbed, up)
        p = p - 0.05 * np.asarray(grad(nnp.asarray(up)))
        assert np.allclose(stepped, p)


@pytest.mark.parametrize("period", [1, 2, 4])
@pytest.mark.parametrize("reset", [True, False])
def test_opaque_mode_makes_the_steps_that_the_other_makes_in_several_updates(period: int, reset: bool) -> None:
    inner = optim.chain(optim.normalize(), optim.sgd(0.1, 0.9)), optim.adamw(0.05, weight_decay=0.1)
    make = lambda opaque: optim.sam(inner[1], inner[0], period, reset_state=reset, opaque_mode=opaque)
    whole = steps_of(make(True), 3, grad_fn=lambda p, i: grad(p))
    apart = steps_of(make(False), 3 * period)[period - 1 :: period]
    assert np.allclose(whole, apart)


def test_gradients_of_a_mapped_batch_are_averaged() -> None:
    scales = np.array([[1.0, 3.0], [2.0, 5.0]])
    optimizer = optim.sam(optim.sgd(0.05), optim.sgd(0.1), opaque_mode=True, batch_axis_name="batch")
    whole = optim.sam(optim.sgd(0.05), optim.sgd(0.1), opaque_mode=True)
    p = nnp.asarray(np.array([2.0, -1.0]))
    slope = lambda p, scale: 2 * scale * p

    def one(scale: Any) -> Any:
        first = nnc.pmean(slope(p, scale), "batch")
        return optimizer.update(first, optimizer.init(p), p, grad_fn=lambda q, i: slope(q, scale))[0]

    updates = nnc.vmap(one, axis_name="batch")(nnp.asarray(scales))
    mean = nnp.asarray(scales.mean(0))
    wanted, _ = whole.update(slope(p, mean), whole.init(p), p, grad_fn=lambda q, i: slope(q, mean))
    assert np.allclose(updates, [wanted, wanted])


def test_the_unit_gradient_of_zeros_is_zero() -> None:
    transformation = optim.normalize()
    updates, _ = transformation.update({"a": nnp.zeros(2), "b": "text"}, transformation.init(None))
    assert np.array_equal(updates["a"], [0, 0]) and updates["b"] == "text"


def test_mistakes_are_named() -> None:
    with pytest.raises(ArgumentError, match="sync_period is 0(.|\n)*Fix:"):
        optim.sam(optim.sgd(0.1), adversary(), 0)
    with pytest.raises(ArgumentTypeError, match="adv_optimizer is(.|\n)*Fix:"):
        optim.sam(optim.sgd(0.1), optim.normalize)  # type: ignore[arg-type]
    optimizer = optim.sam(optim.sgd(0.1), adversary(), opaque_mode=True)
    with pytest.raises(ArgumentTypeError, match="grad_fn is None(.|\n)*Fix: call update"):
        optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)), nnp.ones(1))
    optimizer = optim.sam(optim.sgd(0.1), adversary())
    with pytest.raises(ArgumentTypeError, match=r"update\(grads, state, params\)"):
        optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)))
