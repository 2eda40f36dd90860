"""Fused steps as compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from nnc.backends.cpu.vectors import vector_bytes
from nnc.errors import InternalError
from nnc.graph import Kernel, add_kernel
from nnc.lower.codegen.llvm import KernelPrinter
from nnc.lower.codegen.native import Native
from nnc.lower.stages import Step


@cache
def _printer() -> KernelPrinter:
    return KernelPrinter(vector_bytes())


def _native(step: Step) -> Native:
    return _printer().native(step)


def _run(inputs: Any, outputs: Any, params: Mapping[str, Any]) -> None:
    raise InternalError("a fused step is run by its graph where it is not compiled")


add_kernel("fused", Kernel("cpu", _run, native=_native))
