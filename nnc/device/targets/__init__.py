"""The machine that programs are made for: facts that its system tells, and figures of its kind of core."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from nnc.base import machine
from nnc.base.options import CPU, chosen_cpu
from nnc.device.target import Products, Target

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_ARM = ("aarch64", "arm64")  # families of processors with NEON, as Linux and macOS name them
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def cpu_target() -> Target:
    """Returns this machine, or as much of it as the processor has that code is made for (NNC_CPU)."""
    return _cpu_target(chosen_cpu(), machine.usable_threads())


@cache
def _cpu_target(cpu: str | None, cores: int) -> Target:
    facts = machine.processor(Path("/proc/cpuinfo"), cpu)
    core = INTEL if "Intel" in facts["model"] else X86
    sizes = dict(cache_sizes())
    memory = core.memory._replace(
        page_bytes=os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else core.memory.page_bytes,
        first_cache_bytes=sizes.get("1", core.memory.first_cache_bytes),
        second_cache_bytes=sizes.get("2", core.memory.second_cache_bytes),
    )
    vector_bytes = 64 if "avx512f" in facts["vector units"] else 16 if facts["system"].endswith(_ARM) else 32
    return replace(core, vector_bytes=vector_bytes, cores=cores, memory=memory)


def cache_sizes(folder: Path = _CACHES) -> Iterator[tuple[str, int]]:
    """Yields the level and the bytes of each cache of data, as far as the system tells them.

    Args:
        folder: Linux's description of a core's caches.
    """
    for entry in sorted(folder.glob("index*")):
        level, kind, size = (machine.read_text(entry / name).strip() for name in ("level", "type", "size"))
        if kind != "Instruction" and size[:-1].isdecimal() and size[-1] in _UNITS:
            yield level, int(size[:-1]) * _UNITS[size[-1]]


# -- kinds of cores ----------------------------------------------------------------------------------------------------

# Kinds of cores with x86-64's instructions: the figures are the records' own, or stand here where a kind differs.


X86 = Target(kind=CPU, vector_bytes=64, cores=2)

# Intel's cores are slower by a third where four vectors for each term come from the second-level cache: 99 and 156 GFLOP/s on
# Granite Rapids for 128 x 784 x 512.
INTEL = replace(X86, products=Products(slow_second_cache=True))
