"""Fused steps as compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from nnc.backends.cpu.kernels.vectors import vector_bytes
from nnc.backends.numpy_ref import reference_kernel
from nnc.base.dtypes import TAPE, as_dtype
from nnc.commands.constants import full
from nnc.device import CPU
from nnc.errors import InternalError
from nnc.graph import Graph, Kernel, Node, Symbol, TensorSpec, add_kernel
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.llvm import KernelPrinter, print_graph
from nnc.lower.kernels.native import Native, Remembered
from nnc.lower.plan.stages import Step


@cache
def _printer() -> KernelPrinter:
    return KernelPrinter(vector_bytes())


def _native(step: Step) -> Native:
    return _printer().native(step)


def _run(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
    raise InternalError("a fused step is run by its graph where it is not compiled")


def _fill(step: Step) -> Native:
    """A tensor of one value is the smallest graph that there is."""
    out = Symbol(step.outputs[0].spec)
    graph = Graph((), (out,), (Node(step.command, (), (out,), step.params),))
    return print_graph(graph, (), step.outputs, vector_bytes())


def _run_fill(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
    reference_kernel(full, (), params).run(inputs, outputs, params)


def _can_fill(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return params["dtype"] != TAPE and has_code(as_dtype(params["dtype"])) and 0 not in params["shape"]


add_kernel("full", Kernel(CPU, _run_fill, _can_fill, native=Remembered(_fill)))
add_kernel("fused", Kernel(CPU, _run, native=_native))
