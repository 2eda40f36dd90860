"""Optimizers on a simulated device take the steps of the CPU, bit for bit, and copy nothing on the way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from tests.contract.optim.table import ROWS

BITS = {
    **{row.name: lambda row=row: row.make(optim.linear_schedule(0.1, 0.01, 5)) for row in ROWS},
    "muon": lambda: optim.muon(0.1, adam_weight_decay=0.02),
    "every second gradient a step": lambda: optim.MultiSteps(optim.adam(0.1), 2).gradient_transformation(),
    "two groups": lambda: optim.multi_transform(
        {"slow": optim.sgd(0.01), "fast": optim.adafactor(0.1)}, {"w": "fast", "layers": "slow", "one": "slow"}
    ),
}
PRODUCTS = [BITS["muon"], BITS["muon of vectors"]]
DECIDES = [
    BITS["conditionally_transform"],
    BITS["conditionally_mask"],
    BITS["sophia"],
]  # by a branch, which eager steps read
EVERY = pytest.mark.parametrize("make", BITS.values(), ids=BITS)


def start() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    params = {
        "w": rng.normal(size=(4, 3)),
        "layers": [rng.normal(size=3).astype(np.float32), None],
        "one": np.float32(2),
    }
    return params, nnc.tree.map(lambda p: np.asarray(rng.normal(size=np.shape(p)), p.dtype), params)


def steps(make: Callable[[], Any], device: str, *, compiled: bool) -> Any:
    """The parameters and the state after each of three steps."""
    optimizer, (params, grads) = make(), nnc.device_put(start(), device)

    def step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = optimizer.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    step = nnc.compile(step) if compiled else step
    with nullcontext() if make in DECIDES and not compiled else nnc.debug.transfers("error"):
        reached = [(params, optimizer.init(params))]
        for _ in range(3):
            reached.append(step(*reached[-1], grads))
    return reached


def check_same(found: Any, wanted: Any, rtol: float = 0) -> None:
    assert nnc.tree.structure(found) == nnc.tree.structure(wanted)
    for x, y in zip(nnc.tree.leaves(found), nnc.tree.leaves(wanted), strict=True):
        assert x.device == "sim:0" and x.spec == y.spec
        if rtol:
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol)
        else:
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@EVERY
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_steps_are_those_of_the_cpu(make: Callable[[], Any], compiled: bool) -> None:
    """But for eager products of the CPU, which read views where a device has copies, and may add in another order."""
    rtol = 1e-12 if make in PRODUCTS and not compiled else 0
    check_same(steps(make, "sim:0", compiled=compiled), steps(make, "cpu", compiled=compiled), rtol)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_line_search_ends_where_that_of_the_cpu_does(compiled: bool) -> None:
    def search(device: str) -> Any:
        optimizer, target = optim.lbfgs(), nnc.device_put(np.array([1.5, -0.5]), device)

        def loss(p: Any) -> Any:
            return nnp.sum((p - target) ** 4)

        def step(p: Any, state: Any) -> Any:
            value, grad = nnc.value_and_grad(loss)(p)
            updates, state = optimizer.update(grad, state, p, value=value, grad=grad, value_fn=loss)
            return optim.apply_updates(p, updates), state

        step = nnc.compile(step, device=device) if compiled else step
        p = nnp.zeros(2, "float64", device=device)
        state = optimizer.init(p)
        for _ in range(3):
            p, state = step(p, state)
        return p, state

    check_same(search("sim:0"), search("cpu"))
