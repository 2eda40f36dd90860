"""Native kernels of the cumulative commands.

Along an axis that lies dense, a vector's prefixes are made in log2(lanes) steps (Hillis and Steele, 1986), and only one
operation for each vector waits for the one before; along another axis, vectors are taken across rows. Partial sums of floats may
overflow where the sums in their order do not: such vectors are summed value by value. Partial products may lose all digits, too,
so products of floats are always made in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from nnc import dtypes
from nnc.backends.cpu.printer import Bound, Printer, add_native, grain_of, in_blocks, longest, over
from nnc.commands.rules import Reduction, cumulative
from nnc.dtypes import DType
from nnc.graph import Command, TensorSpec
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Slot, Value
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


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Dtypes in memory and in registers."""

    memory: DType
    wide: DType

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


def _cumulative(step: Step) -> Native | None:
    (x,), (out,) = step.inputs, step.outputs
    by, memory = cumulative[step.command], _memory(x.spec.dtype)
    kinds = _Kinds(memory, dtypes.accumulator(memory))
    axis = step.params["axis"] % x.spec.ndim
    n, size = x.spec.shape[axis], memory.itemsize
    steps = x.strides[axis], out.strides[axis]
    axes = Axes(x.spec.shape, (x.strides, out.strides)).without(axis).merged()
    printer = Printer(step)
    if not x.spec.size:
        return printer.native(inline=True)
    last = len(axes.shape) - 1
    across = last >= 0 and all(strides[last] == size for strides in axes.strides) and axes.shape[last] >= kinds.lanes
    chosen = longest(axes.shape)
    count = axes.shape[chosen] if chosen >= 0 else 1

    def body(code: Code, begin: Bound, end: Bound) -> None:
        part = (chosen, begin, end)
        if not across:
            with over(code, axes, ["%in0", "%out0"], part) as (source, target):
                _along(code, by, kinds, n, source, target, steps)
            return
        bounds = part[1:] if chosen == last else (0, axes.shape[last])
        with over(code, axes.without(last), ["%in0", "%out0"], part) as (source, target):

            def column(i: Value, lanes: int) -> None:
                moved = code.mul(i, code.integer(size))
                _single(code, by, kinds, n, code.offset(source, moved), code.offset(target, moved), steps, lanes)

            in_blocks(code, bounds[0], bounds[1], kinds.lanes, column)

    printer.parts(count, grain_of(count, 2 * x.spec.nbytes), body)
    return printer.native()


def _along(code: Code, by: Reduction, kinds: _Kinds, n: int, source: str, target: str, steps: tuple[int, int]) -> None:
    """One row."""
    size, lanes = kinds.memory.itemsize, kinds.lanes
    full = n // lanes * lanes if abs(steps[0]) == size and steps[1] == size else 0
    floats = dtypes.is_float(kinds.wide)
    if not full or (floats and by.ordered):
        _single(code, by, kinds, n, source, target, steps, 0)
        return
    first = kinds.load(code, source, code.integer(0), steps[0], 0)
    carry = code.slot(first if by.idempotent else code.constant(by.identity(kinds.wide), kinds.wide))
    with code.loop(0, full, lanes) as i:
        prefixes = _prefixes(code, by, kinds.load(code, source, i, steps[0], lanes))
        joined = combined(code, by.combine, code.splat(code.read(carry), lanes), prefixes)
        overflown = None
        if floats and not by.idempotent:
            zeros = code.sub(joined, joined)  # NaN where a sum is not finite
            overflown = code.reduce("or", code.compare("uno", zeros, zeros))
            with code.when(overflown):
                _finish(code, by, kinds, (i, code.add(i, code.integer(lanes))), source, target, steps, carry)
        with code.when(code.not_(overflown)) if overflown is not None else nullcontext():
            text = code.let(f"extractelement {joined.typed}, i64 {lanes - 1}")
            code.write(carry, Value(text, kinds.wide))
            code.store(code.offset(target, code.mul(i, code.integer(size))), code.convert(joined, kinds.memory))
    _finish(code, by, kinds, (full, n), source, target, steps, carry)


def _single(
    code: Code, by: Reduction, kinds: _Kinds, n: int, source: str, target: str, steps: tuple[int, int], lanes: int
) -> None:
    """One row, or several side by side, value by value."""
    first = code.convert(code.load(source, kinds.memory, lanes), kinds.wide)
    code.store(target, code.convert(first, kinds.memory))
    _finish(code, by, kinds, (1, n), source, target, steps, code.slot(first))


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
        joined = combined(code, by.combine, code.read(carry), code.convert(x, kinds.wide))
        code.write(carry, joined)
        code.store(code.offset(target, code.mul(i, code.integer(steps[1]))), code.convert(joined, kinds.memory))


def _memory(dtype: DType) -> DType:
    return dtypes.uint8 if dtypes.is_bool(dtype) else dtype


def _add(target: Command) -> None:
    def supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
        return has_reduction(cumulative[target], _memory(specs[0].dtype))

    add_native(target.name, _cumulative, supports)


cumulative.follow(_add)
