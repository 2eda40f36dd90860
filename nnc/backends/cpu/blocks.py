"""Prints products of matrices that stay in the caches: parts of larger kernels, with as many rows and terms as a run says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnc.backends.cpu.moves import turn
from nnc.backends.cpu.printer import Bound, minus, times
from nnc.backends.cpu.vectors import masks_of, read_row, vector_bytes, write_row
from nnc.dtypes import DType
from nnc.lower.codegen.builder import Code, Slot, Value

# Rows of a tile by vectors: a divisor of all blocks of rows, and sums in half of the registers or more.
_TILES = {64: (4, 4), 32: (4, 2)}


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

    def at(self, code: Code, row: Bound, column: Bound = 0) -> Matrix:
        """The part that begins at a place."""
        pointer = code.offset(code.offset(self.pointer, times(code, row, self.row)), times(code, column, self.column))
        return Matrix(pointer, self.row, self.column, self.dtype)


@dataclass(frozen=True)
class Tiling:
    """The dtype of sums, and how blocks are cut: tiles of `rows` by `vectors` of so many lanes."""

    wide: DType
    lanes: int
    rows: int
    vectors: int

    @classmethod
    def of(cls, wide: DType) -> Tiling:
        """The one for this machine."""
        return cls(wide, vector_bytes() // wide.itemsize, *_TILES[vector_bytes()])

    def room(self, code: Code, rows: int, vectors: int) -> Matrix:
        """A matrix of whole vectors on the stack."""
        step = vectors * self.lanes * self.wide.itemsize
        return Matrix(code.room(rows * step), step, self.wide.itemsize, self.wide)


def print_product(
    code: Code, tiling: Tiling, a: Matrix, b: Matrix, c: Matrix, rows: Bound, terms: Bound, columns: int,
    *, adds: bool = False, factors: Sequence[Value] = (),
) -> None:  # fmt: skip
    """c = a @ b; or c + a @ b; or c · factors + a @ b, with a factor for each column."""
    panel = tiling.lanes * tiling.vectors
    whole = columns // panel * panel

    def panels(first: Bound, width: int) -> None:
        y, z = b.at(code, 0, first), c.at(code, 0, first)
        masks = masks_of(code, tiling.lanes, width)

        def tile(i: Bound, count: int) -> None:
            _print_tile(code, tiling, a.at(code, i), y, z.at(code, i), count, terms, masks, adds, factors)

        blocks(code, 0, rows, tiling.rows, tile)

    if whole == panel:
        panels(0, panel)
    elif whole:
        with code.loop(0, whole, panel) as first:
            panels(first, panel)
    if columns > whole:
        panels(whole, columns - whole)


def blocks(code: Code, begin: Bound, end: Bound, size: int, body: Callable[[Bound, int], None]) -> None:
    """Runs `body(i, size)` for as many whole blocks as there are, then `body(i, 1)` for what is left."""
    if isinstance(begin, int) and isinstance(end, int):
        middle: Bound = begin + (end - begin) // size * size
    else:
        count = code.integer(minus(code, end, begin))
        middle = code.add(code.integer(begin), code.and_(count, code.integer(-size)))
    if middle != begin:
        with code.loop(begin, middle, size) as i:
            body(i, size)
    if middle != end:
        with code.loop(middle, end) as i:
            body(i, 1)


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


# -- rows that become columns ------------------------------------------------------------------------------------------


def print_turned(
    code: Code, tiling: Tiling, rows: Sequence[str], source: Matrix, columns: int, body: Callable[[Bound, Value], None]
) -> None:
    """Runs `body(j, vector)` for the columns of as many rows as a vector has lanes; `rows` are their pointers."""

    def square(first: Bound, width: int) -> None:
        (mask,) = masks_of(code, tiling.lanes, width)
        vectors = []
        for row in rows:
            at = code.offset(row, times(code, first, source.column))
            x = read_row(code, at, 0, source.column, source.dtype, tiling.lanes, mask)
            vectors.append(code.convert(x, tiling.wide))
        for j, vector in enumerate(turn(code, vectors)[:width]):
            body(first + j if isinstance(first, int) else code.add(first, code.integer(j)), vector)

    _squares(code, columns, tiling.lanes, square)


def print_turned_back(
    code: Code, tiling: Tiling, rows: Sequence[str], target: Matrix, columns: int, column: Callable[[Bound, int], Value]
) -> None:
    """Writes rows of which the vectors `column(first, j)` are the columns first + j."""

    def square(first: Bound, width: int) -> None:
        (mask,) = masks_of(code, tiling.lanes, width)
        vectors = [column(first, min(j, width - 1)) for j in range(tiling.lanes)]
        for row, vector in zip(rows, turn(code, vectors), strict=True):
            at = code.offset(row, times(code, first, target.column))
            write_row(code, at, 0, target.column, code.convert(vector, target.dtype), mask, target.dtype.itemsize)

    _squares(code, columns, tiling.lanes, square)


def _squares(code: Code, columns: int, lanes: int, square: Callable[[Bound, int], None]) -> None:
    whole = columns // lanes * lanes
    if whole:
        with code.loop(0, whole, lanes) as first:
            square(first, lanes)
    if columns > whole:
        square(whole, columns - whole)
