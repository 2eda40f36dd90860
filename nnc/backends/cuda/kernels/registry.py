"""Adds printed kernels to commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnc.device import CUDA
from nnc.device.target import GpuTarget
from nnc.graph import Command, Kernel, TensorSpec, add_kernel, command, reference
from nnc.graph.kernels import KernelFactory
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.references import store
from nnc.lower.plan.stages import Step

BACKEND = "printed"

Print = Callable[[Step, GpuTarget], DeviceKernel | None]
Supports = Callable[[tuple[TensorSpec, ...], Mapping[str, Any]], bool]
Workspace = Callable[[tuple[TensorSpec, ...], Mapping[str, Any], GpuTarget], int]


def add_printed(
    target: Command | str, native: Print, supports: Supports, workspace: Workspace = lambda specs, params, machine: 0
) -> None:
    """Adds the printed kernel of a command, one for each machine; where nothing is compiled, the command runs by its reference.

    Args:
        native: prints the kernel of a step; it returns None for a step that only the reference can run.
        supports: whether the kernel takes operands of these specs, with these parameters.
        workspace: the bytes that the kernel needs while it runs, which are then the last output of a step.
    """
    found = command(target)

    def run(inputs: Sequence[Any], outputs: Sequence[Any], params: Mapping[str, Any]) -> None:
        results = reference[found](*inputs, **params)
        store(
            found, results, outputs[: len(results) if isinstance(results, tuple) else 1]
        )  # behind them lies the workspace

    def make(machine: GpuTarget) -> Kernel:
        return Kernel(
            BACKEND, run, supports, device=CUDA, native=lambda step: native(step, machine),
            workspace=lambda specs, params: workspace(specs, params, machine),
        )  # fmt: skip

    add_kernel(found, KernelFactory(BACKEND, make, device=CUDA))
