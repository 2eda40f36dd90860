"""Random bits for CUDA: a thread draws one word. The bits are the CPU's (Threefry-2x32)."""

from __future__ import annotations

from collections.abc import Sequence

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.points import place, print_points
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.base import dtypes
from nnc.device.target import GpuTarget
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.threefry import random_word
from nnc.lower.plan.stages import Step


def _random_bits(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Words of each key, in the order of the result's axes: first those of keys, then those that are drawn."""
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
