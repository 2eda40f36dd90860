"""Products of small matrices by a warp: `mma.sync` of 16 rows and 8 columns.

Each lane holds parts of the matrices, at places that the PTX manual gives (section "Matrix fragments for mma"). Sums are
computed in float64 and rounded once, which is closer than the tensor cores of a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnc.testing.devices.ptx.counts import WARP
from nnc.testing.devices.ptx.decoding import Decode, Modifiers, Read, Scope, Step, names_of
from nnc.testing.devices.ptx.rounding import widen
from nnc.testing.devices.ptx.syntax import Instruction
from nnc.testing.devices.ptx.values import B32, F32, TYPES, Array, Mask
from nnc.testing.devices.ptx.wave import Wave

_ROWS, _COLUMNS = 16, 8
_GROUP, _MEMBER = np.arange(WARP) >> 2, np.arange(WARP) & 3  # the row and the column that a lane's parts begin with


@dataclass(frozen=True, slots=True)
class _Form:
    """The places in the left and in the right matrix of the numbers that registers hold.

    Attributes:
        depth: columns of the left matrix.
        packed: numbers in one register.
        left: for each register of the left matrix, how many rows and columns it lies behind the first.
        right: for each register of the right matrix, how many rows it lies behind the first.
    """

    depth: int
    packed: int
    left: tuple[tuple[int, int], ...]
    right: tuple[int, ...]


_FORMS = {
    ("m16n8k16", 16): _Form(16, 2, ((0, 0), (8, 0), (0, 8), (8, 8)), (0, 8)),
    ("m16n8k8", 16): _Form(8, 2, ((0, 0), (8, 0)), (0,)),
    ("m16n8k8", 32): _Form(8, 1, ((0, 0), (8, 0), (0, 4), (8, 4)), (0, 4)),
}


def _multiply(instruction: Instruction, scope: Scope) -> Step:
    modifiers = Modifiers(instruction, scope)
    modifiers.need("sync")
    modifiers.need("aligned")
    shape = modifiers.need("m16n8k16", "m16n8k8")
    modifiers.need("row")
    modifiers.need("col")
    is_single = bool(modifiers.take("tf32")) and bool(modifiers.take("tf32"))
    kinds = modifiers.finish(2 if is_single else 4, operands=(4,))
    kind = F32 if is_single else kinds[1]
    form = _FORMS.get((shape, kind.bits))
    if form is None or {kinds[0], kinds[-1]} != {F32} or (not is_single and kinds[1] != kinds[2]):
        scope.unknown(instruction, "its types")
    writes = [scope.write(each) for each in names_of(instruction.operands[0])]
    left, right, added = ([scope.read(each, B32) for each in names_of(text)] for text in instruction.operands[1:])
    if (len(writes), len(left), len(right), len(added)) != (4, len(form.left), len(form.right), 4):
        scope.unknown(instruction, "the numbers of registers")
    part = TYPES["f32"] if is_single else kind

    def numbers(read: Read, wave: Wave, mask: Mask) -> Array:
        bits = np.broadcast_to(read(wave, mask), wave.lanes)
        if is_single:
            bits = bits & np.uint32(0xFFFFE000)  # the bits that tf32 has
        raw = np.ascontiguousarray(bits).view(part.unsigned).reshape(-1, WARP, form.packed)
        return widen(np.ascontiguousarray(raw).view(part.dtype), part)

    def step(wave: Wave, mask: Mask) -> None:
        warps = wave.lanes // WARP
        x, y = np.zeros((warps, _ROWS, form.depth)), np.zeros((warps, form.depth, _COLUMNS))
        total = np.zeros((warps, _ROWS, _COLUMNS))
        for read, (row, column) in zip(left, form.left, strict=True):
            given = numbers(read, wave, mask)
            for k in range(form.packed):
                x[:, _GROUP + row, form.packed * _MEMBER + column + k] = given[:, :, k]
        for read, row in zip(right, form.right, strict=True):
            given = numbers(read, wave, mask)
            for k in range(form.packed):
                y[:, form.packed * _MEMBER + row + k, _GROUP] = given[:, :, k]
        for k, read in enumerate(added):
            bits = np.ascontiguousarray(np.broadcast_to(read(wave, mask), wave.lanes))
            total[:, _GROUP + 8 * (k // 2), 2 * _MEMBER + k % 2] = bits.view(np.float32).reshape(-1, WARP)
        result = (x @ y + total).astype(np.float32)
        for k, write in enumerate(writes):
            write(wave, mask, result[:, _GROUP + 8 * (k // 2), 2 * _MEMBER + k % 2].reshape(-1))

    return step


DECODERS: dict[str, Decode] = {"mma": _multiply}
