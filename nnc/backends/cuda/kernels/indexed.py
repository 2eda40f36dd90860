"""Commands for CUDA on elements that lie at positions known only at run time: gather and dynamic_slice where they stand alone, as
nests of one node; scatter and dynamic_update_slice.

A slice whose start is known only at run time is a row of a table, that of all boxes of its sizes: one begins at each place, and
they overlap in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.fills import fill, parts_of
from nnc.backends.cuda.kernels.moves import Copies
from nnc.backends.cuda.kernels.nests import print_node
from nnc.backends.cuda.kernels.ordered import Order, sort_updates
from nnc.backends.cuda.kernels.registry import Series, add_printed
from nnc.backends.cuda.kernels.segments import join_updates, write_few, write_last
from nnc.backends.cuda.kernels.units import each_unit, in_vectors, one_launch, places_of
from nnc.backends.cuda.kernels.writes import Writes, in_parts
from nnc.base import dtypes
from nnc.base.dtypes import TAPE, DType
from nnc.base.target import GpuTarget
from nnc.commands.index import fill_value, gather
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes, in_words, word_of
from nnc.lower.kernels.indexed import COMBINE, Indexed
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step, View

Shape = tuple[int, ...]


def boxes(x: View, sizes: Sequence[int], count: int) -> View:
    """Views all boxes of one size within a tensor: the first axes are those of the boxes' starts, the last those of a box.

    An axis that a box covers whole has one start, with stride 0, so that vectors along other axes stay aligned.

    Args:
        sizes: the size of a box along each axis.
        count: the number of axes that have a start; boxes cover the others whole.
    """
    starts = tuple(n - size + 1 for n, size in zip(x.spec.shape, sizes, strict=True))[:count]
    strides = tuple(by if n > 1 else 0 for n, by in zip(starts, x.strides, strict=False))
    return x.show(x.spec.update(shape=(*starts, *sizes)), x.offset, (*strides, *x.strides))


def _read(step: Step, machine: GpuTarget, x: View, indices: Sequence[View], params: Mapping[str, Any]) -> DeviceKernel:
    """Elements of a tensor at computed places; even where none is read, indices may be refused."""
    out, mode, dtype = step.outputs[0], params["mode"], x.spec.dtype
    is_empty = any(x.spec.shape[axis] == 0 for axis in params["axes"])
    series, operands = Series(machine), range(len(indices) + 3)  # with the status word
    outside = fill_value(dtype) if mode == "fill" else 0
    if is_empty:
        fill(series, out, dtype.type(outside), len(indices) + 1)
    elif not dtypes.is_complex(dtype):
        series.add(print_node(gather, params, (x, *indices), out, machine), operands)
    elif mode != "fill":
        series.add(print_node(gather, params, (_words(x), *indices), _words(out), machine), operands)
    else:
        for part, source, target in zip(("fill", "drop"), parts_of(x), parts_of(out), strict=True):
            shift = source.offset - x.offset
            shifts, given = (shift, *(0 for _ in indices), shift), {**params, "mode": part}
            series.add(print_node(gather, given, (source, *indices), target, machine, shifts), operands)
    box = Indexed(x, tuple(indices), params["axes"], params["batch"], mode)
    if math.prod(box.outer) and box.refuses and (is_empty or not out.spec.size):
        series.add(check_indices(step, machine, box), operands)
    return series.kernel()


def _words(view: View) -> View:
    """Returns a tensor of complex numbers as the words by which they are moved."""
    shape, (strides,) = in_words(view.spec, view.strides)
    return view.show(TensorSpec(shape, word_of(view.spec.dtype)), view.offset, strides)


def _gather(step: Step, machine: GpuTarget) -> DeviceKernel:
    x, *indices = step.inputs
    return _read(step, machine, x, indices, step.params)


def _dynamic_slice(step: Step, machine: GpuTarget) -> DeviceKernel:
    (x, *starts), (out,) = step.inputs, step.outputs
    if not starts:
        series = Series(machine)
        Copies(step, series).add(0, x, out)
        return series.kernel()
    params = {"axes": tuple(range(len(starts))), "batch": 0, "mode": step.params["mode"]}
    return _read(step, machine, boxes(x, step.params["sizes"], len(starts)), starts, params)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return specs[0].dtype != TAPE


add_printed("gather", _gather, _supports)
add_printed("dynamic_slice", _dynamic_slice, _supports)


# -- indices alone -----------------------------------------------------------------------------------------------------

# Checks indices where no element is read or written, so that an index out of range is still refused.


def check_indices(step: Step, machine: GpuTarget, box: Indexed, is_update: bool = False) -> DeviceKernel:
    """Prints the kernel of a step that only checks indices: each thread checks those of one place.

    Args:
        step: the step, whose last inputs are the indices.
        box: the geometry of the indexed box; where an indexed axis is empty, each place is out of range.
        is_update: whether the result lies where the operand does, and stays as it is.
    """
    inputs, count, threads = len(step.inputs), math.prod(box.outer), machine.grids.threads
    operands = tuple(range(inputs + len(step.outputs) + 1))
    code = GpuCode("KERNEL_check", [*["noalias readonly"] * inputs, *[""] * (len(operands) - inputs)], threads)
    status = f"%p{operands[-1]}"
    with each_unit(code, count, threads) as unit:
        if box.is_out_of_reach:
            code.refuse(status, code.constant(True, dtypes.bool_))
        else:
            places = places_of(code, Axes(box.outer, tuple(index.strides for index in box.indices)), unit)
            first = inputs - len(box.indices)
            _, inside = box.find(code, [code.offset(f"%p{first + k}", at) for k, at in enumerate(places)], box.x)
            if inside is not None:
                code.refuse(status, code.not_(inside))
    return one_launch(code, count, threads, operands, updates=(inputs,) if is_update else (), may_fail=True)


# -- updates -----------------------------------------------------------------------------------------------------------

# The operand is copied, unless the result lies in its memory. Updates whose places differ have a thread each, and so have updates
# of integers that join by atomic instructions, whose order does not matter. Others are brought into the order of their places, in
# each place in the order of updates (`ordered`); threads then join those of one place (`segments`). Few updates are not sorted.


_ATOMIC = ("add", "min", "max")  # of integers of 4 and 8 bytes


def _is_atomic(dtype: DType, op: str) -> bool:
    """Whether the processor joins updates by one instruction, in any order."""
    return op in _ATOMIC and dtypes.is_integer(dtype) and dtype.itemsize >= 4


def _order_of(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> Order | None:
    """Returns the order into which updates are brought; None where a thread can write each at once."""
    x, _, *indices = specs
    inner = math.prod(indices[0].shape[params["batch"] :])
    if params.get("unique", False) or inner <= 1 or _is_atomic(x.dtype, params["op"]) or not x.size:
        return None
    return Order.of(x, indices[0], params)


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: GpuTarget) -> int:
    order = _order_of(specs, params)
    return 0 if order is None else order.nbytes


def _scatter(step: Step, machine: GpuTarget) -> DeviceKernel | None:
    x, updates, *indices = step.inputs
    out, op, params = step.outputs[0], step.params["op"], step.params
    box = Indexed(in_parts(out, op), tuple(indices), params["axes"], params["batch"], params["mode"])
    count = math.prod(box.outer)
    if count and box.refuses and not out.spec.size:
        return check_indices(step, machine, box)
    series = Series(machine)
    if not _is_same(x, out):
        Copies(step, series).add(0, x, out)
    writes = Writes(step, machine, box, in_parts(updates, op), is_update=_is_same(x, out))
    order = _order_of(step.input_specs, params)
    if not count or not out.spec.size:
        pass
    elif order is None:
        _write_each(series, writes, op)
    elif order.is_few:
        write_few(series, writes, op)
    elif not order.is_counted:
        return None
    else:
        sort_updates(series, writes, order)
        (write_last if op == "set" else join_updates)(series, writes, order)
    return series.kernel()


def _is_same(x: View, out: View) -> bool:
    """Whether a result lies where an operand does."""
    return (x.buffer, x.offset, x.strides, x.advances) == (out.buffer, out.offset, out.strides, out.advances)


def _write_each(series: Series, writes: Writes, op: str) -> None:
    """Writes updates that no other update meets, or that atomic instructions join: a thread takes a vector of one row."""
    box, target, dtype = writes.box, writes.target, writes.target.spec.dtype
    still = (0,) * len(box.row.shape)
    shape = (*box.outer, *box.row.shape)
    to_target = (*box.outer_strides(target), *box.row_strides(target))
    axes = Axes(shape, (writes.updates.strides, to_target, *((*i.strides, *still) for i in box.indices))).ordered(0)
    is_atomic = _is_atomic(dtype, op) and not writes.step.params.get("unique", False)
    lanes = 1
    if not is_atomic:
        axes, lanes = in_vectors(axes, dtype.itemsize, (0, 1), writes.alignment, writes.machine)
    with writes.each(series, "write", axes.size) as (code, unit):
        to_update, to_row, *to_indices = places_of(code, axes, unit)
        places = [code.offset(writes.index(k), at) for k, at in enumerate(to_indices)]
        row, inside = box.find(code, places, target)
        if inside is not None and writes.status:
            code.refuse(writes.status, code.not_(inside))
        with code.when(inside) if inside is not None else nullcontext():
            source = code.offset(writes.source, to_update)
            place = code.offset(code.offset(writes.pointer, to_row), row)
            if is_atomic:
                _join_atomically(code, source, place, dtype, op)
            else:
                _write(code, source, place, dtype, lanes, op)


def _write(code: GpuCode, source: str, target: str, dtype: DType, lanes: int, op: str) -> None:
    """Writes a vector of one update, which no other thread writes at the same time."""
    aligned = lanes * dtype.itemsize
    new = code.load(source, dtype, lanes if lanes > 1 else 0, align=aligned)
    if op != "set":
        wide = dtypes.accumulator(dtype)
        old = code.convert(code.load(target, dtype, new.lanes, align=aligned), wide)
        new = code.convert(COMBINE[op](code, old, code.convert(new, wide)), dtype)
    code.store(target, new, align=aligned)


def _join_atomically(code: GpuCode, source: str, target: str, dtype: DType, op: str) -> None:
    """Joins an element by an instruction that others may use on the element at the same time."""
    name = f"u{op}" if dtype in dtypes.UNSIGNED and op != "add" else op
    new = code.load(source, dtype)
    code.line(f"%{code.fresh()[1:]} = atomicrmw {name} ptr {target}, {new.typed} monotonic")


def _dynamic_update_slice(step: Step, machine: GpuTarget) -> DeviceKernel | None:
    x, update, *starts = step.inputs
    (out,), mode = step.outputs, step.params["mode"]
    series = Series(machine)
    if not starts:
        Copies(step, series).add(1, update, out)
        return series.kernel()
    if not _is_same(x, out):
        Copies(step, series).add(0, x, out)
    if update.spec.size:
        parts = in_parts(update, "set")
        table = boxes(in_parts(out, "set"), parts.spec.shape, len(starts))
        box = Indexed(table, tuple(starts), tuple(range(len(starts))), 0, mode)
        _write_each(series, Writes(step, machine, box, parts, is_update=_is_same(x, out)), "set")
    elif mode == "error":
        table = boxes(out, update.spec.shape, len(starts))
        box = Indexed(table, tuple(starts), tuple(range(len(starts))), 0, mode)
        series.add(check_indices(step, machine, box, _is_same(x, out)), range(len(step.inputs) + 2))
    return series.kernel()


def _can_scatter(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    dtype = specs[0].dtype
    return dtype != TAPE and not (dtypes.is_complex(dtype) and params.get("op") == "mul")


add_printed("scatter", _scatter, _can_scatter, _workspace)
add_printed("dynamic_update_slice", _dynamic_update_slice, _can_scatter)
