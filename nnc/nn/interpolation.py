"""Images of another size: interpolation, and channels moved into space and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array
from nnc.array.promote import promote
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.errors import ArgumentError, ShapeError, user_error
from nnc.graph import spec_of
from nnc.nn.windows import Sizes, check_rank, parse_layout, per_axis
from nnc.numpy.operands import keeps_weakness, to_value
from nnc.typing import ArrayLike

__all__ = ["pixel_shuffle", "pixel_unshuffle", "upsample"]

METHODS = {
    "nearest": "nearest",
    "nearest-exact": "nearest-exact",
    **dict.fromkeys(("linear", "bilinear", "trilinear"), "linear"),
    **dict.fromkeys(("cubic", "bicubic"), "cubic"),
}
Taps = list[tuple[Any, Any]]  # of each output element: where in the input, and with which weight (None: 1)


@keeps_weakness
def upsample(
    x: ArrayLike,
    scale: float | Sequence[float] | None = None,
    *,
    size: Sizes | None = None,
    method: str = "nearest",
    align_corners: bool = False,
    layout: str = "NCHW",
) -> Array:
    """Returns x with its spatial axes enlarged (or made smaller, without a filter) by interpolation.

    Args:
        x: (N, C, *spatial), or as `layout` says.
        scale: a factor for all spatial axes, or one for each.
        size: instead, the sizes wanted.
        method: "nearest" (the element before), "nearest-exact" (that at the centre), "linear" or "cubic"; along several
            axes the product of these.
        align_corners: whether the outermost elements' centres, not their edges, lie on each other; for "linear" and
            "cubic".
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Raises:
        ArgumentError: neither or both of scale and size are given, or a value makes no sense.

    Example:
        >>> upsample(np.array([[[1.0, 3.0]]]), 2, method="linear")
        Array([[[1. , 1.5, 2.5, 3. ]]], dtype=float64)
    """
    where = "upsample"
    kind = METHODS.get(method)
    if kind is None:
        problem = f"method={method!r} is unknown."
        raise user_error(ArgumentError, where, problem, fix='use "nearest", "nearest-exact", "linear" or "cubic".')
    if align_corners and kind.startswith("nearest"):
        problem = f"align_corners=True has no meaning for method={method!r}."
        raise user_error(ArgumentError, where, problem, fix='use method="linear".')
    if (scale is None) == (size is None):
        raise user_error(ArgumentError, where, "pass either scale or size.", fix="write upsample(x, 2) or size=(h, w).")
    value = to_value(promote(x, where=where, to=None if kind.startswith("nearest") else dtypes.to_float)[0], where)
    given = scale if size is None else size
    rank = len(given) if isinstance(given, (tuple, list)) else value.ndim - 2
    form = parse_layout(where, layout, rank)
    check_rank(where, value, form)
    canonical, lead = form.to_canonical(value)
    wide = canonical if kind.startswith("nearest") else nnp.astype(canonical, dtypes.accumulator(value.dtype))
    for axis, (n, o, ratio) in enumerate(_sizes(where, canonical.shape[2:], scale, size, rank), 2):
        wide = _resize_axis(wide, axis, n, o, ratio, kind, align_corners)
    return form.from_canonical(nnp.astype(wide, value.dtype), lead)


def _sizes(
    where: str, spatial: Sequence[int], scale: Any, size: Sizes | None, rank: int
) -> list[tuple[int, int, float]]:
    """For each axis the size before and after, and the distance in the input of neighbours in the output."""
    if size is not None:
        outs = per_axis(where, "size", size, rank)
        ratios = [n / max(1, o) for n, o in zip(spatial, outs, strict=True)]
    else:
        factors = tuple(scale) if isinstance(scale, (tuple, list)) else (scale,) * rank
        if any(isinstance(f, bool) or not isinstance(f, (int, float)) or not f > 0 for f in factors):
            problem = f"scale={scale!r} is no positive number nor a sequence of them."
            raise user_error(ArgumentError, where, problem, fix="write 2.")
        outs = tuple(math.floor(n * f) for n, f in zip(spatial, factors, strict=True))
        ratios = [1 / f for f in factors]
    if min(outs, default=1) < 1 or min(spatial, default=1) < 1:
        problem = f"the spatial sizes {tuple(spatial)} become {outs}."
        raise user_error(ArgumentError, where, problem, fix="make all of them 1 or more.")
    return list(zip(spatial, outs, ratios, strict=True))


def _resize_axis(x: Array, axis: int, n: int, o: int, ratio: float, kind: str, align_corners: bool) -> Array:
    if kind.startswith("nearest") and o % n == 0 and round(n / ratio) == o:
        return nnp.repeat(x, o // n, axis=axis)
    terms = []
    for index, weight in _taps(n, o, ratio, kind, align_corners):
        term = nnp.take(x, np.clip(index, 0, n - 1).astype(np.int64), axis=axis)
        if weight is not None:
            term = term * nnp.asarray(weight.reshape((-1,) + (1,) * (x.ndim - 1 - axis)), x.dtype)
        terms.append(term)
    return sum(terms[1:], terms[0])


def _taps(n: int, o: int, ratio: float, kind: str, align_corners: bool) -> Taps:
    places = np.arange(o)
    if kind.startswith("nearest"):
        return [(np.floor((places if kind == "nearest" else places + 0.5) * ratio), None)]
    at = places * ((n - 1) / max(1, o - 1)) if align_corners else (places + 0.5) * ratio - 0.5
    if kind == "linear":
        at = np.maximum(at, 0)
        first = np.minimum(np.floor(at), n - 1)
        return [(first, 1 - (at - first)), (first + 1, at - first)]
    first = np.floor(at)
    return [(first + k, _cubic(at - first - k)) for k in (-1, 0, 1, 2)]


def _cubic(distance: Any) -> Any:
    """Returns the weight of an element at a distance (Keys, "Cubic convolution interpolation", 1981), with a = -3/4."""
    a, d = -0.75, np.abs(distance)
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


# -- channels and space ------------------------------------------------------------------------------------------------


@spelled
def pixel_shuffle(x: ArrayLike, factor: int, *, layout: str = "NCHW") -> Array:
    """Returns x with channels moved into space: (N, C · factor², H, W) becomes (N, C, H · factor, W · factor).

    Args:
        x: any number of spatial axes, as `layout` says.
        factor: how much each of them grows (Shi et al., 2016).
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Raises:
        ShapeError: the channels are no multiple of factor to the power of the number of spatial axes.

    Example:
        >>> pixel_shuffle(np.arange(4.0).reshape(1, 4, 1, 1), 2)
        Array([[[[0., 1.],
                 [2., 3.]]]], dtype=float64)
    """
    form = parse_layout("pixel_shuffle", layout)
    x = to_value(x, "pixel_shuffle")
    check_rank("pixel_shuffle", x, form)
    canonical, lead = form.to_canonical(x)
    n, channels, *spatial = canonical.shape
    rank, share = len(spatial), factor ** len(spatial)
    if factor < 1 or channels % share:
        problem = f"factor={factor} needs a multiple of {share} channels, there are {channels}."
        fix = "use another factor, or another layout."
        raise user_error(ShapeError, "pixel_shuffle", problem, operands={"x": spec_of(x)}, fix=fix)
    split = nnp.reshape(canonical, (n, channels // share, *(factor,) * rank, *spatial))
    order = [axis for k in range(rank) for axis in (2 + rank + k, 2 + k)]
    moved = nnp.transpose(split, (0, 1, *order))
    return form.from_canonical(nnp.reshape(moved, (n, channels // share, *(size * factor for size in spatial))), lead)


@spelled
def pixel_unshuffle(x: ArrayLike, factor: int, *, layout: str = "NCHW") -> Array:
    """Returns x with space moved into channels; it undoes pixel_shuffle.

    Args:
        x: any number of spatial axes, as `layout` says.
        factor: how much each of them shrinks.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Raises:
        ShapeError: factor does not divide the spatial axes.

    Example:
        >>> pixel_unshuffle(nnp.ones((1, 1, 4, 6)), 2).shape
        (1, 4, 2, 3)
    """
    form = parse_layout("pixel_unshuffle", layout)
    x = to_value(x, "pixel_unshuffle")
    check_rank("pixel_unshuffle", x, form)
    canonical, lead = form.to_canonical(x)
    n, channels, *spatial = canonical.shape
    rank = len(spatial)
    if factor < 1 or any(size % factor for size in spatial):
        problem = f"factor={factor} does not divide the spatial axes {tuple(spatial)}."
        fix = "use another factor, or pad the input."
        raise user_error(ShapeError, "pixel_unshuffle", problem, operands={"x": spec_of(x)}, fix=fix)
    split = nnp.reshape(canonical, (n, channels, *(part for size in spatial for part in (size // factor, factor))))
    moved = nnp.transpose(split, (0, 1, *range(3, 3 + 2 * rank, 2), *range(2, 2 + 2 * rank, 2)))
    shape = (n, channels * factor**rank, *(size // factor for size in spatial))
    return form.from_canonical(nnp.reshape(moved, shape), lead)
