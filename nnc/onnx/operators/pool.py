"""Pools."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import nnc.nn as nn
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.operators.windows import Windows, take_windows, windows_of
from nnc.onnx.values import integers


def _windows(node: Node, x: Any) -> Windows:
    return windows_of(node, x.shape[2:], node.attributes["kernel_shape"])


@operator("MaxPool")
def max_pool(node: Node, x: Any) -> Any:
    """The second result is the place of each maximum in the flat operand."""
    windows = _windows(node, x)
    has_places = len(node.outputs) > 1 and node.outputs[1]
    if not has_places and not windows.is_ceiled and np.dtype(x.dtype).kind == "f":
        return nn.max_pool(x, windows.kernel, stride=windows.strides, padding=windows.pads, dilation=windows.dilations)
    least = np.iinfo(x.dtype).min if np.dtype(x.dtype).kind in "iu" else -np.inf
    elements, places = take_windows(x, windows, np.asarray(least, x.dtype))
    best = nnp.argmax(elements, axis=-1, keepdims=True)
    found = nnp.max(elements, axis=-1)
    if not has_places:
        return found
    shown = np.broadcast_to(places, elements.shape)
    if node.attributes.get("storage_order", 0):  # places as if the last axis came first
        shown = _column_major(shown, x.shape[2:])
    first = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *([1] * (len(x.shape) - 2))) * math.prod(
        x.shape[2:]
    )
    chosen = nnp.take_along_axis(nnp.asarray(shown), best, axis=-1)[..., 0]
    return found, nnp.astype(chosen + first, "int64")


def _column_major(places: Any, sizes: Any) -> Any:
    index = np.unravel_index(np.maximum(places, 0), sizes)
    return np.ravel_multi_index(index[::-1], sizes[::-1])


@operator("AveragePool")
def average_pool(node: Node, x: Any) -> Any:
    windows, counts_padding = _windows(node, x), bool(node.attributes.get("count_include_pad", 0))
    if not windows.is_ceiled:
        return nn.avg_pool(
            x, windows.kernel, stride=windows.strides, padding=windows.pads, dilation=windows.dilations,
            count_include_pad=counts_padding,
        )  # fmt: skip
    elements, places = take_windows(x, windows, np.zeros((), x.dtype))
    counts = (places >= 0).sum(-1) if not counts_padding else _padded_counts(windows, x.shape[2:])
    return nnp.sum(elements, axis=-1) / np.asarray(counts, x.dtype)


def _padded_counts(windows: Windows, sizes: Any) -> Any:
    """Returns how many elements of each window are elements or padding; places behind the padding do not count."""
    total = np.ones((), np.int64)
    for axis, (size, count) in enumerate(zip(sizes, windows.counts(sizes), strict=True)):
        begins = np.arange(count)[:, None] * windows.strides[axis] - windows.pads[axis][0]
        along = begins + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        within = (along < size + windows.pads[axis][1]).sum(-1)
        shape = [1] * len(sizes)
        shape[axis] = count
        total = total * within.reshape(shape)
    return total


@operator("LpPool")
def lp_pool(node: Node, x: Any) -> Any:
    p = node.attributes.get("p", 2)
    elements, _ = take_windows(x, _windows(node, x), np.zeros((), x.dtype))
    if p == 1:
        return nnp.sum(nnp.abs(elements), axis=-1)
    if p == 2:
        return nnp.linalg.norm(elements, axis=-1)
    return nnp.power(nnp.sum(nnp.power(nnp.abs(elements), p), axis=-1), 1 / p)


@operator("GlobalMaxPool")
def global_max_pool(node: Node, x: Any) -> Any:
    return nnp.max(x, axis=tuple(range(2, len(x.shape))), keepdims=True)


@operator("GlobalAveragePool")
def global_average_pool(node: Node, x: Any) -> Any:
    return nnp.mean(nnp.asarray(x), axis=tuple(range(2, len(x.shape))), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(node: Node, x: Any) -> Any:
    flat, p = nnp.reshape(nnp.abs(x), (*x.shape[:2], *([1] * (len(x.shape) - 2)), -1)), node.attributes.get("p", 2)
    if p == 2:
        return nnp.linalg.norm(flat, axis=-1)
    return nnp.power(nnp.sum(nnp.power(flat, p), axis=-1), 1 / p)


@operator("MaxUnpool")
def max_unpool(node: Node, x: Any, places: Any, shape: Any = None) -> Any:
    """Puts elements where their maxima were."""
    windows = _windows(node, x)
    sizes = [
        (count - 1) * stride + span - low - high
        for count, stride, span, (low, high) in zip(
            x.shape[2:], windows.strides, windows.spans(), windows.pads, strict=True
        )
    ]
    own = (*x.shape[:2], *sizes)
    wanted = tuple(integers(shape, "the shape of MaxUnpool")) if shape is not None else own
    index = np.unravel_index(np.arange(math.prod(own)), own)
    flat = nnp.ravel(nnp.asarray(places))
    if wanted != own:  # the places count in the smaller array
        back = np.ravel_multi_index(index, wanted) if all(a <= b for a, b in zip(own, wanted, strict=True)) else None
        if back is None:
            raise ValueError(f"the shape {wanted} is smaller than {own}")
        flat = nnp.take(back, flat)
    return nnp.reshape(nnp.zeros((math.prod(wanted),), x.dtype).at[flat].set(nnp.ravel(nnp.asarray(x))), wanted)
