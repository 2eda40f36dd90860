"""Finds the toolchain of a device: its kernels and its compiler."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from nnc.base.garbage import collection_paused
from nnc.compiled.device_kinds import binder, expected_cpu_compiler
from nnc.device import kind_of, load_kernels

if TYPE_CHECKING:
    from nnc.compiled.pipeline import ChooseKernel
    from nnc.run.prefetch import ProgramCompiler
    from nnc.run.store.autotune import Candidates


class Toolchain(NamedTuple):
    """The kernels and the compiler of one kind of devices.

    Attributes:
        choose_kernel: returns the kernel for a command on inputs of some specs.
        candidate_kernels: returns all such kernels, the chosen one first.
        compiler: returns the compiler, which may not be ready yet; None where there is none.
    """

    choose_kernel: ChooseKernel
    candidate_kernels: Candidates
    compiler: Callable[[], ProgramCompiler | None]


def start_compiler() -> None:
    """Begins to compile the functions that all programs call, where no files hold them: another process loads LLVM and compiles,
    while this one imports passes and kernels.
    """
    compiler = expected_cpu_compiler()
    if compiler is not None:
        compiler.expect(binder())


def toolchain(device: str) -> Toolchain:
    """Returns the toolchain for a device of this name, as in `Options.device`."""
    return _toolchain(kind_of(device))


@cache
def _toolchain(kind: str) -> Toolchain:
    """Returns the toolchain for a kind of devices, which is imported when it is first asked for."""
    with collection_paused():
        module = load_kernels(kind)
    return Toolchain(module.choose_kernel, module.candidate_kernels, module.expected_compiler)
