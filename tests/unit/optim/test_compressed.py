"""Gradients that travel in fewer bytes, beside a NumPy reference of all places."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc import optim
from nnc.distributed import data_parallel, make_mesh
from nnc.errors import ArgumentError, ArgumentTypeError, UnboundAxisError
from nnc.trace.core.named import stage_named

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((12, 5)), RNG.standard_normal((12, 3))
PARAMS = {"w": nnp.asarray(RNG.standard_normal((5, 3))), "b": nnp.zeros(3, "float32"), "name": "linear"}
PLACES = 4


def training_step(optimizer: Any) -> Any:
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        loss = lambda p: nnp.mean((nnp.tanh(x @ p["w"] + p["b"]) - y) ** 2)
        value, gradient = nnc.value_and_grad(loss)(nnc.pvary(params, "data"))
        updates, state = optimizer.update(gradient, state, params)
        return optim.apply_updates(params, updates), state, value

    return step


def train(optimizer: Any, steps: int = 4, wrap: Any = lambda f: f, **settings: Any) -> tuple[Any, Any, Any]:
    settings = settings or {"mesh": make_mesh((PLACES,), ("data",), simulated=True)}
    step = wrap(data_parallel(training_step(optimizer), batch_argnums=(2, 3), **settings))
    params, state = PARAMS, optimizer.init(PARAMS)
    for _ in range(steps):
        params, state, value = step(params, state, X, Y)
    return params, state, value


def plain(optimizer: Any, steps: int = 4) -> Any:
    loss = lambda p: nnp.mean((nnp.tanh(X @ p["w"] + p["b"]) - Y) ** 2)
    params, state = PARAMS, optimizer.init(PARAMS)
    for _ in range(steps):
        updates, state = optimizer.update(nnc.grad(loss)(params), state, params)
        params = optim.apply_updates(params, updates)
    return params


def close(found: Any, expected: Any, tolerance: float) -> None:
    for name in ("w", "b"):
        np.testing.assert_allclose(np.asarray(found[name]), np.asarray(expected[name]), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("wrap", [lambda f: f, nnc.compile], ids=["eager", "compiled"])
def test_a_whole_fraction_takes_the_steps_of_the_optimizer_itself(wrap: Any) -> None:
    optimizer = optim.compressed(optim.adam(1e-2), "data", fraction=1, places=PLACES)
    params, state, _ = train(optimizer, wrap=wrap)
    close(params, plain(optim.adam(1e-2)), 1e-6)
    assert params["name"] == "linear"
    assert all(not np.asarray(kept.state).any() for kept in state["unsent"].values())


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 4e-2), ("float16", 4e-3)])
def test_half_precision_rounds_each_gradient_and_the_sum(dtype: str, tolerance: float) -> None:
    gradients = RNG.standard_normal((PLACES, 7)).astype(np.float32)
    optimizer = optim.compressed(optim.sgd(1.0), "data", dtype=dtype)
    step = lambda g: optimizer.update(g, optimizer.init(g), None)[0]
    found = nnc.vmap(step, axis_name="data", out_axes=None)(gradients)
    small = gradients.astype(getattr(ml_dtypes, dtype, None) or dtype)
    expected = small.astype(np.float32).sum(0).astype(small.dtype).astype(np.float32)
    assert found.dtype == "float32"
    np.testing.assert_array_equal(np.asarray(found), -expected)
    close(train(optimizer)[0], plain(optim.sgd(1.0)), tolerance)


def largest(x: Any, count: int) -> Any:
    sent = np.zeros_like(x)
    at = np.argsort(-abs(x), kind="stable")[:count]
    sent[at] = x[at]
    return sent


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_largest_elements_travel_and_the_others_wait(dtype: str | None) -> None:
    optimizer = optim.compressed(optim.sgd(1.0), "data", fraction=0.3, dtype=dtype, places=PLACES)
    step = lambda g, state: optimizer.update(g, state, None)
    mesh = make_mesh((PLACES,), ("data",), simulated=True)
    run = nnc.compile(data_parallel(step, batch_argnums=0, mesh=mesh))
    state, unsent = optimizer.init(np.zeros((1, 10), np.float32)), np.zeros((PLACES, 10), np.float32)
    for _ in range(5):
        gradients = RNG.standard_normal((PLACES, 10)).astype(np.float32)
        found, state = run(gradients, state)
        both = gradients + unsent
        sent = np.stack([largest(row, 3) for row in both])
        sent = sent if dtype is None else sent.astype(ml_dtypes.bfloat16).astype(np.float32)
        unsent = both - sent
        np.testing.assert_allclose(np.asarray(found)[0], -sent.sum(0), rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(np.asarray(state["unsent"]["float32"].state).reshape(PLACES, 10), unsent)


def test_a_tenth_of_the_gradient_learns_nearly_as_much_as_the_whole_one() -> None:
    few = optim.compressed(optim.sgd(0.2), "data", fraction=0.1, places=PLACES)
    loss = lambda p: float(nnp.mean((nnp.tanh(X @ p["w"] + p["b"]) - Y) ** 2))
    at_first, sparse, whole = loss(PARAMS), loss(train(few, 150, nnc.compile)[0]), loss(plain(optim.sgd(0.2), 150))
    assert at_first - sparse > 0.9 * (at_first - whole)


def messages(optimizer: Any, size: int) -> int:
    """Bytes that a place gets from others in one update of a vector of float32."""
    whole = optimizer.init(np.zeros(size, np.float32))
    state = nnc.tree.map(lambda x: x[: len(x) // PLACES] if nnc.tree.is_array(x) and x.ndim else x, whole)
    step = lambda g: nnc.tree.leaves(optimizer.update(g, state, None)[0])
    staged, _ = stage_named(step, "data", PLACES, [np.zeros((PLACES, size), np.float32)], [True])
    names = ("psum", "psum_scatter", "all_gather_same")
    return sum(node.inputs[0].spec.nbytes for node in staged.graph.walk() if node.command.name in names)


def test_fewer_bytes_travel() -> None:
    exact = messages(optim.stateless(lambda g, params: nnc.psum(g, "data")), 1000)
    assert exact == 4000
    assert messages(optim.compressed(optim.sgd(1.0), "data", dtype="bfloat16"), 1000) == 2000 + 500
    assert messages(optim.compressed(optim.sgd(1.0), "data", fraction=0.01, places=PLACES), 1000) == 10 * (4 + 4)


def test_shards_are_places() -> None:
    optimizer = optim.compressed(optim.adam(1e-2), "data", fraction=0.25, places=4)
    found, _, value = train(optimizer, shards=4)
    expected, _, wanted = train(optimizer)
    close(found, expected, 1e-9)
    np.testing.assert_allclose(float(value), float(wanted), rtol=1e-12)


def test_mistakes_are_named() -> None:
    sgd = optim.sgd(0.1)
    for settings, kind, said in (
        ({}, ArgumentError, "neither dtype nor fraction"),
        ({"fraction": 0}, ArgumentError, "fraction is 0"),
        ({"fraction": 0.5, "places": 0}, ArgumentError, "places is 0"),
        ({"fraction": 1.5}, ArgumentError, "fraction is 1.5"),
        ({"fraction": "half"}, ArgumentTypeError, "fraction must be a number"),
        ({"dtype": "float32"}, ArgumentError, "float32, which is no half precision"),
    ):
        with pytest.raises(kind, match=said):
            optim.compressed(sgd, "data", **settings)  # type: ignore[arg-type]
    optimizer = optim.compressed(sgd, "data", fraction=0.5, places=3)
    with pytest.raises(UnboundAxisError, match="no axis 'data'"):
        optimizer.update(PARAMS, optimizer.init(PARAMS), PARAMS)
    with pytest.raises(ArgumentError, match=r"unsent elements of float(.|\n)*places=4"):
        train(optimizer)
    with pytest.raises(ArgumentTypeError, match="do not belong together"):
        nnc.vmap(lambda g: optimizer.update(g, optimizer.init(np.zeros(3, "f8")), None), axis_name="data")(
            np.zeros((3, 3), "f4")
        )
    summed = lambda g: optimizer.update(nnc.psum(g, "data"), optimizer.init(g), None)
    with pytest.raises(ArgumentError, match=r"summed already(.|\n)*nnc.pvary\(params, 'data'\)"):
        nnc.vmap(summed, axis_name="data")(np.zeros((3, 3), "f4"))
