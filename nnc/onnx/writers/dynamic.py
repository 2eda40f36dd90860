"""Named sizes: a function is traced for several of them, and constants that differ become sums of multiples of the sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import helper

from nnc.errors import UnsupportedError, user_error
from nnc.onnx.writers.writer import Writer

# Sizes for which the function is traced, so that no number of another origin is likely to be one of them.
SMALL, LARGE = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41), (251, 257, 263, 269, 271, 277, 281, 283, 293, 307)
PRIMES = (53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167)


NDArray = np.ndarray[Any, Any]


class Axis(NamedTuple):
    """The place of a named size: the input and its axis."""

    name: str
    place: str
    axis: int


class Sum(NamedTuple):
    """A constant as a sum of multiples of the sizes: the slopes by the sizes' names, and the sum's value.

    `form` is "sum"; "inverse", one divided by it; or "scale", the power of 2 by which nnc keeps means of so many numbers finite.
    """

    slopes: Mapping[str, NDArray]
    value: NDArray
    form: str


def compare(
    base: Writer, others: Sequence[tuple[Mapping[str, int], Writer]], sizes: Mapping[str, int]
) -> dict[str, Sum]:
    """Returns the constants of `base` that depend on sizes.

    `others` are traces of other sizes: one for each name with that alone larger, then those with all changed, which prove the form.

    Raises:
        UnsupportedError: the traces differ in more than constants, or these are no such sums.
    """
    for changed, other in others:
        if _form(base) != _form(other) or list(base.constants) != list(other.constants):
            raise _refused(changed, "it traces to other commands for other sizes")
    found: dict[str, Sum] = {}
    for name, value in base.constants.items():
        if any(other.constants[name].shape != value.shape for _, other in others):
            raise _refused(others[0][0], "a constant array has another shape for other sizes")
        if all(_equal(other.constants[name], value) for _, other in others):
            continue
        values = [value, *(other.constants[name] for _, other in others)]
        tried = [dict(sizes), *(changed for changed, _ in others)]
        form = _sum(values, tried, len(sizes)) or _inverse(values, tried, len(sizes)) or _scale(values, tried, found)
        if form is None:
            raise _refused(others[-1][0], "a number in it is no sum of multiples of the sizes")
        found[name] = form
    return found


def _sum(values: Sequence[NDArray], sizes: Sequence[Mapping[str, int]], names: int) -> Sum | None:
    """Fits the sum to the first values of a constant; None where it is none, or the other values are not the sum's."""
    first, *wide = (value.astype(np.float64) for value in values)
    slopes = {}
    for value, now in zip(wide[:names], sizes[1:], strict=False):
        ((name, size),) = ((name, size) for name, size in now.items() if size != sizes[0][name])
        slopes[name] = (value - first) / (size - sizes[0][name])
    found = Sum(slopes, first, "sum")
    is_whole = all(np.array_equal(number, np.round(number)) for number in (first, *slopes.values()))
    is_proved = all(
        np.array_equal(_value(found, sizes[0], now), value) for now, value in zip(sizes[1:], wide, strict=True)
    )
    return found if is_whole and is_proved else None


def _value(form: Sum, base: Mapping[str, int], sizes: Mapping[str, int]) -> NDArray:
    changes = (slope * (sizes[name] - base[name]) for name, slope in form.slopes.items())
    return np.asarray(form.value + sum(changes))


def _inverse(values: Sequence[NDArray], sizes: Sequence[Mapping[str, int]], names: int) -> Sum | None:
    if values[0].dtype.kind != "f" or not all(value.all() for value in values):
        return None
    whole, one = [np.round(1 / value.astype(np.float64)) for value in values], values[0].dtype.type(1)
    if not all(number.all() for number in whole):
        return None
    if not all(np.array_equal(one / n.astype(v.dtype), v) for n, v in zip(whole, values, strict=True)):
        return None
    found = _sum(whole, sizes, names)
    return found and found._replace(form="inverse")


def _scale(values: Sequence[NDArray], sizes: Sequence[Mapping[str, int]], found: Mapping[str, Sum]) -> Sum | None:
    """Finds the sum whose power of 2 a number is, among those that the model has: the divisor of a mean."""
    if values[0].ndim or values[0].dtype.kind != "f":
        return None
    for form in found.values():
        if form.form == "sum" and not form.value.ndim:
            scales = [2.0 ** -np.ceil(np.log2(_value(form, sizes[0], now))) for now in sizes]
            if scales == [float(value) for value in values]:
                return form._replace(form="scale")
    return None


def write_sizes(base: Writer, moving: Mapping[str, Sum], axes: Sequence[Axis], sizes: Mapping[str, int]) -> list[Any]:
    """Takes constants that depend on sizes out of a writer; returns the nodes that compute them from the inputs' shapes."""
    writer = Writer(base.opset, base)
    known: dict[str, str] = {}
    for name, place, axis in axes:
        if name not in known:
            known[name] = writer.op("Gather", writer.op("Shape", place), writer.constant(np.int64(axis)), axis=0)
    for name, (slopes, value, form) in moving.items():
        dtype = base.constants.pop(name).dtype
        rest = value - sum(slope * sizes[size] for size, slope in slopes.items())
        total = writer.constant(np.asarray(rest).astype(np.int64))
        for size, slope in slopes.items():
            if slope.any():
                total = writer.op("Add", total, writer.op("Mul", known[size], writer.constant(slope.astype(np.int64))))
        result = total if dtype == np.int64 else writer.cast(total, dtype)
        if form == "scale":  # the logarithm of a power of 2 may lie a little above a whole number
            two, little = writer.constant(np.float64(2)), writer.constant(np.float64(1e-12))
            power = writer.op("Div", writer.op("Log", writer.cast(total, np.float64)), writer.constant(np.log(2.0)))
            power = writer.op("Ceil", writer.op("Sub", power, little))
            result = writer.cast(writer.op("Pow", two, writer.op("Neg", power)), dtype)
        elif form == "inverse":
            result = writer.op("Reciprocal", result)
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
