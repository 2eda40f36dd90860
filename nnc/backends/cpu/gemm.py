"""Prints matrix products: tiles of registers that are updated term by term.

A tile is a few rows by a few vectors of columns. For each term of the sums, the vectors are read from a row of the right matrix;
each row multiplies them by its element of the left one (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
2008). The right matrix is packed, a panel of columns at a time, where it is not read as it lies: transposed, or long enough to pay.
Products whose sums run along neighbours in both operands, and that have few columns, are dot products of vectors instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from nnc import dtypes
from nnc.backends.cpu.moves import turn
from nnc.backends.cpu.printer import Bound, Printer, times
from nnc.backends.products import Axis, Product
from nnc.dtypes import DType
from nnc.lower.codegen.builder import Code, Slot, Value
from nnc.lower.codegen.native import Native
from nnc.lower.stages import Step
from nnc.machine import processor

# Rows of a tile by its vectors: as many sums as registers can hold beside what is multiplied.
TILE_ROWS = {64: {1: 14, 2: 12, 3: 8, 4: 6, 5: 5, 6: 4, 8: 3}, 32: {1: 8, 2: 5, 3: 4, 4: 2, 8: 1}}
_DOT_ROWS = {64: (8, 8, 6, 6, 4, 4, 3, 3), 32: (6, 4, 3, 2, 2, 1, 1, 1)}
_PANEL_TERMS = 256  # terms that a packed panel has at most, so that it stays in the second-level cache
_PANEL_TERMS_SHORT = 2048  # of 16-bit floats, whose sums cannot go on from the rounded result
_PART_VOLUME = 1 << 19  # multiplications that a thread must have, some ten microseconds
_PARTS = 16
_LEAST_ROWS = 64  # rows of a part, which packs its own panel
_FEW = 8  # columns up to which sums along neighbours are dot products


@cache
def vector_bytes() -> int:
    """Bytes of this machine's longest vectors."""
    return 64 if "avx512f" in processor(Path("/proc/cpuinfo"))["vector units"] else 32


@dataclass(frozen=True)
class _Shape:
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


def gemm_native(step: Step, product: Product) -> Native | None:
    """The kernel of a product of numbers other than bools; None where 16-bit floats have too long sums."""
    product = _oriented(product)
    wide = product.dtype if dtypes.is_integer(product.dtype) else dtypes.accumulator(product.dtype)
    printer = Printer(step)
    if _along_terms(product):
        _print_dots(printer, product, wide)
    else:
        shape = _shape_of(product, wide)
        if shape.packed and wide != product.dtype and product.k > _PANEL_TERMS_SHORT:
            return None
        _print_tiles(printer, product, shape)
    return printer.native(inline=product.volume * product.count <= 1024)


def _oriented(product: Product) -> Product:
    """The product, or its transpose, so that neighbours in the result are neighbours in a vector."""
    unit, turned = product.dtype.itemsize, product.turned()
    if _along_terms(turned) and not (_along_terms(product) and product.columns.size <= turned.columns.size):
        return turned
    if _along_terms(product):
        return product

    def cost(p: Product) -> tuple[bool, bool, int]:
        return p.columns.size > 1 and p.columns.out != unit, p.columns.y != unit, -p.columns.size

    return min(product, turned, key=cost)


def _along_terms(product: Product) -> bool:
    unit, inner = product.dtype.itemsize, product.depth[-1]
    if inner.x != unit or inner.y != unit:
        return False
    n = product.columns.size
    return n == 1 or (product.columns.y != unit and n <= _FEW and (n <= 3 or inner.size * unit >= 8 * vector_bytes()))


