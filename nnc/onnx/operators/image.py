"""Images: reading between pixels, regions, boxes."""

from __future__ import annotations

import io
import itertools
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.errors import UnsupportedError, user_error
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.values import integers, known

_MODES = {"bilinear": "linear", "bicubic": "cubic"}  # as versions before 20 call them


@operator("GridSample")
def grid_sample(node: Node, x: Any, grid: Any) -> Any:
    """Reads x (N, C, *sizes) at points of -1 … 1, the last axis of the grid first."""
    mode = node.attributes.get("mode", "linear")
    mode = _MODES.get(mode, mode)
    padding, aligned = node.attributes.get("padding_mode", "zeros"), bool(node.attributes.get("align_corners", 0))
    x, sizes = nnp.asarray(x), x.shape[2:]
    points = nnp.asarray(grid)
    places = []
    for axis, size in enumerate(sizes):
        point = points[..., len(sizes) - 1 - axis]
        places.append((point + 1) / 2 * (size - 1) if aligned else ((point + 1) * size - 1) / 2)
    if padding == "reflection" or (padding == "border" and mode != "cubic"):
        places = [_inside(place, size, padding, aligned) for place, size in zip(places, sizes, strict=True)]
    return _read(x, places, mode, padding, aligned)


def _inside(place: Any, size: int, padding: str, aligned: bool) -> Any:
    """Moves places into the image: to its border, or as if mirrors stood there."""
    if padding == "border":
        return nnp.clip(place, 0, size - 1)
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    span = high - low
    if span == 0:
        return nnp.zeros_like(place)
    along = nnp.abs(place - low)
    turns = nnp.floor(along / span)
    rest = along - turns * span
    return nnp.where(nnp.remainder(turns, 2) == 0, low + rest, high - rest)


def _read(x: Any, places: list[Any], mode: str, padding: str, aligned: bool) -> Any:
    sizes, lead = x.shape[2:], x.shape[:2]
    flat = nnp.reshape(x, (*lead, -1))
    total: Any = None
    taps = {"nearest": [0], "linear": [0, 1], "cubic": [-1, 0, 1, 2]}[mode]
    bases = [nnp.round(place) if mode == "nearest" else nnp.floor(place) for place in places]
    for offsets in itertools.product(taps, repeat=len(sizes)):
        index: Any = 0
        weight, inside = None, None
        for place, base, offset, size in zip(places, bases, offsets, sizes, strict=True):
            at = base + offset
            if mode != "nearest":
                part = 1 - nnp.abs(place - at) if mode == "linear" else _cubic(nnp.abs(place - at))
                weight = part if weight is None else weight * part
            if padding == "zeros":
                here = (at >= 0) & (at <= size - 1)
                inside = here if inside is None else inside & here
            at = _inside(at, size, padding, aligned) if padding == "reflection" else at
            index = index * size + nnp.astype(nnp.clip(at, 0, size - 1), "int64")
        rows = nnp.reshape(index, (index.shape[0], 1, -1))
        read = nnp.take_along_axis(flat, nnp.broadcast_to(rows, (*lead, rows.shape[-1])), axis=-1)
        read = nnp.reshape(read, (*lead, *index.shape[1:]))
        read = read if weight is None else read * nnp.expand_dims(weight, 1)
        read = read if inside is None else nnp.where(nnp.expand_dims(inside, 1), read, nnp.zeros_like(read))
        total = read if total is None else total + read
    return nnp.astype(total, x.dtype)


def _cubic(distance: Any, a: float = -0.75) -> Any:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return nnp.where(distance <= 1, near, nnp.where(distance < 2, far, nnp.zeros_like(far)))


@operator("RoiAlign")
def roi_align(node: Node, x: Any, regions: Any, images: Any) -> Any:
    """He et al., Mask R-CNN (2017): means or maxima of points that lie evenly in each cell."""
    height, width = node.attributes.get("output_height", 1), node.attributes.get("output_width", 1)
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    half = node.attributes.get("coordinate_transformation_mode", default) == "half_pixel"
    ratio, scale = node.attributes.get("sampling_ratio", 0), node.attributes.get("spatial_scale", 1.0)
    boxes = nnp.asarray(regions) * np.asarray(scale, regions.dtype) - (0.5 if half else 0.0)
    begins, spans = boxes[:, 1::-1], boxes[:, 3:1:-1] - boxes[:, 1::-1]
    spans = spans if half else nnp.maximum(spans, 1)
    if ratio <= 0:
        counts = np.ceil(known(spans, "the regions of RoiAlign") / np.asarray([height, width])).astype(int)
        counts = np.maximum(counts, 1)
    else:
        counts = np.full((regions.shape[0], 2), ratio)
    takes_max = node.attributes.get("mode", "avg") == "max"
    found = (
        [
            _align(
                nnp.take(nnp.asarray(x), images[place], axis=0),
                begins[place],
                spans[place],
                (height, width),
                counts[place],
                takes_max,
            )
            for place in range(regions.shape[0])
        ]
        if ratio <= 0
        else [
            nnc.vmap(
                lambda image, begin, span: _align(
                    nnp.take(nnp.asarray(x), image, axis=0), begin, span, (height, width), counts[0], takes_max
                )
            )(nnp.asarray(images), begins, spans)
        ]
    )
    return found[0] if ratio > 0 else nnp.stack(found) if found else nnp.zeros((0, x.shape[1], height, width), x.dtype)


