"""Prints a radix sort of long rows: stable, from the lowest digit to the highest, in threads.

A row is cut into parts. In each pass every part counts its digits, the counts are summed over digits and parts, and every part
moves its elements to their places. Digits that are the same in all keys are left out. (Knuth, volume 3, 5.2.5; Zagha and
Blelloch, 1991.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nnc import dtypes
from nnc.backends.cpu.order import Layout
from nnc.backends.cpu.printer import Printer, looping
from nnc.lower.codegen.builder import Code, Value

DIGIT_BITS = 11
_DIGITS = 1 << DIGIT_BITS
_PART = 1 << 16  # elements
_MOST_PARTS = 16
_LIMIT = 1 << 31  # counts and positions have 32 bits

_FIELDS = ("x", "out0", "out1", "from0", "to0", "from1", "to1", "counts", "vary", "special", "shift")


@dataclass(frozen=True, slots=True)
class Radix:
    """The radix sort of rows of `n` elements, of whose keys the bits from `low` on count."""

    layout: Layout
    n: int
    low: int

    @property
    def parts(self) -> int:
        """Into how many parts a row is cut."""
        return min(_MOST_PARTS, 1 << max(0, (self.n // _PART).bit_length() - 1))

    @property
    def chunk(self) -> int:
        """Elements of a part, but for the last."""
        return -(-self.n // (self.parts * 16)) * 16

    @property
    def nbytes(self) -> int:
        """Memory that a row needs: both arrays, and counts."""
        return 2 * sum(self._arrays) + 4 * _DIGITS * self.parts

    @property
    def _arrays(self) -> list[int]:
        """Bytes of each array, up to whole cache lines."""
        return [-(-kind.itemsize * self.n // 64) * 64 for kind in self.layout.kinds]

    # -- what parts share ----------------------------------------------------------------------------------------------

    def pointer(self, code: Code, args: str, name: str) -> str:
        """A field of what parts share."""
        return code.let(f"load ptr, ptr {self.field(code, args, name)}")

    def field(self, code: Code, args: str, name: str) -> str:
        """Where a field lies."""
        return code.offset(args, 8 * _FIELDS.index(name))

    def integer(self, code: Code, args: str, name: str) -> Value:
        """A field that is a number."""
        return code.load(self.field(code, args, name), dtypes.int64)

    def print(
        self, printer: Printer, code: Code, work: str, pointers: dict[str, str], fill: Filler, finish: Filler
    ) -> str:
        """Sorts one row; `fill` and `finish` write elements and results of a range of positions. Returns the shared fields."""
        args = code.room(8 * len(_FIELDS))
        size = self._arrays
        places, at = {}, 0
        for k in range(len(size)):
            for name in (f"from{k}", f"to{k}"):
                places[name] = code.offset(work, at)
                at += size[k]
        places["counts"] = code.offset(work, at)
        for name, pointer in (pointers | places).items():
            code.line(f"store ptr {pointer}, ptr {self.field(code, args, name)}")
        for name in ("vary", "special"):
            code.store(self.field(code, args, name), code.integer(0))
        self._run(code, printer, "fill", args, fill)
        vary = self.integer(code, args, "vary")
        top = code.integer(8 * self.layout.kinds[0].itemsize)
        count, spread, sums = self._functions(printer)
        step = code.integer(DIGIT_BITS)
        with looping(
            code, code.integer(self.low), lambda s: code.compare("lt", s, top), lambda s: code.add(s, step)
        ) as shift:
            unsigned = code.bitcast(vary, dtypes.uint64)
            digit = code.and_(code.shr(unsigned, code.bitcast(shift, dtypes.uint64)), code.like(unsigned, _DIGITS - 1))
            with code.when(code.compare("ne", digit, code.like(digit, 0))):
                code.store(self.field(code, args, "shift"), shift)
                self._call(code, count, args)
                code.line(f"call void @{sums}(ptr {args})")
                self._call(code, spread, args)
                for k in range(len(size)):
                    a, b = self.pointer(code, args, f"from{k}"), self.pointer(code, args, f"to{k}")
                    code.line(f"store ptr {b}, ptr {self.field(code, args, f'from{k}')}")
                    code.line(f"store ptr {a}, ptr {self.field(code, args, f'to{k}')}")
        self._run(code, printer, "finish", args, finish)
        return args

    def _call(self, code: Code, name: str, args: str) -> None:
        if self.parts == 1:
            code.line(f"call void @{name}(ptr {args}, i64 0, i64 1)")
            return
        code.declare("declare void @nnc_parallel_for(ptr, ptr, i64, i64)")
        code.line(f"call void @nnc_parallel_for(ptr @{name}, ptr {args}, i64 {self.parts}, i64 1)")

    def _run(self, code: Code, printer: Printer, name: str, args: str, body: Filler) -> None:
        with self._part(printer, name) as (inner, _, begin, end):
            body(inner, "%args", begin, end)
        self._call(code, f"KERNEL.{name}", args)

    @contextmanager
    def _part(self, printer: Printer, name: str) -> Iterator[tuple[Code, Value, Value, Value]]:
        """A function for parts: yields its code, the number of a part, and the positions where it begins and ends."""
        code = Code(f"KERNEL.{name}", [("ptr", "args"), ("i64", "first"), ("i64", "stop")], "internal void")
        with code.loop(Value("%first", dtypes.int64), Value("%stop", dtypes.int64)) as number:
            begin = code.intrinsic("smin", code.mul(number, code.integer(self.chunk)), code.integer(self.n))
            end = code.intrinsic("smin", code.add(begin, code.integer(self.chunk)), code.integer(self.n))
            yield code, number, begin, end
        code.ret()
        printer.add(code)

    def _functions(self, printer: Printer) -> tuple[str, str, str]:
        keys, kinds = self.layout.kinds[0], self.layout.kinds

        def digit(code: Code, key: Value, shift: Value) -> Value:
            moved = code.shr(key, shift)
            return code.convert(code.and_(moved, code.like(moved, _DIGITS - 1)), dtypes.int64)

        def table(code: Code, number: Value) -> str:
            counts = self.pointer(code, "%args", "counts")
            return code.offset(counts, code.mul(number, code.integer(4 * _DIGITS)))

        def at(code: Code, array: str, i: Value, size: int) -> str:
            return code.offset(array, code.mul(i, code.integer(size)))

        with self._part(printer, "count") as (code, number, begin, end):
            counts, source = table(code, number), self.pointer(code, "%args", "from0")
            shift = code.convert(self.integer(code, "%args", "shift"), keys)
            code.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            code.line(f"call void @llvm.memset.p0.i64(ptr {counts}, i8 0, i64 {4 * _DIGITS}, i1 false)")
            with code.loop(begin, end) as i:
                d = digit(code, code.load(at(code, source, i, keys.itemsize), keys), shift)
                place = at(code, counts, d, 4)
                code.store(place, code.add(code.load(place, dtypes.int32), code.constant(1, dtypes.int32)))
        with self._part(printer, "spread") as (code, number, begin, end):
            counts = table(code, number)
            shift = code.convert(self.integer(code, "%args", "shift"), keys)
            sources = [self.pointer(code, "%args", f"from{k}") for k in range(len(kinds))]
            targets = [self.pointer(code, "%args", f"to{k}") for k in range(len(kinds))]
            with code.loop(begin, end) as i:
                element = [
                    code.load(at(code, s, i, kind.itemsize), kind) for s, kind in zip(sources, kinds, strict=True)
                ]
                place = at(code, counts, digit(code, element[0], shift), 4)
                to = code.load(place, dtypes.uint32)
                code.store(place, code.add(to, code.like(to, 1)))
                wide = code.convert(to, dtypes.int64)
                for target, kind, value in zip(targets, kinds, element, strict=True):
                    code.store(at(code, target, wide, kind.itemsize), value)
        code = Code("KERNEL.sums", [("ptr", "args")], "internal void")
        counts, total = self.pointer(code, "%args", "counts"), code.slot(code.constant(0, dtypes.int32))
        with code.loop(0, _DIGITS) as d:
            first = at(code, counts, d, 4)
            with code.loop(0, self.parts) as number:
                place = at(code, first, number, 4 * _DIGITS)
                before = code.read(total)
                code.write(total, code.add(before, code.load(place, dtypes.int32)))
                code.store(place, before)
        code.ret()
        printer.add(code)
        return "KERNEL.count", "KERNEL.spread", "KERNEL.sums"


Filler = Callable[[Code, str, Value, Value], None]  # (code, shared fields, first position, the one after the last)


def can_sort(n: int) -> bool:
    """Whether a row of n elements can be sorted here."""
    return n < _LIMIT
