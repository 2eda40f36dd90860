"""scatter and dynamic_update_slice for CUDA: elements that lie at positions known only at run time are written.

The operand is copied, unless the result lies in its memory. Updates whose places differ have a thread each, and so have updates of
integers that join by atomic instructions, whose order does not matter. Others are brought into the order of their places, in each
place in the order of updates (`ordered`); threads then join those of one place (`segments`). Few updates are not sorted (`few`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from nnc.backends.cuda.kernels.checks import check_indices
from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.gather import boxes
from nnc.backends.cuda.kernels.moves import Copies
from nnc.backends.cuda.kernels.ordered import Order, sort_updates
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.backends.cuda.kernels.segments import join_updates, write_few, write_last
from nnc.backends.cuda.kernels.series import Series
from nnc.backends.cuda.kernels.units import in_vectors, places_of
from nnc.backends.cuda.kernels.writes import Writes, in_parts
from nnc.base import dtypes
from nnc.base.dtypes import TAPE, DType
from nnc.device.target import GpuTarget
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.indexed import COMBINE, Indexed
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step, View

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


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    dtype = specs[0].dtype
    return dtype != TAPE and not (dtypes.is_complex(dtype) and params.get("op") == "mul")


add_printed("scatter", _scatter, _supports, _workspace)
add_printed("dynamic_update_slice", _dynamic_update_slice, _supports)
