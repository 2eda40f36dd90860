"""Optimizers whose state is spread over the places of data parallel training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.distributed import data_parallel, make_mesh
from nnc.errors import ArgumentError, ArgumentTypeError, UnboundAxisError

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((12, 5)), RNG.standard_normal((12, 3))
PARAMS = {
    "w": nnp.asarray(RNG.standard_normal((5, 3))),
    "b": nnp.zeros(3, "float32"),
    "name": "linear",
    "c": nnp.zeros((), "float64"),
}


def training_step(optimizer: Any) -> Any:
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss = lambda p: nnp.mean((nnp.tanh(x @ p["w"] + p["b"]) * (1 + p["c"]) - y) ** 2)
        value, gradient = nnc.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return optim.apply_updates(params, updates), state, value

    return step


def train(optimizer: Any, places: int, wrap: Any = lambda f: f) -> tuple[Any, Any]:
    mesh = make_mesh((places,), ("data",), simulated=True)
    step = wrap(data_parallel(training_step(optimizer), batch_argnums=(2, 3), mesh=mesh))
    params, state = PARAMS, optimizer.init(PARAMS)
    for _ in range(4):
        params, state, _ = step(params, state, X, Y)
    return params, state


OPTIMIZERS = [
    optim.sgd(0.1, momentum=0.9), optim.adam(1e-2), optim.adamw(1e-2, weight_decay=0.1), optim.rmsprop(1e-2), optim.lion(1e-2),
]  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "adam", "adamw", "rmsprop", "lion"])
@pytest.mark.parametrize("places", [1, 3, 4])
def test_steps_are_those_of_the_optimizer_itself(optimizer: Any, places: int) -> None:
    expected, _ = train(optimizer, 1)
    found, _ = train(optim.sharded(optimizer, "data"), places)
    for name in ("w", "b", "c"):
        np.testing.assert_allclose(np.asarray(found[name]), np.asarray(expected[name]), rtol=1e-6, atol=1e-7)
    assert found["name"] == "linear"


def test_compiled_steps_are_those_of_eager_ones() -> None:
    optimizer = optim.chain(optim.clip_by_global_norm(0.1), optim.sharded(optim.adam(1e-2), "data"))
    eager, compiled = train(optimizer, 4), train(optimizer, 4, nnc.compile)
    plain, _ = train(optim.chain(optim.clip_by_global_norm(0.1), optim.adam(1e-2)), 1)
    np.testing.assert_allclose(np.asarray(eager[0]["w"]), np.asarray(compiled[0]["w"]), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(eager[0]["w"]), np.asarray(plain["w"]), rtol=1e-6)


def test_each_place_holds_its_part_of_the_state_alone() -> None:
    seen: list[Any] = []
    optimizer = optim.sharded(optim.adam(1e-2), "data")
    whole = optimizer.init(PARAMS)
    sizes = lambda state: {x.shape for x in nnc.tree.leaves(state) if nnc.tree.is_array(x) and x.ndim}

    def step(state: Any, x: Any) -> Any:
        seen.append(sizes(state))
        return optimizer.update(PARAMS, state, PARAMS)[1]

    mesh = make_mesh((4,), ("data",), simulated=True)
    after = data_parallel(step, batch_argnums=1, mesh=mesh)(whole, X)
    assert sizes(whole) == sizes(after) == {(3,), (16,)} and seen == [{(1,), (4,)}]


def test_a_state_goes_on_with_another_number_of_places() -> None:
    optimizer, plain = optim.sharded(optim.adam(1e-2), "data"), optim.adam(1e-2)
    params, state = train(optimizer, 4)
    expected, expected_state = train(plain, 1)
    for places in (3, 2):
        mesh = make_mesh((places,), ("data",), simulated=True)
        params, state, _ = data_parallel(training_step(optimizer), batch_argnums=(2, 3), mesh=mesh)(params, state, X, Y)
        expected, expected_state, _ = training_step(plain)(expected, expected_state, X, Y)
    np.testing.assert_allclose(np.asarray(params["w"]), np.asarray(expected["w"]), rtol=1e-6)


def test_wrong_uses_are_told() -> None:
    optimizer = optim.sharded(optim.adam(1e-2), "data")
    state = optimizer.init(PARAMS)
    with pytest.raises(UnboundAxisError, match="no axis 'data'"):
        optimizer.update(PARAMS, state, PARAMS)
    with pytest.raises(ArgumentError, match="the state is not split over 'data'(.|\n)*data_parallel"):
        nnc.vmap(lambda x: optimizer.update(PARAMS, state, PARAMS)[0]["w"], axis_name="data")(X)
    with pytest.raises(ArgumentTypeError, match="do not belong together"):
        nnc.vmap(lambda x: optimizer.update(PARAMS, optim.adam(1e-2).init(PARAMS))[0]["w"], axis_name="data")(X)
    with pytest.raises(ArgumentTypeError, match="not a GradientTransformation"):
        optim.sharded(optim.adam, "data")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="axis_name must be a string"):
        optim.sharded(optim.adam(1e-2), 3)  # type: ignore[arg-type]
