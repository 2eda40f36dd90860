"""Kernels in which a thread computes one element of each result, from elements that it finds by its index."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.units import one_launch
from nnc.base import dtypes
from nnc.device.target import GpuTarget
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step

_SHORT = 1 << 32  # numbers of threads that 32 bits count

Body = Callable[[GpuCode, list[Value]], Sequence[Value]]


def print_points(stem: str, step: Step, machine: GpuTarget, body: Body) -> DeviceKernel:
    """Prints a kernel for a step whose results have one shape and share no memory with its inputs.

    Neighbouring threads write neighbouring elements of the first result. Input i is read at the pointer `%p{i}`.

    Args:
        stem: the stem of the function's name.
        step: the step, which has at least one result.
        body: a function of the code and the index along each axis that returns the element of each result there.
    """
    outputs, count, threads = step.outputs, len(step.inputs), machine.grids.threads
    shape = outputs[0].spec.shape
    total = math.prod(shape)
    if not total:
        return DeviceKernel("", ())
    pointers = ["noalias readonly"] * count + ["noalias"] * len(outputs)
    code = GpuCode(f"KERNEL_{stem}", pointers, threads)
    number = code.add(code.mul(code.special("ctaid.x"), code.integer(threads)), code.special("tid.x"))
    with code.when(code.compare("lt", number, code.integer(total))):
        order = sorted(range(len(shape)), key=lambda axis: -abs(outputs[0].strides[axis]))
        index = [code.integer(0)] * len(shape)
        for axis, i in zip(order, _take_apart(code, number, [shape[axis] for axis in order]), strict=True):
            index[axis] = i
        elements = body(code, index)
        for position, (out, element) in enumerate(zip(outputs, elements, strict=True), count):
            code.store(place(code, f"%p{position}", index, out.strides), code.convert(element, out.spec.dtype))
    return one_launch(code, total, threads, range(len(pointers)))


def place(code: GpuCode, pointer: str, index: Sequence[Value], strides: Sequence[int]) -> str:
    """Returns the address of an element.

    Args:
        pointer: the address of the first element.
        strides: the stride of each axis, in bytes.
    """
    for i, stride in zip(index, strides, strict=True):
        pointer = code.offset(pointer, code.mul(i, code.integer(stride)))
    return pointer


def _take_apart(code: GpuCode, number: Value, shape: Sequence[int]) -> list[Value]:
    """Returns the index along each axis of the element of that number, in row-major order."""
    found: list[Value] = []
    number = code.convert(number, dtypes.uint32 if math.prod(shape) < _SHORT else dtypes.uint64)
    for n in reversed(shape[1:]):
        found.append(code.convert(code.rem(number, code.like(number, n)), dtypes.int64))
        number = code.div(number, code.like(number, n))
    return [*([code.convert(number, dtypes.int64)] if shape else []), *found[::-1]]
