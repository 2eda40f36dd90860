"""The compiler of programs for CUDA: entries are code of the CPU, kernels are PTX."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256

from nnc.backends.cuda.compiler.assembling import OBJECTS, to_ptx
from nnc.backends.cuda.compiler.linking import find_linker
from nnc.base.options import Options
from nnc.lower.kernels.launch import DeviceKernel
from nnc.run.background import in_background
from nnc.run.prefetch import ProgramCompiler
from nnc.run.store.cache import Cache


class CudaCompiler:
    """Implements `ProgramCompiler` and `Assembler`; `host` compiles the entries."""

    def __init__(self, host: ProgramCompiler) -> None:
        self.works, self.expect, self.load = host.works, host.expect, host.load
        self.load_entry, self.prefetch = host.load_entry, host.prefetch

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
        cache = Cache(folder)
        key = {"text": sha256(ptx.encode()).hexdigest(), "machine": target, "nvjitlink": linker.version}
        found = cache.read_bytes(OBJECTS, key)
        if found:
            return found[0]
        cubin = linker.link(ptx, target).cubin
        in_background(partial(cache.write_bytes, OBJECTS, key, cubin))
        return cubin
