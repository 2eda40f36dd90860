"""Tapes: sequences whose length is known only at run time, which loops of unknown length write and read.

In graphs a tape is a 0-d value of dtype `TAPE`, with leading axes under vmap, its *handle*, which its elements have, too. The
number 0 stands for a tape of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from nnc.base.context import get_context
from nnc.base.dtypes import TAPE
from nnc.base.fork import new_rlock
from nnc.base.machine import check_memory
from nnc.commands.rules import add_tangents, batch_leading, check_same_spec, each, linear_in_all, register_linear, zeros
from nnc.errors import ArgumentError, OutOfMemoryError, user_error
from nnc.graph import Command, TensorSpec, register
from nnc.graph.rules import Derivative, Rules

NDArray = np.ndarray[Any, Any]
Handles = tuple[tuple[int, ...], ...]  # the leading axes of each tape that a loop yields; () where none has any


class Spare:
    """Arrays of rows that one program's calls use one after the other: the system takes long to give fresh memory."""

    MOST_BYTES = 1 << 26  # of all of them; others go back to the system

    def __init__(self) -> None:
        self._arrays: dict[Any, list[NDArray]] = {}
        self._bytes = 0
        self._lock = new_rlock()  # a tape may be dropped, and give memory back, while another one takes some

    def take(self, count: int, shape: tuple[int, ...], dtype: Any) -> NDArray:
        """Returns an array of at least `count` rows, which may hold anything."""
        with self._lock:
            arrays = self._arrays.get((shape, dtype))
            rows = arrays.pop() if arrays else None
            self._bytes -= 0 if rows is None else rows.nbytes
        return _rows_of(count, shape, dtype) if rows is None or len(rows) < count else rows

    def give(self, rows: NDArray) -> None:
        """Takes an array back that nobody reads or writes any more."""
        with self._lock:
            if self._bytes + rows.nbytes <= self.MOST_BYTES:
                self._arrays.setdefault((rows.shape[1:], rows.dtype), []).append(rows)
                self._bytes += rows.nbytes


