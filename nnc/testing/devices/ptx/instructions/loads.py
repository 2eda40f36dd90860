"""Loads and stores of every space."""

from __future__ import annotations

import re

import numpy as np

from nnc.testing.devices.ptx.counts import count_conflicts, count_sectors
from nnc.testing.devices.ptx.decoding import Decode, Modifiers, Read, Scope, Step, Write, check_defined, names_of
from nnc.testing.devices.ptx.instructions.moves import WINDOWS, is_in
from nnc.testing.devices.ptx.memory import Memory
from nnc.testing.devices.ptx.syntax import Instruction
from nnc.testing.devices.ptx.values import BITS, Array, Mask, Type, as_bits
from nnc.testing.devices.ptx.wave import Wave

_SPACES = ("global", "shared", "local", "const", "param")
_HINTS = (  # of caches and of the order between blocks; they change no value
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "relaxed", "acquire", "release", "weak", "volatile", "cta", "gpu", "sys", "cluster",
)  # fmt: skip
_POLICY = re.compile(r"^L[12]::")


def _access(instruction: Instruction, scope: Scope) -> tuple[str, Type, int, bool]:
    """Returns the space, type, number of elements and constancy of a load or store."""
    kept = [each for each in instruction.modifiers if not _POLICY.match(each)]
    plain = Instruction(".".join([instruction.name, *kept]), instruction.operands, None, False)
    modifiers = Modifiers(plain, scope)
    space = (modifiers.take("shared::cta", *_SPACES) or "generic").removesuffix("::cta")
    constant = bool(modifiers.take("nc"))
    while modifiers.take(*_HINTS):
        pass
    count = int((modifiers.take("v2", "v4", "v8") or "v1")[1:])
    (kind,) = modifiers.finish(1, operands=(2,))
    if kind.part is not None or kind.nbytes * count > 32:
        scope.unknown(instruction, "its width")
    return space, kind, count, constant


def width_of(instruction: Instruction) -> int | None:
    """Returns the bytes of an element that an instruction loads, stores or updates, or None for others."""
    if instruction.name not in ("ld", "ldu", "st", "atom", "red"):
        return None
    bits = re.search(r"[subf](\d+)(x2)?$", instruction.opcode)
    return None if bits is None else int(bits[1]) // 8 * (2 if bits[2] else 1)


def _load(instruction: Instruction, scope: Scope) -> Step:
    space, kind, count, constant = _access(instruction, scope)
    target, source = instruction.operands
    writes = [scope.write(each) for each in names_of(target)]
    if len(writes) != count:
        scope.unknown(instruction, "the number of registers")
    if space == "param":
        return _load_parameter(scope, writes, source, kind)
    address = scope.address(source)

    def step(wave: Wave, mask: Mask) -> None:
        lanes = wave.lanes_of(mask)
        rows = load(wave, space, address(wave, mask), lanes, kind.nbytes, count, constant)
        for k, write in enumerate(writes):
            _spread(wave, mask, lanes, rows[:, k], kind, write)

    return step


def load(
    wave: Wave, space: str, addresses: Array, lanes: Array, item: int, count: int, constant: bool = False
) -> Array:
    """Returns elements of memory, one row a thread.

    Args:
        space: the name of the space, or `generic`.
        addresses: one for each thread of the wave, or one for all.
        item: bytes of an element.
        count: elements that each thread loads.
        constant: whether the kernel promises that nobody writes there while it runs.
    """
    result = np.zeros((len(lanes), count), BITS[8 * item])
    for memory, rows, at in places(wave, space, addresses, lanes):
        some = memory.load(wave, at, lanes[rows], item, count, constant)
        result[rows] = some
        _count(wave, memory, at, lanes[rows], item * count, is_load=True)
    return result


def places(wave: Wave, space: str, addresses: Array, lanes: Array) -> list[tuple[Memory, Array | slice, Array]]:
    """Returns the memories in which addresses lie; for each, the rows of the threads with addresses there, and those addresses
    within it.
    """
    memories: dict[str, Memory] = {"shared": wave.shared, "local": wave.local}
    at = np.broadcast_to(addresses, wave.lanes)[lanes]
    if space != "generic":
        return [(memories.get(space, wave.memory), slice(None), at)]
    found: list[tuple[Memory, Array | slice, Array]] = []
    for name in ("shared", "local", "global"):
        rows = is_in(at, name)
        if rows.any():
            found.append((memories.get(name, wave.memory), rows, at[rows] - np.uint64(WINDOWS.get(name, 0))))
    return found


