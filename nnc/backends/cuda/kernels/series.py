"""Several printed kernels as one kernel of a step, done one after the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from nnc.backends.cuda.compiler.compiler import join
from nnc.device.target import GpuTarget
from nnc.lower.kernels.launch import DeviceKernel

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
            replace(
                launch,
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
