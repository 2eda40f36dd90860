"""Adds printed kernels to commands, and makes one of several."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnc.backends.cuda.compiler.compiler import join
from nnc.base.target import GpuTarget
from nnc.device import CUDA
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
        count = len(results) if isinstance(results, tuple) else 1  # behind them lies the workspace
        store(found, results, outputs[:count])

    def make(machine: GpuTarget) -> Kernel:
        return Kernel(
            BACKEND, run, supports, device=CUDA, native=lambda step: native(step, machine),
            workspace=lambda specs, params: workspace(specs, params, machine),
        )  # fmt: skip

    add_kernel(found, KernelFactory(BACKEND, make, device=CUDA))


# -- several kernels of one step ---------------------------------------------------------------------------------------

_STEM = re.compile("KERNEL_")


class Series:
    """Kernels of one step for a machine, in the order of their launches."""

    def __init__(self, machine: GpuTarget) -> None:
        self.machine = machine
        self._kernels = list[DeviceKernel]()

    def add(self, kernel: DeviceKernel, operands: Sequence[int]) -> None:
        """Adds a launch of a kernel behind the others, under names of its own.

        Args:
            operands: for each of the kernel's operands, its position among those of the step.
        """
        stem = f"KERNEL{len(self._kernels)}_"
        launches = tuple(
            launch._replace(
                function=_STEM.sub(stem, launch.function),
                operands=tuple(operands[i] for i in launch.operands),
                updates=tuple(operands[i] for i in launch.updates),
            )
            for launch in kernel.launches
        )
        self._kernels.append(DeviceKernel(_STEM.sub(stem, kernel.text), launches, kernel.may_fail))

    def kernel(self) -> DeviceKernel:
        """Returns all of them as one."""
        launches = tuple(launch for each in self._kernels for launch in each.launches)
        may_fail = any(each.may_fail for each in self._kernels)
        return DeviceKernel(join([each.text for each in self._kernels]), launches, may_fail)
