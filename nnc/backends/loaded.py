"""The choice among the CPU's kernels, and its compiler. `nnc/compiled/targets.py` lists the modules with kernels."""

import nnc.lower.plan.views  # noqa: F401  (registers columns of commands that have kernels)
from nnc.backends.cpu.compiler.jit import compiler, expected_compiler
from nnc.backends.numpy_ref import candidate_kernels, choose_kernel

__all__ = ["candidate_kernels", "choose_kernel", "compiler", "expected_compiler"]
