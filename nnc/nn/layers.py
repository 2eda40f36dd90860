"""The usual layers. Each applies to arrays with any number of leading batch axes, and draws its weights from `key`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentTypeError, NncError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn import activations
from nnc.nn.module import Module, field
from nnc.nn.running import Run, is_stateful, takes_key
from nnc.nn.stochastic import dropout
from nnc.numpy.operands import to_value
from nnc.trace.core.flat import call_function
from nnc.trace.core.subgraphs import checkpoint
from nnc.typing import A, ArrayLike, DTypeLike

__all__ = [
    "MLP",
    "Checkpoint",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "Lambda",
    "Linear",
    "PReLU",
    "Sequential",
]


def draw(key: ArrayLike, shape: Sequence[int], fan_in: int, dtype: DTypeLike) -> Array:
    """Uniform in ±1 / sqrt(fan_in): the variance 1 / (3 · fan_in) that most layers start from."""
    bound = 1 / math.sqrt(max(1, fan_in))
    return (random.uniform(key, tuple(shape), dtype) * 2 - 1) * bound


def check_sizes(where: str, shape: Sequence[Any]) -> None:
    """Raises ArgumentTypeError where the sizes that a user gave make no shape of weights."""
    if any(not hasattr(n, "__index__") or n < 0 for n in shape):
        problem = f"weights cannot have the shape ({', '.join(map(repr, shape))})."
        raise user_error(ArgumentTypeError, where, problem, fix="pass sizes that are integers and not negative.")


def draw_weights(
    key: ArrayLike, shape: Sequence[int], bias_shape: Sequence[int] | None, fan_in: int, dtype: DTypeLike
) -> tuple[Any, Any]:
    """Returns a weight and a bias (None without a shape for it)."""
    check_sizes("nnc.nn", shape)
    for_weight, for_bias = random.split(key)
    bias = None if bias_shape is None else draw(for_bias, bias_shape, fan_in, dtype)
    return draw(for_weight, shape, fan_in, dtype), bias


def check_features(where: str, x: ArrayLike, features: int, axis: int = -1) -> Array:
    """x as an array, whose `axis` must have the size `features`."""
    x = to_value(x, where)
    if x.ndim < -axis or x.shape[axis] != features:
        problem = f"axis {axis} of the input must be {features}, the input has shape {x.shape}."
        fix = f"pass an input of shape (..., {features}{', ...' if axis != -1 else ''})."
        raise user_error(ShapeError, where, problem, operands={"x": spec_of(x)}, fix=fix)
    return x


class Linear(Module):
    """x · weightᵀ + bias, over the last axis.

    Args:
        in_features: size of the last axis before.
        out_features: size of the last axis after.
        key: the key for the weights, uniform in ±1 / sqrt(in_features).
        use_bias: whether there is a bias.
        dtype: dtype of the weights.

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
        self,
        in_features: int,
        out_features: int,
        *,
        key: ArrayLike,
        use_bias: bool = True,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        self.weight, self.bias = draw_weights(
            key, (out_features, in_features), (out_features,) if use_bias else None, in_features, dtype
        )
        self.in_features, self.out_features = in_features, out_features

    def __call__(self, x: ArrayLike) -> Array:
        """(..., in_features) -> (..., out_features)."""
        return affine(check_features("Linear", x, self.in_features), self.weight, self.bias)


@specialised(2)
def affine(x: Array, weight: Array, bias: Array | None) -> Array:
    """Computes a Linear's result."""
    out = x @ weight.T
    return out if bias is None else out + bias


