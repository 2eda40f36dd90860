"""All kernels for CUDA: importing this module registers them."""

# ruff: noqa: F401  (imported to be registered)

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import nnc.backends.cuda.kernels.arg_reduce
import nnc.backends.cuda.kernels.complexes
import nnc.backends.cuda.kernels.fills
import nnc.backends.cuda.kernels.indexed
import nnc.backends.cuda.kernels.moves
import nnc.backends.cuda.kernels.nests
import nnc.backends.cuda.kernels.points
import nnc.backends.cuda.kernels.pooling
import nnc.backends.cuda.kernels.scan
import nnc.backends.cuda.kernels.sort
import nnc.backends.cuda.kernels.triangular
import nnc.backends.cuda.libraries.cupy_arrays
import nnc.backends.cuda.libraries.dot
import nnc.backends.cuda.libraries.nccl
from nnc.backends.choose import choose_kernel
from nnc.backends.cuda.compiler.compiler import CudaCompiler
from nnc.backends.cuda.kernels.regions import print_region
from nnc.base.target import Target
from nnc.device import CPU, load_kernels
from nnc.graph import Command, Kernel, TensorSpec

__all__ = ["candidate_kernels", "choose_kernel", "expected_compiler"]


def candidate_kernels(
    command: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any], machine: Target
) -> list[Kernel]:
    """Returns the kernel that `choose_kernel` gives: there are no others.

    Raises:
        BackendError: the command has neither a kernel nor a reference.
    """
    return [choose_kernel(command, specs, params, machine)]


@cache
def expected_compiler() -> CudaCompiler | None:
    """Returns the compiler of kernels and entries; None where entries cannot be compiled."""
    found = load_kernels(CPU).expected_compiler()
    return None if found is None else CudaCompiler(found, print_region)
