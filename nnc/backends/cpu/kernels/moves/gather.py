"""Native kernels of commands that read at positions known only at run time: gather and dynamic_slice.

An index out of range is never followed: in mode "error" the kernel goes on with position 0, and refuses in the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nnc.backends.moves import copy_box, fill_box, is_tiny, move_box
from nnc.backends.printer import Part, Printer, add_native, over
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.commands.index import fill_value
from nnc.device.target import Target
from nnc.lower.kernels.axes import Axes, Shape
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.indexed import Indexed
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.values import position
from nnc.lower.plan.stages import Step, View


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


add_native("gather", _gather)
add_native("dynamic_slice", _dynamic_slice)