class Embedding(Module):
    """Rows of a table, chosen by integers. `attend` uses the same table the other way: scores of each row.

    Args:
        num_embeddings: number of rows.
        features: size of a row.
        key: the key for the table, drawn from the normal distribution.
        dtype: dtype of the table.

    Example:
        >>> nnc.nn.Embedding(10, 4, key=nnc.random.key(0))(np.array([[1, 2, 3]])).shape
        (1, 3, 4)
    """

    weight: Array

    @spelled
    def __init__(
        self, num_embeddings: int, features: int, *, key: ArrayLike, dtype: DTypeLike = dtypes.float32
    ) -> None:
        check_sizes("Embedding", (num_embeddings, features))
        self.weight = random.normal(key, (num_embeddings, features), dtype)

    def __call__(self, x: ArrayLike) -> Array:
        """Integers of any shape -> (*shape, features)."""
        return nnp.take(self.weight, x, axis=0)

    def attend(self, x: ArrayLike) -> Array:
        """x · weightᵀ: (..., features) -> (..., num_embeddings), as for logits that share the table.

        Args:
            x: (..., features).
        """
        return check_features("Embedding.attend", x, self.weight.shape[1]) @ self.weight.T


class Dropout(Module):
    """Dropout (see nnc.nn.dropout), with a key for each call; off in `inference`.

    Args:
        rate: the share to drop.
        inference: whether nothing is dropped.
        shared_axes: axes that share a draw: (2, 3) drops whole channels of images (N, C, H, W).

    Example:
        >>> layer = nnc.nn.Dropout(0.5)
        >>> layer(np.ones(4, np.float32), key=nnc.random.key(0)).shape
        (4,)
    """

    rate: float = 0.5
    inference: bool = False
    shared_axes: tuple[int, ...] = field(static=True, default=())

    def __call__(self, x: ArrayLike, *, key: ArrayLike | None = None) -> Array:
        """Drops elements by a draw with `key`, which only inference does without."""
        return dropout(key, x, self.rate, deterministic=self.inference, shared_axes=self.shared_axes)


class PReLU(Module):
    """x where it is positive, else weight · x, with slopes that are learned (see nnc.nn.prelu).

    Args:
        features: number of slopes: 1 for all elements, or one for each channel.
        negative_slope: the initial value of all slopes.
        axis: axis of the channels.
        dtype: dtype of the slopes.

    Example:
        >>> nnc.nn.PReLU()(np.array([-1.0, 2.0], np.float32))
        Array([-0.25,  2.  ], dtype=float32)
    """

    weight: Array
    axis: int

    @spelled
    def __init__(
        self, features: int = 1, *, negative_slope: float = 0.25, axis: int = 1, dtype: DTypeLike = dtypes.float32
    ) -> None:
        check_sizes("PReLU", (features,))
        self.weight, self.axis = nnp.full((features,), negative_slope, dtype), axis

    def __call__(self, x: ArrayLike) -> Array:
        """Any shape -> the same shape."""
        return activations.prelu(x, self.weight, axis=self.axis)


class Lambda(Module):
    """A function as a layer.

    Args:
        function: takes and returns an array.

    Example:
        >>> nnc.nn.Lambda(nnc.nn.relu)(np.array([-1.0, 1.0], np.float32))
        Array([0., 1.], dtype=float32)
    """

    function: Callable[[Array], Array] = field(static=True)

    def __call__(self, x: ArrayLike) -> Array:
        """Applies the function."""
        return call_function(self.function, (x,), where="nnc.nn.Lambda")


class Identity(Module):
    """Returns its input.

    Example:
        >>> Identity()(nnp.ones(2))
        Array([1., 1.], dtype=float32)
    """

    def __call__(self, x: A) -> A:
        """Returns x."""
        return x


class Flatten(Module):
    """Folds the last `axes` axes into one; all but the first by default.

    Args:
        axes: how many of the last axes to fold; None is all but the first.

    Example:
        >>> Flatten()(nnp.ones((2, 3, 4))).shape
        (2, 12)
    """

    axes: int | None = None

    def __call__(self, x: ArrayLike) -> Array:
        """Returns x with its last axes folded into one."""
        x = to_value(x, "Flatten")
        lead = 1 if self.axes is None else x.ndim - self.axes
        return nnp.reshape(x, (*x.shape[:lead], math.prod(x.shape[lead:])))


