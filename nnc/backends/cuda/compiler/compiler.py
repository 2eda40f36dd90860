"""The compiler of programs for CUDA: entries are code of the CPU, kernels are PTX.

An intrinsic that the processor lacks ends the process that compiles (LLVM aborts). So kernels are compiled in a process of their
own, apart from the one for the CPU; a text during which it ended is tried once more, alone, and then refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from nnc.backends.cuda.compiler.linking import find_linker
from nnc.backends.llvm.llvm import INLINED, KERNEL, Recipe, encode
from nnc.backends.llvm.llvm_process import Answer, GoneError, Helper, find_command
from nnc.backends.llvm.llvmlite_library import find_library, llvmlite_version
from nnc.base.machine import usable_threads
from nnc.base.options import Options
from nnc.base.target import GpuTarget
from nnc.errors import InternalError
from nnc.lower.kernels.launch import DeviceKernel
from nnc.lower.plan.stages import Planned, Step
from nnc.run.background import in_background
from nnc.run.prefetch import ProgramCompiler
from nnc.run.store.cache import Cache


class CudaCompiler:
    """Implements `ProgramCompiler` and `Assembler`.

    Args:
        host: compiles the entries.
        regions: prints a loop or a branch as one kernel for a machine, or says why it cannot be one.
    """

    def __init__(
        self, host: ProgramCompiler, regions: Callable[[Step, Planned, GpuTarget], DeviceKernel | str]
    ) -> None:
        self._regions = regions
        self.works, self.expect, self.load = host.works, host.expect, host.load
        self.load_entry, self.prefetch = host.load_entry, host.prefetch

    def print_region(self, step: Step, planned: Planned) -> DeviceKernel | str:
        """Returns a loop or a branch, with all steps within it, as one kernel; where it cannot be one, the reason in words."""
        assert isinstance(planned.machine, GpuTarget)
        return self._regions(step, planned, planned.machine)

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


# -- PTX ---------------------------------------------------------------------------------------------------------------

# Turns LLVM's text of kernels into PTX.
#
# An intrinsic that the processor lacks ends the process that compiles (LLVM aborts). So kernels are compiled in a process of their
# own, apart from the one for the CPU; a text during which it ended is tried once more, alone, and then refused.


OBJECTS = "objects"  # of files, beside those for the CPU
_THREADS = 4  # of the process: kernels of a program are compiled side by side
_NAME = re.compile(r"define ptx_kernel void @([\w.$]+)\(")
_DECLARATION = re.compile(r"^declare .*\n?", re.MULTILINE)


class PtxCompiler:
    """Compiles kernels for one graphics processor.

    Args:
        target: the processor, such as "sm_90".
        folder: where PTX is kept for other processes; None: nowhere.

    Attributes:
        compiled: the number of texts that LLVM compiled; others were found in the folder.

    Raises:
        InternalError: no Python can be found to run the process.
    """

    def __init__(self, target: str, folder: Path | None = None) -> None:
        command = find_command(find_library(), min(usable_threads(), _THREADS), target)
        if command is None:
            raise InternalError(
                "kernels for graphics processors are compiled in a process of Python, and none was found"
            )
        self.target, self._helper, self.compiled = target, Helper(command), 0
        self._cache = Cache(folder) if folder is not None else None
        self._made_for = {"machine": target, "llvm": f"llvmlite {llvmlite_version()}"}

    def compile_all(self, texts: Sequence[str]) -> list[str]:
        """Returns the PTX of modules, which are compiled in parallel.

        Raises:
            InternalError: LLVM refuses a text.
        """
        known = [self._find(text) for text in texts]
        missing = [text for text, ptx in zip(texts, known, strict=True) if ptx is None]
        answers = [self._helper.compile(text, _recipe(text)) for text in missing]
        made = (self._finish(text, answer) for text, answer in zip(missing, answers, strict=True))
        return [next(made) if ptx is None else ptx for ptx in known]

    def _find(self, text: str) -> str | None:
        """Returns the PTX of a text that was compiled before."""
        found = self._cache.read_bytes(OBJECTS, self._key(text)) if self._cache is not None else None
        return found[0].decode() if found else None

    def _key(self, text: str) -> dict[str, str]:
        return {"text": hashlib.sha256(text.encode()).hexdigest(), "recipe": encode(_recipe(text)), **self._made_for}

    def _finish(self, text: str, answer: Answer | None) -> str:
        for _ in range(2):
            try:
                if answer is None:
                    raise InternalError("the process that compiles for graphics processors cannot be started")
                ptx = answer.result()
                self.compiled += 1
                if self._cache is not None:
                    in_background(partial(self._cache.write_bytes, OBJECTS, self._key(text), ptx))
                return ptx.decode()
            except GoneError:
                answer = self._helper.compile(text, _recipe(text))
            except RuntimeError as error:
                raise InternalError(f"LLVM does not take {_names(text)}: {error}") from error
        raise InternalError(
            f"LLVM ends while it compiles {_names(text)} for {self.target}: it uses what {self.target} lacks"
        )


def _recipe(text: str) -> Recipe:
    """Returns the settings to compile a module by: a loop that is one kernel takes in the functions of its steps."""
    return INLINED if " alwaysinline " in text else KERNEL


def join(texts: Sequence[str]) -> str:
    """Joins the texts of kernels in one module, with each declaration once."""
    declarations = sorted({line.strip() for text in texts for line in _DECLARATION.findall(text)})
    return "\n".join([*declarations, *(_DECLARATION.sub("", text) for text in texts)])


def to_ptx(texts: Sequence[str], target: str) -> str:
    """Returns the PTX of kernels, as one module.

    Args:
        target: the processor, such as "sm_90".

    Raises:
        InternalError: LLVM refuses a text.
    """
    return _compiler(target).compile_all([join(texts)])[0]


@cache
def _compiler(target: str) -> PtxCompiler:
    return PtxCompiler(target, Options.from_environment().cache_folder)


def _names(text: str) -> str:
    """Returns the kernels of a text, for messages."""
    return ", ".join(_NAME.findall(text)) or "a text"
