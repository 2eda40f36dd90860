"""Resize: each axis by a matrix whose rows hold the weights of the elements that an output is read from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.values import check_known, integers, known

NDArray = np.ndarray[Any, Any]


@operator("Upsample")
def upsample_of_attributes(node: Node, x: Any) -> Any:
    scales = node.attributes.get("scales") or [
        1.0, 1.0, node.attributes.get("height_scale", 1.0), node.attributes.get("width_scale", 1.0)
    ]  # fmt: skip
    return _resize(node, x, scales, "asymmetric", "floor")


@operator("Upsample", since=9)
@operator("Resize", since=10)
def upsample(node: Node, x: Any, scales: Any) -> Any:
    return _resize(node, x, known(scales, f"the scales of {node.operator}").tolist(), "asymmetric", "floor")


@operator("Resize", since=11)
def resize(node: Node, x: Any, region: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    axes = [axis % len(x.shape) for axis in node.attributes.get("axes", range(len(x.shape)))]
    wanted = integers(sizes, "the sizes of Resize") if sizes is not None else []
    factors = known(scales, "the scales of Resize").tolist() if scales is not None else []
    where = node.attributes.get("coordinate_transformation_mode", "half_pixel")
    crop = known(region, "the region of Resize").tolist() if where == "tf_crop_and_resize" else []
    if wanted:
        factors = [size / x.shape[axis] for size, axis in zip(wanted, axes, strict=True)]
        policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = (min if policy == "not_larger" else max)(factors)
            factors, wanted = [factor] * len(axes), [math.floor(factor * x.shape[axis] + 0.5) for axis in axes]
    return _resize(
        node, x, factors, where, node.attributes.get("nearest_mode", "round_prefer_floor"), axes, wanted, crop
    )


def _resize(
    node: Node, x: Any, factors: Sequence[float], where: str, rounding: str,
    axes: Sequence[int] | None = None, sizes: Sequence[int] = (), crop: Sequence[float] = (),
) -> Any:  # fmt: skip
    along = axes if axes is not None else range(len(x.shape))
    dtype, outside = np.dtype(x.dtype), np.zeros((), bool)
    mode = node.attributes.get("mode", "nearest")
    x = nnp.asarray(x)
    wide = x if (dtype.kind == "f" and dtype.itemsize >= 4) or mode == "nearest" else nnp.astype(x, "float32")
    for place, (axis, factor) in enumerate(zip(along, factors, strict=True)):
        size = x.shape[axis]
        count = sizes[place] if sizes else math.floor(size * factor)
        span = (crop[place], crop[place + len(factors)]) if crop else None
        if count == size and factor == 1 and span is None:
            continue
        at = _places(where, count, size, factor, span)
        if span is not None:
            shape = [1] * x.ndim
            shape[axis] = count
            outside = outside | ((at < 0) | (at > size - 1)).reshape(shape)
        if mode == "nearest":
            wide = nnp.take(wide, np.clip(_rounded(at, rounding), 0, size - 1).astype(np.int64), axis=axis)
        else:
            weights = _weights(node, mode, at, size, factor).astype(wide.dtype)
            wide = nnp.moveaxis(nnp.tensordot(weights, wide, axes=((1,), (axis,))), 0, axis)
    if crop:
        fill = np.asarray(node.attributes.get("extrapolation_value", 0.0), wide.dtype)
        wide = nnp.where(outside, fill, wide)
    if dtype.kind in "iu" and mode != "nearest":
        limits = np.iinfo(dtype)
        wide = nnp.clip(nnp.round(wide) if dtype.kind == "u" else nnp.trunc(wide), limits.min, limits.max)
    return nnp.astype(wide, dtype)


def _places(where: str, count: int, size: int, factor: float, span: tuple[float, float] | None) -> NDArray:
    """Returns where each output lies among the elements of the operand."""
    check_known(8 * count, "a side of the result of Resize")
    i = np.arange(count, dtype=np.float64)
    if where == "align_corners":
        return i * (size - 1) / (factor * size - 1) if factor * size > 1 else i * 0
    if where == "asymmetric":
        return i / factor
    if where == "tf_half_pixel_for_nn":
        return (i + 0.5) / factor
    if where == "pytorch_half_pixel" and count <= 1:
        return i * 0
    if where == "half_pixel_symmetric":
        return size / 2 * (1 - count / (factor * size)) + (i + 0.5) / factor - 0.5
    if span is not None:
        begin, end = span
        step = (end - begin) * (size - 1) / (count - 1) if count > 1 else 0.0
        return begin * (size - 1) + i * step if count > 1 else 0.5 * (begin + end) * (size - 1) + i
    return (i + 0.5) / factor - 0.5


def _rounded(at: NDArray, rounding: str) -> NDArray:
    if rounding == "round_prefer_floor":
        return np.ceil(at - 0.5)
    if rounding == "round_prefer_ceil":
        return np.floor(at + 0.5)
    return np.floor(at) if rounding == "floor" else np.ceil(at)


def _weights(node: Node, mode: str, at: NDArray, size: int, factor: float) -> NDArray:
    """Returns the matrix (outputs, elements). A smaller result is smoothed by wider kernels, with `antialias`."""
    shrink = min(factor, 1.0) if node.attributes.get("antialias", 0) else 1.0
    radius = (1 if mode == "linear" else 2) / shrink
    a, excludes = node.attributes.get("cubic_coeff_a", -0.75), bool(node.attributes.get("exclude_outside", 0))
    first = np.floor(at) + 1 - math.ceil(radius)
    check_known(8 * len(at) * size, "the matrix of Resize")
    matrix, total = np.zeros((len(at), size)), np.zeros(len(at))
    for tap in range(2 * math.ceil(radius)):
        place = first + tap
        distance = np.abs(at - place) * shrink
        weight = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, a)
        if excludes:
            weight = np.where((place < 0) | (place >= size), 0, weight)
        np.add.at(matrix, (np.arange(len(at)), np.clip(place, 0, size - 1).astype(np.int64)), weight)
        total += weight
    return matrix / total[:, None] if excludes or shrink < 1 else matrix


def _cubic(distance: NDArray, a: float) -> NDArray:
    """Keys, Cubic Convolution Interpolation (1981)."""
    near = (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    far = a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
