"""The runs in nnc: one compiled step that takes over the memory of model and optimizer state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from benchmarks.networks import mean_loss
from benchmarks.training.curves import Curve
from benchmarks.training.runs import TIMES, Batch, Run
from nnc import nn, optim
from nnc.nn import models

OPTIMIZERS: dict[str, Callable[[float], optim.GradientTransformation]] = {
    "adamw": lambda rate: optim.adamw(rate, weight_decay=0.01),
    "sgd": lambda rate: optim.sgd(rate, momentum=0.9),
}


class GPT(nn.Module):
    """Transformer layers that look back, between a table of words and the same table."""

    words: nn.Embedding
    places: nn.Embedding
    encoder: nn.TransformerEncoder

    def __init__(self, words: int, length: int, depth: int, features: int, heads: int, *, key: Any) -> None:
        keys = nnc.random.split(key, depth + 2)
        self.words = nn.Embedding(words, features, key=keys[0])
        self.places = nn.Embedding(length, features, key=keys[1])
        layers = [
            nn.TransformerEncoderLayer(features, heads, key=k, activation=nn.gelu, norm_first=True) for k in keys[2:]
        ]
        self.encoder = nn.TransformerEncoder(layers, nn.LayerNorm(features))

    def __call__(self, ids: Any) -> Any:
        """(N, T) integers -> (N, T, words)."""
        return self.words.attend(self.encoder(self.words(ids) + self.places.weight, is_causal=True))


class Language(nn.Module):
    """A table of words, an LSTM, scores of the next word."""

    words: nn.Embedding
    lstm: nn.LSTM
    head: nn.Linear

    def __init__(self, words: int, features: int, hidden: int, *, key: Any) -> None:
        keys = nnc.random.split(key, 3)
        self.words = nn.Embedding(words, features, key=keys[0])
        self.lstm, self.head = nn.LSTM(features, hidden, key=keys[1]), nn.Linear(hidden, words, key=keys[2])

    def __call__(self, ids: Any) -> Any:
        """(N, T) integers -> (N, T, words)."""
        return self.head(self.lstm(self.words(ids))[0])


class Block(nn.Module):
    """Two convolutions, each behind a norm, that are told the time."""

    norm1: nn.GroupNorm
    conv1: nn.Conv
    time: nn.Linear
    norm2: nn.GroupNorm
    conv2: nn.Conv
    skip: nn.Conv

    def __init__(self, m: int, n: int, hidden: int, *, key: Any) -> None:
        keys = nnc.random.split(key, 4)
        self.norm1, self.norm2 = nn.GroupNorm(4, m), nn.GroupNorm(4, n)
        self.conv1 = nn.Conv(m, n, 3, key=keys[0], padding=1)
        self.conv2 = nn.Conv(n, n, 3, key=keys[1], padding=1)
        self.skip, self.time = nn.Conv(m, n, 1, key=keys[2]), nn.Linear(hidden, n, key=keys[3])

    def __call__(self, x: Any, time: Any) -> Any:
        """(N, m, H, W), (N, hidden) -> (N, n, H, W)."""
        out = self.conv1(nn.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(nn.silu(self.norm2(out)))


class Denoiser(nn.Module):
    """Blocks at full and at half the size."""

    time1: nn.Linear
    time2: nn.Linear
    first: nn.Conv
    down: Block
    smaller: nn.Conv
    middle: Block
    up: Block
    norm: nn.GroupNorm
    last: nn.Conv

    def __init__(self, width: int, *, key: Any) -> None:
        keys, hidden = nnc.random.split(key, 8), 4 * width
        self.time1, self.time2 = nn.Linear(TIMES, hidden, key=keys[0]), nn.Linear(hidden, hidden, key=keys[1])
        self.first = nn.Conv(3, width, 3, key=keys[2], padding=1)
        self.down = Block(width, width, hidden, key=keys[3])
        self.smaller = nn.Conv(width, width, 3, key=keys[4], stride=2, padding=1)
        self.middle = Block(width, 2 * width, hidden, key=keys[5])
        self.up = Block(3 * width, width, hidden, key=keys[6])
        self.norm, self.last = nn.GroupNorm(4, width), nn.Conv(width, 3, 3, key=keys[7], padding=1)

    def __call__(self, x: Any, time: Any) -> Any:
        """(N, 3, H, W), (N, TIMES) -> (N, 3, H, W)."""
        time = nn.silu(self.time2(nn.silu(self.time1(time))))
        wide = self.down(self.first(x), time)
        low = self.middle(self.smaller(wide), time)
        low = nnp.repeat(nnp.repeat(low, 2, axis=2), 2, axis=3)
        return self.last(nn.silu(self.norm(self.up(nnp.concatenate([low, wide], axis=1), time))))


def _vit(size: int, patch: int, depth: int, features: int, heads: int, *, key: Any) -> models.ViT:
    return models.ViT(
        key=key, image_size=size, patch_size=patch, features=features, num_layers=depth, num_heads=heads,
        hidden_features=4 * features, num_classes=10,
    )  # fmt: skip


def _resnet(depths: tuple[int, ...], *, key: Any) -> models.ResNet:
    return models.ResNet(models.BasicBlock, depths, num_classes=10, small_images=True, key=key)


MODELS: dict[str, Callable[..., Any]] = {
    "gpt": GPT,
    "lstm": Language,
    "unet": Denoiser,
    "vit": _vit,
    "resnet": _resnet,
}


def _loss(model: Any, batch: Batch) -> tuple[Any, Any]:
    """The mean cross-entropy, or the mean square of the noise that is not found; and the model with new statistics."""
    if "noise" in batch:
        return nnp.mean((model(batch["x"], batch["time"]) - batch["noise"]) ** 2), model
    return mean_loss(model, batch["x"], batch["labels"])


def train(run: Run, steps: int) -> Curve:
    """The curve of a run's first steps."""
    make = MODELS[run.model]
    model = nnc.eval_shape(lambda: make(**run.settings, key=nnc.random.key(0)))
    model = nn.load_torch(model, run.layers().draw())
    optimizer = OPTIMIZERS[run.optimizer](run.rate)

    def step(model: Any, state: Any, batch: Batch) -> Any:
        (loss, model), gradients = nnc.value_and_grad(_loss, has_aux=True)(model, batch)
        updates, state = optimizer.update(gradients, state, model)
        return optim.apply_updates(model, updates), state, loss

    compiled = nnc.compile(step, donate_argnums=(0, 1))
    state = optimizer.init(model)
    losses, norms = [], []
    for batch in islice(run.batches(), steps):
        model, state, loss = compiled(model, state, batch)
        losses.append(float(loss))
        norms.append(_norm(model))
    return Curve(tuple(losses), tuple(norms))


def _norm(model: Any) -> float:
    trained = nnc.tree.leaves(nn.parameters(model))
    return float(np.sqrt(sum(float(np.sum(np.square(np.asarray(x), dtype=np.float64))) for x in trained)))
