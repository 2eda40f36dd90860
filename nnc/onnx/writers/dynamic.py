"""Named sizes: a function is traced for several of them, and constants that differ become sums of multiples of the sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import helper

from nnc.errors import UnsupportedError, user_error
from nnc.onnx.writers.writer import Writer

# Sizes for which the function is traced, so that no number of another origin is likely to be one of them.
PRIMES = (53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167)


class Axis(NamedTuple):
    """The place of a named size: the input and its axis."""

    name: str
    place: str
    axis: int


def compare(
    base: Writer, others: Sequence[tuple[Mapping[str, int], Writer]], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the constants of `base` that depend on sizes: for each its slopes by the sizes' names, arrays of its shape.

    `others` are traces of other sizes: one for each name with that alone larger, and one more with all, which proves the form.

    Raises:
        UnsupportedError: the traces differ in more than constants, or these are no such sums.
    """
    for changed, other in others:
        if _form(base) != _form(other) or list(base.constants) != list(other.constants):
            raise _refused(changed, "it traces to other commands for other sizes")
    found: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
    for name, value in base.constants.items():
        if any(other.constants[name].shape != value.shape for _, other in others):
            raise _refused(others[0][0], "a constant array has another shape for other sizes")
        if all(_equal(other.constants[name], value) for _, other in others):
            continue
        wide = value.astype(np.float64)
        slopes = {}
        for changed, other in others[:-1]:
            ((size, larger),) = ((key, now) for key, now in changed.items() if now != sizes[key])
            slopes[size] = (other.constants[name].astype(np.float64) - wide) / (larger - sizes[size])
        changed, last = others[-1]
        expected = wide + sum(slope * (changed[size] - sizes[size]) for size, slope in slopes.items())
        is_whole = all(np.array_equal(slope, np.round(slope)) for slope in slopes.values()) and np.array_equal(
            wide, np.round(wide)
        )
        if not is_whole or not np.array_equal(expected, last.constants[name].astype(np.float64)):
            raise _refused(changed, "a number in it is no sum of multiples of the sizes")
        found[name] = {size: slope for size, slope in slopes.items() if slope.any()}
    return found


def write_sizes(
    base: Writer, moving: Mapping[str, Mapping[str, Any]], axes: Sequence[Axis], sizes: Mapping[str, int]
) -> list[Any]:
    """Takes constants that depend on sizes out of a writer; returns the nodes that compute them from the inputs' shapes."""
    writer = Writer(base.opset, base)
    known: dict[str, str] = {}
    for name, place, axis in axes:
        if name not in known:
            known[name] = writer.op("Gather", writer.op("Shape", place), writer.constant(np.int64(axis)), axis=0)
    for name, slopes in moving.items():
        value = base.constants.pop(name)
        whole = np.round(value.astype(np.float64))
        for size, slope in slopes.items():
            whole = whole - slope * sizes[size]
        total = writer.constant(whole.astype(np.int64))
        for size, slope in slopes.items():
            total = writer.op("Add", total, writer.op("Mul", known[size], writer.constant(slope.astype(np.int64))))
        result = total if value.dtype == np.int64 else writer.cast(total, value.dtype)
        writer.nodes.append(helper.make_node("Identity", [result], [name]))
    return writer.nodes


def _form(writer: Writer) -> list[bytes]:
    return [node.SerializeToString(deterministic=True) for node in writer.nodes]


def _equal(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    return x.dtype == y.dtype and x.tobytes() == y.tobytes()


def _refused(sizes: Mapping[str, int], reason: str) -> UnsupportedError:
    shown = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    fix = "leave the axis out of dynamic_axes, or write the function so that sizes are added and multiplied by numbers alone."
    return user_error(UnsupportedError, "nnc.onnx.export", f"dynamic_axes: {reason} ({shown}).", fix=fix)
