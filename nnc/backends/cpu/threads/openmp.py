"""GCC's OpenMP runtime, in whose threads oneDNN works where nnc has none of its own (`pool.py`), or those are busy or too few
(`team.py`).

After a loop its threads look out for the next one, for milliseconds by default, on processors that nnc's own threads could use by
then. So they are told to look only for some microseconds, if the user has not said how long.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

from nnc.base.machine import ABSENT, read_text
from nnc.base.options import variable_set

LIBRARY = "libgomp.so.1"
MAPS = Path("/proc/self/maps")
_SPINS = ("GOMP_SPINCOUNT", "2000")
_WAIT_POLICY = "OMP_WAIT_POLICY"


@dataclass(frozen=True, slots=True)
class Openmp:
    """The library and where it was found; without one, the reason."""

    library: ctypes.CDLL | None
    origin: str

    def describe(self) -> str:
        """Returns the path of the library, or the reason for its absence."""
        return self.origin if self.library is not None else f"{ABSENT}: {self.origin}"


def find_openmp(name: str = LIBRARY, maps: Path = MAPS) -> Openmp:
    """Returns the runtime that is loaded already, else the system's.

    Copies that packages of other projects bring along are used only where they are loaded anyway, as `maps` tells: two runtimes
    would have two pools of threads.
    """
    try:
        with variable_set(*_SPINS, unless=[_WAIT_POLICY]):
            return Openmp(ctypes.CDLL(name), name)
    except OSError as error:
        reason = str(error)
    for path in loaded_libraries("libgomp", maps):
        try:
            return Openmp(ctypes.CDLL(path), path)
        except OSError as error:
            reason = str(error)
    return Openmp(None, reason)


def loaded_libraries(stem: str, maps: Path = MAPS) -> list[str]:
    """Returns the shared libraries in this process whose file name contains `stem`; none where the system does not tell."""
    return list(dict.fromkeys(re.findall(rf"(/.*/[^/\n]*{re.escape(stem)}[^/\n]*\.so[^/\n]*)\n", read_text(maps))))
