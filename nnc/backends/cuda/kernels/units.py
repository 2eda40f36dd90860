"""Boxes of elements; each thread takes one element, or a vector of neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.base import dtypes
from nnc.base.target import GpuTarget
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.launch import DeviceKernel, Launch

_SHORT = 1 << 31  # units that 32 bits count; GPUs divide 64 bits slowly


def unit_of(code: GpuCode, count: int, threads: int) -> Value:
    """Returns the number of a thread in its grid, in 32 bits where these suffice to count all units.

    Args:
        count: the number of units.
        threads: threads of a block.
    """
    kind = dtypes.uint32 if count + threads <= _SHORT else dtypes.uint64
    block, thread = (code.convert(code.special(name), kind) for name in ("ctaid.x", "tid.x"))
    return code.add(code.mul(block, code.like(block, threads)), thread)


@contextmanager
def each_unit(code: GpuCode, count: int, threads: int) -> Iterator[Value]:
    """A thread for each of so many units: the block runs with the number of its own."""
    unit = unit_of(code, count, threads)
    with code.when(code.compare("lt", unit, code.like(unit, count))):
        yield unit


def one_launch(
    code: GpuCode, count: int, threads: int, operands: Sequence[int], *, updates: tuple[int, ...] = (), may_fail: bool = False
) -> DeviceKernel:  # fmt: skip
    """Ends a function whose threads take so many units, and returns it as a kernel of one launch."""
    code.ret()
    launch = Launch(f"@{code.name}", (-(-count // threads), 1, 1), (threads, 1, 1), tuple(operands), updates=updates)
    return DeviceKernel(code.module(), (launch,), may_fail)


def unsigned(code: GpuCode, n: Value, count: int) -> Value:
    """Converts an int64 below `count` to 32 bits where these suffice."""
    return code.convert(n, dtypes.uint32 if count < _SHORT else dtypes.uint64)


def places_of(code: GpuCode, axes: Axes, unit: Value) -> list[Value]:
    """Returns, for each operand, the bytes from the first element of a box to one element.

    Args:
        axes: the axes of the box.
        unit: the element's number in row-major order, unsigned.
    """
    places = [code.integer(0)] * len(axes.strides)
    for axis in reversed(range(len(axes.shape))):
        size = code.like(unit, axes.shape[axis])
        i = code.convert(code.rem(unit, size) if axis else unit, dtypes.int64)
        unit = code.div(unit, size)
        steps = (code.mul(i, code.integer(strides[axis])) for strides in axes.strides)
        places = [code.add(place, step) for place, step in zip(places, steps, strict=True)]
    return places


def in_vectors(axes: Axes, item: int, moving: Sequence[int], alignment: int, machine: GpuTarget) -> tuple[Axes, int]:
    """Returns the box with vectors of neighbours along its last axis as its elements, and the lanes of a vector.

    Args:
        axes: the axes of the box.
        item: bytes of an element.
        moving: the operands that are read or written in vectors; the others have one element for a whole vector.
        alignment: bytes that divide the other offsets that are added to the addresses of the moving operands.
    """
    last = len(axes.shape) - 1
    lanes = machine.grids.vector_bytes // item
    if last < 0 or any(by[last] != (item if k in moving else 0) for k, by in enumerate(axes.strides)):
        return axes, 1
    steps = [step for k in moving for step in axes.strides[k][:last]]
    while axes.shape[last] % lanes or math.gcd(alignment, *steps) % (lanes * item):
        lanes //= 2
    shape = (*axes.shape[:last], axes.shape[last] // lanes)
    return Axes(shape, tuple((*by[:last], by[last] * lanes) for by in axes.strides)), lanes


def either(code: GpuCode, condition: Value, make: Callable[[], Value], other: Value) -> Value:
    """Returns a value that is made where a condition holds, and another one elsewhere."""
    before = code.block
    with code.when(condition):
        found = make()
        inside = code.block
    name = code.fresh()
    code.line(f"{name} = phi {found.type} [{found.text}, %{inside}], [{other.text}, %{before}]")
    return Value(name, found.dtype, found.lanes)


def count_below(code: GpuCode, load: Callable[[Value], Value], size: Value, most: int, key: Value) -> Value:
    """Counts the numbers below a key in ascending order, by bisection; returns an int64.

    Args:
        load: reads the number at an index.
        size: the count of numbers, an int64.
        most: an upper bound of `size`.
        key: an unsigned number.
    """
    found, step = code.integer(0), 1 << most.bit_length() >> 1
    while step:
        further = code.add(found, code.integer(step))
        last = code.add(further, code.integer(-1))
        x = either(code, code.compare("le", further, size), lambda last=last: load(last), key)  # type: ignore[misc]
        found = code.select(code.compare("lt", x, key), further, found)
        step //= 2
    return found
