"""Sums over bins for CUDA: a thread adds up one bin. Sums are put aside after 32 terms, so that they lose no digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.points import place, print_points
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.base import dtypes
from nnc.device.target import GpuTarget
from nnc.graph import TensorSpec
from nnc.lower.kernels.builder import Carried, Value, has_code
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step

_SUMMANDS = 32  # one thread adds up all of a bin: the square root of 1,000 elements, beyond which bins are rare


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


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return has_code(specs[0].dtype)


add_printed("bin_sums", _bin_sums, _supports)
add_printed("bin_sums_input_grad", _bin_sums, _supports)
