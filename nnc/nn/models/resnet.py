"""Residual networks (He et al., 2016), with the shapes and field names of torchvision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from nnc import random
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.nn.activations import relu
from nnc.nn.convolution import Conv, MaxPool
from nnc.nn.layers import Identity, Linear, Sequential
from nnc.nn.module import Module
from nnc.nn.norms import BatchNorm
from nnc.nn.pooling import global_avg_pool
from nnc.nn.running import Run
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["BasicBlock", "Bottleneck", "ResNet", "resnet18", "resnet34", "resnet50", "resnet101"]


def _conv(m: int, n: int, kernel: int, key: ArrayLike, dtype: DTypeLike, stride: int = 1) -> Conv:
    return Conv(m, n, kernel, key=key, stride=stride, padding=kernel // 2, use_bias=False, dtype=dtype)


class _Block(Module):
    """relu(x + F(x)); where F changes the shape, x goes through a convolution of width 1."""

    downsample: Sequential | None
    expansion: ClassVar[int]

    def _shortcut(self, m: int, n: int, stride: int, key: ArrayLike, dtype: DTypeLike) -> Sequential | None:
        if stride == 1 and m == n:
            return None
        return Sequential(_conv(m, n, 1, key, dtype, stride), BatchNorm(n, dtype=dtype))

    def _add(self, run: Run, x: Any, out: Any) -> Any:
        return run.result(relu(out + (x if self.downsample is None else run.downsample(x))))


class BasicBlock(_Block):
    """Two convolutions of width 3: the block of ResNet-18 and ResNet-34.

    Args:
        in_features: number of channels of the input.
        features: number of channels of the output.
        stride: the stride of the first convolution.
        key: the key for the weights.
        dtype: dtype of the weights.

    Example:
        >>> block = BasicBlock(4, 8, 2, key=nnc.random.key(0))
        >>> block(nnp.ones((1, 4, 6, 6)))[0].shape
        (1, 8, 3, 3)
    """

    conv1: Conv
    bn1: BatchNorm
    conv2: Conv
    bn2: BatchNorm
    expansion: ClassVar[int] = 1

    def __init__(
        self, in_features: int, features: int, stride: int, *, key: ArrayLike, dtype: DTypeLike = dtypes.float32
    ) -> None:
        keys = random.split(key, 3)
        self.conv1 = _conv(in_features, features, 3, keys[0], dtype, stride)
        self.conv2 = _conv(features, features, 3, keys[1], dtype)
        self.bn1, self.bn2 = (BatchNorm(features, dtype=dtype) for _ in range(2))
        self.downsample = self._shortcut(in_features, features, stride, keys[2], dtype)

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, features, H / stride, W / stride), new self)."""
        run = Run(self)
        out = relu(run.bn1(run.conv1(x)))
        return self._add(run, x, run.bn2(run.conv2(out)))