class Tape:
    """Rows of one spec, in memory that grows geometrically (or is taken at once where `capacity` is known).

    Rows may be tapes. Where an index is followed by `...`, NumPy reads and writes arrays there, too, and not elements. With
    `spare`, the memory comes from there, and goes back.
    """

    __slots__ = ("_meter", "_rows", "_spare", "length")

    def __init__(self, shape: tuple[int, ...], dtype: Any, capacity: int = 0, spare: Spare | None = None) -> None:
        self._spare = spare
        self._rows = _rows_of(capacity, shape, dtype) if spare is None else spare.take(capacity, shape, dtype)
        self.length = 0
        self._meter = get_context().meter
        if self._meter is not None:
            self._meter.add(self._rows.nbytes)

    def __del__(self) -> None:
        if self._meter is not None:
            self._meter.add(-self._rows.nbytes)
        if self._spare is not None:
            self._spare.give(self._rows)

    @property
    def capacity(self) -> int:
        """Rows that fit into the memory taken."""
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes taken, used or not."""
        return self._rows.nbytes

    def write(self, index: int, row: NDArray) -> None:
        """Sets a row; rows between the present end and `index` are 0 until written."""
        self._grow(index + 1)
        if index >= self.length:
            self._rows[self.length : index] = 0
            self.length = index + 1
        self._rows[index, ...] = row

    def room(self, start: int, count: int) -> NDArray:
        """Returns the memory of so many rows, for a caller that writes them and sets the length."""
        self._grow(start + count)
        return self._rows[start : start + count]

    def trim(self) -> None:
        """Returns memory of which less than half is used."""
        if 2 * self.length < len(self._rows):
            large, self._rows = self._rows, self.rows().copy()
            if self._meter is not None:
                self._meter.add(self._rows.nbytes - large.nbytes)
            if self._spare is not None:
                self._spare.give(large)
                self._spare = None

    def _grow(self, count: int) -> None:
        if count > len(self._rows):
            grown = _rows_of(max(count, 2 * len(self._rows), 4), self._rows.shape[1:], self._rows.dtype)
            grown[: self.length] = self._rows[: self.length]
            if self._meter is not None:
                self._meter.add(grown.nbytes - self._rows.nbytes)
            self._rows = grown

    def read(self, index: int) -> NDArray:
        """Returns a row."""
        return self._rows[index, ...]

    def rows(self) -> NDArray:
        """Returns all rows."""
        return self._rows[: self.length]

    @classmethod
    def of(cls, rows: NDArray) -> Tape:
        """Returns a tape of these rows."""
        tape = cls(rows.shape[1:], rows.dtype, len(rows))
        tape._rows[...], tape.length = rows, len(rows)
        return tape

    def each(self, numbers: Callable[..., NDArray], tapes: Callable[..., NDArray], *others: Tape) -> Tape | int:
        """Returns a tape of the results of `numbers` for all rows, or, where the rows are tapes, `tapes` of one after the other."""
        rows = [tape.rows() for tape in (self, *others)]
        if self._rows.dtype != TAPE:
            return Tape.of(numbers(*rows))
        nothing = np.zeros(self._rows.shape[1:], TAPE)
        made = [tapes(*(row[i, ...] if i < len(row) else nothing for row in rows)) for i in range(self.length)]
        return Tape.of(np.stack(made)) if made else 0


def _rows_of(count: int, shape: tuple[int, ...], dtype: Any) -> NDArray:
    """Allocates memory for rows.

    Raises:
        OutOfMemoryError: the system has no memory left.
    """
    try:
        check_memory(count * math.prod(shape) * np.dtype(dtype).itemsize)
        return np.empty((count, *shape), dtype)
    except MemoryError as error:
        problem = f"the residuals of {count:,} iterations, for its reverse pass, take all memory: {error}."
        fix = (
            'pass checkpoint="sqrt" to the loop (a scan or a while_loop), which keeps the residuals of few iterations.'
        )
        raise user_error(OutOfMemoryError, "loop", problem, fix=fix) from None


def tape_spec(handle: tuple[int, ...] = ()) -> TensorSpec:
    """Returns the spec of a tape; `handle` are the leading axes that vmap gave it."""
    return TensorSpec(handle, TAPE)


def tape_handles(shapes: Iterable[tuple[int, ...]]) -> Handles:
    """Returns the parameter `handles` of a loop that yields tapes with these leading axes."""
    handles = tuple(shapes)
    return handles if any(handles) else ()


def tape_specs(handles: Handles, count: int) -> list[TensorSpec]:
    """Returns the specs of the tapes that a loop yields."""
    if handles and len(handles) != count:
        fix = "give one for each tape, or none."
        raise user_error(ArgumentError, "loop", f"{count} tapes cannot have {len(handles)} handles.", fix=fix)
    return [tape_spec(handle) for handle in handles or ((),) * count]


def read_row(tape: NDArray, index: int, spec: TensorSpec) -> NDArray:
    """Returns a row of a tape; zeros where it has none."""
    return _row(tape.flat[0] if tape.size else 0, index, spec)


def read_rows(
    tape: NDArray, start: int, count: int, size: int, spec: TensorSpec, spare: Spare, lent: list[NDArray]
) -> NDArray:
    """Returns `count` rows of a tape, zeros where it has none, and any rows behind them, `size` together.

    Args:
        spare: lends memory where the tape's is too short; the caller gives it back.
        lent: gets this memory.
    """
    content = tape.flat[0] if tape.size else 0
    known = content.rows()[start : start + count] if isinstance(content, Tape) else ()
    if len(known) == count and isinstance(content, Tape) and start + size <= content.capacity:
        found = content.room(start, size)
        if found.shape[1:] == spec.shape:
            return found
    lent.append(spare.take(size, spec.shape, spec.dtype))
    rows = lent[-1][:size]
    if len(known):
        rows[: len(known)] = known
    rows[len(known) : count] = 0
    return rows


def _row(content: Any, index: int, spec: TensorSpec) -> NDArray:
    if isinstance(content, Tape) and index < content.length:
        row = content.read(index)
        return row if row.shape == spec.shape else np.broadcast_to(row, spec.shape)
    return np.zeros(spec.shape, spec.dtype)  # of a tape of zeros, or for a row that is thrown away


def _add_tapes(x: NDArray, y: NDArray) -> NDArray:
    total = _as_handle(0, x.shape)
    sums: dict[tuple[int, int], Any] = {}  # all elements of a batch are one tape, and so is their sum
    for place in np.ndindex(x.shape):
        key = id(x[place]), id(y[place])
        if key not in sums:
            tapes = [tape for tape in (x[place], y[place]) if isinstance(tape, Tape)]
            sums[key] = _sum_of(*tapes) if len(tapes) == 2 else tapes[0] if tapes else 0
        total[place] = sums[key]
    return total


def _sum_of(x: Tape, y: Tape) -> Tape | int:
    """Rows that the shorter one lacks are 0."""
    return x.each(_add_rows, _add_tapes, y) if x.length >= y.length else y.each(_add_rows, _add_tapes, x)


def _add_rows(longer: NDArray, shorter: NDArray) -> NDArray:
    both = longer[: len(shorter)] + shorter
    if len(shorter) == len(longer):
        return np.asarray(both)
    rest = longer[len(shorter) :]
    return np.concatenate((both, np.broadcast_to(rest, (len(rest), *both.shape[1:]))))


def _as_handle(tape: Tape | int, handle: tuple[int, ...]) -> NDArray:
    value = np.empty(handle, TAPE)
    value[...] = tape
    return value


def as_handles(tapes: Sequence[Tape], handles: Handles) -> list[NDArray]:
    """Returns the values of tapes that a loop has written."""
    return [_as_handle(tape, handle) for tape, handle in zip(tapes, handles or ((),) * len(tapes), strict=True)]


add_tapes = register(
    "add_tapes",
    Rules(
        infer=lambda x, y: check_same_spec("add_tapes", (x, y)),
        reference=_add_tapes,
        derivative=Derivative(
            lambda primals, tangents, outputs: (add_tangents(*tangents),),
            each({0: lambda ct, x, y: ct, 1: lambda ct, x, y: ct}),
        ),
        batch=batch_leading("add_tapes"),
    ),
    arity=2,
)


def _each(function: Callable[..., Any], lead: int, shape: tuple[int, ...], *handles: NDArray) -> NDArray:
    """Applies a function to the tapes behind the first `lead` axes of handles, along which all elements are one tape.

    The axes behind them may be of a scan that stacked a tape of each iteration.
    """
    result = _as_handle(0, shape)
    if all(handle.size for handle in handles):
        first: tuple[Any, ...] = (0,) * lead
        inner = [handle[(*first, ...)] for handle in handles]
        found = np.empty(inner[0].shape, TAPE)
        for index in np.ndindex(found.shape):
            found[index] = function(*(x[index] for x in inner))
        result[...] = found
    return result


def _spread_tape(x: NDArray, *, count: int, axis: int) -> NDArray:
    def spread(content: Any) -> Any:
        if not isinstance(content, Tape):
            return content
        return content.each(
            lambda rows: np.expand_dims(rows, 1 + axis), lambda row: _spread_tape(row, count=count, axis=axis)
        )

    return _each(spread, axis, (*x.shape[:axis], count, *x.shape[axis:]), x)


def _sum_tape(x: NDArray, *, count: int, axis: int) -> NDArray:
    def total(content: Any) -> Any:
        if not isinstance(content, Tape):
            return content
        return content.each(add_up, lambda row: _sum_tape(row, count=count, axis=axis))

    def add_up(rows: NDArray) -> NDArray:
        every = (*rows.shape[: 1 + axis], count, *rows.shape[2 + axis :])  # a row for all stands for each
        return np.asarray(np.broadcast_to(rows, every).sum(1 + axis, dtype=rows.dtype))

    return _each(total, axis + 1, (*x.shape[:axis], *x.shape[axis + 1 :]), x)


# A tape of no batch among tapes of one: it gets the axis, along which its rows have one element that stands for all; and the
# sum of the cotangents of all elements.
spread_tape: Command = register_linear(
    "spread_tape",
    lambda x, count, axis: x.update(shape=(*x.shape[:axis], count, *x.shape[axis:])),
    _spread_tape,
    lambda ct, x, count, axis: sum_tape(ct, count=count, axis=axis),
)
sum_tape: Command = register_linear(
    "sum_tape",
    lambda x, count, axis: x.update(shape=(*x.shape[:axis], *x.shape[axis + 1 :])),
    _sum_tape,
    lambda ct, x, count, axis: spread_tape(ct, count=count, axis=axis),
)


def _merge_tapes(mask: NDArray, x: NDArray, y: NDArray) -> NDArray:
    def merge(*tapes: Any) -> Any:
        contents = [tape for tape in tapes if isinstance(tape, Tape) and tape.length]
        if not contents:
            return 0
        like = contents[0].rows()
        shape = np.broadcast_shapes(
            mask.shape + (1,) * (like.ndim - 1 - mask.ndim), *(t.rows().shape[1:] for t in contents)
        )
        rows = mask.reshape(mask.shape + (1,) * (len(shape) - mask.ndim))
        spec, length = TensorSpec(shape, like.dtype), max(t.length for t in contents)
        merged = Tape(shape, like.dtype, length)
        for index in range(length):
            found = [_row(tape, index, spec) for tape in tapes]
            merged.write(index, _merge_tapes(mask, *found) if spec.dtype == TAPE else np.where(rows, *found))
        return merged

    return _each(merge, mask.ndim, x.shape, x, y)


# For rows of a batch that took different branches: the rows of `x` where `mask` holds, the rows of `y` elsewhere.
merge_tapes: Command = register(
    "merge_tapes",
    Rules(
        infer=lambda mask, x, y: check_same_spec("merge_tapes", (x, y)),
        reference=_merge_tapes,
        derivative=linear_in_all(
            "merge_tapes",
            each(
                {
                    1: lambda ct, mask, x, y: merge_tapes(mask, ct, zeros(ct.spec)),
                    2: lambda ct, mask, x, y: merge_tapes(mask, zeros(ct.spec), ct),
                }
            ),
        ),
        batch=batch_leading("merge_tapes"),
    ),
    arity=3,
)
