"""Networks in PyTorch: its modules, under the names of the weights; `wrap` is given the loss, updates are PyTorch's fused ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.row import Inputs, Step
from benchmarks.peers.rows.networks import DENSENET121
from benchmarks.peers.with_torch.wrap import Wrap, tensors

relu = functional.relu
OPTIMIZERS: dict[str, Any] = {
    "adam": partial(torch.optim.Adam, fused=True),
    "sgd": partial(torch.optim.SGD, momentum=0.9, fused=True),
}


class Perceptron(nn.Module):
    """Linear layers with relu between."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(m, n) for m, n in pairwise(sizes))

    def forward(self, x: Any) -> Any:
        """(N, first size) -> (N, last size)."""
        for layer in self.layers[:-1]:
            x = relu(layer(x))
        return self.layers[-1](x)


class Sequences(nn.Module):
    """An LSTM, and a linear layer on its last output."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(features, hidden, batch_first=True), nn.Linear(hidden, classes)

    def forward(self, x: Any) -> Any:
        """(N, T, features) -> (N, classes)."""
        return self.head(self.lstm(x)[0][:, -1])


class LeNet(nn.Module):
    """LeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Any) -> Any:
        """(N, 1, 28, 28) -> (N, 10)."""
        x = functional.max_pool2d(relu(self.conv1(x)), 2)
        x = functional.max_pool2d(relu(self.conv2(x)), 2)
        x = relu(self.fc1(x.flatten(1)))
        return self.fc3(relu(self.fc2(x)))


