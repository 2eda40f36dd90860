"""Prints products of one row with a matrix whose rows lie one after the other: a vector times a matrix.

Reading the matrix limits them: each of its elements is read once. Hence the matrix is read in the order of memory, which the
processor predicts, rather than in panels of columns: one row after the other is added to sums that stay in the nearest cache.
Threads share the terms where there are too few columns to share; how many parts there are depends on the sizes alone, and so
does the result.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from nnc.backends.cpu.kernels.vectors import add_product, advance, cases, masks_of, split
from nnc.backends.printer import Bound, Printer, times
from nnc.backends.products import Product
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.device.target import Target
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.cascade import pieces, total_dtype


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
                        _print_sums(code, machine, product, (x, y, sums), wide, count, columns)
                        _print_total(code, machine, sums, wide, 1, out, target, columns)
                        continue
                    _print_zeros(code, totals, whole, lanes, columns)
                    with pieces(code, 0, count, machine.loops.summands) as (begin, stop):
                        a, b = code.offset(x, times(code, begin, depth.x)), code.offset(y, times(code, begin, depth.y))
                        _print_sums(code, machine, product, (a, b, sums), wide, code.sub(stop, begin), columns)
                        _put_aside(code, machine, sums, wide, totals, whole, columns)
                    _print_total(code, machine, totals, whole, 1, out, target, columns)

    printer.parts(total, grain, body)
    if chunks > 1:
        _print_total(printer.main, machine, "%sums", whole, chunks, "%out0", product.dtype, size)


def _print_sums(
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
