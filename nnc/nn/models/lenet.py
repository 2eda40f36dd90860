"""LeNet-5 (LeCun et al., 1998), in the form in which it is taught: full connections, no trained pools."""

from __future__ import annotations

from collections.abc import Callable

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.nn.activations import relu
from nnc.nn.convolution import Conv, MaxPool
from nnc.nn.layers import Linear
from nnc.nn.module import Module, field
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["LeNet"]


class LeNet(Module):
    """Two convolutions of width 5 with pools, and three linear layers: 61,706 parameters for images of 28² and 10 classes.

    Args:
        key: the key for the weights.
        num_classes: how many scores there are.
        in_features: number of channels of the input.
        image_size: height and width; the first convolution keeps it.
        activation: after each layer but the last.
        dtype: dtype of the weights.

    Example:
        >>> nnc.nn.models.LeNet(key=nnc.random.key(0))(np.ones((2, 1, 28, 28), np.float32)).shape
        (2, 10)
    """

    conv1: Conv
    conv2: Conv
    pool: MaxPool
    fc1: Linear
    fc2: Linear
    fc3: Linear
    activation: Callable[[Array], Array] = field(static=True)

    @spelled
    def __init__(
        self,
        *,
        key: ArrayLike,
        num_classes: int = 10,
        in_features: int = 1,
        image_size: int = 28,
        activation: Callable[[Array], Array] = relu,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        keys = random.split(key, 5)
        self.conv1 = Conv(in_features, 6, 5, key=keys[0], padding=2, dtype=dtype)
        self.conv2 = Conv(6, 16, 5, key=keys[1], dtype=dtype)
        self.pool = MaxPool(2)
        self.fc1 = Linear(16 * ((image_size // 2 - 4) // 2) ** 2, 120, key=keys[2], dtype=dtype)
        self.fc2 = Linear(120, 84, key=keys[3], dtype=dtype)
        self.fc3 = Linear(84, num_classes, key=keys[4], dtype=dtype)
        self.activation = activation

    def __call__(self, x: ArrayLike) -> Array:
        """(N, in_features, image_size, image_size) -> (N, num_classes)."""
        x = self.pool(self.activation(self.conv1(x)))
        x = self.pool(self.activation(self.conv2(x)))
        x = self.activation(self.fc1(nnp.reshape(x, (x.shape[0], -1))))
        return self.fc3(self.activation(self.fc2(x)))
