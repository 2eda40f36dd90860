"""The lines of one LLVM function while it is being written: shared, moved and dropped as they are written; types and literals.

LLVM itself would find duplicate, loop-invariant and dead instructions; but that would be most of its work
for a kernel. The writer knows its present loop, so it needs only a look into a dictionary: an instruction whose result depends on
its operands alone is written once, in front of the outermost loop in which they do not change.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from nnc.base import dtypes
from nnc.base.dtypes import DType

TYPES: dict[DType, str] = {
    dtypes.bool_: "i1", dtypes.int8: "i8", dtypes.uint8: "i8", dtypes.int16: "i16", dtypes.uint16: "i16",
    dtypes.int32: "i32", dtypes.uint32: "i32", dtypes.int64: "i64", dtypes.uint64: "i64", dtypes.float16: "half",
    dtypes.bfloat16: "i16", dtypes.float32: "float", dtypes.float64: "double",
}  # fmt: skip

_FROM_OPERANDS = frozenset(
    (
        "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "fadd", "fsub", "fmul", "fdiv", "fneg", "icmp", "fcmp",
        "select", "getelementptr", "bitcast", "zext", "sext", "trunc", "fpext", "fptrunc", "sitofp", "uitofp", "insertelement",
        "extractelement", "shufflevector",
    )
)  # fmt: skip
_DIVISIONS = frozenset(("sdiv", "srem", "udiv", "urem"))
_BY_NUMBER = re.compile(r", [1-9]\d*$")
_registers = re.compile(r"%[0-9A-Za-z_.]+").findall


class Lines(list["str | _Pure | Lines"]):
    """Lines, and groups of lines between them that are written later."""


class _Pure(NamedTuple):
    """An instruction without effects, needed only if its result is read, and the registers that it reads."""

    name: str
    text: str
    reads: Sequence[str]


def scalar_type(dtype: DType) -> str:
    """Returns the LLVM type of one value in a register.

    A bfloat16 is its bits: processors without instructions for it would convert LLVM's own type at each select, through functions
    that nobody gives.
    """
    return TYPES[dtype]


def memory_type(dtype: DType) -> str:
    """Returns the LLVM type of one value in memory: a bool takes a byte."""
    return "i8" if dtypes.is_bool(dtype) else scalar_type(dtype)


def vector_type(scalar: str, lanes: int) -> str:
    """Returns the type of so many lanes; the scalar's own for 0."""
    return f"<{lanes} x {scalar}>" if lanes else scalar


def literal(value: Any, dtype: DType) -> str:
    """Writes a number in LLVM's text, exactly."""
    if dtypes.is_bool(dtype):
        return "true" if value else "false"
    if dtypes.is_integer(dtype):
        return str(int(value))
    number = dtype.type(value)
    if dtype == dtypes.float16:
        return f"0xH{int.from_bytes(number.tobytes(), 'little'):04X}"
    if dtype == dtypes.bfloat16:
        return str(int.from_bytes(number.tobytes(), "little"))
    return f"0x{struct.pack('>d', number).hex().upper()}"