class Block(nn.Module):
    """A block of a residual network: two convolutions of width 3, or three of width 1, 3 and 1."""

    def __init__(self, m: int, n: int, stride: int, expansion: int) -> None:
        super().__init__()
        if expansion == 1:
            convs: Sequence[tuple[int, int, int, int]] = ((m, n, 3, stride), (n, n, 3, 1))
        else:
            convs = ((m, n, 1, 1), (n, n, 3, stride), (n, 4 * n, 1, 1))
        for i, (before, after, width, by) in enumerate(convs, start=1):
            self.add_module(f"conv{i}", nn.Conv2d(before, after, width, by, width // 2, bias=False))
            self.add_module(f"bn{i}", nn.BatchNorm2d(after))
        self.depth, out = len(convs), n * expansion
        same = stride == 1 and m == out
        self.downsample = nn.Sequential() if same else nn.Sequential(
            nn.Conv2d(m, out, 1, stride, bias=False), nn.BatchNorm2d(out)
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        """relu(x + F(x))."""
        out = x
        for i in range(1, self.depth + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            if i < self.depth:
                out = relu(out)
        return relu(out + self.downsample(x))


class ResNet(nn.Module):
    """A residual network."""

    def __init__(self, depths: Sequence[int], expansion: int, classes: int, small: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False) if small else nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.small, width = small, 64
        for i, depth in enumerate(depths):
            blocks = []
            for j in range(depth):
                blocks.append(Block(width, 64 * 2**i, 2 if i and not j else 1, expansion))
                width = 64 * 2**i * expansion
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.stages, self.fc = len(depths), nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        """(N, 3, H, W) -> (N, classes)."""
        x = relu(self.bn1(self.conv1(x)))
        if not self.small:
            x = functional.max_pool2d(x, 3, 2, 1)
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


class DenseLayer(nn.Module):
    """Norm, relu, convolution, twice."""

    def __init__(self, m: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(m), nn.Conv2d(m, 128, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(128), nn.Conv2d(128, 32, 3, padding=1, bias=False)

    def forward(self, x: Any) -> Any:
        """32 new channels behind the channels of x."""
        out = self.conv2(relu(self.norm2(self.conv1(relu(self.norm1(x))))))
        return torch.cat([x, out], 1)


class Transition(nn.Module):
    """Half the channels, half the size."""

    def __init__(self, m: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(m), nn.Conv2d(m, m // 2, 1, bias=False)

    def forward(self, x: Any) -> Any:
        """(N, C, H, W) -> (N, C / 2, H / 2, W / 2)."""
        return functional.avg_pool2d(self.conv(relu(self.norm(x))), 2)


class DenseNet(nn.Module):
    """DenseNet-121."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv0, self.norm0 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.blocks, self.transitions, width = nn.ModuleList(), nn.ModuleList(), 64
        for i, depth in enumerate(DENSENET121):
            block = nn.Module()
            block.layers = nn.Sequential(*(DenseLayer(width + 32 * j) for j in range(depth)))
            self.blocks.append(block)
            width += 32 * depth
            if i < len(DENSENET121) - 1:
                self.transitions.append(Transition(width))
                width //= 2
        self.norm5, self.classifier = nn.BatchNorm2d(width), nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        """(N, 3, H, W) -> (N, classes)."""
        x = functional.max_pool2d(relu(self.norm0(self.conv0(x))), 3, 2, 1)
        for i, block in enumerate(self.blocks):
            x = block.layers(x)
            if i < len(self.transitions):
                x = self.transitions[i](x)
        return self.classifier(relu(self.norm5(x)).mean((2, 3)))


def _encoder(depth: int, features: int, heads: int, activation: Any) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        features, heads, 4 * features, dropout=0.0, activation=activation, batch_first=True
    )
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)


class Encoder(nn.Module):
    """Transformer layers, the mean over time, a linear layer."""

    def __init__(self, depth: int, features: int, heads: int, classes: int) -> None:
        super().__init__()
        self.encoder = _encoder(depth, features, heads, partial(functional.gelu, approximate="tanh"))
        self.head = nn.Linear(features, classes)

    def forward(self, x: Any) -> Any:
        """(N, T, features) -> (N, classes)."""
        return self.head(self.encoder(x).mean(1))


class Sentences(nn.Module):
    """Embeddings of words and places, transformer layers, the mean over the sentence."""

    def __init__(self, words: int, length: int, features: int, depth: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, features), nn.Embedding(length, features)
        self.norm, self.encoder = nn.LayerNorm(features), _encoder(depth, features, heads, "gelu")

    def forward(self, ids: Any) -> Any:
        """(N, T) integers -> (N, features)."""
        return self.encoder(self.norm(self.words(ids) + self.places.weight)).mean(1)


def load(module: nn.Module, weights: Any) -> nn.Module:
    """The module with given weights, whose counters of batches are the only names that may be missing."""
    found = module.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, strict=False)
    missing = [name for name in found.missing_keys if not name.endswith("num_batches_tracked")]
    if missing or found.unexpected_keys:
        raise ValueError(f"weights do not fit: missing {missing}, left over {found.unexpected_keys}")
    return module


def _training(module: nn.Module, inputs: Inputs, wrap: Wrap, optimizer: str, rate: float) -> Step:
    module = load(module, inputs["weights"])
    x, labels = tensors(inputs, "x", "labels")
    labels = labels.long()
    loss = wrap(lambda x, labels: functional.cross_entropy(module(x), labels))
    update = OPTIMIZERS[optimizer](module.parameters(), rate)

    def step() -> Any:
        value = loss(x, labels)
        update.zero_grad()
        value.backward()
        update.step()
        return value.detach()

    return step


def mlp(inputs: Inputs, wrap: Wrap, *, optimizer: str, rate: float) -> Step:
    """Linear layers with relu between."""
    return _training(Perceptron(784, 512, 512, 10), inputs, wrap, optimizer, rate)


def lstm(inputs: Inputs, wrap: Wrap, *, optimizer: str, rate: float) -> Step:
    """An LSTM over sequences."""
    return _training(Sequences(256, 256, 10), inputs, wrap, optimizer, rate)


def lenet(inputs: Inputs, wrap: Wrap, *, optimizer: str, rate: float) -> Step:
    """LeNet."""
    return _training(LeNet(), inputs, wrap, optimizer, rate)


def resnet(inputs: Inputs, wrap: Wrap, *, optimizer: str, rate: float, depths: Sequence[int], expansion: int) -> Step:
    """A residual network."""
    weights = inputs["weights"]
    module = ResNet(depths, expansion, len(weights["fc.bias"]), weights["conv1.weight"].shape[-1] == 3)
    return _training(module, inputs, wrap, optimizer, rate)


def densenet(inputs: Inputs, wrap: Wrap, *, optimizer: str, rate: float) -> Step:
    """DenseNet-121."""
    return _training(DenseNet(len(inputs["weights"]["classifier.bias"])), inputs, wrap, optimizer, rate)


def transformer(inputs: Inputs, wrap: Wrap, *, optimizer: str, rate: float) -> Step:
    """An encoder and a linear layer on the mean over time."""
    return _training(Encoder(4, 256, 4, 10), inputs, wrap, optimizer, rate)


def minilm(inputs: Inputs, wrap: Wrap, *, depth: int, heads: int) -> Step:
    """Vectors of sentences."""
    weights, (ids,) = inputs["weights"], tensors(inputs, "ids")
    words, features = weights["words.weight"].shape
    module = load(Sentences(words, len(weights["places.weight"]), features, depth, heads), weights).eval()
    function = wrap(module)

    def step() -> Any:
        with torch.inference_mode():
            return function(ids)

    return step
