"""Random bits for CUDA: a thread draws one word. The bits are the CPU's (Threefry-2x32)."""

from __future__ import annotations

import math

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.points import place
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.base import dtypes
from nnc.device.target import GpuTarget
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.launch import DeviceKernel, Launch
from nnc.lower.kernels.threefry import random_word
from nnc.lower.plan.stages import Step


def _random_bits(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Words of each key, in the order of the result's axes: first those of keys, then those that are drawn."""
    (key, start), (out,) = step.inputs, step.outputs
    keys, shape, dtype = start.spec.ndim, out.spec.shape, out.spec.dtype
    total, threads = math.prod(shape), machine.grids.threads
    if not total:
        return DeviceKernel("", ())
    code = GpuCode("KERNEL_draw", ["noalias readonly", "noalias readonly", "noalias"], threads)
    number = code.add(code.mul(code.special("ctaid.x"), code.integer(threads)), code.special("tid.x"))
    with code.when(code.compare("lt", number, code.integer(total))):
        places = _take_apart(code, number, shape)
        of_key, drawn = places[:keys], places[keys:]
        at_key = place(code, "%p0", of_key, key.strides[:-1])
        words = tuple(
            code.load(code.offset(at_key, i * key.strides[-1]), dtypes.uint32) for i in range(key.spec.shape[-1])
        )
        first = code.load(place(code, "%p1", of_key, start.strides), dtypes.uint64)
        index = code.integer(0)
        for n, i in zip(shape[keys:], drawn, strict=True):
            index = code.add(code.mul(index, code.integer(n)), i)
        bits = random_word(code, (words[0], words[1]), code.add(code.convert(index, dtypes.uint64), first), dtype)
        code.store(place(code, "%p2", places, out.strides), bits)
    code.ret()
    launch = Launch(f"@{code.name}", (-(-total // threads), 1, 1), (threads, 1, 1), (0, 1, 2))
    return DeviceKernel(code.module(), (launch,))


def _take_apart(code: GpuCode, number: Value, shape: tuple[int, ...]) -> list[Value]:
    """Returns the index along each axis of the element of that number."""
    found: list[Value] = []
    for n in reversed(shape):
        found.append(code.rem(number, code.integer(n)))
        number = code.div(number, code.integer(n))
    return found[::-1]


add_printed("random_bits", _random_bits, lambda specs, params: True)