def _align(image: Any, begin: Any, span: Any, cells: tuple[int, int], counts: Any, takes_max: bool) -> Any:
    """Returns the cells (channels, height, width) of one region."""
    lows, highs, parts, inside = [], [], [], []
    for axis, (cell, count) in enumerate(zip(cells, counts, strict=True)):
        size = image.shape[1 + axis]
        steps = (np.arange(cell * count) // count + (np.arange(cell * count) % count + 0.5) / count).astype(np.float32)
        at = begin[axis] + steps * (span[axis] / cell)
        inside.append((at >= -1) & (at <= size))
        at = nnp.clip(at, 0, size - 1)
        low = nnp.clip(nnp.floor(at), 0, size - 1)
        lows.append(nnp.astype(low, "int64"))
        highs.append(nnp.minimum(lows[-1] + 1, size - 1))
        parts.append(nnp.astype(at - low, image.dtype))
    corners = []
    for row, across in ((lows[0], 1 - parts[0]), (highs[0], parts[0])):
        line = nnp.take(image, row, axis=1) * across[:, None]
        corners += [nnp.take(line, lows[1], axis=2) * (1 - parts[1]), nnp.take(line, highs[1], axis=2) * parts[1]]
    is_inside = inside[0][:, None] & inside[1]
    corners = [nnp.where(is_inside, corner, nnp.zeros_like(corner)) for corner in corners]
    shape = (image.shape[0], cells[0], int(counts[0]), cells[1], int(counts[1]))
    if takes_max:  # the standard takes the greatest of the four weighted corners
        top = nnp.maximum(nnp.maximum(corners[0], corners[1]), nnp.maximum(corners[2], corners[3]))
        return nnp.max(nnp.reshape(top, shape), axis=(2, 4))
    return nnp.mean(nnp.reshape(sum(corners[1:], corners[0]), shape), axis=(2, 4))


@operator("MaxRoiPool")
def max_roi_pool(node: Node, x: Any, regions: Any) -> Any:
    values, (height, width) = known(regions, "the regions of MaxRoiPool"), node.attributes["pooled_shape"]
    x, found = nnp.asarray(x), []
    for region in values:
        left, top, right, bottom = np.round(region[1:] * node.attributes.get("spatial_scale", 1.0)).astype(int)
        tall, wide = max(bottom - top + 1, 1), max(right - left + 1, 1)
        rows = [_span(place, top, tall, height, x.shape[2]) for place in range(height)]
        columns = [_span(place, left, wide, width, x.shape[3]) for place in range(width)]
        image = x[int(region[0])]
        cells = [
            [
                nnp.max(image[:, row, column], axis=(1, 2))
                if _holds(row) and _holds(column)
                else nnp.zeros(x.shape[1], x.dtype)
                for column in columns
            ]
            for row in rows
        ]
        found.append(nnp.stack([nnp.stack(line, axis=-1) for line in cells], axis=-2))
    return nnp.stack(found)


def _span(place: int, begin: int, size: int, count: int, limit: int) -> slice:
    low, high = begin + int(np.floor(place * size / count)), begin + int(np.ceil((place + 1) * size / count))
    return slice(min(max(low, 0), limit), min(max(high, 0), limit))


def _holds(span: slice) -> bool:
    return bool(span.stop > span.start)


@operator("NonMaxSuppression")
def non_max_suppression(
    node: Node, boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None
) -> Any:
    """Keeps the boxes of highest score that do not overlap with one that is kept already, a class of a batch at a time."""
    what = "boxes that NonMaxSuppression keeps"
    corners, marks = known(boxes, what).astype(np.float64), known(scores, what)
    count = integers(most, what)[0] if most is not None else 0
    limit = float(known(overlap, what).reshape(())) if overlap is not None else 0.0
    floor = float(known(least, what).reshape(())) if least is not None else -np.inf
    if node.attributes.get("center_point_box", 0):
        centre, half = corners[..., 1::-1], corners[..., 3:1:-1] / 2
        corners = np.concatenate([centre - half, centre + half], -1)
    corners = np.concatenate(
        [np.minimum(corners[..., :2], corners[..., 2:]), np.maximum(corners[..., :2], corners[..., 2:])], -1
    )
    kept = [
        (batch, kind, box)
        for batch in range(marks.shape[0])
        for kind in range(marks.shape[1])
        for box in _suppress(corners[batch], marks[batch, kind], count, limit, floor)
    ]
    return np.array(kept, np.int64).reshape(-1, 3)


def _suppress(boxes: Any, scores: Any, count: int, limit: float, floor: float) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > floor]
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    kept: list[int] = []
    while order.size and len(kept) < count:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        sides = np.minimum(boxes[order, 2:], boxes[best, 2:]) - np.maximum(boxes[order, :2], boxes[best, :2])
        shared = np.prod(np.maximum(sides, 0), axis=1)
        union = areas[order] + areas[best] - shared
        order = order[shared <= limit * union] if limit > 0 else order[shared <= 0]
    return kept


@operator("ImageDecoder")
def image_decoder(node: Node, data: Any) -> Any:
    """Pillow decodes the bytes of a picture."""
    if find_spec("PIL") is None:
        raise user_error(UnsupportedError, "ImageDecoder", "Pillow is not installed.", fix="pip install pillow")
    pillow = import_module("PIL.Image")
    picture = pillow.open(io.BytesIO(known(data, "the bytes of ImageDecoder").tobytes()))
    kind = node.attributes.get("pixel_format", "RGB")
    if kind == "Grayscale":
        return np.asarray(picture.convert("L"))[..., None]
    pixels = np.asarray(picture.convert("RGB"))
    return pixels[..., ::-1] if kind == "BGR" else pixels
