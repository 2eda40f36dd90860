"""Prints matrix products: tiles of registers that are updated term by term.

A tile is a few rows by a few vectors of columns. For each term of the sums, the vectors are read from a row of the right matrix;
each row multiplies them by its element of the left one (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
2008). The right matrix is packed, a panel of columns at a time, where it is not read as it lies: transposed, or long enough to pay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from nnc import dtypes
from nnc.backends.cpu.moves import turn
from nnc.backends.cpu.printer import Bound, Printer, times
from nnc.backends.cpu.vectors import (
    TILE_ROWS,
    add_product,
    advance,
    masks_of,
    masks_up_to,
    read_row,
    split,
    vector_bytes,
    write_row,
)
from nnc.backends.products import Axis, Product
from nnc.dtypes import DType
from nnc.lower.codegen.builder import Code, Slot, Value

_PANEL_TERMS = 1024  # terms that a packed panel has at most, so that it stays in the second-level cache
_SUMS = (
    1 << 18
)  # bytes on the stack for the sums of a part, where panels follow one another and an epilogue waits for the last
_PART_VOLUME = 1 << 19  # multiplications that a thread must have, some ten microseconds
_PARTS = 16
_FREE_MASKS = vector_bytes() == 64  # of shorter vectors, stores under a mask take many cycles
_LEAST_ROWS = 64  # rows of a part, which packs its own panel
_PACKED_ROWS = 96  # of a part, for which a panel is packed
_FAR = 1 << 12  # bytes between rows of the right matrix, by which they displace each other in the nearest cache


@dataclass(frozen=True)
class Shape:
    """How a product is cut: vectors of `lanes` columns, tiles of `rows` by `vectors`, parts of `chunk` rows by one panel."""

    lanes: int
    rows: int
    vectors: int
    chunk: int
    packed: bool
    wide: DType

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.lanes * self.vectors

    def has_any_rows(self, product: Product) -> bool:
        """Whether one code serves parts of any number of rows: those that are a tile at least, of sums that are done at once."""
        last = product.rows.size % self.chunk
        return (not last or last >= self.rows) and not (self.packed and product.k > _PANEL_TERMS)


class Finish(Protocol):
    """What is done with sums, rather than writing them as the result."""

    @property
    def pointers(self) -> Sequence[str]:
        """The tensors that it goes through; `Axis.more` says how far they move."""
        ...

    def fetch(self, code: Code, pointers: Sequence[str], rows: int, width: int) -> None:
        """Asks memory for what so many rows will need, which lies in as many places."""
        ...

    def rows(
        self, code: Code, sums: Target, pointers: Sequence[str], first: Bound, end: Bound, masks: Sequence[Value | None]
    ) -> None:
        """Finishes the rows first..end of some sums; `masks` are those of their vectors. Pointers are those of row 0."""
        ...


@dataclass(frozen=True)
class Target:
    """Where sums are written: a pointer, and how many bytes further the next row and the next column lie."""

    pointer: str
    row: int
    column: int
    dtype: DType


def oriented_for_tiles(product: Product) -> Product:
    """The product, or its transpose, so that neighbours in the result are neighbours in a vector."""

    def cost(p: Product) -> tuple[bool, bool, int]:
        unit = p.dtype.itemsize
        return p.columns.size > 1 and p.columns.out != unit, p.columns.y != unit, -p.columns.size

    return min(product, product.turned(), key=cost)


def shape_of(product: Product, wide: DType, *, finished: bool = False) -> Shape | None:
    """How to cut a product whose sums are of dtype `wide`; None where they are too long to go on from a rounded result, unless they
    are `finished` from memory of their own."""
    unit, m, n = product.dtype.itemsize, product.rows.size, product.columns.size
    lanes = vector_bytes() // wide.itemsize
    while lanes > 2 and lanes // 2 >= n:
        lanes //= 2
    needed = -(-n // lanes)
    table = TILE_ROWS[vector_bytes()]
    options = [v for v in table if v <= needed and (table[v] >= 4 or m < 4)] or [1]

    # As few panels' vectors as possible, then tiles that reuse most: rows · vectors / (rows + vectors).
    def waste(v: int) -> tuple[int, float]:
        rows = min(table[v], m)
        return -(-needed // v) * v, -rows * v / (rows + v) - 0.01 * v

    vectors = min(options, key=waste)
    rows = min(table[vectors], m)
    rows = -(-m // -(-m // rows))  # tiles of nearly equal size
    direct = product.columns.y == unit or n == 1
    panels = -(-needed // vectors) * product.count
    chunk = m
    if panels < _PARTS and product.volume > _PART_VOLUME:
        chunk = max(_LEAST_ROWS, -(-m // -(-_PARTS // panels)))
        chunk = min(m, -(-chunk // rows) * rows)
    # A copy pays where it is read by many rows; sooner where it is converted on the way, or brings far rows together.
    is_far = wide != product.dtype or any(abs(axis.y) >= _FAR for axis in product.depth)
    packed = not direct or (product.k * n * unit > 1 << 17 and (m >= 48 if is_far else chunk >= _PACKED_ROWS))
    if packed and wide != product.dtype and product.k > _PANEL_TERMS and not finished:
        return None
    if finished and packed and product.k > _PANEL_TERMS:
        room = _SUMS // (lanes * vectors * wide.itemsize)
        chunk = min(chunk, max(room // rows, 1) * rows)
    return Shape(lanes, rows, vectors, chunk, packed, wide)


# -- tiles -------------------------------------------------------------------------------------------------------------


def print_tiles(printer: Printer, product: Product, shape: Shape, finish: Finish | None = None) -> None:
    """The whole product: parts of one panel and some rows, which threads share."""
    panels = -(-product.columns.size // shape.width)
    chunks = -(-product.rows.size // shape.chunk)
    total = product.count * panels * chunks
    volume = product.volume * product.count // total
    grain = max(1, _PART_VOLUME // max(volume, 1))
    tensors = (*product.operands, "%out0", *(finish.pointers if finish is not None else ()))

    def body(code: Code, begin: Bound, end: Bound) -> None:
        buffer = ""
        if shape.packed:
            buffer = code.room(min(product.k, _PANEL_TERMS) * shape.width * shape.wide.itemsize)
        sums = _room_for_sums(code, product, shape) if finish is not None else None
        with code.loop(begin, end) as part:
            rest, panel = split(code, part, panels)
            rest, chunk = split(code, rest, chunks)
            pointers = advance(code, product.loops, rest, tensors)
            column, row = times(code, panel, shape.width), times(code, chunk, shape.chunk)
            for k, steps in enumerate(zip(product.columns.strides, product.rows.strides, strict=True)):
                for at, step in zip((column, row), steps, strict=True):
                    pointers[k] = code.offset(pointers[k], times(code, at, step))
            last_rows = product.rows.size - (chunks - 1) * shape.chunk
            last_width = product.columns.size - (panels - 1) * shape.width
            for width in _sizes(code, panel, panels, shape.width, last_width, any_size=_FREE_MASKS):
                for rows in _sizes(code, chunk, chunks, shape.chunk, last_rows, any_size=shape.has_any_rows(product)):
                    _Part(code, product, shape, pointers, buffer, rows, width, finish, sums).print()

    printer.parts(total, grain, body)


def _sizes(code: Code, number: Bound, count: int, full: int, last: int, *, any_size: bool) -> Iterator[Bound]:
    """The sizes of parts, the last of which is smaller: one that is found out as it runs where code takes `any_size`; else each,
    for code of its own."""
    if count == 1 or full == last:
        yield last
        return
    is_last = code.compare("eq", code.integer(number), code.integer(count - 1))
    if any_size:
        yield code.select(is_last, code.integer(last), code.integer(full))
        return
    for size, here in ((full, code.not_(is_last)), (last, is_last)):
        with code.when(here):
            yield size


def _room_for_sums(code: Code, product: Product, shape: Shape) -> Target:
    """Memory for the sums that an epilogue reads: of a tile, or of a whole part where panels follow one another."""
    rows = shape.chunk if shape.packed and product.k > _PANEL_TERMS else shape.rows
    step = shape.width * shape.wide.itemsize
    return Target(code.room(rows * step), step, shape.wide.itemsize, shape.wide)


@dataclass(frozen=True)
class _Part:
    """One panel of `width` columns and some rows, at these pointers: to the operands, the result and what `finish` goes through.
    `sums` is where that finds them."""

    code: Code
    product: Product
    shape: Shape
    pointers: Sequence[str]
    buffer: str
    rows: Bound
    width: Bound
    finish: Finish | None
    sums: Target | None

    def print(self) -> None:
        """All terms at once, or some at a time."""
        code, product, shape = self.code, self.product, self.shape
        x, y = self.pointers[:2]
        step = shape.width * shape.wide.itemsize
        if not shape.packed:
            self._tiles(x, y, [(axis.size, axis.x, axis.y) for axis in product.depth], more=False)
            return
        if product.k <= _PANEL_TERMS:
            _print_pack(code, product, shape, y, self.buffer, product.depth, self.width, self.masks)
            depth: list[tuple[int, int, int]] = []
            for axis in reversed(product.depth):
                depth.insert(0, (axis.size, axis.x, step))
                step *= axis.size
            self._tiles(x, self.buffer, depth, more=False)
            return
        self._zeros()
        *outer, inner = product.depth
        with ExitStack() as stack:
            for axis in outer:
                i = stack.enter_context(code.loop(0, axis.size))
                x, y = code.offset(x, times(code, i, axis.x)), code.offset(y, times(code, i, axis.y))

            def block(first: Bound, terms: int) -> None:
                a, b = code.offset(x, times(code, first, inner.x)), code.offset(y, times(code, first, inner.y))
                _print_pack(code, product, shape, b, self.buffer, [replace(inner, size=terms)], self.width, self.masks)
                self._tiles(a, self.buffer, [(terms, inner.x, step)], more=True)

            whole = inner.size // _PANEL_TERMS * _PANEL_TERMS
            if whole:
                with code.loop(0, whole, _PANEL_TERMS) as first:
                    block(first, _PANEL_TERMS)
            if inner.size % _PANEL_TERMS:
                block(whole, inner.size % _PANEL_TERMS)
        if self.finish is not None and self.sums is not None:
            self.finish.rows(code, self.sums, self.pointers[3:], 0, self.rows, self.masks)

    @property
    def masks(self) -> list[Value | None]:
        """Which lanes of the panel's vectors are columns."""
        shape, width = self.shape, self.width
        if isinstance(width, int):
            return masks_of(self.code, shape.lanes, width)
        return masks_up_to(self.code, shape.lanes, shape.vectors, width)

    @property
    def target(self) -> Target:
        """Where sums are written."""
        rows, columns = self.product.rows, self.product.columns
        return self.sums or Target(self.pointers[2], rows.out, columns.out, self.product.dtype)

    def _tiles(self, x: str, y: str, depth: Sequence[tuple[int, int, int]], *, more: bool) -> None:
        """All tiles below each other; `more`: the result has the sums of earlier terms."""
        code, rows, most = self.code, self.rows, self.shape.rows
        if not isinstance(rows, int) or (rows > most and rows % most and not more):
            # the last tile lies over its neighbour, and writes the same once more
            count = code.div(code.add(code.integer(rows), code.integer(most - 1)), code.integer(most))
            with code.loop(0, count) as i:
                wanted = code.mul(i, code.integer(most))
                at = code.intrinsic("smin", wanted, code.sub(code.integer(rows), code.integer(most)))
                self._tile(x, y, depth, at, most, more=False, done=code.sub(wanted, at))
            return
        high = min(rows, most)
        whole = rows // high
        if whole == 1:
            self._tile(x, y, depth, 0, high, more=more)
        elif whole:
            with code.loop(0, whole * high, high) as i:
                self._tile(x, y, depth, i, high, more=more)
        if rows % high:
            self._tile(x, y, depth, whole * high, rows % high, more=more)

    def _tile(
        self, x: str, y: str, depth: Sequence[tuple[int, int, int]], at: Bound, rows: int, *, more: bool, done: Bound = 0
    ) -> None:  # fmt: skip
        """The rows from `at` on, the first `done` of which are finished."""
        code, target, finish = self.code, self.target, self.finish
        x = code.offset(x, times(code, at, self.product.rows.x))
        if finish is None or more:
            target = replace(target, pointer=code.offset(target.pointer, times(code, at, target.row)))
            self._sums(x, y, target, depth, rows, more=more)
            return
        steps = self.product.rows.more
        moved = [code.offset(p, times(code, at, k)) for p, k in zip(self.pointers[3:], steps, strict=True)]
        finish.fetch(code, moved, rows, self.width if isinstance(self.width, int) else self.shape.width)
        self._sums(x, y, target, depth, rows, more=more)
        finish.rows(code, target, moved, done, rows, self.masks)

    def _sums(
        self, x: str, y: str, target: Target, depth: Sequence[tuple[int, int, int]], rows: int, *, more: bool
    ) -> None:
        code, product, shape = self.code, self.product, self.shape
        lanes, wide = shape.lanes, shape.wide
        masks = self.masks
        sums: list[list[Slot]] = []
        for i in range(rows):
            row = code.offset(target.pointer, i * target.row)
            zero = code.constant(0, wide, lanes)
            sums.append([
                code.slot(read_row(code, row, v * lanes, target.column, target.dtype, lanes, mask) if more else zero)
                for v, mask in enumerate(masks)
            ])  # fmt: skip
        with ExitStack() as stack:
            for size, step_x, step_y in depth:
                if size != 1:
                    p = stack.enter_context(code.loop(0, size))
                    x, y = code.offset(x, times(code, p, step_x)), code.offset(y, times(code, p, step_y))
            terms = [
                code.load(code.offset(y, v * lanes * wide.itemsize), wide, lanes)
                if shape.packed
                else code.convert(read_row(code, y, v * lanes, product.columns.y, product.dtype, lanes, mask), wide)
                for v, mask in enumerate(masks)
            ]
            for i in range(rows):
                factor = code.convert(code.load(code.offset(x, i * product.rows.x), product.dtype), wide)
                factor = code.splat(factor, lanes)
                for v, term in enumerate(terms):
                    code.write(sums[i][v], add_product(code, factor, term, code.read(sums[i][v])))
        for i in range(rows):
            row = code.offset(target.pointer, i * target.row)
            for v, mask in enumerate(masks):
                value = code.convert(code.read(sums[i][v]), target.dtype)
                write_row(code, row, v * lanes, target.column, value, mask, target.dtype.itemsize)

    def _zeros(self) -> None:
        code, target, lanes = self.code, self.target, self.shape.lanes
        with code.loop(0, self.rows) as i:
            row = code.offset(target.pointer, times(code, i, target.row))
            for v, mask in enumerate(self.masks):
                zero = code.constant(0, target.dtype, lanes)
                write_row(code, row, v * lanes, target.column, zero, mask, target.dtype.itemsize)


