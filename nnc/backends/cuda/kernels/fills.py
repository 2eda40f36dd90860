"""Tensors of one value for CUDA, complex numbers as two tensors of their parts, and commands on empty operands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from nnc.backends.cuda.kernels.nests import print_node
from nnc.backends.cuda.kernels.registry import Print, Series, add_printed
from nnc.backends.numpy_ref import reference_kernel
from nnc.base import dtypes
from nnc.base.dtypes import TAPE
from nnc.base.target import GpuTarget
from nnc.commands.constants import full
from nnc.commands.rules import expansion, reduction
from nnc.device import CUDA
from nnc.graph import Command, Kernel, TensorSpec, add_kernel
from nnc.graph.kernels import KernelFactory
from nnc.graph.registry import scalar
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step, View


def fill(series: Series, out: View, value: Any, number: int) -> None:
    """Adds the launches that write one value to all elements, to both parts of complex numbers.

    Args:
        number: the position of `out` among the step's operands.
    """
    parts = [(out, value)]
    if dtypes.is_complex(out.spec.dtype):
        parts = [(view, each) for view, each in zip(parts_of(out), (value.real, value.imag), strict=True)]
    for view, each in parts:
        given = {"shape": view.spec.shape, "dtype": view.spec.dtype, "value": each}
        series.add(print_node(full, given, (), view, series.machine, (view.offset - out.offset,)), (number,))


def parts_of(view: View) -> tuple[View, View]:
    """Returns the real and the imaginary parts of a view of complex numbers."""
    spec = view.spec.update(dtype=dtypes.real_dtype(view.spec.dtype))
    real, imaginary = (view.show(spec, view.offset + at, view.strides) for at in (0, spec.dtype.itemsize))
    return real, imaginary


def _full(step: Step, machine: GpuTarget) -> DeviceKernel:
    """Returns a tensor of one value is the smallest graph that there is."""
    series, out = Series(machine), step.outputs[0]
    fill(series, out, out.spec.dtype.type(step.params["value"]), 0)
    return series.kernel()


def _supports(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return params["dtype"] != TAPE and 0 not in params["shape"]


add_printed(full, _full, _supports)


# -- empty operands ----------------------------------------------------------------------------------------------------

# Nothing is launched for an empty result, and a reduction of no elements fills its result.
_NOTHING = "nothing"
_PRIORITY = 2  # behind kernels that take operands of any size, and before references on arrays of CuPy


def _empty(step: Step, machine: GpuTarget) -> DeviceKernel | None:
    return None if any(out.spec.size for out in step.outputs) else DeviceKernel("", ())


def _identity(step: Step, machine: GpuTarget) -> DeviceKernel | None:
    """Returns the result of a reduction of no elements: the identity everywhere."""
    out = step.outputs[0]
    if not out.spec.size or not has_code(out.spec.dtype):
        return _empty(step, machine)
    value = reduction[step.command].identity(dtypes.accumulator(out.spec.dtype))
    # The sum of no elements is 0, not -0.
    params = {"shape": out.spec.shape, "dtype": out.spec.dtype, "value": value or 0}
    printed = print_node(full, params, (), out, machine)
    launches = tuple(each._replace(operands=tuple(i + 1 for i in each.operands)) for each in printed.launches)
    return DeviceKernel(printed.text, launches)


def _is_empty(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return any(spec.size == 0 for spec in specs)


def _add(target: Command, native: Print) -> None:
    def run(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
        reference_kernel(target, (), params).run(inputs, outputs, params)

    def make(machine: GpuTarget) -> Kernel:
        return Kernel(_NOTHING, run, _is_empty, _PRIORITY, native=lambda step: native(step, machine), device=CUDA)

    add_kernel(target, KernelFactory(_NOTHING, make, _PRIORITY, CUDA))


scalar.follow(partial(_add, native=_empty))
expansion.follow(partial(_add, native=_empty))
reduction.follow(partial(_add, native=_identity))
