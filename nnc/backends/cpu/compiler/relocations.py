"""The relocations of ELF object files that LLVM writes for position-independent code of the small model, by processor family.

All numbers are offsets from the begin of the memory that the code is loaded into, which is the begin of a page.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

SYMBOL, POINTER, JUMP = "symbol", "pointer", "jump"  # the place that is meant: a symbol, its pointer, or a jump to it
_WORD, _PAGE = struct.Struct("<I"), 1 << 12  # of instructions of aarch64
_X86_REACH, _BRANCH_REACH, _PAGES_REACH = 1 << 31, 1 << 27, 1 << 32  # bytes in either direction


class UnknownFormError(Exception):
    """An object file has a form that is not known here, or the system gives no memory for code."""


class ElfRelocation(NamedTuple):
    """A way to fill an address in.

    Attributes:
        meant: SYMBOL, POINTER or JUMP.
        write: fills in the way to a target, in the content at an offset; the fourth argument is the address of the memory.
        reach: bytes from the place to the farthest target.
    """

    meant: str
    write: Callable[[bytearray, int, int, int], None]
    reach: int

    def reaches(self, here: int, target: int) -> bool:
        """Whether the target is near enough."""
        return -self.reach <= target - here < self.reach


class ElfForm(NamedTuple):
    """The form of object files for a processor family.

    Attributes:
        number: the family, in the head of a file.
        relocations: by their numbers.
        jump: returns 8 bytes of code that jump to the address in a pointer, so many bytes behind their begin.
    """

    number: int
    relocations: Mapping[int, ElfRelocation]
    jump: Callable[[int], bytes]


def _write_address(content: bytearray, here: int, target: int, base: int) -> None:
    struct.pack_into("<q", content, here, base + target)


def _write_distance(content: bytearray, here: int, target: int, base: int) -> None:
    struct.pack_into("<i", content, here, target - here)


def _write_pages(content: bytearray, here: int, target: int, base: int) -> None:
    """`adrp`: the distance between the pages of 4 KB, of which the lowest two bits stand apart."""
    pages = (target // _PAGE - here // _PAGE) & 0x1FFFFF
    _change(content, here, 0x60FFFFE0, (pages & 3) << 29 | (pages >> 2) << 5)


def _write_low(unit: int, content: bytearray, here: int, target: int, base: int) -> None:
    """`add`, or a load or store of `unit` bytes: where the target lies in its page."""
    offset = target % _PAGE
    if offset % unit:
        raise UnknownFormError(f"a target is not aligned to {unit} bytes")
    _change(content, here, 0xFFF << 10, offset // unit << 10)


def _write_branch(content: bytearray, here: int, target: int, base: int) -> None:
    _change(content, here, 0x3FFFFFF, (target - here) // 4 & 0x3FFFFFF)


def _change(content: bytearray, here: int, mask: int, bits: int) -> None:
    (word,) = _WORD.unpack_from(content, here)
    _WORD.pack_into(content, here, word & ~mask | bits)


def _x86_jump(pointer: int) -> bytes:
    return struct.pack("<2sixx", b"\xff\x25", pointer - 6)  # jmp [rip + distance]


def _aarch64_jump(pointer: int) -> bytes:
    return struct.pack("<II", 0x58000010 | (pointer // 4 & 0x7FFFF) << 5, 0xD61F0200)  # ldr x16, pointer; br x16


_ANYWHERE = 1 << 64
_ADDRESS = ElfRelocation(SYMBOL, _write_address, _ANYWHERE)
_X86_64 = ElfForm(
    62,
    MappingProxyType(
        {  # R_X86_64_64, PC32, PLT32; GOTPCREL, GOTPCRELX, REX_GOTPCRELX
            1: _ADDRESS,
            2: ElfRelocation(SYMBOL, _write_distance, _X86_REACH),
            4: ElfRelocation(JUMP, _write_distance, _X86_REACH),
            **dict.fromkeys((9, 41, 42), ElfRelocation(POINTER, _write_distance, _X86_REACH)),
        }
    ),
    _x86_jump,
)
_AARCH64 = ElfForm(
    183,
    MappingProxyType(
        {  # R_AARCH64_ABS64, PREL32, ADR_PREL_PG_HI21, JUMP26, CALL26, ADR_GOT_PAGE, LD64_GOT_LO12_NC
            257: _ADDRESS,
            261: ElfRelocation(SYMBOL, _write_distance, _X86_REACH),
            275: ElfRelocation(SYMBOL, _write_pages, _PAGES_REACH),
            282: ElfRelocation(JUMP, _write_branch, _BRANCH_REACH),
            283: ElfRelocation(JUMP, _write_branch, _BRANCH_REACH),
            311: ElfRelocation(POINTER, _write_pages, _PAGES_REACH),
            312: ElfRelocation(POINTER, partial(_write_low, 8), _ANYWHERE),
            **{  # ADD_ABS_LO12_NC and LDST8, 16, 32, 64, 128_ABS_LO12_NC
                number: ElfRelocation(SYMBOL, partial(_write_low, unit), _ANYWHERE)
                for number, unit in ((277, 1), (278, 1), (284, 2), (285, 4), (286, 8), (299, 16))
            },
        }
    ),
    _aarch64_jump,
)
FORMS: Mapping[str, ElfForm] = MappingProxyType({"x86_64": _X86_64, "aarch64": _AARCH64})


def flush_instructions(begin: int, size: int) -> None:
    """Has the processor read new code from memory: x86-64 does so by itself, others are told by a function of GCC's library.

    Raises:
        UnknownFormError: the library is not there.
    """
    try:
        flush = ctypes.CDLL("libgcc_s.so.1").__clear_cache
    except (OSError, AttributeError) as error:
        raise UnknownFormError(f"code cannot be announced to the processor: {error}") from error
    flush(ctypes.c_void_p(begin), ctypes.c_void_p(begin + size))
