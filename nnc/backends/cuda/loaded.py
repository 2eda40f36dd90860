"""All kernels for CUDA: importing this module registers them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import nnc.backends.cuda.kernels.arg_reduce
import nnc.backends.cuda.kernels.bins
import nnc.backends.cuda.kernels.complexes
import nnc.backends.cuda.kernels.draws
import nnc.backends.cuda.kernels.empties
import nnc.backends.cuda.kernels.fills
import nnc.backends.cuda.kernels.fused
import nnc.backends.cuda.kernels.gathers
import nnc.backends.cuda.kernels.moves
import nnc.backends.cuda.kernels.pools
import nnc.backends.cuda.kernels.scans
import nnc.backends.cuda.kernels.scatter
import nnc.backends.cuda.kernels.search
import nnc.backends.cuda.kernels.sorts
import nnc.backends.cuda.kernels.triangles
import nnc.backends.cuda.libraries.cupy_arrays
import nnc.backends.cuda.libraries.nccl
import nnc.backends.cuda.libraries.products  # noqa: F401
from nnc.backends.cuda.compiler.compiler import CudaCompiler
from nnc.backends.numpy_ref import choose_kernel
from nnc.device import CPU, load_kernels
from nnc.device.target import Target
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
    return None if found is None else CudaCompiler(found)
