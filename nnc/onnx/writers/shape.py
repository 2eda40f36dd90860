"""Commands that move elements, and those that make arrays of a shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc.commands.elementwise import maximum, minimum, mul
from nnc.commands.shape import concatenate, slice_axis
from nnc.graph import Node
from nnc.onnx.writers.table import kind, writes
from nnc.onnx.writers.writer import Writer

Names = list[str]


def shape_of(node: Node, operand: int = 0) -> tuple[int, ...]:
    """Returns the shape of an operand."""
    return tuple(node.inputs[operand].spec.shape)


def reshaped(writer: Writer, x: str, shape: tuple[int, ...]) -> str:
    """Adds a reshape; sizes of 0 are sizes."""
    zeros = {"allowzero": 1} if 0 in shape else {}
    return str(writer.op("Reshape", x, writer.integers(shape), **zeros))


@writes("reshape")
def _reshape(writer: Writer, node: Node, x: Names) -> str:
    return reshaped(writer, x[0], tuple(node.params["shape"]))


@writes("broadcast_to")
def _broadcast_to(writer: Writer, node: Node, x: Names) -> str:
    shape, axes, own = tuple(node.params["shape"]), node.params.get("axes"), shape_of(node)
    found = x[0]
    if axes is not None:
        spread = [1] * len(shape)
        for axis, size in zip(axes, own, strict=True):
            spread[axis] = size
        found = reshaped(writer, found, tuple(spread)) if tuple(spread) != own else found
    return str(writer.op("Expand", found, writer.integers(shape)))


@writes("transpose", "reorder")
def _transpose(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Transpose", x[0], perm=list(node.params["permutation"])))


def sliced(writer: Writer, x: str, starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> str:
    """Adds a slice."""
    return str(writer.op("Slice", x, *map(writer.integers, (starts, ends, axes, steps))))


@writes("slice")
def _slice(writer: Writer, node: Node, x: Names) -> str:
    starts, limits = list(node.params["start"]), list(node.params["limit"])
    return sliced(writer, x[0], starts, limits, list(range(len(starts))), list(node.params["stride"]))


@writes("flip")
def _flip(writer: Writer, node: Node, x: Names) -> str:
    axes = [axis % len(shape_of(node)) for axis in node.params["axes"]]
    if not axes:
        return x[0]
    least = np.iinfo(np.int64).min
    return sliced(writer, x[0], [-1] * len(axes), [least] * len(axes), axes, [-1] * len(axes))


@writes("concatenate")
def _concatenate(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Concat", *x, axis=node.params["axis"]))


def padded(writer: Writer, x: str, value: str, low: list[int], high: list[int]) -> str:
    """Adds a padding; negative widths crop."""
    return str(writer.op("Pad", x, writer.integers([*low, *high]), value))


@writes("pad")
def _pad(writer: Writer, node: Node, x: Names) -> str:
    """Elements between others are padding of an axis of their own."""
    shape, found = list(shape_of(node)), x[0]
    for axis, between in enumerate(node.params["interior"]):
        if between and shape[axis]:
            split = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
            high = [0] * len(split)
            high[axis + 1] = between
            found = padded(writer, reshaped(writer, found, tuple(split)), x[1], [0] * len(split), high)
            shape[axis] *= between + 1
            found = reshaped(writer, found, tuple(shape))
            shape[axis] -= between
            found = sliced(writer, found, [0], [shape[axis]], [axis], [1])
    low, high = list(node.params["low"]), list(node.params["high"])
    return padded(writer, found, x[1], low, high) if any(low) or any(high) else found


@writes("assemble")
def _assemble(writer: Writer, node: Node, x: Names) -> str:
    """Adds up the parts, each padded with zeros to the whole shape; they do not overlap."""
    whole, dtype, found = node.params["shape"], np.dtype(node.params["dtype"]), ""
    is_bool = dtype.kind == "b"
    zero = writer.constant(np.zeros((), np.uint8 if is_bool else dtype))
    for operand, (part, start) in enumerate(zip(x, node.params["starts"], strict=True)):
        high = [size - at - own for size, at, own in zip(whole, start, shape_of(node, operand), strict=True)]
        name = padded(writer, writer.cast(part, np.uint8) if is_bool else part, zero, list(start), high)
        found = writer.op("Add", found, name) if found else name
    if not found:
        return str(writer.op("Expand", writer.constant(np.zeros((), dtype)), writer.integers(whole)))
    return writer.cast(found, dtype) if is_bool else found


@writes("full")
def _full(writer: Writer, node: Node, x: Names) -> str:
    value = writer.constant(np.asarray(node.params["value"], node.outputs[0].spec.dtype))
    return str(writer.op("Expand", value, writer.integers(node.params["shape"])))


@writes("iota")
def _iota(writer: Writer, node: Node, x: Names) -> str:
    shape, axis = tuple(node.params["shape"]), node.params["axis"]
    size = writer.op("Squeeze", writer.integers([shape[axis]]), writer.integers([0]))
    count = writer.op("Range", writer.constant(np.int64(0)), size, writer.constant(np.int64(1)))
    found = writer.cast(count, node.params["dtype"])
    if len(shape) == 1:
        return found
    row = reshaped(writer, found, tuple(s if a == axis else 1 for a, s in enumerate(shape)))
    return str(writer.op("Expand", row, writer.integers(shape)))


# -- reductions --------------------------------------------------------------------------------------------------------

_REDUCTIONS = {
    "reduce_sum": "ReduceSum", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd",
    "reduce_and": "ReduceMin", "reduce_or": "ReduceMax",
}  # fmt: skip


@writes(*_REDUCTIONS)
def _reduce(writer: Writer, node: Node, x: Names) -> str:
    operator, axes, name = _REDUCTIONS[node.command.name], list(node.params["axes"]), node.command.name
    if not axes:
        return x[0]
    dtype = node.inputs[0].spec.dtype
    is_bool = kind(node) == "b"
    narrow = is_bool or (np.dtype(dtype).itemsize < 4 and kind(node) in "iu")  # engines reduce wider integers alone
    operand = writer.cast(x[0], np.int32 if is_bool else np.int64) if narrow else x[0]
    if operator == "ReduceSum" or writer.opset >= 18:
        found = writer.op(operator, operand, writer.integers(axes), keepdims=0)
    else:
        found = writer.op(operator, operand, axes=axes, keepdims=0)
    if kind(node) == "f" and name in ("reduce_max", "reduce_min"):  # engines differ in whether NaN goes through
        spoilt = writer.op(
            "ReduceSum",
            writer.op("Where", writer.op("IsNaN", x[0]), x[0], writer.constant(np.zeros((), dtype))),
            writer.integers(axes),
            keepdims=0,
        )
        found = writer.op("Where", writer.op("IsNaN", spoilt), spoilt, found)
    return writer.cast(found, dtype) if narrow else str(found)


@writes("argmax", "argmin")
def _arg(writer: Writer, node: Node, x: Names) -> str:
    operand = x[0] if kind(node) != "b" else writer.cast(x[0], np.int32)
    operator = "ArgMax" if node.command.name == "argmax" else "ArgMin"
    found = writer.op(operator, operand, axis=node.params["axis"], keepdims=0)
    return writer.cast(found, node.outputs[0].spec.dtype)


@writes("cumsum")
def _cumsum(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("CumSum", x[0], writer.constant(np.int64(node.params["axis"]))))


@writes("cumprod", "cummax", "cummin")
def _cumulative(writer: Writer, node: Node, x: Names) -> list[str]:
    """Joins each element with those 1, 2, 4, … places before it (Blelloch, 1990)."""
    axis, join = node.params["axis"], {"cumprod": mul, "cummax": maximum, "cummin": minimum}[node.command.name]

    def compute(found: Any) -> list[Any]:
        size, step = shape_of(node)[axis], 1
        while step < size:
            joined = join(slice_axis(found, axis, step, size), slice_axis(found, axis, 0, size - step))
            found, step = concatenate(slice_axis(found, axis, 0, step), joined, axis=axis), 2 * step
        return [found]

    return writer.computed(node, x, compute)


@writes("det")
def _det(writer: Writer, node: Node, x: Names) -> str:
    return str(writer.op("Det", x[0]))


@writes("softmax", "log_softmax")
def _softmax(writer: Writer, node: Node, x: Names) -> str | list[str]:
    axes = node.params["axes"]
    if len(axes) != 1:
        return writer.by_others(node, x)
    return str(writer.op("Softmax" if node.command.name == "softmax" else "LogSoftmax", x[0], axis=axes[0]))


# -- sorting -----------------------------------------------------------------------------------------------------------


def _top(writer: Writer, node: Node, x: Names, count: int, axis: int, largest: bool) -> Names:
    """Engines order floats and signed integers; unsigned ones of 64 bits keep their order with the first bit turned over."""
    operand, dtype = x[0], np.dtype(node.inputs[0].spec.dtype)
    is_cast = kind(node) in "bu" or (kind(node) == "i" and dtype.itemsize < 4)
    least = writer.constant(np.int64(np.iinfo(np.int64).min)) if dtype == np.uint64 else ""
    operand = writer.cast(operand, np.int64) if is_cast else operand
    operand = writer.op("Add", operand, least) if least else operand
    values, places = writer.op(
        "TopK", operand, writer.integers([count]), outputs=2, axis=axis, largest=int(largest), sorted=1
    )
    values = writer.op("Add", values, least) if least else values
    return [writer.cast(values, dtype) if is_cast else values, places]


@writes("sort", "argsort")
def _sort(writer: Writer, node: Node, x: Names) -> str:
    axis = node.params["axis"]
    values, places = _top(writer, node, x, shape_of(node)[axis], axis, bool(node.params["descending"]))
    return values if node.command.name == "sort" else writer.cast(places, node.outputs[0].spec.dtype)


@writes("top_k")
def _top_k(writer: Writer, node: Node, x: Names) -> Names:
    values, places = _top(writer, node, x, node.params["k"], -1, True)
    return [values, writer.cast(places, node.outputs[1].spec.dtype)]
