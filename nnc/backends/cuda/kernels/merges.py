"""Passes that merge pairs of sorted runs, by blocks that each write a tile of the result.

A block finds where its tile begins and ends in both runs by halvings (merge path; Green, McColl and Bader, 2012), brings these
parts to shared memory, and each thread finds the ranks of its words in the other part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnc.backends.cuda.kernels.code import GpuCode
from nnc.backends.cuda.kernels.networks import Words
from nnc.base import dtypes
from nnc.base.records import record
from nnc.lower.kernels.builder import Carried, Value
from nnc.lower.kernels.keys import Element, comes_before, load_element, store_element

_EACH = 4  # words of a thread


@record
class Runs:
    """The sorted runs of words that make up each row, one behind the other.

    Attributes:
        count: runs of a row.
        length: words of each run but the last.
        last: words of the last run.
        wanted: words of the row that are wanted; runs are cut off there.
        threads: threads of a block that merges two runs.
    """

    count: int
    length: int
    last: int
    wanted: int
    threads: int

    @property
    def extent(self) -> int:
        """Words of a row."""
        return (self.count - 1) * self.length + self.last

    def merged(self) -> Runs:
        """Returns the runs that are made of pairs of these; one without another stays as it is."""
        length = min(2 * self.length, self.wanted)
        last = self.last if self.count % 2 else min(self.length + self.last, self.wanted)
        return Runs(-(-self.count // 2), length, last, self.wanted, self.threads)

    @property
    def tile(self) -> int:
        """Words that a block merges."""
        return _EACH * self.threads

    @property
    def tiles(self) -> int:
        """Tiles of a run."""
        return -(-max(self.length, self.last) // self.tile)


Write = Callable[[Value, Element], None]


@dataclass
class Merge:
    """Prints one pass of merge sort.

    Args:
        source: the arrays that hold the words of the runs.
        begin: the number of the row's first word.
        pair: the number of the pair of runs in the row.
        tile: the number of the tile in the pair's result.
    """

    code: GpuCode
    words: Words
    runs: Runs
    source: Sequence[str]
    begin: Value
    pair: Value
    tile: Value

    def print(self, write: Write) -> None:
        """Prints the work of a thread.

        Args:
            write: called with the number of a word in the merged run, and the word, where there is one.
        """
        code, runs = self.code, self.runs
        is_last = code.compare("eq", self.pair, code.integer(runs.merged().count - 1))

        def length(of_last: int, of_others: int) -> Value:
            return code.select(is_last, code.integer(of_last), code.integer(of_others))

        left = length(runs.last if runs.count % 2 else runs.length, runs.length)
        right = length(0 if runs.count % 2 else runs.last, runs.length)
        total = code.intrinsic("smin", code.add(left, right), code.integer(runs.wanted))
        first = code.mul(self.tile, code.integer(runs.tile))
        with code.when(code.compare("lt", first, total)):
            end = code.intrinsic("smin", code.add(first, code.integer(runs.tile)), total)
            begin = code.add(self.begin, code.mul(self.pair, code.integer(2 * runs.length)))
            self._merge(write, (begin, code.add(begin, code.integer(runs.length))), (left, right), first, end)

    def _merge(
        self, write: Write, begins: tuple[Value, Value], lengths: tuple[Value, Value], first: Value, end: Value
    ) -> None:
        """Merges the parts of two runs that make the words from `first` to `end` of the result."""
        code, words = self.code, self.words
        low, high = (self._split(begins, lengths, place) for place in (first, end))
        many, count = code.sub(high, low), code.sub(end, first)  # words of the left part, and of both
        left = code.add(begins[0], low)
        right = code.sub(code.add(begins[1], code.sub(first, low)), many)
        room = words.arrays(code, code.shared(self.runs.tile * words.nbytes), self.runs.tile)
        held = list[tuple[Value, Value, Element]]()
        last = code.sub(count, code.integer(1))
        for turn in range(_EACH):
            number = code.add(code.special("tid.x"), code.integer(turn * self.runs.threads))
            i = code.intrinsic("smin", number, last)
            from_left = code.compare("lt", i, many)
            word = load_element(code, words.kinds, self.source, code.add(code.select(from_left, left, right), i))
            with code.when(code.compare("le", number, last)):
                store_element(code, room, number, word)
            held.append((number, from_left, word))
        code.barrier()
        for number, from_left, word in held:
            begin, stop = code.select(from_left, many, code.integer(0)), code.select(from_left, count, many)
            before = code.sub(self._first_behind(room, begin, stop, last, word), begin)
            own = code.sub(number, code.select(from_left, code.integer(0), many))
            with code.when(code.compare("le", number, last)):
                write(code.add(first, code.add(own, before)), word)

    def _split(self, begins: tuple[Value, Value], lengths: tuple[Value, Value], place: Value) -> Value:
        """Returns the number of words of the left run among the first `place` words of the result."""
        code, words = self.code, self.words
        least = code.intrinsic("smax", code.sub(place, lengths[1]), code.integer(0))
        state = Carried([least, code.intrinsic("smin", place, lengths[0])])
        with code.loop(0, self.runs.length.bit_length(), carried=[state]):
            low, high = state.values
            middle = code.shr(code.add(low, high), code.integer(1))

            def comes_first(middle: Value = middle) -> Value:
                a = load_element(code, words.kinds, self.source, code.add(begins[0], middle))
                other = code.sub(code.sub(place, code.integer(1)), middle)
                return comes_before(code, a, load_element(code, words.kinds, self.source, code.add(begins[1], other)))

            is_open = code.compare("lt", low, high)
            less = code.guarded(is_open, comes_first)
            more = code.and_(is_open, code.not_(less))
            state.values = [code.select(less, code.add(middle, code.integer(1)), low), code.select(more, middle, high)]
        return state.values[0]

    def _first_behind(self, room: Sequence[str], begin: Value, end: Value, last: Value, word: Element) -> Value:
        """Returns the number of the first word in a sorted part of shared memory that does not come before another."""
        code, words = self.code, self.words
        state = Carried([begin, end])
        with code.loop(0, self.runs.tile.bit_length(), carried=[state]):
            low, high = state.values
            middle = code.shr(code.add(low, high), code.integer(1))
            found = load_element(code, words.kinds, room, code.intrinsic("smin", middle, last))
            is_open, less = code.compare("lt", low, high), comes_before(code, found, word)
            up, down = code.and_(is_open, less), code.and_(is_open, code.not_(less))
            state.values = [code.select(up, code.add(middle, code.integer(1)), low), code.select(down, middle, high)]
        return state.values[0]


def row_pair_tile(code: GpuCode, runs: Runs) -> tuple[Value, Value, Value]:
    """Returns the row, the pair of runs and the tile of its result that a block takes."""
    result = runs.merged()
    number = code.convert(code.special("ctaid.x"), dtypes.int64)
    tile, number = code.rem(number, code.integer(result.tiles)), code.div(number, code.integer(result.tiles))
    return code.div(number, code.integer(result.count)), code.rem(number, code.integer(result.count)), tile
