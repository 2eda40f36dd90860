"""Reads the machine code that nvJitLink makes: an ELF file with a section for each kernel, 16 bytes an instruction since sm_70."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_OPCODE, _NOP = 0xFFF, 0x918
_SECTION = "<IIQQQQIIQQ"  # name, type, flags, address, offset, size, …


def count_instructions(cubin: bytes) -> dict[str, int]:
    """The instructions of each kernel, slow paths included, without the padding behind the last one."""
    return {
        name.removeprefix(".text."): sum(word & _OPCODE != _NOP for (word, _) in struct.iter_unpack("<QQ", code))
        for name, code in _sections(cubin)
        if name.startswith(".text.")
    }


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    (begin,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from(_SECTION, elf, begin + i * size) for i in range(count)]
    texts = headers[names][4]
    for name, kind, _, _, offset, nbytes, *_ in headers:
        has_bytes = kind != 8  # SHT_NOBITS
        yield elf[texts + name :].partition(b"\0")[0].decode(), elf[offset : offset + nbytes * has_bytes]
