"""Sampling of images at given places: `grid_sample`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.errors.errors import check_choice
from nnc.graph import spec_of
from nnc.numpy.operands import keeps_weakness, to_values
from nnc.trace.core.differentiate import stop_gradient
from nnc.trace.core.vectorize import vmap
from nnc.typing import ArrayLike

__all__ = ["grid_sample"]

WHERE = "grid_sample"
MODES = ("bilinear", "nearest", "bicubic")
PADDING_MODES = ("zeros", "border", "reflection")
Pad = Callable[[Array, int], Array]  # (places, size of the axis) -> places


@keeps_weakness
def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> Array:
    """Returns the values of images at the places of a grid, by interpolation, as PyTorch's function of that name.

    A place of -1 is the left or upper edge of the image, 1 the right or lower one. Gradients reach the images and the grid.

    Args:
        x: (N, C, H, W), or (N, C, D, H, W).
        grid: (N, *out, 2) or (N, *out, 3), with as many axes as x: places (x, y) or (x, y, z), so the last axis of x comes first.
        mode: "bilinear" (of volumes trilinear), "nearest", or, for images alone, "bicubic".
        padding_mode: values outside of an image: "zeros", "border" (the nearest element), or "reflection" at the edges.
        align_corners: whether -1 and 1 are the centres of the outermost elements, or their edges.

    Returns:
        (N, C, *out), in the dtype of x.

    Raises:
        ShapeError: the shapes do not go together.
        ArgumentError: a mode is unknown.

    Example:
        >>> image = np.array([[[[1.0, 2.0], [3.0, 4.0]]]], np.float32)
        >>> grid_sample(image, np.array([[[[0.0, 0.0], [-0.5, 0.5]]]], np.float32))
        Array([[[[2.5, 3. ]]]], dtype=float32)
    """
    check_choice(WHERE, "mode", mode, MODES)
    check_choice(WHERE, "padding_mode", padding_mode, PADDING_MODES)
    x, grid = (promote(value, where=WHERE, to=dtypes.to_float)[0] for value in to_values(WHERE, x=x, grid=grid))
    _check_shapes(x, grid, mode)
    wide = dtypes.accumulator(nnp.result_type(x.dtype, grid.dtype))
    spatial = x.shape[2:]
    # of the axes of x, in their order
    places = [_to_elements(nnp.astype(grid[..., -1 - k], wide), n, align_corners) for k, n in enumerate(spatial)]

    def pad(at: Array, n: int) -> Array:
        return _padded(at, n, padding_mode, align_corners)

    if mode == "bicubic":
        taps = [_cubic_taps(at, n, pad) for at, n in zip(places, spatial, strict=True)]
    else:
        inside = [pad(at, n) for at, n in zip(places, spatial, strict=True)]
        taps = [[(nnp.round(at), None)] if mode == "nearest" else _linear_taps(at) for at in inside]
    return nnp.astype(_weighted_sum(nnp.astype(x, wide), taps), x.dtype)


def _check_shapes(x: Array, grid: Array, mode: str) -> None:
    operands = {"x": spec_of(x), "grid": spec_of(grid)}
    rank = x.ndim - 2
    if rank not in (2, 3):
        fix = "pass images (N, C, H, W) or volumes (N, C, D, H, W); add axes of size 1 for N and C."
        raise user_error(ShapeError, WHERE, f"x has {x.ndim} axes.", operands=operands, fix=fix)
    if grid.ndim != x.ndim or grid.shape[0] != x.shape[0] or grid.shape[-1] != rank:
        fix = f"pass a grid of shape ({x.shape[0]}, {', '.join(['D_out', 'H_out', 'W_out'][-rank:])}, {rank})."
        raise user_error(ShapeError, WHERE, "the grid does not fit x.", operands=operands, fix=fix)
    if min(x.shape[2:]) < 1:
        raise user_error(
            ShapeError,
            WHERE,
            "the images have no elements.",
            operands=operands,
            fix="pass images of 1 or more elements an axis.",
        )
    if mode == "bicubic" and rank != 2:
        problem = "mode='bicubic' is for images alone."
        raise user_error(ArgumentError, WHERE, problem, operands=operands, fix="use mode='bilinear' for volumes.")


def _to_elements(at: Array, n: int, align_corners: bool) -> Array:
    """Places from -1 to 1 as places among n elements, from 0 to n - 1."""
    return (at + 1) * ((n - 1) / 2) if align_corners else ((at + 1) * n - 1) / 2


def _padded(at: Array, n: int, padding_mode: str, align_corners: bool) -> Array:
    """Places within 0 to n - 1 for the padding modes that have no outside."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        at = _reflected(at, 0.0, n - 1.0) if align_corners else _reflected(at, -0.5, n - 0.5)
    # At the outermost elements the derivative is 0, where that of a clip would be a half.
    return nnp.where((at > 0) & (at < n - 1), at, stop_gradient(nnp.clip(at, 0, n - 1)))


def _reflected(at: Array, low: float, high: float) -> Array:
    """Places between `low` and `high`, by reflection at both."""
    span = high - low
    if span == 0:
        return nnp.zeros_like(at)
    distance = nnp.abs(at - low)
    flips = stop_gradient(nnp.floor(distance / span))
    rest = distance - flips * span
    return nnp.where(flips % 2 == 0, rest + low, high - rest)


# -- taps: of each place the elements that count, and their weights (None: 1) --------------------------------------------

Taps = list[tuple[Array, Array | None]]


def _linear_taps(at: Array) -> Taps:
    first = stop_gradient(nnp.floor(at))
    share = at - first
    return [(first, 1 - share), (first + 1, share)]


def _cubic_taps(at: Array, n: int, pad: Pad) -> Taps:
    """Four elements (Keys, "Cubic convolution interpolation", 1981, with a = -3/4), each of them padded."""
    first = stop_gradient(nnp.floor(at))
    t = at - first
    return [(stop_gradient(pad(first + k, n)), _cubic(nnp.abs(t - k), k in (0, 1))) for k in (-1, 0, 1, 2)]


def _cubic(distance: Array, is_near: bool) -> Array:
    a, d = -0.75, distance
    return ((a + 2) * d - (a + 3)) * d * d + 1 if is_near else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a


def _weighted_sum(x: Array, taps: Sequence[Taps]) -> Array:
    """Returns the sum over all combinations of taps along the axes; elements outside of x count as 0."""
    spatial, shape = x.shape[2:], taps[0][0][0].shape
    flat = nnp.reshape(x, (*x.shape[:2], math.prod(spatial)))
    total: Array | None = None
    for corner in itertools.product(*taps):
        index, weight = nnp.zeros(shape, dtypes.int32), nnp.ones(shape, x.dtype)
        is_inside = nnp.ones(shape, bool)
        for (at, share), n in zip(corner, spatial, strict=True):
            is_inside = is_inside & (at >= 0) & (at <= n - 1)
            near = nnp.where((at >= 0) & (at <= n - 1), at, 0)  # also of NaN
            index = index * n + nnp.astype(stop_gradient(near), dtypes.int32)
            weight = weight if share is None else weight * share
        weight = nnp.where(is_inside, weight, 0)
        found = vmap(lambda image, index: nnp.take(image, index, axis=1))(flat, nnp.reshape(index, (shape[0], -1)))
        term = nnp.reshape(found, (*x.shape[:2], *shape[1:])) * weight[:, None]
        total = term if total is None else total + term
    assert total is not None
    return total
