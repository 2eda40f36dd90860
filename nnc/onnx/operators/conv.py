"""Convolutions."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

import nnc.nn as nn
import nnc.numpy as nnp
from nnc.onnx.model import Node
from nnc.onnx.operators.table import operator
from nnc.onnx.operators.windows import Windows, windows_of
from nnc.onnx.values import integers


def _with_bias(out: Any, bias: Any) -> Any:
    return out if bias is None else out + nnp.reshape(bias, (-1, *([1] * (len(out.shape) - 2))))


@operator("Conv")
def conv(node: Node, x: Any, w: Any, bias: Any = None) -> Any:
    windows = windows_of(node, x.shape[2:], w.shape[2:])
    out = nn.conv(
        x,
        w,
        stride=windows.strides,
        padding=windows.pads,
        dilation=windows.dilations,
        groups=node.attributes.get("group", 1),
    )
    return _with_bias(out, bias)


@operator("ConvTranspose")
def conv_transpose(node: Node, x: Any, w: Any, bias: Any = None) -> Any:
    sizes, kernel = x.shape[2:], w.shape[2:]
    windows = windows_of(node._replace(attributes={**node.attributes, "auto_pad": "NOTSET"}), sizes, kernel)
    spans, more = windows.spans(), node.attributes.get("output_padding", [0] * len(sizes))
    full = [
        (size - 1) * stride + span + extra
        for size, stride, span, extra in zip(sizes, windows.strides, spans, more, strict=True)
    ]
    pads, wanted = _cut(node, windows, sizes, full)
    whole = nn.conv_transpose(
        x, w, stride=windows.strides, dilation=windows.dilations, groups=node.attributes.get("group", 1)
    )
    lacking = [(0, 0), (0, 0)] + [
        (max(-low, 0), max(size + low - have, 0))
        for (low, _), size, have in zip(pads, wanted, whole.shape[2:], strict=True)
    ]
    whole = nnp.pad(whole, lacking)
    index = [slice(max(low, 0), max(low, 0) + size) for (low, _), size in zip(pads, wanted, strict=True)]
    return _with_bias(whole[(slice(None), slice(None), *index)], bias)


def _cut(node: Node, windows: Windows, sizes: Any, full: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
    """Returns how much is cut off the full result before and behind, and the sizes that are left."""
    way, wanted = node.attributes.get("auto_pad", "NOTSET"), node.attributes.get("output_shape")
    if wanted is None and way not in ("SAME_UPPER", "SAME_LOWER"):
        left = [size - low - high for size, (low, high) in zip(full, windows.pads, strict=True)]
        return list(windows.pads), left
    if wanted is None:
        wanted = [size * stride for size, stride in zip(sizes, windows.strides, strict=True)]
    totals = [size - left for size, left in zip(full, wanted[-len(full) :], strict=True)]
    halves = [(total // 2, total - total // 2) for total in totals]
    if way != "SAME_UPPER":
        halves = [(high, low) for low, high in halves]
    return halves, list(wanted[-len(full) :])


@operator("DeformConv")
def deform_conv(node: Node, x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """Dai et al., Deformable Convolutional Networks (2017): each element of a window is read where its offset says."""
    kernel, sizes = node.attributes.get("kernel_shape", w.shape[2:]), x.shape[2:]
    windows = windows_of(node, sizes, kernel)
    counts, rank = windows.counts(sizes), len(sizes)
    groups, shares = node.attributes.get("group", 1), node.attributes.get("offset_group", 1)
    batch, channels, elements = x.shape[0], x.shape[1], math.prod(kernel)
    moved = nnp.reshape(offset, (batch, shares, elements, rank, *counts))
    places = []
    for axis in range(rank):
        steps = np.array(list(np.ndindex(*kernel)))[:, axis] * windows.dilations[axis]
        begins = np.arange(counts[axis]) * windows.strides[axis] - windows.pads[axis][0]
        shape = [1] * rank
        shape[axis] = counts[axis]
        grid = steps.reshape(-1, *([1] * rank)) + begins.reshape(shape)
        places.append(moved[:, :, :, axis] + grid.astype(x.dtype))
    split = nnp.reshape(x, (batch, shares, channels // shares, *sizes))
    read = _interpolated(split, places)  # (batch, shares, channels, elements, *counts)
    if mask is not None:
        read = read * nnp.reshape(mask, (batch, shares, 1, elements, *counts))
    read = nnp.reshape(read, (batch, groups, channels // groups * elements, math.prod(counts)))
    weights = nnp.reshape(w, (groups, w.shape[0] // groups, w.shape[1] * elements))
    out = nnp.einsum("goc,ngcp->ngop", weights, read)
    return _with_bias(nnp.reshape(out, (batch, w.shape[0], *counts)), bias)


def _interpolated(x: Any, places: list[Any]) -> Any:
    """Reads x (batch, shares, channels, *sizes) linearly at places (batch, shares, …), a list by axis; 0 outside."""
    sizes, lead = x.shape[3:], x.shape[:3]
    flat = nnp.reshape(x, (*lead, -1))
    lows = [nnp.floor(place) for place in places]
    total: Any = 0
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        index: Any = 0
        weight: Any = 1.0
        is_inside: Any = True
        for place, low, step, size in zip(places, lows, corner, sizes, strict=True):
            at = low + step
            weight = weight * (1 - nnp.abs(place - at))
            is_inside = is_inside & (at >= 0) & (at <= size - 1)
            index = index * size + nnp.astype(nnp.clip(at, 0, size - 1), "int64")
        weight = nnp.where(is_inside, weight, nnp.zeros_like(weight))
        rows = nnp.reshape(index, (*index.shape[:2], 1, -1))
        read = nnp.take_along_axis(flat, nnp.broadcast_to(rows, (*lead, rows.shape[-1])), axis=-1)
        total = total + nnp.reshape(read, (*lead, *index.shape[2:])) * nnp.expand_dims(weight, 2)
    return total


@operator("Col2Im")
def col2im(node: Node, x: Any, image: Any, block: Any) -> Any:
    """Adds up the columns of windows where they lie."""
    sizes, kernel = integers(image, "the shape of Col2Im"), integers(block, "the block of Col2Im")
    windows = windows_of(node, sizes, kernel)
    counts, elements = windows.counts(sizes), math.prod(kernel)
    batch, channels = x.shape[0], x.shape[1] // elements
    padded = [size + low + high for size, (low, high) in zip(sizes, windows.pads, strict=True)]
    places = np.zeros((elements, math.prod(counts)), np.int64)
    starts, steps = np.indices(counts).reshape(len(counts), -1), np.indices(kernel).reshape(len(kernel), -1)
    for axis, size in enumerate(padded):
        along = steps[axis][:, None] * windows.dilations[axis] + starts[axis] * windows.strides[axis]
        places = places * size + along
    flat = nnp.zeros((batch, channels, math.prod(padded)), x.dtype)
    columns = nnp.reshape(x, (batch, channels, -1))
    out = nnp.reshape(flat.at[:, :, places.ravel()].add(columns), (batch, channels, *padded))
    index = [slice(low, low + size) for size, (low, _) in zip(sizes, windows.pads, strict=True)]
    return out[(slice(None), slice(None), *index)]
