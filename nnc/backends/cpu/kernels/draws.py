"""Kernels of the functions behind random draws.

Their formulas print code with the bits of the reference (`nnc.commands.portable`), so eager draws run compiled code, too: the
reference is a chain of up to 150 of NumPy's functions. One text serves operands of any length. It takes up to a tenth of a second
to compile, and milliseconds to be found on disk, so operands of few elements are left to the reference until that has cost as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nnc.backends.cpu.kernels.sorts.rows import count_up
from nnc.backends.native_runs import run_native
from nnc.backends.numpy_ref import Arrays, Params, reference_kernel
from nnc.backends.printer import Printer, add_native, grain_of, over
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.commands.rules import same_bits
from nnc.device import CPU
from nnc.graph import Command, Graph, Kernel, Node, Symbol, TensorSpec, add_kernel
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Code, Value, has_code
from nnc.lower.kernels.llvm import print_graph
from nnc.lower.kernels.native import Native, Texts
from nnc.lower.kernels.threefry import random_word
from nnc.lower.kernels.values import first_lanes
from nnc.lower.plan.stages import Step, View

CALL = 1 << 14  # elements; a call of few costs as much of that, so that the kernel runs from the sixteenth on
WORTH = 1 << 18  # elements; compiling takes about as long as the reference for so many (of a logarithm, measured)

_TEXTS = Texts()


def _native(step: Step, machine: Target) -> Native | None:
    """Returns the kernel of a step whose operands are dense or one value; it is the same for all lengths."""
    *inputs, out = (*step.inputs, *step.outputs)
    singles = [out.spec.size > 1 and not any(view.strides) for view in inputs]
    if not all(view.is_dense or single for view, single in zip((*inputs, out), (*singles, False), strict=True)):
        return None
    specs = [TensorSpec((machine.loops.generic_elements,), view.spec.dtype) for view in (*inputs, out)]
    strides = [0 if single else spec.dtype.itemsize for spec, single in zip(specs, (*singles, False), strict=True)]
    views = tuple([View(0, spec, 0, (stride,)) for spec, stride in zip(specs, strides, strict=True)])
    found = _TEXTS.find((step.command, views, machine), lambda: _print(step.command, views, machine))
    return replace(found, numbers=(out.spec.size,))


def _print(command: Command, views: tuple[View, ...], machine: Target) -> Native:
    """Prints the kernel of a command on operands and a result that lie in these views."""
    *operands, out = (Symbol(view.spec) for view in views)
    graph = Graph(tuple(operands), (out,), (Node(command, tuple(operands), (out,), {}),))
    return print_graph(graph, views[:-1], views[-1:], machine)


class _DrawKernel:
    """Runs one command: the reference, until it has cost as much as to compile the kernel for operands of these dtypes."""

    def __init__(self, command: Command, native: Callable[[Step], Native | None]) -> None:
        self._command, self._compiled = command, run_native(native, command.name)
        self._cost: dict[Any, int] = {}  # of the calls by dtype, in elements; beyond WORTH the kernel runs

    def __call__(self, inputs: Arrays, outputs: Arrays, params: Params) -> None:
        dtype = inputs[0].dtype
        cost = self._cost.get(dtype, 0)
        if cost <= WORTH:
            cost = self._cost[dtype] = cost + outputs[0].size + CALL
        if cost > WORTH:
            self._compiled([x if not any(x.strides) else np.ascontiguousarray(x) for x in inputs], outputs, params)
        else:
            specs = tuple([TensorSpec(x.shape, x.dtype) for x in inputs])
            reference_kernel(self._command, specs, params).run(inputs, outputs, params)


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return all(has_code(spec.dtype) and spec.size for spec in specs)


def _add(command: Command) -> None:
    def make(machine: Target) -> Kernel:
        native = partial(_native, machine=machine)
        return Kernel(CPU, _DrawKernel(command, native), _supports, native=native)

    add_kernel(command, KernelFactory(CPU, make))


same_bits.follow(_add)


# -- random bits -------------------------------------------------------------------------------------------------------

# Native kernel of random bits: Threefry-2x32 of 16 counters at a time, the same bits as the reference's.


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
