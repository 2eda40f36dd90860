"""The usual layers. Each applies to arrays with any number of leading batch axes, and draws its weights from `key`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import nnc.numpy as nnp
from nnc import dtypes, random
from nnc.array import Array
from nnc.commands.rules import Value
from nnc.errors import ArgumentError, ArgumentTypeError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn import activations, normalization
from nnc.nn import windows as functions
from nnc.nn.module import Module, field
from nnc.nn.windows import PaddingLike, Sizes, parse_layout, per_axis
from nnc.spelling import spelled


def _draw(key: Any, shape: Sequence[int], fan_in: int, dtype: Any) -> Value:
    """Uniform in ±1 / sqrt(fan_in): the variance 1 / (3 · fan_in) that linear layers and convolutions start from."""
    bound = 1 / math.sqrt(max(1, fan_in))
    return (random.uniform(key, tuple(shape), dtype) * 2 - 1) * bound


def _weights(
    key: Any, shape: Sequence[int], bias_shape: Sequence[int] | None, fan_in: int, dtype: Any
) -> tuple[Any, Any]:
    for_weight, for_bias = random.split(key)
    return _draw(for_weight, shape, fan_in, dtype), None if bias_shape is None else _draw(
        for_bias, bias_shape, fan_in, dtype
    )


def _check_features(where: str, x: Any, features: int, axis: int = -1) -> Value:
    x = nnp.asarray(x)
    if x.ndim < -axis or x.shape[axis] != features:
        raise user_error(
            ShapeError, where, f"axis {axis} of the input must be {features}, the input has shape {x.shape}.",
            operands={"x": spec_of(x)}, fix=f"pass an input of shape (..., {features}{', ...' if axis != -1 else ''}).",
        )  # fmt: skip
    return x


class Linear(Module):
    """x · weightᵀ + bias, over the last axis.

    Args:     in_features, out_features: sizes of the last axis before and after. key: for the weights, uniform in
              ±1 / sqrt(in_features). use_bias: whether there is a bias.
    Example:
        >>> layer = nnc.nn.Linear(3, 2, key=nnc.random.key(0))
        >>> layer
        Linear(weight=float32[2,3], bias=float32[2], in_features=3, out_features=2)
        >>> layer(np.ones((5, 3), np.float32)).shape
        (5, 2)
    """

    weight: Array
    bias: Array | None
    in_features: int
    out_features: int

    @spelled
    def __init__(
        self, in_features: int, out_features: int, *, key: Any, use_bias: bool = True, dtype: Any = dtypes.float32
    ) -> None:
        self.weight, self.bias = _weights(
            key, (out_features, in_features), (out_features,) if use_bias else None, in_features, dtype
        )
        self.in_features, self.out_features = in_features, out_features

    def __call__(self, x: Any) -> Value:
        """(..., in_features) -> (..., out_features)."""
        out = _check_features("Linear", x, self.in_features) @ self.weight.T
        return out if self.bias is None else out + self.bias


class _Convolution(Module):
    """What Conv and ConvTranspose share: parameters for each spatial axis, of which the layout gives the number."""

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
        self, key: Any, channels: tuple[int, int], kernel: Sizes, use_bias: bool, dtype: Any, **options: Any
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
        self.weight, self.bias = _weights(key, shape, bias_shape, math.prod(shape[1:]), dtype)

    def _channels(self, x: Any) -> Value:
        form = parse_layout(type(self).__name__, self.layout)
        return _check_features(type(self).__name__, x, self.in_features, form.order[0] - len(form.order))

    def _shift(self, out: Value) -> Value:
        if self.bias is None:
            return out
        form = parse_layout(type(self).__name__, self.layout)
        return out + nnp.reshape(self.bias, (-1,) + (1,) * (form.rank - form.order[0]))

    def _options(self) -> dict[str, Any]:
        names = ("stride", "padding", "dilation", "groups", "layout")
        return {name: getattr(self, name) for name in names}


def _check_groups(where: str, in_features: int, out_features: int, groups: int) -> None:
    if groups < 1 or in_features % groups or out_features % groups:
        raise user_error(
            ArgumentError, where, f"groups={groups} does not divide in_features={in_features} and out_features={out_features}.",
            fix="use a number of groups that divides both.",
        )  # fmt: skip


def _hashable(padding: PaddingLike) -> Any:
    return tuple(map(_hashable, padding)) if isinstance(padding, (tuple, list)) else padding


class Conv(_Convolution):
    """Convolution (see nnc.nn.conv) with a weight (out_features, in_features / groups, *kernel) and a bias.

    Args:     kernel: a size for each spatial axis, or one for all; the layout says how many there are ("NCHW", "NWC" …).
              key: for the weights, uniform in ±1 / sqrt(inputs of an output).
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
        key: Any,
        stride: Sizes = 1,
        padding: PaddingLike = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        use_bias: bool = True,
        layout: str = "NCHW",
        dtype: Any = dtypes.float32,
    ) -> None:
        self._set_up(
            key, (out_features, in_features), kernel, use_bias, dtype, in_features=in_features, out_features=out_features,
            stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout,
        )  # fmt: skip

    def __call__(self, x: Any) -> Value:
        """(N, in_features, *spatial) -> (N, out_features, *out), in the layout of the layer."""
        return self._shift(functions.conv(self._channels(x), self.weight, **self._options()))


