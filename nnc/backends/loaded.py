"""The choice among the CPU's kernels, its compiler, and the kernels that nearly every program has, so that they are there
before the first call. `nnc/compiled/targets.py` lists the other modules with kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import nnc.backends.cpu.kernels.fused
import nnc.backends.cpu.kernels.moves.shape
import nnc.lower.plan.views  # noqa: F401  (registers columns of commands that have kernels)
from nnc.backends.cpu.compiler.jit import compiler, expected_compiler
from nnc.backends.numpy_ref import candidate_kernels, choose_kernel
from nnc.backends.printer import add_native
from nnc.base import dtypes
from nnc.base.later import later
from nnc.commands.elementwise import integer_pow
from nnc.graph import Command, TensorSpec, infer_specs
from nnc.graph.registry import scalar
from nnc.lower.kernels.scalars import can_be_complex

__all__ = ["candidate_kernels", "choose_kernel", "compiler", "expected_compiler"]

_COMPLEXES = f"{__package__}.cpu.kernels.complexes"
_print, _supports = later(_COMPLEXES, "native"), later(_COMPLEXES, "supports")


def _add_complex_kernel(target: Command) -> None:
    """Adds the kernel of a command for few complex numbers, if it has one. Its file is imported when a number is complex."""
    if target is integer_pow or can_be_complex(scalar[target]):
        add_native(target.name, _print, partial(_is_complex, target))


def _is_complex(target: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    every = (*specs, *infer_specs(target, specs, params))
    return any(dtypes.is_complex(spec.dtype) for spec in every) and _supports(target, every, params)


scalar.follow(_add_complex_kernel)
