"""Facts about this machine and the libraries on it: printed by `doctor`, and part of the keys of measured choices.

It is imported before NumPy, whose own facts are in `nnc.base.libraries`.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

AmountT = TypeVar("AmountT", int, float)

VECTOR_UNITS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")
_V3 = ("avx2", "fma")
_V4 = (*_V3, "avx512f")
_V4_BF16 = (*_V4, "avx512_bf16")
# Processors for which code can be made, by LLVM's names, and their units among `VECTOR_UNITS`.
CPUS = MappingProxyType(
    {"x86-64-v2": (), "x86-64-v3": _V3, "x86-64-v4": _V4}
    | dict.fromkeys(("haswell", "broadwell", "skylake", "alderlake", "znver1", "znver2", "znver3"), _V3)
    | dict.fromkeys(("skylake-avx512", "cascadelake", "icelake-server"), _V4)
    | dict.fromkeys(("cooperlake", "znver4", "znver5"), _V4_BF16)
    | {"sapphirerapids": (*_V4_BF16, "amx_bf16")}
)
ABSENT = "absent"
LARGE = 1 << 28  # bytes; memory of this size takes 50 ms to be written to, and some hundred microseconds to be checked
_UNLIMITED = 1 << 60  # bytes: control groups without a limit give a number near 2^63
_VERSION_2 = "memory.max", "memory.current", ""  # files of a control group, and how names in its memory.stat begin
_VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")  # distributions
CUBLAS = ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12")
_NVJITLINK = ("nvidia-nvjitlink", "nvidia-nvjitlink-cu13", "nvidia-nvjitlink-cu12")
_DESCRIPTION = ".dist-info"  # how the names of folders end that describe distributions


def version_of(*distributions: str) -> str:
    """Returns the version of the first distribution that is installed, or "absent"."""
    for name in distributions:
        listed = _listed_version(name)
        if listed:
            return listed
        metadata = importlib.import_module("importlib.metadata")  # takes 10 ms, and is hardly ever needed
        try:
            found: str = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return found
    return ABSENT


def gpu_library_versions() -> dict[str, str]:
    """Returns the versions of the libraries on which programs for NVIDIA's GPUs depend beside the others. None is loaded for
    it, so a library that no package brought is "absent".
    """
    return {
        name: version_of(*names) for name, names in (("cupy", CUPY), ("cuBLASLt", CUBLAS), ("nvJitLink", _NVJITLINK))
    }


def _listed_version(distribution: str) -> str:
    """Returns the version in the name of the folder that describes a distribution; nothing where there is no such folder."""
    found = description_of(distribution)
    return found.name.removesuffix(_DESCRIPTION).partition("-")[2] if found is not None else ""


def description_of(distribution: str) -> Path | None:
    """Returns the folder that describes a distribution, which is found five times sooner than `importlib.metadata` finds it;
    None where it is not installed, or is described in another way.
    """
    wanted = _normalized(distribution)
    for folder in sys.path:
        try:
            names = os.listdir(folder or os.curdir)
        except OSError:  # absent, or an archive
            continue
        for name in names:
            if name.endswith(_DESCRIPTION):
                described = name.removesuffix(_DESCRIPTION).partition("-")[0]
                if _normalized(described) == wanted:
                    return Path(folder, name)
    return None


def files_of(distribution: str, text: str) -> list[Path]:
    """Returns the files of an installed distribution whose paths within it contain a text."""
    folder = description_of(distribution)
    if folder is None:
        return []
    paths = [row.partition(",")[0] for row in read_text(folder / "RECORD").splitlines()]
    return [folder.parent / path for path in paths if text in path]


def _normalized(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace(".", "-")


def processor(cpuinfo: Path, cpu: str | None = None) -> dict[str, str]:
    """Finds the model, the cores, the usable threads and the vector units.

    Args:
        cpuinfo: Linux's file, which may be missing.
        cpu: the processor of `CPUS` for which code is made: units that it lacks are left out; None: this processor.
    """
    rows = [line.partition(":") for line in read_text(cpuinfo).splitlines()]
    known = {name.strip(): value.strip() for name, _, value in rows if value.strip()}
    pairs = zip(values_of(rows, "physical id"), values_of(rows, "core id"), strict=False)
    cores = len(set(pairs))
    flags = set((known.get("flags") or known.get("Features") or "").split())
    found = [unit for unit in VECTOR_UNITS if unit in flags and (cpu is None or unit in CPUS[cpu])]
    made_for = {} if cpu is None else {"made for": cpu}
    return made_for | {
        "model": known.get("model name") or platform.processor() or platform.machine() or "unknown",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(cores or os.cpu_count() or "unknown"),
        "threads": f"{usable_threads()} of {os.cpu_count() or 'unknown'} usable by this process",
        "vector units": ", ".join(found) or ("none" if flags else "unknown"),
    }


def values_of(rows: list[tuple[str, str, str]], wanted: str) -> list[str]:
    """Returns the values that stand under a name in rows (name, separator, value), as many as there are."""
    return [value.strip() for name, _, value in rows if name.strip() == wanted]


def usable_threads() -> int:
    """Returns the number of hardware threads that the process may use: of those that it may run on, as many as the time of its
    control groups (a container's, say) keeps busy.
    """
    share = processor_share()
    return allowed_threads() if share is None else min(allowed_threads(), max(1, math.ceil(share)))


def allowed_threads() -> int:
    """Returns the number of hardware threads that the process may run on, be it for a part of the time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def processor_share(root: Path = Path("/")) -> float | None:
    """Returns how many processors' time the control groups of this process allow; None: no limit.

    Args:
        root: the root of the file system.
    """
    return _least("cpu", root, _share_in)


def _least(controller: str, root: Path, allowed: Callable[[Path, int], AmountT | None]) -> AmountT | None:
    """Returns the least amount that a control group of this process allows; None: no limit."""
    amounts = (allowed(group, version) for group, version in control_groups(controller, root))
    return min((amount for amount in amounts if amount is not None), default=None)


def _share_in(group: Path, version: int) -> float | None:
    """The processors' time that a control group allows; None where it has no limit, or does not say."""
    if version == 2:
        quota, _, period = read_text(group / "cpu.max").strip().partition(" ")
    else:
        quota, period = (read_text(group / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def control_groups(controller: str, root: Path) -> Iterator[tuple[Path, int]]:
    """Yields the folders of the control groups that this process is in, from the root on, and the version of their files.

    Args:
        controller: "cpu" or "memory".
        root: the root of the file system.
    """
    bases: tuple[str, ...]
    for line in read_text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            version, bases = 2, ("sys/fs/cgroup", "sys/fs/cgroup/unified")
        elif controller in controllers.split(","):
            version, bases = 1, (f"sys/fs/cgroup/{controller}",)
        else:
            continue
        parts = Path(path).parts[1:]
        for base in bases:
            yield from ((root.joinpath(base, *parts[:count]), version) for count in range(len(parts) + 1))


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that programs can still take without others being moved to disk; None where the system does not say."""
    rows = [line.partition(":") for line in read_text(meminfo).splitlines()]
    return next((1024 * int(found.split()[0]) for found in values_of(rows, "MemAvailable")), None)


def memory_left(root: Path = Path("/")) -> int | None:
    """Returns the bytes that the control groups of this process still allow, such as a container's limit; None: no limit.

    The system gives memory beyond the limit, but ends the process when it writes there. A group's copies of files count as
    free: the system drops them first.

    Args:
        root: the root of the file system.
    """
    return _least("memory", root, _left_in)


def _left_in(group: Path, version: int) -> int | None:
    """Bytes that a control group still allows; None where it has no limit, or says too little."""
    limit, usage, prefix = _VERSION_2 if version == 2 else _VERSION_1
    most, used = (read_text(group / name).strip() for name in (limit, usage))
    if not (most.isdecimal() and used.isdecimal()) or int(most) >= _UNLIMITED:
        return None
    rows = dict(line.split(maxsplit=1) for line in read_text(group / "memory.stat").splitlines() if " " in line)
    files = sum(int(rows.get(f"{prefix}{kind}_file", 0)) for kind in ("active", "inactive"))
    return max(0, int(most) - max(0, int(used) - files))


def check_memory(nbytes: int) -> None:
    """Checks that the process may allocate this much memory. Small sizes are not checked.

    Raises:
        MemoryError: the control groups do not allow it.
    """
    if nbytes >= LARGE:
        left = memory_left()
        if left is not None and nbytes > left:
            raise MemoryError(
                f"{nbytes / 2**30:.3g} GiB more are needed, and the memory limit of its control group (a container's, say) leaves "
                f"{left / 2**30:.3g} GiB"
            )


def read_text(path: Path) -> str:
    """Returns the text of a file; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def address_of(library: Any, name: str) -> int | None:
    """Returns the address of a function of a C library, given as such or by its path; None where there is no such function."""
    try:
        found = ctypes.CDLL(library) if isinstance(library, str) else library
        return ctypes.cast(getattr(found, name), ctypes.c_void_p).value
    except (AttributeError, OSError):
        return None
