"""Prints products of matrices with few columns, as dot products of vectors, and those of one row with a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

from nnc.backends.cpu.kernels.vectors import add_product, advance, cases, masks_of, split
from nnc.backends.printer import Bound, Printer, times
from nnc.backends.products import Product
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.device.target import Loops, Target
from nnc.lower.kernels.builder import Code, Slot, Value
from nnc.lower.kernels.cascade import cut_of, pieces, total_dtype
from nnc.lower.kernels.sizes import derived, is_number

Sums = Sequence[Sequence[Slot]]

# Rows of a tile by its columns, less one.
_FEW = 6, 4, 3, 2, 2, 1, 1, 1  # of 16 registers
_DOT_ROWS = {64: (8, 8, 6, 6, 4, 4, 3, 3), 32: _FEW, 16: _FEW}


def along_terms(product: Product, machine: Target) -> bool:
    """Whether sums run along neighbours, and too few columns share the cost of packing them."""
    unit, inner = product.dtype.itemsize, product.depth[-1]
    if inner.x != unit or inner.y != unit:
        return False
    n = product.columns.size
    return n == 1 or (
        product.columns.y != unit
        and n <= machine.products.few_columns
        and (n <= 3 or inner.size * unit >= 8 * machine.vector_bytes)
    )


def print_dots(printer: Printer, product: Product, wide: DType) -> None:
    """For each row and the few columns, vectors of partial sums along the terms."""
    left, right = product.operands
    depth = (*product.depth[:-1], product.depth[-1].fixed)
    product = replace(product, depth=depth)
    rows, columns, inner = product.rows, product.columns, product.depth[-1]
    machine = printer.machine
    lanes = machine.vector_bytes // wide.itemsize
    while lanes > 2 and lanes // 2 >= inner.size:
        lanes //= 2
    tile = int(min(rows.size, _DOT_ROWS[machine.vector_bytes][columns.size - 1]))
    tiles = -(-rows.size // tile)
    total = product.count * tiles
    volume = derived(max, 1, product.volume * product.count // total)
    grain = derived(max, 1, machine.products.streamed_part_volume // volume)

    def body(code: Code, begin: Bound, end: Bound) -> None:
        with code.loop(begin, end) as part:
            rest, at = split(code, part, tiles)
            a, b, c = advance(code, product.loops, rest, (left, right, "%out0"))
            first = times(code, at, tile)
            if is_number(rows.size) or rows.size % tile:  # the last tile lies over its neighbour
                first = code.intrinsic("smin", code.integer(first), code.integer(rows.size - tile))
            a, c = code.offset(a, times(code, first, rows.x)), code.offset(c, times(code, first, rows.out))
            sums = _print_sums(code, product, wide, (a, b), lanes, tile, machine.loops)
            for i, row in enumerate(sums):
                for j, slot in enumerate(row):
                    target = code.offset(c, i * rows.out + j * columns.out)
                    code.store(target, code.convert(_lanes_sum(code, code.read(slot)), product.dtype))

    printer.parts(total, grain, body)


def _print_sums(
    code: Code, product: Product, wide: DType, pointers: tuple[str, str], lanes: int, rows: int, loops: Loops
) -> Sums:
    """Returns the vectors of sums of some rows; long ones go piece by piece."""
    (a, b), (*outer, inner) = pointers, product.depth
    whole = inner.size // lanes * lanes
    counts = [*(axis.size for axis in outer), -(-inner.size // lanes)]
    cut = cut_of(counts, loops.summands, loops.short_sums) if dtypes.is_float(wide) else None
    sums = totals = _zeros(code, wide if cut is None else total_dtype(wide), lanes, rows, product.columns.size)
    with ExitStack() as stack:
        for position, axis in enumerate(outer):
            bounds: tuple[Bound, Bound] = 0, axis.size
            if cut is not None and cut.loop == position:
                bounds = stack.enter_context(pieces(code, *bounds, cut.piece))
                sums = stack.enter_context(_piece(code, wide, totals))
            p = stack.enter_context(code.loop(*bounds))
            a, b = code.offset(a, times(code, p, axis.x)), code.offset(b, times(code, p, axis.y))
        is_cut = cut is not None and cut.loop == len(outer)
        if whole:
            with ExitStack() as within:
                bounds, here = (0, whole), sums
                if cut is not None and is_cut:
                    bounds = within.enter_context(pieces(code, *bounds, cut.piece * lanes))
                    here = within.enter_context(_piece(code, wide, totals))
                p = within.enter_context(code.loop(bounds[0], bounds[1], lanes))
                _add_terms(code, product, wide, (a, b), p, lanes, None, here)
        if inner.size % lanes:
            (mask,) = masks_of(code, lanes, inner.size % lanes)
            with _piece(code, wide, totals) if is_cut else nullcontext(sums) as here:
                _add_terms(code, product, wide, (a, b), code.integer(whole), lanes, mask, here)
    return totals


def _zeros(code: Code, dtype: DType, lanes: int, rows: int, columns: int) -> Sums:
    return [[code.slot(code.constant(0, dtype, lanes)) for _ in range(columns)] for _ in range(rows)]


@contextmanager
def _piece(code: Code, wide: DType, totals: Sums) -> Iterator[Sums]:
    """Sums of a piece, which are added to the totals behind the block."""
    sums = _zeros(code, wide, totals[0][0].lanes, len(totals), len(totals[0]))
    yield sums
    for row, into in zip(sums, totals, strict=True):
        for slot, total in zip(row, into, strict=True):
            code.write(total, code.add(code.read(total), code.convert(code.read(slot), total.dtype)))


def _add_terms(
    code: Code, product: Product, wide: DType, pointers: tuple[str, str], p: Value, lanes: int, mask: Value | None,
    sums: Sums,
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
            code.write(slot, add_product(code, x, y, code.read(slot)))


def _lanes_sum(code: Code, x: Value) -> Value:
    if dtypes.is_float(x.dtype):
        return code.reduce("fadd", x, code.constant(-0.0, x.dtype))
    return code.reduce("add", x)


# -- one row by a matrix -----------------------------------------------------------------------------------------------

# Prints products of one row with a matrix whose rows lie one after the other: a vector times a matrix.
#
# Reading the matrix limits them: each of its elements is read once. Hence the matrix is read in the order of memory, which the
# processor predicts, rather than in panels of columns: one row after the other is added to sums that stay in the nearest cache.
# Threads share the terms where there are too few columns to share; how many parts there are depends on the sizes alone, and so
# does the result.


def is_row_by_rows(product: Product, machine: Target) -> bool:
    """Whether this is how to compute a product."""
    unit, columns = product.dtype.itemsize, product.columns
    lies_so = product.rows.size == 1 and len(product.depth) == 1 and columns.y == columns.out == unit
    return (
        lies_so
        and columns.size * unit >= machine.vector_bytes
        and product.k * columns.size * unit > machine.products.row_matrix_bytes
    )


def print_row(printer: Printer, product: Product, wide: DType) -> None:
    """Parts of some terms by some columns; where there is more than one part for a column, their sums are added in the end."""
    product = product.fixed
    size, k, (depth,), machine = product.columns.size, product.k, product.depth, printer.machine
    figures = machine.products
    width, lanes = min(figures.row_panel_bytes // wide.itemsize, size), machine.vector_bytes // wide.itemsize
    panels = -(-size // width)
    shares = figures.row_parts // (panels * product.count)
    chunks = max(1, min(shares, product.volume // (figures.streamed_part_volume * panels)))
    terms = -(-k // chunks)
    chunks = -(-k // terms)
    total = product.count * panels * chunks
    grain = max(1, figures.streamed_part_volume // max(1, product.volume * product.count // total))
    pointers = [*product.operands, "%out0"]
    long = dtypes.is_float(wide) and terms > figures.panel_terms
    whole = total_dtype(wide) if long else wide
    target = product.dtype
    if chunks > 1:
        target = whole
        pointers[2] = printer.share("sums", printer.main.room(chunks * size * whole.itemsize))

    def body(code: Code, begin: Bound, end: Bound) -> None:
        places = -(-width // lanes) * lanes
        sums = code.room(places * wide.itemsize)
        totals = code.room(places * whole.itemsize) if long else sums
        with code.loop(begin, end) as part:
            rest, panel = split(code, part, panels)
            rest, chunk = split(code, rest, chunks)
            x, y, out = advance(code, product.loops, rest, pointers)
            first, column = times(code, chunk, terms), times(code, panel, width)
            x, y = code.offset(x, times(code, first, depth.x)), code.offset(y, times(code, first, depth.y))
            y = code.offset(y, times(code, column, product.dtype.itemsize))
            out = code.offset(out, times(code, chunk, size * whole.itemsize if chunks > 1 else 0))
            out = code.offset(out, times(code, column, target.itemsize))
            count = code.intrinsic("smin", code.integer(terms), code.sub(code.integer(k), code.integer(first)))
            is_last = code.compare("eq", code.integer(panel), code.integer(panels - 1))
            for columns, only_last in cases(width, size - (panels - 1) * width, panels):
                with ExitStack() as stack:
                    if only_last is not None:
                        stack.enter_context(code.when(is_last if only_last else code.not_(is_last)))
                    if not long:
                        _print_row_sums(code, machine, product, (x, y, sums), wide, count, columns)
                        _print_total(code, machine, sums, wide, 1, out, target, columns)
                        continue
                    _print_zeros(code, totals, whole, lanes, columns)
                    with pieces(code, 0, count, machine.loops.summands) as (begin, stop):
                        a, b = code.offset(x, times(code, begin, depth.x)), code.offset(y, times(code, begin, depth.y))
                        _print_row_sums(code, machine, product, (a, b, sums), wide, code.sub(stop, begin), columns)
                        _put_aside(code, machine, sums, wide, totals, whole, columns)
                    _print_total(code, machine, totals, whole, 1, out, target, columns)

    printer.parts(total, grain, body)
    if chunks > 1:
        _print_total(printer.main, machine, "%sums", whole, chunks, "%out0", product.dtype, size)


def _print_row_sums(
    code: Code,
    machine: Target,
    product: Product,
    pointers: tuple[str, str, str],
    wide: DType,
    terms: Bound,
    columns: int,
) -> None:
    """sums = x · y, over so many terms."""
    x, y, sums = pointers
    lanes, unit, (depth,) = machine.vector_bytes // wide.itemsize, product.dtype.itemsize, product.depth
    figures = machine.products

    def add(t: Bound, rows: int) -> None:
        a, b = code.offset(x, times(code, t, depth.x)), code.offset(y, times(code, t, depth.y))
        elements = [code.convert(code.load(code.offset(a, i * depth.x), product.dtype), wide) for i in range(rows)]
        factors = [code.splat(element, lanes) for element in elements]

        def vector(j: Bound, mask: Value | None) -> None:
            at, row = (code.offset(p, times(code, j, n)) for p, n in ((sums, wide.itemsize), (b, unit)))
            total = code.load(at, wide, lanes)
            for i, factor in enumerate(factors):
                far = code.offset(row, (i + figures.prefetched_rows) * depth.y)
                code.line(f"call void @llvm.prefetch.p0(ptr {far}, i32 0, i32 3, i32 1)")
                term = code.load(code.offset(row, i * depth.y), product.dtype, lanes, mask)
                total = add_product(code, factor, code.convert(term, wide), total)
            code.store(at, total)

        _for_vectors(code, lanes, columns, vector)

    code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    _print_zeros(code, sums, wide, lanes, columns)
    even = code.and_(code.integer(terms), code.integer(-figures.added_rows))
    with code.loop(0, even, figures.added_rows) as t:
        add(t, figures.added_rows)
    with code.loop(even, terms) as t:
        add(t, 1)


def _print_zeros(code: Code, sums: str, dtype: DType, lanes: int, columns: int) -> None:
    """Clears sums of so many columns, in whole vectors."""

    def zero(j: Bound, mask: Value | None) -> None:
        code.store(code.offset(sums, times(code, j, dtype.itemsize)), code.constant(0, dtype, lanes))

    _for_vectors(code, lanes, columns, zero)


def _put_aside(code: Code, machine: Target, sums: str, wide: DType, totals: str, dtype: DType, columns: int) -> None:
    """Adds sums to totals of a dtype."""
    lanes = machine.vector_bytes // wide.itemsize

    def add(j: Bound, mask: Value | None) -> None:
        at = code.offset(totals, times(code, j, dtype.itemsize))
        sum_ = code.load(code.offset(sums, times(code, j, wide.itemsize)), wide, lanes)
        code.store(at, code.add(code.load(at, dtype, lanes), code.convert(sum_, dtype)))

    _for_vectors(code, lanes, columns, add)


def _print_total(
    code: Code, machine: Target, sums: str, wide: DType, count: int, out: str, dtype: DType, columns: int
) -> None:
    """Writes the totals of so many lists of sums, which follow one another."""
    lanes = machine.vector_bytes // wide.itemsize

    def vector(j: Bound, mask: Value | None) -> None:
        at = code.offset(sums, times(code, j, wide.itemsize))
        total = code.load(at, wide, lanes, mask)
        for i in range(1, count):
            total = code.add(total, code.load(code.offset(at, i * columns * wide.itemsize), wide, lanes, mask))
        code.store(code.offset(out, times(code, j, dtype.itemsize)), code.convert(total, dtype), mask)

    _for_vectors(code, lanes, columns, vector)


def _for_vectors(code: Code, lanes: int, columns: int, body: Callable[[Bound, Value | None], None]) -> None:
    """Runs `body(first column, mask)` for all vectors."""
    whole = columns // lanes * lanes
    if whole:
        with code.loop(0, whole, lanes) as j:
            body(j, None)
    if columns > whole:
        body(whole, masks_of(code, lanes, columns - whole)[0])
