"""Checks indices where no element is read or written, so that an index out of range is still refused."""

from __future__ import annotations

import math

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.units import each_unit, one_launch, places_of
from nnc.base import dtypes
from nnc.device.target import GpuTarget
from nnc.lower.kernels.axes import Axes
from nnc.lower.kernels.indexed import Indexed
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step


def check_indices(step: Step, machine: GpuTarget, box: Indexed, is_update: bool = False) -> DeviceKernel:
    """Prints the kernel of a step that only checks indices: each thread checks those of one place.

    Args:
        step: the step, whose last inputs are the indices.
        box: the geometry of the indexed box; where an indexed axis is empty, each place is out of range.
        is_update: whether the result lies where the operand does, and stays as it is.
    """
    inputs, count, threads = len(step.inputs), math.prod(box.outer), machine.grids.threads
    operands = tuple(range(inputs + len(step.outputs) + 1))
    code = GpuCode("KERNEL_check", [*["noalias readonly"] * inputs, *[""] * (len(operands) - inputs)], threads)
    status = f"%p{operands[-1]}"
    with each_unit(code, count, threads) as unit:
        if box.is_out_of_reach:
            code.refuse(status, code.constant(True, dtypes.bool_))
        else:
            places = places_of(code, Axes(box.outer, tuple(index.strides for index in box.indices)), unit)
            first = inputs - len(box.indices)
            _, inside = box.find(code, [code.offset(f"%p{first + k}", at) for k, at in enumerate(places)], box.x)
            if inside is not None:
                code.refuse(status, code.not_(inside))
    return one_launch(code, count, threads, operands, updates=(inputs,) if is_update else (), may_fail=True)
