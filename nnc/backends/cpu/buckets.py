"""Prints a sort by samples, where there is no quicksort, of rows whose keys differ in many digits: 256 buckets of about equal size,
each sorted by networks.

A sorted sample splits the keys in 16 groups of 16 buckets. Each part finds the buckets of its keys, two comparisons of a vector
for each, and moves them there; then threads share the buckets. Where one is too large, since many keys are equal or the
sample was poor, nothing is lost but time: the row is still as it was. (Frazer and McKellar, 1970.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nnc import dtypes
from nnc.backends.cpu.order import Layout
from nnc.backends.cpu.printer import Printer
from nnc.backends.cpu.shared import Shared
from nnc.devices.cpu import cpu_target
from nnc.lower.kernels.builder import Code, Value

_SORTING = cpu_target().sorting

_GROUPS = 16
COUNT = _GROUPS * _GROUPS
_SAMPLE = 32 * COUNT
_SHORTEST, _LONGEST = 2 * _SAMPLE, COUNT * _SORTING.bucket_keys * 2 // 3  # rows

Place = Callable[[Code, str, Value, Value, str], None]  # (code, shared fields, first position, count, sorted keys)


def can_split(layout: Layout, n: int, low: int) -> bool:
    """Whether rows of n elements are sorted this way: rows of long keys without positions."""
    return layout.kinds == (dtypes.uint64,) and not low and _SHORTEST <= n <= _LONGEST


def extra_bytes(layout: Layout, n: int) -> int:
    """Memory for the numbers of buckets and the splitters."""
    return -(-n // 64) * 64 + (_GROUPS + 1) * _GROUPS * layout.kinds[0].itemsize


@dataclass(frozen=True, slots=True)
class Buckets:
    """The sort of one row; `KERNEL.sort` sorts keys in memory."""

    shared: Shared
    layout: Layout

    def print(self, code: Code, printer: Printer, args: str, place: Place) -> Value:
        """Sorts the keys; `place` writes sorted ones to their places. Returns whether that was done."""
        shared = self.shared
        self._sample(code, args)
        rank, move, sort = self._rank(printer), self._move(printer), self._sort(printer, place)
        shared.call(code, rank, args)
        largest = self._sums(code, args)
        fits = code.compare("le", largest, code.integer(_SORTING.bucket_keys))
        with code.when(fits):
            shared.call(code, move, args)
            shared.call(code, sort, args, COUNT)
        return fits

    def _sample(self, code: Code, args: str) -> None:
        kind, shared = self.layout.kinds[0], self.shared
        size, step = kind.itemsize, shared.n // _SAMPLE
        source, sample, table = (shared.pointer(code, args, name) for name in ("from0", "to0", "splitters"))
        with code.loop(0, _SAMPLE) as i:
            key = code.load(code.offset(source, code.mul(i, code.integer(step * size))), kind)
            code.store(code.offset(sample, code.mul(i, code.integer(size))), key)
        code.line(f"call void @KERNEL.sort(ptr {sample}, i64 {_SAMPLE})")
        # The first row of the table splits groups, row g + 1 the buckets of group g; no key is greater than the last of a row.
        most, row = code.constant((1 << 8 * size) - 1, kind), _GROUPS * size
        with code.loop(0, COUNT - 1) as bucket:
            at = code.mul(code.add(bucket, code.integer(1)), code.integer(_SAMPLE // COUNT * size))
            end = code.load(code.offset(sample, at), kind)
            code.store(code.offset(table, code.add(code.mul(bucket, code.integer(size)), code.integer(row))), end)
        with code.loop(0, _GROUPS) as group:
            last = code.offset(table, code.add(code.mul(group, code.integer(row)), code.integer(2 * row - size)))
            code.store(code.offset(table, code.mul(group, code.integer(size))), code.load(last, kind))
            code.store(last, most)
        code.store(code.offset(table, row - size), most)

    def _rank(self, printer: Printer) -> str:
        kind, shared = self.layout.kinds[0], self.shared
        with shared.part(printer, "rank") as (code, number, begin, end):
            counts, source, table, ids = (
                shared.pointer(code, "%args", name) for name in ("counts", "from0", "splitters", "ids")
            )
            counts = code.offset(counts, code.mul(number, code.integer(4 * COUNT)))
            code.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            code.line(f"call void @llvm.memset.p0.i64(ptr {counts}, i8 0, i64 {4 * COUNT}, i1 false)")
            code.declare("declare i16 @llvm.ctpop.i16(i16)")

            def below(splitters: Value, key: Value) -> Value:
                """Counts the splitters that are less than a key."""
                mask = code.compare("lt", splitters, code.splat(key, _GROUPS))
                bits = code.let(f"bitcast {mask.typed} to i16")
                return code.convert(
                    Value(code.let(f"call i16 @llvm.ctpop.i16(i16 {bits})"), dtypes.uint16), dtypes.int64
                )

            groups = code.load(table, kind, _GROUPS)
            with code.loop(begin, end) as i:
                key = code.load(code.offset(source, code.mul(i, code.integer(kind.itemsize))), kind)
                group = below(groups, key)
                row = code.mul(code.add(group, code.integer(1)), code.integer(_GROUPS * kind.itemsize))
                within = below(code.load(code.offset(table, row), kind, _GROUPS), key)
                bucket = code.add(code.mul(group, code.integer(_GROUPS)), within)
                code.store(code.offset(ids, i), code.convert(bucket, dtypes.uint8))
                place = code.offset(counts, code.mul(bucket, code.integer(4)))
                code.store(place, code.add(code.load(place, dtypes.int32), code.constant(1, dtypes.int32)))
        return "KERNEL.rank"

    def _sums(self, code: Code, args: str) -> Value:
        """Turns counts into first places, bucket by bucket, and part by part within; returns the size of the largest bucket."""
        counts = self.shared.pointer(code, args, "counts")
        zero = code.constant(0, dtypes.int32)
        total, largest = code.slot(zero), code.slot(zero)
        with code.loop(0, COUNT) as bucket:
            first = code.read(total)
            column = code.offset(counts, code.mul(bucket, code.integer(4)))
            with code.loop(0, self.shared.parts) as number:
                place = code.offset(column, code.mul(number, code.integer(4 * COUNT)))
                before = code.read(total)
                code.write(total, code.add(before, code.load(place, dtypes.int32)))
                code.store(place, before)
            code.write(largest, code.intrinsic("smax", code.read(largest), code.sub(code.read(total), first)))
        return code.convert(code.read(largest), dtypes.int64)

    def _move(self, printer: Printer) -> str:
        kind, shared = self.layout.kinds[0], self.shared
        with shared.part(printer, "move") as (code, number, begin, end):
            counts, source, target, ids = (
                shared.pointer(code, "%args", name) for name in ("counts", "from0", "to0", "ids")
            )
            counts = code.offset(counts, code.mul(number, code.integer(4 * COUNT)))
            with code.loop(begin, end) as i:
                key = code.load(code.offset(source, code.mul(i, code.integer(kind.itemsize))), kind)
                bucket = code.convert(code.load(code.offset(ids, i), dtypes.uint8), dtypes.int64)
                place = code.offset(counts, code.mul(bucket, code.integer(4)))
                to = code.load(place, dtypes.uint32)
                code.store(place, code.add(to, code.like(to, 1)))
                wide = code.convert(to, dtypes.int64)
                code.store(code.offset(target, code.mul(wide, code.integer(kind.itemsize))), key)
        return "KERNEL.move"

    def _sort(self, printer: Printer, place: Place) -> str:
        """Sorts buckets. After the move, the last part's place in a bucket is where the next one begins."""
        kind, shared, block = self.layout.kinds[0], self.shared, self.layout.block
        code = Code("KERNEL.bucket", [("ptr", "args"), ("i64", "first"), ("i64", "stop")], "internal void")
        counts, source = (shared.pointer(code, "%args", name) for name in ("counts", "to0"))
        ends, room = (
            code.offset(counts, 4 * COUNT * (shared.parts - 1)),
            code.room(_SORTING.bucket_keys * kind.itemsize),
        )
        with code.loop(Value("%first", dtypes.int64), Value("%stop", dtypes.int64)) as bucket:
            before = code.intrinsic("smax", code.sub(bucket, code.integer(1)), code.integer(0))
            begin = code.convert(
                code.load(code.offset(ends, code.mul(before, code.integer(4))), dtypes.int32), dtypes.int64
            )
            begin = code.select(code.compare("eq", bucket, code.integer(0)), code.integer(0), begin)
            end = code.convert(
                code.load(code.offset(ends, code.mul(bucket, code.integer(4))), dtypes.int32), dtypes.int64
            )
            count = code.sub(end, begin)
            padded = code.and_(code.add(count, code.integer(block - 1)), code.integer(-block))
            nbytes = code.mul(count, code.integer(kind.itemsize))
            first = code.offset(source, code.mul(begin, code.integer(kind.itemsize)))
            code.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
            code.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {room}, ptr {first}, {nbytes.typed}, i1 false)")
            with code.loop(count, padded) as i:
                code.store(
                    code.offset(room, code.mul(i, code.integer(kind.itemsize))),
                    code.constant((1 << 8 * kind.itemsize) - 1, kind),
                )
            code.line(f"call void @KERNEL.sort(ptr {room}, {padded.typed})")
            place(code, "%args", begin, count, room)
        code.ret()
        printer.add(code)
        return "KERNEL.bucket"
