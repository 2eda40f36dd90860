"""Sliding windows over the last axes of an array: the geometry that convolution and pooling share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from nnc.base import dtypes
from nnc.base.target import Convolutions
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph.spec import TensorSpec

Shape = tuple[int, ...]
Padding = tuple[tuple[int, int], ...]


def window_shape(
    where: str,
    spatial: Shape,
    window: Shape,
    stride: Shape,
    padding: Padding,
    dilation: Shape,
    operands: Mapping[str, Any] | None = None,
) -> Shape:
    """Returns the number of windows that fit along each axis: floor((n + low + high - dilation · (window - 1) - 1) / stride) +
    1.

    Raises:
        ArgumentError: a parameter has another number of axes, or an impossible value.
        ShapeError: a window is bigger than the padded input.

    Example:
        >>> window_shape("conv", (8, 8), (3, 3), (2, 1), ((1, 1), (0, 0)), (1, 2))
        (4, 4)
    """
    for name, value in (("window", window), ("stride", stride), ("padding", padding), ("dilation", dilation)):
        if len(value) != len(spatial):
            problem = f"{name} {value} has {len(value)} entries, the input has {len(spatial)} spatial axes."
            fix = f"give {name} one entry for each spatial axis."
            raise user_error(ArgumentError, where, problem, operands=operands, fix=fix)
    for name, value in (("window", window), ("stride", stride), ("dilation", dilation)):
        if min(value, default=1) < 1:
            problem = f"{name} {value} has an entry below 1."
            raise user_error(ArgumentError, where, problem, operands=operands, fix=f"use a {name} of 1 or more.")
    if min(itertools.chain(*padding), default=0) < 0:
        fix = "slice the input to make it smaller."
        raise user_error(ArgumentError, where, f"padding {padding} has a negative entry.", operands=operands, fix=fix)
    reaches = [d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True)]
    padded = [n + sum(pair) for n, pair in zip(spatial, padding, strict=True)]
    for axis, (reach, size) in enumerate(zip(reaches, padded, strict=True)):
        if reach > size:
            of = f"{size} ({spatial[axis]} with padding {padding[axis]})"
            problem = f"spatial axis {axis}: the window covers {reach} elements, the padded input has {of}."
            fix = "use a smaller window or dilation, or more padding."
            raise user_error(ShapeError, where, problem, operands=operands, fix=fix)
    return tuple((size - reach) // s + 1 for reach, size, s in zip(reaches, padded, stride, strict=True))


def is_narrow(x: TensorSpec, w: TensorSpec, params: Mapping[str, Any], figures: Convolutions) -> bool:
    """Whether a convolution is a printed one's, rather than the library's: that of one image to few channels, whose places make
    longer vectors than its channels.
    """
    if "packed" in params or params.get("channels_last", False) or x.dtype != dtypes.float32:
        return False
    is_long = w.shape[-1] >= figures.long_window and params["dilation"][-1] == 1
    has_few = x.shape[0] == params["groups"] == 1 and w.shape[0] <= figures.narrow
    return has_few and (max(params["stride"]) == 1 or is_long)


def spatial_axes(ndim: int, rank: int, channels_last: bool = False) -> slice:
    """Returns the axes of an array on which windows of `rank` axes move: the last ones, or those before the last."""
    end = ndim - 1 if channels_last else ndim
    return slice(end - rank, end)


def with_channels(reference: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a reference of windows on the last axes, with the parameter `channels_last`: windows on the axes before the last
    one.
    """

    def run(*operands: Any, channels_last: bool = False, **params: Any) -> Any:
        if not channels_last:
            return reference(*operands, **params)
        to = -1 - len(params["window"])
        return np.moveaxis(reference(*(np.moveaxis(x, -1, to) for x in operands), **params), to, -1)

    return run


def pad_spatial(x: Any, padding: Padding, value: Any = 0) -> Any:
    """`x` with its last axes padded by `value`; itself where nothing is to be padded."""
    if not any(itertools.chain(*padding)):
        return x
    return np.pad(x, [(0, 0)] * (x.ndim - len(padding)) + list(padding), constant_values=value)


def crop_spatial(x: Any, padding: Padding) -> Any:
    """Undoes `pad_spatial`."""
    return x[
        (..., *(slice(low, n - high) for n, (low, high) in zip(x.shape[x.ndim - len(padding) :], padding, strict=True)))
    ]


def offsets(window: Shape, stride: Shape, dilation: Shape, out: Shape) -> Iterator[tuple[Shape, tuple[Any, ...]]]:
    """For each place in the window, in row-major order, the index of the elements that all windows have there."""
    for place in itertools.product(*map(range, window)):
        firsts = [k * d for k, d in zip(place, dilation, strict=True)]
        yield place, (..., *(slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(firsts, out, stride, strict=True)))


def sliding(x: Any, window: Shape, stride: Shape, dilation: Shape, out: Shape) -> Any:
    """Returns the windows (*leading, *window, *out) of a padded input (*leading, *spatial)."""
    lead = x.shape[: x.ndim - len(window)]
    places = [x[index] for _, index in offsets(window, stride, dilation, out)]
    return np.stack(places, axis=len(lead)).reshape((*lead, *window, *out))
