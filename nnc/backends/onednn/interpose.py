"""Replaces the functions that a loaded library imports.

A library calls imported functions through a table of addresses, which the loader of ELF systems fills in. The library's dynamic
section says where the entry of each function lies (System V ABI, "Dynamic Linking"). An entry that is changed concerns the calls
of that library alone. Where the loader has closed the table, its pages stay open afterwards.

So oneDNN works in nnc's threads. In those of OpenMP, a forked process hangs in its first convolution, and threads of both kinds
wait for work beside each other: the gradient of four convolutions (32 images, 32 channels of 28x28) takes 150 ms of processor
time rather than 80 on 2 cores, and about twice as long.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import platform
import sys
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p
from types import MappingProxyType

_END, _SIZE, _STRINGS, _SYMBOLS, _CALLS = 0, 2, 5, 6, 23  # tags of entries of the dynamic section
_CALL: Mapping[str, int] = MappingProxyType({"x86_64": 7, "aarch64": 1026})  # R_X86_64_JUMP_SLOT, R_AARCH64_JUMP_SLOT
_READ, _WRITE = 1, 2


class _LinkMap(ctypes.Structure):
    """The C library's description of a loaded library on Linux (link.h); the handle of one points to it."""

    _fields_ = (("base", c_uint64), ("name", c_char_p), ("dynamic", c_void_p))


class _DynamicEntry(ctypes.Structure):
    _fields_ = (("tag", c_int64), ("value", c_uint64))


class _Relocation(ctypes.Structure):
    _fields_ = (("offset", c_uint64), ("kind", c_uint32), ("symbol", c_uint32), ("addend", c_int64))


class _Symbol(ctypes.Structure):
    _fields_ = (("name", c_uint32), ("info", c_uint16), ("section", c_uint16), ("value", c_uint64), ("size", c_uint64))


def can_interpose() -> bool:
    """Whether this is possible on this system."""
    return sys.platform == "linux" and platform.libc_ver()[0] == "glibc" and platform.machine() in _CALL


def interpose(known: Mapping[str, int], functions: Mapping[str, int]) -> bool:
    """Replaces the functions that a library imports by the functions of the same names at these addresses.

    Args:
        known: the addresses of the library's imports, as `imported` returns them.

    Returns:
        whether the library imports all of them; if not, nothing is changed.
    """
    places = {name: at for name, at in known.items() if name in functions}
    if places.keys() != functions.keys():
        return False
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (c_void_p, c_size_t, ctypes.c_int)
    pages = {at // mmap.PAGESIZE * mmap.PAGESIZE for at in places.values()}
    if any(protect(page, mmap.PAGESIZE, _READ | _WRITE) for page in pages):
        return False
    for name, at in places.items():
        c_uint64.from_address(at).value = functions[name]
    return True


def imported(library: ctypes.CDLL) -> dict[str, int]:
    """Returns the functions that a library imports to call them, and where their addresses stand."""
    known = _LinkMap.from_address(library._handle)
    entries = ctypes.cast(known.dynamic, POINTER(_DynamicEntry))
    values: dict[int, int] = {}
    for i in itertools.count():
        if entries[i].tag == _END:
            break
        values[entries[i].tag] = entries[i].value
    calls = (_Relocation * (values.get(_SIZE, 0) // ctypes.sizeof(_Relocation))).from_address(values.get(_CALLS, 0))
    symbols, kind = ctypes.cast(values[_SYMBOLS], POINTER(_Symbol)), _CALL[platform.machine()]
    return {
        ctypes.string_at(values[_STRINGS] + symbols[call.symbol].name).decode(): known.base + call.offset
        for call in calls
        if call.kind == kind
    }
