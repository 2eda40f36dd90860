"""Products, convolutions and pools."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nnc.commands.shape import transpose
from nnc.graph import Node
from nnc.onnx.writers.shape import reshaped, shape_of
from nnc.onnx.writers.table import W, writes
from nnc.onnx.writers.writer import Writer

Names = list[str]


@writes("dot")
def _dot(writer: Writer, node: Node, x: Names) -> str:
    """A product of matrices (batch, rows, depth) and (batch, depth, columns)."""
    (left, right), (left_batch, right_batch) = node.params["contract"], node.params["batch"]
    a, b = shape_of(node, 0), shape_of(node, 1)
    rows = [axis for axis in range(len(a)) if axis not in (*left, *left_batch)]
    columns = [axis for axis in range(len(b)) if axis not in (*right, *right_batch)]
    first = _arranged(writer, x[0], a, left_batch, rows, left)
    second = _arranged(writer, x[1], b, right_batch, right, columns)
    product = writer.op("MatMul", first, second)
    return reshaped(writer, product, tuple(node.outputs[0].spec.shape))


def _arranged(writer: Writer, x: str, shape: tuple[int, ...], *groups: Any) -> str:
    """Puts groups of axes behind each other, and makes the last two groups one axis each."""
    batch, middle, last = (list(group) for group in groups)
    order = [*batch, *middle, *last]
    moved = writer.op("Transpose", x, perm=order) if order != list(range(len(shape))) else x
    wanted = (*(shape[a] for a in batch), math.prod(shape[a] for a in middle), math.prod(shape[a] for a in last))
    return reshaped(writer, moved, wanted) if len(middle) != 1 or len(last) != 1 else str(moved)


def _windows(node: Node) -> dict[str, Any]:
    low, high = zip(*node.params["padding"], strict=True)
    return {"strides": list(node.params["stride"]), "dilations": list(node.params["dilation"]), "pads": [*low, *high]}


@writes("conv")
def _conv(writer: Writer, node: Node, x: Names) -> str | Names:
    if node.params.get("packed") or node.params.get("channels_last"):
        return writer.by_others(node, x)
    return str(
        writer.op("Conv", *x, group=node.params["groups"], kernel_shape=list(shape_of(node, 1)[2:]), **_windows(node))
    )


def _transposed(writer: Writer, node: Node, x: str, w: str, kernel: tuple[int, ...], group: int) -> str | None:
    """Adds the transpose of a convolution; None where it needs more padding than ONNX gives."""
    given, have = shape_of(node)[2:] if len(shape_of(node)) > 2 else shape_of(node), node.outputs[0].spec.shape
    more = []
    for axis, (size, span) in enumerate(zip(given[-len(kernel) :], kernel, strict=True)):
        stride, dilation, (low, high) = (node.params[name][axis] for name in ("stride", "dilation", "padding"))
        own = (size - 1) * stride + dilation * (span - 1) + 1 - low - high
        more.append(have[len(have) - len(kernel) + axis] - own)
        if not 0 <= more[-1] < max(stride, dilation) or low < 0 or high < 0:
            return None
    return str(
        writer.op("ConvTranspose", x, w, group=group, kernel_shape=list(kernel), output_padding=more, **_windows(node))
    )


@writes("conv_input_grad")
def _conv_input_grad(writer: Writer, node: Node, x: Names) -> str | Names:
    if not node.params.get("packed") and not node.params.get("channels_last"):
        found = _transposed(writer, node, x[0], x[1], shape_of(node, 1)[2:], node.params["groups"])
        if found is not None:
            return found
    return writer.by_others(node, x)


# -- pools: windows of the last axes, all others are batches -----------------------------------------------------------


def _pool(*names: str) -> Callable[[W], W]:
    """Makes a function the way in which pools are written whose channels come before the windows' axes; others are turned."""

    def add(write: W) -> W:
        def any_order(writer: Writer, node: Node, x: Names) -> str | Names:
            if not node.params.get("channels_last"):
                return write(writer, node, x)
            rank = len(node.params["window"])

            def compute(*operands: Any) -> list[Any]:
                ndim = len(node.inputs[0].spec.shape)
                first = (*range(ndim - rank - 1), ndim - 1, *range(ndim - rank - 1, ndim - 1))
                back = tuple(first.index(axis) for axis in range(ndim))
                found = node.command(
                    *(transpose(x, permutation=first) for x in operands), **{**node.params, "channels_last": False}
                )
                several = found if isinstance(found, (tuple, list)) else [found]
                return [transpose(value, permutation=back) for value in several]

            return writer.computed(node, x, compute)

        writes(*names)(any_order)
        return write

    return add


def _as_images(writer: Writer, x: str, shape: tuple[int, ...], rank: int) -> str:
    return reshaped(writer, x, (math.prod(shape[: len(shape) - rank]), 1, *shape[len(shape) - rank :]))


@_pool("max_pool")
def _max_pool(writer: Writer, node: Node, x: Names) -> str:
    window = node.params["window"]
    images = _as_images(writer, x[0], shape_of(node), len(window))
    found = writer.op("MaxPool", images, kernel_shape=list(window), **_windows(node))
    return reshaped(writer, found, tuple(node.outputs[0].spec.shape))


@_pool("sum_pool")
def _sum_pool(writer: Writer, node: Node, x: Names) -> str:
    """A convolution with ones."""
    window = node.params["window"]
    ones = writer.constant(np.ones((1, 1, *window), node.inputs[0].spec.dtype))
    images = _as_images(writer, x[0], shape_of(node), len(window))
    found = writer.op("Conv", images, ones, kernel_shape=list(window), **_windows(node))
    return reshaped(writer, found, tuple(node.outputs[0].spec.shape))


