"""Decodes operands: each becomes a function that reads or writes the registers of a wave."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

import numpy as np

from nnc.testing.devices.ptx.faults import Fault, unknown
from nnc.testing.devices.ptx.syntax import Function, Instruction, Variable
from nnc.testing.devices.ptx.values import TYPES, U64, Array, Mask, Type, as_bits, as_type, join, split
from nnc.testing.devices.ptx.wave import SPECIAL, Wave

Step: TypeAlias = Callable[[Wave, Mask], None]
Read: TypeAlias = Callable[[Wave, Mask], Array]
Write: TypeAlias = Callable[[Wave, Mask, Array], None]
Decode: TypeAlias = "Callable[[Instruction, Scope], Step]"
Compute: TypeAlias = Callable[..., Array]

_ADDRESS = re.compile(r"^\[\s*(generic\()?([%\w$.]+?)\)?\s*(?:\+\s*(-?\d+))?\s*\]$")
_SYMBOL = re.compile(r"^(?:generic\()?([A-Za-z_$%][\w$]*)\)?(?:\+(-?\d+))?$")


class Modifiers:
    """The modifiers of an opcode, taken off one after the other, so that none is overlooked."""

    def __init__(self, instruction: Instruction, scope: Scope) -> None:
        self._instruction, self._scope = instruction, scope
        self._left = instruction.modifiers
        self.kinds = [TYPES[each] for each in self._left if each in TYPES]
        self._left = [each for each in self._left if each not in TYPES]

    def take(self, *names: str) -> str | None:
        """Takes the first of these modifiers that is there, and returns it; None where none is."""
        for name in names:
            if name in self._left:
                self._left.remove(name)
                return name
        return None

    def need(self, *names: str) -> str:
        """Takes the first of these modifiers that is there, and returns it.

        Raises:
            DeviceError: none of them is there.
        """
        return self.take(*names) or self._scope.unknown(self._instruction, f"one of {', '.join(names)} is missing")

    def finish(self, kinds: int, *, operands: Sequence[int] = ()) -> Sequence[Type]:
        """Returns the types, once all other modifiers are taken.

        Args:
            kinds: the number of types that there must be.
            operands: the numbers of operands that are allowed; empty: any.

        Raises:
            DeviceError: a modifier is left over, or a number does not fit.
        """
        if self._left:
            self._scope.unknown(self._instruction, f"the modifier .{self._left[0]}")
        if len(self.kinds) != kinds:
            self._scope.unknown(self._instruction, f"it has {len(self.kinds)} types, not {kinds}")
        if operands and len(self._instruction.operands) not in operands:
            self._scope.unknown(self._instruction, f"it has {len(self._instruction.operands)} operands")
        return self.kinds


class Scope:
    """The names that a function can use.

    Args:
        slots: the numbers of registers, by function and name; new ones are added.
        symbols: the addresses of variables within their spaces, by name.
    """

    def __init__(self, function: Function, slots: dict[tuple[str, str], int], symbols: dict[str, int]) -> None:
        self.function, self._slots, self.symbols = function, slots, symbols

    def unknown(self, instruction: Instruction, problem: str) -> NoReturn:
        """Raises the DeviceError for an instruction with a part that the interpreter does not know."""
        unknown(self.function.name, str(instruction), problem)

    def slot(self, name: str) -> tuple[int, Type]:
        """Returns the number and the type of the register of this name, percent sign included.

        Raises:
            DeviceError: the register is not declared.
        """
        kind = self.function.register_type(name)
        if kind is None:
            unknown(self.function.name, name, "no register of this name is declared")
        return self._slots.setdefault((self.function.name, name), len(self._slots)), kind

    def read(self, text: str, kind: Type) -> Read:
        """Returns a function that reads an operand.

        Args:
            text: a register, a number or a variable.

        Raises:
            DeviceError: the operand is not known.
        """
        if text.startswith("{"):
            return self._read_vector([self.read(each, _part(kind, text)) for each in names_of(text)], kind)
        if text.startswith("!"):
            inner = self.read(text[1:], kind)
            return lambda wave, mask: ~inner(wave, mask)
        if text in SPECIAL:
            return lambda wave, mask: as_type(wave.special(text), kind)
        if self._is_register(text):
            return _read_register(*self.slot(text), text, kind)
        value = as_type(np.array([self._constant(text, kind)], np.uint64), kind)
        return lambda wave, mask: value

    def _read_vector(self, reads: list[Read], kind: Type) -> Read:
        return lambda wave, mask: as_type(join([read(wave, mask) for read in reads]), kind)

    def _constant(self, text: str, kind: Type) -> int:
        """Returns the bits of a number, or the address of a variable."""
        if re.fullmatch(r"0[fFdD][0-9a-fA-F]+", text):
            return int(text[2:], 16)
        if match := _SYMBOL.match(text):
            if match[1] in self.symbols:
                return self.symbols[match[1]] + int(match[2] or 0)
            unknown(self.function.name, text, "nothing of this name is declared")
        try:
            return int(text.rstrip("U"), 0) & (2**64 - 1)
        except ValueError:
            pass
        if not kind.is_float:
            unknown(self.function.name, text, "it is no operand")
        return int(np.array([float(text)]).astype(kind.dtype).view(kind.unsigned)[0])

    def write(self, text: str) -> Write:
        """Returns a function that writes an operand.

        Args:
            text: a register, a vector of registers, or `_`.

        Raises:
            DeviceError: the operand is not known.
        """
        if text == "_":
            return lambda wave, mask, values: None
        if text.startswith("{"):
            return _write_vector([self.write(each) for each in names_of(text)])
        slot, kind = self.slot(text)
        return _write_register(slot, kind)

    def defined(self, text: str) -> Callable[[Wave], Array | bool]:
        """Returns a function that tells for which threads an operand is set; operands other than registers and vectors always
        are.

        A vector counts as set if one of its parts is: LLVM packs numbers into vectors of which it uses one.
        """
        if text.startswith("{"):
            parts = [self.defined(each) for each in names_of(text)]
            return lambda wave: _any_known([part(wave) for part in parts])
        if self._is_register(text):
            slot, _ = self.slot(text)
            return lambda wave: wave.defined[slot]
        return lambda wave: True

    def address(self, text: str) -> Read:
        """Returns a function that reads an address, as uint64.

        Args:
            text: a register or a variable, and a number, in brackets.

        Raises:
            DeviceError: the operand is not known.
        """
        match = _ADDRESS.match(text)
        if match is None:
            unknown(self.function.name, text, "it is no address")
        base, offset = self.read(match[2], self._pointer(match[2])), int(match[3] or 0)
        if not offset:
            return lambda wave, mask: base(wave, mask).astype(np.uint64, copy=False)
        step = np.uint64(offset & (2**64 - 1))
        return lambda wave, mask: base(wave, mask).astype(np.uint64, copy=False) + step

    def _pointer(self, text: str) -> Type:
        kind = self.function.register_type(text)
        return U64 if kind is None or kind.bits == 64 else TYPES["u32"]

    def parameters(self) -> list[Variable]:
        """Returns the variables in the memory of parameters: the function's own, and those of its calls."""
        of_calls = [each for each in self.function.variables.values() if each.space == "param"]
        return [*self.function.parameters, *self.function.results, *of_calls]

    def raw(self, text: str, kind: Type) -> Read:
        """Returns a function that reads an operand which need not be set; see `limit_defined`.

        Args:
            text: a register, a number or a variable.
        """
        if text.startswith("{"):
            return self._read_vector([self.raw(each, _part(kind, text)) for each in names_of(text)], kind)
        if not self._is_register(text):
            return self.read(text, kind)
        slot, register = self.slot(text)
        nothing = np.zeros(1, register.dtype)

        def read(wave: Wave, mask: Mask) -> Array:
            bits = wave.registers[slot]
            return as_type(nothing if bits is None else bits, kind)

        return read

    def limit_defined(self, target: str) -> Callable[[Wave, Mask, Array | bool], None]:
        """Returns a step that, after a register has been written, limits the threads for which it counts as set."""
        if not self._is_register(target):
            return lambda wave, mask, known: None
        slot, _ = self.slot(target)

        def limit(wave: Wave, mask: Mask, known: Array | bool) -> None:
            if known is not True:
                wave.defined[slot] = np.where(wave.mask_of(mask), known, wave.defined[slot])

        return limit

    def _is_register(self, text: str) -> bool:
        return text.startswith("%") and text not in SPECIAL and self.function.register_type(text) is not None