class FunctionWriter:
    """One function that is being written.

    `parameters` are pairs (LLVM type, name without %). `text()` is the definition, with the declarations that it needs in
    `declarations` (texts of `declare` lines, which a module must hold once).
    """

    shares = True  # whether instructions are moved and written once
    calls = True  # whether long code that hardly ever runs becomes a function beside this one

    def __init__(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        returns: str = "i64",
        attributes: str = "nounwind",
        linkage: str = "",
    ) -> None:
        self.name, self.parameters, self.returns, self.attributes = name, tuple(parameters), returns, attributes
        self.linkage = linkage
        self.declarations: set[str] = set()
        self.apart: dict[str, Any] = {}  # results of functions beside this one, by their names
        self._slots = Lines()
        self._lines = Lines()
        # Bodies of loops, lines under conditions, and around them all of the function: the instructions known in each alone.
        self._scopes: list[list[str]] = [[]]
        self._loops: list[tuple[int, Lines]] = []  # the scopes that are loops, and the lines in front of these
        self._known: dict[str, str] = {}  # the register that holds an instruction's result, of all scopes
        self._level: dict[str, int] = {}  # the scope in which a register is known; the function where none is noted
        self._sums: dict[str, tuple[str, int]] = {}  # of an i64: the value to which a number was added, and the number
        self._places: dict[str, tuple[str, int]] = {}  # of a pointer: another one, and by how many bytes it was moved
        self._block = "start"  # the block that is being written
        self._count = 0

    def text(self) -> str:
        """Returns the definition of the function, which must have returned."""
        listed = ", ".join(f"{kind} %{name}" for kind, name in self.parameters)
        lines: list[str | _Pure] = ["  br label %start", "start:"]
        body = "\n".join(_used(_flat(self._slots, []) + _flat(self._lines, lines)))
        kind = f"{self.linkage} {self.returns}".lstrip()
        return f"define {kind} @{self.name}({listed}) {self.attributes} {{\nentry:\n{body}\n}}\n"

    def fresh(self) -> str:
        """Returns a new register name."""
        self._count += 1
        return f"%v{self._count}"

    def label(self, stem: str) -> str:
        """Returns a new name for a block."""
        self._count += 1
        return f"{stem}{self._count}"

    def declare(self, text: str) -> None:
        """Notes a `declare` line."""
        self.declarations.add(text)

    # -- instructions --------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """An instruction without result, or whose result has a name of its own, as LLVM writes it."""
        self._lines.append("  " + text)
        if text.startswith("%"):
            self._level[text[: text.index(" ")]] = len(self._scopes) - 1

    def let(self, text: str) -> str:
        """Returns the register that holds an instruction's result."""
        opcode = text[: text.index(" ")]
        if opcode in _FROM_OPERANDS or (opcode in _DIVISIONS and _BY_NUMBER.search(text) is not None):
            return self.share(text)
        name = self.fresh()
        self._lines.append(f"  {name} = {text}")
        self._level[name] = len(self._scopes) - 1
        return name

    def share(self, text: str) -> str:
        """Returns the register that holds an instruction's result, which depends on its operands alone and may be computed
        anywhere.
        """
        if not self.shares:
            name = self.fresh()
            self._lines.append(f"  {name} = {text}")
            return name
        found = self._known.get(text)
        if found is not None:
            return found
        reads, top, level = _registers(text), len(self._scopes) - 1, self._level
        lines = self._lines
        if top:
            needs = max([level.get(register, 0) for register in reads], default=0)
            for i, early in self._loops:
                if i > needs:
                    lines, top = early, i - 1
                    break
        name = self.fresh()
        lines.append(_Pure(name, text, reads))
        level[name] = top
        self._scopes[top].append(text)
        self._known[text] = name
        return name

    # -- blocks --------------------------------------------------------------------------------------------------------

    @property
    def block(self) -> str:
        """The name of the block that is being written."""
        return self._block

    def place(self, label: str, *, always: bool = False) -> None:
        """Begins a block. `always`: all that was written before in this scope has run before this."""
        self._lines.append(f"{label}:")
        self._block = label
        if not always:
            self._forget(self._scopes[-1])

    def jump(self, label: str) -> None:
        """Goes on at a block."""
        self._lines.append(f"  br label %{label}")

    @contextmanager
    def scope(self, early: Lines | None = None) -> Iterator[None]:
        """Forgets, after the block, the instructions written in it. `early`: the lines in front of the loop whose body this is."""
        if early is not None:
            self._loops.append((len(self._scopes), early))
        self._scopes.append([])
        yield
        self._forget(self._scopes.pop())
        if early is not None:
            self._loops.pop()

    def _forget(self, texts: list[str]) -> None:
        """Forgets the instructions that were known within a scope."""
        for text in texts:
            del self._known[text]
        texts.clear()

    def in_front(self) -> Lines:
        """Lines that stand here and are written later."""
        lines = Lines()
        self._lines.append(lines)
        return lines


def _flat(lines: Lines, found: list[str | _Pure]) -> list[str | _Pure]:
    """Adds all lines, with lines that were written later at their places."""
    for line in lines:
        if isinstance(line, Lines):
            _flat(line, found)
        else:
            found.append(line)
    return found


def _used(lines: list[str | _Pure]) -> list[str]:
    """Returns the lines without instructions whose results nobody reads."""
    others = [line for line in lines if isinstance(line, str)]
    if len(others) == len(lines):
        return others
    used = set(_registers("\n".join(others)))
    kept: list[str] = []
    for line in reversed(lines):
        if isinstance(line, str):
            kept.append(line)
        elif line.name in used:
            kept.append(f"  {line.name} = {line.text}")
            used.update(line.reads)
    return kept[::-1]
