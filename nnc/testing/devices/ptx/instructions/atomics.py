"""Atomic updates: `atom` and `red`. Threads update one after the other, in the order of their numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from nnc.testing.devices.ptx.counts import count_sectors
from nnc.testing.devices.ptx.decoding import Compute, Decode, Modifiers, Read, Scope, Step
from nnc.testing.devices.ptx.instructions.floats import choose
from nnc.testing.devices.ptx.instructions.integers import by_parts
from nnc.testing.devices.ptx.instructions.loads import places
from nnc.testing.devices.ptx.memory import Memory
from nnc.testing.devices.ptx.rounding import fma_odd, narrow, widen
from nnc.testing.devices.ptx.syntax import Instruction
from nnc.testing.devices.ptx.values import Array, Mask, Type, as_bits
from nnc.testing.devices.ptx.wave import Wave


def _swap(old: Array, expected: Array, new: Array) -> Array:
    return np.where(old == expected, new, old)


_INTEGERS: dict[str, Compute] = {
    "add": operator.add, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "min": np.minimum, "max": np.maximum,
    "inc": lambda old, limit: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
    "exch": lambda old, new: new,
    "cas": _swap,
}  # fmt: skip
_ORDERS = ("relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("cta", "cluster", "gpu", "sys")


def _function(instruction: Instruction, scope: Scope, name: str, kind: Type) -> Compute:
    """Returns the update of old values."""
    part = kind.part or kind
    if not kind.is_float or name in ("exch", "cas"):
        return _INTEGERS[name]
    if name in ("min", "max"):
        return by_parts(lambda x, y: choose(x, y, part, name == "max", False), kind)
    if name != "add":
        scope.unknown(instruction, f"there is no {name} of {kind.name}")
    if part.bits >= 32:
        return operator.add
    return by_parts(lambda x, y: narrow(fma_odd(widen(x, part), np.ones(1), widen(y, part)), part), kind)


def _atomic(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    modifiers.take(*_ORDERS)
    modifiers.take(*_SCOPES)
    space = (modifiers.take("shared::cta", "global", "shared") or "generic").removesuffix("::cta")
    name = modifiers.need(*_INTEGERS)
    modifiers.take("noftz")
    has_result = instruction.name == "atom"
    (kind,) = modifiers.finish(1, operands=(2 + has_result + (name == "cas"),))
    operands = instruction.operands if has_result else ("_", *instruction.operands)
    write, address = scope.write(operands[0]), scope.address(operands[1])
    reads = [scope.read(each, kind) for each in operands[2:]]
    update = _function(instruction, scope, name, kind)

    def step(wave: Wave, mask: Mask) -> None:
        lanes = wave.lanes_of(mask)
        given = [_rows(read, wave, mask, kind)[lanes] for read in reads]
        result = np.zeros(wave.lanes, kind.unsigned)
        for memory, rows, at in places(wave, space, address(wave, mask), lanes):
            some = lanes[rows]
            where = memory.update(wave, at, some, kind.nbytes)
            result[some] = _apply(memory, where, [each[rows] for each in given], update, kind)
            if memory is wave.memory:
                wave.counts.sectors += count_sectors(at, some)
                wave.counts.stored += kind.nbytes * len(some)
        write(wave, mask, result)

    return step


def _rows(read: Read, wave: Wave, mask: Mask, kind: Type) -> Array:
    return np.broadcast_to(as_bits(read(wave, mask), kind.unsigned), wave.lanes)


def _apply(memory: Memory, where: Array, given: list[Array], update: Callable[..., Array], kind: Type) -> Array:
    """Updates elements, and returns the old values: all first threads of an element at once, then all second ones, ..."""
    elements = memory.bytes.view(kind.unsigned)
    order = np.argsort(where, kind="stable")
    sorted_places = where[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_places[1:] != sorted_places[:-1]]))
    turns = np.arange(len(where)) - np.repeat(starts, np.diff(np.append(starts, len(where))))
    by_turn = order[np.argsort(turns, kind="stable")]
    old = np.empty(len(where), kind.unsigned)
    for rows in np.split(by_turn, np.cumsum(np.bincount(turns))[:-1]):
        old[rows] = elements[where[rows]]
        new = update(old[rows].view(kind.dtype), *(each[rows].view(kind.dtype) for each in given))
        elements[where[rows]] = as_bits(new, kind.unsigned)
    return old


DECODERS: dict[str, Decode] = {"atom": _atomic, "red": _atomic}