class ConvTranspose(_Convolution):
    """Transposed convolution (see nnc.nn.conv_transpose) with a weight (in_features, out_features / groups, *kernel).

    Args:     output_padding: how many elements more the output has at the end of each axis. The others as for Conv.
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
        key: Any,
        stride: Sizes = 1,
        padding: PaddingLike = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        use_bias: bool = True,
        layout: str = "NCHW",
        dtype: Any = dtypes.float32,
    ) -> None:
        self._set_up(
            key, (in_features, out_features), kernel, use_bias, dtype, in_features=in_features, out_features=out_features,
            stride=stride, padding=padding, output_padding=output_padding, dilation=dilation, groups=groups, layout=layout,
        )  # fmt: skip

    def __call__(self, x: Any) -> Value:
        """(N, in_features, *spatial) -> (N, out_features, *out), in the layout of the layer."""
        x = self._channels(x)
        out = functions.conv_transpose(x, self.weight, output_padding=self.output_padding, **self._options())
        return self._shift(out)


class Embedding(Module):
    """Rows of a table, chosen by integers.

    Example:
        >>> nnc.nn.Embedding(10, 4, key=nnc.random.key(0))(np.array([[1, 2, 3]])).shape
        (1, 3, 4)
    """

    weight: Array

    @spelled
    def __init__(self, num_embeddings: int, features: int, *, key: Any, dtype: Any = dtypes.float32) -> None:
        self.weight = random.normal(key, (num_embeddings, features), dtype)

    def __call__(self, x: Any) -> Value:
        """Integers of any shape -> (*shape, features)."""
        return nnp.take(self.weight, x, axis=0)


class LayerNorm(Module):
    """Normalisation over the last axes, of the sizes `features` (see nnc.nn.layer_norm).

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
        dtype: Any = dtypes.float32,
    ) -> None:
        self.features = (features,) if isinstance(features, int) else tuple(features)
        self.scale = nnp.ones(self.features, dtype) if use_scale else None
        self.bias = nnp.zeros(self.features, dtype) if use_bias else None
        self.eps = eps

    def __call__(self, x: Any) -> Value:
        """(..., *features) -> the same shape."""
        axes = tuple(range(-len(self.features), 0))
        for axis, size in zip(axes, self.features, strict=True):
            x = _check_features("LayerNorm", x, size, axis)
        return normalization.layer_norm(x, self.scale, self.bias, axis=axes, eps=self.eps)


