"""Native kernels of commands on elements at positions known only at run time: gather and dynamic_slice, scatter and
dynamic_update_slice.

An index out of range is never followed: in mode "error" the kernel goes on with position 0, and refuses in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from nnc.backends.moves import copy_box, fill_box, is_tiny, move_box
from nnc.backends.printer import Bound, Part, Printer, add_native, grain_of, longest, over, over_vectors
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.commands.index import fill_value
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes, Shape, in_words, word_of
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.indexed import COMBINE, Indexed, is_rounded
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.values import position
from nnc.lower.plan.stages import Step, View, row_major


def _gather(step: Step, machine: Target) -> Native | None:
    x, *indices = step.inputs
    out = step.outputs[0]
    box = Indexed(x, tuple(indices), step.params["axes"], step.params["batch"], step.params["mode"])
    printer = Printer(step, machine, refuses=box.refuses)
    if box.mode in ("drop", "fill"):
        _share_fill(printer, x.spec.dtype, box.mode)
    if not math.prod(box.outer):
        return printer.native(inline=True)
    if box.is_out_of_reach:
        if box.refuses:
            printer.refuse(printer.main)
        else:
            fill_box(printer, out.spec, "%fill", "%out0", out.strides)
        return printer.native()
    outer_out, row_out = box.strides(out)
    axes = Axes(box.outer, (box.outer_strides(x), outer_out, *(index.strides for index in indices))).merged()
    names = ["%in0", "%out0", *(f"%in{k + 1}" for k in range(len(indices)))]

    def body(code: Code, part: Part) -> None:
        bad = code.slot(code.constant(False, dtypes.bool_)) if box.mode == "error" else None
        with over(code, axes, names, part) as (source, target, *at):
            place, inside = box.locate(code, at, x, bad)
            row = code.offset(source, place)
            _read_row(code, box, row, inside, target, row_out)
        if bad is not None:
            with code.when(code.read(bad)):
                printer.refuse(code)

    printer.along(axes, 2 * out.spec.nbytes + sum(index.spec.nbytes for index in indices), body)
    return printer.native(inline=is_tiny(machine, out.spec, *(index.spec for index in indices)))


def _read_row(code: Code, box: Indexed, source: str, inside: Value | None, target: str, strides: Shape) -> None:
    if inside is None:
        copy_box(code, box.row, source, box.row_strides(box.x), target, strides)
        return
    if box.row.size == 1:  # one word or two: a position out of range reads another place
        chosen = code.let(f"select {inside.typed}, ptr {source}, ptr %fill")
        copy_box(code, box.row, chosen, (0,) * box.row.ndim, target, strides)
        return
    with code.when(inside):
        copy_box(code, box.row, source, box.row_strides(box.x), target, strides)
    with code.when(code.not_(inside)):
        copy_box(code, box.row, "%fill", (0,) * box.row.ndim, target, strides)


def _share_fill(printer: Printer, dtype: DType, mode: str) -> None:
    """Names the element that is read out of range."""
    value = np.asarray(fill_value(dtype) if mode == "fill" else 0).astype(dtype)
    room = printer.share("fill", printer.main.room(16))
    for at, byte in enumerate(value.tobytes()):
        printer.main.store(printer.main.offset(room, at), printer.main.constant(byte, dtypes.uint8))


# -- dynamic slices ----------------------------------------------------------------------------------------------------


def locate_box(
    printer: Printer, x: View, sizes: Shape, strides: Shape, first: int, starts: Sequence[View], mode: str
) -> Value:
    """Returns the bytes to the first element of a box within x, whose starts are the inputs from number `first` on."""
    code, place = printer.main, printer.main.integer(0)
    for axis, start in enumerate(starts):
        free = x.spec.shape[axis] - sizes[axis]
        at, ok = position(code, code.load(f"%in{first + axis}", start.spec.dtype), free + 1, mode)
        if ok is not None:
            with code.when(code.not_(ok)):
                printer.refuse(code)
        place = code.add(place, code.mul(at, code.integer(strides[axis])))
    return place


def _dynamic_slice(step: Step, machine: Target) -> Native | None:
    x, *starts = step.inputs
    out, mode = step.outputs[0], step.params["mode"]
    printer = Printer(step, machine, refuses=mode == "error")
    place = locate_box(printer, x, out.spec.shape, x.strides, 1, starts, mode)
    source = printer.share("source", printer.main.offset("%in0", place))
    move_box(printer, out.spec, source, x.strides, "%out0", out.strides)
    return printer.native(inline=is_tiny(machine, out.spec))


add_native("gather", _gather, sized=True)
add_native("dynamic_slice", _dynamic_slice)


# -- updates -----------------------------------------------------------------------------------------------------------

# Updates of one place are applied in their order, as the reference does. So threads share the axes along which updates do not
# meet: axes that operands have in common, or axes that are written whole. Where the result lies in the operand's memory,
# nothing else is touched.


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target) -> int:
    return 4 * specs[0].size if is_rounded(specs[0].dtype, params["op"]) else 0


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return params["op"] == "set" or not dtypes.is_complex(specs[0].dtype)


def copy_whole(printer: Printer, x: View, out: View) -> None:
    """Copies input 0 to output 0, where they are not the same memory."""
    code = printer.main
    lies_alike = all(a == b for a, b, n in zip(x.strides, out.strides, x.spec.shape, strict=True) if n > 1)
    apart = Value(code.let("icmp ne ptr %in0, %out0"), dtypes.bool_) if lies_alike else None
    with code.when(apart) if apart is not None else nullcontext():
        move_box(printer, x.spec, "%in0", x.strides, "%out0", out.strides)


def _scatter(step: Step, machine: Target) -> Native | None:
    x, updates, *indices = step.inputs
    out, op, dtype = step.outputs[0], step.params["op"], x.spec.dtype
    rounded = is_rounded(dtype, op)
    box = Indexed(x, tuple(indices), step.params["axes"], step.params["batch"], step.params["mode"])
    printer = Printer(step, machine, workspace=rounded and x.spec.size > 0, refuses=box.refuses)
    target, name = out, "%out0"
    if rounded and x.spec.size:
        wide = x.spec.update(dtype=dtypes.float32)
        target, name = View(0, wide, 0, row_major(wide)), "%workspace"
        convert_whole(printer, x, "%in0", target, name)
    else:
        copy_whole(printer, x, out)
    if box.is_out_of_reach and box.refuses:
        printer.refuse(printer.main)
    elif math.prod(box.outer) and not box.is_out_of_reach:
        _apply(printer, box, updates, target, name, op, step.params.get("unique", False))
    if rounded and x.spec.size:
        convert_whole(printer, target, name, out, "%out0")
    return printer.native(inline=is_tiny(machine, updates.spec, *(index.spec for index in indices)) and not rounded)


def convert_whole(printer: Printer, x: View, source: str, out: View, target: str) -> None:
    """Writes a tensor to another one of its shape and perhaps of another dtype; their pointers have these names."""
    axes = Axes(x.spec.shape, (x.strides, out.strides)).ordered(1)
    kinds = [x.spec.dtype, out.spec.dtype]

    def body(code: Code, part: Part) -> None:
        _over_rows(code, axes, [source, target], kinds, part, lambda values: code.convert(values[0], kinds[1]), 1)

    printer.along(axes, x.spec.nbytes + out.spec.nbytes, body)


def _over_rows(
    code: Code, axes: Axes, pointers: list[str], kinds: list[DType], part: Part | None,
    function: Callable[[list[Value]], Value], read: int,
) -> None:  # fmt: skip
    """Writes `function` of the first so many operands to the last of them, by vectors where the last axis lies dense in all."""
    sizes = [kind.itemsize for kind in kinds]

    def write(moved: list[str], lanes: int) -> None:
        values = [code.load(moved[i], kinds[i], lanes) for i in range(read)]
        code.store(moved[-1], function(values))

    over_vectors(code, axes, pointers, sizes, part, 64 // max(sizes), write)


def _apply(printer: Printer, box: Indexed, updates: View, target: View, name: str, op: str, unique: bool) -> None:
    """All updates, in threads where their places are apart."""
    outer_updates, row_updates = box.strides(updates)
    strides = (box.outer_strides(target), outer_updates, *(index.strides for index in box.indices))
    names = [name, "%in1", *(f"%in{k + 2}" for k in range(len(box.indices)))]
    outer = Axes(box.outer, strides)
    shape, row_strides = box.row.shape, [row_updates, box.row_strides(target)]
    kinds = [updates.spec.dtype, target.spec.dtype]
    if op == "set":
        shape, row_strides = in_words(box.row, *row_strides)
        kinds = [word_of(box.row.dtype)] * 2
    rows = Axes(shape, tuple(row_strides))
    free = tuple(range(len(box.outer) if unique else box.batch))
    shared = longest(tuple(box.outer[axis] for axis in free))
    column = longest(rows.shape) if rows.size else -1
    by_rows = column >= 0 and (shared < 0 or box.outer[shared] < min(rows.shape[column], 16))
    count = rows.shape[column] if by_rows else box.outer[shared] if shared >= 0 else 1
    nbytes = 2 * updates.spec.nbytes
    grain = grain_of(count, nbytes, printer.machine) if shared >= 0 or by_rows else count
    if by_rows and grain < count:
        grain = -(-grain // 16) * 16

    def body(code: Code, begin: Bound, end: Bound) -> None:
        whole = begin == 0 and end == count
        bad = code.slot(code.constant(False, dtypes.bool_)) if box.mode == "error" else None
        axes, part = outer, None if whole or by_rows else (shared, begin, end)
        if part is None:
            axes = outer.merged()
        with over(code, axes, names, part) as (first, news, *at):
            place, inside = box.locate(code, at, replace(target, spec=box.x.spec), bad)
            row = code.offset(first, place)
            columns = (column, begin, end) if by_rows and not whole else None
            with code.when(inside) if inside is not None else nullcontext():
                if op == "set" and columns is None:
                    copy_box(code, box.row, news, row_updates, row, box.row_strides(target))
                else:
                    _combine_rows(code, rows, [news, row], kinds, op, columns)
        if bad is not None:
            with code.when(code.read(bad)):
                printer.refuse(code)

    printer.parts(count, max(grain, 1), body)


def _combine_rows(
    code: Code, rows: Axes, pointers: list[str], kinds: list[DType], op: str, columns: Part | None
) -> None:
    def combined(values: list[Value]) -> Value:
        new = code.convert(values[0], kinds[1])
        return new if op == "set" else COMBINE[op](code, values[1], new)

    axes = rows.ordered(1) if columns is None else rows
    _over_rows(code, axes, pointers, kinds, columns, combined, 1 + (op != "set"))


def _dynamic_update_slice(step: Step, machine: Target) -> Native | None:
    x, update, *starts = step.inputs
    out, mode = step.outputs[0], step.params["mode"]
    printer = Printer(step, machine, refuses=mode == "error")
    copy_whole(printer, x, out)
    place = locate_box(printer, x, update.spec.shape, out.strides, 2, starts, mode)
    target = printer.share("target", printer.main.offset("%out0", place))
    move_box(printer, update.spec, "%in1", update.strides, target, out.strides)
    return printer.native(inline=is_tiny(machine, update.spec))


add_native("scatter", _scatter, _supports, _workspace, sized=True)
add_native("dynamic_update_slice", _dynamic_update_slice)
