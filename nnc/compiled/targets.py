"""The kinds of devices that nnc has of its own: one record each, registered when this module is imported.

No other file names modules of nnc by strings: a record says which module has kernels, a compiler and programs, so that importing
nnc loads none of them.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

from nnc.device import CPU, CUDA, DeviceKind, register_kind
from nnc.device.cpu import Cpu


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def within(module: str, name: str) -> Callable[[], Any]:
    """Returns a function that imports a module and returns an object of it.

    Args:
        module: full name.
        name: of the object.
    """
    return partial(_find, module, name)


def expected_cpu_compiler() -> Any:
    """The CPU's compiler, which may still be starting in another process, without the kernels; None where there is none."""
    return _find("nnc.backends.cpu.compiler.jit", "expected_compiler")()


def _number_of_gpus() -> int:
    count: int = _find("nnc.device.cuda.libraries", "number_of_gpus")()
    return count


def _advice() -> str:
    if importlib.util.find_spec("cupy") is None:
        return "; CUDA's devices need CuPy: pip install 'nnc[gpu13]' (CUDA 13) or 'nnc[gpu]' (CUDA 12)"
    return "; NVIDIA's driver (libcuda.so.1), which CUDA's devices need, finds no graphics processor"


register_kind(
    DeviceKind(
        name=CPU,
        backend=CPU,
        make=lambda name: Cpu(),
        kernels=partial(importlib.import_module, "nnc.backends.loaded"),
        machine=lambda: _find("nnc.device.targets", "cpu_target")(),
    )
)
register_kind(
    DeviceKind(
        name=CUDA,
        backend=CUDA,
        make=lambda name: _find("nnc.device.cuda", "CudaDevice")(name),
        interpreter=within("nnc.trace.core.on_device", "make_interpreter"),
        queue=within("nnc.compiled.device_program", "program_of"),
        program=within("nnc.backends.cuda.program.program", "CudaModule"),
        kernels=partial(importlib.import_module, "nnc.backends.cuda.loaded"),
        machine=lambda: _find("nnc.device.targets.gpu", "gpu_target")(),
        count=_number_of_gpus,
        advice=_advice,
    )
)