def _count(wave: Wave, memory: Memory, addresses: Array, lanes: Array, width: int, is_load: bool) -> None:
    if memory is wave.memory:
        wave.counts.sectors += count_sectors(addresses, lanes)
        if is_load:
            wave.counts.loaded += width * len(lanes)
        else:
            wave.counts.stored += width * len(lanes)
    elif memory is wave.shared:
        wave.counts.conflicts += count_conflicts(addresses, lanes, width)


def _spread(wave: Wave, mask: Mask, lanes: Array, column: Array, kind: Type, write: Write) -> None:
    """Writes values of some threads to a register."""
    if len(lanes) == wave.lanes:
        full = np.ascontiguousarray(column)
    else:
        full = np.zeros(wave.lanes, column.dtype)
        full[lanes] = column
    write(wave, mask, full.view(kind.dtype))


def _store(instruction: Instruction, scope: Scope) -> Step:
    space, kind, count, _ = _access(instruction, scope)
    target, source = instruction.operands
    reads = [scope.read(each, kind) for each in names_of(source)]
    if len(reads) != count:
        scope.unknown(instruction, "the number of registers")
    if space == "param":
        return _store_parameter(scope, reads, target, kind)
    if space == "const":
        scope.unknown(instruction, "constant memory is not written")
    address = scope.address(target)

    def step(wave: Wave, mask: Mask) -> None:
        lanes = wave.lanes_of(mask)
        values = np.empty((len(lanes), count), kind.unsigned)
        for k, read in enumerate(reads):
            values[:, k] = np.broadcast_to(as_bits(read(wave, mask), kind.unsigned), wave.lanes)[lanes]
        for memory, rows, at in places(wave, space, address(wave, mask), lanes):
            memory.store(wave, at, lanes[rows], values[rows])
            _count(wave, memory, at, lanes[rows], kind.nbytes * count, is_load=False)

    return step


def _parameter(scope: Scope, text: str) -> tuple[str, int]:
    """Returns the variable of a parameter, and the offset within."""
    match = re.match(r"^\[([\w$.%]+)(?:\+(\d+))?\]$", text)
    if match is None or not any(each.name == match[1] for each in scope.parameters()):
        return scope.unknown(Instruction("param", (text,), None, False), "it is no parameter")
    return f"{scope.function.name}:{match[1]}", int(match[2] or 0)


def _load_parameter(scope: Scope, writes: list[Write], source: str, kind: Type) -> Step:
    name, offset = _parameter(scope, source)

    def step(wave: Wave, mask: Mask) -> None:
        stored, known = wave.parameters[name]
        end = offset + kind.nbytes * len(writes)
        is_set: Array = np.logical_and.reduce(known[:, offset:end], axis=1)
        if not is_set.all():
            check_defined(wave, mask, is_set, name.split(":")[1])
        for k, write in enumerate(writes):
            first = offset + kind.nbytes * k
            column = np.ascontiguousarray(stored[:, first : first + kind.nbytes])
            write(wave, mask, column.view(kind.unsigned)[:, 0].view(kind.dtype))

    return step


def _store_parameter(scope: Scope, reads: list[Read], target: str, kind: Type) -> Step:
    name, offset = _parameter(scope, target)
    size = next(each.nbytes for each in scope.parameters() if f"{scope.function.name}:{each.name}" == name)

    def step(wave: Wave, mask: Mask) -> None:
        stored, known = wave.parameters.get(name, (np.zeros((1, size), np.uint8), np.zeros((1, size), bool)))
        if len(stored) != wave.lanes:
            stored, known = np.repeat(stored, wave.lanes, axis=0), np.repeat(known, wave.lanes, axis=0)
            wave.parameters[name] = stored, known
        lanes = wave.lanes_of(mask)
        for k, read in enumerate(reads):
            first = offset + kind.nbytes * k
            values = np.broadcast_to(as_bits(read(wave, mask), kind.unsigned), wave.lanes)[lanes]
            stored[lanes, first : first + kind.nbytes] = values[:, None].view(np.uint8)
            known[lanes, first : first + kind.nbytes] = True

    return step


DECODERS: dict[str, Decode] = {"ld": _load, "ldu": _load, "st": _store}
