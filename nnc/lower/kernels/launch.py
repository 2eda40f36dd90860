"""Printed kernels of a device with memory of its own: LLVM's text, and the launches that a step takes.

A backend's `Kernel.native(step)` gives the `DeviceKernel` of a step, made for its shapes and strides, where the device is not the
CPU (for which see `nnc.lower.kernels.native`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple, Protocol, runtime_checkable

from nnc.lower.kernels.native import KERNEL
from nnc.lower.plan.stages import Planned, Step

Extent = tuple[int, int, int]


class Launch(NamedTuple):
    """One launch of a kernel: a grid of blocks of threads.

    Attributes:
        function: the function's name in the text, which begins with `@KERNEL`.
        grid: the number of blocks along x, y and z.
        block: the number of threads of a block along x, y and z.
        operands: the tensors that the parameters point to, as positions in the step's inputs, its outputs, its workspace (if
            the kernel has one) and its status word (if it may refuse an input), in this order. A loop or branch that is one kernel
            has all buffers that it touches, in the order of their numbers, instead of inputs and outputs.
        shared: bytes of shared memory of a block, beside the memory that the text declares.
        updates: operands that lie where an input of the step does, and in which the launch leaves some elements unchanged; of a
            loop or branch, the buffers that it may read before it writes them.
    """

    function: str
    grid: Extent
    block: Extent
    operands: tuple[int, ...]
    shared: int = 0
    updates: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeviceKernel:
    """A kernel for a device.

    Attributes:
        text: LLVM functions, and the declarations and shared variables that they need; names of its own begin with `@KERNEL`.
            Each function that is launched takes one pointer for each operand of its launch, and is linked as `ptx_kernel`.
        launches: the launches, in their order.
        may_fail: whether the kernel takes a status word: an int32 of the step's own that is 0 before the launch. An atomic
            maximum sets it to 1 where an input is refused; the reference then words the error.
    """

    text: str
    launches: tuple[Launch, ...]
    may_fail: bool = False

    @cached_property
    def name(self) -> str:
        """The name that stands for `@KERNEL`, which follows from the text."""
        return f"k{sha256(self.text.encode()).hexdigest()[:24]}"

    @property
    def code(self) -> str:
        """The text with its names filled in."""
        return self.text.replace(KERNEL, f"@{self.name}")

    def function(self, launch: Launch) -> str:
        """Returns the name of the function of one of this kernel's launches in the assembled code."""
        return launch.function.replace(KERNEL, self.name)


@runtime_checkable
class Assembler(Protocol):
    """A compiler that turns printed kernels into code of a device."""

    def print_region(self, step: Step, planned: Planned) -> DeviceKernel | str:
        """Returns a loop or a branch, with all steps within it, as one kernel; where it cannot be one, the reason in words."""
        ...

    def assemble(self, kernels: Sequence[DeviceKernel], target: str) -> str:
        """Returns the PTX of kernels, in one module, under their names.

        Args:
            target: the processor, by NVIDIA's name, such as "sm_90".

        Raises:
            InternalError: the assembler refuses a text.
        """
        ...

    def to_machine_code(self, kernels: Sequence[DeviceKernel], target: str) -> bytes:
        """Returns the code of kernels in the form that a driver loads fastest: machine code, or PTX where nothing can assemble
        it.

        Args:
            target: the processor, by NVIDIA's name, such as "sm_90".

        Raises:
            InternalError: the assembler refuses a text.
        """
        ...
