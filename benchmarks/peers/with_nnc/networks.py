"""Networks in nnc: its layers and models, its optimizers, one compiled step that takes over the memory of model and state."""

from __future__ import annotations

from functools import partial
from typing import Any

import nnc
import nnc.numpy as nnp
from benchmarks import networks
from benchmarks.networks import CLASSES, Make, Network, struct
from benchmarks.peers.row import Inputs, Step
from nnc import nn, optim
from nnc.nn import models

OPTIMIZERS = {"adam": optim.adam, "sgd": partial(optim.sgd, momentum=0.9)}


class Sequences(nn.Module):
    """An LSTM, and a linear layer on its last output."""

    lstm: nn.LSTM
    head: nn.Linear

    def __init__(self, features: int, hidden: int, *, key: Any) -> None:
        keys = nnc.random.split(key)
        self.lstm, self.head = nn.LSTM(features, hidden, key=keys[0]), nn.Linear(hidden, CLASSES, key=keys[1])

    def __call__(self, x: Any) -> Any:
        """(N, T, features) -> (N, classes)."""
        out, _ = self.lstm(x)
        return self.head(out[:, -1])


class Sentences(nn.Module):
    """Embeddings of words and places, transformer layers, the mean over the sentence."""

    words: nn.Embedding
    places: nn.Embedding
    norm: nn.LayerNorm
    encoder: nn.TransformerEncoder

    def __init__(self, words: int, length: int, features: int, depth: int, heads: int, *, key: Any) -> None:
        keys = nnc.random.split(key, depth + 2)
        self.words = nn.Embedding(words, features, key=keys[0])
        self.places = nn.Embedding(length, features, key=keys[1])
        self.norm = nn.LayerNorm(features)
        layers = [nn.TransformerEncoderLayer(features, heads, key=k, activation=exact_gelu) for k in keys[2:]]
        self.encoder = nn.TransformerEncoder(layers)

    def __call__(self, ids: Any) -> Any:
        """(N, T) integers -> (N, features)."""
        x = self.norm(self.words(ids) + self.places.weight)
        return nnp.mean(self.encoder(x), axis=1)


def exact_gelu(x: Any) -> Any:
    """x · Φ(x), with the error function, as BERT has it."""
    return nn.gelu(x, approximate=False)


def _loaded(make: Make, weights: Any) -> Any:
    """The model with given weights; weights that it would draw are never made."""
    return nn.load_torch(nnc.eval_shape(lambda: make(nnc.random.key(0))), weights)


def _training(make: Make, inputs: Inputs, optimizer: str, rate: float) -> Step:
    x, labels = nnc.asarray(inputs["x"]), nnc.asarray(inputs["labels"])
    shapes = [struct(*array.shape, dtype=array.dtype) for array in (x, labels)]
    network = Network("", make, shapes[0], shapes[1], OPTIMIZERS[optimizer](rate))
    compiled = nnc.compile(network.step, donate_argnums=(0, 1))
    model = _loaded(make, inputs["weights"])
    state = [model, network.optimizer.init(model)]

    def step() -> Any:
        state[0], state[1], loss = compiled(*state, x, labels)
        return loss

    return step


def mlp(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """Linear layers with relu between."""
    return _training(lambda key: networks.Perceptron(784, 512, 512, CLASSES, key=key), inputs, optimizer, rate)


def lstm(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """An LSTM over sequences."""
    return _training(lambda key: Sequences(256, 256, key=key), inputs, optimizer, rate)


def lenet(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """LeNet."""
    return _training(lambda key: models.LeNet(key=key), inputs, optimizer, rate)


def resnet(inputs: Inputs, *, optimizer: str, rate: float, depths: tuple[int, ...], expansion: int) -> Step:
    """A residual network."""
    weights = inputs["weights"]
    block = models.BasicBlock if expansion == 1 else models.Bottleneck
    options = {"num_classes": len(weights["fc.bias"]), "small_images": weights["conv1.weight"].shape[-1] == 3}
    return _training(lambda key: models.ResNet(block, depths, key=key, **options), inputs, optimizer, rate)


def densenet(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """DenseNet-121."""
    make = partial(models.densenet121, num_classes=CLASSES)
    return _training(lambda key: make(key=key), inputs, optimizer, rate)


def transformer(inputs: Inputs, *, optimizer: str, rate: float) -> Step:
    """An encoder and a linear layer on the mean over time."""
    return _training(lambda key: networks.Encoder(4, 256, 4, key=key), inputs, optimizer, rate)


def minilm(inputs: Inputs, *, depth: int, heads: int) -> Step:
    """Vectors of sentences."""
    weights, ids = inputs["weights"], nnc.asarray(inputs["ids"])
    sizes = (*weights["words.weight"].shape, len(weights["places.weight"]))
    model = _loaded(lambda key: Sentences(sizes[0], sizes[2], sizes[1], depth, heads, key=key), weights)
    compiled = nnc.compile(lambda model, ids: model(ids))
    return lambda: compiled(model, ids)
