"""U-Net (Ronneberger et al., 2015): a way down to small images with many channels, and up again beside the images of the way
down.
"""

from __future__ import annotations

from typing import Self

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.activations import relu
from nnc.nn.convolution import Conv, ConvTranspose, MaxPool
from nnc.nn.layers import Lambda, Sequential
from nnc.nn.module import Module
from nnc.nn.norms import BatchNorm
from nnc.nn.running import Run
from nnc.numpy.operands import to_value
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["UNet"]


def _two_convs(m: int, n: int, key: ArrayLike, dtype: DTypeLike) -> Sequential:
    layers = []
    for features, conv_key in zip((m, n), random.split(key), strict=True):
        layers += [
            Conv(features, n, 3, key=conv_key, padding=1, use_bias=False, dtype=dtype),
            BatchNorm(n, dtype=dtype),
        ]
        layers.append(Lambda(relu))
    return Sequential(*layers)


class UNet(Module):
    """Scores for each pixel: padded convolutions with batch norm, so that the output has the size of the input.

    Args:
        in_features: number of channels of the input.
        num_classes: scores for each pixel.
        key: the key for the weights.
        width: channels of the first stage; each further one has twice as many.
        depth: how often the size is halved.
        dtype: dtype of the weights.

    Example:
        >>> model = nnc.nn.models.UNet(1, 2, key=nnc.random.key(0), width=4, depth=2)
        >>> scores, model = model(np.ones((1, 1, 16, 16), np.float32))
        >>> scores.shape
        (1, 2, 16, 16)
    """

    first: Sequential
    down: tuple[Sequential, ...]
    up: tuple[ConvTranspose, ...]
    merge: tuple[Sequential, ...]
    last: Conv
    pool: MaxPool

    @spelled
    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        key: ArrayLike,
        width: int = 64,
        depth: int = 4,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        ends, *stages = random.split(key, (depth + 1, 3))
        sizes = [width * 2**i for i in range(depth + 1)]
        self.first = _two_convs(in_features, width, ends[0], dtype)
        self.last = Conv(width, num_classes, 1, key=ends[1], dtype=dtype)
        self.pool = MaxPool(2)
        pairs = list(zip(sizes, sizes[1:], stages, strict=False))
        self.down = tuple(_two_convs(m, n, keys[0], dtype) for m, n, keys in pairs)
        self.up = tuple(ConvTranspose(n, m, 2, key=keys[1], stride=2, dtype=dtype) for m, n, keys in reversed(pairs))
        self.merge = tuple(_two_convs(n, m, keys[2], dtype) for m, n, keys in reversed(pairs))

    def __call__(self, x: ArrayLike) -> tuple[Array, Self]:
        """(N, in_features, H, W), multiples of 2**depth -> ((N, num_classes, H, W), new self)."""
        x = to_value(x, "UNet")
        if any(n % 2 ** len(self.down) for n in x.shape[-2:]):
            problem = f"height and width {x.shape[-2:]} are no multiples of {2 ** len(self.down)}."
            fix = "pad the images, or use a smaller depth."
            raise user_error(ShapeError, "UNet", problem, operands={"x": spec_of(x)}, fix=fix)
        run = Run(self)
        seen = [run.first(x)]
        for stage in run.down:
            seen.append(stage(run.pool(seen[-1])))
        out = seen.pop()
        for up, merge in zip(run.up, run.merge, strict=True):
            out = merge(nnp.concatenate([seen.pop(), up(out)], axis=1))
        return run.result(run.last(out))
