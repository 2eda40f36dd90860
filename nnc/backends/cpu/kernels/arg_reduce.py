"""Native kernels of argmax and argmin: the first of the greatest or smallest elements, or the first NaN.

A row that lies dense is read twice, by vectors: the first reading finds the record, the second its first position. Other rows are
done side by side, with a record and its position in each lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from nnc.backends.printer import Part, Printer, add_native, looping, over_vectors
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.graph import TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.records import Record, record_of
from nnc.lower.plan.stages import Step

_COLUMNS = 8
_VECTORS = 4  # at a time


def _native(predicate: str, step: Step, machine: Target) -> Native | None:
    """Returns the kernel for a step, where one element beats another by this predicate."""
    (x,), (out,) = step.inputs, step.outputs
    axis = step.params["axis"] % x.spec.ndim
    record = record_of(x.spec.dtype, predicate)
    kind = record.kind
    n, stride = x.spec.shape[axis], x.strides[axis]
    kept = tuple(k for k in range(x.spec.ndim) if k != axis)
    shape, strides = tuple(x.spec.shape[k] for k in kept), tuple(x.strides[k] for k in kept)
    axes = Axes(shape, (strides, out.strides)).merged()
    printer = Printer(step, machine)
    if not axes.size:
        return printer.native(inline=True)
    dense = stride == kind.itemsize

    def body(code: Code, part: Part) -> None:
        def find(moved: list[str], lanes: int) -> None:
            source, target = moved
            row = dense and not lanes
            code.store(
                target, _dense(code, record, source, n) if row else _by_steps(code, record, source, n, stride, lanes)
            )

        over_vectors(code, axes, ["%in0", "%out0"], (kind.itemsize, 8), part, _COLUMNS, find)

    printer.along(axes, x.spec.nbytes, body)
    return printer.native()


def _load(code: Code, record: Record, pointer: str, i: Value, step: int, lanes: int) -> Value:
    """Values from position i on; float32 stands for the shorter floats."""
    x = code.load(code.offset(pointer, code.mul(i, code.integer(step))), record.kind, lanes)
    return code.convert(x, dtypes.accumulator(record.kind))


def _by_steps(code: Code, record: Record, source: str, n: int, step: int, lanes: int) -> Value:
    """Positions in one row, or in several side by side."""
    best = code.slot(_load(code, record, source, code.integer(0), step, lanes))
    place = code.slot(code.constant(0, dtypes.int64, lanes))
    with code.loop(1, n) as i:
        x, before = _load(code, record, source, i, step, lanes), code.read(best)
        better = record.better(code, x, before)
        code.write(best, code.select(better, x, before))
        code.write(place, code.select(better, i, code.read(place)))
    return code.read(place)


def _dense(code: Code, record: Record, source: str, n: int) -> Value:
    """Returns the position in a row without gaps."""
    size = record.kind.itemsize
    lanes = 64 // dtypes.accumulator(record.kind).itemsize
    if n < 2 * lanes:
        return _by_steps(code, record, source, n, size, 0)
    vectors = _VECTORS if n >= _VECTORS * lanes else 1
    block = vectors * lanes

    def load(i: Value, k: int) -> Value:
        return _load(code, record, source, code.add(i, code.integer(k * lanes)), size, lanes)

    zero, last = code.integer(0), code.integer(n - block)
    records = [code.slot(load(zero, k)) for k in range(vectors)]

    def improve(i: Value) -> None:
        for k, slot in enumerate(records):
            code.write(slot, record.take(code, load(i, k), code.read(slot)))

    with code.loop(block, n - block, block) as i:
        improve(i)
    improve(last)  # may lie over the block before
    best = code.read(records[0])
    for slot in records[1:]:
        best = record.take(code, code.read(slot), best)
    winner = _across_lanes(code, record, best)
    wanted = code.splat(winner, lanes)

    def found(x: Value) -> Value:
        same = code.compare("eq", x, wanted)
        if not dtypes.is_float(x.dtype):
            return same
        return code.or_(same, code.and_(code.compare("uno", x, x), code.compare("uno", wanted, wanted)))

    def misses(i: Value) -> Value:
        return code.not_(code.reduce("or", found(load(i, 0))))

    def following(i: Value) -> Value:
        return code.intrinsic("smin", code.add(i, code.integer(lanes)), code.integer(n - lanes))

    with looping(code, zero, misses, following) as i:
        pass
    bits = code.let(f"bitcast {found(load(i, 0)).typed} to i{lanes}")
    code.declare(f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)")
    first = code.let(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {bits}, i1 true)")
    wide = first if lanes == 64 else code.let(f"zext i{lanes} {first} to i64")
    return code.add(i, Value(wide, dtypes.int64))


def _across_lanes(code: Code, record: Record, best: Value) -> Value:
    """Returns the record of all lanes."""
    found = code.slot(Value(code.let(f"extractelement {best.typed}, i64 0"), best.dtype))
    with code.loop(1, best.lanes) as lane:
        x = Value(code.let(f"extractelement {best.typed}, i64 {lane.text}"), best.dtype)
        code.write(found, record.take(code, x, code.read(found)))
    return code.read(found)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return not dtypes.is_complex(specs[0].dtype)


add_native("argmax", partial(_native, "gt"), _supports)
add_native("argmin", partial(_native, "lt"), _supports)
