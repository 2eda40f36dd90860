"""Initial values of weights: `init(key, shape, dtype=float32)`, as in jax.nn.initializers.

variance_scaling draws with the variance scale / n, n the number of inputs of each output ("fan_in"), of outputs of each input
("fan_out") or their mean ("fan_avg"); the named ones are special cases. With the default axes a weight (inputs, outputs) is
meant; nnc.nn's own layers hold (outputs, inputs, *kernel), for which in_axis=1, out_axis=0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import nnc.numpy as nnp
from nnc import random
from nnc.array.array import Array
from nnc.base import dtypes
from nnc.commands.rules import check_axes
from nnc.errors import ArgumentError, user_error
from nnc.errors.names.lookup import public_names
from nnc.typing import ArrayLike, DTypeLike

__all__ = [
    "Initializer",
    "constant",
    "fans",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "zeros",
]

Axes = int | Sequence[int]
Mode = Literal["fan_in", "fan_out", "fan_avg"]
Distribution = Literal["normal", "truncated_normal", "uniform"]
TRUNCATED_STDDEV = 0.87962566103423978  # of a standard normal distribution cut off at -2 and 2


class Initializer(Protocol):
    """Draws an array of `shape` and `dtype`.

    Example:
        >>> initializer: Initializer = zeros
        >>> initializer(nnc.random.key(0), (2,))
        Array([0., 0.], dtype=float32)
    """

    def __call__(self, key: ArrayLike, shape: Sequence[int], dtype: DTypeLike = dtypes.float32) -> Array:
        """Draws it, with `key`."""
        ...


def zeros(key: ArrayLike, shape: Sequence[int], dtype: DTypeLike = dtypes.float32) -> Array:
    """Returns zeros; the key is not used.

    Args:
        key: not used.
        shape: the shape of the result.
        dtype: dtype of the result.

    Example:
        >>> zeros(nnc.random.key(0), (2,))
        Array([0., 0.], dtype=float32)
    """
    return nnp.zeros(shape, dtype)


def ones(key: ArrayLike, shape: Sequence[int], dtype: DTypeLike = dtypes.float32) -> Array:
    """Returns ones; the key is not used.

    Args:
        key: not used.
        shape: the shape of the result.
        dtype: dtype of the result.

    Example:
        >>> ones(nnc.random.key(0), (2,))
        Array([1., 1.], dtype=float32)
    """
    return nnp.ones(shape, dtype)


def constant(value: ArrayLike, dtype: DTypeLike = dtypes.float32) -> Initializer:
    """Makes an initializer that returns `value` everywhere.

    Args:
        value: a number, or an array that broadcasts to the shape.
        dtype: dtype of the weights, where the initializer is called without.

    Example:
        >>> constant(0.5)(nnc.random.key(0), (2,))
        Array([0.5, 0.5], dtype=float32)
    """
    default = dtype

    def init(key: ArrayLike, shape: Sequence[int], dtype: DTypeLike = default) -> Array:
        return nnp.full(shape, value, dtype)

    return init


def normal(stddev: float = 1e-2, dtype: DTypeLike = dtypes.float32) -> Initializer:
    """Makes an initializer that draws from the normal distribution of mean 0.

    Args:
        stddev: standard deviation.
        dtype: dtype of the weights, where the initializer is called without.

    Example:
        >>> draw = normal(0.02)(nnc.random.key(0), (1000, 10))
        >>> bool(0.019 < draw.std() < 0.021)
        True
    """
    default = dtype

    def init(key: ArrayLike, shape: Sequence[int], dtype: DTypeLike = default) -> Array:
        return random.normal(key, shape, dtype) * stddev

    return init


def truncated_normal(
    stddev: float = 1e-2, dtype: DTypeLike = dtypes.float32, lower: float = -2.0, upper: float = 2.0
) -> Initializer:
    """Makes an initializer that draws from a normal distribution cut off at `lower` and `upper` before it is scaled.

    Args:
        stddev: factor of the draws: the standard deviation before they are cut off.
        dtype: dtype of the weights, where the initializer is called without.
        lower: least draw, in standard deviations.
        upper: greatest draw, in standard deviations.

    Example:
        >>> draw = truncated_normal(1.0)(nnc.random.key(0), (1000,))
        >>> bool(abs(draw).max() <= 2)
        True
    """
    default = dtype

    def init(key: ArrayLike, shape: Sequence[int], dtype: DTypeLike = default) -> Array:
        return random.truncated_normal(key, lower, upper, shape, dtype) * stddev

    return init


def uniform(scale: float = 1e-2, dtype: DTypeLike = dtypes.float32) -> Initializer:
    """Makes an initializer that draws evenly from 0 to `scale`.

    Args:
        scale: upper end of the draws.
        dtype: dtype of the weights, where the initializer is called without.

    Example:
        >>> draw = uniform(0.1)(nnc.random.key(0), (1000,))
        >>> bool(draw.min() >= 0), bool(draw.max() < 0.1)
        (True, True)
    """
    default = dtype

    def init(key: ArrayLike, shape: Sequence[int], dtype: DTypeLike = default) -> Array:
        return random.uniform(key, shape, dtype) * scale

    return init


def fans(shape: Sequence[int], in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = ()) -> tuple[int, int]:
    """Returns the number of inputs of each output, and of outputs of each input; all other axes are a window.

    Args:
        shape: the shape of the weights.
        in_axis: axis or axes of the inputs.
        out_axis: axis or axes of the outputs.
        batch_axis: axes of copies that share nothing.

    Raises:
        ArgumentError: the shape has fewer than two axes.

    Example:
        >>> fans((3, 3, 16, 32))
        (144, 288)
    """
    if len(shape) < 2:
        fix = "use zeros, constant, normal or uniform for arrays of fewer than two axes."
        raise user_error(ArgumentError, "initializer", f"shape {tuple(shape)} has no input and output axes.", fix=fix)
    sizes = []
    for axes in (in_axis, out_axis, batch_axis):
        axes = check_axes("initializer", (axes,) if isinstance(axes, int) else tuple(axes), len(shape))
        sizes.append(math.prod(shape[axis] for axis in axes))
    window = math.prod(shape) / max(1, math.prod(sizes))
    return int(sizes[0] * window), int(sizes[1] * window)


def variance_scaling(
    scale: float,
    mode: Mode,
    distribution: Distribution,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: DTypeLike = dtypes.float32,
) -> Initializer:
    """Makes an initializer of mean 0 and variance scale / n, n as `mode` says.

    Args:
        scale: variance times n.
        mode: n: "fan_in" inputs, "fan_out" outputs, "fan_avg" their mean.
        distribution: "normal", "truncated_normal" or "uniform".
        in_axis: the axes of inputs, of outputs, and of copies that share nothing.
        out_axis: the axes of inputs, of outputs, and of copies that share nothing.
        batch_axis: the axes of inputs, of outputs, and of copies that share nothing.
        dtype: dtype of the weights, where the initializer is called without.

    Raises:
        ArgumentError: (by the initializer) mode or distribution is unknown.

    Example:
        >>> draw = variance_scaling(2.0, "fan_in", "normal")(nnc.random.key(0), (50, 200))
        >>> bool(0.19 < draw.std() < 0.21)
        True
    """
    default = dtype

    def init(key: ArrayLike, shape: Sequence[int], dtype: DTypeLike = default) -> Array:
        fan_in, fan_out = fans(shape, in_axis, out_axis, batch_axis)
        sizes = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        if mode not in sizes or distribution not in ("normal", "truncated_normal", "uniform"):
            problem = f"mode={mode!r} or distribution={distribution!r} is unknown."
            fix = 'modes are "fan_in", "fan_out", "fan_avg"; distributions "normal", "truncated_normal", "uniform".'
            raise user_error(ArgumentError, "variance_scaling", problem, fix=fix)
        variance = scale / max(1, sizes[mode])
        if distribution == "normal":
            return random.normal(key, shape, dtype) * math.sqrt(variance)
        if distribution == "truncated_normal":
            return random.truncated_normal(key, -2.0, 2.0, shape, dtype) * (math.sqrt(variance) / TRUNCATED_STDDEV)
        return (random.uniform(key, shape, dtype) * 2 - 1) * math.sqrt(3 * variance)

    return init


def glorot_normal(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike = dtypes.float32
) -> Initializer:
    """Variance 1 / mean of inputs and outputs, normal (Glorot & Bengio, 2010).

    Args:
        in_axis: axis or axes of the inputs.
        out_axis: axis or axes of the outputs.
        batch_axis: axes of copies that share nothing.
        dtype: dtype of the weights, where the initializer is called without.

    Example:
        >>> draw = glorot_normal()(nnc.random.key(0), (40, 160))
        >>> bool(0.095 < draw.std() < 0.105)
        True
    """
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def glorot_uniform(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike = dtypes.float32
) -> Initializer:
    """Variance 1 / mean of inputs and outputs, uniform (Glorot & Bengio, 2010).

    Args:
        in_axis: axis or axes of the inputs.
        out_axis: axis or axes of the outputs.
        batch_axis: axes of copies that share nothing.
        dtype: dtype of the weights, where the initializer is called without.

    Example:
        >>> draw = glorot_uniform()(nnc.random.key(0), (40, 160))
        >>> bool(abs(draw).max() <= (6 / 200) ** 0.5)
        True
    """
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike = dtypes.float32
) -> Initializer:
    """Variance 2 / inputs, normal, for relu (He et al., 2015).

    Args:
        in_axis: axis or axes of the inputs.
        out_axis: axis or axes of the outputs.
        batch_axis: axes of copies that share nothing.
        dtype: dtype of the weights, where the initializer is called without.

    Example:
        >>> draw = he_normal()(nnc.random.key(0), (50, 200))
        >>> bool(0.19 < draw.std() < 0.21)
        True
    """
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike = dtypes.float32
) -> Initializer:
    """Variance 2 / inputs, uniform, for relu (He et al., 2015).

    Args:
        in_axis: axis or axes of the inputs.
        out_axis: axis or axes of the outputs.
        batch_axis: axes of copies that share nothing.
        dtype: dtype of the weights, where the initializer is called without.

    Example:
        >>> draw = he_uniform()(nnc.random.key(0), (50, 200))
        >>> bool(abs(draw).max() <= (6 / 50) ** 0.5)
        True
    """
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike = dtypes.float32
) -> Initializer:
    """Variance 1 / inputs, normal, for selu (LeCun et al., 1998).

    Args:
        in_axis: axis or axes of the inputs.
        out_axis: axis or axes of the outputs.
        batch_axis: axes of copies that share nothing.
        dtype: dtype of the weights, where the initializer is called without.

    Example:
        >>> draw = lecun_normal()(nnc.random.key(0), (100, 100))
        >>> bool(0.095 < draw.std() < 0.105)
        True
    """
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def lecun_uniform(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike = dtypes.float32
) -> Initializer:
    """Variance 1 / inputs, uniform (LeCun et al., 1998).

    Args:
        in_axis: axis or axes of the inputs.
        out_axis: axis or axes of the outputs.
        batch_axis: axes of copies that share nothing.
        dtype: dtype of the weights, where the initializer is called without.

    Example:
        >>> draw = lecun_uniform()(nnc.random.key(0), (100, 100))
        >>> bool(abs(draw).max() <= (3 / 100) ** 0.5)
        True
    """
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: DTypeLike = dtypes.float32) -> Initializer:
    """Makes an initializer of orthogonal columns (or rows, if they are fewer) of length `scale` (Saxe et al., 2014).

    Args:
        scale: length of the columns.
        column_axis: the axis that counts the columns; all others together are the rows.
        dtype: dtype of the weights, where the initializer is called without.

    Raises:
        ArgumentError: (by the initializer) the shape has fewer than two axes.

    Example:
        >>> w = nnc.nn.initializers.orthogonal()(nnc.random.key(0), (3, 2), "float64")
        >>> nnp.round(w.T @ w, 6) + 0.0
        Array([[1., 0.],
               [0., 1.]], dtype=float64)
    """
    default = dtype

    def init(key: ArrayLike, shape: Sequence[int], dtype: DTypeLike = default) -> Array:
        shape = tuple(shape)
        if len(shape) < 2:
            problem = f"shape {shape} has fewer than two axes."
            raise user_error(ArgumentError, "orthogonal", problem, fix="use normal for vectors.")
        (axis,) = check_axes("orthogonal", (column_axis,), len(shape))
        columns, others = shape[axis], shape[:axis] + shape[axis + 1 :]
        rows = math.prod(others)
        wide = dtypes.accumulator(dtypes.as_dtype(dtype))  # 16-bit floats are factored in float32
        q, r = nnp.linalg.qr(random.normal(key, (max(rows, columns), min(rows, columns)), wide))
        q = q * nnp.where(nnp.diagonal(r) < 0, -1, 1)  # so that all orthogonal matrices are equally likely
        q = q if rows >= columns else q.T
        return nnp.moveaxis(nnp.reshape(q * scale, (*others, columns)), -1, axis).astype(dtype)

    return init


if not TYPE_CHECKING:  # to which a name that is not there would be one of type NoReturn
    __getattr__, __dir__ = public_names("nnc.nn.initializers")
