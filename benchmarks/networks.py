"""The networks of which benchmarks look at inference and at training steps: abstract, so that none of their arrays exists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc import nn, optim
from nnc.nn import models

Make = Callable[[Any], Any]  # key -> model
CLASSES = 10


def struct(*shape: int, dtype: Any = np.float32) -> nnc.ShapeDtypeStruct:
    """An argument that is known by shape and dtype alone."""
    return nnc.ShapeDtypeStruct(shape, dtype)


@dataclass(frozen=True)
class Network:
    """A model, its arguments, and the optimizer that trains it on classes."""

    name: str
    make: Make
    x: nnc.ShapeDtypeStruct
    labels: nnc.ShapeDtypeStruct
    optimizer: optim.GradientTransformation

    def model(self) -> Any:
        """The model without values."""
        return nnc.eval_shape(lambda: self.make(nnc.random.key(0)))

    def inference(self) -> Any:
        """The lowered forward pass, dropout off, running statistics used."""
        model = nn.inference_mode(self.model())
        return nnc.compile(lambda model, x: _output(model, x)[0], streams=1).lower(model, self.x)

    def training(self, streams: int | str = 1) -> Any:
        """The lowered training step, which takes over the memory of model and optimizer state.

        On several streams, commands that run at the same time need memory of their own; the eager modes run one after the other.
        """
        model = self.model()
        state = nnc.eval_shape(self.optimizer.init, model)
        return nnc.compile(self.step, donate_argnums=(0, 1), streams=streams).lower(model, state, self.x, self.labels)

    def step(self, model: Any, state: Any, x: Any, labels: Any) -> tuple[Any, Any, Any]:
        """Loss, gradients, update: the code of the compiled and of the eager step."""
        (loss, model), grads = nnc.value_and_grad(mean_loss, has_aux=True)(model, x, labels)
        updates, state = self.optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, loss


def mean_loss(model: Any, x: Any, labels: Any) -> tuple[Any, Any]:
    """The mean cross-entropy, and the model with new running statistics."""
    scores, model = _output(model, x)
    return nnp.mean(nn.softmax_cross_entropy(scores, labels)), model


def _output(model: Any, x: Any) -> tuple[Any, Any]:
    return model(x) if nn.is_stateful(model) else (model(x), model)


class Recurrent(nn.Module):
    """An LSTM cell along the time axis, as a loop or written out, and a linear layer on its last output."""

    cell: nn.LSTMCell
    head: nn.Linear
    unrolled: bool = nn.field(static=True)

    def __init__(self, features: int, hidden: int, *, unrolled: bool, key: Any) -> None:
        keys = nnc.random.split(key)
        self.cell, self.head = nn.LSTMCell(features, hidden, key=keys[0]), nn.Linear(hidden, CLASSES, key=keys[1])
        self.unrolled = unrolled

    def __call__(self, x: Any) -> Any:
        """(T, N, features) -> (N, classes)."""
        state = nn.LSTMCell.initial_state(self.cell, self.cell.project(x[0]))
        if self.unrolled:
            for row in x:
                state = self.cell(row, state)
        else:
            state, _ = nnc.scan(lambda state, row: (self.cell(row, state), None), state, x)
        return self.head(state.hidden)


class Encoder(nn.Module):
    """Transformer layers, the mean over time, a linear layer."""

    encoder: nn.TransformerEncoder
    head: nn.Linear

    def __init__(self, depth: int, features: int, heads: int, *, key: Any) -> None:
        keys = nnc.random.split(key, depth + 1)
        layers = [
            nn.TransformerEncoderLayer(features, heads, key=k, activation=nn.gelu, dropout_rate=0.0) for k in keys[:-1]
        ]
        self.encoder, self.head = nn.TransformerEncoder(layers), nn.Linear(features, CLASSES, key=keys[-1])

    def __call__(self, x: Any) -> Any:
        """(N, T, features) -> (N, classes)."""
        return self.head(nnp.mean(self.encoder(x), axis=1))


class Perceptron(nn.Module):
    """Linear layers with relu between."""

    layers: nn.Sequential

    def __init__(self, *sizes: int, key: Any) -> None:
        keys = nnc.random.split(key, len(sizes) - 1)
        self.layers = nn.Sequential(*(nn.Linear(m, n, key=k) for m, n, k in zip(sizes, sizes[1:], keys, strict=False)))

    def __call__(self, x: Any) -> Any:
        """(N, first size) -> (N, last size)."""
        *hidden, last = self.layers
        for layer in hidden:
            x = nn.relu(layer(x))
        return last(x)


def image_network(name: str, make: Make, batch: int, size: int, channels: int = 3) -> Network:
    """A network on images, trained by SGD with momentum."""
    return Network(
        name, make, struct(batch, channels, size, size), struct(batch, dtype=np.int32), optim.sgd(0.1, momentum=0.9)
    )


def resnet50(batch: int, size: int) -> Network:
    """ResNet-50 with 1000 classes."""
    return image_network("ResNet-50", lambda key: models.resnet50(key=key), batch, size)


def all_networks(*, quick: bool) -> list[Network]:
    """The networks of the tables; `quick`: the small ones."""
    labels, adam = struct(16, dtype=np.int32), optim.adam(1e-3)
    small = [
        Network("MLP", lambda key: Perceptron(784, 512, 512, CLASSES, key=key), struct(16, 784), labels, adam),
        image_network("LeNet", lambda key: models.LeNet(key=key), 16, 28, 1),
        Network(
            "LSTM, 64 steps, scan",
            lambda key: Recurrent(128, 128, unrolled=False, key=key),
            struct(64, 16, 128),
            labels,
            adam,
        ),
    ]
    if quick:
        return small
    return [
        *small,
        Network(
            "LSTM, 64 steps, unrolled",
            lambda key: Recurrent(128, 128, unrolled=True, key=key),
            struct(64, 16, 128),
            labels,
            adam,
        ),
        Network("transformer, 12 layers", lambda key: Encoder(12, 256, 4, key=key), struct(16, 128, 256), labels, adam),
        image_network("ResNet-18", lambda key: models.resnet18(key=key), 16, 224),
        resnet50(16, 224),
        image_network("DenseNet-121", lambda key: models.densenet121(key=key), 16, 224),
        image_network("GoogLeNet (Inception)", lambda key: models.GoogLeNet(key=key, dropout_rate=0.0), 16, 224),
    ]
