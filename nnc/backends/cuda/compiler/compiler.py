"""The compiler of programs for CUDA: entries are code of the CPU, kernels are PTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from nnc.backends.cuda.compiler.assembling import OBJECTS, to_ptx
from nnc.backends.cuda.compiler.linking import find_linker
from nnc.base.options import Options
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.kernels.native import Function, Native
from nnc.run.background import in_background
from nnc.run.prefetch import Prefetch, ProgramCompiler
from nnc.run.store.cache import Cache


class CudaCompiler:
    """Implements `ProgramCompiler` and `Assembler`; `host` compiles the entries."""

    def __init__(self, host: ProgramCompiler) -> None:
        self._host = host

    def works(self) -> bool:
        """Whether entries can be compiled."""
        return self._host.works()

    def expect(self, wanted: Native | str | None = None) -> None:
        """Announces an entry."""
        self._host.expect(wanted)

    def load(self, natives: Sequence[Native]) -> Sequence[Function]:
        """Returns the functions of kernels for the CPU."""
        return self._host.load(natives)

    def load_entry(self, text: str, symbols: Mapping[str, int], held: Any) -> Function:
        """Returns the function `@ENTRY` of a program."""
        return self._host.load_entry(text, symbols, held)

    def prefetch(self) -> Prefetch:
        """Returns a block that prefetches memory of the host."""
        return self._host.prefetch()

    def assemble(self, kernels: Sequence[DeviceKernel], target: str) -> str:
        """Returns the PTX of kernels, in one module.

        Args:
            target: the processor, such as "sm_90".

        Raises:
            InternalError: LLVM refuses a text.
        """
        return to_ptx([kernel.code for kernel in kernels], target) if kernels else ""

    def to_machine_code(self, kernels: Sequence[DeviceKernel], target: str) -> bytes:
        """Returns the machine code that nvJitLink makes; where that library is not installed, PTX, which the driver assembles.

        Args:
            target: the processor, such as "sm_90".

        Raises:
            InternalError: LLVM or nvJitLink refuses a text.
        """
        ptx, linker = self.assemble(kernels, target), find_linker()
        if linker is None or not kernels:
            return ptx.encode()
        folder = Options.from_environment().cache_folder
        if folder is None:
            return linker.link(ptx, target).cubin
        cache, key = (
            Cache(folder),
            {"text": sha256(ptx.encode()).hexdigest(), "machine": target, "nvjitlink": linker.version},
        )
        found = cache.read_bytes(OBJECTS, key)
        if found:
            return found[0]
        cubin = linker.link(ptx, target).cubin
        in_background(partial(cache.write_bytes, OBJECTS, key, cubin))
        return cubin
