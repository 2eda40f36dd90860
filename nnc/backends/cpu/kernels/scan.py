"""Native kernels of the cumulative commands.

Along an axis that lies dense, a vector's prefixes are made in log2(lanes) steps (Hillis and Steele, 1986), and only one
operation for each vector waits for the one before; along another axis, vectors are taken across rows. Partial sums of floats may
overflow where the sums in their order do not: such vectors are summed value by value. Partial products may lose all digits, too,
so products of floats are always made in their order. Long sums are made of pieces, whose total is a float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from nnc.backends.printer import Bound, Part, Printer, add_native, over, over_vectors
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.records import record
from nnc.base.target import Target
from nnc.commands.rules import Reduction, cumulative
from nnc.graph import Command, TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Slot, Value
from nnc.lower.kernels.cascade import pieces, total_dtype
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.reductions import combined, has_reduction
from nnc.lower.plan.stages import Step


def _prefixes(code: Code, by: Reduction, x: Value) -> Value:
    """Each lane combined with all before it."""
    step = 1
    while step < x.lanes:
        if by.idempotent:
            before = code.shuffle(x, [max(lane - step, 0) if lane >= step else lane for lane in range(x.lanes)])
        else:
            order = [lane - step if lane >= step else x.lanes + lane for lane in range(x.lanes)]
            before = code.shuffle(x, order, code.like(x, by.identity(x.dtype)))
        x = combined(code, by.combine, before, x)
        step *= 2
    return x


@record
class _Kinds:
    """Dtypes in memory, in registers, and of the value that one vector hands on to the next; and the terms of a piece of a sum."""

    memory: DType
    wide: DType
    carried: DType
    summands: int

    @property
    def lanes(self) -> int:
        """Values of a vector."""
        return 64 // self.wide.itemsize

    def load(self, code: Code, pointer: str, at: Value, step: int, lanes: int) -> Value:
        """Values from position `at` on, that lie `step` bytes apart: forwards or backwards, without gaps."""
        first = code.mul(at, code.integer(step))
        backwards = lanes > 1 and step < 0
        if backwards:
            first = code.add(first, code.integer((lanes - 1) * step))
        x = code.load(code.offset(pointer, first), self.memory, lanes)
        if backwards:
            x = code.shuffle(x, range(lanes - 1, -1, -1))
        return code.convert(x, self.wide)


def _cumulative(step: Step, machine: Target) -> Native | None:
    (x,), (out,) = step.inputs, step.outputs
    by, memory = cumulative[step.command], _memory(x.spec.dtype)
    axis = step.params["axis"] % x.spec.ndim
    n, size, wide = x.spec.shape[axis], memory.itemsize, dtypes.accumulator(memory)
    is_long_sum = n > machine.loops.short_sums and not by.idempotent and not by.ordered
    kinds = _Kinds(memory, wide, total_dtype(wide) if is_long_sum else wide, machine.loops.summands)
    steps = x.strides[axis], out.strides[axis]
    axes = Axes(x.spec.shape, (x.strides, out.strides)).without(axis).merged()
    printer = Printer(step, machine)
    if not x.spec.size:
        return printer.native(inline=True)
    last = len(axes.shape) - 1
    across = last >= 0 and all(strides[last] == size for strides in axes.strides) and axes.shape[last] >= kinds.lanes

    def body(code: Code, part: Part) -> None:
        def column(moved: list[str], lanes: int) -> None:
            source, target = moved
            _single(code, by, kinds, n, source, target, steps, lanes)

        if across:
            over_vectors(code, axes, ["%in0", "%out0"], (size, size), part, kinds.lanes, column)
            return
        with over(code, axes, ["%in0", "%out0"], part) as (source, target):
            _along(code, by, kinds, n, source, target, steps)

    printer.along(axes, 2 * x.spec.nbytes, body)
    return printer.native()


def _along(code: Code, by: Reduction, kinds: _Kinds, n: int, source: str, target: str, steps: tuple[int, int]) -> None:
    """One row."""
    size, lanes = kinds.memory.itemsize, kinds.lanes
    full = n // lanes * lanes if abs(steps[0]) == size and steps[1] == size else 0
    floats = dtypes.is_float(kinds.wide)
    if not full or (floats and by.ordered):
        _single(code, by, kinds, n, source, target, steps, 0)
        return
    if kinds.carried != kinds.wide:
        _pieces_along(code, by, kinds, n, source, target, steps)
        return
    first = kinds.load(code, source, code.integer(0), steps[0], 0)
    carry = code.slot(first if by.idempotent else code.constant(by.identity(kinds.wide), kinds.wide))
    with code.loop(0, full, lanes) as i:
        prefixes = _prefixes(code, by, kinds.load(code, source, i, steps[0], lanes))
        joined = combined(code, by.combine, code.splat(code.read(carry), lanes), prefixes)
        overflown = _is_any_infinite(code, joined) if floats and not by.idempotent else None
        if overflown is not None:
            with code.when(overflown):
                _finish(code, by, kinds, (i, code.add(i, code.integer(lanes))), source, target, steps, carry)
        with code.when(code.not_(overflown)) if overflown is not None else nullcontext():
            code.write(carry, _last(code, joined))
            code.store(code.offset(target, code.mul(i, code.integer(size))), code.convert(joined, kinds.memory))
    _finish(code, by, kinds, (full, n), source, target, steps, carry)


def _is_any_infinite(code: Code, x: Value, other: Value | None = None) -> Value:
    """Whether a lane of one or two vectors is no finite number."""
    zeros = code.sub(x, x)  # NaN where a lane is not finite
    others = zeros if other is None else code.sub(other, other)
    return code.reduce("or", code.compare("uno", zeros, others))


def _last(code: Code, x: Value) -> Value:
    return Value(code.let(f"extractelement {x.typed}, i64 {x.lanes - 1}"), x.dtype)


def _pieces_along(
    code: Code, by: Reduction, kinds: _Kinds, n: int, source: str, target: str, steps: tuple[int, int]
) -> None:
    """One long row of sums, piece by piece: two vectors at a time hand on the sum of a piece, to which the total of all before is
    added.
    """
    size, lanes, wide = kinds.memory.itemsize, kinds.lanes, kinds.wide
    full = n // (2 * lanes) * 2 * lanes
    none = code.constant(by.identity(wide), wide)
    total, carry = code.slot(code.constant(by.identity(kinds.carried), kinds.carried)), code.slot(none)
    before = code.slot(code.splat(none, lanes))

    def put_aside() -> None:
        whole = code.convert(code.read(carry), kinds.carried)
        code.write(total, combined(code, by.combine, code.read(total), whole))
        code.write(carry, none)

    def go_on() -> None:
        code.write(before, code.splat(code.convert(code.read(total), wide), lanes))

    with pieces(code, 0, full, kinds.summands * lanes) as (begin, end):
        with code.loop(begin, end, 2 * lanes) as i:
            places = [i, code.add(i, code.integer(lanes))]
            low, high = (_prefixes(code, by, kinds.load(code, source, at, steps[0], lanes)) for at in places)
            high = combined(code, by.combine, code.splat(_last(code, low), lanes), high)
            carried = code.splat(code.read(carry), lanes)
            sums = [combined(code, by.combine, carried, x) for x in (low, high)]
            joined = [combined(code, by.combine, code.read(before), x) for x in sums]
            overflown = _is_any_infinite(code, *joined)
            with code.when(overflown):
                put_aside()
                _finish(code, by, kinds, (i, code.add(i, code.integer(2 * lanes))), source, target, steps, total)
                go_on()
            with code.when(code.not_(overflown)):
                code.write(carry, _last(code, sums[1]))
                for at, x in zip(places, joined, strict=True):
                    code.store(code.offset(target, code.mul(at, code.integer(size))), code.convert(x, kinds.memory))
        put_aside()
        go_on()
    _finish(code, by, kinds, (full, n), source, target, steps, total)


def _single(
    code: Code, by: Reduction, kinds: _Kinds, n: int, source: str, target: str, steps: tuple[int, int], lanes: int
) -> None:
    """One row, or several side by side, value by value."""
    first = code.convert(code.load(source, kinds.memory, lanes), kinds.wide)
    code.store(target, code.convert(first, kinds.memory))
    _finish(code, by, kinds, (1, n), source, target, steps, code.slot(code.convert(first, kinds.carried)))


def _finish(
    code: Code,
    by: Reduction,
    kinds: _Kinds,
    bounds: tuple[Bound, Bound],
    source: str,
    target: str,
    steps: tuple[int, int],
    carry: Slot,
) -> None:
    with code.loop(*bounds) as i:
        x = code.load(code.offset(source, code.mul(i, code.integer(steps[0]))), kinds.memory, carry.lanes)
        joined = combined(code, by.combine, code.read(carry), code.convert(x, kinds.carried))
        code.write(carry, joined)
        code.store(code.offset(target, code.mul(i, code.integer(steps[1]))), code.convert(joined, kinds.memory))


def _memory(dtype: DType) -> DType:
    return dtypes.uint8 if dtypes.is_bool(dtype) else dtype


def _add(target: Command) -> None:
    def supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
        return has_reduction(cumulative[target], _memory(specs[0].dtype))

    add_native(target.name, _cumulative, supports)


cumulative.follow(_add)