def names_of(text: str) -> list[str]:
    """Returns the parts of a vector or a list, which stands in brackets of any kind, or a single name."""
    inner = text[1:-1] if text[:1] in "{(" else text
    return [each.strip() for each in inner.split(",") if each.strip()]


def _any_known(parts: list[Array | bool]) -> Array | bool:
    if any(part is True for part in parts):
        return True
    return np.logical_or.reduce(np.broadcast_arrays(*parts), axis=0)


def _part(kind: Type, text: str) -> Type:
    return TYPES[f"b{kind.bits // len(names_of(text))}"]


def _read_register(slot: int, register: Type, name: str, kind: Type) -> Read:
    is_same = register.dtype == kind.dtype

    def read(wave: Wave, mask: Mask) -> Array:
        bits = wave.registers[slot]
        if wave.defined[slot] is not True or bits is None:
            check_defined(wave, mask, wave.defined[slot], name)
            assert bits is not None
        return bits if is_same else as_type(bits, kind)

    return read


def check_defined(wave: Wave, mask: Mask, known: Array | bool, name: str) -> None:
    """Raises a Fault unless a register is set for all threads that read it.

    Args:
        known: the threads for which the register is set.
    """
    missing = wave.mask_of(mask) & ~np.asarray(known)
    if missing.any():
        raise Fault(f"reads {name}, which is not set", int(np.argmax(missing)), "set the register on every way to here")


