"""The instructions of a module, decoded: steps on registers, and jumps, calls and barriers between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from nnc.testing.devices.ptx.counts import WARP
from nnc.testing.devices.ptx.decoding import Decode, Read, Scope, Step, names_of
from nnc.testing.devices.ptx.instructions import (
    atomics,
    comparisons,
    conversions,
    floats,
    integers,
    loads,
    matrices,
    moves,
    warps,
)
from nnc.testing.devices.ptx.syntax import Function, Instruction
from nnc.testing.devices.ptx.values import PRED, U32, Mask
from nnc.testing.devices.ptx.wave import Wave

_INTEGER_OR_FLOAT = integers.DECODERS.keys() & floats.DECODERS.keys()
DECODERS: dict[str, Decode] = {
    **integers.DECODERS, **floats.DECODERS, **conversions.DECODERS, **comparisons.DECODERS, **moves.DECODERS,
    **loads.DECODERS, **atomics.DECODERS, **warps.DECODERS, **matrices.DECODERS,
}  # fmt: skip
_FLOAT_TYPE = re.compile(r"\.b?f\d+(x2)?$")
_NOTHING = ("membar", "fence", "nanosleep", "griddepcontrol", "prefetch", "prefetchu", "discard", "applypriority")


class Kind(Enum):
    """Effects of an instruction on the order of instructions."""

    STEP = "computes"
    JUMP = "branches"
    CALL = "calls a function"
    RETURN = "returns from a function, or ends the thread"
    EXIT = "ends the thread"
    BARRIER = "waits for the threads of the block"
    TRAP = "stops the kernel"


@dataclass(frozen=True, slots=True)
class Op:
    """A decoded instruction.

    Attributes:
        text: the text as written.
        opcode: with its modifiers.
        kind: its effect on the order.
        step: computes, or None.
        guard: reads the predicate, or None.
        negated: threads where the predicate is false take part.
        members: reads the lanes that have to take part, or None.
        targets: instructions that it jumps to.
        index: chooses one of the targets, or None.
        copies: parameters of a call before and after it: from one variable to another.
    """

    text: str
    opcode: str
    kind: Kind
    step: Step | None = None
    guard: Read | None = None
    negated: bool = False
    members: Read | None = None
    targets: tuple[int, ...] = ()
    index: Read | None = None
    copies: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = ((), ())


def decode(function: Function, scope: Scope, start: int, functions: dict[str, tuple[int, Function]]) -> list[Op]:
    """Returns the instructions of a function, decoded.

    Raises:
        DeviceError: an instruction is not known.
    """
    ops = [_decode(each, function, scope, start, functions) for each in function.code]
    if not ops or ops[-1].kind not in (Kind.RETURN, Kind.EXIT, Kind.JUMP, Kind.TRAP):
        ops.append(Op("ret", "ret", Kind.RETURN))
    return ops


def _decode(
    instruction: Instruction, function: Function, scope: Scope, start: int, functions: dict[str, tuple[int, Function]]
) -> Op:
    guard = None if instruction.predicate is None else scope.read(instruction.predicate, PRED)
    text, opcode, negated = str(instruction), instruction.opcode, instruction.negated
    name = instruction.name
    if name in ("bra", "brx"):
        index = scope.read(instruction.operands[0], U32) if name == "brx" else None
        labels = function.tables.get(instruction.operands[-1], []) if name == "brx" else [instruction.operands[0]]
        if not labels or any(label not in function.labels for label in labels):
            scope.unknown(instruction, "no such label")
        targets = tuple(start + function.labels[label] for label in labels)
        return Op(text, opcode, Kind.JUMP, guard=guard, negated=negated, targets=targets, index=index)
    if name == "call":
        target, copies = _call(instruction, scope, functions)
        return Op(text, opcode, Kind.CALL, guard=guard, negated=negated, targets=(target,), copies=copies)
    if name in ("ret", "exit", "trap"):
        kind = {"ret": Kind.RETURN, "exit": Kind.EXIT, "trap": Kind.TRAP}[name]
        return Op(text, opcode, kind, guard=guard, negated=negated)
    if name in ("bar", "barrier"):
        return _barrier(instruction, scope, guard)
    if name in _NOTHING:
        return Op(text, opcode, Kind.STEP, guard=guard, negated=negated)
    decoder = DECODERS.get(name)
    if name in _INTEGER_OR_FLOAT and not _FLOAT_TYPE.search(opcode):
        decoder = integers.DECODERS[name]
    if decoder is None:
        scope.unknown(instruction, f"the opcode {name}")
    members = warps.members_of(instruction, scope)
    step = decoder(instruction, scope)
    return Op(text, opcode, Kind.STEP, step=step, guard=guard, negated=negated, members=members)


def _barrier(instruction: Instruction, scope: Scope, guard: Read | None) -> Op:
    text, opcode = str(instruction), instruction.opcode
    if opcode.startswith("bar.warp.sync"):
        members = warps.members_of(instruction, scope)
        return Op(
            text, opcode, Kind.STEP, step=_pass_warp_barrier, guard=guard, negated=instruction.negated, members=members
        )
    if guard is not None or len(instruction.operands) != 1 or set(instruction.modifiers) - {"sync", "aligned", "cta"}:
        scope.unknown(instruction, "only barriers of all threads, without a condition")
    return Op(text, opcode, Kind.BARRIER)


def _pass_warp_barrier(wave: Wave, mask: Mask) -> None:
    wave.order.pass_warp_barrier(np.logical_or.reduce(wave.mask_of(mask).reshape(-1, WARP), axis=1))


def _call(
    instruction: Instruction, scope: Scope, functions: dict[str, tuple[int, Function]]
) -> tuple[int, tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]]:
    """Returns the first instruction of the function that is called, and the copies of parameters."""
    lists = [each for each in instruction.operands if each.startswith("(")]
    names = [each for each in instruction.operands if not each.startswith("(")]
    if len(names) != 1 or names[0] not in functions:
        scope.unknown(instruction, "it calls no function of the module")
    target, callee = functions[names[0]]
    results = names_of(lists[0]) if instruction.operands[0].startswith("(") else []
    arguments = names_of(lists[-1]) if instruction.operands[-1].startswith("(") else []
    if len(results) != len(callee.results) or len(arguments) != len(callee.parameters):
        scope.unknown(instruction, "the numbers of arguments and results")
    before = _pairs(scope.function, arguments, callee, [each.name for each in callee.parameters])
    after = _pairs(callee, [each.name for each in callee.results], scope.function, results)
    return target, (before, after)


def _pairs(
    source: Function, names: Sequence[str], target: Function, others: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    return tuple((f"{source.name}:{a}", f"{target.name}:{b}") for a, b in zip(names, others, strict=True))
