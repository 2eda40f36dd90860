"""VGG networks (Simonyan & Zisserman, 2015): convolutions of width 3 and pools, then three linear layers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import nnc.numpy as nnp
from nnc import random
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors.errors import check_choice
from nnc.nn.activations import relu
from nnc.nn.convolution import Conv, MaxPool
from nnc.nn.layers import Dropout, Lambda, Linear, Sequential
from nnc.nn.module import Module
from nnc.nn.norms import BatchNorm
from nnc.nn.running import Run
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["VGG", "vgg11", "vgg13", "vgg16", "vgg19"]

# channels of the convolutions of each stage; a pool follows every stage
STAGES = {
    11: ((64,), (128,), (256,) * 2, (512,) * 2, (512,) * 2),
    13: ((64,) * 2, (128,) * 2, (256,) * 2, (512,) * 2, (512,) * 2),
    16: ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3),
    19: ((64,) * 2, (128,) * 2, (256,) * 4, (512,) * 4, (512,) * 4),
}


class VGG(Module):
    """The network with `depth` layers that have weights: 11, 13, 16 or 19.

    Args:
        depth: 11, 13, 16 or 19.
        key: the key for the weights.
        num_classes: how many scores there are.
        in_features: number of channels of the input.
        image_size: the height and width of the images; the first linear layer gets 1/32 of each.
        hidden_features: size of the two hidden linear layers.
        batch_norm: whether each convolution is followed by BatchNorm.
        dropout_rate: share of the hidden features that is dropped.
        dtype: dtype of the weights.

    Example:
        >>> model = nnc.nn.models.vgg11(key=nnc.random.key(0), image_size=32, hidden_features=64, num_classes=10)
        >>> nnc.nn.inference_mode(model)(np.ones((2, 3, 32, 32), np.float32)).shape
        (2, 10)
    """

    features: Sequential
    classifier: Sequential

    @spelled
    def __init__(
        self,
        depth: int,
        *,
        key: ArrayLike,
        num_classes: int = 1000,
        in_features: int = 3,
        image_size: int = 224,
        hidden_features: int = 4096,
        batch_norm: bool = False,
        dropout_rate: float = 0.5,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        check_choice("VGG", "depth", depth, STAGES)
        keys = iter(random.split(key, 19))
        width = in_features
        layers: list[Module] = []
        for stage in STAGES[depth]:
            for features in stage:
                layers.append(Conv(width, features, 3, key=next(keys), padding=1, dtype=dtype))
                layers += [BatchNorm(features, dtype=dtype)] if batch_norm else []
                layers.append(Lambda(relu))
                width = features
            layers.append(MaxPool(2))
        self.features = Sequential(*layers)
        sizes = (width * (image_size // 32) ** 2, hidden_features, hidden_features, num_classes)
        first, second, third = (Linear(m, n, key=next(keys), dtype=dtype) for m, n in pairwise(sizes))
        self.classifier = Sequential(first, relu, Dropout(dropout_rate), second, relu, Dropout(dropout_rate), third)

    def __call__(self, x: ArrayLike, *, key: ArrayLike | None = None) -> Any:
        """(N, in_features, image_size, image_size) -> (N, num_classes), with the new self where there are batch norms."""
        run = Run(self, key=key)
        found = run.features(x)
        return run.result(run.classifier(nnp.reshape(found, (found.shape[0], -1))))


def vgg11(**options: Any) -> VGG:
    """VGG-11: 132,863,336 parameters with 1000 classes. The options are those of VGG, of which key= is needed.

    Args:
        **options: the options of VGG.

    Example:
        >>> model = nnc.eval_shape(lambda key: vgg11(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        128807306
    """
    return VGG(11, **options)


def vgg13(**options: Any) -> VGG:
    """VGG-13: 133,047,848 parameters with 1000 classes. The options are those of VGG, of which key= is needed.

    Args:
        **options: the options of VGG.

    Example:
        >>> model = nnc.eval_shape(lambda key: vgg13(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        128991818
    """
    return VGG(13, **options)


def vgg16(**options: Any) -> VGG:
    """VGG-16: 138,357,544 parameters with 1000 classes. The options are those of VGG, of which key= is needed.

    Args:
        **options: the options of VGG.

    Example:
        >>> model = nnc.eval_shape(lambda key: vgg16(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        134301514
    """
    return VGG(16, **options)


def vgg19(**options: Any) -> VGG:
    """VGG-19: 143,667,240 parameters with 1000 classes. The options are those of VGG, of which key= is needed.

    Args:
        **options: the options of VGG.

    Example:
        >>> model = nnc.eval_shape(lambda key: vgg19(num_classes=10, key=key), nnc.random.key(0))
        >>> sum(leaf.size for leaf in nnc.tree.leaves(model))
        139611210
    """
    return VGG(19, **options)
