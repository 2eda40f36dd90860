"""Object files in ELF, for x86-64 and aarch64: turns LLVM's output into functions that can be called, without LLVM.

Most processes find all their code compiled by an earlier one. To have LLVM load it would take 43 MiB and a tenth of a second, for
a copy and some hundred sums. Only the sections and relocations (`relocations.py`) that LLVM writes for position-independent code
of the small model are known; of anything else `UnknownFormError` says that LLVM has to load it.

    memory   [ code and constants | pointers to global symbols | jumps to where those point ][ variables ]
             pages to be read and executed                                                    to be read and written
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from nnc.backends.cpu.compiler.relocations import FORMS, JUMP, POINTER, ElfForm, UnknownFormError, flush_instructions

_MAGIC = b"\x7fELF\x02\x01\x01"  # 64 bits, the low byte first
_RELOCATABLE = 1
_HEADER, _SECTION = struct.Struct("<16xHH20xQ12xH"), struct.Struct("<IIQQQQIIQQ")
_SYMBOL, _SUM = struct.Struct("<IBBHQQ"), struct.Struct("<QIIq")
_CONTENT, _SYMBOLS, _SUMS, _ZEROS, _NOTE, _UNWINDING = 1, 2, 4, 8, 7, 0x70000001  # types of sections
_WRITE, _IN_MEMORY, _OF_THREADS = 1, 2, 0x400  # their flags
_UNDEFINED, _RESERVED = 0, 0xFF00  # numbers that stand for no section, as do all larger ones
_LOCAL, _WEAK = 0, 2  # bindings of symbols
_WORD = 8
_READ_WRITE, _READ_EXECUTE = 3, 5  # mprotect's numbers


class MissingError(Exception):
    """Nobody gave some symbols."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(f"nobody gave {', '.join(sorted(names))}")
        self.names = sorted(names)


def is_supported(system: str = sys.platform, machine: str | None = None) -> bool:
    """Whether LLVM's code for this machine is of the form that is known here."""
    return system == "linux" and (machine or platform.machine()) in FORMS and sys.maxsize > 1 << 32


class CodeMemory:
    """Memory that becomes code. It is given back with this object, but not where the process ends: threads may still be in it."""

    def __init__(self, size: int) -> None:
        functions = _libc()
        self.address = int(functions.mmap(None, size, _READ_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0) or 0)
        if self.address == ctypes.c_void_p(-1).value:
            raise UnknownFormError(f"no memory for {size} bytes of code: error {ctypes.get_errno()}")
        weakref.finalize(self, functions.munmap, self.address, size).atexit = False

    def fill(self, content: bytes | bytearray, code_bytes: int) -> None:
        """Writes to the memory; so many bytes of it, whole pages, are code from then on."""
        ctypes.memmove(self.address, bytes(content), len(content))
        if _libc().mprotect(self.address, code_bytes, _READ_EXECUTE):
            raise UnknownFormError(f"memory cannot become code: error {ctypes.get_errno()}")
        if platform.machine() != "x86_64":
            flush_instructions(self.address, code_bytes)


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.argtypes, library.mmap.restype = (pointer, size, number, number, number, ctypes.c_long), pointer
    library.munmap.argtypes = pointer, size
    library.mprotect.argtypes = pointer, size, number
    return library


class _Section(NamedTuple):
    """A part of a file, from `offset` on. Of sums, `of` is the section whose bytes they change.

    `is_loaded`: it is needed in memory. Nothing is thrown through compiled code, so how to unwind that is not.
    """

    kind: int
    flags: int
    offset: int
    size: int
    link: int
    of: int
    alignment: int
    is_loaded: bool

    @property
    def is_writable(self) -> bool:
        return bool(self.flags & _WRITE)


class _ElfSymbol(NamedTuple):
    """A place in a section; global ones are known by name to all files."""

    name: str
    binding: int
    section: int
    value: int

    @property
    def is_defined(self) -> bool:
        return self.section != _UNDEFINED


class _File(NamedTuple):
    """An object file, taken apart."""

    content: bytes
    sections: tuple[_Section, ...]
    symbols: tuple[_ElfSymbol, ...]

    @classmethod
    def of(cls, content: bytes, form: ElfForm) -> _File:
        kind, machine, sections_at, count = _HEADER.unpack_from(content)
        if not content.startswith(_MAGIC) or (kind, machine) != (_RELOCATABLE, form.number):
            raise UnknownFormError("no object file of this processor family")
        sections = []
        rows = _SECTION.iter_unpack(content[sections_at : sections_at + count * _SECTION.size])
        for _, kind, flags, _, offset, size, link, of, alignment, _ in rows:
            is_loaded = bool(flags & _IN_MEMORY) and kind not in (_NOTE, _UNWINDING) and size > 0
            if is_loaded and (kind not in (_CONTENT, _ZEROS) or flags & _OF_THREADS):
                raise UnknownFormError(f"a section of type {kind}, flags {flags}")
            sections.append(_Section(kind, flags, offset, size, link, of, max(alignment, 1), is_loaded))
        found = cls(content, tuple(sections), ())
        return cls(content, found.sections, tuple(found._read_symbols()))

    def _read_symbols(self) -> Iterator[_ElfSymbol]:
        for table in self.sections:
            if table.kind == _SYMBOLS:
                names = self.sections[table.link].offset
                for name, info, _, section, value, _ in _SYMBOL.iter_unpack(self.bytes_of(table)):
                    if section >= _RESERVED and info >> 4 != _LOCAL:
                        raise UnknownFormError(f"a symbol in section {section}")
                    end = self.content.index(b"\0", names + name)
                    yield _ElfSymbol(self.content[names + name : end].decode(), info >> 4, section, value)

    def bytes_of(self, section: _Section) -> bytes:
        """Returns the content of a section."""
        return self.content[section.offset : section.offset + section.size]

    def loaded(self, *, writable: bool) -> Iterator[int]:
        """The numbers of the sections that are needed in memory."""
        return (i for i, section in enumerate(self.sections) if section.is_loaded and section.is_writable == writable)

    def globals(self) -> Iterator[_ElfSymbol]:
        """The symbols that are known to all files."""
        return (symbol for symbol in self.symbols if symbol.binding != _LOCAL)


