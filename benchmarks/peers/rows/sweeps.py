"""Matrix products and convolutions by themselves, over shapes that networks have."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.row import Inputs, Row, Work, draw, normal

# (batch axes), m, k, n, dtype
PRODUCTS = (
    ((), 64, 64, 64, "float32"),
    ((), 256, 256, 256, "float32"),
    ((), 1024, 1024, 1024, "float32"),
    ((), 128, 784, 512, "float32"),
    ((), 1024, 384, 1536, "float32"),
    ((), 1, 1024, 1024, "float32"),
    ((), 4096, 64, 64, "float32"),
    ((96,), 128, 32, 128, "float32"),
    ((), 512, 512, 512, "float64"),
)
# name: batch, channels, features, width, size, stride, groups
CONVOLUTIONS = {
    "1x1": (4, 256, 64, 1, 40, 1, 1),
    "3x3": (8, 64, 64, 3, 32, 1, 1),
    "3x3 deep": (4, 512, 512, 3, 5, 1, 1),
    "7x7 stride 2": (4, 3, 64, 7, 160, 2, 1),
    "depthwise": (8, 128, 128, 3, 28, 1, 128),
    "transposed": (8, 64, 32, 4, 16, 2, 1),
}
WAYS = {"forward": "forward", "data": "gradient of the data", "weights": "gradient of the weights"}


def _matrices(axes: tuple[int, ...], m: int, k: int, n: int, dtype: str) -> Inputs:
    rng = draw()
    return {
        "x": normal(rng, *axes, m, k).astype(dtype, copy=False),
        "y": normal(rng, *axes, k, n).astype(dtype, copy=False),
    }


def _product(axes: tuple[int, ...], m: int, k: int, n: int, dtype: str) -> Row:
    count, wide = math.prod(axes), 2 if dtype == "float64" else 1
    sizes = " x ".join(map(str, (*axes, m, k, n)))
    return Row(
        "gemm-" + "x".join(map(str, (*axes, m, k, n))),
        f"product {sizes}, {dtype}",
        "sweeps.product",
        partial(_matrices, axes, m, k, n, dtype),
        Work(flops=2 * wide * count * m * k * n, nbytes=4 * wide * count * (m * k + k * n + m * n)),
        "gemm",
        frameworks=("nnc", "jax", "torch", "numpy"),
        rtol=1e-4,
    )


def _images(kind: str) -> Inputs:
    rng, shapes = draw(), convolution_shapes(kind)
    names = ("x", "weight", "ct")
    scales = (1.0, math.prod(shapes[1][1:]) ** -0.5, 1.0)
    return {name: normal(rng, *shape, scale=scale) for name, shape, scale in zip(names, shapes, scales, strict=True)}


def convolution_shapes(kind: str) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of the images, the weights and the output."""
    batch, m, n, width, size, stride, groups = CONVOLUTIONS[kind]
    x = (batch, m, size, size)
    if kind == "transposed":  # padding 1 of 4: twice the size
        return x, (m, n, width, width), (batch, n, stride * size, stride * size)
    out = (size + 2 * (width // 2) - width) // stride + 1
    return x, (n, m // groups, width, width), (batch, n, out, out)


def _convolution(kind: str, way: str) -> Row:
    x, weight, ct = convolution_shapes(kind)
    _, _, _, width, _, stride, groups = CONVOLUTIONS[kind]
    places = math.prod(x) if kind == "transposed" else math.prod(ct)
    flops = 2 * places * math.prod(weight[1:])
    sizes = " x ".join(map(str, x)) + " → " + str(ct[1])
    settings: dict[str, Any] = {"way": way, "stride": stride, "groups": groups}
    settings |= {"padding": 1 if kind == "transposed" else width // 2, "transposed": kind == "transposed"}
    name = kind.replace(" ", "-")
    return Row(
        f"conv-{name}-{way}",
        f"convolution {kind}, {sizes}, {WAYS[way]}",
        "sweeps.convolution",
        partial(_images, kind),
        Work(flops=flops, nbytes=4 * int(np.sum([math.prod(shape) for shape in (x, weight, ct)]))),
        f"conv-{name}",
        settings,
        frameworks=("nnc", "jax", "torch"),
        rtol=1e-4,
    )


ROWS = (
    *(_product(*sizes) for sizes in PRODUCTS),
    *(_convolution(kind, way) for kind in CONVOLUTIONS for way in WAYS),
)
