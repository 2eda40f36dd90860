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

from nnc.commands.rules import scalar
from nnc.device import CPU, CUDA, DeviceKind, register_kind
from nnc.device.cpu import Cpu
from nnc.graph import Command, attribute, kernel


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def within(module: str, name: str) -> Callable[[], Any]:
    """Returns a function that imports a module and returns an object of it.

    Args:
        module: full name.
        name: of the object.
    """
    return partial(_find, module, name)


# Classes for programs on devices other than the CPU.
device_program = within("nnc.compiled.device_program", "DeviceProgram")
queued_code = within("nnc.run.queued_code", "QueuedCode")


def expected_cpu_compiler() -> Any:
    """The CPU's compiler, which may still be starting in another process, without the kernels; None where there is none."""
    return _find("nnc.backends.cpu.compiler.jit", "expected_compiler")()


# Modules with kernels for the CPU, the commands that they serve, and columns whose commands they serve, too.
_KERNELS: tuple[tuple[str, str, str], ...] = (
    ("blas.lapack", "cholesky solve det slogdet qr eigh svd", ""),
    ("blas.schur", "lu schur sylvester", ""),
    ("cpu.fit", "fit", ""),
    ("cpu.kernels.arg_reduce", "argmax argmin", ""),
    ("cpu.kernels.attention.attention", "attention", ""),
    ("cpu.kernels.attention.attention_gradient", "attention_gradient", ""),
    ("cpu.kernels.attention.attention_tangent", "attention_tangent", ""),
    ("cpu.kernels.complexes", "integer_pow", "scalar"),
    ("cpu.kernels.draws", "", "same_bits"),
    ("cpu.kernels.fused", "full fused", ""),
    ("cpu.kernels.moves.gather", "gather dynamic_slice", ""),
    ("cpu.kernels.moves.scatter", "scatter dynamic_update_slice", ""),
    ("cpu.kernels.moves.shape", "copy reorder concatenate pad", "restride"),
    (
        "cpu.kernels.pooling",
        "max_pool max_pool_places max_pool_both sum_pool sum_pool_input_grad pick_pool_input_grad",
        "",
    ),
    ("cpu.kernels.products.dot", "dot", ""),
    ("cpu.kernels.products.epilogue", "with_epilogue", ""),
    ("cpu.kernels.products.triangular", "triangular_solve", ""),
    ("cpu.kernels.scan", "", "cumulative"),
    ("cpu.kernels.sorts.search", "searchsorted", ""),
    ("cpu.kernels.sorts.sort", "sort argsort", ""),
    ("cpu.kernels.sorts.top_k", "top_k", ""),
    ("cpu.kernels.threefry", "random_bits", ""),
    ("mpi.kernels", "psum pmax pmin psum_scatter all_gather all_gather_same all_to_all ppermute process_index", ""),
    ("onednn.convolution", "conv conv_input_grad conv_weight_grad with_epilogue", ""),
    ("onednn.matmul", "dot", ""),
    ("onednn.pack", "pack", ""),
)


def _cpu_kernels() -> Any:
    """The CPU's choice of kernels and its compiler. Modules with kernels are imported when their commands are met."""
    found = importlib.import_module("nnc.backends.loaded")
    for module, names, column in _KERNELS:
        load = partial(importlib.import_module, f"nnc.backends.{module}")
        for name in names.split():
            kernel.promise(name, load)
        if column:
            attribute(column).follow(partial(kernel.promise, load=load))
    return found


def _number_of_gpus() -> int:
    count: int = _find("nnc.device.cuda.libraries", "number_of_gpus")()
    return count


def _advice() -> str:
    if importlib.util.find_spec("cupy") is None:
        return "; CUDA's devices need CuPy: pip install 'nnc[gpu13]' (CUDA 13) or 'nnc[gpu]' (CUDA 12)"
    return "; NVIDIA's driver (libcuda.so.1), which CUDA's devices need, finds no graphics processor"


def _check_scalar(command: Command, expression: str) -> None:
    """Checks a scalar expression; the checker is imported when the first one comes from outside."""
    _find("nnc.lower.kernels.scalar_checks", "check_scalar")(command, expression)


scalar.check_with(_check_scalar)
register_kind(
    DeviceKind(
        name=CPU,
        backend=CPU,
        make=lambda name: Cpu(),
        kernels=_cpu_kernels,
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
        count=_number_of_gpus,
        advice=_advice,
    )
)
