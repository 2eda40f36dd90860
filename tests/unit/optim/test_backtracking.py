"""The backtracking line search beside its definition and Optax's stored steps.

python -m tests.unit.optim.test_backtracking        stores Optax's steps in recorded_backtracking.npz: Optax must be installed
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.errors import ArgumentError, ArgumentTypeError

RECORDED = Path(__file__).with_name("recorded_backtracking.npz")
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"max_backtracking_steps": 15},
    "fresh": {"max_backtracking_steps": 30, "increase_factor": np.inf, "slope_rtol": 0.3, "decrease_factor": 0.5},
    "few": {"max_backtracking_steps": 2, "rtol": 1e-3, "atol": 1e-2, "max_learning_rate": 0.02},
}
START = {"a": np.array([-1.2, 1.0, 0.5]), "b": np.array([0.5, 3.0])}


def valley(xp: Any, p: Any) -> Any:
    return xp.sum(10 * (p["a"][1:] - p["a"][:-1] ** 2) ** 2 + (1 - p["a"][:-1]) ** 2) + xp.sum((p["b"] - 2) ** 4)


def path(o: Any, xp: Any, value_and_grad: Any, options: dict[str, Any], steps: int = 12) -> np.ndarray[Any, Any]:
    optimizer = o.chain(o.sgd(1.0), o.scale_by_backtracking_linesearch(**options))
    loss = lambda p: valley(xp, p)
    params: Any = {name: xp.asarray(x) for name, x in START.items()}
    state, rows = optimizer.init(params), []
    for _ in range(steps):
        value, grad = value_and_grad(loss)(params)
        updates, state = optimizer.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        params = o.apply_updates(params, updates)
        last = state[-1]
        rows.append(
            [*np.asarray(params["a"]), *np.asarray(params["b"]), last.learning_rate, last.info.num_linesearch_steps]
        )
    return np.array(rows, np.float64)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("store_grad", [False, True])
def test_it_takes_the_steps_of_optax(name: str, store_grad: bool) -> None:
    with np.load(RECORDED) as file:
        wanted = file[name]
    ours = path(optim, nnp, nnc.value_and_grad, {**SETTINGS[name], "store_grad": store_grad})
    np.testing.assert_allclose(ours, wanted, rtol=1e-10, atol=1e-12)


def test_a_compiled_search_stores_the_value_and_gradient_after_its_step() -> None:
    loss = lambda p: valley(nnp, p)
    optimizer = optim.chain(optim.sgd(1.0), optim.scale_by_backtracking_linesearch(20, store_grad=True))

    @nnc.compile(max_traces=1)
    def step(p: Any, state: Any) -> Any:
        value, grad = optim.value_and_grad_from_state(loss)(p, state=state)
        updates, state = optimizer.update(grad, state, p, value=value, grad=grad, value_fn=loss)
        return optim.apply_updates(p, updates), state, value

    params: Any = {name: nnp.asarray(x) for name, x in START.items()}
    state, values = optimizer.init(params), []
    for _ in range(100):
        params, state, value = step(params, state)
        values.append(float(value))
    assert np.all(np.diff(values) <= 0) and values[-1] < 1e-2 * values[0]
    value, grad = nnc.value_and_grad(loss)(params)
    assert np.isclose(float(state[-1].value), float(value)) and np.allclose(state[-1].grad["a"], grad["a"])


def test_steps_to_values_that_are_not_finite_are_not_made_and_the_next_search_begins_anew() -> None:
    loss = lambda p: nnp.where(p < 1.0, np.inf, p)
    optimizer = optim.chain(optim.sgd(1.0), optim.scale_by_backtracking_linesearch(2))
    p, state = nnp.asarray(1.0), None
    state = optimizer.init(p)
    updates, state = optimizer.update(nnp.asarray(1.0), state, p, value=p, grad=nnp.asarray(1.0), value_fn=loss)
    assert float(updates) == 0.0 and float(state[-1].learning_rate) == 0.0
    updates, state = optimizer.update(nnp.asarray(1.0), state, 5 * p, value=5 * p, grad=nnp.asarray(1.0), value_fn=loss)
    assert float(updates) == -1.0


def test_arguments_of_the_function_are_handed_on() -> None:
    loss = lambda p, scale: scale * nnp.sum(p * p)
    optimizer = optim.chain(optim.sgd(1.0), optim.scale_by_backtracking_linesearch(20))
    p = nnp.asarray([3.0])
    value, grad = nnc.value_and_grad(loss)(p, 4.0)
    updates, _ = optimizer.update(grad, optimizer.init(p), p, value=value, grad=grad, value_fn=loss, scale=4.0)
    assert float(loss(p + updates, 4.0)) < float(value)


def test_mistakes_are_named() -> None:
    search = optim.scale_by_backtracking_linesearch
    for call, text in (
        (lambda: search(0), "max_backtracking_steps is 0"), (lambda: search(5, decrease_factor=1.0), "decrease_factor is 1.0"),
        (lambda: search(5, increase_factor=0.5), "increase_factor is 0.5"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=f"{text}(.|\n)*Fix:"):
            call()
    optimizer = search(5)
    with pytest.raises(ArgumentTypeError, match="value=value, grad=grads, value_fn=loss"):
        optimizer.update(nnp.ones(1), optimizer.init(nnp.ones(1)), nnp.ones(1))


def record() -> None:
    import jax  # noqa: PLC0415  an optional peer
    import optax  # noqa: PLC0415  an optional peer

    with warnings.catch_warnings(), jax.enable_x64(True):
        warnings.simplefilter("ignore")
        rows = {name: path(optax, jax.numpy, jax.value_and_grad, options) for name, options in SETTINGS.items()}
    np.savez_compressed(RECORDED, **rows)


if __name__ == "__main__":
    record()
