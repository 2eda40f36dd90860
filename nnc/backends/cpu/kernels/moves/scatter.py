"""Native kernels of commands that write at positions known only at run time: scatter and dynamic_update_slice.

Updates of one place are applied in their order, as the reference does. So threads share the axes along which updates do not
meet: axes that operands have in common, or axes that are written whole. Where the result lies in the operand's memory,
nothing else is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from nnc.backends.cpu.kernels.moves.gather import locate_box
from nnc.backends.moves import copy_box, is_tiny, move_box
from nnc.backends.printer import Bound, Part, Printer, add_native, grain_of, longest, over, over_vectors
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.device.target import Target
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes, in_words, word_of
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.indexed import COMBINE, Indexed, is_rounded
from nnc.lower.kernels.native import Native
from nnc.lower.plan.stages import Step, View, row_major


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target) -> int:
    return 4 * specs[0].size if is_rounded(specs[0].dtype, params["op"]) else 0


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return params["op"] == "set" or not dtypes.is_complex(specs[0].dtype)


def copy_whole(printer: Printer, x: View, out: View) -> None:
    """Copies input 0 to output 0, where they are not the same memory."""
    used = [n > 1 for n in x.spec.shape]
    if all(a == b for a, b, n in zip(x.strides, out.strides, used, strict=True) if n):
        code = printer.main
        apart = Value(code.let("icmp ne ptr %in0, %out0"), dtypes.bool_)
        with code.when(apart):
            move_box(printer, x.spec, "%in0", x.strides, "%out0", out.strides)
    else:
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


add_native("scatter", _scatter, _supports, _workspace)
add_native("dynamic_update_slice", _dynamic_update_slice)
