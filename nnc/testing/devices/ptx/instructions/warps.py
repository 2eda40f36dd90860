"""Instructions of a warp: shuffles, votes, matches, reductions, and barriers of its lanes.

All lanes that a mask of members names take part at once. Which of them come is settled before the step runs (`missing_lanes`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnc.testing.devices.ptx.counts import WARP
from nnc.testing.devices.ptx.decoding import Decode, Modifiers, Read, Scope, Step
from nnc.testing.devices.ptx.faults import Fault
from nnc.testing.devices.ptx.syntax import Instruction
from nnc.testing.devices.ptx.values import PRED, TYPES, U32, Array, Mask
from nnc.testing.devices.ptx.wave import Wave

MEMBERS = {"shfl": 4, "vote": 2, "match": 2, "redux": 2, "elect": 1}  # the operand that names the lanes
_SOURCES: dict[str, Callable[[Array, Array, Array, Array], Array]] = {  # lane, by, lowest and mask of the segment
    "up": lambda lane, by, low, keep: lane - by,
    "down": lambda lane, by, low, keep: lane + by,
    "bfly": lambda lane, by, low, keep: lane ^ by,
    "idx": lambda lane, by, low, keep: low | (by & ~keep),
}


def members_of(instruction: Instruction, scope: Scope) -> Read | None:
    """Returns a function that reads an instruction's mask of members; None where the instruction has none."""
    if instruction.opcode.startswith("bar.warp.sync"):
        return scope.read(instruction.operands[0], U32)
    if instruction.name == "mma":
        return scope.read("-1", U32)
    if instruction.name in MEMBERS and "sync" in instruction.modifiers:
        return scope.read(instruction.operands[MEMBERS[instruction.name]], U32)
    return None


def missing_lanes(wave: Wave, mask: Mask, members: Array) -> Array:
    """Finds threads that others of their warp name as members but that do not take part, and threads that take part unnamed.

    Args:
        members: the mask that each thread names.
    """
    active = wave.mask_of(mask)
    if (members == np.uint32(0xFFFFFFFF)).all():
        rows = active.reshape(-1, WARP)
        missing = (rows.any(axis=1, keepdims=True) & ~rows).reshape(-1)
    else:
        names = np.broadcast_to(members, wave.lanes)
        named = np.bitwise_or.reduce(np.where(active, names, np.uint32(0)).reshape(-1, WARP), axis=1)
        is_named = ((np.repeat(named, WARP) >> wave.lane_ids.astype(np.uint32)) & np.uint32(1)).astype(bool)
        missing = is_named & ~active
        unnamed = (names >> wave.lane_ids.astype(np.uint32)) & np.uint32(1) == 0
        missing |= active & (unnamed | (names != np.repeat(named, WARP)))
    return missing if wave.exists is None else missing & wave.exists


def _rows(values: Array, wave: Wave) -> Array:
    """Values by warp and lane."""
    return np.broadcast_to(values, wave.lanes).reshape(-1, WARP)


