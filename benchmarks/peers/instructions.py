"""The instructions that a framework uses in this process, as its libraries tell. Asked last: nnc tells of NumPy's library."""

from __future__ import annotations

import importlib
import re


def used_instructions(framework: str) -> str:
    """Returns the instructions of a framework's kernels, or of its libraries'."""
    return _ASKED[framework]()


def _of_nnc() -> str:
    facilities = importlib.import_module("nnc.compiled.facilities")
    made_for, onednn = facilities.compiler().engine.machine.cpu, facilities.library()
    known = f", oneDNN up to {onednn.instructions}" if onednn is not None else ""
    return f"kernels for {made_for}{known}, {_of_numpy()}"


def _of_numpy() -> str:
    return f"OpenBLAS for {importlib.import_module('nnc.base.libraries').openblas_kernels()}"


def _of_torch() -> str:
    return str(importlib.import_module("torch").backends.cpu.get_cpu_capability())


def _of_jax() -> str:
    """A compiled program contains the names of the processor's features, the missing ones with a minus."""
    jax = importlib.import_module("jax")
    program = jax.jit(lambda x: x + 1).lower(1.0).compile().runtime_executable().serialize()
    found = set(re.findall(rb"\+(sse4\.2|avx2|avx512f)\b", program))
    return max((name.decode() for name in found), key=("sse4.2", "avx2", "avx512f").index, default="unknown")


_ASKED = {"nnc": _of_nnc, "numpy": _of_numpy, "torch": _of_torch, "jax": _of_jax}
