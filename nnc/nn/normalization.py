"""Normalisation. 16-bit floats are computed in float32; statistics are ordinary values that the caller carries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import dtype_of, promote
from nnc.base import dtypes
from nnc.calls.specialise import specialised, specialised_in_traces
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.commands.pool import sum_pool
from nnc.commands.rules import check_axes, check_axis
from nnc.commands.shape import reshape
from nnc.errors import ShapeError, user_error
from nnc.graph import spec_of
from nnc.numpy.moments import Moments, moments_in_range
from nnc.numpy.operands import keeps_weakness, to_values
from nnc.numpy.scaling import scaled_sum_of_squares
from nnc.trace.core.collectives import axis_size, pmean
from nnc.typing import ArrayLike

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]

Axes = int | Sequence[int]


def _wide(x: Any, where: str) -> tuple[Array, dtypes.DType]:
    """x in the dtype that its sums need, and its own dtype."""
    value = promote(x, where=where, to=dtypes.to_float)[0]
    dtype = dtype_of(value)
    return nnp.astype(value, dtypes.accumulator(dtype)), dtype


def _moments(x: Array, axes: tuple[int, ...], eps: Any, axis_name: str | Sequence[str] | None = None) -> Moments:
    """Returns the moments over axes, which stay with size 1; of the values at all places along a named axis, where one is given."""
    count = math.prod(x.shape[axis] for axis in axes)
    places = 1 if axis_name is None else axis_size(axis_name)

    def means(*terms: Array) -> tuple[Array, ...]:
        found = tuple(
            nnp.sum(values, axis=axes, keepdims=True) * (1 / count if count else math.nan) for values in terms
        )
        return found if axis_name is None else pmean(found, axis_name)

    return moments_in_range(x, means, count * places, eps if isinstance(eps, (int, float)) else 0)


def _normal(moments: Moments, eps: Any, scale: Array | None = None, bias: Array | None = None) -> Array:
    """(x - mean) / sqrt(variance + eps) · scale + bias, with one factor for each row and no residual but `apart`."""
    factor = ew.rsqrt(moments.variance + eps * moments.factor * moments.factor)
    factor = factor if scale is None else factor * scale
    shift = moments.rest * factor
    return moments.apart * factor - (shift if bias is None else shift - bias)


def _along(where: str, name: str, values: Any, x: Array, axes: tuple[int, ...]) -> Array:
    """`values`, one for each element of the axes, with axes of size 1 for the others of x."""
    _, values = to_values(where, x=x, **{name: values})
    expected = tuple(x.shape[axis] for axis in axes)
    if values.shape != expected:
        problem = f"{name} has shape {values.shape}, the axes {axes} of x have shape {expected}."
        fix = f"pass {name} of shape {expected}."
        raise user_error(ShapeError, where, problem, operands={"x": spec_of(x), name: spec_of(values)}, fix=fix)
    return reshape(values, shape=tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))


def _affine(where: str, x: Array, scale: Any, bias: Any, axes: tuple[int, ...]) -> Array:
    """x · scale + bias, with one value for each element of the axes."""
    x = x if scale is None else x * _along(where, "scale", scale, x, axes)
    return x if bias is None else x + _along(where, "bias", bias, x, axes)


def _of_channels(where: str, x: Array, scale: Any, bias: Any, channel: int) -> tuple[Array | None, Array | None]:
    """Returns the scale and the bias with one value for each channel of x, None as it is."""
    given = {"scale": scale, "bias": bias}
    one, other = (None if v is None else _along(where, name, v, x, (channel,)) for name, v in given.items())
    return one, other


@specialised(1)
@keeps_weakness
def layer_norm(
    x: ArrayLike, scale: ArrayLike | None = None, bias: ArrayLike | None = None, *, axis: Axes = -1, eps: float = 1e-5
) -> Array:
    """Returns x with mean 0 and variance 1 over `axis`, then scaled and shifted (Ba et al., 2016).

    out = (x - mean) / sqrt(variance + eps) · scale + bias

    Args:
        x: any shape.
        scale: one factor for each element of `axis`, or None.
        bias: one summand for each element of `axis`, or None.
        axis: the axes to normalise.
        eps: added to the variance.

    Raises:
        ShapeError: scale or bias has another shape than the axes.

    Example:
        >>> layer_norm(np.array([1.0, 3.0], np.float32), eps=0)
        Array([-1.,  1.], dtype=float32)
    """
    wide, dtype = _wide(x, "layer_norm")
    axes = tuple(sorted(check_axes("layer_norm", axis if isinstance(axis, (tuple, list)) else (axis,), wide.ndim)))
    normal = _normal(_moments(wide, axes, eps), eps)
    return _affine("layer_norm", normal, scale, bias, axes).astype(dtype)


@specialised(1)
@keeps_weakness
def rms_norm(x: ArrayLike, scale: ArrayLike | None = None, *, axis: int = -1, eps: float = 1e-6) -> Array:
    """Returns x divided by the root of the mean of its squares over `axis`, then scaled (Zhang & Sennrich, 2019).

    Args:
        x: any shape.
        scale: one factor for each element of `axis`, or None.
        axis: axis to normalise.
        eps: added to the mean of squares.

    Example:
        >>> nnc.nn.rms_norm(nnp.asarray([3.0, 4.0]))
        Array([0.8485281, 1.1313708], dtype=float32)
    """
    wide, dtype = _wide(x, "rms_norm")
    axis = check_axis("rms_norm", axis, wide.ndim)
    some, kept = ew.stop_gradient(wide), tuple(1 if i == axis else n for i, n in enumerate(wide.shape))
    least = eps * wide.shape[axis] if isinstance(eps, (int, float)) else 0
    total, factor = (reshape(values, shape=kept) for values in scaled_sum_of_squares(some, (axis,), least))
    wide = wide * factor
    total = ew.with_slope(total, nnp.sum(nnp.square(wide), axis=axis, keepdims=True))
    size = total * (1 / max(1, wide.shape[axis]))
    normal = wide * ew.rsqrt(size + eps * factor * factor)
    return _affine("rms_norm", normal, scale, None, (axis,)).astype(dtype)


@specialised(1)
@keeps_weakness
def group_norm(
    x: ArrayLike,
    groups: int,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    axis: int = 1,
    eps: float = 1e-5,
) -> Array:
    """Returns x normalised over each group of channels and all axes after N, then scaled and shifted (Wu & He, 2018).

    Args:
        x: (N, C, *spatial), the channels at `axis`.
        groups: divides the number of channels.
        scale: (C,), or None.
        bias: (C,), or None.
        axis: axis of the channels.
        eps: added to the variance.

    Raises:
        ShapeError: groups does not divide the channels.

    Example:
        >>> x = nnp.arange(8.0).reshape(1, 4, 2)
        >>> group_norm(x, 2, nnp.ones(4), nnp.zeros(4)).shape
        (1, 4, 2)
    """
    wide, dtype = _wide(x, "group_norm")
    axis = check_axis("group_norm", axis, wide.ndim)
    shape = wide.shape
    if groups < 1 or shape[axis] % groups:
        problem = f"groups={groups} does not divide the {shape[axis]} channels."
        fix = "use a number of groups that divides the channels."
        raise user_error(ShapeError, "group_norm", problem, operands={"x": spec_of(wide)}, fix=fix)
    split = reshape(wide, shape=(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]))
    others = tuple(i for i in range(1, split.ndim) if i != axis)
    normal = reshape(_normal(_moments(split, others, eps), eps), shape=shape)
    return _affine("group_norm", normal, scale, bias, (axis,)).astype(dtype)


@specialised(1)
@keeps_weakness
def instance_norm(
    x: ArrayLike, scale: ArrayLike | None = None, bias: ArrayLike | None = None, *, axis: int = 1, eps: float = 1e-5
) -> Array:
    """Returns x normalised over the places of each channel by itself, then scaled and shifted (Ulyanov et al., 2016).

    Args:
        x: (N, C, *spatial), the channels at `axis`.
        scale: (C,), or None.
        bias: (C,), or None.
        axis: axis of the channels.
        eps: added to the variance.

    Raises:
        ShapeError: scale or bias has not one value for each channel.

    Example:
        >>> instance_norm(nnp.asarray([[[1.0, 3.0], [0.0, 8.0]]]), eps=0.0)
        Array([[[-1.,  1.],
                [-1.,  1.]]], dtype=float32)
    """
    wide, dtype = _wide(x, "instance_norm")
    channel = check_axis("instance_norm", axis, wide.ndim)
    others = tuple(i for i in range(1, wide.ndim) if i != channel)
    affine = _of_channels("instance_norm", wide, scale, bias, channel)
    return _normal(_moments(wide, others, eps), eps, *affine).astype(dtype)


@specialised(1)
@keeps_weakness
def local_response_norm(
    x: ArrayLike, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, axis: int = 1
) -> Array:
    """Returns x / (k + alpha / size · sum of the squares of `size` neighbouring channels)^beta (Krizhevsky et al., 2012).

    Args:
        x: (N, C, *spatial), the channels at `axis`; beyond the first and last channel there are zeros.
        size: how many neighbouring channels.
        alpha: factor of the mean of squares.
        beta: exponent of the divisor.
        k: least divisor, before it is raised.
        axis: axis of the channels.

    Raises:
        ArgumentError: size is below 1.

    Example:
        >>> local_response_norm(nnp.ones((1, 3, 2)), size=3, alpha=3.0, beta=1.0, k=1.0)[0, :, 0]
        Array([0.33333334, 0.25      , 0.33333334], dtype=float32)
    """
    wide, dtype = _wide(x, "local_response_norm")
    channel = check_axis("local_response_norm", axis, wide.ndim)
    squares = nnp.moveaxis(nnp.square(wide), channel, -1)
    padding = ((size // 2, (size - 1) // 2),)
    sums = sum_pool(squares, window=(size,), stride=(1,), padding=padding, dilation=(1,))
    return (wide / (k + alpha / size * nnp.moveaxis(sums, -1, channel)) ** beta).astype(dtype)


@spelled
@specialised_in_traces
def batch_norm(
    x: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    scale: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    *,
    deterministic: bool = False,
    momentum: float = 0.9,
    axis: int = 1,
    eps: float = 1e-5,
    axis_name: str | Sequence[str] | None = None,
) -> tuple[Array, tuple[Array, Array]]:
    """Returns x normalised over all axes but the channels, and the new running statistics (Ioffe & Szegedy, 2015).

    new statistic = momentum · old + (1 - momentum) · the batch's (of the variance, the unbiased one)

    Args:
        x: (N, C, *spatial), the channels at `axis`.
        mean: (C,), running mean.
        variance: (C,), running variance.
        scale: (C,), or None.
        bias: (C,), or None.
        deterministic: normalise by the running statistics, and return them as they are.
        momentum: weight of the old statistics.
        axis: axis of the channels.
        eps: added to the variance.
        axis_name: the named axis, or a tuple of axes, over whose places the batch is spread: the statistics are those of all
            places.

    Returns:
        (out, (mean, variance)); no gradient flows into the statistics.

    Raises:
        ShapeError: a parameter has not one value for each channel.
        UnboundAxisError: there is no axis `axis_name`.

    Example:
        >>> x = nnp.asarray([[1.0], [3.0]])
        >>> y, (mean, variance) = batch_norm(x, nnp.zeros(1), nnp.ones(1), momentum=0.5)
        >>> mean, variance
        (Array([1.], dtype=float32), Array([1.5], dtype=float32))
    """
    wide, dtype = _wide(x, "batch_norm")
    channel = check_axis("batch_norm", axis, wide.ndim)
    _, mean, variance = to_values("batch_norm", x=wide, mean=mean, variance=variance)
    old_mean = _along("batch_norm", "mean", mean, wide, (channel,))
    old_variance = _along("batch_norm", "variance", variance, wide, (channel,))
    affine = _of_channels("batch_norm", wide, scale, bias, channel)
    if deterministic:
        factor = ew.rsqrt(old_variance + eps)
        out = (wide - old_mean) * (factor if affine[0] is None else factor * affine[0])
        return (out if affine[1] is None else out + affine[1]).astype(dtype), (mean, variance)
    others = tuple(i for i in range(wide.ndim) if i != channel)
    moments = _moments(wide, others, eps, axis_name)
    count = wide.size // max(1, wide.shape[channel]) * (1 if axis_name is None else axis_size(axis_name))
    unbiased = moments.variance * (count / max(1, count - 1)) / moments.factor / moments.factor
    batch_mean = moments.near + moments.rest / moments.factor
    running = tuple(
        reshape(ew.stop_gradient(momentum * old + (1 - momentum) * new), shape=(wide.shape[channel],))
        for old, new in ((old_mean, batch_mean), (old_variance, unbiased))
    )
    out = _normal(moments, eps, *affine)
    return out.astype(dtype), (running[0], running[1])
