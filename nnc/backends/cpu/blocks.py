"""Prints products of matrices that stay in the caches: parts of larger kernels, with as many rows and terms as a run says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nnc import dtypes
from nnc.backends.cpu.moves import turn
from nnc.backends.cpu.printer import Bound, Printer, times
from nnc.backends.cpu.vectors import masks_of, read_row, vector_bytes, write_row
from nnc.dtypes import DType
from nnc.lower.codegen.builder import Code, Slot, Value

# Rows of a tile by its vectors, so that sums take half of the registers or more where there are enough vectors.
_ROWS = {64: {1: 8, 2: 8, 3: 4, 4: 4}, 32: {1: 8, 2: 4}}
MOST_ROWS = 8
_LINE = 64  # bytes that memory is read in


@dataclass(frozen=True)
class Matrix:
    """Where a matrix lies: its first element, bytes between rows and between columns, and the dtype in memory."""

    pointer: str
    row: int
    column: int
    dtype: DType

    @property
    def turned(self) -> Matrix:
        """Its transpose."""
        return Matrix(self.pointer, self.column, self.row, self.dtype)

    def unless(self, code: Code, condition: Value, other: Matrix) -> Matrix:
        """This matrix, or another one like it where a condition holds."""
        pointer = code.let(f"select {condition.typed}, ptr {other.pointer}, ptr {self.pointer}")
        return Matrix(pointer, self.row, self.column, self.dtype)

    def at(self, code: Code, row: Bound, column: Bound = 0) -> Matrix:
        """The part that begins at a place."""
        pointer = code.offset(code.offset(self.pointer, times(code, row, self.row)), times(code, column, self.column))
        return Matrix(pointer, self.row, self.column, self.dtype)


@dataclass(frozen=True)
class Tiling:
    """The dtype of sums, and how blocks are cut: into tiles of a few rows by at most `vectors` of so many lanes."""

    wide: DType
    lanes: int
    vectors: int

    @classmethod
    def of(cls, wide: DType) -> Tiling:
        """The one for this machine."""
        return cls(wide, vector_bytes() // wide.itemsize, max(_ROWS[vector_bytes()]))

    def rows_room(self, code: Code, rows: int, columns: int) -> Matrix:
        """A matrix on the stack, whose rows end with whole vectors."""
        return self.room(code, rows, -(-columns // self.lanes))

    def room(self, code: Code, rows: int, vectors: int) -> Matrix:
        """A matrix of whole vectors on the stack."""
        step = vectors * self.lanes * self.wide.itemsize
        return Matrix(code.room(rows * step), step, self.wide.itemsize, self.wide)


@dataclass(frozen=True)
class Ahead:
    """Rows that will be read soon, but lie too far from each other for the processor to guess. They may lie outside of memory."""

    rows: Matrix
    columns: int
    written: bool = False

    def print(self, code: Code, first: Bound, count: int) -> None:
        """Asks memory for some of them."""
        if self.rows.column != self.rows.dtype.itemsize:
            return
        code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        start = self.rows.at(code, first).pointer
        for i in range(count):
            for at in range(0, self.columns * self.rows.column, _LINE):
                place = code.offset(start, i * self.rows.row + at)
                code.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 {int(self.written)}, i32 3, i32 1)")


def print_product(
    code: Code, tiling: Tiling, a: Matrix, b: Matrix, c: Matrix, rows: Bound, terms: Bound, columns: int,
    *, adds: bool = False, factors: Sequence[Value] = (), divisor: int = 1, ahead: Sequence[Ahead] = (),
) -> None:  # fmt: skip
    """c = a @ b; or c + a @ b; or c · factors + a @ b, with a factor for each column.

    Args:     divisor: a number of which `rows` is a multiple. ahead: as many rows are fetched meanwhile.
    """
    panel = tiling.lanes * tiling.vectors
    whole = columns // panel * panel

    def panels(first: Bound, width: int) -> None:
        y, z = b.at(code, 0, first), c.at(code, 0, first)
        masks = masks_of(code, tiling.lanes, width)
        most = _ROWS[vector_bytes()][len(masks)]

        def tile(i: Bound, count: int) -> None:
            if isinstance(first, int) and first == 0:
                for rows_ahead in ahead:
                    rows_ahead.print(code, i, count)
            _print_tile(code, tiling, a.at(code, i), y, z.at(code, i), count, terms, masks, adds, factors)

        whole_rows = code.and_(code.integer(rows), code.integer(-most)) if divisor % most else rows
        with code.loop(0, whole_rows, most) as i:
            tile(i, most)
        if divisor % most:
            with code.loop(whole_rows, rows) as i:
                tile(i, 1)

    if whole == panel:
        panels(0, panel)
    elif whole:
        with code.loop(0, whole, panel) as first:
            panels(first, panel)
    if columns > whole:
        panels(whole, columns - whole)


def _print_tile(
    code: Code, tiling: Tiling, a: Matrix, b: Matrix, c: Matrix, rows: int, terms: Bound, masks: Sequence[Value | None],
    adds: bool, factors: Sequence[Value],
) -> None:  # fmt: skip
    lanes, wide = tiling.lanes, tiling.wide
    sums: list[list[Slot]] = []
    targets = [code.offset(c.pointer, i * c.row) for i in range(rows)]
    for target in targets:
        row = []
        for v, mask in enumerate(masks):
            start = code.constant(0, wide, lanes)
            if adds or factors:
                start = code.convert(read_row(code, target, v * lanes, c.column, c.dtype, lanes, mask), wide)
            row.append(code.slot(code.mul(start, factors[v]) if factors else start))
        sums.append(row)
    with code.loop(0, terms) as t:
        x, y = a.at(code, 0, t), b.at(code, t)
        vectors = [
            code.convert(read_row(code, y.pointer, v * lanes, b.column, b.dtype, lanes, mask), wide)
            for v, mask in enumerate(masks)
        ]
        for i, row in enumerate(sums):
            one = code.convert(code.load(code.offset(x.pointer, i * a.row), a.dtype), wide)
            factor = code.splat(one, lanes)
            for slot, vector in zip(row, vectors, strict=True):
                code.write(slot, code.fma(factor, vector, code.read(slot)))
    for target, row in zip(targets, sums, strict=True):
        for v, (slot, mask) in enumerate(zip(row, masks, strict=True)):
            value = code.convert(code.read(slot), c.dtype)
            write_row(code, target, v * lanes, c.column, value, mask, c.dtype.itemsize)


# -- rows of numbers -----------------------------------------------------------------------------------------------------


def copy_rows(code: Code, tiling: Tiling, source: Matrix | None, target: Matrix, rows: Bound, columns: int) -> None:
    """Copies the first rows of a matrix, perhaps in another dtype; None: zeros."""
    lanes = tiling.lanes

    def copy(i: Value, first: Bound, width: int) -> None:
        (mask,) = masks_of(code, lanes, width)
        to = target.at(code, i, first)
        value = code.constant(0, target.dtype, lanes)
        if source is not None:
            read = read_row(code, source.at(code, i, first).pointer, 0, source.column, source.dtype, lanes, mask)
            value = code.convert(read, target.dtype)
        write_row(code, to.pointer, 0, target.column, value, mask, target.dtype.itemsize)

    with code.loop(0, rows) as i:
        if columns >= lanes:
            with code.loop(0, columns // lanes * lanes, lanes) as first:
                copy(i, first, lanes)
        if columns % lanes:
            copy(i, columns // lanes * lanes, columns % lanes)


# -- rows that become columns ------------------------------------------------------------------------------------------


class Squares:
    """Functions that turn squares of numbers, printed once for all that a kernel turns.

    They are functions because loops around so many addresses take LLVM longer than all the rest.
    """

    def __init__(self, printer: Printer, tiling: Tiling) -> None:
        self._printer, self._tiling = printer, tiling
        self._names: dict[tuple[DType, int, bool], str] = {}

    def room(self, code: Code, columns: int, vectors: int) -> Matrix:
        """A matrix on the stack for what `read` turns: it has whole squares."""
        lanes = self._tiling.lanes
        return self._tiling.room(code, -(-columns // lanes) * lanes, vectors)

    def read(self, code: Code, rows: str, source: Matrix, columns: Bound, target: Matrix) -> None:
        """Writes the columns of as many rows as a vector has lanes to rows of vectors; at `rows` stand pointers to the former."""
        self._call(code, rows, source, columns, target, writes=False)

    def write(self, code: Code, rows: str, target: Matrix, columns: Bound, source: Matrix) -> None:
        """Writes such vectors back to rows."""
        self._call(code, rows, target, columns, source, writes=True)

    def _call(self, code: Code, rows: str, lying: Matrix, columns: Bound, turned: Matrix, *, writes: bool) -> None:
        key = lying.dtype, lying.column, writes
        if key not in self._names:
            self._names[key] = f"KERNEL.square{len(self._names)}"
            self._print(*key)
        with code.loop(0, columns, self._tiling.lanes) as first:
            left = code.sub(code.integer(columns), first)
            offset = code.integer(times(code, first, lying.column))
            at = turned.at(code, first).pointer
            code.line(
                f"call void @{self._names[key]}(ptr {rows}, {offset.typed}, ptr {at}, i64 {turned.row}, {left.typed})"
            )

    def _print(self, dtype: DType, column: int, writes: bool) -> None:
        """`(pointers of rows, bytes to the first column, vectors, bytes between vectors, columns that there are)`."""
        kinds = [("ptr", "rows"), ("i64", "offset"), ("ptr", "vectors"), ("i64", "step"), ("i64", "left")]
        code = Code(self._names[dtype, column, writes], kinds, "internal void", "nounwind noinline")
        lanes, wide = self._tiling.lanes, self._tiling.wide
        steps = Value(f"<{', '.join(f'i64 {i}' for i in range(lanes))}>", dtypes.int64, lanes)
        mask = code.compare("lt", steps, Value("%left", dtypes.int64))
        offset, step = Value("%offset", dtypes.int64), Value("%step", dtypes.int64)
        rows = [
            code.offset(code.let(f"load ptr, ptr {code.offset('%rows', 8 * i)}, align 8"), offset) for i in range(lanes)
        ]
        places = [code.offset("%vectors", code.mul(step, code.integer(i))) for i in range(lanes)]
        if writes:
            for row, vector in zip(rows, turn(code, [code.load(at, wide, lanes) for at in places]), strict=True):
                write_row(code, row, 0, column, code.convert(vector, dtype), mask, dtype.itemsize)
        else:
            vectors = [code.convert(read_row(code, row, 0, column, dtype, lanes, mask), wide) for row in rows]
            for at, vector in zip(places, turn(code, vectors), strict=True):
                code.store(at, vector)
        code.ret()
        self._printer.add(code)
