"""The processors for which programs are exported: how LLVM names them, and the figures by which kernels are printed for them."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import NamedTuple

from nnc.base.target import Target
from nnc.device.model import fitted
from nnc.device.targets import X86, cpu_target

NATIVE = "native"


class ObjectTarget(NamedTuple):
    """A processor, and the system around it.

    Attributes:
        triple: LLVM's name of the processor family and the system; "": this system.
        cpu: LLVM's name of the processor.
        features: the instruction sets that it has beyond, as LLVM writes them.
        architecture: the family, as `platform.machine` names it.
        vector_bytes: bytes of the vectors that kernels are printed with.
        relocation: LLVM's model of relocation.
    """

    triple: str
    cpu: str
    features: str
    architecture: str
    vector_bytes: int
    relocation: str = "pic"

    @property
    def is_native(self) -> bool:
        """Whether it is the processor of this machine, or as much of it as NNC_CPU says."""
        return not self.triple

    def machine(self, *backends: str) -> Target:
        """Returns the figures by which kernels of these backends are printed."""
        if self.is_native:
            return replace(cpu_target(), backends=backends)
        is_wide = self.vector_bytes == 64
        registers = 32 if is_wide or self.architecture == "aarch64" else 16
        known = replace(X86, vector_bytes=self.vector_bytes, registers=registers, has_masks=is_wide, cores=1)
        return replace(fitted(known), backends=backends)


_LINUX = "unknown-linux-gnu"
_OTHERS = {
    "x86-64-v2": ObjectTarget(f"x86_64-{_LINUX}", "x86-64-v2", "", "x86_64", 32),
    "x86-64-v3": ObjectTarget(f"x86_64-{_LINUX}", "x86-64-v3", "", "x86_64", 32),
    "x86-64-v4": ObjectTarget(f"x86_64-{_LINUX}", "x86-64-v4", "", "x86_64", 64),
    "aarch64": ObjectTarget(f"aarch64-{_LINUX}", "generic", "+neon", "aarch64", 16),
    "armv7": ObjectTarget(f"armv7-{_LINUX}eabihf", "generic", "+neon,+vfp4", "armv7l", 16),
    "wasm32": ObjectTarget(
        "wasm32-unknown-unknown", "generic", "+simd128,+bulk-memory,+nontrapping-fptoint", "wasm32", 16, "static"
    ),
}
OBJECT_TARGETS = {NATIVE: ObjectTarget("", "", "", platform.machine(), 0), **_OTHERS}
