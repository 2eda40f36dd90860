"""Commands on empty operands for CUDA: nothing is launched for an empty result, and a reduction of no elements fills its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nnc.backends.cuda.kernels.nests import print_node
from nnc.backends.cuda.kernels.registry import Print
from nnc.backends.numpy_ref import reference_kernel
from nnc.base import dtypes
from nnc.commands.constants import full
from nnc.commands.rules import expansion, reduction
from nnc.device import CUDA
from nnc.device.target import GpuTarget
from nnc.graph import Command, Kernel, TensorSpec, add_kernel
from nnc.graph.registry import KernelFactory, scalar
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step

_BACKEND = "nothing"
_PRIORITY = 2  # behind kernels that take operands of any size, and before references on arrays of CuPy


def _native(step: Step, machine: GpuTarget) -> DeviceKernel | None:
    return None if any(out.spec.size for out in step.outputs) else DeviceKernel("", ())


def _identity(step: Step, machine: GpuTarget) -> DeviceKernel | None:
    """Returns the result of a reduction of no elements: the identity everywhere."""
    out = step.outputs[0]
    if not out.spec.size or not has_code(out.spec.dtype):
        return _native(step, machine)
    value = reduction[step.command].identity(dtypes.accumulator(out.spec.dtype))
    # The sum of no elements is 0, not -0.
    params = {"shape": out.spec.shape, "dtype": out.spec.dtype, "value": value or 0}
    printed = print_node(full, params, (), out, machine)
    launches = tuple(replace(each, operands=tuple(i + 1 for i in each.operands)) for each in printed.launches)
    return DeviceKernel(printed.text, launches)


def _is_empty(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return any(spec.size == 0 for spec in specs)


def _add(target: Command, native: Print) -> None:
    def run(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
        reference_kernel(target, (), params).run(inputs, outputs, params)

    def make(machine: GpuTarget) -> Kernel:
        return Kernel(_BACKEND, run, _is_empty, _PRIORITY, native=lambda step: native(step, machine), device=CUDA)

    add_kernel(target, KernelFactory(_BACKEND, make, _PRIORITY, CUDA))


scalar.follow(partial(_add, native=_native))
expansion.follow(partial(_add, native=_native))
reduction.follow(partial(_add, native=_identity))
