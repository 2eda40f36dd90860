"""Normalisation as layers. All but BatchNorm hold no state."""

from __future__ import annotations

from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands.rules import check_axis
from nnc.errors import ArgumentError, user_error
from nnc.nn import normalization
from nnc.nn.layers import check_features
from nnc.nn.module import Module, field
from nnc.nn.windows import Sizes
from nnc.numpy.operands import to_value
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


class LayerNorm(Module):
    """Normalisation over the last axes, of the sizes `features` (see nnc.nn.layer_norm).

    Args:
        features: sizes of the last axes, or size of the last one.
        eps: added to the variance.
        use_scale: whether there is a scale.
        use_bias: whether there is a bias.
        dtype: dtype of the weights.

    Example:
        >>> nnc.nn.LayerNorm(4)(np.ones((2, 4), np.float32)).shape
        (2, 4)
    """

    scale: Array | None
    bias: Array | None
    features: tuple[int, ...] = field(static=True)
    eps: float

    @spelled
    def __init__(
        self,
        features: Sizes,
        *,
        eps: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self.features = (features,) if isinstance(features, int) else tuple(features)
        self.scale = nnp.ones(self.features, dtype) if use_scale else None
        self.bias = nnp.zeros(self.features, dtype) if use_bias else None
        self.eps = eps

    def __call__(self, x: ArrayLike) -> Array:
        """(..., *features) -> the same shape."""
        axes = tuple(range(-len(self.features), 0))
        for axis, size in zip(axes, self.features, strict=True):
            x = check_features("LayerNorm", x, size, axis)
        return normalization.layer_norm(x, self.scale, self.bias, axis=axes, eps=self.eps)


class RMSNorm(Module):
    """Division by the root of the mean of squares over the last axis (see nnc.nn.rms_norm).

    Args:
        features: size of the last axis.
        eps: added to the mean of squares.
        use_scale: whether there is a scale.
        dtype: dtype of the weights.

    Example:
        >>> nnc.nn.RMSNorm(2, eps=0)(np.array([3.0, -3.0], np.float32))
        Array([ 1., -1.], dtype=float32)
    """

    scale: Array | None
    features: int
    eps: float

    @spelled
    def __init__(
        self, features: int, *, eps: float = 1e-6, use_scale: bool = True, dtype: Any = dtypes.float32
    ) -> None:
        self.features, self.eps = features, eps
        self.scale = nnp.ones(features, dtype) if use_scale else None

    def __call__(self, x: ArrayLike) -> Array:
        """(..., features) -> the same shape."""
        return normalization.rms_norm(check_features("RMSNorm", x, self.features), self.scale, eps=self.eps)


class _ChannelNorm(Module):
    """The base of layers whose scale and bias have a value for each channel."""

    scale: Array | None
    bias: Array | None
    features: int
    axis: int
    eps: float

    def _set_up(self, features: int, axis: int, eps: float, use_scale: bool, use_bias: bool, dtype: DTypeLike) -> None:
        self.features, self.axis, self.eps = features, axis, eps
        self.scale = nnp.ones(features, dtype) if use_scale else None
        self.bias = nnp.zeros(features, dtype) if use_bias else None

    def _channels(self, x: Any) -> Array:
        x = to_value(x, type(self).__name__)
        axis = check_axis(type(self).__name__, self.axis, x.ndim)
        return check_features(type(self).__name__, x, self.features, axis - x.ndim)


class GroupNorm(_ChannelNorm):
    """Normalisation over groups of channels and all axes after N (see nnc.nn.group_norm).

    Args:
        groups: divides `features`.
        features: number of channels.
        axis: axis of the channels.
        eps: added to the variance.
        use_scale: whether there is a scale.
        use_bias: whether there is a bias.
        dtype: dtype of the weights.

    Example:
        >>> nnc.nn.GroupNorm(2, 4)(np.ones((1, 4, 8, 8), np.float32)).shape
        (1, 4, 8, 8)
    """

    groups: int

    @spelled
    def __init__(
        self,
        groups: int,
        features: int,
        *,
        axis: int = 1,
        eps: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        if groups < 1 or features % groups:
            problem = f"groups={groups} does not divide features={features}."
            fix = "write GroupNorm(groups, features), with a number of groups that divides the channels."
            raise user_error(ArgumentError, "GroupNorm", problem, fix=fix)
        self._set_up(features, axis, eps, use_scale, use_bias, dtype)
        self.groups = groups

    def __call__(self, x: ArrayLike) -> Array:
        """(N, features, *spatial) -> the same shape."""
        x = self._channels(x)
        return normalization.group_norm(x, self.groups, self.scale, self.bias, axis=self.axis, eps=self.eps)


class InstanceNorm(_ChannelNorm):
    """Normalisation of each channel of each example over its spatial axes (Ulyanov et al., 2016).

    Args:
        features: number of channels.
        axis: axis of the channels.
        eps: added to the variance.
        use_scale: whether there is a scale.
        use_bias: whether there is a bias.
        dtype: dtype of the weights.

    Example:
        >>> nnc.nn.InstanceNorm(4)(np.ones((1, 4, 8, 8), np.float32)).shape
        (1, 4, 8, 8)
    """

    @spelled
    def __init__(
        self,
        features: int,
        *,
        axis: int = 1,
        eps: float = 1e-5,
        use_scale: bool = False,
        use_bias: bool = False,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self._set_up(features, axis, eps, use_scale, use_bias, dtype)

    def __call__(self, x: ArrayLike) -> Array:
        """(N, features, *spatial) -> the same shape."""
        x = self._channels(x)
        return normalization.instance_norm(x, self.scale, self.bias, axis=self.axis, eps=self.eps)


class BatchNorm(_ChannelNorm):
    """Normalisation by the statistics of the batch (see nnc.nn.batch_norm); `inference` uses the running ones.

    A call returns the output and the layer with new running statistics, which the caller carries on (see nnc.nn.Run).

    Args:
        features: number of channels.
        momentum: weight of the old statistics.
        axis: axis of the channels.
        eps: added to the variance.
        use_scale: whether there is a scale.
        use_bias: whether there is a bias.
        inference: whether the running statistics are used.
        axis_name: the named axis, or a tuple of axes, over whose places the batch is spread; the statistics are then those of all
            places. Only a call within the axis takes place.
        dtype: dtype of the weights.

    Example:
        >>> layer = nnc.nn.BatchNorm(3)
        >>> out, layer = layer(np.ones((8, 3, 4, 4), np.float32))
        >>> nnc.nn.inference_mode(layer)(out)[0].shape
        (8, 3, 4, 4)
    """

    mean: Array = field(state=True)
    variance: Array = field(state=True)
    momentum: float
    inference: bool
    axis_name: str | tuple[str, ...] | None = field(static=True, default=None)

    @spelled
    def __init__(
        self,
        features: int,
        *,
        momentum: float = 0.9,
        axis: int = 1,
        eps: float = 1e-5,
        use_scale: bool = True,
        use_bias: bool = True,
        inference: bool = False,
        axis_name: str | tuple[str, ...] | None = None,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self._set_up(features, axis, eps, use_scale, use_bias, dtype)
        self.mean, self.variance = nnp.zeros(features, dtype), nnp.ones(features, dtype)
        self.momentum, self.inference, self.axis_name = momentum, inference, axis_name

    def __call__(self, x: ArrayLike) -> tuple[Array, BatchNorm]:
        """Returns the output and the layer with new running statistics."""
        out, (mean, variance) = normalization.batch_norm(
            self._channels(x), self.mean, self.variance, self.scale, self.bias,
            deterministic=self.inference, momentum=self.momentum, axis=self.axis, eps=self.eps,
            axis_name=self.axis_name,
        )  # fmt: skip
        # in the dtypes that they had, so that a training step yields the dtypes that it takes
        return out, self.replace(mean=mean.astype(self.mean.dtype), variance=variance.astype(self.variance.dtype))
