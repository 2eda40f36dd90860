"""Prints a sort of long rows by quicksort, in threads: halves, halves of these, and so on, until threads share enough pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nnc.backends.cpu.kernels.sorts.order import SortLayout
from nnc.backends.cpu.kernels.sorts.quicksort import LEAST, quicksort, split_at_pivot
from nnc.backends.cpu.kernels.sorts.shared import Filler, Shared
from nnc.backends.printer import Printer
from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.keys import place_of

_PIECES_OF_A_PART = 2

Place = Callable[[Code, str, Value, Value, str], None]  # (code, shared fields, first position, count, sorted keys)


@dataclass(frozen=True, slots=True)
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
