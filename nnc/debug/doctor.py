"""Facts about this machine: versions, processor, libraries, devices, caches. The doctor only looks; it never fails."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from nnc import __version__
from nnc.base.html import format_bytes
from nnc.base.libraries import numpy_blas, openblas_kernels
from nnc.base.machine import ABSENT, CUBLAS, CUPY, processor, read_text, values_of, version_of
from nnc.base.options import Options, chosen_cpu
from nnc.compiled.facilities import Cache, compiler, find_linker, library, threads, why_absent
from nnc.device import devices as usable_devices

REQUIRED = ("numpy", "ml_dtypes", "optree", "safetensors", "llvmlite")
OPTIONAL = {
    "cupy": CUPY,
    "cuda-bindings": ("cuda-bindings",),
    "mpi4py": ("mpi4py",),
    "onnx": ("onnx",),
}
_VECTOR_FEATURES = ("+avx", "+fma", "+f16c", "+amx", "+neon", "+sve", "+fullfp16", "+bf16")  # as LLVM writes them
ONEDNN = "onednn-cpu-gomp"

Section = Mapping[str, str]


def collect() -> dict[str, Section]:
    """Returns all that doctor prints: section -> name -> fact.

    Example:
        >>> list(collect())
        ['versions', 'processor', 'native kernels', 'libraries', 'devices', 'caches']
    """
    required = {name: version_of(name) for name in REQUIRED}
    return {
        "versions": {"python": platform.python_version(), "nnc": __version__, **required},
        "processor": processor(Path("/proc/cpuinfo"), chosen_cpu()),
        "native kernels": native_kernels(),
        "libraries": libraries(),
        "devices": devices(Path("/proc/driver/nvidia/gpus")),
        "caches": {
            "on disk": disk_cache(Options.from_environment().cache_folder),
            "in memory": "traces and shape rules, until the process ends",
        },
    }


def to_text(facts: Mapping[str, Section]) -> str:
    """Returns the facts as aligned lines.

    Example:
        >>> print(to_text({"versions": {"python": "3.11.7", "nnc": "0.2.0"}}))
        versions
          python  3.11.7
          nnc     0.2.0
    """
    width = max((len(name) for section in facts.values() for name in section), default=0)
    lines = []
    for title, section in facts.items():
        lines += [title, *(f"  {name:{width}}  {fact}" for name, fact in section.items())]
    return "\n".join(lines)


def libraries() -> dict[str, str]:
    """NumPy's BLAS and the optional libraries, each with its version or "absent"."""
    return {
        "BLAS of numpy": numpy_blas() + (f", kernels for {kernels}" if (kernels := openblas_kernels()) else ""),
        "oneDNN": onednn(),
        "nvJitLink": linker.version if (linker := find_linker()) is not None else ABSENT,
        "cuBLASLt": version_of(*CUBLAS),
        **{name: version_of(*distributions) for name, distributions in OPTIONAL.items()},
    }


def onednn() -> str:
    """Version of the oneDNN wheel and where its shared library is, found in the distribution's list of files."""
    try:
        files = metadata.files(ONEDNN) or []
    except metadata.PackageNotFoundError:
        return ABSENT
    shared = [str(file.locate()) for file in files if file.name.startswith("libdnnl.so")]
    if not shared:
        return f"{version_of(ONEDNN)}, without its library"
    used = f", instructions up to {found.instructions}" if (found := library()) is not None else ", which does not load"
    return f"{version_of(ONEDNN)} at {min(shared, key=len)}{used}"


def native_kernels() -> dict[str, str]:
    """Returns the name of the compiler of kernels, the processor that it compiles for, and how many threads kernels take."""
    jit, found = compiler(), threads()
    facts = {
        "OpenMP": found.openmp.describe(),
        "threads": found.describe(),
    }
    if jit is None:
        return {"LLVM": f"{ABSENT}, so NumPy runs all commands: {why_absent()}", **facts}
    machine = jit.engine.machine
    units = [name[1:] for name in machine.features.split(",") if name.startswith(_VECTOR_FEATURES)]
    known = f": {', '.join(units) or 'no vector units'}" if machine.features else ""
    return {"LLVM": machine.llvm, "made for": f"{machine.cpu}{known}", **facts}


def disk_cache(folder: Path | None) -> str:
    """Reports the folder where findings are kept for other processes, and their number."""
    if folder is None:
        return "none: set NNC_CACHE_DIR"
    sizes = Cache(folder).sizes()
    return f"{len(sizes)} entries, {format_bytes(sum(sizes))} in {folder}"


def devices(nvidia: Path) -> dict[str, str]:
    """Returns the devices that nnc can use, and the NVIDIA GPUs whose driver is loaded; `nvidia` is the driver's folder, if any."""
    found = dict.fromkeys(usable_devices(), "usable")
    driver = read_text(nvidia.parent / "version").splitlines()
    if driver:
        found["driver"] = driver[0].partition(":")[2].strip()
    try:
        cards = sorted(nvidia.iterdir())
    except OSError:
        cards = []
    for i, card in enumerate(cards):
        rows = [line.partition(":") for line in read_text(card / "information").splitlines()]
        model = next(iter(values_of(rows, "Model")), "unknown model")
        missing = version_of(*OPTIONAL["cupy"]) == ABSENT
        found[f"gpu {i}"] = f"{model} (pip install 'nnc[gpu13]' or 'nnc[gpu]' to use it)" if missing else model
    return found