def _write_register(slot: int, kind: Type) -> Write:
    dtype = kind.unsigned

    def write(wave: Wave, mask: Mask, values: Array) -> None:
        bits = as_bits(values, dtype)
        if mask is None:
            wave.registers[slot], wave.defined[slot] = bits, True
            return
        old = wave.registers[slot]
        wave.registers[slot] = np.where(mask, bits, np.zeros(1, dtype) if old is None else old)
        if wave.defined[slot] is not True:
            wave.defined[slot] = mask | wave.defined[slot]

    return write


def _write_vector(writes: list[Write]) -> Write:
    def write(wave: Wave, mask: Mask, values: Array) -> None:
        bits = 8 * values.dtype.itemsize // len(writes)
        for each, part in zip(writes, split(values, bits), strict=True):
            each(wave, mask, part)

    return write


def elementwise(
    instruction: Instruction, scope: Scope, kinds: Sequence[Type], function: Compute, first: int = 1
) -> Step:
    """Returns the step of an instruction that computes each thread's result from the thread's own operands.

    Args:
        instruction: the instruction, whose first operand is the result.
        first: the position of the first operand that is read.
    """
    operands = instruction.operands[first:]
    if len(operands) != len(kinds):
        scope.unknown(instruction, f"it has {len(operands)} operands, not {len(kinds)}")
    write = scope.write(instruction.operands[0])
    reads = [scope.read(text, kind) for text, kind in zip(operands, kinds, strict=True)]
    if len(reads) == 2:
        left, right = reads
        return lambda wave, mask: write(wave, mask, function(left(wave, mask), right(wave, mask)))
    return lambda wave, mask: write(wave, mask, function(*(read(wave, mask) for read in reads)))
