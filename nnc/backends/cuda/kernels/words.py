"""Elements that are sorted, as words: a key with the element's position, so that no two are equal and every sort is stable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.keys import key_dtype, key_of

Word = tuple[Value, ...]  # one register, or the key and the position beside it

_POSITION = dtypes.uint32
MOST_ELEMENTS = (1 << 32) - (1 << 16)  # of a row with its padding


@dataclass(frozen=True, slots=True)
class Words:
    """The words by which a row's elements are sorted.

    A key of at most 32 bits is the upper half of a uint64 whose lower half is the position; longer keys stand beside the
    position.

    Attributes:
        descending: whether the greatest element comes first.
    """

    dtype: DType
    descending: bool

    @property
    def kinds(self) -> tuple[DType, ...]:
        """The dtypes of a word's registers."""
        return (dtypes.uint64,) if key_dtype(self.dtype) == dtypes.uint32 else (dtypes.uint64, _POSITION)

    @property
    def nbytes(self) -> int:
        """Bytes of a word in memory."""
        return sum(kind.itemsize for kind in self.kinds)

    def of(self, code: GpuCode, x: Value, position: Value, inside: Value) -> Word:
        """Returns the word of an element; behind the end of the row, one that comes after all others."""
        key = key_of(code, x, self.descending)
        key = code.select(inside, key, code.like(key, (1 << 8 * key.dtype.itemsize) - 1))
        if len(self.kinds) > 1:
            return key, code.convert(position, _POSITION)
        upper = code.shl(code.convert(key, dtypes.uint64), code.constant(32, dtypes.uint64))
        return (code.or_(upper, code.convert(position, dtypes.uint64)),)

    def position(self, code: GpuCode, word: Word) -> Value:
        """Returns the position of a word's element, an int64."""
        return code.convert(code.convert(word[-1], _POSITION), dtypes.int64)

    def less(self, code: GpuCode, a: Word, b: Word) -> Value:
        """Whether one word comes before another."""
        less = code.compare("lt", a[0], b[0])
        if len(a) == 1:
            return less
        return code.or_(less, code.and_(code.compare("eq", a[0], b[0]), code.compare("lt", a[1], b[1])))

    def select(self, code: GpuCode, condition: Value, a: Word, b: Word) -> Word:
        """One of two words."""
        return tuple(code.select(condition, x, y) for x, y in zip(a, b, strict=True))

    def arrays(self, code: GpuCode, memory: str, count: int) -> list[str]:
        """Returns the arrays of so many words in memory, one for each register."""
        found, begin = [], 0
        for kind in self.kinds:
            found.append(code.offset(memory, begin))
            begin += count * kind.itemsize
        return found

    def load(self, code: GpuCode, arrays: Sequence[str], number: Value) -> Word:
        """Reads a word by its number."""
        return tuple(
            code.load(_at(code, array, number, kind), kind) for array, kind in zip(arrays, self.kinds, strict=True)
        )

    def store(self, code: GpuCode, arrays: Sequence[str], number: Value, word: Word) -> None:
        """Writes a word by its number."""
        for array, kind, part in zip(arrays, self.kinds, word, strict=True):
            code.store(_at(code, array, number, kind), part)


def _at(code: GpuCode, array: str, number: Value, kind: DType) -> str:
    return code.offset(array, code.mul(number, code.integer(kind.itemsize)))
