"""The text of `compiled`: the turns of the search for low plans as LLVM's text, for all problems alike.

One function takes one pointer, to words of 8 bytes each: numbers, and the addresses of arrays of such words (`WORDS`). For
the definition of a turn see `turns`; here a move changes only the sums that it touches, and penalties and names follow by
differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from nnc.base import dtypes
from nnc.lower.alloc.turns import STEPS
from nnc.lower.alloc.turns_words import Skyline
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import KERNEL, Native

_MOVE = f"{KERNEL}.move"


@cache
def turns_native() -> Native:
    """The kernel: with `making` 0 it finds the moves of `given` plans, else it makes `given` moves; returns how many were found."""
    writers = (_Move(), _Turn())
    declarations = sorted(set().union(*(writer.code.declarations for writer in writers)))
    return Native("\n".join([*declarations, *(writer.code.text() for writer in writers)]), packed=True)


class _Move(Skyline):
    """`move(words, what)` changes the partial plan at `row` and its `sums`; 1 where it stays below the cap."""

    def __init__(self) -> None:
        super().__init__(Code(_MOVE[1:], [("ptr", "words"), ("i64", "what")], "internal i64"))
        code = self.code
        self.parts(self.array("row"))
        self.begin, self.members, self.sums = (self.array(name) for name in ("begin", "members", "sums"))
        self.ranges, self.first, self.end = (self.array(name) for name in ("ranges", "first_set", "end_set"))
        self.marked, self.is_marked = self.array("marked"), self.array("is_marked")
        self.size, self.table, self.places = (self.array(name) for name in ("size", "table", "places"))
        self.cap, self.scale = self.number("cap"), code.bitcast(self.number("scale"), dtypes.float64)
        what, none = Value("%what", dtypes.int64), code.integer(0)
        self.count = code.slot(none)  # of marked sets
        self.good = code.slot(code.integer(1))
        self.level, self.taken = code.slot(none), code.slot(none)
        self.area, self.area_end = code.slot(what), code.slot(code.add(what, code.integer(1)))
        is_block = code.compare("ge", what, none)
        with code.when(is_block):
            size = self.get(self.size, what)
            code.write(self.taken, size)
            code.write(self.level, code.add(self.get(self.lowest, what), size))
            self.put(self.lowest, what, self.far)
            self.change(self.sums, 1, self.get(self.array("names"), what))
        with code.when(code.not_(is_block)):
            self._find_valley(code.sub(code.integer(-1), what))
        with self._area() as s:
            self._cover(s)
        with code.when(is_block):
            near = self.array("near")
            with self.between(self.array("near_begin"), what) as i:
                self._raise(self.get(near, i))
        with code.when(code.not_(is_block)), self._area() as s, self.between(self.begin, s) as i:
            self._raise(self.get(self.members, i))
        with self._area() as s:
            self._settle(s)
        with code.loop(0, code.read(self.count)) as i:
            self._settle_marked(self.get(self.marked, i))
        code.ret(code.read(self.good))

    def _find_valley(self, inside: Value) -> None:
        """Finds the valley with a set, which becomes the only covered range, up to its lower wall."""
        code = self.code
        height = self.height(inside)
        same = lambda s: code.compare("eq", self.height(s), height)
        first, last = code.slot(inside), code.slot(inside)
        self.follow(first, -1, same)
        self.follow(last, 1, same)
        before = self.height(code.sub(code.read(first), code.integer(1)))
        behind = code.add(code.read(last), code.integer(1))
        code.write(self.level, code.intrinsic("smin", before, self.height(behind)))
        valley = self.array("valley")
        self.put(valley, 0, code.read(first))
        self.put(valley, 1, behind)
        code.write(self.area, code.integer(-1))
        code.write(self.area_end, code.integer(0))

    @contextmanager
    def _area(self) -> Iterator[Value]:
        """Prints the loop over the sets that are covered: the sets of a block, or of a valley."""
        code = self.code
        area = code.read(self.area)
        is_valley = code.compare("lt", area, code.integer(0))
        valley = self.array("valley")
        shown = code.select(is_valley, code.integer(0), area)
        first = code.select(is_valley, code.integer(0), self.get(self.ranges, shown))
        end = code.select(is_valley, code.integer(1), self.get(self.ranges, code.add(shown, code.integer(1))))
        firsts = code.let(f"select {is_valley.typed}, ptr {valley}, ptr {self.first}")
        ends = code.let(f"select {is_valley.typed}, ptr {self.at(valley, 1)}, ptr {self.end}")
        with code.loop(first, end) as i, code.loop(self.get(firsts, i), self.get(ends, i)) as s:
            yield s

    def _cover(self, s: Value) -> None:
        """Raises a set to the level, and takes the placed bytes from the bytes left."""
        code = self.code
        top, left = self.get(self.top, s), self.get(self.left, s)
        self._count(s, top, left, -1)
        self.put(self.left, s, code.sub(left, code.read(self.taken)))
        self.put(self.top, s, code.read(self.level))

    def _raise(self, block: Value) -> None:
        """Raises a block that would lie lower to the level; its sets that are lower are marked."""
        code = self.code
        level = code.read(self.level)
        with code.when(code.compare("lt", self.get(self.lowest, block), level)):
            self.put(self.lowest, block, level)
            with (
                self.between(self.ranges, block) as r,
                code.loop(self.get(self.first, r), self.get(self.end, r)) as s,
            ):
                below = code.compare("lt", self.get(self.top, s), level)
                fresh = code.compare("eq", self.get(self.is_marked, s), code.integer(0))
                with code.when(self.both(below, fresh)):
                    self.put(self.is_marked, s, code.integer(1))
                    self.put(self.marked, code.read(self.count), s)
                    self.add(self.count, code.integer(1))

    def _least(self, s: Value, floor: Value) -> Value:
        """The lowest place of a set's blocks; any that is not above the floor, if there is one."""
        code = self.code
        least = code.slot(self.far)

        def look(i: Value) -> Value:
            place = self.get(self.lowest, self.get(self.members, i))
            self.lower(least, place)
            return code.compare("gt", place, floor)

        self.scan(self.begin, s, look)
        return code.read(least)

    def _settle(self, s: Value) -> None:
        """A covered set reaches up to the lowest place that is left on it."""
        code = self.code
        left, top = self.get(self.left, s), code.slot(code.read(self.level))
        with code.when(code.compare("gt", left, code.integer(0))):
            code.write(top, code.intrinsic("smax", code.read(top), self._least(s, code.read(self.level))))
        self.put(self.top, s, code.read(top))
        self._check(code.read(top), left)
        self._count(s, code.read(top), left, 1)

    def _settle_marked(self, s: Value) -> None:
        """Another set whose lowest places have risen."""
        code = self.code
        self.put(self.is_marked, s, code.integer(0))
        top, left = self.get(self.top, s), self.get(self.left, s)
        least = self._least(s, top)
        rises = self.both(code.compare("gt", least, top), code.compare("gt", left, code.integer(0)))
        with code.when(rises):
            self.put(self.top, s, least)
            self._check(least, left)
            self._count(s, top, left, -1)
            self._count(s, least, left, 1)

    def _check(self, top: Value, left: Value) -> None:
        code = self.code
        below = code.compare("le", code.add(top, left), self.cap)
        code.write(self.good, code.select(below, code.read(self.good), code.integer(0)))

    def _count(self, s: Value, top: Value, left: Value, sign: int) -> None:
        """Adds a set's contribution to the sums, or takes it away."""
        code = self.code
        below = code.intrinsic("smax", code.sub(self.cap, code.add(top, left)), code.integer(0))
        step = code.convert(code.mul(code.convert(below, dtypes.float64), self.scale), dtypes.int64)
        penalty = self.get(self.table, code.intrinsic("smin", step, code.integer(STEPS - 1)))
        name = code.mul(top, self.get(self.places, s))
        for place, value in enumerate((penalty, name)):
            self.change(self.sums, place, value if sign > 0 else code.neg(value))


