"""Tensors of one value for CUDA, and complex numbers as two tensors of their parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.cuda.kernels.nests import print_node
from nnc.backends.cuda.kernels.registry import add_printed
from nnc.backends.cuda.kernels.series import Series
from nnc.base import dtypes
from nnc.base.dtypes import TAPE
from nnc.commands.constants import full
from nnc.device.target import GpuTarget
from nnc.graph import TensorSpec
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
