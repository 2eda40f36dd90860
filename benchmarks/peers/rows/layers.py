"""Networks as names and shapes of weights, under PyTorch's names, with the operations of their forward pass."""

from __future__ import annotations

import math
import zlib

import numpy as np

from benchmarks.peers.row import NDArray, draw, normal


class Layers:
    """Collects layers in the order in which they are applied to `batch` images or sequences."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.flops: list[float] = []
        self.scales: dict[str, float] = {}

    def conv(
        self, name: str, m: int, n: int, width: int, size: int, *, stride: int = 1, padding: int = 0, bias: bool = False
    ) -> int:
        """A convolution of images of size²; returns the new size."""
        size = (size + 2 * padding - width) // stride + 1
        self.shapes[f"{name}.weight"] = (n, m, width, width)
        if bias:
            self.shapes[f"{name}.bias"] = (n,)
        self.flops.append(2 * self.batch * size**2 * n * m * width**2)
        return size

    def norm(self, name: str, n: int, *, statistics: bool = True, scale: float = 1.0) -> None:
        """A batch norm, or a layer norm, which has no statistics, and its initial weights."""
        self.scales[f"{name}.weight"] = scale
        for field in ("weight", "bias", *(("running_mean", "running_var") if statistics else ())):
            self.shapes[f"{name}.{field}"] = (n,)

    def linear(self, name: str, m: int, n: int, rows: int = 1) -> None:
        """A linear layer on `rows` vectors of each member of the batch."""
        self.shapes[f"{name}.weight"], self.shapes[f"{name}.bias"] = (n, m), (n,)
        self.flops.append(2 * self.batch * rows * m * n)

    def lstm(self, name: str, m: int, n: int, steps: int) -> None:
        """An LSTM over sequences."""
        for side, features in (("ih", m), ("hh", n)):
            self.shapes[f"{name}.weight_{side}_l0"], self.shapes[f"{name}.bias_{side}_l0"] = (4 * n, features), (4 * n,)
            self.flops.append(2 * self.batch * steps * 4 * n * features)

    def encoder_layer(self, name: str, features: int, hidden: int, length: int) -> None:
        """A layer of a transformer's encoder."""
        self.shapes[f"{name}.self_attn.in_proj_weight"] = (3 * features, features)
        self.shapes[f"{name}.self_attn.in_proj_bias"] = (3 * features,)
        self.flops += [6 * self.batch * length * features**2, 4 * self.batch * length**2 * features]
        self.linear(f"{name}.self_attn.out_proj", features, features, length)
        self.linear(f"{name}.linear1", features, hidden, length)
        self.linear(f"{name}.linear2", hidden, features, length)
        for i in (1, 2):
            self.norm(f"{name}.norm{i}", features, statistics=False)

    def table(self, name: str, rows: int, features: int) -> None:
        """An embedding."""
        self.shapes[f"{name}.weight"] = (rows, features)

    def count(self) -> int:
        """The number of trained parameters."""
        return sum(math.prod(shape) for name, shape in self.shapes.items() if "running" not in name)

    def training_flops(self) -> float:
        """Forward, gradients of weights, gradients of inputs where there is a layer before."""
        return 3 * sum(self.flops) - self.flops[0]

    def draw(self) -> dict[str, NDArray]:
        """Weights: normal with the variance that keeps sizes as they are, norms as they start."""
        values = {}
        for name, shape in self.shapes.items():
            rng = draw(zlib.crc32(name.encode()))
            if name in self.scales or name.endswith("running_var"):
                values[name] = np.full(shape, self.scales.get(name, 1.0), np.float32)
            elif name.endswith("running_mean"):
                values[name] = np.zeros(shape, np.float32)
            else:
                values[name] = normal(rng, *shape, scale=0.02 if len(shape) == 1 else math.prod(shape[1:]) ** -0.5)
        return values
