"""The state that parts of a row share while it is sorted: pointers and numbers in one small piece of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from nnc.backends.printer import Printer
from nnc.base import dtypes
from nnc.lower.kernels.builder import Code, Value

_PART = 1 << 16  # elements
_MOST_PARTS = 16

_FIELDS = (
    "x", "out0", "from0", "to0", "from1", "to1", "counts", "ends", "vary", "special", "shift",
)  # fmt: skip


Filler = Callable[[Code, str, Value, Value], None]  # (code, shared fields, first position, the one after the last)


@dataclass(frozen=True, slots=True)
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
