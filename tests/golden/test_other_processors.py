"""The golden programs become object files for processors and systems on which no test runs, and call known functions alone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache

import pytest

import nnc.compiled.object_code as object_code
from nnc.backends.cpu.compiler.runtime import FUNCTIONS
from nnc.backends.cpu.threads.pool import pool_text
from nnc.backends.cpu.threads.waiting import waiting_of
from nnc.backends.llvm.llvm import CALLS
from nnc.backends.llvm.objects import make_object
from nnc.compiled.executable import Lowered
from nnc.device.targets import X86
from nnc.device.targets.objects import ObjectTarget
from tests.golden import programs

LINUX = "aarch64-unknown-linux-gnu"
TARGETS = {
    "neoverse-n1": ObjectTarget(LINUX, "neoverse-n1", "", "aarch64", 16),
    "neoverse-v2": ObjectTarget(LINUX, "neoverse-v2", "", "aarch64", 16),
    "apple-m1": ObjectTarget("arm64-apple-darwin", "apple-m1", "", "arm64", 16),
    "windows": ObjectTarget("x86_64-pc-windows-msvc", "x86-64-v3", "", "AMD64", 32),
}
SYSTEMS = {"apple-m1": "darwin", "windows": "win32"}
LAPACK = {"gaussian_process"}  # a large matrix is LAPACK's, so it is no part of the object file
NAMES = [make.__name__ for make in programs.PROGRAMS if make.__name__ not in LAPACK]


def needs(content: bytes) -> set[str]:
    """Returns the names of the functions of others that an object file calls, in the form of any system."""
    if content.startswith(b"\x7fELF"):
        return set(_elf_needs(content))
    return set(_macho_needs(content) if content.startswith(b"\xcf\xfa\xed\xfe") else _coff_needs(content))


def _string(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()


def _elf_needs(content: bytes) -> Iterator[str]:
    sections_at, count = struct.unpack_from("<40xQ12xH", content)
    rows = [struct.unpack_from("<IIQQQQIIQQ", content, sections_at + 64 * i) for i in range(count)]
    for _, kind, _, _, offset, size, link, _, _, _ in rows:
        if kind == 2:  # symbols
            for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", content[offset : offset + size]):
                if section == 0 and name:
                    yield _string(content, rows[link][4] + name)


def _macho_needs(content: bytes) -> Iterator[str]:
    (count,) = struct.unpack_from("<16xI", content)
    at = 32
    for _ in range(count):
        command, size, symbols, number, strings = struct.unpack_from("<IIIII", content, at)
        if command == 2:  # LC_SYMTAB
            for name, kind, _, _, _ in struct.iter_unpack("<IBBHQ", content[symbols : symbols + 16 * number]):
                if kind & 0x0F == 1:  # external and undefined
                    yield _string(content, strings + name).removeprefix("_")
        at += size


def _coff_needs(content: bytes) -> Iterator[str]:
    symbols, number = struct.unpack_from("<8xII", content)
    i = 0
    while i < number:
        name, _, section, _, kind, more = struct.unpack_from("<8sIhHBB", content, symbols + 18 * i)
        if section == 0 and kind == 2:  # undefined, external
            zeros, offset = struct.unpack("<II", name)
            yield name.rstrip(b"\0").decode() if zeros else _string(content, symbols + 18 * number + offset)
        i += 1 + more


@cache
def lowered(name: str, vector_bytes: int) -> Lowered:
    program = getattr(programs, name)()
    options = object_code.object_options("aarch64" if vector_bytes == 16 else "x86-64-v3", max_steps=50)
    return object_code.lowered_for(program.fun, program.arguments, options)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_a_program_becomes_an_object_file(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(object_code.OBJECT_TARGETS, target, TARGETS[target])
    code = object_code.compile_to_object(lowered(name, TARGETS[target].vector_bytes), "program", target)
    assert len(code.file.content) > 2000
    assert needs(code.file.content) <= FUNCTIONS, name


@pytest.mark.parametrize("target", TARGETS)
def test_threads_become_an_object_file(target: str) -> None:
    waiting = waiting_of(SYSTEMS.get(target, "linux"), "aarch64")
    text = pool_text(X86.threads, TARGETS[target].architecture, waiting=waiting)
    file = make_object([(text, CALLS)], ["nnc_parallel_for", "nnc_work", "nnc_wake"], TARGETS[target])
    assert needs(file.content) - FUNCTIONS == {*waiting.calls, "nnc_num_threads", "nnc_workers"}
