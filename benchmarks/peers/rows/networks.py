"""Networks: training steps, and one inference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.peers.row import Inputs, Row, Work, draw, normal
from benchmarks.peers.rows.layers import Layers

BASIC, BOTTLENECK = 1, 4  # how many times wider a block's output is than its width
RATES = {"adam": 1e-3, "sgd": 1e-2}
LAST_SCALE = 0.2  # of a residual block: near the identity, as such networks start in practice, rounding hardly grows
DEEP_RATE = 2e-4  # larger first steps from random weights let rounding grow until results part
DENSENET121 = (6, 12, 24, 16)
MINILM = {"depth": 6, "features": 384, "heads": 12, "length": 128, "words": 30522, "batch": 8}


def _mlp() -> Layers:
    layers = Layers(128)
    for i, (m, n) in enumerate(((784, 512), (512, 512), (512, 10))):
        layers.linear(f"layers.{i}", m, n)
    return layers


def _lstm() -> Layers:
    layers = Layers(32)
    layers.lstm("lstm", 256, 256, 64)
    layers.linear("head", 256, 10)
    return layers


def _lenet() -> Layers:
    layers = Layers(64)
    size = layers.conv("conv1", 1, 6, 5, 28, padding=2, bias=True) // 2
    size = layers.conv("conv2", 6, 16, 5, size, bias=True) // 2
    for i, (m, n) in enumerate(((16 * size**2, 120), (120, 84), (84, 10)), start=1):
        layers.linear(f"fc{i}", m, n)
    return layers


def resnet(batch: int, size: int, depths: tuple[int, ...], expansion: int, classes: int) -> Layers:
    """A residual network."""
    layers, small = Layers(batch), size == 32
    size = layers.conv("conv1", 3, 64, 3 if small else 7, size, stride=1 if small else 2, padding=1 if small else 3)
    layers.norm("bn1", 64)
    size, width = size if small else size // 2, 64
    for i, depth in enumerate(depths):
        n = 64 * 2**i
        for j in range(depth):
            name, stride, before = f"layer{i + 1}.{j}", 2 if i and not j else 1, size
            if expansion == BASIC:
                convs = ((width, n, 3, stride), (n, n, 3, 1))
            else:
                convs = ((width, n, 1, 1), (n, n, 3, stride), (n, 4 * n, 1, 1))
            for k, (m, out, wide, by) in enumerate(convs, start=1):
                size = layers.conv(f"{name}.conv{k}", m, out, wide, size, stride=by, padding=wide // 2)
                layers.norm(f"{name}.bn{k}", out, scale=LAST_SCALE if k == len(convs) else 1.0)
            if stride > 1 or width != n * expansion:
                layers.conv(f"{name}.downsample.0", width, n * expansion, 1, before, stride=stride)
                layers.norm(f"{name}.downsample.1", n * expansion)
            width = n * expansion
    layers.linear("fc", width, classes)
    return layers


def _densenet(batch: int, size: int, classes: int) -> Layers:
    layers, width = Layers(batch), 64
    size = layers.conv("conv0", 3, width, 7, size, stride=2, padding=3)
    layers.norm("norm0", width)
    size = (size + 1) // 2
    for i, depth in enumerate(DENSENET121):
        for j in range(depth):
            name = f"blocks.{i}.layers.{j}"
            layers.norm(f"{name}.norm1", width)
            layers.conv(f"{name}.conv1", width, 128, 1, size)
            layers.norm(f"{name}.norm2", 128)
            layers.conv(f"{name}.conv2", 128, 32, 3, size, padding=1)
            width += 32
        if i < len(DENSENET121) - 1:
            layers.norm(f"transitions.{i}.norm", width)
            layers.conv(f"transitions.{i}.conv", width, width // 2, 1, size)
            width, size = width // 2, size // 2
    layers.norm("norm5", width)
    layers.linear("classifier", width, classes)
    return layers


def _transformer() -> Layers:
    layers = Layers(8)
    for i in range(4):
        layers.encoder_layer(f"encoder.layers.{i}", 256, 1024, 128)
    layers.linear("head", 256, 10)
    return layers


def _minilm() -> Layers:
    layers, features, length = Layers(MINILM["batch"]), MINILM["features"], MINILM["length"]
    layers.table("words", MINILM["words"], features)
    layers.table("places", length, features)
    layers.norm("norm", features, statistics=False)
    for i in range(MINILM["depth"]):
        layers.encoder_layer(f"encoder.layers.{i}", features, 4 * features, length)
    return layers


def _batch(layers: Callable[[], Layers], shape: tuple[int, ...], labels: int, classes: int) -> Inputs:
    rng = draw()
    return {
        "weights": layers().draw(),
        "x": normal(rng, *shape),
        "labels": rng.integers(0, classes, labels).astype(np.int32),
    }


def _words() -> Inputs:
    ids = draw().integers(0, MINILM["words"], (MINILM["batch"], MINILM["length"])).astype(np.int32)
    return {"weights": _minilm().draw(), "ids": ids}


def _training(
    name: str, title: str, layers: Callable[[], Layers], shape: tuple[int, ...], optimizer: str, classes: int = 10,
    rtol: float = 1e-4,
    **settings: object,
) -> Row:  # fmt: skip
    """A training step. An update by Adam reads and writes weights and two moments, one by SGD weights and one."""
    counted = layers()
    moved = 4 * counted.count() * (6 if optimizer == "adam" else 4) + 4 * int(np.prod(shape))
    return Row(
        name,
        title,
        f"networks.{name.partition('-')[0]}",
        partial(_batch, layers, shape, counted.batch, classes),
        Work(flops=counted.training_flops(), nbytes=moved),
        name,
        {"optimizer": optimizer, "rate": RATES[optimizer], **settings},
        rtol=rtol,
        trains=True,
    )


_RESNET18 = {"depths": (2, 2, 2, 2), "expansion": BASIC}
_RESNET50 = {"depths": (3, 4, 6, 3), "expansion": BOTTLENECK}

ROWS = (
    _training("mlp", "MLP 784-512-512-10, batch 128, Adam", _mlp, (128, 784), "adam"),
    _training("lstm", "LSTM, 64 steps, batch 32, 256 features, Adam", _lstm, (32, 64, 256), "adam"),
    _training("lenet", "LeNet, batch 64, SGD", _lenet, (64, 1, 28, 28), "sgd"),
    _training(
        "resnet-18", "ResNet-18, 32², batch 16, SGD", partial(resnet, 16, 32, classes=10, **_RESNET18), (16, 3, 32, 32), "sgd",
        **_RESNET18,
    ),
    _training(
        "resnet-50", "ResNet-50, 160², batch 4, SGD", partial(resnet, 4, 160, classes=1000, **_RESNET50), (4, 3, 160, 160), "sgd",
        classes=1000, rate=DEEP_RATE, **_RESNET50,
    ),
    _training(
        "densenet", "DenseNet-121, 64², batch 8, SGD", partial(_densenet, 8, 64, 10), (8, 3, 64, 64), "sgd", rate=DEEP_RATE,
        rtol=2e-3,
    ),
    _training("transformer", "transformer, 4 layers, 256 features, batch 8 x 128, Adam", _transformer, (8, 128, 256), "adam"),
    Row(
        "minilm",
        "MiniLM's size: 6 layers, 384 features, batch 8 x 128, inference",
        "networks.minilm",
        _words,
        Work(flops=sum(_minilm().flops), nbytes=4 * (_minilm().count() - MINILM["words"] * MINILM["features"])),
        "minilm",
        {"depth": MINILM["depth"], "heads": MINILM["heads"]},
    ),
)  # fmt: skip
