"""Types of PTX, and the arrays that hold their values: bits of one width, one element a thread, or one for all threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Mask: TypeAlias = Array | None  # the threads that take part; None: all of them

BITS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.bool_),
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}
_SIGNED: dict[int, np.dtype[Any]] = {
    8: np.dtype(np.int8),
    16: np.dtype(np.int16),
    32: np.dtype(np.int32),
    64: np.dtype(np.int64),
}
_FLOATS: dict[int, np.dtype[Any]] = {16: np.dtype(np.float16), 32: np.dtype(np.float32), 64: np.dtype(np.float64)}


@dataclass(frozen=True, slots=True)
class Type:
    """A type of PTX.

    Attributes:
        name: the type's name in instructions.
        kind: `u`nsigned, `s`igned, `b`its, `f`loat or `p`redicate.
        bits: the type's width.
        dtype: the dtype of arrays of this type; numbers that NumPy does not know are held as their bits.
        part: the type of each half, where two numbers are packed into one register.
    """

    name: str
    kind: str
    bits: int
    dtype: np.dtype[Any]
    part: Type | None = None

    @property
    def nbytes(self) -> int:
        """The bytes that a value takes in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Whether values are floating-point numbers, also packed ones."""
        return self.kind == "f"

    @property
    def unsigned(self) -> np.dtype[Any]:
        """The dtype of its bits."""
        return BITS[self.bits]


def _make_types() -> Mapping[str, Type]:
    types = [Type("pred", "p", 1, BITS[1])]
    for bits in (8, 16, 32, 64):
        types += [Type(f"u{bits}", "u", bits, BITS[bits]), Type(f"b{bits}", "b", bits, BITS[bits])]
        types.append(Type(f"s{bits}", "s", bits, _SIGNED[bits]))
    types += [Type(f"f{bits}", "f", bits, dtype) for bits, dtype in _FLOATS.items()]
    types.append(Type("bf16", "f", 16, BITS[16]))
    halves = [part for part in types if part.bits == 16 or part.name == "f32"]
    types += [Type(f"{part.name}x2", part.kind, 2 * part.bits, BITS[2 * part.bits], part) for part in halves]
    return MappingProxyType({each.name: each for each in types})


TYPES = _make_types()
PRED, U32, U64, F32, F64, B32, S32 = (TYPES[name] for name in ("pred", "u32", "u64", "f32", "f64", "b32", "s32"))


def as_type(bits: Array, kind: Type) -> Array:
    """Returns bits, unsigned integers or booleans, as values of a type; bits above the type's width are cut off."""
    if bits.dtype.itemsize != kind.dtype.itemsize:
        bits = bits.astype(kind.unsigned)
    return bits.view(kind.dtype)


def as_bits(values: Array, dtype: np.dtype[Any]) -> Array:
    """Returns values as the bits that a register holds: narrower integers are extended, signed ones by their sign."""
    if values.dtype == dtype:
        return values
    if values.dtype.itemsize != dtype.itemsize:
        if values.dtype.kind == "i":
            values = values.astype(_SIGNED[8 * dtype.itemsize])
        else:
            values = np.ascontiguousarray(values).view(BITS[8 * values.dtype.itemsize]).astype(dtype)
    return np.ascontiguousarray(values).view(dtype)


def split(packed: Array, bits: int) -> list[Array]:
    """Splits packed unsigned integers into parts of so many bits, the lowest first."""
    count = 8 * packed.dtype.itemsize // bits
    parts = np.ascontiguousarray(packed).view(BITS[bits]).reshape(-1, count)
    return [np.ascontiguousarray(parts[:, k]) for k in range(count)]


def join(parts: list[Array]) -> Array:
    """Packs unsigned integers of one width, the lowest first, into one."""
    bits = 8 * parts[0].dtype.itemsize
    stacked = np.stack(np.broadcast_arrays(*parts), axis=-1)
    return np.ascontiguousarray(stacked).view(BITS[bits * len(parts)])[..., 0]
