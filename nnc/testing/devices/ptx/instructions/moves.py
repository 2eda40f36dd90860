"""Moves between registers, and between address spaces."""

from __future__ import annotations

import numpy as np

from nnc.testing.devices.ptx.decoding import Decode, Modifiers, Scope, Step, elementwise
from nnc.testing.devices.ptx.syntax import Instruction
from nnc.testing.devices.ptx.values import U64, Array, Mask
from nnc.testing.devices.ptx.wave import LOCAL_WINDOW, SHARED_WINDOW, WINDOW, Wave

WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}


def _move(instruction: Instruction, scope: Scope) -> Step:
    """Decodes `mov`. It copies also a register that is not set, which is a mistake only once it is computed with."""
    (kind,) = Modifiers(instruction, scope).finish(1, operands=(2,))
    target, source = instruction.operands
    write = scope.write(target)
    if target.startswith("{"):
        return elementwise(instruction, scope, [kind], lambda x: x)
    read, known, limit = scope.raw(source, kind), scope.defined(source), scope.limit_defined(target)

    def step(wave: Wave, mask: Mask) -> None:
        is_set = known(wave)
        write(wave, mask, read(wave, mask))
        limit(wave, mask, is_set)

    return step


def _convert_address(instruction: Instruction, scope: Scope) -> Step:
    """Decodes `cvta`: generic addresses are those of global memory, but for two windows."""
    modifiers = Modifiers(instruction, scope)
    is_to = bool(modifiers.take("to"))
    space = modifiers.need("global", "shared", "local", "const", "param")
    modifiers.take("cta")
    (kind,) = modifiers.finish(1)
    if kind.bits != 64 or space == "param":
        scope.unknown(instruction, "only 64 bits, and no parameters")
    shift = np.uint64(WINDOWS.get(space, 0))
    if is_to:
        return elementwise(instruction, scope, [U64], lambda x: x - shift)
    return elementwise(instruction, scope, [U64], lambda x: x + shift)


def _is_space(instruction: Instruction, scope: Scope) -> Step:
    """Decodes `isspacep`: whether a generic address lies in a space."""
    modifiers = Modifiers(instruction, scope)
    space = modifiers.need("global", "shared", "local", "const")
    modifiers.finish(0)
    return elementwise(instruction, scope, [U64], lambda x: is_in(x, space))


def is_in(addresses: Array, space: str) -> Array:
    """Returns which generic addresses lie in the space of this name."""
    if space in WINDOWS:
        return (addresses >= WINDOWS[space]) & (addresses < WINDOWS[space] + WINDOW)
    return ~is_in(addresses, "shared") & ~is_in(addresses, "local")


DECODERS: dict[str, Decode] = {"mov": _move, "cvta": _convert_address, "isspacep": _is_space}