class BatchNorm(Module):
    """Normalisation by the statistics of the batch (see nnc.nn.batch_norm); `inference` uses the running ones.

    A call returns the output and the layer with new running statistics, which the caller carries on.

    Args:     features: number of channels, which stand at `axis`. momentum: weight of the old statistics.
    Example:
        >>> layer = nnc.nn.BatchNorm(3)
        >>> out, layer = layer(np.ones((8, 3, 4, 4), np.float32))
        >>> nnc.nn.inference_mode(layer)(out)[0].shape
        (8, 3, 4, 4)
    """

    scale: Array
    bias: Array
    mean: Array
    variance: Array
    momentum: float
    axis: int
    eps: float
    inference: bool

    @spelled
    def __init__(
        self,
        features: int,
        *,
        momentum: float = 0.9,
        axis: int = 1,
        eps: float = 1e-5,
        inference: bool = False,
        dtype: Any = dtypes.float32,
    ) -> None:
        self.scale, self.bias = nnp.ones(features, dtype), nnp.zeros(features, dtype)
        self.mean, self.variance = nnp.zeros(features, dtype), nnp.ones(features, dtype)
        self.momentum, self.axis, self.eps, self.inference = momentum, axis, eps, inference

    def __call__(self, x: Any) -> tuple[Value, BatchNorm]:
        """Returns the output and the layer with new running statistics."""
        out, (mean, variance) = normalization.batch_norm(
            x, self.mean, self.variance, self.scale, self.bias,
            deterministic=self.inference, momentum=self.momentum, axis=self.axis, eps=self.eps,
        )  # fmt: skip
        return out, self.replace(mean=mean, variance=variance)


@spelled
def dropout(key: Any, x: Any, rate: float, *, deterministic: bool = False) -> Value:
    """Returns x with each element set to 0 with probability `rate`, the others divided by 1 - rate (Srivastava et al., 2014).

    Args:     key: for the draw; None will do where `deterministic`. rate: 0 up to but not including 1.
              deterministic: return x as it is.
    Raises:   ArgumentError: rate is no such probability, or the key is missing.
    """
    if not 0 <= rate < 1:
        raise user_error(
            ArgumentError, "dropout", f"rate={rate} is not in [0, 1).", fix="pass the share to drop, such as 0.5."
        )
    x = nnp.asarray(x)
    if deterministic or rate == 0:
        return x
    if key is None:
        raise user_error(
            ArgumentError, "dropout", "there is no key to draw with.", operands={"x": spec_of(x)},
            fix="pass key=nnc.random.key(0), or switch dropout off with nnc.nn.inference_mode(model) or deterministic=True.",
        )  # fmt: skip
    keep = random.uniform(key, x.shape) >= rate
    return nnp.where(keep, x / (1 - rate), 0)


class Dropout(Module):
    """Dropout (see nnc.nn.dropout), with a key for each call; off in `inference`.

    Example:
        >>> layer = nnc.nn.Dropout(0.5)
        >>> layer(np.ones(4, np.float32), key=nnc.random.key(0)).shape
        (4,)
    """

    rate: float = 0.5
    inference: bool = False

    def __call__(self, x: Any, *, key: Any = None) -> Value:
        """Drops elements by a draw with `key`, which only inference does without."""
        return dropout(key, x, self.rate, deterministic=self.inference)


class Lambda(Module):
    """A function as a layer.

    Example:
        >>> nnc.nn.Lambda(nnc.nn.relu)(np.array([-1.0, 1.0], np.float32))
        Array([0., 1.], dtype=float32)
    """

    function: Callable[..., Any] = field(static=True)

    def __call__(self, x: Any) -> Value:
        """Applies the function."""
        return self.function(x)


class Identity(Module):
    """Returns its input."""

    def __call__(self, x: Any) -> Any:
        """Returns x."""
        return x


class Flatten(Module):
    """Folds the last `axes` axes into one; all but the first by default."""

    axes: int | None = None

    def __call__(self, x: Any) -> Value:
        """Returns x with its last axes folded into one."""
        x = nnp.asarray(x)
        lead = 1 if self.axes is None else x.ndim - self.axes
        return nnp.reshape(x, (*x.shape[:lead], math.prod(x.shape[lead:])))


class _Pool(Module):
    window: Sizes = field(static=True)
    stride: Sizes | None = field(static=True, default=None)
    padding: PaddingLike = field(static=True, default=0)
    layout: str = "NCHW"

    def _options(self) -> dict[str, Any]:
        rank = parse_layout(type(self).__name__, self.layout).rank
        window = per_axis(type(self).__name__, "window", self.window, rank)
        return {"window": window, "stride": self.stride, "padding": self.padding, "layout": self.layout}


