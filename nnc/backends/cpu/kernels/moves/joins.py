"""Prints joins of many tensors as one loop over a table, so that the text of the kernel does not grow with their number.

concatenate 2000 vectors of 5 float32   2000 rows: part k, from byte 0, to byte 20·k, 20 bytes
columns of 40 × 3 and 40 × 5, …         rows: …, to byte 4·(first column), 12 or 20 bytes, 40 times with the part's stride
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from nnc.backends.moves import copy_bytes
from nnc.backends.printer import grain_of
from nnc.base import dtypes
from nnc.base.records import record
from nnc.base.target import Target
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View

_ROWS = 1 << 10  # that there may be beside one for each operand
_WORD = 8


@record
class _Row:
    """A box of one operand: where it begins there and in the result, its bytes in a row, and (count, stride there) of loops."""

    part: int
    source: int
    target: int
    nbytes: int
    loops: tuple[tuple[int, int], ...]

    @property
    def words(self) -> tuple[int, ...]:
        """Returns the part's row of the table."""
        return (self.part * _WORD, self.source, self.target, self.nbytes, *(n for loop in self.loops for n in loop))

    def split(self, most: int, steps: tuple[int, ...]) -> Iterator[_Row]:
        """Boxes of `most` bytes, or hardly more; `steps` are the strides of the loops in the result."""
        k = next((k for k, (count, _) in enumerate(self.loops) if count > 1), None)
        count, stride = self.loops[k] if k is not None else (self.nbytes, 1)
        each = self.nbytes * math.prod(n for n, _ in self.loops) // count  # bytes of an iteration
        piece = max(1, most // each)
        if count <= piece:
            yield self
            return
        for first in range(0, count, piece):
            length = min(piece, count - first)
            if k is None:
                yield replace(self, source=self.source + first, target=self.target + first, nbytes=length)
                continue
            loops = (*self.loops[:k], (length, stride), *self.loops[k + 1 :])
            source, target = self.source + first * stride, self.target + first * steps[k]
            box = replace(self, source=source, target=target, loops=loops)
            yield from box.split(most, steps) if length == 1 else (box,)


def join_many(step: Step, machine: Target) -> Native:
    """Returns the kernel of a `concatenate` step, whose result is not empty."""
    out, axis = step.outputs[0], step.params["axis"] % step.outputs[0].spec.ndim
    inner = _first_in_row(step, axis)
    looped = [a for a in range(inner) if a == axis or out.spec.shape[a] > 1]
    steps = tuple(out.strides[a] for a in looped)
    # Bytes of a row: threads get equal parts.
    most = max(2 * machine.threads.moved_part_bytes, out.spec.nbytes // _ROWS)
    rows: list[_Row] = []
    at = 0
    for part, view in enumerate(step.inputs):
        shape = view.spec.shape
        if view.spec.size:
            nbytes = view.spec.dtype.itemsize * math.prod(shape[inner:])
            loops = tuple((shape[a], view.strides[a]) for a in looped)
            rows += _Row(part, 0, at * out.strides[axis], nbytes, loops).split(most, steps)
        at += shape[axis]
    return Native(_text(rows, len(step.inputs), steps, grain_of(len(rows), out.spec.nbytes, machine)), packed=True)


def _first_in_row(step: Step, axis: int) -> int:
    """Returns the axis, not in front of `axis`, from which on the bytes of each operand lie in a row, both there and in the
    result.
    """
    views = [view for view in (*step.inputs, *step.outputs) if view.spec.size]
    first = step.outputs[0].spec.ndim
    while first > axis and all(_is_in_row(view, first - 1) for view in views):
        first -= 1
    return first


def _is_in_row(view: View, axis: int) -> bool:
    """Whether the next position on an axis begins where the bytes of those behind it end."""
    shape, nbytes = view.spec.shape, view.spec.dtype.itemsize
    return shape[axis] == 1 or view.strides[axis] == nbytes * math.prod(shape[axis + 1 :])


def _text(rows: list[_Row], parts: int, steps: tuple[int, ...], grain: int) -> str:
    """Returns the kernel; its operand is a table of the pointers of parts and result."""
    main = Code("KERNEL", [("ptr", "table")])
    main.declare("declare void @nnc_parallel_for(ptr, ptr, i64, i64)")
    main.line(f"call void @nnc_parallel_for(ptr @KERNEL.part, ptr %table, i64 {len(rows)}, i64 {grain})")
    main.ret(main.integer(0))
    part = Code("KERNEL.part", [("ptr", "table"), ("i64", "first"), ("i64", "end")], "void", "nounwind", "internal")
    result = part.let(f"load ptr, ptr {part.offset('%table', parts * _WORD)}")
    words = [word for row in rows for word in row.words]
    listed = ", ".join(f"i64 {word}" for word in words)
    table = f"@KERNEL.rows = private unnamed_addr constant [{len(words)} x i64] [{listed}]"
    lengths = {row.nbytes for row in rows}
    with ExitStack() as stack:
        number = stack.enter_context(part.loop(Value("%first", dtypes.int64), Value("%end", dtypes.int64)))
        row = part.offset("@KERNEL.rows", part.mul(number, part.integer(len(rows[0].words) * _WORD)))
        operand, start, end, nbytes, *loops = (
            part.load(part.offset(row, k * _WORD), dtypes.int64) for k in range(len(rows[0].words))
        )
        source = part.offset(part.let(f"load ptr, ptr {part.offset('%table', operand)}"), start)
        target = part.offset(result, end)
        for step, count, stride in zip(steps, loops[::2], loops[1::2], strict=True):
            i = stack.enter_context(part.loop(0, count))
            source = part.offset(source, part.mul(i, stride))
            target = part.offset(target, part.mul(i, part.integer(step)))
        copy_bytes(part, target, source, lengths.pop() if len(lengths) == 1 else nbytes)
    part.ret()
    return "\n".join([table, *sorted(main.declarations | part.declarations), part.text(), main.text()])
