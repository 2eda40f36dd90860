"""Prints a radix sort of long rows: stable, from the lowest digit to the highest, in threads.

A row is cut into parts. In each pass every part counts its digits, the counts are summed over digits and parts, and every part
moves its elements to their places. Digits that are the same in all keys are left out. (Knuth, volume 3, 5.2.5; Zagha and
Blelloch, 1991.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nnc.backends.cpu.kernels.sorts.order import SortLayout
from nnc.backends.cpu.kernels.sorts.shared import Filler, Shared
from nnc.backends.printer import Printer, looping
from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.keys import load_element, place_of, store_element

MOST_ELEMENTS = (1 << 31) - 1  # counts and positions have 32 bits


@dataclass(frozen=True, slots=True)
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
