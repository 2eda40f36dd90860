"""Object files are loaded without LLVM, with the same results as by LLVM."""

from __future__ import annotations

import ctypes
import gc
import mmap
import platform
import re
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnc.backends.cpu.compiler import elf
from nnc.backends.cpu.compiler.engine import Engine, LoadedObjects
from nnc.backends.cpu.compiler.relocations import FORMS, UnknownFormError
from nnc.errors import InternalError

pytestmark = pytest.mark.skipif(not elf.is_supported(), reason="object files of this system are LLVM's to load")

ENGINE = Engine()
Link = Callable[[Sequence[bytes], Mapping[str, int], Collection[str]], LoadedObjects]

CALLED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 3 * x)
GIVEN = {"far": ctypes.cast(CALLED, ctypes.c_void_p).value or 0}
TRIPLE, REACH = {  # code that returns 3 * x, and how far a call reaches
    "x86_64": (b"\x48\x8d\x04\x7f\xc3", 1 << 31),
    "aarch64": (struct.pack("<II", 0x8B000400, 0xD65F03C0), 1 << 27),
}.get(platform.machine(), (b"", 0))
TWO_FILES = (
    "declare i64 @other(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @other(i64 %x)\n  %z = add i64 %y, 1\n  ret i64 %z\n}\n",
    "define i64 @other(i64 %x) {\n  %y = mul i64 %x, 10\n  ret i64 %y\n}\n",
)
OUTSIDE = "declare i64 @far(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @far(i64 %x)\n  ret i64 %y\n}\n"
ADDRESS_OF_OUTSIDE = """
declare i64 @far(i64)
define i64 @f(i64 %x) {
  %at = alloca ptr
  store volatile ptr @far, ptr %at
  %function = load volatile ptr, ptr %at
  %y = call i64 %function(i64 %x)
  ret i64 %y
}
"""
TABLE = """
@table = internal constant [4 x i64] [i64 7, i64 11, i64 13, i64 17]
define i64 @f(i64 %x) {
  %i = and i64 %x, 3
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %y = load i64, ptr %at
  ret i64 %y
}
"""
FUNCTIONS = """
@table = internal constant [2 x ptr] [ptr @one, ptr @far]
declare i64 @far(i64)
define internal i64 @one(i64 %x) {
  ret i64 1
}
define i64 @f(i64 %x) {
  %i = and i64 %x, 1
  %at = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i
  %function = load ptr, ptr %at
  %y = call i64 %function(i64 %x)
  ret i64 %y
}
"""
SWITCH = (
    "define i64 @f(i64 %x) {\n  switch i64 %x, label %none [\n"
    + "".join(f"    i64 {i}, label %l{i}\n" for i in range(8))
    + "  ]\n"
    + "".join(f"l{i}:\n  %p{i} = mul i64 %x, {i * i + 3}\n  ret i64 %p{i}\n" for i in range(8))
    + "none:\n  ret i64 -1\n}\n"
)
CONSTANTS = """
define i64 @f(i64 %x) {
  %a = sitofp i64 %x to double
  %b = fmul double %a, 1.37e3
  %v = insertelement <4 x double> poison, double %b, i32 0
  %w = shufflevector <4 x double> %v, <4 x double> poison, <4 x i32> zeroinitializer
  %s = fadd <4 x double> %w, <double 1.5, double 2.5, double 3.5, double 4.5>
  %t = extractelement <4 x double> %s, i64 %x
  %y = fptosi double %t to i64
  ret i64 %y
}
"""
STATE = """
@count = internal global i64 40, align 128
@zeros = internal global [64 x i64] zeroinitializer, align 128
@shared = global i64 5
define i64 @f(i64 %x) {
  %old = load i64, ptr @count
  %new = add i64 %old, %x
  store i64 %new, ptr @count
  %at = getelementptr [64 x i64], ptr @zeros, i64 0, i64 %x
  %before = load i64, ptr %at
  store i64 %new, ptr %at
  %shared = load i64, ptr @shared
  %sum = add i64 %before, %shared
  %y = add i64 %sum, %new
  ret i64 %y
}
"""
THREAD_LOCAL = """
@own = internal thread_local global i64 5
define i64 @f(i64 %x) {
  %at = call ptr @llvm.threadlocal.address.p0(ptr @own)
  %y = load i64, ptr %at
  ret i64 %y
}
declare ptr @llvm.threadlocal.address.p0(ptr)
"""
TEXTS = {
    "two files": TWO_FILES, "a function outside": (OUTSIDE,), "its address": (ADDRESS_OF_OUTSIDE,), "a table": (TABLE,),
    "a table of functions": (FUNCTIONS,), "a table of jumps": (SWITCH,), "constants": (CONSTANTS,), "variables": (STATE,),
}  # fmt: skip


