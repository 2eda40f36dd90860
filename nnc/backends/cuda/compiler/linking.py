"""Assembles PTX to machine code by NVIDIA's library nvJitLink, which needs neither a GPU nor its driver.

It comes with the package nvidia-nvjitlink, on which CuPy and PyTorch depend, too. Without it a driver assembles PTX by itself when
a module is loaded.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nnc.base.records import record
from nnc.errors import InternalError

_PTX = 2  # NVJITLINK_INPUT_PTX
_NAMES = ("libnvJitLink.so.13", "libnvJitLink.so.12")


@record
class Linked:
    """The machine code of a module, and the assembler's words about it."""

    cubin: bytes
    log: str


class Linker:
    """Calls nvJitLink, from the library at `path`.

    Raises:
        OSError: the library cannot be loaded.
    """

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self.version = ".".join(map(str, self._read_version()))

    def _read_version(self) -> tuple[int, int]:
        major, minor = ctypes.c_uint(), ctypes.c_uint()
        self._library.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def link(self, ptx: str, target: str, options: Sequence[str] = ()) -> Linked:
        """Assembles a module.

        Args:
            target: the processor, such as "sm_90".
            options: further options, by nvJitLink's names; "-verbose" for a log.

        Raises:
            InternalError: the assembler refuses the module.
        """
        given = [f"-arch={target}".encode(), *(option.encode() for option in options)]
        library, handle, text = self._library, ctypes.c_void_p(), ptx.encode() + b"\0"
        if library.nvJitLinkCreate(ctypes.byref(handle), len(given), (ctypes.c_char_p * len(given))(*given)):
            raise InternalError(f"nvJitLink {self.version} does not take the options {given}")
        try:
            failed = library.nvJitLinkAddData(handle, _PTX, text, ctypes.c_size_t(len(text)), b"nnc")
            if failed or library.nvJitLinkComplete(handle):
                raise InternalError(
                    f"nvJitLink {self.version} does not take a kernel for {target}: {self._log(handle, 'Error')}"
                )
            return Linked(self._read(handle, "LinkedCubin"), self._log(handle, "Info"))
        finally:
            library.nvJitLinkDestroy(ctypes.byref(handle))

    def _log(self, handle: Any, kind: str) -> str:
        return self._read(handle, f"{kind}Log").rstrip(b"\0").decode(errors="replace")

    def _read(self, handle: Any, kind: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._library, f"nvJitLinkGet{kind}Size")(handle, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self._library, f"nvJitLinkGet{kind}")(handle, buffer)
        return buffer.raw


@cache
def find_linker() -> Linker | None:
    """nvJitLink, among the files of installed packages or where the system finds libraries; None where it is in neither place."""
    for path in (*_installed(), *_NAMES):
        try:
            return Linker(str(path))
        except OSError:
            continue
    return None


def _installed() -> list[Path]:
    """Returns the library in the packages of NVIDIA, the newest first."""
    found = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in found.submodule_search_locations or ()] if found is not None else []
    return [path for name in _NAMES for folder in folders for path in sorted(folder.glob(f"*/lib/{name}"))]
