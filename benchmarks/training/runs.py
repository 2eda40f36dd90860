"""The runs: weights under PyTorch's names, a batch for each step, an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.row import NDArray, draw, normal
from benchmarks.peers.rows.layers import Layers
from benchmarks.peers.rows.networks import resnet as resnet_layers

Batch = dict[str, NDArray]
TIMES = 32  # features that tell a denoiser how noisy its images are


@dataclass(frozen=True)
class Run:
    """A network that both frameworks train.

    Attributes:
        name: of the run.
        title: the sizes, for people.
        model: names the function of `with_nnc` and `with_torch` that makes the network from `settings`.
        layers: names and shapes of the weights.
        batches: yields the batches, without end.
        optimizer: "adamw" or "sgd".
        rate: the learning rate.
        settings: sizes of the network.
    """

    name: str
    title: str
    model: str
    layers: Callable[[], Layers]
    batches: Callable[[], Iterator[Batch]]
    optimizer: str
    rate: float
    settings: Mapping[str, Any] = field(default_factory=dict)


# -- batches -----------------------------------------------------------------------------------------------------------


def _sentences(words: int, batch: int, length: int) -> Iterator[Batch]:
    """Sequences in which the next word mostly follows from the present one; a few words are much more frequent than others."""
    rng = draw(1)
    following = rng.permutation(words)
    while True:
        drawn = np.minimum(rng.zipf(1.3, (batch, length + 1)), words) - 1
        follows = rng.random((batch, length)) < 0.7
        for t in range(length):
            drawn[:, t + 1] = np.where(follows[:, t], following[drawn[:, t]], drawn[:, t + 1])
        ids = drawn.astype(np.int32)
        yield {"x": ids[:, :-1], "labels": ids[:, 1:]}


def _images(batch: int, size: int, classes: int) -> Iterator[Batch]:
    """A pattern for each class, in noise."""
    rng = draw(2)
    patterns = normal(rng, classes, 3, size, size)
    while True:
        labels = rng.integers(0, classes, batch).astype(np.int32)
        yield {"x": patterns[labels] + normal(rng, batch, 3, size, size), "labels": labels}


def _noisy_images(batch: int, size: int) -> Iterator[Batch]:
    """Images in noise of many strengths, and the noise, which is to be found (Ho et al., 2020)."""
    rng = draw(3)
    waves = np.exp(-np.arange(TIMES // 2) / 4, dtype=np.float32)
    for images in _images(batch, size, 4):
        time = rng.random((batch, 1), np.float32)
        kept = np.cos(time * np.pi / 2)[:, :, None, None]
        noise = normal(rng, batch, 3, size, size)
        phases = 30 * time * waves
        noisy = kept * images["x"] + np.sqrt(1 - kept**2) * noise
        yield {"x": noisy, "time": np.concatenate([np.sin(phases), np.cos(phases)], 1), "noise": noise}


# -- weights -----------------------------------------------------------------------------------------------------------


def _encoder(layers: Layers, depth: int, features: int, length: int) -> None:
    for i in range(depth):
        layers.encoder_layer(f"encoder.layers.{i}", features, 4 * features, length)
    layers.norm("encoder.norm", features, statistics=False)


def _gpt(words: int, length: int, depth: int, features: int) -> Layers:
    layers = Layers(1)
    layers.table("words", words, features)
    layers.table("places", length, features)
    _encoder(layers, depth, features, length)
    return layers


def _lstm(words: int, features: int, hidden: int) -> Layers:
    layers = Layers(1)
    layers.table("words", words, features)
    layers.lstm("lstm", features, hidden, 1)
    layers.linear("head", hidden, words)
    return layers


def _vit(size: int, patch: int, depth: int, features: int, classes: int) -> Layers:
    layers, tokens = Layers(1), (size // patch) ** 2 + 1
    layers.conv("conv_proj", 3, features, patch, size, stride=patch, bias=True)
    layers.shapes["class_token"], layers.shapes["pos_embedding"] = (1, 1, features), (1, tokens, features)
    _encoder(layers, depth, features, tokens)
    layers.linear("head", features, classes)
    return layers


def _denoiser(width: int, size: int) -> Layers:
    layers, hidden = Layers(1), 4 * width
    layers.linear("time1", TIMES, hidden)
    layers.linear("time2", hidden, hidden)
    conv = partial(layers.conv, padding=1, bias=True)
    conv("first", 3, width, 3, size)
    for name, m, n in (("down", width, width), ("middle", width, 2 * width), ("up", 3 * width, width)):
        layers.norm(f"{name}.norm1", m, statistics=False)
        conv(f"{name}.conv1", m, n, 3, size)
        layers.linear(f"{name}.time", hidden, n)
        layers.norm(f"{name}.norm2", n, statistics=False)
        conv(f"{name}.conv2", n, n, 3, size)
        layers.conv(f"{name}.skip", m, n, 1, size, bias=True)
    conv("smaller", width, width, 3, size, stride=2)
    layers.norm("norm", width, statistics=False)
    conv("last", width, 3, 3, size)
    return layers


# -- the runs ----------------------------------------------------------------------------------------------------------


def gpt(name: str, words: int, batch: int, length: int, depth: int, features: int, heads: int) -> Run:
    """A GPT whose last layer is its table of words."""
    title = f"GPT, {depth} layers, {features} features, {words} words, batch {batch} x {length}, AdamW"
    layers = partial(_gpt, words, length, depth, features)
    settings = {"words": words, "length": length, "depth": depth, "features": features, "heads": heads}
    return Run(name, title, "gpt", layers, partial(_sentences, words, batch, length), "adamw", 1e-3, settings)


def resnet(name: str, depths: tuple[int, ...], batch: int, size: int, rate: float = 1e-2) -> Run:
    """A residual network on small images."""
    title = f"ResNet-{2 * sum(depths) + 2}, {size}², batch {batch}, SGD"
    layers = partial(resnet_layers, batch, 32, depths, 1, 10)
    return Run(name, title, "resnet", layers, partial(_images, batch, size, 10), "sgd", rate, {"depths": depths})


def lstm(name: str, words: int, batch: int, length: int, features: int, hidden: int) -> Run:
    """A language model of one LSTM."""
    title = f"LSTM language model, {hidden} hidden, {words} words, batch {batch} x {length}, AdamW"
    settings = {"words": words, "features": features, "hidden": hidden}
    batches = partial(_sentences, words, batch, length)
    return Run(name, title, "lstm", partial(_lstm, words, features, hidden), batches, "adamw", 1e-3, settings)


def unet(name: str, width: int, batch: int, size: int) -> Run:
    """A diffusion model's U-Net."""
    title = f"diffusion U-Net, {width} channels, {size}², batch {batch}, AdamW"
    layers = partial(_denoiser, width, size)
    return Run(name, title, "unet", layers, partial(_noisy_images, batch, size), "adamw", 1e-3, {"width": width})