class Sequential(Module):
    """One layer after the other; plain functions become Lambda layers.

    A `key` given to the call reaches the layers that take one (Dropout, and layers that hold it), each with a key of its own. With
    a stateful layer in it (BatchNorm, and layers that hold it) the call returns (output, new self), else the output.

    Args:
        *layers: modules and functions, each of which takes the result of the one before.

    Example:
        >>> first, second = nnc.random.split(nnc.random.key(0))
        >>> model = nnc.nn.Sequential(nnc.nn.Linear(4, 8, key=first), nnc.nn.relu, nnc.nn.Linear(8, 2, key=second))
        >>> model(np.ones((3, 4), np.float32)).shape
        (3, 2)
    """

    layers: tuple[Module, ...]

    def __init__(self, *layers: object) -> None:
        given: Sequence[Any] = layers
        if len(layers) == 1 and isinstance(layers[0], (list, tuple)):
            given = layers[0]
        for i, layer in enumerate(given):
            if not callable(layer):
                problem = f"layer {i} is {layer!r} ({type(layer).__name__}), which cannot be called."
                fix = "pass modules and functions of one argument."
                raise user_error(ArgumentTypeError, "Sequential", problem, fix=fix)
        self.layers = tuple(layer if isinstance(layer, Module) else Lambda(layer) for layer in given)

    def __call__(self, x: ArrayLike, *, key: ArrayLike | None = None) -> Any:
        """Applies all layers, in their order."""
        run = Run(self, key=key)
        for i, layer in enumerate(run.layers):
            try:
                x = layer(x)
            except NncError as error:
                error.add_note(f"It arose in layers[{i}] of a Sequential, a {type(self.layers[i]).__name__}.")
                raise
        return run.result(x)

    def __getitem__(self, index: int | slice) -> Module:
        return Sequential(*self.layers[index]) if isinstance(index, slice) else self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)


class Checkpoint(Module):
    """A layer whose intermediate values are recomputed in the reverse pass, not kept (see nnc.checkpoint).

    Args:
        layer: a module.

    Example:
        >>> layer = nnc.nn.Checkpoint(nnc.nn.MLP(2, 1, width=8, depth=2, key=nnc.random.key(0)))
        >>> layer(np.ones((5, 2), np.float32)).shape
        (5, 1)
    """

    layer: Any

    def __call__(self, *args: Any, key: ArrayLike | None = None, **options: Any) -> Any:
        """Calls the layer; arrays among the options are kept."""
        if takes_key(self.layer):
            options["key"] = key
        out = checkpoint(lambda layer, args: layer(*args, **options))(self.layer, args)
        return (out[0], self.replace(layer=out[1])) if is_stateful(self.layer) else out


class MLP(Module):
    """Linear layers with an activation between them.

    Args:
        in_features: size of the last axis before.
        out_features: size of the last axis after.
        width: size of the hidden layers.
        depth: how many hidden layers there are.
        key: the key for the weights.
        activation: after each hidden layer.
        final_activation: after the last layer; None is none.
        use_bias: whether the layers have biases.
        dtype: dtype of the weights.

    Example:
        >>> nnc.nn.MLP(2, 1, width=8, depth=2, key=nnc.random.key(0))(np.ones((5, 2), np.float32)).shape
        (5, 1)
    """

    layers: tuple[Linear, ...]
    activation: Callable[[Array], Array] = field(static=True)
    final_activation: Callable[[Array], Array] | None = field(static=True)

    @spelled
    def __init__(
        self,
        in_features: int,
        out_features: int,
        width: int,
        depth: int,
        *,
        key: ArrayLike,
        activation: Callable[[Array], Array] = activations.relu,
        final_activation: Callable[[Array], Array] | None = None,
        use_bias: bool = True,
        dtype: DTypeLike = dtypes.float32,
    ) -> None:
        sizes = (in_features, *(width,) * depth, out_features)
        keys = random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(m, n, key=k, use_bias=use_bias, dtype=dtype) for m, n, k in zip(sizes, sizes[1:], keys, strict=False)
        )
        self.activation, self.final_activation = activation, final_activation

    def __call__(self, x: ArrayLike) -> Array:
        """(..., in_features) -> (..., out_features)."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        x = self.layers[-1](x)
        return x if self.final_activation is None else self.final_activation(x)
