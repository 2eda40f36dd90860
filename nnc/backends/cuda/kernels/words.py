"""Elements that are sorted, as words: a key with the element's position, so that no two are equal and every sort is stable."""

from __future__ import annotations

from dataclasses import dataclass

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.keys import Element, key_of, kinds_with_position, with_position

MOST_ELEMENTS = (1 << 32) - (1 << 16)  # of a row with its padding


@dataclass(frozen=True, slots=True)
class Words:
    """The words by which a row's elements are sorted: keys with positions (nnc.lower.kernels.keys).

    Attributes:
        descending: whether the greatest element comes first.
    """

    dtype: DType
    descending: bool

    @property
    def kinds(self) -> tuple[DType, ...]:
        """The dtypes of a word's registers."""
        return kinds_with_position(self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of a word in memory."""
        return sum(kind.itemsize for kind in self.kinds)

    def of(self, code: GpuCode, x: Value, position: Value, inside: Value) -> Element:
        """Returns the word of an element; behind the end of the row, one that comes after all others."""
        key = key_of(code, x, self.descending)
        key = code.select(inside, key, code.like(key, (1 << 8 * key.dtype.itemsize) - 1))
        return with_position(code, key, position)

    def position(self, code: GpuCode, word: Element) -> Value:
        """Returns the position of a word's element, an int64."""
        return code.convert(code.convert(word[-1], dtypes.uint32), dtypes.int64)

    def arrays(self, code: GpuCode, memory: str, count: int) -> list[str]:
        """Returns the arrays of so many words in memory, one for each register."""
        found, begin = [], 0
        for kind in self.kinds:
            found.append(code.offset(memory, begin))
            begin += count * kind.itemsize
        return found