def results(link: Link, texts: Sequence[str], symbols: Mapping[str, int]) -> list[int]:
    library = link([ENGINE.compile(text) for text in texts], symbols, ["f"])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.addresses["f"])
    return [call(x) for x in (0, 1, 2, 3, 3, 1)]


def own(objects: Sequence[bytes], symbols: Mapping[str, int], exports: Collection[str]) -> LoadedObjects:
    memory, addresses = elf.load(objects, symbols, exports)
    return LoadedObjects(addresses, memory)


def permissions(address: int) -> str:
    """Returns the permissions of the memory at an address; "" where there is none."""
    maps = re.findall(r"^(\w+)-(\w+) (\S+)", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return next((allowed for low, high, allowed in maps if int(low, 16) <= address < int(high, 16)), "")


@pytest.mark.parametrize("name", TEXTS)
def test_functions_agree_with_the_ones_that_llvm_loads(name: str) -> None:
    assert results(own, TEXTS[name], GIVEN) == results(ENGINE.link_by_llvm, TEXTS[name], GIVEN)


@contextmanager
def triple_at(hint: int | None) -> Iterator[int]:
    """A function of the machine that triples a number, in a page near the hint or where the system likes."""
    c = ctypes.CDLL(None)
    c.mmap.restype, c.mmap.argtypes = (
        ctypes.c_void_p,
        (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long),
    )
    c.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    at = c.mmap(hint, mmap.PAGESIZE, 7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    ctypes.memmove(at, TRIPLE, len(TRIPLE))
    yield at
    c.munmap(at, mmap.PAGESIZE)


FAR = 0x6000_0000  # other libraries lie far above


def test_functions_that_lie_too_far_away_for_a_call_are_reached_by_a_jump() -> None:
    for hint in (FAR, None):
        with triple_at(hint) as at:
            library = own([ENGINE.compile(OUTSIDE)], {"far": at}, ["f"])
            assert (abs(library.addresses["f"] - at) < REACH) == (hint is None)
            assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.addresses["f"])(5) == 15


def test_jumps_may_end_anywhere_in_a_page() -> None:
    with triple_at(FAR) as at:
        for count in range(110, 250):  # each adds some 30 bytes of a page's 4,096
            names = [f"far{i}" for i in range(count)]
            calls = [f"  %y{i} = call i64 @{name}(i64 {i})" for i, name in enumerate(names)]
            sums = [f"  %s{i + 1} = add i64 %s{i}, %y{i}" for i in range(count)]
            head = [f"declare i64 @{name}(i64)" for name in names]
            text = [*head, "define i64 @f(i64 %s0) {", *calls, *sums, f"  ret i64 %s{count}", "}"]
            library = own([ENGINE.compile("\n".join(text))], dict.fromkeys(names, at), ["f"])
            call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.addresses["f"])
            assert call(7) == 7 + 3 * sum(range(count))


def test_code_can_not_be_written_to_and_variables_are_no_code() -> None:
    library = own([ENGINE.compile(STATE)], {}, ["f", "shared"])
    assert permissions(library.addresses["f"]) == "r-xp"
    assert permissions(library.addresses["shared"]) == "rw-p"


def test_memory_is_given_back() -> None:
    library = own([ENGINE.compile(STATE)], {}, ["f", "shared"])
    places = list(library.addresses.values())
    assert all(map(permissions, places))
    del library
    gc.collect()
    assert not any(map(permissions, places))


