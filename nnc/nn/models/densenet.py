"""Densely connected networks (Huang et al., 2017): each layer sees the outputs of all earlier ones of its block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.nn.activations import relu
from nnc.nn.convolution import AvgPool, Conv, MaxPool
from nnc.nn.layers import Linear
from nnc.nn.module import Module
from nnc.nn.norms import BatchNorm
from nnc.nn.pooling import global_avg_pool
from nnc.nn.running import Run
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["DenseBlock", "DenseNet", "densenet121"]


class DenseLayer(Module):
    """Norm, relu, convolution of width 1; norm, relu, convolution of width 3: `growth` new channels."""

    norm1: BatchNorm
    conv1: Conv
    norm2: BatchNorm
    conv2: Conv

    def __init__(self, in_features: int, growth: int, *, key: ArrayLike, dtype: DTypeLike = dtypes.float32) -> None:
        keys, inner = random.split(key), 4 * growth
        self.norm1, self.norm2 = BatchNorm(in_features, dtype=dtype), BatchNorm(inner, dtype=dtype)
        self.conv1 = Conv(in_features, inner, 1, key=keys[0], use_bias=False, dtype=dtype)
        self.conv2 = Conv(inner, growth, 3, key=keys[1], padding=1, use_bias=False, dtype=dtype)

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, growth, H, W), new self)."""
        run = Run(self)
        out = run.conv1(relu(run.norm1(x)))
        return run.result(run.conv2(relu(run.norm2(out))))


class DenseBlock(Module):
    """A block of layers; each layer takes the block's input and the outputs of all layers before it.

    Args:
        in_features: number of channels of the input.
        growth: channels that each layer adds.
        depth: how many layers there are.
        key: the key for the weights.
        dtype: dtype of the weights.

    Example:
        >>> block = DenseBlock(4, 2, 3, key=nnc.random.key(0))
        >>> block(nnp.ones((1, 4, 6, 6)))[0].shape
        (1, 10, 6, 6)
    """

    layers: tuple[DenseLayer, ...]

    def __init__(
        self, in_features: int, growth: int, depth: int, *, key: ArrayLike, dtype: DTypeLike = dtypes.float32
    ) -> None:
        keys = random.split(key, depth)
        self.layers = tuple(
            DenseLayer(in_features + i * growth, growth, key=keys[i], dtype=dtype) for i in range(depth)
        )

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, in_features + depth · growth, H, W), new self)."""
        run = Run(self)
        for layer in run.layers:
            x = nnp.concatenate([x, layer(x)], axis=1)
        return run.result(x)


class Transition(Module):
    """Norm, relu, convolution of width 1 to half the channels, pooling to half the size."""

    norm: BatchNorm
    conv: Conv
    pool: AvgPool

    def __init__(self, in_features: int, *, key: ArrayLike, dtype: DTypeLike = dtypes.float32) -> None:
        self.norm = BatchNorm(in_features, dtype=dtype)
        self.conv = Conv(in_features, in_features // 2, 1, key=key, use_bias=False, dtype=dtype)
        self.pool = AvgPool(2)

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, in_features / 2, H / 2, W / 2), new self)."""
        run = Run(self)
        return run.result(run.pool(run.conv(relu(run.norm(x)))))


class DenseNet(Module):
    """A convolution, dense blocks with transitions between them, the mean over the image, a linear layer.

    Args:
        growth: channels that each layer adds.
        depths: how many layers each block has.
        key: the key for the weights.
        width: channels before the first.
        num_classes: how many scores there are.
        in_features: number of channels of the input.
        dtype: dtype of the weights.

    Example:
        >>> model = nnc.nn.models.DenseNet(4, (2, 2), width=8, key=nnc.random.key(0), num_classes=10)
        >>> scores, model = model(np.ones((2, 3, 32, 32), np.float32))
        >>> scores.shape
        (2, 10)
    """

    conv0: Conv
    norm0: BatchNorm
    pool0: MaxPool
    blocks: tuple[DenseBlock, ...]
    transitions: tuple[Transition, ...]
    norm5: BatchNorm
    classifier: Linear

    @spelled
    def __init__(
        self,
        growth: int,
        depths: Sequence[int],
        *,
        key: ArrayLike,
        width: int = 64,
        num_classes: int = 1000,
        in_features: int = 3,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        first, last, for_blocks, for_transitions = random.split(key, 4)
        block_keys, transition_keys = (random.split(k, len(depths)) for k in (for_blocks, for_transitions))
        self.conv0 = Conv(in_features, width, 7, key=first, stride=2, padding=3, use_bias=False, dtype=dtype)
        self.norm0, self.pool0 = BatchNorm(width, dtype=dtype), MaxPool(3, stride=2, padding=1)
        blocks, transitions = [], []
        for i, depth in enumerate(depths):
            blocks.append(DenseBlock(width, growth, depth, key=block_keys[i], dtype=dtype))
            width += depth * growth
            if i < len(depths) - 1:
                transitions.append(Transition(width, key=transition_keys[i], dtype=dtype))
                width //= 2
        self.blocks, self.transitions = tuple(blocks), tuple(transitions)
        self.norm5 = BatchNorm(width, dtype=dtype)
        self.classifier = Linear(width, num_classes, key=last, dtype=dtype)

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, num_classes), new self)."""
        run = Run(self)
        x = run.pool0(relu(run.norm0(run.conv0(x))))
        for i, block in enumerate(run.blocks):
            x = block(x)
            if i < len(self.transitions):
                x = run.transitions[i](x)
        return run.result(run.classifier(global_avg_pool(relu(run.norm5(x)))))


def densenet121(**options: Any) -> DenseNet:
    """DenseNet-121: 7,978,856 parameters with 1000 classes. The options are those of DenseNet, of which key= is needed.

    Args:
        **options: the options of DenseNet.

    Example:
        >>> model = nnc.eval_shape(lambda key: densenet121(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        7047754
    """
    return DenseNet(32, (6, 12, 24, 16), **options)
