"""GCC's OpenMP runtime, whose threads nnc's kernels and oneDNN share."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

from nnc.machine import ABSENT, read_text

LIBRARY = "libgomp.so.1"
MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, slots=True)
class Openmp:
    """The library and where it was found; without one, the reason."""

    library: ctypes.CDLL | None
    origin: str

    def describe(self) -> str:
        """Where it was found, or why not, and what follows from that."""
        return self.origin if self.library is not None else f"{ABSENT}, so kernels run in one thread: {self.origin}"


def find_openmp(name: str = LIBRARY, maps: Path = MAPS) -> Openmp:
    """The runtime that is loaded already, else the system's.

    Copies that packages of other projects bring along are used only where they are loaded anyway, as `maps` tells: two runtimes
    would have two pools of threads.
    """
    try:
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
    """The shared libraries in this process whose file name contains `stem`; none where the system does not tell."""
    return list(dict.fromkeys(re.findall(rf"(/.*/[^/\n]*{re.escape(stem)}[^/\n]*\.so[^/\n]*)\n", read_text(maps))))