def _shape_of(product: Product, wide: DType) -> _Shape:
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
    panels = -(-needed // vectors) * product.count
    chunk = m
    if panels < _PARTS and product.volume > _PART_VOLUME:
        chunk = max(_LEAST_ROWS, -(-m // -(-_PARTS // panels)))
        chunk = min(m, -(-chunk // rows) * rows)
    return _Shape(lanes, rows, vectors, chunk, packed, wide)


# -- tiles -------------------------------------------------------------------------------------------------------------


def _print_tiles(printer: Printer, product: Product, shape: _Shape) -> None:
    left, right = _operands(product)
    panels = -(-product.columns.size // shape.width)
    chunks = -(-product.rows.size // shape.chunk)
    total = product.count * panels * chunks
    volume = product.volume * product.count // total
    printer_grain = max(1, _PART_VOLUME // max(volume, 1))

    def body(code: Code, begin: Bound, end: Bound) -> None:
        buffer = ""
        if shape.packed:
            terms = product.k if product.k <= _limit(product, shape) else _limit(product, shape)
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

    printer.parts(total, printer_grain, body)


def _operands(product: Product) -> tuple[str, str]:
    return ("%in1", "%in0") if product.is_turned else ("%in0", "%in1")


def _limit(product: Product, shape: _Shape) -> int:
    return _PANEL_TERMS if product.dtype == shape.wide else _PANEL_TERMS_SHORT


def cases(full: int, last: int, count: int) -> list[tuple[int, bool | None]]:
    """The sizes that occur, and whether only the last round has it (None: all rounds)."""
    if count == 1:
        return [(last, None)]
    return [(full, None)] if full == last else [(full, False), (last, True)]


def split(code: Code, i: Bound, n: int) -> tuple[Bound, Bound]:
    """i // n and i % n."""
    if n == 1:
        return i, 0
    if isinstance(i, int):
        return i // n, i % n
    size = code.integer(n)
    quotient = Value(code.let(f"udiv i64 {i.text}, {n}"), dtypes.int64)
    return quotient, code.sub(i, code.mul(quotient, size))


def advance(code: Code, loops: Sequence[Axis], index: Bound, pointers: Sequence[str]) -> list[str]:
    """The pointers in one round of all loops."""
    moved = list(pointers)
    for axis in reversed(loops):
        index, i = split(code, index, axis.size)
        for k, step in enumerate(axis.strides):
            moved[k] = code.offset(moved[k], times(code, i, step))
    return moved


def _print_part(
    code: Code, product: Product, shape: _Shape, pointers: tuple[str, str, str], buffer: str, rows: int, width: int
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
    code: Code, product: Product, shape: _Shape, pointers: tuple[str, str, str], depth: Sequence[tuple[int, int, int]],
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


def masks_of(code: Code, lanes: int, width: int) -> list[Value | None]:
    """For each vector of a row of `width` elements, which lanes are used; None for all."""
    masks: list[Value | None] = [None] * (width // lanes)
    if width % lanes:
        bits = ", ".join(f"i1 {'true' if lane < width % lanes else 'false'}" for lane in range(lanes))
        masks.append(Value(f"<{bits}>", dtypes.bool_, lanes))
    return masks


def _print_tile(
    code: Code, product: Product, shape: _Shape, pointers: tuple[str, str, str], depth: Sequence[tuple[int, int, int]],
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
                code.write(sums[i][v], _add_product(code, x, term, code.read(sums[i][v])))
    for i in range(rows):
        row = code.offset(c, i * product.rows.out)
        for v, mask in enumerate(masks):
            value = code.convert(code.read(sums[i][v]), product.dtype)
            write_row(code, row, v * lanes, product.columns.out, value, mask, unit)


def _add_product(code: Code, x: Value, y: Value, z: Value) -> Value:
    return code.fma(x, y, z) if dtypes.is_float(x.dtype) else code.add(code.mul(x, y), z)


def read_row(code: Code, row: str, first: int, step: int, dtype: DType, lanes: int, mask: Value | None) -> Value:
    """A vector of elements that lie `step` bytes apart, from the one with index `first` on."""
    at = code.offset(row, first * step)
    if step == dtype.itemsize:
        return code.load(at, dtype, lanes, mask)
    return code.gather(at, _steps(lanes, step), dtype, mask)


def write_row(code: Code, row: str, first: int, step: int, value: Value, mask: Value | None, unit: int) -> None:
    """Writes a vector to elements that lie `step` bytes apart; `unit` is the size of one."""
    at = code.offset(row, first * step)
    if step == unit:
        code.store(at, value, mask)
    else:
        code.scatter(at, _steps(value.lanes, step), value, mask)


def _steps(lanes: int, step: int) -> Value:
    return Value("<" + ", ".join(f"i64 {lane * step}" for lane in range(lanes)) + ">", dtypes.int64, lanes)


def _print_zeros(code: Code, product: Product, shape: _Shape, c: str, rows: int, width: int) -> None:
    with code.loop(0, rows) as i:
        row = code.offset(c, times(code, i, product.rows.out))
        for v, mask in enumerate(masks_of(code, shape.lanes, width)):
            zero = code.constant(0, product.dtype, shape.lanes)
            write_row(code, row, v * shape.lanes, product.columns.out, zero, mask, product.dtype.itemsize)


# -- panels ------------------------------------------------------------------------------------------------------------


def _print_pack(
    code: Code, product: Product, shape: _Shape, b: str, buffer: str, depth: Sequence[Axis], width: int
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


def _print_turned(code: Code, product: Product, shape: _Shape, b: str, buffer: str, p: Value, width: int) -> None:
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


# -- dot products ------------------------------------------------------------------------------------------------------


def _print_dots(printer: Printer, product: Product, wide: DType) -> None:
    """For each row and the few columns, vectors of partial sums along the terms."""
    left, right = _operands(product)
    rows, columns, (*outer, inner) = product.rows, product.columns, product.depth
    lanes = vector_bytes() // wide.itemsize
    while lanes > 2 and lanes // 2 >= inner.size:
        lanes //= 2
    tile = min(rows.size, _DOT_ROWS[vector_bytes()][columns.size - 1])
    tiles = -(-rows.size // tile)
    total = product.count * tiles
    grain = max(1, (_PART_VOLUME // 4) // max(1, product.volume * product.count // total))  # it is memory that limits

    def body(code: Code, begin: Bound, end: Bound) -> None:
        with code.loop(begin, end) as part:
            rest, at = split(code, part, tiles)
            a, b, c = advance(code, product.loops, rest, (left, right, "%out0"))
            first = times(code, at, tile)
            if rows.size % tile:  # the last tile lies over its neighbour
                first = code.intrinsic("smin", code.integer(first), code.integer(rows.size - tile))
            a, c = code.offset(a, times(code, first, rows.x)), code.offset(c, times(code, first, rows.out))
            sums = [[code.slot(code.constant(0, wide, lanes)) for _ in range(columns.size)] for _ in range(tile)]
            with ExitStack() as stack:
                for axis in outer:
                    p = stack.enter_context(code.loop(0, axis.size))
                    a, b = code.offset(a, times(code, p, axis.x)), code.offset(b, times(code, p, axis.y))
                whole = inner.size // lanes * lanes
                if whole:
                    with code.loop(0, whole, lanes) as p:
                        _add_terms(code, product, wide, (a, b), p, lanes, None, sums)
                if inner.size % lanes:
                    (mask,) = masks_of(code, lanes, inner.size % lanes)
                    _add_terms(code, product, wide, (a, b), code.integer(whole), lanes, mask, sums)
            for i, row in enumerate(sums):
                for j, slot in enumerate(row):
                    total = _lanes_sum(code, code.read(slot))
                    target = code.offset(c, i * rows.out + j * columns.out)
                    code.store(target, code.convert(total, product.dtype))

    printer.parts(total, grain, body)


def _add_terms(
    code: Code, product: Product, wide: DType, pointers: tuple[str, str], p: Value, lanes: int, mask: Value | None,
    sums: list[list[Slot]],
) -> None:  # fmt: skip
    unit = product.dtype.itemsize
    a, b = (code.offset(pointer, times(code, p, unit)) for pointer in pointers)
    ys = [
        code.convert(code.load(code.offset(b, j * product.columns.y), product.dtype, lanes, mask), wide)
        for j in range(product.columns.size)
    ]
    for i, row in enumerate(sums):
        x = code.convert(code.load(code.offset(a, i * product.rows.x), product.dtype, lanes, mask), wide)
        for y, slot in zip(ys, row, strict=True):
            code.write(slot, _add_product(code, x, y, code.read(slot)))


def _lanes_sum(code: Code, x: Value) -> Value:
    if dtypes.is_float(x.dtype):
        return code.reduce("fadd", x, code.constant(-0.0, x.dtype))
    return code.reduce("add", x)
