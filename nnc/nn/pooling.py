"""Pooling as users write it, over windows, over bins and over all places."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, as_value
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.specialise import specialised
from nnc.commands import pool as commands
from nnc.commands.bins import bin_intervals, bin_sums
from nnc.commands.windows import Padding, Shape, window_shape
from nnc.errors import ArgumentError, user_error
from nnc.graph import spec_of
from nnc.nn.windows import Layout, PaddingLike, Sizes, check_rank, parse_layout, per_axis, to_padding
from nnc.numpy.operands import keeps_weakness, to_value
from nnc.typing import ArrayLike

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "global_avg_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
]


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of one call, for each spatial axis. `extra` is the padding that ceil_mode adds."""

    form: Layout
    spatial: Shape
    window: Shape
    stride: Shape
    padding: Padding
    dilation: Shape
    extra: Shape

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the pooling commands."""
        padding = tuple((low, high + more) for (low, high), more in zip(self.padding, self.extra, strict=True))
        return {"window": self.window, "stride": self.stride, "padding": padding, "dilation": self.dilation}

    def counts(self, padded: bool) -> Any:
        """Counts the elements of each window: those of x, or also those of the padding, without `extra`."""
        result: Any = np.ones(())
        for n, k, s, (low, high), d, more in zip(
            self.spatial, self.window, self.stride, self.padding, self.dilation, self.extra, strict=True
        ):
            places = np.arange(0, low + n + high + more - d * (k - 1), s)[:, None] + np.arange(k) * d
            first, last = (0, low + n + high) if padded else (low, low + n)
            result = result[..., None] * ((places >= first) & (places < last)).sum(axis=1)
        return result


def _spatial_form(where: str, x: Array, sizes: Sizes | None, layout: str) -> Layout:
    """Returns the layout; a sequence of sizes says how many spatial axes there are, else all axes after N and C are."""
    rank = len(sizes) if isinstance(sizes, (tuple, list)) else spec_of(x).ndim - 2
    form = parse_layout(where, layout, rank)
    check_rank(where, x, form)
    return form


def _read_windows(
    where: str, x: Array, window: Sizes, stride: Sizes | None, padding: PaddingLike, dilation: Sizes, ceil_mode: bool,
    layout: str,
) -> tuple[Array, Shape, _Windows]:  # fmt: skip
    """x as (N, C, *spatial), its batch axes, and its windows."""
    form = _spatial_form(where, x, window, layout)
    canonical, lead = form.to_canonical(x)
    spatial = canonical.shape[2:]
    windows = per_axis(where, "window", window, form.rank)
    strides = windows if stride is None else per_axis(where, "stride", stride, form.rank)
    dilations = per_axis(where, "dilation", dilation, form.rank)
    pads = to_padding(where, padding, spatial, windows, strides, dilations)
    extra = (0,) * form.rank
    if ceil_mode:
        extra = tuple(map(_more, spatial, windows, strides, pads, dilations))
    found = _Windows(form, spatial, windows, strides, pads, dilations, extra)
    window_shape(where, spatial, operands={"x": spec_of(x)}, **found.params)  # raises where there is none
    return canonical, lead, found


def _more(n: int, window: int, stride: int, padding: tuple[int, int], dilation: int) -> int:
    """Returns the number of elements that complete a last, incomplete window; it must begin in x or in the padding before it."""
    low, high = padding
    rest = n + low + high - dilation * (window - 1) - 1
    count = -(-rest // max(1, stride)) + 1
    if (count - 1) * stride >= n + low:
        count -= 1
    return max(0, (count - 1) * stride - rest)


@specialised(1)
def max_pool(
    x: ArrayLike,
    window: Sizes,
    *,
    stride: Sizes | None = None,
    padding: PaddingLike = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Array:
    """Returns the greatest element of each window. Padding never wins, NaN always.

    Args:
        x: (N, C, *spatial), or as `layout` says.
        window: a size for each spatial axis; a number stands for all axes after N and C.
        stride: steps between windows; the window itself by default.
        padding: as in `conv`.
        dilation: steps between the elements of a window.
        ceil_mode: whether a last, incomplete window counts.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Raises:
        ShapeError: a window is bigger than the padded input.

    Example:
        >>> max_pool(np.arange(16.0).reshape(1, 1, 4, 4), 2)
        Array([[[[ 5.,  7.],
                 [13., 15.]]]], dtype=float64)
    """
    x, lead, windows = _read_windows(
        "max_pool", to_value(x, "max_pool"), window, stride, padding, dilation, ceil_mode, layout
    )
    return windows.form.from_canonical(commands.max_pool(x, **windows.params), lead)


@specialised(1)
@keeps_weakness
def avg_pool(
    x: ArrayLike,
    window: Sizes,
    *,
    stride: Sizes | None = None,
    padding: PaddingLike = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> Array:
    """Returns the mean of each window; 16-bit floats are summed in float32.

    Args:
        x: (N, C, *spatial), or as `layout` says; N is any number of batch axes.
        window: a size for each spatial axis, or one for all.
        stride: the stride of the windows; their size by default.
        padding: a number, one for each spatial axis, a pair (before, after) for each, "SAME" or "VALID".
        dilation: distance of the elements of a window.
        ceil_mode: whether a last window may reach beyond the padding.
        count_include_pad: whether padding counts as zeros; else the mean is over the elements of x alone. The others as
            in `max_pool`. Elements that ceil_mode adds never count.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Example:
        >>> avg_pool(np.arange(16.0).reshape(1, 1, 4, 4), 2)
        Array([[[[ 2.5,  4.5],
                 [10.5, 12.5]]]], dtype=float64)
    """
    x = promote(x, where="avg_pool", to=dtypes.to_float)[0]
    dtype = spec_of(x).dtype
    x, lead, windows = _read_windows("avg_pool", x, window, stride, padding, dilation, ceil_mode, layout)
    total = commands.sum_pool(nnp.astype(x, dtypes.accumulator(dtype)), **windows.params)
    whole = (count_include_pad and not any(windows.extra)) or not any(itertools.chain(*windows.params["padding"]))
    counts = math.prod(windows.window) if whole else windows.counts(count_include_pad).astype(total.dtype)
    return windows.form.from_canonical(nnp.astype(total / counts, dtype), lead)


@specialised(1)
@keeps_weakness
def lp_pool(
    x: ArrayLike,
    window: Sizes,
    degree: float = 2,
    *,
    stride: Sizes | None = None,
    padding: PaddingLike = 0,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Array:
    """Returns the norm of each window: (sum of |x| to the power `degree`) to the power 1 / degree; its derivative at 0 is 0.

    Args:
        x: (N, C, *spatial), or as `layout` says; N is any number of batch axes.
        window: a size for each spatial axis, or one for all.
        degree: 1 or more. The others as in `max_pool`.
        stride: the stride of the windows; their size by default.
        padding: a number, one for each spatial axis, a pair (before, after) for each, "SAME" or "VALID".
        ceil_mode: whether a last window may reach beyond the padding.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Raises:
        ArgumentError: degree is below 1.
        ShapeError: a window is bigger than the padded input.

    Example:
        >>> lp_pool(np.array([[[3.0, 4.0, 0.0, 0.0]]]), 2)
        Array([[[5., 0.]]], dtype=float64)
    """
    if degree < 1:
        raise user_error(ArgumentError, "lp_pool", f"degree={degree} is below 1.", fix="use 1, 2 or more.")
    x = promote(x, where="lp_pool", to=dtypes.to_float)[0]
    dtype = spec_of(x).dtype
    x, lead, windows = _read_windows("lp_pool", x, window, stride, padding, 1, ceil_mode, layout)
    total = commands.sum_pool(abs(nnp.astype(x, dtypes.accumulator(dtype))) ** degree, **windows.params)
    nothing = total == 0
    root = nnp.where(nothing, 0, nnp.where(nothing, 1, total) ** (1 / degree))
    return windows.form.from_canonical(nnp.astype(root, dtype), lead)


# -- bins and all places -----------------------------------------------------------------------------------------------


@specialised(1)
@keeps_weakness
def adaptive_avg_pool(x: ArrayLike, output_size: Sizes, *, layout: str = "NCHW") -> Array:
    """Returns the means of bins: `output_size` bins along each spatial axis, of sizes as equal as can be.

    Bin i goes from floor(i · n / output_size) up to ceil((i + 1) · n / output_size).

    Args:
        x: (N, C, *spatial), or as `layout` says.
        output_size: a number for all spatial axes, or one for each.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Example:
        >>> adaptive_avg_pool(np.array([[[1.0, 2.0, 3.0]]]), 2)
        Array([[[1.5, 2.5]]], dtype=float64)
    """
    x = promote(x, where="adaptive_avg_pool", to=dtypes.to_float)[0]
    return _adaptive("adaptive_avg_pool", as_value(x), output_size, layout, _mean_of_bins)


@specialised(1)
def adaptive_max_pool(x: ArrayLike, output_size: Sizes, *, layout: str = "NCHW") -> Array:
    """Returns the greatest elements of bins, as adaptive_avg_pool lays them.

    Args:
        x: (N, C, *spatial), or as `layout` says; N is any number of batch axes.
        output_size: number of bins; one for all spatial axes, or one for each.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Example:
        >>> nnc.nn.adaptive_max_pool(nnp.arange(16.0).reshape(1, 1, 4, 4), (2, 2))
        Array([[[[ 5.,  7.],
                 [13., 15.]]]], dtype=float32)
    """
    return _adaptive("adaptive_max_pool", to_value(x, "adaptive_max_pool"), output_size, layout, _greatest_of_bins)


def _adaptive(where: str, x: Array, output_size: Sizes, layout: str, over_bins: Any) -> Array:
    form = _spatial_form(where, x, output_size, layout)
    sizes = per_axis(where, "output_size", output_size, form.rank)
    canonical, lead = form.to_canonical(x)
    spatial = canonical.shape[2:]
    if min(sizes, default=1) < 1 or min(spatial, default=1) < 1:
        problem = f"output_size={output_size!r} of the spatial axes {spatial} leaves a bin empty."
        fix = "use an output_size of 1 or more and an input that is not empty."
        raise user_error(ArgumentError, where, problem, operands={"x": spec_of(x)}, fix=fix)
    for axis, (n, size) in enumerate(zip(spatial, sizes, strict=True), 2):
        canonical = over_bins(canonical, axis, *bin_intervals(n, size))
    return form.from_canonical(canonical, lead)


def _mean_of_bins(x: Array, axis: int, starts: Any, ends: Any) -> Array:
    counts, shape = ends - starts, x.shape
    if shape[axis] == counts.sum():  # bins of one size, side by side
        rows = nnp.reshape(x, (*shape[:axis], starts.size, int(counts[0]), *shape[axis + 1 :]))
        return nnp.mean(rows, axis=axis + 1)
    wide = nnp.astype(x, dtypes.accumulator(x.dtype))
    total = bin_sums(wide, axis=axis, bins=starts.size)
    divisors = nnp.reshape(nnp.asarray(counts, wide.dtype), (-1,) + (1,) * (len(shape) - 1 - axis))
    return nnp.astype(total / divisors, x.dtype)


def _greatest_of_bins(x: Array, axis: int, starts: Any, ends: Any) -> Array:
    """Bins laid side by side are the windows of a maximum pool."""
    rows = _bins_side_by_side(x, axis, starts, ends)
    widest = rows.shape[-1] // starts.size
    params = {"window": (widest,), "stride": (widest,), "padding": ((0, 0),), "dilation": (1,)}
    return nnp.moveaxis(commands.max_pool(rows, **params), -1, axis)


def _bins_side_by_side(x: Array, axis: int, starts: Any, ends: Any) -> Array:
    """Returns the bins in the last axis, each as wide as the widest: short ones repeat their last element."""
    widest = int((ends - starts).max())
    index = np.minimum(starts[:, None] + np.arange(widest), ends[:, None] - 1)
    return nnp.take(nnp.moveaxis(x, axis, -1), index.ravel(), axis=-1)


@specialised(1)
def global_avg_pool(x: ArrayLike, *, keepdims: bool = False, layout: str = "NCHW") -> Array:
    """Returns the mean of each channel over all places.

    Args:
        x: (N, C, *spatial), or as `layout` says.
        keepdims: keep the spatial axes, with size 1.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Returns:
        (N, C).

    Example:
        >>> global_avg_pool(np.ones((2, 3, 4, 4), np.float32)).shape
        (2, 3)
    """
    x = promote(x, where="global_avg_pool", to=dtypes.to_float)[0]
    return nnp.mean(as_value(x), axis=_places("global_avg_pool", x, layout), keepdims=keepdims)


@specialised(1)
def global_max_pool(x: ArrayLike, *, keepdims: bool = False, layout: str = "NCHW") -> Array:
    """Returns the greatest element of each channel; the arguments as in global_avg_pool.

    Args:
        x: (N, C, *spatial), or as `layout` says; N is any number of batch axes.
        keepdims: keep the spatial axes with size 1.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Example:
        >>> nnc.nn.global_max_pool(nnp.arange(8.0).reshape(1, 2, 2, 2))
        Array([[3., 7.]], dtype=float32)
    """
    x = to_value(x, "global_max_pool")
    return nnp.max(x, axis=_places("global_max_pool", x, layout), keepdims=keepdims)


def _places(where: str, x: Array, layout: str) -> tuple[int, ...]:
    """Returns the spatial axes."""
    form = _spatial_form(where, x, None, layout)
    lead = spec_of(x).ndim - len(form.order)
    return tuple(sorted(lead + axis for axis in form.order[1:]))