def _shuffle(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    modifiers.need("sync")
    source = _SOURCES[modifiers.need(*_SOURCES)]
    is_up = "up" in instruction.modifiers
    (kind,) = modifiers.finish(1, operands=(5,))
    target, _, in_range = instruction.operands[0].partition("|")
    write, write_range = scope.write(target), scope.write(in_range or "_")
    text = instruction.operands[1]
    values, known, limit = scope.raw(text, kind), scope.defined(text), scope.limit_defined(target)
    by, control = (scope.read(each, U32) for each in instruction.operands[2:4])

    def step(wave: Wave, mask: Mask) -> None:
        lane = wave.lane_ids
        clamp = control(wave, mask).astype(np.int64)
        keep = (clamp >> 8) & 31
        low = lane & keep
        high = low | (clamp & 31 & ~keep)
        lanes = source(lane, by(wave, mask).astype(np.int64) & 31, low, keep)
        inside = (lanes >= high) if is_up else (lanes <= high)
        lanes = np.where(inside, lanes, lane)
        at = lanes + (np.arange(wave.lanes) - lane)
        absent = wave.mask_of(mask) & ~wave.mask_of(mask)[at]
        if absent.any():
            raise Fault(
                "reads from a lane that does not take part", int(np.argmax(absent)), "name lanes that take part"
            )
        is_set = known(wave)
        write(wave, mask, np.broadcast_to(values(wave, mask), wave.lanes)[at])
        limit(wave, mask, is_set if isinstance(is_set, bool) else is_set[at])
        write_range(wave, mask, inside)

    return step


def _vote(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    modifiers.need("sync")
    mode = modifiers.need("ballot", "all", "any", "uni")
    modifiers.finish(1, operands=(3,))
    write, read = scope.write(instruction.operands[0]), scope.read(instruction.operands[1], PRED)

    def step(wave: Wave, mask: Mask) -> None:
        active = _rows(wave.mask_of(mask), wave)
        yes = _rows(read(wave, mask), wave) & active
        some, every = yes.any(axis=1), (yes | ~active).all(axis=1)
        results = {"any": some, "all": every, "uni": every | ~some}
        write(wave, mask, np.repeat(_ballot(yes) if mode == "ballot" else results[mode], WARP))

    return step


def _ballot(rows: Array) -> Array:
    """Returns the bits of the lanes of each warp."""
    return np.packbits(rows, axis=1, bitorder="little").view(np.uint32)[:, 0]


def _active(instruction: Instruction, scope: Scope) -> Step:
    Modifiers(instruction, scope).finish(1, operands=(1,))
    write = scope.write(instruction.operands[0])
    return lambda wave, mask: write(wave, mask, np.repeat(_ballot(_rows(wave.mask_of(mask), wave)), WARP))


def _match(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    modifiers.need("sync")
    needs_all = modifiers.need("any", "all") == "all"
    (kind,) = modifiers.finish(1, operands=(3,))
    target, _, same = instruction.operands[0].partition("|")
    write, write_same, read = scope.write(target), scope.write(same or "_"), scope.read(instruction.operands[1], kind)

    def step(wave: Wave, mask: Mask) -> None:
        active, values = _rows(wave.mask_of(mask), wave), _rows(read(wave, mask), wave)
        equal = (values[:, :, None] == values[:, None, :]) & active[:, None, :]
        if needs_all:
            agree = (equal | ~active[:, None, :]).all(axis=2)
            write_same(wave, mask, agree.reshape(-1))
            equal = agree[:, :, None] & active[:, None, :]
        write(wave, mask, _ballot(equal.reshape(-1, WARP)))

    return step


_REDUCTIONS = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _reduce(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    modifiers.need("sync")
    name = modifiers.need(*_REDUCTIONS)
    (kind,) = modifiers.finish(1, operands=(3,))
    if kind not in (U32, TYPES["s32"], TYPES["b32"]):
        scope.unknown(instruction, f"the type {kind.name}")
    function, limits = _REDUCTIONS[name], np.iinfo(kind.dtype)
    neutral = {"min": limits.max, "max": limits.min, "and": -1 if limits.min else limits.max}.get(name, 0)
    write, read = scope.write(instruction.operands[0]), scope.read(instruction.operands[1], kind)

    def step(wave: Wave, mask: Mask) -> None:
        active = _rows(wave.mask_of(mask), wave)
        values = np.where(active, _rows(read(wave, mask), wave), kind.dtype.type(neutral))
        write(wave, mask, np.repeat(function.reduce(values, axis=1, dtype=kind.dtype), WARP))

    return step


def _elect(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    modifiers.need("sync")
    modifiers.finish(0, operands=(2,))
    target, _, chosen = instruction.operands[0].partition("|")
    write, write_chosen = scope.write(target), scope.write(chosen or "_")

    def step(wave: Wave, mask: Mask) -> None:
        first = np.repeat(_rows(wave.mask_of(mask), wave).argmax(axis=1), WARP)
        write(wave, mask, first.astype(np.uint32))
        write_chosen(wave, mask, first == wave.lane_ids)

    return step


DECODERS: dict[str, Decode] = {
    "shfl": _shuffle, "vote": _vote, "activemask": _active, "match": _match, "redux": _reduce, "elect": _elect,
}  # fmt: skip
