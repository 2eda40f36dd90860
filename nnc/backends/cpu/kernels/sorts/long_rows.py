"""Prints sorts of long rows, in threads: by quicksort, or digit by digit.

Parts of a row share pointers and numbers in one small piece of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from nnc.backends.cpu.kernels.sorts.order import LEAST, SortLayout, quicksort, split_at_pivot
from nnc.backends.printer import Printer, looping
from nnc.base import dtypes
from nnc.base.records import record
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.keys import load_element, place_of, store_element

_PART = 1 << 16  # elements
_MOST_PARTS = 16

_FIELDS = (
    "x", "out0", "from0", "to0", "from1", "to1", "counts", "ends", "vary", "special", "shift",
)  # fmt: skip


Filler = Callable[[Code, str, Value, Value], None]  # (code, shared fields, first position, the one after the last)


@record
class Shared:
    """The parts of a row of `n` elements."""

    n: int

    @property
    def parts(self) -> int:
        """Into how many parts a row is cut."""
        return min(_MOST_PARTS, 1 << max(0, (self.n // _PART).bit_length() - 1))

    @property
    def chunk(self) -> int:
        """Elements of a part, but for the last."""
        return -(-self.n // (self.parts * 16)) * 16

    def pointer(self, code: Code, args: str, name: str) -> str:
        """Returns a field that is a pointer."""
        return code.let(f"load ptr, ptr {self.field(code, args, name)}")

    def integer(self, code: Code, args: str, name: str) -> Value:
        """Returns a field that is a number."""
        return code.load(self.field(code, args, name), dtypes.int64)

    def field(self, code: Code, args: str, name: str) -> str:
        """Returns the address of a field."""
        return code.offset(args, 8 * _FIELDS.index(name))

    def begin(self, code: Code, pointers: Mapping[str, str]) -> str:
        """Returns the fields of a row that is about to be sorted: these pointers, and numbers that are 0."""
        args = code.room(8 * len(_FIELDS))
        for name, pointer in pointers.items():
            code.line(f"store ptr {pointer}, ptr {self.field(code, args, name)}")
        for name in ("vary", "special"):
            code.store(self.field(code, args, name), code.integer(0))
        return args

    @contextmanager
    def each(self, printer: Printer, name: str) -> Iterator[tuple[Code, Value]]:
        """A function that `call` runs for things that have numbers: yields its code, and the number of one."""
        code = Code(f"KERNEL.{name}", [("ptr", "args"), ("i64", "first"), ("i64", "stop")], "internal void")
        with code.loop(Value("%first", dtypes.int64), Value("%stop", dtypes.int64)) as number:
            yield code, number
        code.ret()
        printer.add(code)

    @contextmanager
    def part(self, printer: Printer, name: str) -> Iterator[tuple[Code, Value, Value, Value]]:
        """A function for parts: yields its code, the number of a part, and the positions where it begins and ends."""
        with self.each(printer, name) as (code, number):
            begin = code.intrinsic("smin", code.mul(number, code.integer(self.chunk)), code.integer(self.n))
            end = code.intrinsic("smin", code.add(begin, code.integer(self.chunk)), code.integer(self.n))
            yield code, number, begin, end

    def run(self, code: Code, printer: Printer, name: str, args: str, body: Filler) -> None:
        """Prints the body as a function of parts, and runs it for all of them."""
        with self.part(printer, name) as (inner, _, begin, end):
            body(inner, "%args", begin, end)
        self.call(code, f"KERNEL.{name}", args)

    def call(self, code: Code, name: str, args: str, count: int | None = None) -> None:
        """Runs a function for all parts, or for so many other things; in threads where there is more than one part."""
        if self.parts == 1:
            code.line(f"call void @{name}(ptr {args}, i64 0, i64 {count or 1})")
            return
        code.declare("declare void @nnc_parallel_for(ptr, ptr, i64, i64)")
        code.line(f"call void @nnc_parallel_for(ptr @{name}, ptr {args}, i64 {count or self.parts}, i64 1)")


# -- quicksort in pieces -----------------------------------------------------------------------------------------------

# Halves are cut, halves of these, and so on, until threads share enough pieces.
_PIECES_OF_A_PART = 2

Place = Callable[[Code, str, Value, Value, str], None]  # (code, shared fields, first position, count, sorted keys)


@record
class Pieces:
    """The sort of rows of `n` keys."""

    layout: SortLayout
    n: int

    @property
    def shared(self) -> Shared:
        """The numbers and pointers that parts share."""
        return Shared(self.n)

    @property
    def count(self) -> int:
        """The number of pieces, a power of two."""
        return self.shared.parts * _PIECES_OF_A_PART if self.shared.parts > 1 else 1

    @property
    def nbytes(self) -> int:
        """Memory that a row needs: keys, as many spare ones, and where pieces begin and end."""
        return 2 * self._array + -(-8 * (self.count + 1) // 64) * 64

    @property
    def _array(self) -> int:
        return -(-self.layout.kinds[0].itemsize * self.n // 64) * 64

    def print(
        self,
        printer: Printer,
        code: Code,
        work: str,
        pointers: dict[str, str],
        keys: str | None,
        fill: Filler,
        place: Place,
    ) -> str:
        """Sorts one row. Returns the shared fields.

        Args:
            keys: memory for the keys; None: a part of `work`.
            fill: makes the keys of a range of positions.
            place: writes the results of a piece, whose keys may lie where results go.
        """
        shared, ends = self.shared, code.offset(work, 2 * self._array)
        places = {"from0": keys or code.offset(work, self._array), "to0": work, "ends": ends}
        args = shared.begin(code, pointers | places)
        shared.run(code, printer, "fill", args, fill)
        for function in quicksort("KERNEL.sort", self.layout):
            printer.add(function)
        code.store(ends, code.integer(0))
        code.store(code.offset(ends, 8 * self.count), code.integer(self.n))
        if self.count > 1:
            self._print_halve(printer)
        for level in range(self.count.bit_length() - 1):
            code.store(shared.field(code, args, "shift"), code.integer(self.count >> level))
            shared.call(code, "KERNEL.halve", args, 1 << level)
        with shared.each(printer, "piece") as (inner, number):
            begin, end = self._end(inner, number), self._end(inner, inner.add(number, inner.integer(1)))
            length = inner.sub(end, begin)
            sorted_keys, spare = self._arrays(inner, begin)
            inner.line(f"call void @KERNEL.sort(ptr {sorted_keys}, ptr {spare}, {length.typed})")
            place(inner, "%args", begin, length, sorted_keys)
        shared.call(code, "KERNEL.piece", args, self.count)
        return args

    def _print_halve(self, printer: Printer) -> None:
        """`KERNEL.halve` cuts pieces of so many final ones as the field says."""
        with self.shared.each(printer, "halve") as (code, number):
            width = self.shared.integer(code, "%args", "shift")
            at = code.mul(number, width)
            begin, end = self._end(code, at), self._end(code, code.add(at, width))
            count = code.sub(end, begin)
            lows = code.slot(code.integer(0))
            with code.when(code.compare("ge", count, code.integer(LEAST))):
                arrays, seed = self._arrays(code, begin), code.add(begin, count)
                code.write(lows, split_at_pivot(code, "KERNEL.sort", self.layout, *arrays, count, seed)[1])
            middle = code.add(at, code.shr(width, code.integer(1)))
            code.store(self._place(code, middle), code.add(begin, code.read(lows)))

    def _arrays(self, code: Code, begin: Value) -> tuple[str, str]:
        """Returns the keys and the spare memory from a position on."""
        nbytes = code.mul(begin, code.integer(self.layout.kinds[0].itemsize))
        keys, spare = (code.offset(self.shared.pointer(code, "%args", name), nbytes) for name in ("from0", "to0"))
        return keys, spare

    def _place(self, code: Code, number: Value) -> str:
        return place_of(code, self.shared.pointer(code, "%args", "ends"), number, dtypes.int64)

    def _end(self, code: Code, number: Value) -> Value:
        """Returns the begin of a piece, which is the end of the one before."""
        return code.load(self._place(code, number), dtypes.int64)


# -- radix sort --------------------------------------------------------------------------------------------------------

# It is stable, from the lowest digit to the highest. A row is cut into parts. In each pass every part counts its digits, the counts
# are summed over digits and parts, and every part moves its elements to their places. Digits that are the same in all keys are left
# out. (Knuth, volume 3, 5.2.5; Zagha and Blelloch, 1991.)
MOST_ELEMENTS = (1 << 31) - 1  # counts and positions have 32 bits


@record
class Radix:
    """The radix sort of rows of `n` elements, of whose keys the bits from `low` on count."""

    layout: SortLayout
    n: int
    low: int

    @property
    def shared(self) -> Shared:
        """The numbers and pointers that parts share."""
        return Shared(self.n)

    @property
    def nbytes(self) -> int:
        """Memory that a row needs: both arrays, and counts."""
        return 2 * sum(self._arrays) + 4 * self._digits * self.shared.parts

    @property
    def _digits(self) -> int:
        """Values of a digit."""
        return 1 << self.layout.machine.sorting.digit_bits

    @property
    def _arrays(self) -> list[int]:
        """Bytes of each array, up to whole cache lines."""
        return [-(-kind.itemsize * self.n // 64) * 64 for kind in self.layout.kinds]

    def print(
        self, printer: Printer, code: Code, work: str, pointers: dict[str, str], fill: Filler, finish: Filler
    ) -> str:
        """Sorts one row. Returns the shared fields.

        Args:
            fill: makes the elements of a range of positions.
            finish: writes their results.
        """
        shared = self.shared
        args = shared.begin(code, pointers | self._places(code, work))
        shared.run(code, printer, "fill", args, fill)
        vary = code.bitcast(shared.integer(code, args, "vary"), dtypes.uint64)
        self._print_functions(printer)
        with self._each_digit(code, vary) as shift:
            code.store(shared.field(code, args, "shift"), shift)
            shared.call(code, "KERNEL.count", args)
            code.line(f"call void @KERNEL.sums(ptr {args})")
            shared.call(code, "KERNEL.spread", args)
            for k in range(len(self.layout.kinds)):
                a, b = shared.pointer(code, args, f"from{k}"), shared.pointer(code, args, f"to{k}")
                code.line(f"store ptr {b}, ptr {shared.field(code, args, f'from{k}')}")
                code.line(f"store ptr {a}, ptr {shared.field(code, args, f'to{k}')}")
        shared.run(code, printer, "finish", args, finish)
        return args

    def _places(self, code: Code, work: str) -> dict[str, str]:
        """Returns the offsets of all parts in the memory of a row."""
        sizes = {f"{name}{k}": nbytes for k, nbytes in enumerate(self._arrays) for name in ("from", "to")}
        sizes["counts"] = 4 * self._digits * self.shared.parts
        places, at = {}, 0
        for name, nbytes in sizes.items():
            places[name] = code.offset(work, at)
            at += nbytes
        return places

    @contextmanager
    def _each_digit(self, code: Code, vary: Value) -> Iterator[Value]:
        """Loops over the digits, lowest first, in which keys differ; yields the lowest bit."""
        low, top = code.integer(self.low), code.integer(8 * self.layout.kinds[0].itemsize)
        step = code.integer(self.layout.machine.sorting.digit_bits)
        with looping(code, low, lambda s: code.compare("lt", s, top), lambda s: code.add(s, step)) as shift:
            digit = code.and_(code.shr(vary, code.bitcast(shift, dtypes.uint64)), code.like(vary, self._digits - 1))
            with code.when(code.compare("ne", digit, code.like(digit, 0))):
                yield shift

    def _print_functions(self, printer: Printer) -> None:
        keys, kinds = self.layout.kinds[0], self.layout.kinds

        def digit(code: Code, key: Value, shift: Value) -> Value:
            moved = code.shr(key, shift)
            return code.convert(code.and_(moved, code.like(moved, self._digits - 1)), dtypes.int64)

        def table(code: Code, number: Value) -> str:
            counts = self.shared.pointer(code, "%args", "counts")
            return code.offset(counts, code.mul(number, code.integer(4 * self._digits)))

        with self.shared.part(printer, "count") as (code, number, begin, end):
            counts, source = table(code, number), self.shared.pointer(code, "%args", "from0")
            shift = code.convert(self.shared.integer(code, "%args", "shift"), keys)
            code.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            code.line(f"call void @llvm.memset.p0.i64(ptr {counts}, i8 0, i64 {4 * self._digits}, i1 false)")
            with code.loop(begin, end) as i:
                d = digit(code, code.load(place_of(code, source, i, keys), keys), shift)
                place = place_of(code, counts, d, dtypes.int32)
                code.store(place, code.add(code.load(place, dtypes.int32), code.constant(1, dtypes.int32)))
        with self.shared.part(printer, "spread") as (code, number, begin, end):
            counts = table(code, number)
            shift = code.convert(self.shared.integer(code, "%args", "shift"), keys)
            sources = [self.shared.pointer(code, "%args", f"from{k}") for k in range(len(kinds))]
            targets = [self.shared.pointer(code, "%args", f"to{k}") for k in range(len(kinds))]
            with code.loop(begin, end) as i:
                element = load_element(code, kinds, sources, i)
                place = place_of(code, counts, digit(code, element[0], shift), dtypes.int32)
                to = code.load(place, dtypes.uint32)
                code.store(place, code.add(to, code.like(to, 1)))
                store_element(code, targets, code.convert(to, dtypes.int64), element)
        code = Code("KERNEL.sums", [("ptr", "args")], "internal void")
        counts, total = self.shared.pointer(code, "%args", "counts"), code.slot(code.constant(0, dtypes.int32))
        with code.loop(0, self._digits) as d:
            first = place_of(code, counts, d, dtypes.int32)
            with code.loop(0, self.shared.parts) as number:
                place = code.offset(first, code.mul(number, code.integer(4 * self._digits)))
                before = code.read(total)
                code.write(total, code.add(before, code.load(place, dtypes.int32)))
                code.store(place, before)
        code.ret()
        printer.add(code)
