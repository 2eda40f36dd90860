"""Convolutions and pools as layers, with any number of spatial axes: the layout says how many there are."""

from __future__ import annotations

import math
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, user_error
from nnc.nn import pooling
from nnc.nn import windows as functions
from nnc.nn.layers import check_features, draw_weights
from nnc.nn.module import Module, field
from nnc.nn.windows import PaddingLike, Sizes, parse_layout, per_axis
from nnc.typing import ArrayLike, DTypeLike

__all__ = ["AdaptiveAvgPool", "AvgPool", "Conv", "ConvTranspose", "GlobalAvgPool", "GlobalMaxPool", "MaxPool"]


class _Convolution(Module):
    """The base of Conv and ConvTranspose, with parameters for each spatial axis; the layout says how many there are."""

    weight: Array
    bias: Array | None
    in_features: int
    out_features: int
    stride: tuple[int, ...] = field(static=True)
    padding: PaddingLike = field(static=True)
    dilation: tuple[int, ...] = field(static=True)
    groups: int
    layout: str

    def _set_up(
        self, key: ArrayLike, channels: tuple[int, int], kernel: Sizes, use_bias: bool, dtype: DTypeLike, **options: Any
    ) -> None:
        """Assigns the fields; `channels` are the first two axes of the weight, were there no groups."""
        where = type(self).__name__
        rank = parse_layout(where, options["layout"]).rank
        for name in ("in_features", "out_features", "groups", "layout"):
            setattr(self, name, options[name])
        for name in ("stride", "dilation", "output_padding"):
            if name in options:
                setattr(self, name, per_axis(where, name, options[name], rank))
        self.padding = _hashable(options["padding"])
        _check_groups(where, self.in_features, self.out_features, self.groups)
        shape = (channels[0], channels[1] // self.groups, *per_axis(where, "kernel", kernel, rank))
        bias_shape = (self.out_features,) if use_bias else None
        self.weight, self.bias = draw_weights(key, shape, bias_shape, math.prod(shape[1:]), dtype)

    def _channels(self, x: Any) -> Array:
        form = parse_layout(type(self).__name__, self.layout)
        return check_features(type(self).__name__, x, self.in_features, form.order[0] - len(form.order))

    def _options(self) -> dict[str, Any]:
        names = ("stride", "padding", "dilation", "groups", "layout")
        return {name: getattr(self, name) for name in names}


@specialised(2)
def convolve(x: Any, weight: Any, bias: Any, **options: Any) -> Array:
    """Computes a Conv's result; the options are those of nnc.nn.conv."""
    return _shifted(functions.conv(x, weight, **options), bias, options["layout"])


@specialised(2)
def convolve_transpose(x: Any, weight: Any, bias: Any, **options: Any) -> Array:
    """Computes a ConvTranspose's result; the options are those of nnc.nn.conv_transpose."""
    return _shifted(functions.conv_transpose(x, weight, **options), bias, options["layout"])


def _shifted(out: Array, bias: Any, layout: str) -> Array:
    """Returns the bias added to each channel."""
    if bias is None:
        return out
    form = parse_layout("bias", layout)
    return out + nnp.reshape(bias, (-1,) + (1,) * (form.rank - form.order[0]))


def _check_groups(where: str, in_features: int, out_features: int, groups: int) -> None:
    if groups < 1 or in_features % groups or out_features % groups:
        problem = f"groups={groups} does not divide in_features={in_features} and out_features={out_features}."
        raise user_error(ArgumentError, where, problem, fix="use a number of groups that divides both.")


def _hashable(padding: PaddingLike) -> Any:
    return tuple(map(_hashable, padding)) if isinstance(padding, (tuple, list)) else padding


class Conv(_Convolution):
    """Convolution (see nnc.nn.conv) with a weight (out_features, in_features / groups, *kernel) and a bias.

    Args:
        in_features: number of input channels.
        out_features: number of output channels.
        kernel: a size for each spatial axis, or one for all; the layout says how many there are ("NCHW", "NWC" …).
        key: the key for the weights, uniform in ±1 / sqrt(inputs of an output).
        stride: the stride of the windows; a number, or one for each spatial axis.
        padding: a number, one for each spatial axis, a pair (before, after) for each, "SAME" or "VALID".
        dilation: distance of the elements of a window; a number, or one for each spatial axis.
        groups: share g of the output channels sees share g of the input channels only.
        use_bias: whether there is a bias.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.
        dtype: dtype of the weights.

    Example:
        >>> layer = nnc.nn.Conv(3, 8, 5, key=nnc.random.key(0), stride=2, padding="SAME")
        >>> layer(np.ones((1, 3, 32, 32), np.float32)).shape
        (1, 8, 16, 16)
    """

    @spelled
    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel: Sizes,
        *,
        key: ArrayLike,
        stride: Sizes = 1,
        padding: PaddingLike = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        use_bias: bool = True,
        layout: str = "NCHW",
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self._set_up(
            key, (out_features, in_features), kernel, use_bias, dtype, in_features=in_features, out_features=out_features,
            stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout,
        )  # fmt: skip

    def __call__(self, x: ArrayLike) -> Array:
        """(N, in_features, *spatial) -> (N, out_features, *out), in the layout of the layer."""
        return convolve(self._channels(x), self.weight, self.bias, **self._options())


class ConvTranspose(_Convolution):
    """Transposed convolution (see nnc.nn.conv_transpose) with a weight (in_features, out_features / groups, *kernel).

    Args:
        in_features: number of input channels.
        out_features: number of output channels.
        kernel: a size for each spatial axis, or one for all.
        key: the key for the weights, uniform in ±1 / sqrt(inputs of an output).
        stride: distance of the windows in the output; a number, or one for each spatial axis.
        padding: how much of the output is cut off; given as for Conv.
        output_padding: how many elements more the output has at the end of each axis.
        dilation: distance of the elements of a window; a number, or one for each spatial axis.
        groups: share g of the output channels sees share g of the input channels only.
        use_bias: whether there is a bias.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.
        dtype: dtype of the weights.

    Example:
        >>> layer = nnc.nn.ConvTranspose(8, 3, 2, key=nnc.random.key(0), stride=2)
        >>> layer(np.ones((1, 8, 16, 16), np.float32)).shape
        (1, 3, 32, 32)
    """

    output_padding: tuple[int, ...] = field(static=True)

    @spelled
    def __init__(
        self,
        in_features: int,
        out_features: int,
        kernel: Sizes,
        *,
        key: ArrayLike,
        stride: Sizes = 1,
        padding: PaddingLike = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        use_bias: bool = True,
        layout: str = "NCHW",
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self._set_up(
            key, (in_features, out_features), kernel, use_bias, dtype, in_features=in_features, out_features=out_features,
            stride=stride, padding=padding, output_padding=output_padding, dilation=dilation, groups=groups, layout=layout,
        )  # fmt: skip

    def __call__(self, x: ArrayLike) -> Array:
        """(N, in_features, *spatial) -> (N, out_features, *out), in the layout of the layer."""
        options = {**self._options(), "output_padding": self.output_padding}
        return convolve_transpose(self._channels(x), self.weight, self.bias, **options)


class _Pool(Module):
    window: Sizes = field(static=True)
    stride: Sizes | None = field(static=True, default=None)
    padding: PaddingLike = field(static=True, default=0)
    dilation: Sizes = field(static=True, default=1)
    ceil_mode: bool = False
    layout: str = "NCHW"

    def _options(self) -> dict[str, Any]:
        rank = parse_layout(type(self).__name__, self.layout).rank
        names = ("stride", "padding", "dilation", "ceil_mode", "layout")
        window = per_axis(type(self).__name__, "window", self.window, rank)
        return {"window": window, **{name: getattr(self, name) for name in names}}


class MaxPool(_Pool):
    """The greatest element of each window (see nnc.nn.max_pool); the layout says how many spatial axes a number stands for.

    Args:
        window: a size for each spatial axis, or one for all.
        stride: the stride of the windows; their size by default.
        padding: a number, one for each spatial axis, a pair (before, after) for each, "SAME" or "VALID".
        dilation: distance of the elements of a window.
        ceil_mode: whether a last window may reach beyond the padding.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Example:
        >>> nnc.nn.MaxPool(2)(np.ones((1, 3, 8, 8), np.float32)).shape
        (1, 3, 4, 4)
    """

    def __call__(self, x: ArrayLike) -> Array:
        """(N, C, *spatial) -> (N, C, *out), in the layout of the layer."""
        return pooling.max_pool(x, **self._options())


class AvgPool(_Pool):
    """The mean of each window (see nnc.nn.avg_pool).

    Args:
        window: a size for each spatial axis, or one for all.
        stride: the stride of the windows; their size by default.
        padding: a number, one for each spatial axis, a pair (before, after) for each, "SAME" or "VALID".
        dilation: distance of the elements of a window.
        ceil_mode: whether a last window may reach beyond the padding.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.
        count_include_pad: whether padding counts as elements that are 0.

    Example:
        >>> nnc.nn.AvgPool((2,), layout="NWC")(np.ones((1, 8, 3), np.float32)).shape
        (1, 4, 3)
    """

    count_include_pad: bool = True

    def __call__(self, x: ArrayLike) -> Array:
        """(N, C, *spatial) -> (N, C, *out), in the layout of the layer."""
        return pooling.avg_pool(x, count_include_pad=self.count_include_pad, **self._options())


class AdaptiveAvgPool(Module):
    """The means of `output_size` bins along each spatial axis (see nnc.nn.adaptive_avg_pool).

    Args:
        output_size: number of bins; one for all spatial axes, or one for each.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Example:
        >>> nnc.nn.AdaptiveAvgPool(7)(np.ones((1, 3, 10, 14), np.float32)).shape
        (1, 3, 7, 7)
    """

    output_size: Sizes = field(static=True)
    layout: str = "NCHW"

    def __call__(self, x: ArrayLike) -> Array:
        """(N, C, *spatial) -> (N, C, *output_size), in the layout of the layer."""
        return pooling.adaptive_avg_pool(x, self.output_size, layout=self.layout)


class GlobalAvgPool(Module):
    """The mean of each channel over all places.

    Args:
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Example:
        >>> nnc.nn.GlobalAvgPool()(np.ones((1, 3, 8, 8), np.float32)).shape
        (1, 3)
    """

    layout: str = "NCHW"

    def __call__(self, x: ArrayLike) -> Array:
        """(N, C, *spatial) -> (N, C)."""
        return pooling.global_avg_pool(x, layout=self.layout)


class GlobalMaxPool(Module):
    """The greatest element of each channel.

    Args:
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Example:
        >>> nnc.nn.GlobalMaxPool()(np.ones((1, 3, 8, 8), np.float32)).shape
        (1, 3)
    """

    layout: str = "NCHW"

    def __call__(self, x: ArrayLike) -> Array:
        """(N, C, *spatial) -> (N, C)."""
        return pooling.global_max_pool(x, layout=self.layout)
