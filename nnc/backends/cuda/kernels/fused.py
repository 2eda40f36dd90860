"""Fused steps as kernels for CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from nnc.backends.cuda.kernels.nests import print_nest, workspace_bytes
from nnc.backends.cuda.kernels.registry import BACKEND
from nnc.device import CUDA
from nnc.device.target import GpuTarget
from nnc.errors import InternalError
from nnc.graph import Kernel, TensorSpec, add_kernel
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step


def _native(step: Step, machine: GpuTarget) -> DeviceKernel:
    return print_nest(step.graphs[0], step.inputs, step.outputs, machine)


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: GpuTarget) -> int:
    return workspace_bytes(params["graphs"][0], specs, machine)


def _run(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
    raise InternalError("a fused step is run by its graph where it is not compiled")


def _kernel(machine: GpuTarget) -> Kernel:
    native, workspace = partial(_native, machine=machine), partial(_workspace, machine=machine)
    return Kernel(BACKEND, _run, workspace=workspace, native=native, device=CUDA)


add_kernel("fused", KernelFactory(BACKEND, _kernel, device=CUDA))