def test_a_missing_symbol_is_named() -> None:
    code = ENGINE.compile(OUTSIDE)
    with pytest.raises(elf.MissingError, match="far"):
        elf.load([code], {}, ["f"])
    with pytest.raises(elf.MissingError, match="nobody gave g"):
        elf.load([code], {**GIVEN, "g": 1}, ["g"])  # a symbol that is exported must be in a file
    with pytest.raises(InternalError, match="Nobody gave: far"):
        ENGINE.link([code], {}, ["f"])


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ([THREAD_LOCAL], "a section of type"),
        ([OUTSIDE, OUTSIDE], "more than one f"),
        ([OUTSIDE.replace("define", "define weak")], "a weak one"),
    ],
)
def test_other_forms_are_left_to_llvm(texts: Sequence[str], reason: str) -> None:
    with pytest.raises(UnknownFormError, match=reason):
        elf.load([ENGINE.compile(text) for text in texts], GIVEN, ["f"])


def test_llvm_loads_files_of_another_form() -> None:
    assert results(ENGINE.link, [OUTSIDE.replace("define", "define weak")], GIVEN) == [0, 3, 6, 9, 9, 3]


@pytest.mark.parametrize("damage", [lambda code: b"", lambda code: code[:80], lambda code: b"\x7fELF\x01" + code[5:]])
def test_other_files_than_object_files_are_refused(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(UnknownFormError):
        elf.load([damage(ENGINE.compile(TABLE))], {}, ["f"])


def test_llvm_loads_all_files_if_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNC_LOADER", "llvm")
    engine = Engine()
    monkeypatch.setattr(elf, "load", None)
    assert not engine.is_apart and results(engine.link, TWO_FILES, {}) == [1, 11, 21, 31, 31, 11]
    assert engine.made_for["llvm"] == engine.machine.llvm


def test_other_systems_are_left_to_llvm() -> None:
    assert elf.is_supported("linux", "x86_64") and elf.is_supported("linux", "aarch64")
    assert not elf.is_supported("linux", "ppc64le") and not elf.is_supported("darwin", "arm64")


@pytest.mark.parametrize(
    ("kind", "before", "here", "target", "after"),
    [
        (275, 0x90000000, 0x1FFC, 0x2004, 0xB0000000),  # adrp x0, 1 page ahead
        (275, 0x90000003, 0x5000, 0x2004, 0xB0FFFFE3),  # adrp x3, 3 pages back
        (277, 0x91000000, 0, 0x1234, 0x9108D000),  # add x0, x0, 0x234
        (286, 0xF9400000, 0, 0x1238, 0xF9411C00),  # ldr x0, [x0, 0x238]
        (299, 0x3DC00000, 0, 0x1230, 0x3DC08C00),  # ldr q0, [x0, 0x230]
        (283, 0x94000000, 8, 16, 0x94000002),  # bl 8 ahead
        (282, 0x14000000, 8, 4, 0x17FFFFFF),  # b 4 back
        (312, 0xF9400042, 0, 0x3008, 0xF9400442),  # ldr x2, [x2, 8]
    ],
)
def test_instructions_of_aarch64_get_their_targets(kind: int, before: int, here: int, target: int, after: int) -> None:
    content = bytearray(here + 4)
    struct.pack_into("<I", content, here, before)
    FORMS["aarch64"].relocations[kind].write(content, here, target, 1 << 40)
    assert hex(struct.unpack_from("<I", content, here)[0]) == hex(after)


def test_loads_of_aarch64_from_odd_places_are_left_to_llvm() -> None:
    with pytest.raises(UnknownFormError, match="not aligned to 8 bytes"):
        FORMS["aarch64"].relocations[286].write(bytearray(4), 0, 0x1234, 0)


def test_calls_of_aarch64_reach_128_mebibytes() -> None:
    call = FORMS["aarch64"].relocations[283]
    assert call.reaches(0, (1 << 27) - 4) and not call.reaches(0, 1 << 27)
    assert struct.unpack("<II", FORMS["aarch64"].jump(-16)) == (0x58FFFF90, 0xD61F0200)  # ldr x16, 16 back; br x16
