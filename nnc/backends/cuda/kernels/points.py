"""Kernels in which a thread computes one element of each result, from elements that it finds by its index."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.backends.cuda.kernels.units import one_launch
from nnc.base import dtypes
from nnc.base.target import GpuTarget
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Carried, Value, has_code
from nnc.lower.kernels.keys import has_keys, key_of
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.threefry import random_word
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


# -- sums over bins ----------------------------------------------------------------------------------------------------

# A thread adds up one bin. Sums are put aside after so many terms, the square root of 1,000 elements, beyond which bins are rare,
# so that they lose no digits.
_SUMMANDS = 32


def _bin_sums(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Bin i of k over n elements goes from ⌊i n / k⌋ up to ⌈(i + 1) n / k⌉.

    The bins that hold a place follow from the same formula, with n bins over k places; so this is the transpose, too.
    """
    (x,), (out,) = step.inputs, step.outputs
    axis, kind = step.params["axis"], x.spec.dtype
    n, count, piece = x.spec.shape[axis], out.spec.shape[axis], _SUMMANDS

    def body(code: GpuCode, index: list[Value]) -> Sequence[Value]:
        begin = code.mul(index[axis], code.integer(n))
        end = code.div(code.add(begin, code.integer(n + count - 1)), code.integer(count))
        start = place(code, "%p0", [i if k != axis else code.integer(0) for k, i in enumerate(index)], x.strides)
        total = Carried([code.constant(0, dtypes.accumulator(kind))])
        with code.loop(code.div(begin, code.integer(count)), end, piece, [total]) as first:
            part = Carried([code.like(total.values[0], 0)])
            with code.loop(first, code.intrinsic("smin", code.add(first, code.integer(piece)), end), 1, [part]) as i:
                element = code.load(code.offset(start, code.mul(i, code.integer(x.strides[axis]))), kind)
                part.values = [code.add(part.values[0], code.convert(element, part.values[0].dtype))]
            total.values = [code.add(total.values[0], part.values[0])]
        return total.values

    return print_points("bin_sums", step, machine, body)


add_printed("bin_sums", _bin_sums, lambda specs, params: has_code(specs[0].dtype))
add_printed("bin_sums_input_grad", _bin_sums, lambda specs, params: has_code(specs[0].dtype))


# -- searches ----------------------------------------------------------------------------------------------------------


def _searchsorted(step: Step, machine: GpuTarget) -> DeviceKernel:
    """A thread finds the place of one value by bisection without branches."""
    rows, values = step.inputs
    batch, n, kind = rows.spec.ndim - 1, rows.spec.shape[-1], rows.spec.dtype
    comes_after = "lt" if step.params["side"] == "left" else "le"

    def body(code: GpuCode, index: list[Value]) -> Sequence[Value]:
        row = place(code, "%p0", index[:batch], rows.strides[:-1])
        wanted = key_of(code, code.load(place(code, "%p1", index, values.strides), kind), False)

        def skip(before: Value, count: Value) -> Value:
            """Returns the place behind the next `count` elements, where the last of them comes before the value."""
            behind = code.add(before, count)
            last = code.mul(code.sub(behind, code.integer(1)), code.integer(rows.strides[-1]))
            key = key_of(code, code.load(code.offset(row, last), kind), False)
            return code.select(code.compare(comes_after, key, wanted), behind, before)

        found, left = Carried([code.integer(0)]), Carried([code.integer(n)])
        with code.loop(0, max(n - 1, 0).bit_length(), carried=[found, left]):
            half = code.shr(left.values[0], code.integer(1))
            found.values = [skip(found.values[0], half)]
            left.values = [code.sub(left.values[0], half)]
        return [skip(found.values[0], code.integer(1)) if n else code.integer(0)]

    return print_points("search", step, machine, body)


def _has_keys(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return dtypes.is_known(specs[0].dtype) and has_keys(specs[0].dtype)


add_printed("searchsorted", _searchsorted, _has_keys)


# -- random bits -------------------------------------------------------------------------------------------------------


def _random_bits(step: Step, machine: GpuTarget) -> DeviceKernel:
    """A thread draws one word, whose bits are the CPU's (Threefry-2x32). Words lie in the order of the result's axes: first those
    of keys, then those that are drawn.
    """
    (key, start), (out,) = step.inputs, step.outputs
    keys = start.spec.ndim

    def body(code: GpuCode, index: list[Value]) -> Sequence[Value]:
        at_key = place(code, "%p0", index[:keys], key.strides[:-1])
        low, high = (code.load(code.offset(at_key, i * key.strides[-1]), dtypes.uint32) for i in range(2))
        first = code.load(place(code, "%p1", index[:keys], start.strides), dtypes.uint64)
        number = code.integer(0)
        for n, i in zip(out.spec.shape[keys:], index[keys:], strict=True):
            number = code.add(code.mul(number, code.integer(n)), i)
        counter = code.add(code.convert(number, dtypes.uint64), first)
        return [random_word(code, (low, high), counter, out.spec.dtype)]

    return print_points("draw", step, machine, body)


add_printed("random_bits", _random_bits, lambda specs, params: True)
