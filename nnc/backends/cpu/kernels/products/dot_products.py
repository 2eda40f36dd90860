"""Prints products of matrices with few columns, whose terms are neighbours in both operands, as dot products of vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

from nnc.backends.cpu.kernels.vectors import add_product, advance, masks_of, split
from nnc.backends.printer import Bound, Printer, times
from nnc.backends.products import Product
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.device.target import Loops, Target
from nnc.lower.kernels.builder import Code, Slot, Value
from nnc.lower.kernels.cascade import cut_of, pieces, total_dtype

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
    rows, columns, inner = product.rows, product.columns, product.depth[-1]
    machine = printer.machine
    lanes = machine.vector_bytes // wide.itemsize
    while lanes > 2 and lanes // 2 >= inner.size:
        lanes //= 2
    tile = min(rows.size, _DOT_ROWS[machine.vector_bytes][columns.size - 1])
    tiles = -(-rows.size // tile)
    total = product.count * tiles
    grain = max(1, machine.products.streamed_part_volume // max(1, product.volume * product.count // total))

    def body(code: Code, begin: Bound, end: Bound) -> None:
        with code.loop(begin, end) as part:
            rest, at = split(code, part, tiles)
            a, b, c = advance(code, product.loops, rest, (left, right, "%out0"))
            first = times(code, at, tile)
            if rows.size % tile:  # the last tile lies over its neighbour
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