def _flat_places(node: Node, sizes: tuple[int, ...], counts: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Returns for each window and each of its elements where that lies in the flat array; -1 in the padding."""
    window, places, inside = node.params["window"], np.zeros((), np.int64), np.ones((), bool)
    rank = len(window)
    for axis in range(rank):
        begins = np.arange(counts[axis])[:, None] * node.params["stride"][axis] - node.params["padding"][axis][0]
        along = begins + np.arange(window[axis]) * node.params["dilation"][axis]
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = along.shape
        places = places * sizes[axis] + np.clip(along, 0, sizes[axis] - 1).reshape(shape)
        inside = inside & ((along >= 0) & (along < sizes[axis])).reshape(shape)
    found = np.where(inside, places, -1)
    return np.broadcast_to(found, (*counts, *window)).reshape(math.prod(counts), math.prod(window))


def _pool_sizes(node: Node) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns the batch axes, the sizes and the numbers of windows of a pool's operand."""
    shape, rank, out = shape_of(node), len(node.params["window"]), tuple(node.outputs[0].spec.shape)
    return shape[: len(shape) - rank], shape[len(shape) - rank :], out[len(out) - rank :]


@_pool("max_pool_places")
def _max_pool_places(writer: Writer, node: Node, x: Names) -> str:
    """The windows' elements along a last axis, of which the first largest wins."""
    lead, sizes, counts = _pool_sizes(node)
    places = _flat_places(node, sizes, counts)
    flat = reshaped(writer, x[0], (math.prod(lead), math.prod(sizes)))
    elements = writer.op("Gather", flat, writer.constant(np.maximum(places, 0)), axis=1)
    dtype = np.dtype(node.inputs[0].spec.dtype)
    least = np.asarray(-np.inf if dtype.kind not in "iu" else np.iinfo(dtype).min, dtype)
    elements = writer.op("Where", writer.constant(places >= 0), elements, writer.constant(least))
    found = writer.cast(writer.op("ArgMax", elements, axis=-1, keepdims=0), node.outputs[0].spec.dtype)
    return reshaped(writer, found, tuple(node.outputs[0].spec.shape))


@_pool("max_pool_both")
def _max_pool_both(writer: Writer, node: Node, x: Names) -> Names:
    return [_max_pool(writer, node, x), _max_pool_places(writer, node.update(outputs=node.outputs[1:]), x)]


def _chosen(writer: Writer, node: Node, places: str, rows: int, sizes: tuple[int, ...], counts: tuple[int, ...]) -> str:
    """Returns the flat place (rows, windows) of the element that each window has chosen."""
    table = np.maximum(_flat_places(node, sizes, counts), 0)
    begins = writer.constant(np.arange(table.shape[0]) * table.shape[1])
    index = writer.op("Add", reshaped(writer, writer.cast(places, np.int64), (rows, table.shape[0])), begins)
    return str(writer.op("Gather", writer.constant(table.reshape(-1)), index, axis=0))


@_pool("pick_pool")
def _pick_pool(writer: Writer, node: Node, x: Names) -> str:
    lead, sizes, counts = _pool_sizes(node)
    rows = math.prod(lead)
    flat = reshaped(writer, x[0], (rows, math.prod(sizes)))
    found = writer.op("GatherElements", flat, _chosen(writer, node, x[1], rows, sizes, counts), axis=1)
    return reshaped(writer, found, tuple(node.outputs[0].spec.shape))


@_pool("pick_pool_input_grad")
def _pick_pool_input_grad(writer: Writer, node: Node, x: Names) -> str:
    given, sizes = shape_of(node), tuple(node.params["spatial"])
    counts, rows = given[len(given) - len(sizes) :], math.prod(given[: len(given) - len(sizes)])
    zeros = writer.op(
        "Expand", writer.constant(np.zeros((), node.inputs[0].spec.dtype)), writer.integers([rows, math.prod(sizes)])
    )
    updates = reshaped(writer, x[0], (rows, math.prod(counts)))
    chosen = _chosen(writer, node, x[1], rows, sizes, counts)
    found = writer.op("ScatterElements", zeros, chosen, updates, axis=1, reduction="add")
    return reshaped(writer, found, tuple(node.outputs[0].spec.shape))


@_pool("sum_pool_input_grad")
def _sum_pool_input_grad(writer: Writer, node: Node, x: Names) -> str:
    """Each window's cotangent goes to all its elements: sums at known places."""
    given, sizes = shape_of(node), tuple(node.params["spatial"])
    counts, rows = given[len(given) - len(sizes) :], math.prod(given[: len(given) - len(sizes)])
    places = _flat_places(node, sizes, counts)
    inside = places >= 0
    windows = np.broadcast_to(np.arange(places.shape[0])[:, None], places.shape)[inside]
    zeros = writer.op(
        "Expand", writer.constant(np.zeros((), node.inputs[0].spec.dtype)), writer.integers([rows, math.prod(sizes)])
    )
    updates = writer.op("Gather", reshaped(writer, x[0], (rows, math.prod(counts))), writer.constant(windows), axis=1)
    index = writer.op("Expand", writer.constant(places[inside][None]), writer.integers([rows, int(inside.sum())]))
    found = writer.op("ScatterElements", zeros, index, updates, axis=1, reduction="add")
    return reshaped(writer, found, tuple(node.outputs[0].spec.shape))
