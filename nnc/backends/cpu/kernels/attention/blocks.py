"""Prints products of matrices that stay in the caches: parts of larger kernels, with as many rows and terms as a run says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import NamedTuple

from nnc.backends.cpu.kernels.products.tiles import TEXTS, alone
from nnc.backends.cpu.kernels.vectors import masks_of, read_row, write_row
from nnc.backends.moves import turn
from nnc.backends.printer import Bound, Printer, times
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.native import Native
from nnc.lower.kernels.values import first_lanes

# Rows of a tile by its vectors, so that sums take half of the registers or more where there are enough vectors.
_FEW = {1: 8, 2: 4}  # of 16 registers
_ROWS = {32: {1: 8, 2: 8, 3: 4, 4: 4}, 16: _FEW}
MOST_ROWS = 8
_NEAR = 4  # rows that are reached from one pointer, with few registers


class MatrixPlace(NamedTuple):
    """The place of a matrix: its first element, bytes between rows and between columns, and the dtype in memory."""

    pointer: str
    row: Bound
    column: Bound
    dtype: DType

    @property
    def turned(self) -> MatrixPlace:
        """Its transpose."""
        return MatrixPlace(self.pointer, self.column, self.row, self.dtype)

    def unless(self, code: Code, condition: Value, other: MatrixPlace) -> MatrixPlace:
        """This matrix, or another one like it where a condition holds."""
        pointer = code.let(f"select {condition.typed}, ptr {other.pointer}, ptr {self.pointer}")
        return MatrixPlace(pointer, self.row, self.column, self.dtype)

    def at(self, code: Code, row: Bound, column: Bound = 0) -> MatrixPlace:
        """The part that begins at a place."""
        pointer = code.offset(code.offset(self.pointer, times(code, row, self.row)), times(code, column, self.column))
        return MatrixPlace(pointer, self.row, self.column, self.dtype)


class Tiling(NamedTuple):
    """The dtype of sums, and how blocks are cut: into tiles of a few rows by at most `vectors` of so many lanes."""

    machine: Target
    wide: DType
    lanes: int
    vectors: int

    @classmethod
    def of(cls, wide: DType, machine: Target) -> Tiling:
        """Returns the one for a machine."""
        return cls(machine, wide, machine.vector_bytes // wide.itemsize, max(_ROWS[machine.registers]))

    @property
    def keys(self) -> int:
        """Keys of a block."""
        return self.machine.attention.keys

    def rows_room(self, code: Code, rows: int, columns: int) -> MatrixPlace:
        """A matrix on the stack, whose rows end with whole vectors."""
        return self.room(code, rows, -(-columns // self.lanes))

    def squares_room(self, code: Code, columns: int, vectors: int) -> MatrixPlace:
        """A matrix on the stack of whole squares."""
        return self.room(code, -(-columns // self.lanes) * self.lanes, vectors)

    def room(self, code: Code, rows: int, vectors: int) -> MatrixPlace:
        """A matrix of whole vectors on the stack."""
        step = vectors * self.lanes * self.wide.itemsize
        return MatrixPlace(code.room(rows * step), step, self.wide.itemsize, self.wide)


class Helpers(NamedTuple):
    """Multiplies matrices, and turns squares of numbers, by functions that all kernels share.

    Products differ mainly in where matrices lie, and LLVM takes longer to compile one product than most code around it; loops
    around the many addresses of a square take it longer than all the rest. A product also prefetches rows that are read soon but
    lie too far apart for the processor to predict.

    Attributes:
        row_bytes: how many bytes of each such row are prefetched.
    """

    printer: Printer
    tiling: Tiling
    row_bytes: int

    def multiply(
        self, code: Code, a: MatrixPlace, b: MatrixPlace, c: MatrixPlace, rows: Bound, terms: Bound, columns: int,
        *, adds: bool = False, factors: MatrixPlace | None = None, divisor: int = 1, ahead: Sequence[MatrixPlace] = (),
    ) -> None:  # fmt: skip
        """Prints c = a @ b; or c + a @ b; or c · factors + a @ b, with a factor for each column.

        Args:
            divisor: a number that divides `rows`.
            ahead: matrices of which as many rows are prefetched; they may lie outside of memory.
        """
        kinds = (a.dtype, b.dtype, b.column, c.dtype, c.column)
        has_rest, scaled = divisor % MOST_ROWS != 0, factors is not None
        function = _printed(_ProductCode(self.tiling, *kinds, columns, has_rest, scaled, self.row_bytes))
        fetched = [matrix for matrix in ahead if matrix.column == matrix.dtype.itemsize]
        table = code.room(16 * len(fetched))
        for i, matrix in enumerate(fetched):
            for k, number in enumerate((f"ptr {matrix.pointer}", code.integer(matrix.row).typed)):
                code.line(f"store {number}, ptr {code.offset(table, 16 * i + 8 * k)}")
        pointers = (a.pointer, b.pointer, c.pointer, table, factors.pointer if factors is not None else "null")
        numbers = (a.row, a.column, b.row, c.row, rows, terms, int(adds), len(fetched))
        self.printer.call(code, function, *pointers, *numbers)

    def turn_squares(
        self, code: Code, rows: str, lying: MatrixPlace, columns: Bound, turned: MatrixPlace, *, writes: bool = False
    ) -> None:
        """Writes the columns of as many rows as a vector has lanes to rows of vectors, or `writes` such vectors back; at `rows`
        stand pointers to the former.
        """
        function = _square(self.tiling, lying.dtype, lying.column, writes)
        with code.loop(0, columns, self.tiling.lanes) as first:
            left, offset = code.sub(code.integer(columns), first), times(code, first, lying.column)
            self.printer.call(code, function, rows, offset, turned.at(code, first).pointer, turned.row, left)


class _ProductCode(NamedTuple):
    """The constants of a function that computes products: `c = a @ b` with rows of b and c as vectors."""

    tiling: Tiling
    left: DType
    right: DType
    right_column: Bound
    out: DType
    out_column: Bound
    columns: int
    has_rest: bool
    scaled: bool
    row_bytes: int

    def function(self) -> Native:
        """Prints the function: `(a, b, c, prefetched rows, factors, bytes between rows and columns of a, between rows of b and of
        c, number of rows and of terms, whether it adds, number of matrices of which rows are prefetched)`.
        """
        pointers = ("a", "b", "c", "ahead", "factors")
        numbers = ("a_row", "a_column", "b_row", "c_row", "rows", "terms", "adds", "fetched")
        code = Code("KERNEL", [*(("ptr", name) for name in pointers), *(("i64", name) for name in numbers)])
        value = {name: Value(f"%{name}", dtypes.int64) for name in numbers}
        a = MatrixPlace("%a", value["a_row"], value["a_column"], self.left)
        b = MatrixPlace("%b", value["b_row"], self.right_column, self.right)
        c = MatrixPlace("%c", value["c_row"], self.out_column, self.out)
        panel = self.tiling.lanes * self.tiling.vectors
        whole = self.columns // panel * panel
        if whole == panel:
            self._panel(code, a, b, c, value, panel, fetches=True)
        elif whole:
            with code.loop(0, whole, panel) as first:
                self._panel(code, a, b.at(code, 0, first), c.at(code, 0, first), value, panel, fetches=False)
        if self.columns > whole:
            last = b.at(code, 0, whole), c.at(code, 0, whole)
            self._panel(code, a, *last, value, self.columns - whole, fetches=not whole)
        return alone(code)

    def _panel(
        self,
        code: Code,
        a: MatrixPlace,
        b: MatrixPlace,
        c: MatrixPlace,
        value: Mapping[str, Value],
        width: int,
        *,
        fetches: bool,
    ) -> None:
        """Some columns."""
        masks = masks_of(code, self.tiling.lanes, width)
        most = _ROWS[self.tiling.machine.registers][len(masks)]

        def tile(i: Value, count: int) -> None:
            if fetches:
                self._fetch(code, i, count, value["fetched"])
            self._tile(code, a.at(code, i), b, c.at(code, i), count, masks, value)

        rows = value["rows"]
        whole_rows = code.and_(rows, code.integer(-most)) if self.has_rest else rows
        with code.loop(0, whole_rows, most) as i:
            tile(i, most)
        if self.has_rest:
            with code.loop(whole_rows, rows) as i:
                tile(i, 1)

    def _fetch(self, code: Code, first: Value, count: int, matrices: Value) -> None:
        """Prefetches some rows of the matrices."""
        code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        with code.loop(0, matrices) as k:
            entry = code.offset("%ahead", times(code, k, 16))
            start, step = code.let(f"load ptr, ptr {entry}"), code.load(code.offset(entry, 8), dtypes.int64)
            row = code.offset(start, code.mul(first, step))
            for i in range(count):
                for at in range(0, self.row_bytes, self.tiling.machine.memory.line_bytes):
                    place = code.offset(code.offset(row, times(code, step, i)), at)
                    code.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")

    def _tile(
        self, code: Code, a: MatrixPlace, b: MatrixPlace, c: MatrixPlace, rows: int, masks: Sequence[Value | None],
        value: Mapping[str, Value],
    ) -> None:  # fmt: skip
        """Some rows by some vectors, whose sums stay in registers."""
        lanes, wide = self.tiling.lanes, self.tiling.wide
        targets = [code.offset(c.pointer, times(code, c.row, i)) for i in range(rows)]
        zero = code.constant(0, wide, lanes)
        sums = [[code.slot(zero) for _ in masks] for _ in targets]
        with ExitStack() as stack:
            if not self.scaled:
                stack.enter_context(code.when(code.compare("ne", value["adds"], code.integer(0))))
            for target, row in zip(targets, sums, strict=True):
                for v, (slot, mask) in enumerate(zip(row, masks, strict=True)):
                    start = code.convert(read_row(code, target, v * lanes, c.column, c.dtype, lanes, mask), wide)
                    if self.scaled:
                        factor = code.load(code.offset("%factors", v * lanes * wide.itemsize), wide, lanes)
                        start = code.mul(start, factor)
                    code.write(slot, start)
        with code.loop(0, value["terms"]) as t:
            x, y = a.at(code, 0, t), b.at(code, t)
            vectors = [
                code.convert(read_row(code, y.pointer, v * lanes, b.column, b.dtype, lanes, mask), wide)
                for v, mask in enumerate(masks)
            ]
            for i, row in enumerate(sums):
                near = code.offset(x.pointer, times(code, a.row, i - i % _NEAR))
                one = code.convert(code.load(code.offset(near, times(code, a.row, i % _NEAR)), a.dtype), wide)
                factor = code.splat(one, lanes)
                for slot, vector in zip(row, vectors, strict=True):
                    code.write(slot, code.fma(factor, vector, code.read(slot)))
        for target, row in zip(targets, sums, strict=True):
            for v, (slot, mask) in enumerate(zip(row, masks, strict=True)):
                result = code.convert(code.read(slot), c.dtype)
                write_row(code, target, v * lanes, c.column, result, mask, c.dtype.itemsize)


@lru_cache(maxsize=TEXTS)
def _printed(product: _ProductCode) -> Native:
    return product.function()


# -- rows of numbers -----------------------------------------------------------------------------------------------------


def copy_rows(
    code: Code, tiling: Tiling, source: MatrixPlace | None, target: MatrixPlace, rows: Bound, columns: int
) -> None:
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


@lru_cache(maxsize=TEXTS)
def _square(tiling: Tiling, dtype: DType, column: Bound, writes: bool) -> Native:
    """`(pointers of rows, bytes to the first column, vectors, bytes between vectors, columns that there are)`."""
    kinds = [("ptr", "rows"), ("i64", "offset"), ("ptr", "vectors"), ("i64", "step"), ("i64", "left")]
    code = Code("KERNEL", kinds)
    lanes, wide = tiling.lanes, tiling.wide
    mask = first_lanes(code, Value("%left", dtypes.int64), lanes)
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
    return alone(code)
