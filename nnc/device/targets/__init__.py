"""The machine that programs are made for: facts that its system tells, and figures of its kind of core."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nnc.base import machine
from nnc.base.options import CPU, chosen_cpu
from nnc.base.target import Products, Target
from nnc.device.model import fitted

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_WAY_BYTES = 1 << 12  # of the nearest cache, on most cores
_UNITS = {"K": 1 << 10, "M": 1 << 20}


def cpu_target() -> Target:
    """Returns this machine, or as much of it as the processor has that code is made for (NNC_CPU)."""
    return _cpu_target(chosen_cpu(), machine.usable_threads())


@cache
def _cpu_target(cpu: str | None, cores: int) -> Target:
    return described(machine.processor(Path("/proc/cpuinfo"), cpu), cores, dict(cache_sizes()))


def described(facts: Mapping[str, str], cores: int, caches: Mapping[str, Cache]) -> Target:
    """Returns the machine of these facts.

    Args:
        facts: as `nnc.base.machine.processor` finds them.
        cores: processors that the process may use.
        caches: the caches of data by their levels, as far as they are known.
    """
    core = INTEL if "Intel" in facts["model"] else X86
    units, memory = facts["vector units"].split(", "), core.memory
    if "1" in caches:
        memory = memory._replace(first_cache_bytes=caches["1"].nbytes, first_cache_ways=caches["1"].ways)
    if "2" in caches:
        memory = memory._replace(second_cache_bytes=caches["2"].nbytes)
    if hasattr(os, "sysconf"):
        memory = memory._replace(page_bytes=os.sysconf("SC_PAGE_SIZE"))
    is_x86, has_masks = facts["system"].endswith(("x86_64", "AMD64")), "avx512f" in units
    is_wide = "avx2" in units or (is_x86 and units == ["unknown"])
    vector_bytes = 64 if has_masks else 32 if is_wide else 16
    registers = 32 if has_masks or not is_x86 else 16
    return fitted(
        replace(core, vector_bytes=vector_bytes, registers=registers, has_masks=has_masks, cores=cores, memory=memory)
    )


class Cache(NamedTuple):
    """A core's cache of data: its bytes, and the lines that have the same set."""

    nbytes: int
    ways: int


def cache_sizes(folder: Path = _CACHES) -> Iterator[tuple[str, Cache]]:
    """Yields the level of each cache of data and the cache, as far as the system tells them.

    Args:
        folder: Linux's description of a core's caches.
    """
    for entry in sorted(folder.glob("index*")):
        level, kind, size, ways = (
            machine.read_text(entry / name).strip() for name in ("level", "type", "size", "ways_of_associativity")
        )
        if kind != "Instruction" and size[:-1].isdecimal() and size[-1] in _UNITS:
            nbytes = int(size[:-1]) * _UNITS[size[-1]]
            known = int(ways) if ways.isdecimal() else 0
            yield level, Cache(nbytes, known or max(1, nbytes // _WAY_BYTES))


# -- kinds of cores ----------------------------------------------------------------------------------------------------

# Kinds of cores with x86-64's instructions: the figures are the records' own, or stand here where a kind differs.


X86 = Target(kind=CPU, vector_bytes=64, cores=2)

# Intel's cores are slower by a third where four vectors for each term come from the second-level cache: 99 and 156 GFLOP/s on
# Granite Rapids for 128 x 784 x 512.
INTEL = replace(X86, products=Products(slow_second_cache=True))
