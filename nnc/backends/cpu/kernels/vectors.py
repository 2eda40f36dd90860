"""Parts of all printed kernels that compute with tiles of vectors: lengths of vectors, masks, rows at any distance, loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnc.backends.printer import Bound, times
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.sizes import is_number
from nnc.lower.kernels.values import first_lanes, known_lanes

if TYPE_CHECKING:
    from nnc.backends.products import Axis
# Rows of a tile by its vectors: as many sums as registers can hold beside the operands.
_FEW = {1: 8, 2: 5, 3: 4, 4: 2, 8: 1}  # of 16 registers
TILE_ROWS = {64: {1: 14, 2: 14, 3: 8, 4: 6, 5: 5, 6: 4, 8: 3}, 32: _FEW, 16: _FEW}


def cases(full: int, last: int, count: int) -> list[tuple[int, bool | None]]:
    """Returns the sizes that occur, and whether only the last iteration has it (None: all iterations)."""
    if count == 1:
        return [(last, None)]
    return [(full, None)] if full == last else [(full, False), (last, True)]


def split(code: Code, i: Bound, n: int) -> tuple[Bound, Bound]:
    """i // n and i % n."""
    if not is_number(n) and n == 1:
        return i, 0
    if isinstance(i, int):
        return i // n, i % n
    size = code.integer(n)
    quotient = Value(code.let(f"udiv i64 {i.text}, {n}"), dtypes.int64)
    return quotient, code.sub(i, code.mul(quotient, size))


def advance(code: Code, loops: Sequence[Axis], index: Bound, pointers: Sequence[str]) -> list[str]:
    """Returns the pointers in one iteration of all loops."""
    moved = list(pointers)
    for axis in reversed(loops):
        index, i = split(code, index, axis.size)
        for k, step in enumerate(axis.strides):
            moved[k] = code.offset(moved[k], times(code, i, step))
    return moved


def masks_of(code: Code, lanes: int, width: int) -> list[Value | None]:
    """For each vector of a row of `width` elements, which lanes are used; None for all."""
    masks: list[Value | None] = [None] * (width // lanes)
    if width % lanes:
        masks.append(known_lanes(width % lanes, lanes))
    return masks


def masks_up_to(code: Code, lanes: int, vectors: int, width: Bound) -> list[Value | None]:
    """Returns the same for a row of so many vectors at most, whose width is found out as it runs."""
    if isinstance(width, int):
        masks = masks_of(code, lanes, width)
        return [*masks, *[Value("zeroinitializer", dtypes.bool_, lanes)] * (vectors - len(masks))]
    return [first_lanes(code, code.sub(width, code.integer(v * lanes)), lanes) for v in range(vectors)]


def read_row(code: Code, row: str, first: int, step: Bound, dtype: DType, lanes: int, mask: Value | None) -> Value:
    """Returns a vector of elements that lie `step` bytes apart, from the one with index `first` on."""
    at = code.offset(row, times(code, step, first))
    if step == dtype.itemsize:
        return code.load(at, dtype, lanes, mask)
    return code.gather(at, _steps(code, lanes, step), dtype, mask)


def write_row(code: Code, row: str, first: int, step: Bound, value: Value, mask: Value | None, unit: int) -> None:
    """Writes a vector to elements that lie `step` bytes apart; `unit` is the size of one."""
    at = code.offset(row, times(code, step, first))
    if step == unit:
        code.store(at, value, mask)
    else:
        code.scatter(at, _steps(code, value.lanes, step), value, mask)


def _steps(code: Code, lanes: int, step: Bound) -> Value:
    if isinstance(step, Value):
        return code.mul(_steps(code, lanes, 1), code.splat(step, lanes))
    return Value("<" + ", ".join(f"i64 {lane * step}" for lane in range(lanes)) + ">", dtypes.int64, lanes)


def add_product(code: Code, x: Value, y: Value, z: Value) -> Value:
    """x · y + z."""
    return code.fma(x, y, z) if dtypes.is_float(x.dtype) else code.add(code.mul(x, y), z)