class Bottleneck(_Block):
    """Convolutions of width 1, 3 and 1, the middle one with a quarter of the channels and the stride.

    Args:
        in_features: number of channels of the input.
        features: number of channels of the output.
        stride: the stride of the middle convolution.
        key: the key for the weights.
        dtype: dtype of the weights.

    Example:
        >>> block = Bottleneck(4, 8, 2, key=nnc.random.key(0))
        >>> block(nnp.ones((1, 4, 6, 6)))[0].shape
        (1, 32, 3, 3)
    """

    conv1: Conv
    bn1: BatchNorm
    conv2: Conv
    bn2: BatchNorm
    conv3: Conv
    bn3: BatchNorm
    expansion: ClassVar[int] = 4

    def __init__(
        self, in_features: int, features: int, stride: int, *, key: ArrayLike, dtype: DTypeLike = dtypes.float32
    ) -> None:
        keys, out = random.split(key, 4), 4 * features
        self.conv1 = _conv(in_features, features, 1, keys[0], dtype)
        self.conv2 = _conv(features, features, 3, keys[1], dtype, stride)
        self.conv3 = _conv(features, out, 1, keys[2], dtype)
        self.bn1, self.bn2, self.bn3 = (BatchNorm(n, dtype=dtype) for n in (features, features, out))
        self.downsample = self._shortcut(in_features, out, stride, keys[3], dtype)

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, 4 · features, H / stride, W / stride), new self)."""
        run = Run(self)
        out = relu(run.bn1(run.conv1(x)))
        out = relu(run.bn2(run.conv2(out)))
        return self._add(run, x, run.bn3(run.conv3(out)))


class ResNet(Module):
    """A convolution, four stages of blocks with 64, 128, 256 and 512 channels, the mean over the image, a linear layer.

    Args:
        block: BasicBlock or Bottleneck.
        depths: how many blocks each stage has.
        key: the key for the weights.
        num_classes: how many scores there are.
        in_features: number of channels of the input.
        small_images: start with a convolution of width 3 and no pooling, as is done for images of 32² pixels.
        dtype: dtype of the weights.

    Example:
        >>> model = nnc.nn.models.resnet18(key=nnc.random.key(0), num_classes=10, small_images=True)
        >>> scores, model = model(np.ones((2, 3, 32, 32), np.float32))
        >>> scores.shape
        (2, 10)
    """

    conv1: Conv
    bn1: BatchNorm
    maxpool: Module
    layer1: Sequential
    layer2: Sequential
    layer3: Sequential
    layer4: Sequential
    fc: Linear

    @spelled
    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        *,
        key: ArrayLike,
        num_classes: int = 1000,
        in_features: int = 3,
        small_images: bool = False,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        keys = random.split(key, 6)
        self.conv1 = _conv(in_features, 64, 3 if small_images else 7, keys[0], dtype, 1 if small_images else 2)
        self.bn1 = BatchNorm(64, dtype=dtype)
        self.maxpool = Identity() if small_images else MaxPool(3, stride=2, padding=1)
        width, stages = 64, []
        for i, depth in enumerate(depths):
            blocks = []
            for j, block_key in enumerate(random.split(keys[1 + i], depth)):
                blocks.append(block(width, 64 * 2**i, 2 if i and not j else 1, key=block_key, dtype=dtype))
                width = 64 * 2**i * block.expansion
            stages.append(Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = Linear(width, num_classes, key=keys[5], dtype=dtype)

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W) -> ((N, num_classes), new self)."""
        run = Run(self)
        x = run.maxpool(relu(run.bn1(run.conv1(x))))
        for stage in (run.layer1, run.layer2, run.layer3, run.layer4):
            x = stage(x)
        return run.result(run.fc(global_avg_pool(x)))


def resnet18(**options: Any) -> ResNet:
    """ResNet-18: 11,689,512 parameters with 1000 classes. The options are those of ResNet, of which key= is needed.

    Args:
        **options: the options of ResNet.

    Example:
        >>> model = nnc.eval_shape(lambda key: resnet18(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        11191242
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), **options)


def resnet34(**options: Any) -> ResNet:
    """ResNet-34: 21,797,672 parameters with 1000 classes. The options are those of ResNet, of which key= is needed.

    Args:
        **options: the options of ResNet.

    Example:
        >>> model = nnc.eval_shape(lambda key: resnet34(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        21306826
    """
    return ResNet(BasicBlock, (3, 4, 6, 3), **options)


def resnet50(**options: Any) -> ResNet:
    """ResNet-50: 25,557,032 parameters with 1000 classes. The options are those of ResNet, of which key= is needed.

    Args:
        **options: the options of ResNet.

    Example:
        >>> model = nnc.eval_shape(lambda key: resnet50(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        23581642
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), **options)


def resnet101(**options: Any) -> ResNet:
    """ResNet-101: 44,549,160 parameters with 1000 classes. The options are those of ResNet, of which key= is needed.

    Args:
        **options: the options of ResNet.

    Example:
        >>> model = nnc.eval_shape(lambda key: resnet101(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        42625994
    """
    return ResNet(Bottleneck, (3, 4, 23, 3), **options)
