"""Fused steps as kernels for CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.cuda.nests import print_nest, workspace_bytes
from nnc.backends.cuda.registry import BACKEND
from nnc.backends.numpy_ref import reference_kernel
from nnc.commands.constants import full
from nnc.devices import CUDA
from nnc.dtypes import TAPE, as_dtype
from nnc.errors import InternalError
from nnc.graph import Graph, Kernel, Node, Symbol, TensorSpec, add_kernel
from nnc.lower.kernels.builder import has_code
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step


def _native(step: Step) -> DeviceKernel:
    return print_nest(step.graphs[0], step.inputs, step.outputs)


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
    return workspace_bytes(params["graphs"][0], specs)


def _run(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
    raise InternalError("a fused step is run by its graph where it is not compiled")


def _fill(step: Step) -> DeviceKernel:
    """A tensor of one value is the smallest graph that there is."""
    out = Symbol(step.outputs[0].spec)
    return print_nest(Graph((), (out,), (Node(step.command, (), (out,), step.params),)), (), step.outputs)


def _run_fill(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
    reference_kernel(full, (), params).run(inputs, outputs, params)


def _can_fill(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return params["dtype"] != TAPE and has_code(as_dtype(params["dtype"])) and 0 not in params["shape"]


add_kernel("full", Kernel(BACKEND, _run_fill, _can_fill, native=_fill, device=CUDA))
add_kernel("fused", Kernel(BACKEND, _run, workspace=_workspace, native=_native, device=CUDA))
