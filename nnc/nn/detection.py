"""Boxes in images: their overlap, which to keep, and the features of an image in them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.array.array import Array, as_value
from nnc.array.promote import as_operands, astype, promote, result_dtype
from nnc.base import dtypes
from nnc.calls.spelling import spelled
from nnc.commands import elementwise as ew
from nnc.errors import ShapeError, TraceError, user_error
from nnc.graph import spec_of
from nnc.nn.windows import Sizes, parse_layout, per_axis
from nnc.numpy.operands import at_once, known, to_value
from nnc.trace.loops.control_flow import while_loop
from nnc.typing import ArrayLike

__all__ = ["box_iou", "nms", "roi_align"]

# along one axis of the boxes' bins (K, bins): an index, and the weight of the element there
Taps = list[tuple[Array, Array]]


@spelled
def box_iou(boxes1: ArrayLike, boxes2: ArrayLike) -> Array:
    """Returns the area that each pair of boxes shares, divided by the area that they cover together.

    Args:
        boxes1: (..., N, 4) as x1, y1, x2, y2.
        boxes2: (..., M, 4).

    Returns:
        (..., N, M), 0 where both areas are 0.

    Raises:
        ShapeError: the last axis is not 4.

    Example:
        >>> box_iou(np.array([[0.0, 0.0, 2.0, 2.0]]), np.array([[1.0, 0.0, 3.0, 2.0]]))
        Array([[0.33333333]], dtype=float64)
    """
    a, b = (as_value(x) for x in promote(boxes1, boxes2, where="box_iou", to=dtypes.to_float))
    for name, x in (("boxes1", a), ("boxes2", b)):
        _check_boxes("box_iou", name, x, 4)
    wide = dtypes.accumulator(a.dtype)
    left, right = nnp.astype(a, wide)[..., :, None, :], nnp.astype(b, wide)[..., None, :, :]
    sides = nnp.minimum(left[..., 2:], right[..., 2:]) - nnp.maximum(left[..., :2], right[..., :2])
    sides = nnp.where(sides <= 0, 0, sides)  # NaN stays NaN
    shared = sides[..., 0] * sides[..., 1]
    together = _area(left) + _area(right) - shared
    nothing = together == 0
    return nnp.astype(nnp.where(nothing, 0, shared / nnp.where(nothing, 1, together)), a.dtype)


def _area(boxes: Array) -> Array:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _check_boxes(where: str, name: str, boxes: Array, width: int) -> None:
    if boxes.ndim < 2 or boxes.shape[-1] != width:
        form = "(batch index, x1, y1, x2, y2)" if width == 5 else "(x1, y1, x2, y2)"
        problem = f"{name} have shape {boxes.shape}, the last axis must be {width}."
        fix = f"pass a row {form} for each box."
        raise user_error(ShapeError, where, problem, operands={name: spec_of(boxes)}, fix=fix)


@spelled
def nms(boxes: Any, scores: Any, iou_threshold: float, *, max_output_size: int | None = None) -> Array:
    """Returns the indices of the boxes to keep, best first: none overlaps a better one by more than iou_threshold.

    Args:
        boxes: (N, 4) as x1, y1, x2, y2.
        scores: (N,).
        iou_threshold: largest share of intersection over union that two kept boxes have.
        max_output_size: keep so many at most, so that the result's size is known; it is filled up with -1. Without it
            the result has the size that the values ask for, which compile cannot know.

    Returns:
        integers (max_output_size,), or as many as are kept; without derivative.

    Raises:
        ShapeError: the shapes do not fit.
        TraceError: max_output_size is needed.

    Example:
        >>> nms(np.array([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [3, 3, 4, 4]]), np.array([0.8, 0.9, 0.1]), 0.5)
        Array([1, 2], dtype=int64)
    """
    boxes, scores = (to_value(x, "nms") for x in (boxes, scores))
    with at_once(boxes, scores) if max_output_size is None else nullcontext():
        return _nms(ew.stop_gradient(boxes), ew.stop_gradient(scores), iou_threshold, max_output_size)


def _nms(boxes: Array, scores: Array, iou_threshold: float, max_output_size: int | None) -> Array:
    _check_boxes("nms", "boxes", boxes, 4)
    if boxes.ndim != 2 or scores.shape != boxes.shape[:1]:
        problem = f"boxes have shape {boxes.shape}, scores {scores.shape}."
        operands = {"boxes": spec_of(boxes), "scores": spec_of(scores)}
        fix = "pass boxes (N, 4) and scores (N,); use vmap for more."
        raise user_error(ShapeError, "nms", problem, operands=operands, fix=fix)
    size = boxes.shape[0] if max_output_size is None else max_output_size
    order = nnp.argsort(scores, descending=True)
    ranked = nnp.take(boxes, order, axis=0)

    def keep_best(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, alive, kept = state
        best = nnp.argmax(alive)
        overlap = box_iou(nnp.take(ranked, best, axis=0)[None], ranked)[0]
        alive = alive & ~(overlap > iou_threshold) & (nnp.arange(alive.shape[0]) != best)
        return count + 1, alive, nnp.where(nnp.arange(size) == count, nnp.take(order, best), kept)

    start: Any = (0, nnp.ones(scores.shape, dtypes.bool_), nnp.full(size, -1, dtypes.int64))
    if not boxes.shape[0]:
        return start[2]
    count, _, kept = while_loop(lambda state: nnp.any(state[1]) & (state[0] < size), keep_best, start)
    if max_output_size is not None:
        return kept
    return kept[
        : int(_known(count, "nms", "how many boxes are kept is not known while tracing.", "max_output_size=100"))
    ]


def _known(x: Any, where: str, problem: str, argument: str) -> Any:
    fix = f"pass {argument}, so that the sizes are known."
    try:
        return known(x, where, fix)
    except TraceError:
        raise user_error(TraceError, where, problem, fix=fix) from None


@spelled
def roi_align(
    x: ArrayLike,
    boxes: ArrayLike,
    output_size: Sizes,
    spatial_scale: float = 1.0,
    sampling_ratio: int | None = None,
    aligned: bool = False,
    *,
    layout: str = "NCHW",
) -> Array:
    """Returns the features of an image in each box, as a grid of means of interpolated samples (He et al., 2017).

    Args:
        x: (N, C, H, W), or as `layout` says.
        boxes: (K, 5), each the index of an image and x1, y1, x2, y2.
        output_size: the size of the grid, a number or (height, width).
        spatial_scale: factor from the boxes' coordinates to coordinates in x.
        sampling_ratio: samples of each bin along each axis; None takes a sample for each element that a bin covers,
            which needs the boxes' values.
        aligned: whether coordinates denote corners, so that centres are half an element off; without it boxes
            have at least size 1.
        layout: letters of the axes: N first, C the channels, one for each spatial axis.

    Returns:
        (K, C, *output_size) in the layout of x.

    Raises:
        ShapeError: the boxes are not (K, 5).
        TraceError: the boxes are traced and there is no sampling_ratio.

    Example:
        >>> image = np.arange(16.0).reshape(1, 1, 4, 4)
        >>> roi_align(image, np.array([[0.0, 0.0, 0.0, 4.0, 4.0]]), 2, sampling_ratio=2, aligned=True)
        Array([[[[ 2.5,  4.5],
                 [10.5, 12.5]]]], dtype=float64)
    """
    x, given = as_operands((x, boxes), "roi_align")
    dtype = dtypes.to_float(result_dtype(x, given, where="roi_align"))
    x, boxes = (astype(v, dtype, "roi_align") for v in (x, given))
    form = parse_layout("roi_align", layout, 2)
    _check_boxes("roi_align", "boxes", boxes, 5)
    if boxes.ndim != 2 or x.ndim != 4:
        reason = f"x has {x.ndim} axes, boxes have {boxes.ndim}."
        fix = "pass x (N, C, H, W) and boxes (K, 5); use vmap for more."
        raise user_error(ShapeError, "roi_align", reason, operands={"x": spec_of(x), "boxes": spec_of(boxes)}, fix=fix)
    wide = dtypes.accumulator(dtype)
    canonical, lead = form.to_canonical(x)
    channels, height, width = canonical.shape[1:]
    rows = nnp.reshape(nnp.transpose(nnp.astype(canonical, wide), (0, 2, 3, 1)), (-1, channels))
    image = nnp.astype(boxes[:, 0], dtypes.int64)[:, None, None]
    down, across = per_axis("roi_align", "output_size", output_size, 2)

    def extents(boxes: Any) -> tuple[Array, Array]:
        """Returns the upper left corners of the boxes, and their sizes: (K, 2) each, x before y."""
        corners = nnp.astype(boxes[:, 1:], wide) * spatial_scale - (0.5 if aligned else 0)
        size = corners[:, 2:] - corners[:, :2]
        return corners[:, :2], size if aligned else nnp.maximum(size, 1)

    start, size = extents(boxes)
    if sampling_ratio is None:
        with at_once(given, spatial_scale):
            exact = ew.stop_gradient(extents(astype(given, dtype, "roi_align"))[1])
        problem = "how many samples a bin takes is not known while the boxes are traced."
        known_size = _known(exact, "roi_align", problem, "sampling_ratio=2")
        samples = np.ceil(known_size / np.asarray((across, down)))
    else:
        samples = np.full(start.shape, sampling_ratio)
    vertical = _axis_taps(start[:, 1], size[:, 1], down, height, samples[:, 1])
    horizontal = _axis_taps(start[:, 0], size[:, 0], across, width, samples[:, 0])
    total = nnp.zeros((boxes.shape[0], down, across, channels), wide)
    for i, weight_i in vertical:
        for j, weight_j in horizontal:
            index = (image * height + i[:, :, None]) * width + j[:, None, :]
            total = total + nnp.take(rows, index, axis=0) * (weight_i[:, :, None] * weight_j[:, None, :])[..., None]
    return form.from_canonical(nnp.transpose(nnp.astype(total, dtype), (0, 3, 1, 2)), (boxes.shape[0], *lead[1:]))


def _axis_taps(start: Array, size: Array, bins: int, n: int, counts: np.ndarray[Any, Any]) -> Taps:
    """Two elements for each sample of each bin along an axis of n elements; a sample beyond the image weighs nothing."""
    taps: Taps = []
    for sample in range(int(counts.max(initial=0))):
        share = nnp.asarray(((sample + 0.5) / np.maximum(counts, 1))[:, None], start.dtype)
        at = start[:, None] + (size / bins)[:, None] * (nnp.arange(bins, dtype=start.dtype) + share)
        weight = nnp.where(
            (at >= -1) & (at <= n), nnp.asarray(((sample < counts) / np.maximum(counts, 1))[:, None], start.dtype), 0
        )
        at = nnp.clip(at, 0, n - 1)
        first = nnp.minimum(nnp.floor(ew.stop_gradient(at)), max(0, n - 2))
        low = nnp.astype(first, dtypes.int64)
        taps.append((low, weight * (1 - (at - first))))
        taps.append((nnp.minimum(low + 1, n - 1), weight * (at - first)))
    return taps