# -- panels ------------------------------------------------------------------------------------------------------------


def _print_pack(
    code: Code, product: Product, shape: Shape, b: str, buffer: str, depth: Sequence[Axis], width: Bound,
    masks: Sequence[Value | None],
) -> None:  # fmt: skip
    """Writes a panel: for each term a row of vectors. Lanes past the last column hold any numbers, and are not stored."""
    *outer, inner = depth
    row_bytes, unit = shape.width * shape.wide.itemsize, product.dtype.itemsize
    with ExitStack() as stack:
        step = row_bytes * inner.size
        for axis in reversed(outer):
            i = stack.enter_context(code.loop(0, axis.size))
            b, buffer = code.offset(b, times(code, i, axis.y)), code.offset(buffer, times(code, i, step))
            step *= axis.size
        done = 0
        if inner.y == unit and product.columns.y != unit and product.dtype == shape.wide and unit >= 4:
            done = inner.size // shape.lanes * shape.lanes
            if done:
                with code.loop(0, done, shape.lanes) as p, code.loop(0, width, shape.lanes) as first:
                    _print_turned(code, product, shape, b, buffer, p, first, width)
        if done == inner.size:
            return
        with code.loop(done, inner.size) as p:
            row = code.offset(b, times(code, p, inner.y))
            target = code.offset(buffer, times(code, p, row_bytes))
            for v, mask in enumerate(masks):
                value = read_row(code, row, v * shape.lanes, product.columns.y, product.dtype, shape.lanes, mask)
                code.store(code.offset(target, v * shape.lanes * shape.wide.itemsize), code.convert(value, shape.wide))


def _print_turned(
    code: Code, product: Product, shape: Shape, b: str, buffer: str, p: Value, first: Value, width: Bound
) -> None:
    """Packs as many terms of columns, whose terms are neighbours, as a vector has lanes; past the last column that again."""
    lanes, size, step = shape.lanes, product.dtype.itemsize, product.columns.y
    word = dtypes.float32 if size == 4 else dtypes.float64
    source = code.offset(code.offset(b, times(code, p, size)), times(code, first, step))
    target = code.offset(code.offset(buffer, times(code, p, shape.width * size)), times(code, first, size))
    if isinstance(width, int) and width % lanes == 0:
        columns = [code.offset(source, j * step) for j in range(lanes)]
    else:
        last = code.sub(code.sub(code.integer(width), code.integer(1)), first)
        columns = [
            code.offset(source, code.mul(code.intrinsic("smin", last, code.integer(j)), code.integer(step)))
            for j in range(lanes)
        ]
    for t, vector in enumerate(turn(code, [code.load(column, word, lanes) for column in columns])):
        code.store(code.offset(target, t * shape.width * size), vector)
