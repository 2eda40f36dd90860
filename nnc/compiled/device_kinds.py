"""The kinds of devices that nnc has of its own: one record each, registered when this module is imported.

No other file but `nnc/__init__.py` names modules of other rooms by strings: a record says which module has kernels, a compiler and
programs, so that importing nnc loads none of them.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

from nnc.base.context import LOCATORS
from nnc.base.later import later
from nnc.device import CPU, CUDA, DeviceKind, register_kind
from nnc.device.cpu import Cpu
from nnc.graph import attribute, kernel
from nnc.graph.registry import scalar


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def within(module: str, name: str) -> Callable[[], Any]:
    """Returns a function that imports a module, given by its full name, and returns an object of it."""
    return partial(_find, module, name)


aligned = later("nnc.lower.plan.align", "aligned")
binder = later("nnc.run.arguments", "binder")  # loaded after LLVM was started
# Modules that many programs do without.
check_schedule = later("nnc.lower.plan.schedule.races", "check_schedule")
device_program = later("nnc.compiled.device_program", "DeviceProgram")
frugal = later("nnc.lower.passes.memory.rematerialize_to_budget", "frugal")
kernel_tuner = later("nnc.run.store.autotune", "Tuner")
make_schedule_report = later("nnc.lower.plan.schedule.report", "make_schedule_report")
queued_code = within("nnc.run.queued_code", "QueuedCode")
rematerializer = later("nnc.lower.passes.memory.rematerialize_to_budget", "Rematerializer")
schedule_watch = later("nnc.lower.plan.schedule.report", "Watch")


expected_cpu_compiler = later("nnc.backends.cpu.compiler.jit", "expected_compiler")
"""Gives the CPU's compiler, which may still be starting in another process, without the kernels; None where there is none."""


# Modules with kernels for the CPU, the commands that they serve, and columns whose commands they serve, too.
_KERNELS: tuple[tuple[str, str, str], ...] = (
    ("blas.lapack", "cholesky solve det slogdet qr eigh svd", ""),
    ("blas.schur", "lu schur sylvester", ""),
    ("cpu.fit", "fit", ""),
    ("cpu.kernels.arg_reduce", "argmax argmin", ""),
    ("cpu.kernels.attention.attention", "attention attention_tangent", ""),
    ("cpu.kernels.attention.attention_gradient", "attention_gradient", ""),
    ("cpu.kernels.draws", "random_bits", "same_bits"),
    ("cpu.kernels.factorizations.elimination", "lu det slogdet", ""),
    ("cpu.kernels.factorizations.reflections", "qr", ""),
    ("cpu.kernels.factorizations.symmetric", "eigh", ""),
    ("cpu.kernels.factorizations.systems", "solve cholesky", ""),
    ("cpu.kernels.moves.indexed", "gather dynamic_slice scatter dynamic_update_slice", ""),
    (
        "cpu.kernels.pooling",
        "max_pool max_pool_places max_pool_both sum_pool sum_pool_input_grad pick_pool_input_grad",
        "",
    ),
    ("cpu.kernels.products.convolution", "conv conv_input_grad conv_weight_grad", ""),
    ("cpu.kernels.products.dot", "dot", ""),
    ("cpu.kernels.products.epilogue", "with_epilogue", ""),
    ("cpu.kernels.products.triangular", "triangular_solve", ""),
    ("cpu.kernels.scan", "", "cumulative"),
    ("cpu.kernels.sorts.search", "searchsorted", ""),
    ("cpu.kernels.sorts.sort", "sort argsort", ""),
    ("cpu.kernels.sorts.top_k", "top_k", ""),
    ("cpu.kernels.transforms.fft", "fft rfft irfft", ""),
    ("mpi.kernels", "psum pmax pmin psum_scatter all_gather all_gather_same all_to_all ppermute process_index", ""),
    ("onednn.convolution", "conv conv_input_grad conv_weight_grad", ""),
    ("onednn.pack", "pack", ""),
)


def _cpu_kernels() -> Any:
    """Returns the CPU's choice of kernels and its compiler. Modules with kernels are imported when their commands are met."""
    found = importlib.import_module("nnc.backends.loaded")
    for module, names, column in _KERNELS:
        load = partial(importlib.import_module, f"nnc.backends.{module}")
        for name in names.split():
            kernel.promise(name, load)
        if column:
            attribute(column).follow(partial(kernel.promise, load=load))
    return found


def _advice() -> str:
    if importlib.util.find_spec("cupy") is None:
        return "; CUDA's devices need CuPy: pip install 'nnc[gpu13]' (CUDA 13) or 'nnc[gpu]' (CUDA 12)"
    return "; NVIDIA's driver (libcuda.so.1), which CUDA's devices need, finds no graphics processor"


scalar.check_with(later("nnc.lower.kernels.scalar_checks", "check_scalar"))  # of expressions that come from outside
register_kind(
    DeviceKind(
        name=CPU,
        backend=CPU,
        make=lambda name: Cpu(),
        kernels=_cpu_kernels,
        machine=later("nnc.device.targets", "cpu_target"),
    )
)
if importlib.util.find_spec("cupy") is not None:  # then the first array on a device may be another library's
    LOCATORS[:] = [later("nnc.trace.core.on_device", "located")]
register_kind(
    DeviceKind(
        name=CUDA,
        backend=CUDA,
        make=later("nnc.device.cuda", "CudaDevice"),
        interpreter=within("nnc.trace.core.on_device", "make_interpreter"),
        queue=within("nnc.compiled.device_program", "program_of"),
        program=within("nnc.backends.cuda.program.program", "CudaModule"),
        kernels=partial(importlib.import_module, "nnc.backends.cuda.loaded"),
        machine=later("nnc.device.targets.gpu", "gpu_target"),
        count=later("nnc.device.cuda.libraries", "number_of_gpus"),
        advice=_advice,
    )
)
