"""Adds printed kernels to commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnc.device import CUDA
from nnc.device.target import GpuTarget
from nnc.graph import Command, Kernel, TensorSpec, add_kernel, command, reference
from nnc.graph.registry import KernelFactory
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
    """Adds the kernel of a command, which is another one for each machine, and runs by its reference where nothing is compiled.

    Args:
        target: the command or its name.
        native: prints the kernel of a step; None where only the reference will do.
        supports: whether it takes operands of such specs, with such parameters.
        workspace: the bytes that it needs while it runs, which are then the last output of a step.
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
