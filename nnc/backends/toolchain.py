"""Finds the toolchain of a device: its kernels and its compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nnc.backends.loaded import candidate_kernels, choose_kernel, expected_compiler
from nnc.devices import CPU, kind_of
from nnc.lower.pipeline import ChooseKernel
from nnc.lower.program.autotune import Candidates
from nnc.lower.program.prefetch import ProgramCompiler


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The kernels and the compiler of one kind of devices.

    Attributes:
        choose_kernel: gives the kernel for a command on inputs of some specs.
        candidate_kernels: gives all such kernels, the chosen one first.
        compiler: gives the compiler, which may have to be waited for; None where there is none.
    """

    choose_kernel: ChooseKernel
    candidate_kernels: Candidates
    compiler: Callable[[], ProgramCompiler | None]


_TOOLCHAINS: Mapping[str, Toolchain] = MappingProxyType(
    {CPU: Toolchain(choose_kernel, candidate_kernels, expected_compiler)}
)


def toolchain(device: str) -> Toolchain:
    """The toolchain for a device.

    Args:
        device: its name, as in `Options.device`.
    """
    return _TOOLCHAINS[kind_of(device)]
