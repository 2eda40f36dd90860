"""Versions of libraries that compiled code and kernels come from, and the instructions that NumPy's OpenBLAS uses."""

from __future__ import annotations

import ctypes
import warnings

import ml_dtypes
import numpy as np

from nnc.base.machine import files_of, version_of
from nnc.base.options import OPENBLAS, library_cap

_LIBRARIES = ("llvmlite", "onednn-cpu-gomp")
# Processors by whose names OpenBLAS calls its kernels, by the vector units that these need: none, AVX or AVX2, AVX-512.
_RANKS = {"Nehalem": 0, "Sandybridge": 1, "Haswell": 1, "Zen": 1, "SkylakeX": 2, "Cooperlake": 2, "SapphireRapids": 2}


def library_versions() -> dict[str, str]:
    """Returns the versions of the libraries on which programs and measurements depend. None is loaded for it."""
    loaded = {"numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__}
    return loaded | {name: version_of(name) for name in _LIBRARIES}


def numpy_blas() -> str:
    """Name and version of the BLAS that NumPy was built with."""
    config = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {}) if isinstance(config, dict) else {}
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".rstrip()


def openblas_kernels() -> str | None:
    """Returns the processor whose kernels NumPy's OpenBLAS chose when it was loaded; None where NumPy came without OpenBLAS."""
    for file in files_of("numpy", "numpy.libs/"):
        if "openblas" in file.name:
            try:
                name = ctypes.CDLL(str(file)).scipy_openblas_get_corename64_
            except (OSError, AttributeError):
                continue
            name.restype = ctypes.c_char_p
            found: bytes | None = name()
            return found.decode() if found else None
    return None


def check_openblas() -> None:
    """Warns where OpenBLAS was loaded before nnc could keep it to the instructions of NNC_CPU."""
    cap = library_cap(OPENBLAS)
    if cap is None:
        return
    found = openblas_kernels()
    if found is not None and _RANKS.get(found, 0) > _RANKS[cap]:
        warnings.warn(
            f"NNC_CPU: NumPy was imported before nnc, and its OpenBLAS runs kernels for {found} instead of {cap}.\n"
            f"Fix: import nnc before numpy, or set {OPENBLAS}={cap}.",
            RuntimeWarning,
            stacklevel=3,
        )
