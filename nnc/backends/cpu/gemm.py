"""Prints matrix products: tiles of registers that are updated term by term.

A tile is a few rows by a few vectors of columns. For each term of the sums, the vectors are read from a row of the right matrix;
each row multiplies them by its element of the left one (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
2008). The right matrix is packed, a panel of columns at a time, where it is not read as it lies: transposed, or long enough to pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from nnc import dtypes
from nnc.backends.cpu.moves import turn
from nnc.backends.cpu.printer import Bound, Printer, times
from nnc.backends.cpu.vectors import (
    TILE_ROWS,
    add_product,
    advance,
    cases,
    masks_of,
    read_row,
    split,
    vector_bytes,
    write_row,
)
from nnc.backends.products import Axis, Product
from nnc.dtypes import DType
from nnc.lower.codegen.builder import Code, Slot, Value

_PANEL_TERMS = 256  # terms that a packed panel has at most, so that it stays in the second-level cache
_PANEL_TERMS_SHORT = 1024  # of 16-bit floats, whose sums cannot go on from the rounded result
_PART_VOLUME = 1 << 19  # multiplications that a thread must have, some ten microseconds
_PARTS = 16
_LEAST_ROWS = 64  # rows of a part, which packs its own panel


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


def shape_of(product: Product, wide: DType) -> Shape | None:
    """How to cut a product whose sums are of dtype `wide`; None where they are too long to go on from a rounded result."""
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
    nbytes = product.k * n * unit
    packed = not direct or (m >= 48 and nbytes > 1 << 17)
    if packed and wide != product.dtype and product.k > _PANEL_TERMS_SHORT:
        return None
    panels = -(-needed // vectors) * product.count
    chunk = m
    if panels < _PARTS and product.volume > _PART_VOLUME:
        chunk = max(_LEAST_ROWS, -(-m // -(-_PARTS // panels)))
        chunk = min(m, -(-chunk // rows) * rows)
    return Shape(lanes, rows, vectors, chunk, packed, wide)


# -- tiles -------------------------------------------------------------------------------------------------------------


def print_tiles(printer: Printer, product: Product, shape: Shape) -> None:
    """The whole product: parts of one panel and some rows, which threads share."""
    left, right = product.operands
    panels = -(-product.columns.size // shape.width)
    chunks = -(-product.rows.size // shape.chunk)
    total = product.count * panels * chunks
    volume = product.volume * product.count // total
    grain = max(1, _PART_VOLUME // max(volume, 1))

    def body(code: Code, begin: Bound, end: Bound) -> None:
        buffer = ""
        if shape.packed:
            terms = min(product.k, _limit(product, shape))
            buffer = code.room(terms * shape.width * shape.wide.itemsize)
        with code.loop(begin, end) as part:
            rest, panel = split(code, part, panels)
            rest, chunk = split(code, rest, chunks)
            pointers = advance(code, product.loops, rest, (left, right, "%out0"))
            columns = product.columns
            at = times(code, panel, shape.width)
            b = code.offset(pointers[1], times(code, at, columns.y))
            c = code.offset(pointers[2], times(code, at, columns.out))
            row = times(code, chunk, shape.chunk)
            a = code.offset(pointers[0], times(code, row, product.rows.x))
            c = code.offset(c, times(code, row, product.rows.out))
            last_rows = product.rows.size - (chunks - 1) * shape.chunk
            last_width = columns.size - (panels - 1) * shape.width
            for width, only_last in cases(shape.width, last_width, panels):
                for rows, only_last_rows in cases(shape.chunk, last_rows, chunks):
                    with ExitStack() as stack:
                        if only_last is not None:
                            last = code.compare("eq", code.integer(panel), code.integer(panels - 1))
                            stack.enter_context(code.when(last if only_last else code.not_(last)))
                        if only_last_rows is not None:
                            last = code.compare("eq", code.integer(chunk), code.integer(chunks - 1))
                            stack.enter_context(code.when(last if only_last_rows else code.not_(last)))
                        _print_part(code, product, shape, (a, b, c), buffer, rows, width)

    printer.parts(total, grain, body)


def _limit(product: Product, shape: Shape) -> int:
    return _PANEL_TERMS if product.dtype == shape.wide else _PANEL_TERMS_SHORT


def _print_part(
    code: Code, product: Product, shape: Shape, pointers: tuple[str, str, str], buffer: str, rows: int, width: int
) -> None:
    """One panel of `width` columns and some rows: all at once, or some terms at a time."""
    a, b, c = pointers
    if not shape.packed:
        depth = [(axis.size, axis.x, axis.y) for axis in product.depth]
        _print_rows(code, product, shape, (a, b, c), depth, rows, width, packed=False, more=False)
        return
    limit = _limit(product, shape)
    if product.k <= limit:
        _print_pack(code, product, shape, b, buffer, product.depth, width)
        step, depth = shape.width * shape.wide.itemsize, []
        for axis in reversed(product.depth):
            depth.insert(0, (axis.size, axis.x, step))
            step *= axis.size
        _print_rows(code, product, shape, (a, buffer, c), depth, rows, width, packed=True, more=False)
        return
    _print_zeros(code, product, shape, c, rows, width)
    *outer, inner = product.depth
    with ExitStack() as stack:
        for axis in outer:
            i = stack.enter_context(code.loop(0, axis.size))
            a, b = code.offset(a, times(code, i, axis.x)), code.offset(b, times(code, i, axis.y))
        step = shape.width * shape.wide.itemsize

        def block(first: Bound, terms: int) -> None:
            x, y = code.offset(a, times(code, first, inner.x)), code.offset(b, times(code, first, inner.y))
            _print_pack(code, product, shape, y, buffer, [replace(inner, size=terms)], width)
            _print_rows(
                code, product, shape, (x, buffer, c), [(terms, inner.x, step)], rows, width, packed=True, more=True
            )

        whole = inner.size // limit
        if whole:
            with code.loop(0, whole * limit, limit) as first:
                block(first, limit)
        if inner.size % limit:
            block(whole * limit, inner.size % limit)


def _print_rows(
    code: Code, product: Product, shape: Shape, pointers: tuple[str, str, str], depth: Sequence[tuple[int, int, int]],
    rows: int, width: int, *, packed: bool, more: bool,
) -> None:  # fmt: skip
    """All tiles below each other; `more`: the result has the sums of earlier terms."""
    a, b, c = pointers
    shape = replace(shape, rows=min(rows, shape.rows))
    whole = rows // shape.rows

    def tile(at: Bound, count: int) -> None:
        x = code.offset(a, times(code, at, product.rows.x))
        z = code.offset(c, times(code, at, product.rows.out))
        _print_tile(code, product, shape, (x, b, z), depth, count, width, packed=packed, more=more)

    if rows % shape.rows and not more:  # the last tile lies over its neighbour, and writes the same once more
        with code.loop(0, -(-rows // shape.rows)) as i:
            tile(
                code.intrinsic("smin", code.mul(i, code.integer(shape.rows)), code.integer(rows - shape.rows)),
                shape.rows,
            )
        return
    if whole == 1:
        tile(0, shape.rows)
    elif whole:
        with code.loop(0, whole * shape.rows, shape.rows) as i:
            tile(i, shape.rows)
    if rows % shape.rows:
        tile(whole * shape.rows, rows % shape.rows)


def _print_tile(
    code: Code, product: Product, shape: Shape, pointers: tuple[str, str, str], depth: Sequence[tuple[int, int, int]],
    rows: int, width: int, *, packed: bool, more: bool,
) -> None:  # fmt: skip
    a, b, c = pointers
    lanes, wide, unit = shape.lanes, shape.wide, product.dtype.itemsize
    masks = masks_of(code, lanes, width)
    sums: list[list[Slot]] = []
    for i in range(rows):
        row = code.offset(c, i * product.rows.out)
        zero = code.constant(0, wide, lanes)
        sums.append([
            code.slot(read_row(code, row, v * lanes, product.columns.out, product.dtype, lanes, mask) if more else zero)
            for v, mask in enumerate(masks)
        ])  # fmt: skip
    with ExitStack() as stack:
        for size, step_a, step_b in depth:
            if size != 1:
                p = stack.enter_context(code.loop(0, size))
                a, b = code.offset(a, times(code, p, step_a)), code.offset(b, times(code, p, step_b))
        terms = [
            code.load(code.offset(b, v * lanes * wide.itemsize), wide, lanes)
            if packed
            else code.convert(read_row(code, b, v * lanes, product.columns.y, product.dtype, lanes, mask), wide)
            for v, mask in enumerate(masks)
        ]
        for i in range(rows):
            x = code.convert(code.load(code.offset(a, i * product.rows.x), product.dtype), wide)
            x = code.splat(x, lanes)
            for v, term in enumerate(terms):
                code.write(sums[i][v], add_product(code, x, term, code.read(sums[i][v])))
    for i in range(rows):
        row = code.offset(c, i * product.rows.out)
        for v, mask in enumerate(masks):
            value = code.convert(code.read(sums[i][v]), product.dtype)
            write_row(code, row, v * lanes, product.columns.out, value, mask, unit)


def _print_zeros(code: Code, product: Product, shape: Shape, c: str, rows: int, width: int) -> None:
    with code.loop(0, rows) as i:
        row = code.offset(c, times(code, i, product.rows.out))
        for v, mask in enumerate(masks_of(code, shape.lanes, width)):
            zero = code.constant(0, product.dtype, shape.lanes)
            write_row(code, row, v * shape.lanes, product.columns.out, zero, mask, product.dtype.itemsize)


# -- panels ------------------------------------------------------------------------------------------------------------


def _print_pack(
    code: Code, product: Product, shape: Shape, b: str, buffer: str, depth: Sequence[Axis], width: int
) -> None:
    """Writes a panel: for each term a row of vectors. Lanes past the last column hold any numbers, and are not stored."""
    *outer, inner = depth
    row_bytes, unit = shape.width * shape.wide.itemsize, product.dtype.itemsize
    masks = masks_of(code, shape.lanes, width)
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
                with code.loop(0, done, shape.lanes) as p:
                    _print_turned(code, product, shape, b, buffer, p, width)
        with code.loop(done, inner.size) as p:
            row = code.offset(b, times(code, p, inner.y))
            target = code.offset(buffer, times(code, p, row_bytes))
            for v, mask in enumerate(masks):
                value = read_row(code, row, v * shape.lanes, product.columns.y, product.dtype, shape.lanes, mask)
                code.store(code.offset(target, v * shape.lanes * shape.wide.itemsize), code.convert(value, shape.wide))


def _print_turned(code: Code, product: Product, shape: Shape, b: str, buffer: str, p: Value, width: int) -> None:
    """Packs as many terms as a vector has lanes, of columns whose terms are neighbours."""
    lanes, size, step = shape.lanes, product.dtype.itemsize, product.columns.y
    word = dtypes.float32 if size == 4 else dtypes.float64
    source = code.offset(b, times(code, p, size))
    target = code.offset(buffer, times(code, p, shape.width * size))

    def square(first: Bound, columns: int) -> None:
        at, to = code.offset(source, times(code, first, step)), code.offset(target, times(code, first, size))
        vectors = [code.load(code.offset(at, min(j, columns - 1) * step), word, lanes) for j in range(lanes)]
        for t, vector in enumerate(turn(code, vectors)):
            code.store(code.offset(to, t * shape.width * size), vector)

    whole = width // lanes
    if whole:
        with code.loop(0, whole * lanes, lanes) as j:
            square(j, lanes)
    if width % lanes:
        square(whole * lanes, width % lanes)
