"""The choice among the CPU's kernels, its compiler, and the kernels of nearly every program, so that they are there before the
first call. `nnc/compiled/device_kinds.py` lists the other modules with kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import nnc.backends.cpu.compiler.prefetch
import nnc.backends.cpu.kernels.fused
import nnc.backends.cpu.kernels.moves.shape
import nnc.lower.plan.views  # noqa: F401  (registers columns of commands that have kernels)
from nnc.backends.choose import candidate_kernels, choose_kernel
from nnc.backends.cpu.compiler.jit import compiler, expected_compiler
from nnc.base import dtypes
from nnc.base.later import later
from nnc.base.target import Target
from nnc.commands.elementwise import integer_pow
from nnc.commands.reduce import reduce_sum
from nnc.device import CPU
from nnc.graph import Command, Kernel, TensorSpec, add_kernel, infer_specs
from nnc.graph.kernels import KernelFactory
from nnc.graph.registry import scalar
from nnc.lower.kernels.scalars import can_be_complex

__all__ = ["candidate_kernels", "choose_kernel", "compiler", "expected_compiler"]

_complex_kernel = later(f"{__package__}.cpu.kernels.complexes", "kernel")
_complex_sum_kernel = later(f"{__package__}.cpu.kernels.complexes", "sum_kernel")
Supports = Callable[[tuple[TensorSpec, ...], Mapping[str, Any]], bool]


def _add_rare(
    target: Command | str,
    backend: str,
    make: Callable[[Target], Kernel],
    when: Supports,
    priority: int,
    *,
    in_place: bool = True,
) -> None:
    """Adds a kernel whose command mostly runs without it: it is made, and its file imported, where `when` holds."""

    def for_machine(machine: Target) -> Kernel:
        made = cache(partial(make, machine))
        return Kernel(
            backend,
            lambda *arrays: made().run(*arrays),
            lambda specs, params: when(specs, params) and made().supports(specs, params),
            priority,
            lambda specs, params: made().workspace(specs, params),
            lambda step: made().native(step),  # type: ignore[misc]
            in_place=in_place,
        )

    add_kernel(target, KernelFactory(backend, for_machine, priority))


def _add_complex(target: Command, make: Callable[..., Kernel] = _complex_kernel) -> None:
    _add_rare(target, CPU, partial(make, target.name), partial(_has_complex, target), 10)


def _add_expression(target: Command) -> None:
    if can_be_complex(scalar[target]):
        _add_complex(target)


def _has_complex(target: Command, specs: tuple[TensorSpec, ...], params: Mapping[str, Any]) -> bool:
    return any(dtypes.is_complex(spec.dtype) for spec in (*specs, *infer_specs(target, specs, params)))


scalar.follow(_add_expression)
_add_complex(integer_pow)
_add_complex(reduce_sum, _complex_sum_kernel)
_add_rare(
    "dot",
    "onednn",
    later(f"{__package__}.onednn.matmul", "kernel"),
    lambda specs, params: specs[0].dtype == dtypes.bfloat16,
    20,
)
_add_rare(
    "with_epilogue",
    "onednn",
    later(f"{__package__}.onednn.convolution", "joined_kernel"),
    lambda specs, params: "padding" in params["graphs"][0].nodes[0].params,  # of a convolution's windows
    20,
    in_place=False,
)
