"""Reads from machine code as text how deep the stack can grow.

A function takes at most the sum over all its instructions; calls by name and through pointers are followed. The depth is
unknown where an instruction moves the stack pointer in a way that this file does not list, or where a function calls itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple


class _Family(NamedTuple):
    """The instructions of a processor family that move the stack pointer, and those that call functions.

    Attributes:
        takes: takes room. Groups say how much, as `_SIZES` reads them: bytes, or registers in a list.
        gives: gives room back.
        moves: moves the stack pointer, in these ways or any other.
        calls: calls the function `name`.
        calls_any: calls through a pointer.
        jumps_any: jumps to where a register says.
        call_bytes: that a call takes by itself.
        below: bytes below the stack pointer that functions use which call none.
    """

    takes: re.Pattern[str]
    gives: re.Pattern[str]
    moves: re.Pattern[str]
    calls: re.Pattern[str]
    calls_any: re.Pattern[str]
    jumps_any: re.Pattern[str]
    call_bytes: int = 0
    below: re.Pattern[str] | None = None


def _lines(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(rf"^\t{pattern}" for pattern in patterns), re.MULTILINE)


_WORD = r"[A-Za-z_][\w.$]*"
_NAME = rf"(?P<name>{_WORD})"
_X86 = _Family(
    takes=_lines(
        r"pushq\t(?P<doubles>\S+)", r"(?:subq\t\$|addq\t\$-|leaq\t-)(?P<bytes>\d+)(?:\(%rsp\))?, %rsp\b",
        r"andq\t\$-(?P<align>\d+), %rsp\b",
    ),
    gives=_lines(r"popq\t", r"addq\t\$\d+, %rsp\b", r"leaq\t-?\d*\(%r[bs]p\), %rsp\b", r"movq\t%rbp, %rsp\b"),
    moves=_lines(r"(?:push|pop|enter|leave)", r".*, %[er]?sp\b"),
    calls=_lines(rf"(?:callq|jmp)\t{_NAME}"), calls_any=_lines(r"callq\t\*"), jumps_any=_lines(r"jmpq\t\*"),
    call_bytes=8, below=re.compile(r"-(\d+)\(%rsp"),
)  # fmt: skip
_AARCH64 = _Family(
    takes=_lines(
        r"st[pr]\t.*\[sp, #-(?P<bytes>\d+)\]!",
        r"sub\t(?:sp, sp|x9, (?:sp|x9)(?=(?:.*\n){1,16}?\tand\tsp, x9, )), #(?:(?P<pages>\d+), lsl #12|(?P<more>\d+))",
        r"and\tsp, x9, #(?P<mask>0x[0-9a-f]+)",
    ),
    gives=_lines(r"ld[pr]\t.*\[sp\], #\d+", r"add\tsp, sp, #", r"(?:mov|sub|add)\tsp, x29\b"),
    moves=_lines(r"\S+\tsp\b", r".*\[sp\b.*\]!", r".*\[sp\], "),
    calls=_lines(rf"bl?\t{_NAME}"), calls_any=_lines(r"blr\t"), jumps_any=_lines(r"br\t"),
)  # fmt: skip
_ARM = _Family(
    takes=_lines(
        r"push\t\{(?P<words>.*)\}", r"vpush\t\{(?P<doubles>.*)\}", r"sub\tsp, sp, #(?P<bytes>\d+)",
        r"str\t.*\[sp, #-(?P<more>\d+)\]!", r"bfc\tsp, #0, #(?P<bits>\d+)",
    ),
    gives=_lines(r"v?pop\w*\t", r"add\w*\tsp, sp, #", r"ldr\w*\t.*\[sp\], #\d+", r"(?:mov|sub|add)\w*\tsp, r11\b"),
    moves=_lines(r"v?(?:push|pop)", r"(?!v?st|v?ld|cmp)\S+\tsp\b", r".*\bsp!", r".*\[sp\b.*\]!", r".*\[sp\], "),
    calls=_lines(rf"bl?\t{_NAME}"), calls_any=_lines(r"blx\t"), jumps_any=_lines(r"bx\tr", r"\w+\tpc, "),
)  # fmt: skip
_WASM = _Family(
    takes=_lines(
        r"global\.get\t__stack_pointer\n(?:\t(?:local\.\w+\t\d+|drop|\w+\.const\t.*)\s*\n)*?"
        r"\ti32\.const\t(?P<bytes>\d+)\n\ti32\.sub\s*?(?:\n\ti32\.const\t-(?P<align>\d+)\n\ti32\.and\s*?)?$"
        r"(?:\n\tlocal\.tee\t\d+\n\tglobal\.set\t__stack_pointer)?"
    ),
    gives=_lines(r"(?:i32\.add\s*|local\.get\t\d+)\n\tglobal\.set\t__stack_pointer"),
    moves=_lines(r"global.*__stack_pointer"),
    calls=_lines(rf"(?:return_)?call\t{_NAME}"), calls_any=_lines(r"(?:return_)?call_indirect\t"), jumps_any=re.compile("(?!)"),
)  # fmt: skip
_FAMILIES = {"x86_64": _X86, "AMD64": _X86, "aarch64": _AARCH64, "arm64": _AARCH64, "armv7l": _ARM, "wasm32": _WASM}
# `align`, `bits` and `mask` align the stack pointer, which takes at most as many bytes.
_SIZES: dict[str, Callable[[str], int]] = {
    "bytes": int, "more": int, "align": int, "pages": lambda text: int(text) << 12, "bits": lambda text: 1 << int(text),
    "mask": lambda text: (1 << 64) - int(text, 16), "words": lambda text: 4 * len(text.split(",")),
    "doubles": lambda text: 8 * len(text.split(",")),
}  # fmt: skip
_FUNCTION = re.compile(r"^\t\.type\t([\w.$]+),[@%]function", re.MULTILINE)
_LABEL = re.compile(rf"^({_WORD}):", re.MULTILINE)
_POINTERS = r"\.(?:quad|long|word|xword|int32|int64|[48]byte)\t"  # other directives take no function's address


def stack_bytes(assembly: str, name: str, architecture: str) -> int | None:
    """Returns the bytes that a call of a function takes at most, without those of other libraries; None where that is not known.

    For WebAssembly these are bytes of the stack in linear memory, without the engine's own.
    """
    family = _FAMILIES.get(architecture)
    if family is None:
        return None
    text = "\n".join(line for line in assembly.splitlines() if not line.startswith("\t.asc"))  # without constants
    functions = set(_FUNCTION.findall(text))
    parts = _LABEL.split(text)
    bodies = {
        label: body.partition("\n.Lfunc_end")[0]
        for label, body in zip(parts[1::2], parts[2::2], strict=True)
        if label in functions
    }
    if name not in bodies:  # another system's way to write assembly
        return None
    own = {label: _own_bytes(body, family) for label, body in bodies.items()}
    calls = {
        label: {found["name"] for found in family.calls.finditer(body)} & functions for label, body in bodies.items()
    }
    others = re.compile(rf"^\t(?:(?!\.|{family.calls.pattern[2:]})|{_POINTERS}).*", re.MULTILINE)
    addressed = functions.intersection(word for line in others.finditer(text) for word in re.findall(_WORD, line[0]))
    through_pointers = {label for label, body in bodies.items() if _calls_through_pointers(body, family)}
    try:
        tuple(TopologicalSorter(calls).static_order())
    except CycleError:
        return None

    @cache
    def deepest(function: str, entered: frozenset[str]) -> int | None:
        """The bytes of a call. No function is called through a pointer while it runs: nothing that is printed calls itself."""
        below = [deepest(callee, entered) for callee in calls[function]]
        if function in through_pointers:
            below += [deepest(callee, entered | {callee}) for callee in addressed - entered]
        taken = own[function]
        known = [nbytes for nbytes in below if nbytes is not None]
        return None if taken is None or len(known) < len(below) else taken + max(known, default=0)

    return deepest(name, frozenset())


def _own_bytes(body: str, family: _Family) -> int | None:
    """Returns the bytes that a function takes by itself."""
    rest = family.gives.sub("", family.takes.sub("", body))
    if family.moves.search(rest):
        return None
    sizes = (
        _SIZES[key](size) for found in family.takes.finditer(body) for key, size in found.groupdict().items() if size
    )
    below = map(int, family.below.findall(rest)) if family.below else ()
    return family.call_bytes + sum(sizes) + max(below, default=0)


def _calls_through_pointers(body: str, family: _Family) -> bool:
    """Whether a function calls through a pointer. A jump does so, too, other than by a table of jumps."""
    return bool(family.calls_any.search(body) or (family.jumps_any.search(body) and ".LJTI" not in body))
