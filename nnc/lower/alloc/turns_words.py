"""The vocabulary in which the search's turns are printed: words of 8 bytes, arrays of them, and the skyline of a partial plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nnc.base import dtypes
from nnc.lower.alloc.greedy import FAR
from nnc.lower.kernels.builder import Code, Slot, Value

# Of the problem, of the style, of the turn; then arrays in the same order, and words that are written while a move is made.
WORDS = (
    "blocks", "count", "stride", "cap", "scale", "children", "tight", "given", "making",
    "size", "names", "places", "ranges", "first_set", "end_set", "begin", "members", "near_begin", "near",
    "rank", "table",
    "rows", "penalty", "name", "parent", "move", "next_rows", "next_penalty", "next_name",
    "row", "sums", "valley", "marked", "is_marked", "choices",
)  # fmt: skip


class Writer:
    """Words and arrays of words."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.words = {name: code.offset("%words", 8 * i) for i, name in enumerate(WORDS)}

    def number(self, name: str) -> Value:
        """A number."""
        return self.code.load(self.words[name], dtypes.int64)

    def array(self, name: str) -> str:
        """The address of an array."""
        return self.code.let(f"load ptr, ptr {self.words[name]}")

    def at(self, array: str, i: Value | int) -> str:
        """The address of a word of an array."""
        return self.code.let(f"getelementptr i64, ptr {array}, {self.code.integer(i).typed}")

    def get(self, array: str, i: Value | int) -> Value:
        """Reads a word of an array."""
        return self.code.load(self.at(array, i), dtypes.int64)

    def put(self, array: str, i: Value | int, value: Value) -> None:
        """Writes a word of an array."""
        self.code.store(self.at(array, i), value)

    def change(self, array: str, i: Value | int, change: Value) -> None:
        """Adds to a word."""
        place = self.at(array, i)
        self.code.store(place, self.code.add(self.code.load(place, dtypes.int64), change))

    def add(self, slot: Slot, value: Value) -> None:
        """Adds to a variable."""
        self.code.write(slot, self.code.add(self.code.read(slot), value))

    def lower(self, slot: Slot, value: Value) -> None:
        """Sets a variable to a value that is smaller."""
        self.code.write(slot, self.code.intrinsic("smin", self.code.read(slot), value))

    def both(self, *conditions: Value) -> Value:
        """Whether all conditions hold."""
        first, *others = conditions
        for other in others:
            first = self.code.and_(first, other)
        return first

    @contextmanager
    def between(self, array: str, i: Value) -> Iterator[Value]:
        """The loop from a word to the next."""
        with self.code.loop(self.get(array, i), self.get(array, self.code.add(i, self.code.integer(1)))) as j:
            yield j

    def scan(self, array: str, i: Value, goes_on: Callable[[Value], Value]) -> None:
        """The loop from a word to the next, as long as `goes_on` holds."""
        code = self.code
        end, slot = self.get(array, code.add(i, code.integer(1))), code.slot(self.get(array, i))
        test, body, after, done = (code.label(stem) for stem in ("test", "body", "after", "done"))
        code.jump(test)
        code.place(test)
        j = code.read(slot)
        code.branch(code.compare("lt", j, end), body, done)
        code.place(body)
        code.branch(goes_on(j), after, done)
        code.place(after)
        self.add(slot, code.integer(1))
        code.jump(test)
        code.place(done)

    def follow(self, slot: Slot, step: int, goes_on: Callable[[Value], Value]) -> None:
        """Moves an index as long as the condition holds for the next one."""
        code = self.code
        test, body, done = code.label("test"), code.label("body"), code.label("done")
        code.jump(test)
        code.place(test)
        code.branch(goes_on(code.add(code.read(slot), code.integer(step))), body, done)
        code.place(body)
        self.add(slot, code.integer(step))
        code.jump(test)
        code.place(done)


class Skyline(Writer):
    """The tops of one partial plan, where walls without end stand on both sides of time and where nothing is left."""

    def parts(self, row: str) -> None:
        """Notes where the parts of a partial plan lie."""
        code = self.code
        self.lowest = row
        self.top = self.at(row, self.number("blocks"))
        self.left = self.at(self.top, self.number("count"))
        self.sets = self.number("count")
        self.far = code.integer(FAR)

    def height(self, s: Value) -> Value:
        """The height of a set, which need not exist."""
        code = self.code
        exists = self.both(code.compare("ge", s, code.integer(0)), code.compare("lt", s, self.sets))
        inside = code.select(exists, s, code.integer(0))
        is_open = self.both(exists, code.compare("gt", self.get(self.left, inside), code.integer(0)))
        return code.select(is_open, self.get(self.top, inside), self.far)
