"""The compiler of programs for CUDA: entries are code of the CPU, kernels are PTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nnc.backends.cpu.jit import Jit
from nnc.backends.cuda.assembling import to_ptx
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.native import Function, Native
from nnc.lower.program.prefetch import Prefetch


class CudaCompiler:
    """Implements `ProgramCompiler` and `Assembler`.

    Args:
        host: compiles entries.
    """

    def __init__(self, host: Jit) -> None:
        self._host = host

    def works(self) -> bool:
        """Whether entries can be compiled."""
        return self._host.works()

    def expect(self, wanted: Native | str | None = None) -> None:
        """Announces an entry."""
        self._host.expect(wanted)

    def load(self, natives: Sequence[Native]) -> Sequence[Function]:
        """The functions of kernels for the CPU."""
        return self._host.load(natives)

    def load_entry(self, text: str, symbols: Mapping[str, int], held: Any) -> Function:
        """The function `@ENTRY` of a program."""
        return self._host.load_entry(text, symbols, held)

    def prefetch(self) -> Prefetch:
        """Returns a block that prefetches memory of the host."""
        return self._host.prefetch()

    def assemble(self, kernels: Sequence[DeviceKernel], target: str) -> str:
        """Returns the PTX of kernels, in one module.

        Args:
            kernels: of a program.
            target: the processor, "sm_90" say.

        Raises:
            InternalError: LLVM does not take a text.
        """
        return to_ptx([kernel.code for kernel in kernels], target) if kernels else ""