class _Offsets:
    """The offsets of all parts, from the begin of the memory on."""

    def __init__(self, files: Sequence[_File]) -> None:
        self.places: dict[tuple[int, int], int] = {}  # by file and section
        end = self._place(files, 0, writable=False)
        names = dict.fromkeys(symbol.name for file in files for symbol in file.globals())
        begin = _up(end, _WORD)
        self.pointers = {name: begin + i * _WORD for i, name in enumerate(names)}
        self.jumps = {name: at + len(names) * _WORD for name, at in self.pointers.items()}
        self.code_bytes = _up(begin + 2 * len(names) * _WORD, mmap.PAGESIZE)
        self.size = self._place(files, self.code_bytes, writable=True)

    def _place(self, files: Sequence[_File], end: int, *, writable: bool) -> int:
        for i, file in enumerate(files):
            for number in file.loaded(writable=writable):
                section = file.sections[number]
                self.places[i, number] = begin = _up(end, section.alignment)
                end = begin + section.size
        return end

    def find(self, file: int, symbol: _ElfSymbol) -> int:
        """Returns the address of a symbol that a file defines."""
        place = self.places.get((file, symbol.section))
        if place is None:
            raise UnknownFormError(f"{symbol.name or 'a symbol'} lies in section {symbol.section}, which is not loaded")
        return place + symbol.value


def load(
    images: Sequence[bytes], given: Mapping[str, int], exports: Collection[str]
) -> tuple[CodeMemory, dict[str, int]]:
    """Loads object files, which see each other and `given` (addresses); returns the addresses of `exports`, valid with the memory.

    Raises:
        UnknownFormError: LLVM must load them.
        MissingError: a symbol that they need, or should export, is missing.
    """
    form = FORMS[platform.machine()]
    try:
        files = [_File.of(image, form) for image in images]
    except (struct.error, LookupError, ValueError) as error:
        raise UnknownFormError(str(error)) from error
    plan = _Offsets(files)
    memory = CodeMemory(plan.size)
    addresses = _find(files, plan, memory.address, given, exports)
    content = bytearray(plan.size)
    for name, at in plan.pointers.items():
        struct.pack_into("<Q", content, at, addresses[name])
        jump = plan.jumps[name]
        content[jump : jump + _WORD] = form.jump(at - jump)
    for i, file in enumerate(files):
        for number, section in enumerate(file.sections):
            if (i, number) in plan.places and section.kind == _CONTENT:
                at = plan.places[i, number]
                content[at : at + section.size] = file.bytes_of(section)
    for i in range(len(files)):
        _fill_in(form, content, files, i, plan, addresses, memory.address)
    memory.fill(content, plan.code_bytes)
    return memory, {name: addresses[name] for name in exports}


def _find(
    files: Sequence[_File], plan: _Offsets, base: int, given: Mapping[str, int], exports: Collection[str]
) -> dict[str, int]:
    """Returns the addresses of all global symbols: symbols that files define come before those that are given."""
    addresses: dict[str, int] = {}
    for i, file in enumerate(files):
        for symbol in file.globals():
            if symbol.is_defined:
                if symbol.name in addresses or symbol.binding == _WEAK:
                    raise UnknownFormError(f"more than one {symbol.name}, or a weak one")
                addresses[symbol.name] = base + plan.find(i, symbol)
    needed = [name for name in (*plan.pointers, *exports) if name not in addresses]
    missing = {name for name in needed if name not in given or name in exports}
    if missing:
        raise MissingError(missing)
    return addresses | {name: given[name] for name in needed}


def _fill_in(
    form: ElfForm,
    content: bytearray,
    files: Sequence[_File],
    i: int,
    plan: _Offsets,
    addresses: Mapping[str, int],
    base: int,
) -> None:
    """Fills in the addresses and distances in a file's sections."""
    file = files[i]
    for table in file.sections:
        place = plan.places.get((i, table.of))
        if table.kind != _SUMS or place is None:
            continue
        for offset, kind, number, addend in _SUM.iter_unpack(file.bytes_of(table)):
            symbol, here = file.symbols[number], place + offset
            relocation, is_local = form.relocations.get(kind), symbol.binding == _LOCAL
            if relocation is None or (relocation.meant == POINTER and is_local):
                raise UnknownFormError(f"a sum of kind {kind}")
            target = plan.find(i, symbol) if is_local else addresses[symbol.name] - base
            if relocation.meant == POINTER:
                target = plan.pointers[symbol.name]
            elif relocation.meant == JUMP and not is_local and not relocation.reaches(here, target + addend):
                target = plan.jumps[symbol.name]
            if not relocation.reaches(here, target + addend):
                raise UnknownFormError(f"{symbol.name} lies too far away")
            relocation.write(content, here, target + addend, base)


def _up(number: int, unit: int) -> int:
    """Returns the next multiple of a power of two."""
    return (number + unit - 1) & -unit
