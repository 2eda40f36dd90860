"""Bitonic networks (Batcher, 1968) that sort the words of a tile, which the threads of a row hold in registers.

Thread t of m holds words t, t + m, t + 2m …. Words m or more apart are compared in registers, those of one warp by shuffles,
and the others by shared memory. Two parts of that take turns, so that each comparison takes one barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.records import record
from nnc.lower.kernels.builder import Value
from nnc.lower.kernels.keys import (
    Element,
    comes_before,
    key_of,
    kinds_with_position,
    load_element,
    select_element,
    store_element,
    with_position,
)


@dataclass
class Network:
    """Prints the sorting network of one kernel.

    Args:
        members: threads of a row; a power of two.
        rows: rows of a block.
        row: the number of the thread's row in the block.
        member: the number of the thread in its row.
    """

    code: GpuCode
    warp: int
    words: Words
    members: int
    rows: int
    row: Value
    member: Value
    _rooms: list[list[str]] = field(default_factory=list)
    _turn: int = 0

    def sort(self, held: Sequence[Element]) -> list[Element]:
        """Sorts the words of a row.

        Args:
            held: the thread's own words; their number is a power of two.
        """
        result, count = list(held), len(held) * self.members
        size = 2
        while size <= count:
            distance = size // 2
            while distance:
                result = self._compare(result, size, distance)
                distance //= 2
            size *= 2
        return result

    def _compare(self, held: list[Element], size: int, distance: int) -> list[Element]:
        """Compares words e and e ^ distance; runs of `size` words are ascending and descending in turns."""
        if distance >= self.members:
            return self._in_registers(held, size, distance // self.members)
        others = self._by_shuffles(held, distance) if distance < self.warp else self._by_memory(held, distance)
        return [
            self._better(number, *pair, size, distance) for number, pair in enumerate(zip(held, others, strict=True))
        ]

    def _in_registers(self, held: list[Element], size: int, apart: int) -> list[Element]:
        code, result = self.code, list(held)
        for i, a in enumerate(held):
            if not i & apart:
                b = held[i | apart]
                in_order = comes_before(code, a, b)
                pair = select_element(code, in_order, a, b), select_element(code, in_order, b, a)
                descends = i * self.members & size
                result[i], result[i | apart] = reversed(pair) if descends else pair
        return result

    def _better(self, number: int, mine: Element, other: Element, size: int, distance: int) -> Element:
        """Returns the one of two words that this thread goes on with: the greater one where one of two bits is set."""
        code = self.code
        greater = self._bit(distance)
        if size < self.members:
            greater = code.xor(greater, self._bit(size))
        elif number * self.members & size:
            greater = code.not_(greater)
        return select_element(code, code.xor(comes_before(code, mine, other), greater), mine, other)

    def _bit(self, bit: int) -> Value:
        """Whether a bit of the thread's number is set."""
        code = self.code
        return code.compare("ne", code.and_(self.member, code.integer(bit)), code.integer(0))

    def _by_shuffles(self, held: list[Element], distance: int) -> list[Element]:
        return [tuple(self.code.exchange("bfly", part, distance) for part in word) for word in held]

    def _by_memory(self, held: list[Element], distance: int) -> list[Element]:
        code, count = self.code, len(held) * self.members * self.rows
        if not self._rooms:
            rooms = [code.shared(count * self.words.nbytes) for _ in range(2)]
            self._rooms = [self.words.arrays(code, room, count) for room in rooms]
        room, self._turn = self._rooms[self._turn], 1 - self._turn
        begin = code.mul(self.row, code.integer(len(held) * self.members))
        for i, word in enumerate(held):
            store_element(code, room, code.add(begin, code.add(self.member, code.integer(i * self.members))), word)
        code.barrier()
        partner = code.add(begin, code.xor(self.member, code.integer(distance)))
        numbers = [code.add(partner, code.integer(i * self.members)) for i in range(len(held))]
        return [load_element(code, self.words.kinds, room, number) for number in numbers]


# -- words -------------------------------------------------------------------------------------------------------------

MOST_ELEMENTS = (1 << 32) - (1 << 16)  # of a row with its padding


@record
class Words:
    """The words by which a row's elements are sorted: keys with positions, so that no two are equal and every sort is stable.

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
