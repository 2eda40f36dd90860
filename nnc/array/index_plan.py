"""Reads NumPy's index expressions into plans.

A plan is a box of x (slices and numbers; view commands read it) and the arrays that pick positions of some of the box's axes
(one gather reads, one scatter writes them).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from nnc.array.promote import as_operand, astype, broadcast_shapes, broadcast_to_shape
from nnc.base import dtypes
from nnc.base.context import get_context
from nnc.base.records import record
from nnc.base.traced_size import as_index, is_traced
from nnc.commands.constants import full_like
from nnc.commands.elementwise import add, less, select
from nnc.device.dlpack import is_foreign
from nnc.errors import ArgumentError, IndexingError, OutOfBoundsError, TraceError, user_error
from nnc.graph import TensorSpec, spec_of
from nnc.graph.rules import Value

Shape = tuple[int, ...]
NDArray = np.ndarray[Any, Any]


# -- reading an index expression ---------------------------------------------------------------------------------------


@record
class _Mask:
    """A boolean index; it stands for as many axes as it has."""

    values: NDArray


@record
class Picked:
    """An integer array (or a 0-d tracer) that indexes one axis."""

    values: Value


_Entry = int | slice | None | EllipsisType | _Mask | Picked


def read_entry(entry: Any, where: str) -> _Entry:
    """One part of an index, sorted by its kind; numbers that are known are ints."""
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    if isinstance(entry, (bool, np.bool_)):
        return _Mask(np.asarray(entry))
    if isinstance(entry, (int, np.integer)):
        return as_index(entry)
    if isinstance(entry, (list, tuple)):
        array = as_operand(entry, where, "index")
        entry = np.asarray(array, np.int64) if isinstance(array, np.ndarray) and not array.size else array
    elif is_foreign(type(entry)):
        entry = as_operand(entry, where, "index")
    elif not hasattr(entry, "spec") and not isinstance(entry, np.ndarray) and hasattr(entry, "__index__"):
        return operator.index(entry)
    elif isinstance(entry, (float, complex, str, bytes)) or not (hasattr(entry, "spec") or hasattr(entry, "__array__")):
        raise bad_type(where, f"{entry!r} ({type(entry).__name__})")
    else:
        entry = as_operand(entry, where, "index")
    return _read_array(entry, where)


def bad_type(where: str, what: str) -> IndexingError:
    """Returns the error for something that cannot index."""
    fix = "index with integers, slices, None, ..., integer arrays or boolean masks; convert floats with x.astype(int)."
    return user_error(IndexingError, where, f"{what} is no index.", fix=fix)


def _read_array(entry: Value, where: str) -> _Entry:
    spec = spec_of(entry)
    if dtypes.is_bool(spec.dtype):
        return _Mask(_known_mask(entry, where))
    if not dtypes.is_integer(spec.dtype):
        raise bad_type(where, f"an array {spec}")
    if hasattr(entry, "spec") and get_context().staging is None and getattr(entry, "owner", None) is None:
        entry = np.asarray(entry)  # nobody traces: the values are at hand
    if isinstance(entry, (np.ndarray, np.generic)) and spec.shape == ():
        return int(entry)
    return Picked(entry)


def _known_mask(mask: Value, where: str) -> NDArray:
    try:
        return np.asarray(mask)
    except TraceError as error:
        problem = "a boolean mask that is being traced has no values yet, so the result's shape is unknown."
        fix = "use nnp.where(mask, x, 0) or x.at[mask].set(number), which keep the shape, or nnp.nonzero(mask, size=n)."
        raise user_error(TraceError, where, problem, operands={"mask": spec_of(mask)}, fix=fix) from error


@record
class Plan:
    """An index of an array.

    `start`, `limit`, `stride` is the box that is read and `flips` its axes that are reversed; `shape` is that box without the
    axes that a number picks and with new axes: the view. `arrays`, of one shape, index `axes` of the view; in the result
    their axes stand before the axis `at` of the view's others.
    """

    start: Shape
    limit: Shape
    stride: Shape
    flips: Shape
    shape: Shape
    axes: Shape
    arrays: tuple[Value, ...]
    at: int

    @property
    def box(self) -> Shape:
        """Shape of the elements read, before axes are dropped and added."""
        return tuple(-(-(b - a) // s) for a, b, s in zip(self.start, self.limit, self.stride, strict=True))

    @property
    def picked(self) -> Shape:
        """Shape of the index arrays."""
        return np.shape(self.arrays[0]) if self.arrays else ()

    @property
    def rest(self) -> Shape:
        """Sizes of the view's axes that no array indexes."""
        return tuple(n for axis, n in enumerate(self.shape) if axis not in self.axes)

    @property
    def result(self) -> Shape:
        """Shape of the selected elements."""
        return (*self.rest[: self.at], *self.picked, *self.rest[self.at :])


