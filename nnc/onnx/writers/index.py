"""Reading and writing at positions that are known only when the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnc.graph import Node
from nnc.onnx.writers.shape import padded, reshaped, shape_of, sliced
from nnc.onnx.writers.table import kind, refused, writes
from nnc.onnx.writers.writer import Writer

Names = list[str]
_REDUCTIONS = {"set": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _inside(writer: Writer, node: Node, index: str, size: int, mode: str) -> tuple[str, str]:
    """Returns an index as int64 within the axis, and the name of the mask of those that were outside ("" where none counts)."""
    wide = writer.cast(index, np.int64)
    last, zero = writer.constant(np.int64(max(size - 1, 0))), writer.constant(np.int64(0))
    if mode == "error":
        return wide, ""
    if mode == "wrap":
        return str(writer.op("Mod", wide, writer.constant(np.int64(max(size, 1))))), ""
    clipped = writer.op("Min", writer.op("Max", wide, zero), last)
    return str(clipped), "" if mode == "clip" else str(writer.op("Not", writer.op("Equal", clipped, wide)))


def _stacked(writer: Writer, names: Sequence[str]) -> str:
    """Puts index arrays of one shape along a new last axis."""
    last = writer.integers([-1])
    columns = [writer.op("Unsqueeze", name, last) for name in names]
    return str(writer.op("Concat", *columns, axis=-1)) if len(columns) > 1 else columns[0]


def _any(writer: Writer, masks: Sequence[str]) -> str:
    found = ""
    for mask in masks:
        found = mask if not found or not mask else writer.op("Or", found, mask)
    return found


def _order(ndim: int, axes: Sequence[int], batch: int) -> list[int]:
    return [*range(batch), *axes, *(axis for axis in range(batch, ndim) if axis not in axes)]


@writes("gather")
def _gather(writer: Writer, node: Node, x: Names) -> str:
    axes, batch, mode = list(node.params["axes"]), node.params["batch"], node.params["mode"]
    shape, out = shape_of(node), node.outputs[0].spec
    pairs = [_inside(writer, node, name, shape[axis], mode) for name, axis in zip(x[1:], axes, strict=True)]
    outside = _any(writer, [mask for _, mask in pairs])
    if len(axes) == 1 and not batch:
        found = writer.op("Gather", _front(writer, x[0], len(shape), axes, 0), pairs[0][0], axis=0)
    else:
        index = _stacked(writer, [name for name, _ in pairs])
        found = writer.op("GatherND", _front(writer, x[0], len(shape), axes, batch), index, batch_dims=batch)
    if not outside:
        return str(found)
    rest = len(out.shape) - node.inputs[1].spec.ndim
    mask = writer.op("Unsqueeze", outside, writer.integers(range(-rest, 0))) if rest else outside
    return str(writer.op("Where", mask, writer.constant(_filling(node, mode)), found))


def _filling(node: Node, mode: str) -> np.ndarray[Any, Any]:
    dtype = np.dtype(node.inputs[0].spec.dtype)
    if mode == "drop":
        return np.zeros((), dtype)
    value = {"f": np.nan, "V": np.nan, "b": True}.get(kind(node))
    if value is None:
        value = np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return np.asarray(value).astype(dtype)


def _front(writer: Writer, x: str, ndim: int, axes: Sequence[int], batch: int) -> str:
    """Moves the indexed axes behind the shared ones."""
    order = _order(ndim, axes, batch)
    return x if order == list(range(ndim)) else str(writer.op("Transpose", x, perm=order))


@writes("scatter")
def _scatter(writer: Writer, node: Node, x: Names) -> str:
    """An index outside that is to write nothing writes to an additional row, which is cut off again."""
    axes, batch, mode, op = (node.params[name] for name in ("axes", "batch", "mode", "op"))
    shape, dtype = shape_of(node), node.inputs[0].spec.dtype
    if op not in _REDUCTIONS or (writer.opset < 18 and op in ("max", "min")):
        raise refused(node, f"version {writer.opset} has no scatter by {op}")
    order = _order(len(shape), axes, batch)
    moved = [shape[axis] for axis in order]
    target = _front(writer, x[0], len(shape), axes, batch)
    pairs = [_inside(writer, node, name, shape[axis], mode) for name, axis in zip(x[2:], axes, strict=True)]
    indices, outside = [name for name, _ in pairs], _any(writer, [mask for _, mask in pairs])
    if outside:
        indices[0] = writer.op("Where", outside, writer.constant(np.int64(shape[axes[0]])), indices[0])
        high = [int(axis == batch) for axis in range(len(shape))]
        is_bool = kind(node) == "b"
        target = writer.cast(target, np.uint8) if is_bool else target
        zero = writer.constant(np.zeros((), np.uint8 if is_bool else dtype))
        target = padded(writer, target, zero, [0] * len(shape), high)
        target = writer.cast(target, dtype) if is_bool else target
    own = node.inputs[2].spec.shape
    for axis in range(batch):
        count = np.arange(own[axis]).reshape([-1 if a == axis else 1 for a in range(len(own))])
        indices.insert(axis, writer.constant(np.ascontiguousarray(np.broadcast_to(count, own))))
    found = writer.op("ScatterND", target, _stacked(writer, indices), x[1], reduction=_REDUCTIONS[op])
    if outside:
        found = sliced(writer, found, [0], [moved[batch]], [batch], [1])
    back = [order.index(axis) for axis in range(len(shape))]
    return str(found) if back == list(range(len(shape))) else str(writer.op("Transpose", found, perm=back))


def _starts(writer: Writer, node: Node, names: Names, sizes: Sequence[int], first: int) -> str:
    """Returns the vector of starts, moved so that the slice lies within the array."""
    last = writer.integers([0])
    whole = shape_of(node)
    vectors = [writer.op("Unsqueeze", writer.cast(name, np.int64), last) for name in names[first:]]
    starts = writer.op("Concat", *vectors, axis=0) if len(vectors) > 1 else vectors[0]
    most = writer.integers([have - size for have, size in zip(whole, sizes, strict=True)])
    return str(writer.op("Max", writer.op("Min", starts, most), writer.integers([0])))


@writes("dynamic_slice")
def _dynamic_slice(writer: Writer, node: Node, x: Names) -> str:
    sizes = list(node.params["sizes"])
    if not sizes:
        return x[0]
    starts = _starts(writer, node, x, sizes, 1)
    ends = writer.op("Add", starts, writer.integers(sizes))
    found = writer.op("Slice", x[0], starts, ends, writer.integers(range(len(sizes))))
    return reshaped(writer, found, tuple(sizes))


@writes("dynamic_update_slice")
def _dynamic_update_slice(writer: Writer, node: Node, x: Names) -> str:
    sizes = shape_of(node, 1)
    if not sizes:
        return x[1]
    grid = np.moveaxis(np.indices(sizes, np.int64), 0, -1)
    places = writer.op("Add", writer.constant(grid), _starts(writer, node, x, sizes, 2))
    return str(writer.op("ScatterND", x[0], places, x[1]))


@writes("searchsorted")
def _searchsorted(writer: Writer, node: Node, x: Names) -> str:
    """Counts the elements before each value. NaN stands behind all numbers."""
    rows, values = shape_of(node), shape_of(node, 1)
    steps = reshaped(writer, x[0], (*rows[:-1], *[1] * (len(values) - len(rows) + 1), rows[-1]))
    sought = writer.op("Unsqueeze", x[1], writer.integers([len(values)]))
    is_left = node.params["side"] == "left"
    before = writer.op("Less" if is_left else "LessOrEqual", steps, sought)
    if kind(node) == "f":
        is_last = writer.op("IsNaN", sought)
        if is_left:
            is_last = writer.op("And", is_last, writer.op("Not", writer.op("IsNaN", steps)))
        before = writer.op("Or", before, is_last)
    return str(writer.op("ReduceSum", writer.cast(before, np.int64), writer.integers([-1]), keepdims=0))
