"""Native kernel of random bits: Threefry-2x32 of 16 counters at a time, the same bits as the reference's."""

from __future__ import annotations

import math

from nnc.backends.cpu.kernels.sorts.rows import count_up
from nnc.backends.printer import Printer, add_native, grain_of, over
from nnc.base import dtypes
from nnc.device.target import Target
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.threefry import random_word
from nnc.lower.kernels.values import first_lanes
from nnc.lower.plan.stages import Step

_LANES = 16


def _random_bits(step: Step, machine: Target) -> Native | None:
    key, start = step.inputs
    out, dtype = step.outputs[0], step.outputs[0].spec.dtype
    count, keys = math.prod(step.params["shape"]), start.spec.ndim
    drawn = Axes(out.spec.shape[keys:], (out.strides[keys:],)).merged()
    if drawn.size > 1 and drawn.strides != ((dtype.itemsize,),):
        return None
    printer = Printer(step, machine)
    outer = Axes(start.spec.shape, (key.strides[:-1], start.strides, out.strides[:keys])).merged()
    wide = key.strides[-1]

    def one(code: Code, pointers: list[str], begin: Value | int, end: Value | int) -> None:
        words = (code.load(pointers[0], dtypes.uint32), code.load(code.offset(pointers[0], wide), dtypes.uint32))
        first = code.load(pointers[1], dtypes.uint64)
        with code.loop(begin, end, _LANES) as i:
            at = count_up(code, code.splat(i, _LANES), _LANES)
            counter = code.add(code.bitcast(at, dtypes.uint64), first)
            drawn_bits = random_word(code, words, counter, dtype)
            target = code.offset(pointers[2], code.mul(i, code.integer(dtype.itemsize)))
            code.store(target, drawn_bits, first_lanes(code, code.sub(code.integer(end), i), _LANES))

    work = out.spec.size * machine.sorting.drawn_bytes
    if outer.size > 1 and outer.size >= count // _LANES:  # many keys
        axis = outer.shape.index(max(outer.shape))

        def rows(code: Code, begin: Value | int, end: Value | int) -> None:
            with over(code, outer, ["%in0", "%in1", "%out0"], (axis, begin, end)) as pointers:
                one(code, pointers, 0, count)

        printer.parts(outer.shape[axis] if count else 0, grain_of(outer.shape[axis], work, machine), rows)
    else:

        def words(code: Code, begin: Value | int, end: Value | int) -> None:
            with over(code, outer, ["%in0", "%in1", "%out0"]) as pointers:
                one(code, pointers, begin, end)

        printer.parts(count if outer.size else 0, grain_of(count, work, machine), words)
    return printer.native(inline=out.spec.nbytes <= machine.threads.inline_bytes)


add_native("random_bits", _random_bits)