def _expand(spec: TensorSpec, index: Any, where: str) -> list[_Entry]:
    """Returns the parts of an index, with `...` replaced by whole slices."""
    entries = [read_entry(entry, where) for entry in (index if isinstance(index, tuple) else (index,))]
    used = sum(_axes_of(entry) for entry in entries)
    dots = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise user_error(IndexingError, where, "an index may have one `...` only.", fix="write the other axes as `:`.")
    if used > spec.ndim:
        problem = f"{used} indices for an array of {spec.ndim} axes."
        fix = "give at most one index for each axis; None adds an axis."
        raise user_error(IndexingError, where, problem, operands={"x": spec}, fix=fix)
    missing: list[_Entry] = [slice(None)] * (spec.ndim - used)
    if not dots:
        return entries + missing
    # An empty `...` still separates the arrays on its two sides
    return entries[: dots[0]] + (missing or [Ellipsis]) + entries[dots[0] + 1 :]


def _axes_of(entry: _Entry) -> int:
    return 0 if entry is None or entry is Ellipsis else entry.values.ndim if isinstance(entry, _Mask) else 1


def make_plan(spec: TensorSpec, index: Any, mode: str, where: str) -> Plan:
    """Makes the plan of an index into an array of `spec`.

    Raises:
        OutOfBoundsError: a known index is out of range, with mode "error".
        IndexingError: the index is wrong.
    """
    box: list[tuple[int, int, int]] = []  # start, limit and stride of each axis of x
    flips: list[int] = []
    shape: list[int] = []
    axes: list[int] = []
    arrays: list[Value] = []
    advanced: list[int] = []  # positions, in the index, of numbers and arrays
    at: int | None = None
    for position, entry in enumerate(_expand(spec, index, where)):
        axis = len(box)
        if isinstance(entry, int):
            number = _resolve(entry, spec.shape[axis], axis, mode, where)
            entry = Picked(np.asarray(entry)) if number is None else number
        if isinstance(entry, (int, _Mask, Picked)):
            at = len(shape) - len(axes) if at is None else at
            advanced.append(position)
        if entry is None:
            shape.append(1)
        elif isinstance(entry, (int, slice)):
            a, b, step = (
                (entry, entry + 1, 1) if isinstance(entry, int) else _resolve_slice(entry, spec.shape[axis], where)
            )
            box.append((a, b, abs(step)))
            flips += [axis] if step < 0 else []
            shape += [] if isinstance(entry, int) else [-(-(b - a) // abs(step))]
        elif isinstance(entry, (_Mask, Picked)):
            parts = _mask_positions(entry.values, spec, axis, where) if isinstance(entry, _Mask) else (entry.values,)
            if isinstance(entry, _Mask) and not entry.values.ndim:  # picks all or nothing of a new axis
                axes.append(len(shape))
                shape.append(1)
                arrays.append(parts[0])
                continue
            for part, size in zip(parts, spec.shape[axis:], strict=False):
                arrays.append(from_front(part, size, len(box), mode, where))
                axes.append(len(shape))
                shape.append(size)
                box.append((0, size, 1))
    if at is None or advanced != list(range(advanced[0], advanced[-1] + 1)):
        at = 0  # arrays that stand apart: their axes come first
    start, limit, stride = (tuple(corner[i] for corner in box) for i in range(3))
    return Plan(start, limit, stride, tuple(flips), tuple(shape), tuple(axes), _common(arrays, where), at)


def _resolve(number: int, size: int, axis: int, mode: str, where: str) -> int | None:
    """Returns a known number, counted from the front and within the axis; None where `mode` drops or fills it."""
    found = number + size if number < 0 else number
    if 0 <= found < size:
        return found
    if mode == "error" or (mode in ("clip", "wrap") and not size):
        raise _out_of_bounds(where, number, axis, size)
    return {"clip": min(max(found, 0), size - 1), "wrap": number % size}.get(mode) if size else None


def _out_of_bounds(where: str, number: int, axis: int, size: int) -> OutOfBoundsError:
    problem = f"index {number} is out of range for axis {axis}, which has size {size}."
    fix = (
        f"use an index from {-size} to {size - 1}, or mode='clip', 'wrap' or 'fill' with x.at[...]."
        if size
        else "an axis of size 0 has no element to index."
    )
    return user_error(OutOfBoundsError, where, problem, fix=fix)


def _resolve_slice(entry: slice, size: int, where: str) -> tuple[int, int, int]:
    """Start and limit of the positions in rising order, and the step with its sign."""
    try:
        parts = [None if part is None else as_index(part) for part in (entry.start, entry.stop, entry.step)]
    except TraceError as error:
        fix = "use nnc.dynamic_slice(x, starts, sizes), whose starts may be traced."
        raise user_error(TraceError, where, "the bounds of a slice must be known when tracing.", fix=fix) from error
    except TypeError as error:
        raise bad_type(where, f"{entry}") from error
    if parts[2] == 0:
        raise user_error(
            ArgumentError, where, "the step of a slice is 0.", fix="use a step of 1 or more, or a negative one."
        )
    if parts[2] is None and any(map(is_traced, (*parts, size))):
        return *_clipped(parts[0], parts[1], size), 1
    first, stop, step = slice(*parts).indices(size)
    count = len(range(first, stop, step))
    if not count:
        return 0, 0, 1
    last = first + (count - 1) * step
    return min(first, last), max(first, last) + 1, step


def _clipped(first: int | None, stop: int | None, size: int) -> tuple[int, int]:
    """Returns the bounds of a slice of step 1 for sizes of any class."""
    bounds = []
    for bound in (0 if first is None else first, size if stop is None else stop):
        bound = bound + size if bound < 0 else bound
        bounds.append(0 if bound < 0 else size if bound > size else bound)
    return (bounds[0], bounds[1]) if bounds[0] < bounds[1] else (0, 0)


def _mask_positions(mask: NDArray, spec: TensorSpec, axis: int, where: str) -> tuple[NDArray, ...]:
    sizes = spec.shape[axis : axis + mask.ndim]
    # The Array API standard lets an axis of a mask be empty, which then selects nothing.
    if len(sizes) != mask.ndim or any(found not in (n, 0) for found, n in zip(mask.shape, sizes, strict=True)):
        problem = f"a mask of shape {mask.shape} does not fit axes of sizes {sizes}."
        fix = "use a mask with the sizes of the axes that it stands for."
        raise user_error(IndexingError, where, problem, operands={"x": spec}, fix=fix)
    return mask.nonzero() if mask.ndim else (np.zeros(int(mask), np.int64),)


def from_front(index: Value, size: int, axis: int, mode: str, where: str) -> Value:
    """Returns an index array whose negative entries are replaced by those counted from the front; known ones are checked."""
    dtype = spec_of(index).dtype
    if isinstance(index, (np.ndarray, np.generic)):
        known = np.asarray(index)
        outside = known[(known < -size) | (known >= size)]
        if mode == "error" and outside.size:
            raise _out_of_bounds(where, int(outside.flat[0]), axis, size)
        wide = known.astype(np.uint64 if dtype == dtypes.uint64 else np.int64)
        return np.where(wide < 0, wide + wide.dtype.type(size), wide)
    if dtype not in dtypes.SIGNED or mode == "wrap":
        return index
    if size > np.iinfo(dtype).max:
        index = astype(index, dtypes.int64)
    return select(less(index, full_like(index, 0)), add(index, full_like(index, size)), index)


def _common(arrays: Sequence[Value], where: str) -> tuple[Value, ...]:
    """Returns the index arrays in one shape."""
    shapes = [np.shape(array) for array in arrays]
    try:
        shape = broadcast_shapes(*shapes)
    except ValueError:
        problem = f"index arrays of shapes {' and '.join(map(str, shapes))} do not broadcast together."
        fix = "make their sizes equal or 1; nnp.ix_(rows, columns) makes arrays that select rows and columns."
        raise user_error(IndexingError, where, problem, fix=fix) from None
    return tuple(
        np.array(np.broadcast_to(a, shape)) if isinstance(a, np.ndarray) else broadcast_to_shape(a, shape)
        for a in arrays
    )
