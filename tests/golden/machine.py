"""The machine that golden texts are made for, so that they are the same on each: pinned before nnc is imported.

Vectors of 64 bytes are printed on any machine. oneDNN makes code for the processor that it runs on, and chooses layouts along with
it, so it is held to AVX2, which all of them have. The workspaces of its primitives grow with threads and caches: all get one size.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Prefixes of variables that these libraries read from the environment, and folders of programs that nnc stored before.
_PREFIXES = ("NNC_", "OMP_", "GOMP_", "OPENBLAS_", "MKL_", "ONEDNN_", "DNNL_")
_CACHES = ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")
_THREADS = 2
_WORKSPACE = 4096  # bytes of each primitive of oneDNN
_ENVIRONMENT = {"ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": str(_THREADS)}
_PROCESSOR = {
    "model": "golden",
    "system": "Linux x86_64",
    "cores": str(_THREADS),
    "threads": f"{_THREADS} of {_THREADS} usable by this process",
    "vector units": "avx2, fma, avx512f",
}


def pin_machine() -> None:
    """Lets nnc find the machine of golden texts instead of this one.

    Raises:
        RuntimeError: backends are imported already, which have looked at the machine.
    """
    if "nnc.backends" in sys.modules:
        raise RuntimeError("the machine is pinned before nnc.backends is imported")
    for name in [name for name in os.environ if name.startswith(_PREFIXES) or name in _CACHES]:
        del os.environ[name]
    os.environ |= _ENVIRONMENT

    import nnc.base.machine  # noqa: PLC0415  (environment variables that are read at import are pinned by now)
    import nnc.device.targets  # noqa: PLC0415
    from nnc.device.targets.__init__ import X86  # noqa: PLC0415

    nnc.base.machine.processor = lambda cpuinfo=Path(), cpu=None: dict(_PROCESSOR)
    nnc.device.targets.cpu_target = lambda: X86

    import nnc.lower.phases  # noqa: PLC0415  (registers the passes, which are recorded)
    from nnc.backends.onednn.library import PrimitiveDesc  # noqa: PLC0415

    PrimitiveDesc.scratchpad_bytes = property(lambda desc: _WORKSPACE)