class _Turn(Skyline):
    """The kernel itself."""

    def __init__(self) -> None:
        super().__init__(Code(KERNEL[1:], [("ptr", "words")]))
        code = self.code
        self.begin, self.members, self.choices = (self.array(name) for name in ("begin", "members", "choices"))
        self.found = code.slot(code.integer(0))
        self.fewest, self.lowest_top, self.chosen, self.gives_up = (code.slot(code.integer(0)) for _ in range(4))
        self.from_set, self.behind, self.most, self.ties, self.many = (code.slot(code.integer(0)) for _ in range(5))
        making = code.compare("ne", self.number("making"), code.integer(0))
        with code.loop(0, self.number("given")) as i:
            with code.when(making):
                self._make(i)
            with code.when(code.not_(making)):
                self._find(i)
        code.ret(code.read(self.found))

    def _move(self, source: str, target: str, what: Value) -> Value:
        """Copies a partial plan and makes a move on it."""
        code = self.code
        code.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        nbytes = code.mul(self.number("stride"), code.integer(8))
        code.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, {nbytes.typed}, i1 false)")
        return Value(code.let(f"call i64 {_MOVE}(ptr %words, {what.typed})"), dtypes.int64)

    def _row(self, rows: str, i: Value) -> str:
        return self.at(self.array(rows), self.code.mul(i, self.number("stride")))

    def _make(self, i: Value) -> None:
        """Makes the move of a number: its row is written, and it is found."""
        target = self._row("next_rows", i)
        self.code.line(f"store ptr {target}, ptr {self.words['row']}")
        self._move(self._row("rows", self.get(self.array("parent"), i)), target, self.get(self.array("move"), i))
        self.add(self.found, self.code.integer(1))

    def _find(self, plan: Value) -> None:
        """The moves of a plan."""
        code = self.code
        row = self._row("rows", plan)
        self.parts(row)
        code.write(self.many, code.integer(0))
        code.write(self.gives_up, code.integer(0))
        tight = code.compare("ne", self.number("tight"), code.integer(0))
        with code.when(tight):
            self._find_valley()
            height = code.read(self.lowest_top)
            with self.between(self.begin, code.read(self.chosen)) as i:
                block = self.get(self.members, i)
                with code.when(code.compare("eq", self.get(self.lowest, block), height)):
                    self._insert(block)
        with code.when(code.not_(tight)):
            self._rank_lowest()
        with code.loop(0, code.read(self.many)) as k:
            self._try(plan, row, self.get(self.choices, self._pair(k, 1)))
        with code.when(code.compare("ne", code.read(self.gives_up), code.integer(0))):
            self._try(plan, row, code.sub(code.integer(-1), code.read(self.chosen)))

    def _rank_lowest(self) -> None:
        """Ranks all blocks that leave no room below them for another."""
        code = self.code
        size, blocks = self.array("size"), self.number("blocks")
        limit = self.most
        code.write(limit, self.far)
        with code.loop(0, blocks) as t:
            self.lower(limit, code.add(self.get(self.lowest, t), self.get(size, t)))
        with code.loop(0, blocks) as t, code.when(code.compare("lt", self.get(self.lowest, t), code.read(limit))):
            self._insert(t)

    def _find_valley(self) -> None:
        """The end of a valley with the fewest choices; of several the lowest, then the first."""
        code = self.code
        code.write(self.fewest, self.far)
        code.write(self.lowest_top, self.far)
        code.write(self.from_set, code.integer(0))
        test, body, done = code.label("test"), code.label("body"), code.label("done")
        code.jump(test)
        code.place(test)
        first = code.read(self.from_set)
        code.branch(code.compare("lt", first, self.sets), body, done)
        code.place(body)
        height = self.height(first)
        code.write(self.behind, first)
        code.write(self.most, self.get(self.left, first))
        self.follow(self.behind, 1, lambda s: self._goes_on(s, height))
        last = code.read(self.behind)
        behind = code.add(last, code.integer(1))
        before = self.height(code.sub(first, code.integer(1)))
        wall = code.intrinsic("smin", before, self.height(behind))
        with code.when(code.compare("gt", wall, height)):
            below = code.compare("le", code.add(wall, code.read(self.most)), self.number("cap"))
            gives_up = code.convert(below, dtypes.int64)
            self._consider(first, height, gives_up)
            with code.when(code.compare("lt", first, last)):
                self._consider(last, height, gives_up)
        code.write(self.from_set, behind)
        code.jump(test)
        code.place(done)

    def _goes_on(self, s: Value, height: Value) -> Value:
        """Whether a run of sets goes on; notes the most that is left on one."""
        code = self.code
        same = self.both(code.compare("eq", self.height(s), height), code.compare("lt", s, self.sets))
        left = self.get(self.left, code.select(same, s, code.integer(0)))
        more = code.intrinsic("smax", code.read(self.most), left)
        code.write(self.most, code.select(same, more, code.read(self.most)))
        return same

    def _consider(self, s: Value, height: Value, gives_up: Value) -> None:
        """Chooses an end of a valley if it leaves fewer choices than the one before."""
        code = self.code
        code.write(self.ties, gives_up)
        fewest = code.read(self.fewest)

        def look(i: Value) -> Value:
            lies = code.compare("eq", self.get(self.lowest, self.get(self.members, i)), height)
            self.add(self.ties, code.convert(lies, dtypes.int64))
            return code.compare("le", code.read(self.ties), fewest)

        self.scan(self.begin, s, look)
        choices = code.read(self.ties)
        fewer = code.compare("lt", choices, fewest)
        lower = code.compare("lt", height, code.read(self.lowest_top))
        better = code.or_(fewer, self.both(code.compare("eq", choices, fewest), lower))
        with code.when(better):
            for slot, value in (
                (self.fewest, choices), (self.lowest_top, height), (self.chosen, s), (self.gives_up, gives_up)
            ):  # fmt: skip
                code.write(slot, value)

    def _insert(self, block: Value) -> None:
        """Puts a block where it belongs in `choices`, pairs (key, block) by rising keys, with room for one more than are wanted."""
        code = self.code
        many, place = self.many, self.behind
        height = code.mul(self.get(self.lowest, block), self.number("blocks"))
        key = code.add(height, self.get(self.array("rank"), block))
        code.write(place, code.read(many))
        test, compare, shift, done = (code.label(stem) for stem in ("test", "compare", "shift", "done"))
        code.jump(test)
        code.place(test)
        at = code.read(place)
        code.branch(code.compare("gt", at, code.integer(0)), compare, done)
        code.place(compare)
        before = code.sub(at, code.integer(1))
        code.branch(code.compare("gt", self.get(self.choices, self._pair(before, 0)), key), shift, done)
        code.place(shift)
        for k in (0, 1):
            self.put(self.choices, self._pair(at, k), self.get(self.choices, self._pair(before, k)))
        code.write(place, before)
        code.jump(test)
        code.place(done)
        for k, value in enumerate((key, block)):
            self.put(self.choices, self._pair(code.read(place), k), value)
        longer = code.add(code.read(many), code.integer(1))
        code.write(many, code.intrinsic("smin", longer, self.number("children")))

    def _pair(self, k: Value, part: int) -> Value:
        """The address of a part of pair k."""
        code = self.code
        return code.add(code.mul(k, code.integer(2)), code.integer(part))

    def _try(self, plan: Value, row: str, what: Value) -> None:
        """Notes a move that stays below the cap."""
        code = self.code
        sums = self.array("sums")
        for k, name in enumerate(("penalty", "name")):
            self.put(sums, k, self.get(self.array(name), plan))
        good = self._move(row, self.array("row"), what)
        with code.when(code.compare("ne", good, code.integer(0))):
            place = code.read(self.found)
            for name, value in (("parent", plan), ("move", what)):
                self.put(self.array(name), place, value)
            for k, name in enumerate(("next_penalty", "next_name")):
                self.put(self.array(name), place, self.get(sums, k))
            self.add(self.found, code.integer(1))
