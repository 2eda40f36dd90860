"""GoogLeNet and its block (Szegedy et al., 2015), with batch norm after each convolution, as in torchvision."""

from __future__ import annotations

from typing import Self

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.nn.activations import relu
from nnc.nn.convolution import Conv, MaxPool
from nnc.nn.layers import Dropout, Linear, Sequential
from nnc.nn.module import Module
from nnc.nn.norms import BatchNorm
from nnc.nn.pooling import global_avg_pool
from nnc.nn.running import Run
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["GoogLeNet", "InceptionBlock"]

# channels of the branches: alone, before and after width 3, before and after the wide one, after the pool; None is a pool
BLOCKS = (
    (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), None,
    (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64), (256, 160, 320, 32, 128, 128), None,
    (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
)  # fmt: skip


class ConvNorm(Module):
    """Convolution, batch norm, relu."""

    conv: Conv
    bn: BatchNorm

    def __init__(
        self,
        in_features: int,
        features: int,
        kernel: int,
        *,
        key: ArrayLike,
        stride: int = 1,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self.conv = Conv(
            in_features, features, kernel, key=key, stride=stride, padding=kernel // 2, use_bias=False, dtype=dtype
        )
        self.bn = BatchNorm(features, eps=1e-3, dtype=dtype)

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, features, H / stride, W / stride), new self)."""
        run = Run(self)
        return run.result(relu(run.bn(run.conv(x))))


class InceptionBlock(Module):
    """Four branches side by side: width 1; 1 then 3; 1 then `wide`; pooling then width 1. Their channels are joined.

    Args:
        in_features: number of channels of the input.
        features: channels of the branches: alone, before and after width 3, before and after the wide one, after the
            pool.
        key: the key for the weights.
        wide: 5 in the paper; torchvision's weights are for 3.
        dtype: dtype of the weights.

    Example:
        >>> block = nnc.nn.models.InceptionBlock(8, (4, 2, 4, 2, 4, 4), key=nnc.random.key(0))
        >>> out, block = block(np.ones((1, 8, 6, 6), np.float32))
        >>> out.shape
        (1, 16, 6, 6)
    """

    branch1: ConvNorm
    branch2: Sequential
    branch3: Sequential
    branch4: Sequential

    @spelled
    def __init__(
        self,
        in_features: int,
        features: tuple[int, int, int, int, int, int],
        *,
        key: ArrayLike,
        wide: int = 5,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        keys = iter(random.split(key, 6))
        alone, before3, after3, before_wide, after_wide, pooled = features

        def conv(m: int, n: int, kernel: int) -> ConvNorm:
            return ConvNorm(m, n, kernel, key=next(keys), dtype=dtype)

        self.branch1 = conv(in_features, alone, 1)
        self.branch2 = Sequential(conv(in_features, before3, 1), conv(before3, after3, 3))
        self.branch3 = Sequential(conv(in_features, before_wide, 1), conv(before_wide, after_wide, wide))
        self.branch4 = Sequential(MaxPool(3, stride=1, padding=1), conv(in_features, pooled, 1))

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, channels of all branches, H, W), new self)."""
        run = Run(self)
        branches = (run.branch1, run.branch2, run.branch3, run.branch4)
        return run.result(nnp.concatenate([branch(x) for branch in branches], axis=1))


class GoogLeNet(Module):
    """Three convolutions, nine inception blocks with pools between them, the mean over the image, a linear layer.

    6,624,904 parameters with wide=3 and 1000 classes. The two auxiliary classifiers of the paper are left out.

    Args:
        key: the key for the weights.
        num_classes: how many scores there are.
        in_features: number of channels of the input.
        wide: width of the third branch of the blocks: 5 in the paper, 3 in torchvision.
        dropout_rate: share of the activations that is dropped before the last layer.
        dtype: dtype of the weights.

    Example:
        >>> model = nnc.eval_shape(lambda key: GoogLeNet(num_classes=10, key=key), nnc.random.key(0))
        >>> model.fc.weight.shape
        (10, 1024)
    """

    conv1: ConvNorm
    conv2: ConvNorm
    conv3: ConvNorm
    blocks: tuple[Module, ...]
    pool: MaxPool
    dropout: Dropout
    fc: Linear

    @spelled
    def __init__(
        self,
        *,
        key: ArrayLike,
        num_classes: int = 1000,
        in_features: int = 3,
        wide: int = 5,
        dropout_rate: float = 0.2,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        keys = random.split(key, len(BLOCKS) + 4)
        self.conv1 = ConvNorm(in_features, 64, 7, key=keys[-1], stride=2, dtype=dtype)
        self.conv2 = ConvNorm(64, 64, 1, key=keys[-2], dtype=dtype)
        self.conv3 = ConvNorm(64, 192, 3, key=keys[-3], dtype=dtype)
        self.pool = MaxPool(3, stride=2, ceil_mode=True)
        width = 192
        blocks: list[Module] = []
        for features, block_key in zip(BLOCKS, keys, strict=False):
            if features is None:
                blocks.append(MaxPool(3, stride=2, ceil_mode=True))
                continue
            blocks.append(InceptionBlock(width, features, key=block_key, wide=wide, dtype=dtype))
            width = features[0] + features[2] + features[4] + features[5]
        self.blocks = tuple(blocks)
        self.dropout = Dropout(dropout_rate)
        self.fc = Linear(width, num_classes, key=keys[-4], dtype=dtype)

    def __call__(self, x: ArrayLike, *, key: ArrayLike | None = None) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, num_classes), new self)."""
        run = Run(self, key=key)
        x = run.pool(run.conv3(run.conv2(run.pool(run.conv1(x)))))
        for block in run.blocks:
            x = block(x)
        return run.result(run.fc(run.dropout(global_avg_pool(x))))