def vit(name: str, size: int, patch: int, batch: int, depth: int, features: int, heads: int) -> Run:
    """A vision transformer."""
    title = f"ViT, {depth} layers, {features} features, {size}², batch {batch}, AdamW"
    settings = {"size": size, "patch": patch, "depth": depth, "features": features, "heads": heads}
    layers = partial(_vit, size, patch, depth, features, 10)
    return Run(name, title, "vit", layers, partial(_images, batch, size, 10), "adamw", 1e-3, settings)


RUNS = (
    gpt("gpt", 8192, 2, 256, 12, 768, 12),
    gpt("gpt-small", 512, 2, 64, 4, 768, 12),
    gpt("gpt-words", 32768, 2, 64, 4, 256, 4),
    resnet("resnet-18", (2, 2, 2, 2), 16, 32),
    lstm("lstm", 4096, 16, 64, 256, 512),
    unet("unet", 64, 8, 32),
    vit("vit", 32, 4, 16, 6, 192, 6),
)
QUICK = (
    gpt("gpt", 64, 2, 16, 2, 32, 2),
    gpt("gpt-words", 1024, 2, 16, 1, 32, 2),
    resnet("resnet", (1, 1, 1, 1), 4, 16, rate=2e-3),
    lstm("lstm", 256, 4, 12, 16, 32),
    unet("unet", 8, 2, 16),
    vit("vit", 16, 4, 4, 2, 32, 2),
)


def choose(runs: Sequence[Run], names: Sequence[str]) -> list[Run]:
    """The runs whose names begin with one of these; all if there are none."""
    for name in names:
        if not any(run.name.startswith(name) for run in runs):
            raise SystemExit(f"no run begins with {name}: there are {', '.join(run.name for run in runs)}")
    return [run for run in runs if not names or run.name.startswith(tuple(names))]
