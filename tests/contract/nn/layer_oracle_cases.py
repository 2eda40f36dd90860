"""Layers and `grid_sample` with the formula that stands for each in PyTorch: the rows of `layer_oracles.npz`.

`python -m tests.contract.nn.make_oracles` evaluates the formulas and stores the numbers; `test_layer_oracles.py` needs no PyTorch.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

import nnc
from nnc import nn
from tests.contract.nn.oracle_cases import Row

STORED = Path(__file__).with_name("layer_oracles.npz")
KEY = nnc.random.key(0)
_RNG = np.random.default_rng(31)


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return _RNG.normal(size=shape)


# -- grid_sample -------------------------------------------------------------------------------------------------------

IMAGES, IMAGE_GRID = _normal(2, 2, 3, 4), _normal(2, 3, 2, 2)
VOLUMES, VOLUME_GRID = _normal(2, 1, 2, 3, 4), _normal(2, 2, 1, 3, 3)
CORNERS = [-1.0, -0.99, 0.0, 0.99, 1.0]
EDGES = np.array(list(itertools.product(CORNERS, CORNERS))).reshape(1, 5, 5, 2)  # also exactly where derivatives jump
FAR = np.array([-9.3, -3.1, -1.2, 1.3, 2.2, 4.9, 11.7])
FAR_GRID = np.stack([FAR, FAR[::-1]], -1).reshape(1, 1, 7, 2)
ONE = _normal(1, 2, 1, 1)


def _samplings(name: str, x: Any, grid: Any, modes: tuple[str, ...]) -> list[Row]:
    return [
        Row(
            f"{name}, {mode}, {padding}, {'centres' if align else 'edges'}",
            lambda x, grid, mode=mode, padding=padding, align=align: nn.grid_sample(x, grid, mode, padding, align),
            f"F.grid_sample(a, b, mode={mode!r}, padding_mode={padding!r}, align_corners={align})",
            (x, grid),
        )
        for mode in modes
        for padding in ("zeros", "border", "reflection")
        for align in (False, True)
    ]


SAMPLINGS = [
    *_samplings("images", IMAGES, IMAGE_GRID, ("bilinear", "nearest", "bicubic")),
    *_samplings("volumes", VOLUMES, VOLUME_GRID, ("bilinear", "nearest")),
    *_samplings("edges", IMAGES[:1], EDGES, ("bilinear",)),
    *_samplings("far places", IMAGES[:1], FAR_GRID, ("bilinear", "nearest", "bicubic")),
    *_samplings("one element", ONE, FAR_GRID / 10, ("bilinear", "nearest", "bicubic")),
]

# -- layers ------------------------------------------------------------------------------------------------------------

X, W, SLOPES = _normal(3, 4), _normal(5, 4), np.array([0.25, -0.5, 1.5, 0.1])
LEFT, RIGHT = _normal(5), _normal(4)
LEFT, RIGHT = LEFT / np.linalg.norm(LEFT), RIGHT / np.linalg.norm(RIGHT)
KERNEL, KERNEL_LEFT, KERNEL_RIGHT = _normal(3, 2, 2), _normal(2), _normal(6)
HEADS, PLACES = _normal(2, 5, 3, 8), np.array([[0, 1, 2, 3, 4], [7, 5, 3, 100, 2000]])


def _linear(weight: Any) -> nn.Linear:
    return nn.Linear(4, 5, key=KEY, use_bias=False).replace(weight=weight)


def _spectral(x: Any, weight: Any, inference: bool = False, **options: Any) -> Any:
    layer = nn.SpectralNorm(_linear(W), key=KEY, **options)
    layer = layer.replace(layer=_linear(weight), left=LEFT.astype(x.dtype), right=RIGHT.astype(x.dtype))
    return nn.inference_mode(layer, inference)(x)[0]


def _spectral_kernel(kernel: Any) -> Any:
    conv = nn.ConvTranspose(3, 2, 2, key=KEY, use_bias=False, layout="NCH")
    layer = nn.SpectralNorm(conv, key=KEY).replace(
        layer=conv.replace(weight=kernel),
        left=KERNEL_LEFT.astype(kernel.dtype),
        right=KERNEL_RIGHT.astype(kernel.dtype),
    )
    return layer.merged().weight


def _weight_norm(x: Any, scale: Any, direction: Any, **options: Any) -> Any:
    layer = nn.WeightNorm(_linear(W), **options)
    return layer.replace(scale=scale, layer=_linear(direction))(x)


LAYERS = [
    Row("PReLU, a slope", lambda x, w: nn.PReLU().replace(weight=w)(x), "F.prelu(a, b)", (X, SLOPES[:1])),
    Row("PReLU, channels", lambda x, w: nn.PReLU(4).replace(weight=w)(x), "F.prelu(a, b)", (X, SLOPES)),
    Row("RotaryEmbedding, halves", lambda x: nn.RotaryEmbedding(8)(x), "halves(a, torch.arange(5), 8)", (HEADS,)),
    Row(
        "RotaryEmbedding, interleaved", lambda x: nn.RotaryEmbedding(8, interleaved=True)(x),
        "interleaved(a, torch.arange(5), 8)", (HEADS,),
    ),
    Row(
        "RotaryEmbedding, some features", lambda x: nn.RotaryEmbedding(4, base=500.0)(x),
        "torch.cat([halves(a[..., :4], torch.arange(5), 4, 500.0), a[..., 4:]], -1)", (HEADS,),
    ),
    Row(
        "RotaryEmbedding, places", lambda x: nn.RotaryEmbedding(8, interleaved=True)(x, PLACES),
        "interleaved(a, PLACES, 8)", (HEADS,),
    ),
    Row("SpectralNorm, training", _spectral, "F.linear(a, spectral(b, LEFT, RIGHT, 1, 0))", (X, W)),
    Row(
        "SpectralNorm, three steps", lambda x, w: _spectral(x, w, steps=3),
        "F.linear(a, spectral(b, LEFT, RIGHT, 3, 0))", (X, W),
    ),
    Row(
        "SpectralNorm, inference", lambda x, w: _spectral(x, w, inference=True),
        "F.linear(a, spectral(b, LEFT, RIGHT, 0, 0))", (X, W),
    ),
    Row("SpectralNorm, ConvTranspose", _spectral_kernel, "spectral(a, KERNEL_LEFT, KERNEL_RIGHT, 0, 1)", (KERNEL,)),
    Row("WeightNorm, rows", _weight_norm, "F.linear(a, weighted(b, c, 0))", (X, _normal(5, 1), W)),
    Row(
        "WeightNorm, columns", lambda x, g, v: _weight_norm(x, g, v, axis=1),
        "F.linear(a, weighted(b, c, 1))", (X, _normal(1, 4), W),
    ),
    Row(
        "WeightNorm, all", lambda x, g, v: _weight_norm(x, g, v, axis="all"),
        "F.linear(a, weighted(b, c, None))", (X, np.asarray(1.5), W),
    ),
]  # fmt: skip

CASES = [*SAMPLINGS, *LAYERS]
