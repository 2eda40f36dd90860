"""Operators that ask for shapes, change them, or make arrays of one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import nnc
import nnc.numpy as nnp
from nnc.onnx.model import Node, dtype_of
from nnc.onnx.operators.table import operator
from nnc.onnx.values import check_known, integers, known


def axes_of(node: Node, axes: Any) -> list[int] | None:
    """Returns axes that are an attribute in old versions, an input in newer ones; None: not given."""
    if axes is not None:
        return integers(axes, f"the axes of {node.operator}")
    return node.attributes.get("axes")


@operator("Shape")
def shape(node: Node, x: Any) -> Any:
    return np.asarray(x.shape[node.attributes.get("start", 0) : node.attributes.get("end")], np.int64)


@operator("Size")
def size(node: Node, x: Any) -> Any:
    return np.asarray(math.prod(x.shape), np.int64)


@operator("Reshape")
def reshape(node: Node, x: Any, to: Any = None) -> Any:
    sizes = integers(to, "the shape of Reshape") if to is not None else node.attributes["shape"]
    if not node.attributes.get("allowzero", 0):
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    if np.dtype(x.dtype) == object or isinstance(x, np.ndarray):
        return np.reshape(x, sizes)
    return nnp.reshape(x, tuple(sizes))


@operator("Flatten")
def flatten(node: Node, x: Any) -> Any:
    axis = node.attributes.get("axis", 1)
    axis = axis + len(x.shape) if axis < 0 else axis
    return nnp.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@operator("Transpose")
def transpose(node: Node, x: Any) -> Any:
    return (np if isinstance(x, np.ndarray) else nnp).transpose(x, node.attributes.get("perm"))


@operator("Squeeze")
def squeeze(node: Node, x: Any, axes: Any = None) -> Any:
    chosen = axes_of(node, axes)
    return (np if isinstance(x, np.ndarray) else nnp).squeeze(x, axis=tuple(chosen) if chosen else None)


@operator("Unsqueeze")
def unsqueeze(node: Node, x: Any, axes: Any = None) -> Any:
    return (np if isinstance(x, np.ndarray) else nnp).expand_dims(x, tuple(axes_of(node, axes) or ()))


@operator("Expand")
def expand(node: Node, x: Any, to: Any) -> Any:
    sizes = np.broadcast_shapes(tuple(x.shape), tuple(integers(to, "the shape of Expand")))
    return nnp.broadcast_to(x, sizes)


@operator("Tile")
def tile_along(node: Node, x: Any, tiles: Any, axis: Any) -> Any:
    """Before version 6: along one axis."""
    repeats = [1] * len(x.shape)
    repeats[integers(axis, "the axis of Tile")[0]] = integers(tiles, "the tiles of Tile")[0]
    return nnp.tile(x, tuple(repeats))


@operator("Tile", since=6)
def tile(node: Node, x: Any, repeats: Any) -> Any:
    return nnp.tile(x, tuple(integers(repeats, "the repeats of Tile")))


@operator("Concat")
def concat(node: Node, *parts: Any) -> Any:
    axis = node.attributes.get("axis", 1)
    return (np if all(isinstance(part, np.ndarray) for part in parts) else nnp).concatenate(parts, axis=axis)


def sizes_of_parts(size: int, count: int) -> list[int]:
    """Cuts an axis into parts of equal size, of which the last may be smaller."""
    part = -(-size // count)
    return [max(min(part, size - index * part), 0) for index in range(count)]


@operator("Split")
def split(node: Node, x: Any, sizes: Any = None) -> Any:
    axis = node.attributes.get("axis", 0)
    chosen = integers(sizes, "the sizes of Split") if sizes is not None else node.attributes.get("split")
    if not chosen:
        chosen = sizes_of_parts(x.shape[axis], node.attributes.get("num_outputs", len(node.outputs)))
    if sum(chosen) != x.shape[axis] or min(chosen) < 0:
        raise ValueError(f"parts of {chosen} are not all of an axis of {x.shape[axis]}")
    ends = np.cumsum(chosen)[:-1].tolist()
    return tuple((np if isinstance(x, np.ndarray) else nnp).split(x, ends, axis=axis))


@operator("Slice")
def slice_of_attributes(node: Node, x: Any) -> Any:
    starts, ends = node.attributes["starts"], node.attributes["ends"]
    return _slice(x, starts, ends, node.attributes.get("axes", range(len(starts))), [1] * len(starts))


@operator("Slice", since=10)
def slice_of_inputs(node: Node, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    begin, end = integers(starts, "the starts of Slice"), integers(ends, "the ends of Slice")
    along = integers(axes, "the axes of Slice") if axes is not None else range(len(begin))
    return _slice(
        x, begin, end, along, integers(steps, "the steps of Slice") if steps is not None else [1] * len(begin)
    )


def _slice(x: Any, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]) -> Any:
    index = [slice(None)] * len(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = _bounds(start, end, step, x.shape[axis])
    return x[tuple(index)]


def _bounds(start: int, end: int, step: int, size: int) -> slice:
    """Moves bounds outside of the axis to its ends, also a start before the first element of an axis that is read backwards."""
    begin, stop = (place + size if place < 0 else place for place in (start, end))
    if step > 0:
        return slice(min(max(begin, 0), size), min(max(stop, 0), size), step)
    stop = min(max(stop, -1), size - 1)
    return slice(min(max(begin, 0), size - 1), None if stop < 0 else stop, step) if size else slice(0, 0)


@operator("ConstantOfShape")
def constant_of_shape(node: Node, shape: Any) -> Any:
    value = node.attributes.get("value", np.zeros(1, np.float32))
    return nnp.full(tuple(integers(shape, "the shape of ConstantOfShape")), value.reshape(()), dtype=value.dtype)


@operator("Constant")
def constant(node: Node) -> Any:
    ((name, value),) = node.attributes.items()
    dtypes = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return np.asarray(value, dtypes.get(name, object if name.startswith("value_string") else None))


@operator("Range")
def arange(node: Node, start: Any, limit: Any, delta: Any) -> Any:
    begin, end, step = (known(value, "the bounds of Range").reshape(()) for value in (start, limit, delta))
    count = max(math.ceil((end.item() - begin.item()) / step.item()), 0)
    return nnp.asarray(begin) + nnp.arange(count).astype(begin.dtype) * step


@operator("EyeLike")
def eye_like(node: Node, x: Any) -> Any:
    dtype = dtype_of(node.attributes["dtype"]) if "dtype" in node.attributes else x.dtype
    rows, columns = x.shape
    return nnp.eye(rows, columns, k=node.attributes.get("k", 0), dtype=dtype)


@operator("Trilu")
def trilu(node: Node, x: Any, k: Any = None) -> Any:
    diagonal = integers(k, "the diagonal of Trilu")[0] if k is not None else 0
    return (nnp.triu if node.attributes.get("upper", 1) else nnp.tril)(x, k=diagonal)


@operator("Pad")
def pad_of_attributes(node: Node, x: Any) -> Any:
    pads = node.attributes.get("pads", node.attributes.get("paddings"))
    return _pad(node, x, pads, np.asarray(node.attributes.get("value", 0.0), x.dtype), None)


@operator("Pad", since=11)
def pad(node: Node, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    fill = np.zeros((), x.dtype) if value is None else nnp.reshape(value, ())
    return _pad(node, x, integers(pads, "the pads of Pad"), fill, axes_of(node, axes))


def _pad(node: Node, x: Any, pads: Sequence[int], value: Any, axes: Sequence[int] | None) -> Any:
    """Pads, or crops where a width is negative."""
    along = [axis % len(x.shape) for axis in axes] if axes is not None else list(range(len(x.shape)))
    widths = [(0, 0)] * len(x.shape)
    for place, axis in enumerate(along):
        widths[axis] = (pads[place], pads[place + len(along)])
    crop = tuple(slice(max(-low, 0), size - max(-high, 0)) for (low, high), size in zip(widths, x.shape, strict=True))
    widths = [(max(low, 0), max(high, 0)) for low, high in widths]
    mode = node.attributes.get("mode", "constant")
    x = nnp.asarray(x)[crop]
    if mode == "constant":
        return nnp.pad(x, widths, mode="constant", constant_values=value)
    return nnp.pad(x, widths, mode=mode)


@operator("OneHot")
def one_hot(node: Node, indices: Any, depth: Any, values: Any) -> Any:
    (count,) = integers(depth, "the depth of OneHot")
    check_known(8 * count, "an axis of OneHot")
    axis = node.attributes.get("axis", -1) % (len(indices.shape) + 1)
    places = nnp.expand_dims(nnp.astype(indices, "int64"), axis)
    order = np.arange(count).reshape([count if a == axis else 1 for a in range(len(indices.shape) + 1)])
    is_here = nnp.where(places < 0, places + count, places) == order
    off, on = (nnp.asarray(values)[place] for place in (0, 1))
    return nnp.where(is_here, on, off)


@operator("DepthToSpace")
def depth_to_space(node: Node, x: Any) -> Any:
    block = node.attributes["blocksize"]
    n, c, h, w = x.shape
    if node.attributes.get("mode", "DCR") == "DCR":
        parts = nnp.transpose(nnp.reshape(x, (n, block, block, c // block**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        parts = nnp.transpose(nnp.reshape(x, (n, c // block**2, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return nnp.reshape(parts, (n, c // block**2, h * block, w * block))


@operator("SpaceToDepth")
def space_to_depth(node: Node, x: Any) -> Any:
    block = node.attributes["blocksize"]
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if node.attributes.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = nnp.transpose(nnp.reshape(x, (n, c, h // block, block, w // block, block)), order)
    return nnp.reshape(parts, (n, c * block**2, h // block, w // block))


@operator("ReverseSequence")
def reverse_sequence(node: Node, x: Any, lengths: Any) -> Any:
    time, batch = node.attributes.get("time_axis", 0), node.attributes.get("batch_axis", 1)
    moved = nnp.moveaxis(nnp.asarray(x), (batch, time), (0, 1))
    steps = np.arange(moved.shape[1])
    ends = nnp.expand_dims(nnp.astype(lengths, "int64"), 1)
    places = nnp.where(steps < ends, ends - 1 - steps, steps)
    turned = nnc.vmap(lambda row, order: nnp.take(row, order, axis=0))(moved, places)
    return nnp.moveaxis(turned, (0, 1), (batch, time))


@operator("CenterCropPad")
def center_crop_pad(node: Node, x: Any, sizes: Any) -> Any:
    wanted = integers(sizes, "the sizes of CenterCropPad")
    axes = node.attributes.get("axes", range(len(x.shape)))
    x = nnp.asarray(x)
    for axis, size in zip(axes, wanted, strict=True):
        less, more = max(x.shape[axis] - size, 0), max(size - x.shape[axis], 0)
        index = [slice(None)] * x.ndim
        index[axis] = slice(less // 2, less // 2 + min(size, x.shape[axis]))
        widths = [(0, 0)] * x.ndim
        widths[axis] = (more // 2, more - more // 2)
        x = nnp.pad(x[tuple(index)], widths)
    return x
