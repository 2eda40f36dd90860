"""Fused steps as compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nnc.backends.moves import fill_box
from nnc.backends.numpy_ref import reference_kernel, run_by_graph
from nnc.backends.printer import Printer, constant_bytes
from nnc.base import dtypes
from nnc.base.target import Target
from nnc.commands.constants import full
from nnc.device import CPU
from nnc.graph import Graph, Kernel, Node, Symbol, TensorSpec, add_kernel
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.llvm import KernelPrinter, print_graph
from nnc.lower.kernels.native import Native, Remembered
from nnc.lower.plan.stages import Step


def _fill(step: Step, machine: Target, nests: KernelPrinter) -> Native:
    """A tensor of one value is the smallest graph that there is; a complex one is filled by words."""
    view = step.outputs[0]
    if dtypes.is_complex(view.spec.dtype):
        printer = Printer(step, machine)
        value = constant_bytes(printer.main, "value", view.spec.dtype.type(step.params["value"]).tobytes())
        fill_box(printer, view.spec, value, "%out0", view.strides)
        return printer.native()
    if step.like is not None:
        return nests.native(replace(step, graphs=(_value(step),), like=replace(step.like, graphs=(_value(step.like),))))
    return print_graph(_value(step), (), step.outputs, machine)


def _value(step: Step) -> Graph:
    out = Symbol(step.outputs[0].spec)
    return Graph((), (out,), (Node(step.command, (), (out,), step.params),))


def _run_fill(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
    reference_kernel(full, (), params).run(inputs, outputs, params)


def _can_fill(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return params["dtype"] != dtypes.TAPE and 0 not in params["shape"]


def _full_kernel(machine: Target) -> Kernel:
    native = partial(_fill, machine=machine, nests=KernelPrinter(machine))
    return Kernel(CPU, _run_fill, _can_fill, native=Remembered(native, sized=True))


def _fused_kernel(machine: Target) -> Kernel:
    return Kernel(CPU, run_by_graph, native=KernelPrinter(machine).native)


add_kernel("full", KernelFactory(CPU, _full_kernel))
add_kernel("fused", KernelFactory(CPU, _fused_kernel))
