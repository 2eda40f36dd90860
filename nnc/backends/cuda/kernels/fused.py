"""Fused steps as kernels for CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnc.backends.cuda.kernels.nests import print_nest, workspace_bytes
from nnc.backends.cuda.kernels.registry import BACKEND
from nnc.device import CUDA
from nnc.errors import InternalError
from nnc.graph import Kernel, TensorSpec, add_kernel
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Step


def _native(step: Step) -> DeviceKernel:
    return print_nest(step.graphs[0], step.inputs, step.outputs)


def _workspace(specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> int:
    return workspace_bytes(params["graphs"][0], specs)


def _run(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
    raise InternalError("a fused step is run by its graph where it is not compiled")


add_kernel("fused", Kernel(BACKEND, _run, workspace=_workspace, native=_native, device=CUDA))
