# mypy: disallow-any-expr, disallow-any-decorated, disallow-any-unimported
"""A program as users write it: a network is trained, and a type checker finds no Any in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import nnc
import nnc.numpy as nnp
from nnc.typing import ArrayLike


@dataclass
class Dense:
    """One layer; a dataclass is a pytree."""

    weight: nnc.Array
    bias: nnc.Array

    def __call__(self, x: nnc.Array) -> nnc.Array:
        return x @ self.weight + self.bias


@dataclass
class Model:
    layers: list[Dense]

    def __call__(self, x: nnc.Array) -> nnc.Array:
        for layer in self.layers[:-1]:
            x = nnp.tanh(layer(x))
        return self.layers[-1](x)


class Batch(NamedTuple):
    x: nnc.Array
    y: nnc.Array


def make_model(key: nnc.Array, sizes: list[int]) -> Model:
    layers = []
    for place, (inputs, outputs) in enumerate(pairwise(sizes)):
        weight = nnc.random.normal(nnc.random.fold_in(key, place), (inputs, outputs)) / math.sqrt(inputs)
        layers.append(Dense(weight, nnp.zeros(outputs)))
    return Model(layers)


def make_data(key: nnc.Array, count: int) -> Batch:
    x = nnc.random.uniform(key, (count, 2), minval=-1.0, maxval=1.0)
    return Batch(x, nnp.sin(3 * x[:, :1]) * x[:, 1:])


def batches(data: Batch, size: int) -> Iterator[Batch]:
    for start in range(0, data.x.shape[0], size):
        yield Batch(data.x[start : start + size], data.y[start : start + size])


def loss(model: Model, batch: Batch) -> tuple[nnc.Array, dict[str, nnc.Array]]:
    error = model(batch.x) - batch.y
    mean = (error**2).mean()
    return mean, {"rmse": nnp.sqrt(mean), "worst": nnp.abs(error).max()}


optimizer = nnc.optim.adam(0.01)


@nnc.compile(donate_argnums=(0, 1))
def step(model: Model, state: object, batch: Batch) -> tuple[Model, object, dict[str, nnc.Array]]:
    gradients, facts = nnc.grad(loss, has_aux=True)(model, batch)
    updates, state = optimizer.update(gradients, state, model)
    return nnc.optim.apply_updates(model, updates), state, facts


def average(before: nnc.Array, value: nnc.Array) -> tuple[nnc.Array, nnc.Array]:
    smooth = 0.9 * before + 0.1 * value
    return smooth, smooth


@nnc.compile
def smoothed(values: nnc.Array) -> nnc.Array:
    last, curve = nnc.scan(average, values[0], values)
    return nnp.where(curve > last, curve, last)


@nnc.compile(contract=True)
def sensitivity(model: Model, x: nnc.Array) -> nnc.Array:
    def output(row: nnc.Array) -> nnc.Array:
        return model(row).sum()

    return nnc.vmap(nnc.grad(output))(x)


def train(epochs: int, seed: int = 0) -> tuple[Model, list[float]]:
    data_key, model_key = nnc.random.split(nnc.random.key(seed))
    data, model = make_data(data_key, 256), make_model(model_key, [2, 16, 1])
    state, curve = optimizer.init(model), list[float]()
    for _ in range(epochs):
        for batch in batches(data, 64):
            model, state, facts = step(model, state, batch)
            curve.append(float(facts["rmse"]))
    return model, curve


def halve(tree: dict[str, ArrayLike]) -> dict[str, nnc.Array]:
    return {name: nnp.asarray(value) / 2 for name, value in tree.items()}


def main() -> float:
    model, curve = train(epochs=20)
    smooth = smoothed(nnp.asarray(curve))
    slopes = sensitivity(model, nnp.zeros((3, 2)))
    doubled = nnc.tree.map(nnp.square, model)
    return float(smooth[-1]) + 0 * float(slopes.sum()) + 0 * float(halve({"a": doubled.layers[0].bias})["a"].sum())