class MaxPool(_Pool):
    """The greatest element of each window (see nnc.nn.max_pool); the layout says how many spatial axes a number stands for.

    Example:
        >>> nnc.nn.MaxPool(2)(np.ones((1, 3, 8, 8), np.float32)).shape
        (1, 3, 4, 4)
    """

    def __call__(self, x: Any) -> Value:
        """(N, C, *spatial) -> (N, C, *out), in the layout of the layer."""
        return functions.max_pool(x, **self._options())


class AvgPool(_Pool):
    """The mean of each window (see nnc.nn.avg_pool).

    Example:
        >>> nnc.nn.AvgPool((2,), layout="NWC")(np.ones((1, 8, 3), np.float32)).shape
        (1, 4, 3)
    """

    count_include_pad: bool = True

    def __call__(self, x: Any) -> Value:
        """(N, C, *spatial) -> (N, C, *out), in the layout of the layer."""
        return functions.avg_pool(x, count_include_pad=self.count_include_pad, **self._options())


class Sequential(Module):
    """One layer after the other; plain functions become Lambda layers.

    A `key` given to the call is split among the layers that take one (Dropout, and what holds it).

    Example:
        >>> first, second = nnc.random.split(nnc.random.key(0))
        >>> model = nnc.nn.Sequential(nnc.nn.Linear(4, 8, key=first), nnc.nn.relu, nnc.nn.Linear(8, 2, key=second))
        >>> model(np.ones((3, 4), np.float32)).shape
        (3, 2)
    """

    layers: tuple[Module, ...]

    def __init__(self, *layers: Any) -> None:
        if len(layers) == 1 and isinstance(layers[0], (list, tuple)):
            layers = tuple(layers[0])
        for i, layer in enumerate(layers):
            if not callable(layer):
                raise user_error(
                    ArgumentTypeError, "Sequential", f"layer {i} is {layer!r} ({type(layer).__name__}), which cannot be called.",
                    fix="pass modules and functions of one argument.",
                )  # fmt: skip
        self.layers = tuple(layer if isinstance(layer, Module) else Lambda(layer) for layer in layers)

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        """Applies all layers, in their order."""
        takers = [layer for layer in self.layers if _takes_key(layer)]
        keys = iter(random.split(key, len(takers)) if key is not None and takers else [None] * len(takers))
        for layer in self.layers:
            x = layer(x, key=next(keys)) if _takes_key(layer) else layer(x)  # type: ignore[operator]
        return x

    def __getitem__(self, index: int | slice) -> Module:
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)


def _takes_key(layer: Module) -> bool:
    return "key" in inspect.signature(layer).parameters  # type: ignore[arg-type]


class MLP(Module):
    """Linear layers with an activation between them.

    Args:     width: size of the hidden layers. depth: how many hidden layers there are.
    Example:
        >>> nnc.nn.MLP(2, 1, width=8, depth=2, key=nnc.random.key(0))(np.ones((5, 2), np.float32)).shape
        (5, 1)
    """

    layers: tuple[Linear, ...]
    activation: Callable[..., Any] = field(static=True)
    final_activation: Callable[..., Any] | None = field(static=True)

    @spelled
    def __init__(
        self,
        in_features: int,
        out_features: int,
        width: int,
        depth: int,
        *,
        key: Any,
        activation: Callable[..., Any] = activations.relu,
        final_activation: Callable[..., Any] | None = None,
        use_bias: bool = True,
        dtype: Any = dtypes.float32,
    ) -> None:
        sizes = (in_features, *(width,) * depth, out_features)
        keys = random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(m, n, key=k, use_bias=use_bias, dtype=dtype) for m, n, k in zip(sizes, sizes[1:], keys, strict=False)
        )
        self.activation, self.final_activation = activation, final_activation

    def __call__(self, x: Any) -> Value:
        """(..., in_features) -> (..., out_features)."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        x = self.layers[-1](x)
        return x if self.final_activation is None else self.final_activation(x)
