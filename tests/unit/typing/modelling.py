# mypy: disallow-any-expr, disallow-any-decorated, disallow-any-unimported
"""A program of layers, loops, branches and derivative rules as users write it; a type checker finds no Any in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import nnc
import nnc.numpy as nnp
from nnc import nn


class Encoder(nn.Module):
    """Layers as fields: a frozen dataclass, and a pytree."""

    project: nn.Linear
    norm: nn.LayerNorm
    attend: nn.MultiHeadAttention
    drop: nn.Dropout

    def __call__(self, x: nnc.Array, key: nnc.Array | None = None) -> nnc.Array:
        x = nn.gelu(self.norm(self.project(x)))
        return self.drop(x + self.attend(x, is_causal=True), key=key)


class Data(NamedTuple):
    x: nnc.Array
    label: nnc.Array


def make_encoder(key: nnc.Array) -> Encoder:
    first, second = nnc.random.split(key)
    layers = nn.Linear(4, 8, key=first), nn.LayerNorm(8), nn.MultiHeadAttention(8, 2, key=second)
    return Encoder(*layers, nn.Dropout(0.1, inference=True))


@nnc.custom_vjp
def clip_gradient(x: nnc.Array) -> nnc.Array:
    return x


def clip_forward(x: nnc.Array) -> tuple[nnc.Array, None]:
    return x, None


def clip_backward(_: None, ct: nnc.Array) -> tuple[nnc.Array]:
    return (nnp.clip(ct, -1.0, 1.0),)


clip_gradient.defvjp(clip_forward, clip_backward)


@nnc.custom_jvp
def safe_log(x: nnc.Array) -> nnc.Array:
    return nnp.log(x)


@safe_log.defjvp
def safe_log_jvp(primals: tuple[nnc.Array], tangents: tuple[nnc.Array]) -> tuple[nnc.Array, nnc.Array]:
    (x,), (t,) = primals, tangents
    return safe_log(x), t / nnp.maximum(x, 1e-6)


optimizer = nnc.optim.chain(
    nnc.optim.clip_by_global_norm(1.0),
    nnc.optim.adamw(nnc.optim.warmup_cosine_decay_schedule(0.0, 1e-2, 10, 100)),
)


def loss(model: nn.MLP, batch: Data) -> nnc.Array:
    return nn.softmax_cross_entropy(clip_gradient(model(batch.x)), batch.label).mean()


@nnc.compile(donate_argnums=(0, 1))
def step(model: nn.MLP, state: object, batch: Data) -> tuple[nn.MLP, object, nnc.Array]:
    value, gradients = nnc.value_and_grad(loss)(model, batch)
    updates, state = optimizer.update(gradients, state, model)
    return nnc.optim.apply_updates(model, updates), state, value


@nnc.compile
def root(a: nnc.Array) -> nnc.Array:
    def unfinished(carry: tuple[nnc.Array, nnc.Array]) -> nnc.Array:
        x, n = carry
        return (nnp.abs(x * x - a) > 1e-6) & (n < 50)

    def better(carry: tuple[nnc.Array, nnc.Array]) -> tuple[nnc.Array, nnc.Array]:
        x, n = carry
        return (x + a / x) / 2, n + 1

    x, count = nnc.while_loop(unfinished, better, (nnp.maximum(a, 1.0), 0))
    return nnc.cond(count < 50, nnp.asarray, nnp.zeros_like, x)


def random_walk(key: nnc.Array, length: int) -> nnc.Array:
    def move(x: nnc.Array, key: nnc.Array) -> tuple[nnc.Array, nnc.Array]:
        x = x + 0.1 * nnc.random.normal(key, x.shape)
        return x, x

    last, path = nnc.scan(move, nnp.zeros(2), nnc.random.split(key, length))
    return path - last


def per_example(model: nn.MLP, batch: Data) -> nn.MLP:
    return nnc.vmap(nnc.grad(loss), in_axes=(None, 0))(model, batch)


def train(key: nnc.Array) -> tuple[nn.MLP, Data, list[float]]:
    x = nnc.random.normal(key, (64, 4))
    data = Data(x, nnp.argmax(x[:, :3], axis=-1))
    model = nn.MLP(4, 3, width=16, depth=1, key=key)
    state, curve = optimizer.init(model), list[float]()
    for batch in nnc.data.batches(data, 16, key=key, epochs=3):
        model, state, value = step(model, state, batch)
        curve.append(float(value))
    return model, data, curve


def saved_and_loaded(model: nn.MLP) -> nn.MLP:
    with TemporaryDirectory() as folder:
        nnc.io.save(Path(folder) / "model.safetensors", model)
        return nnc.io.load(Path(folder) / "model.safetensors", like=model)


def main() -> list[float]:
    key = nnc.random.key(0)
    model, data, curve = train(key)
    squares = nnc.tree.map(nnp.square, per_example(saved_and_loaded(model), data))
    parts = nnc.nn.partition(nn.cast(model, "float32"))
    total = nnc.tree.reduce(nnp.add, nnc.tree.map(nnp.sum, nn.combine(*parts)))
    sizes = [leaf.size for leaf in nnc.tree.flatten(squares)[0]]
    encoder = make_encoder(key)
    encoded = nn.inference_mode(replace(encoder, drop=nn.Dropout(0.5)))(data.x[None])
    outputs, states = nn.LSTM(8, 4, key=key)(encoded)
    network = nn.Sequential([nn.Linear(4, 2, key=key), nn.Lambda(nn.relu), nn.softmax])
    nnc.testing.check_grads(safe_log, (data.x[0] ** 2 + 1,), order=1)
    shapes = [
        outputs.shape,
        states[0][0].cell.shape,
        random_walk(key, 5).shape,
        nn.parameters(network)["layers.0.bias"].shape,
    ]
    return [curve[-1], float(total) * 0, float(root(nnp.asarray(2.0))), float(sum(sizes) + len(shapes))]
