"""`data_parallel`: the step of many places computes the result of one process on the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.distributed import data_parallel, make_mesh
from nnc.nn import BatchNorm, Linear, relu

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((12, 4)), RNG.standard_normal((12, 3))
MESH = make_mesh((4,), ("data",), simulated=True)


def close(got: Any, want: Any, tolerance: float = 1e-10) -> None:
    for a, b in zip(nnc.tree.leaves(got), nnc.tree.leaves(want), strict=True):
        if nnc.tree.is_array(a):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


def wide(model: Any) -> Any:
    return nnc.tree.map(lambda x: x.astype("float64") if isinstance(x, nnc.Array) else x, model)


def network() -> Any:
    first, second = nnc.random.split(nnc.random.key(0))
    return wide([Linear(4, 8, key=first), Linear(8, 3, key=second)])


def apply(layers: Any, x: Any) -> Any:
    return layers[1](nnp.tanh(layers[0](x)))


def training_step(optimizer: Any) -> Callable[..., Any]:
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(model: Any) -> Any:
            out = apply(model, x)
            return nnp.mean((out - y) ** 2), {"error": nnp.mean(abs(out - y))}

        (value, metrics), gradient = nnc.value_and_grad(loss, has_aux=True)(model)
        updates, state = optimizer.update(gradient, state, model)
        return nnc.optim.apply_updates(model, updates), state, value, metrics

    return step


def test_a_local_batch_of_a_simulated_mesh_is_the_whole_batch() -> None:
    optimizer = nnc.optim.sgd(1e-2)
    step, model = training_step(optimizer), network()
    many = data_parallel(step, batch_argnums=(2, 3), mesh=MESH, local_batch=True)
    close(many(model, optimizer.init(model), X, Y), step(model, optimizer.init(model), X, Y))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_training_at_four_places_is_training_on_the_whole_batch(compiled: bool) -> None:
    optimizer = nnc.optim.chain(nnc.optim.clip_by_global_norm(0.5), nnc.optim.adam(1e-2))
    step = training_step(optimizer)
    wrap: Any = nnc.compile if compiled else lambda f: f
    one, many = wrap(step), wrap(data_parallel(step, batch_argnums=(2, 3), mesh=MESH))
    model = network()
    a = b = (model, optimizer.init(model))
    for _ in range(4):
        found, expected = many(*a, X, Y), one(*b, X, Y)
        close(found, expected)
        a, b = found[:2], expected[:2]


def test_the_default_mesh_has_all_processes() -> None:
    step = training_step(nnc.optim.sgd(0.1))
    model = network()
    state = nnc.optim.sgd(0.1).init(model)
    close(data_parallel(step, batch_argnums=(2, 3))(model, state, X, Y), step(model, state, X, Y))


def test_batches_are_pytrees_and_keywords_are_the_same_everywhere() -> None:
    def step(w: Any, batch: Any, *, scale: Any) -> Any:
        return nnc.grad(lambda w: nnp.mean(batch["x"] @ w * scale) + nnp.mean(batch["y"][0]) * w[0])(w)

    w, batch = nnp.asarray(X[0]), {"x": X, "y": (Y[:, 0],)}
    close(data_parallel(step, batch_argnums=1, mesh=MESH)(w, batch, scale=3.0), step(w, batch, scale=3.0))


def test_gradients_within_loops_are_those_of_the_whole_batch() -> None:
    def step(w: Any, x: Any) -> Any:
        def descend(w: Any, _: Any) -> Any:
            value, gradient = nnc.value_and_grad(lambda w: nnp.mean((x @ w - 1) ** 2))(w)
            return w - 0.1 * gradient, value

        return nnc.scan(descend, w, None, 5)

    w = nnp.asarray(X[0])
    close(data_parallel(step, batch_argnums=1, mesh=MESH)(w, X), step(w, X))


def test_second_derivatives_are_those_of_the_mean() -> None:
    def step(w: Any, x: Any) -> Any:
        loss = lambda w: nnp.mean(nnp.tanh(x @ w) ** 2)
        return nnc.hvp(loss, (w,), (w,)), nnc.grad(lambda w: (nnc.grad(loss)(w) ** 2).sum())(w)

    w = nnp.asarray(X[0])
    close(data_parallel(step, batch_argnums=1, mesh=MESH)(w, X), step(w, X))


def test_other_axes_of_the_mesh_hold_equal_places() -> None:
    mesh = make_mesh((2, 3), ("other", "data"), simulated=True)
    step = lambda w, x: nnc.value_and_grad(lambda w: nnp.mean((x @ w) ** 2))(w)
    w = nnp.asarray(X[0])
    close(data_parallel(step, batch_argnums=1, mesh=mesh)(w, X), step(w, X))


def test_collectives_of_the_user_join_places() -> None:
    step = lambda x: (nnc.psum(x.sum(0), "batch"), nnc.axis_size("batch"), nnc.psum(len(x), "batch"))
    total, places, count = data_parallel(
        step, batch_argnums=0, axis_name="batch", mesh=make_mesh((3,), ("batch",), simulated=True)
    )(X)
    close(total, X.sum(0))
    assert (places, count) == (3, 12)


def normalised_step(model: Any, x: Any, y: Any) -> Any:
    def loss(model: Any) -> Any:
        hidden, norm = model[1](model[0](x))
        return nnp.mean((relu(hidden) - y) ** 2), norm

    (value, norm), gradient = nnc.value_and_grad(loss, has_aux=True)(model)
    return value, norm.mean, norm.variance, gradient


def test_batch_norm_has_the_statistics_of_the_whole_batch() -> None:
    linear = Linear(4, 3, key=nnc.random.key(1))
    whole = wide([linear, BatchNorm(3)])
    spread = wide([linear, BatchNorm(3, axis_name="data")])
    close(data_parallel(normalised_step, batch_argnums=(1, 2), mesh=MESH)(spread, X, Y), normalised_step(whole, X, Y))
    local = data_parallel(normalised_step, batch_argnums=(1, 2), mesh=MESH)(
        whole, X, Y
    )  # means of the places' statistics
    close(local[1], normalised_step(whole, X, Y)[1])
    assert abs(float(local[0] - normalised_step(whole, X, Y)[0])) > 1e-3


def test_gradients_outside_of_data_parallel_are_sums() -> None:
    found = nnc.vmap(lambda x: nnc.grad(lambda w: w * x)(nnp.asarray(np.array(2.0))), axis_name="data")(X[:4, 0])
    close(found[0], X[:4, 0].sum())
