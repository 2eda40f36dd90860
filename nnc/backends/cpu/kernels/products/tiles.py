"""Prints the expensive parts of matrix products: the sums of tiles of registers, and the packing of panels for them.

They stand in the text of a kernel, with sizes and strides as constants; or they are kernels of their own, which take those as
arguments. The products of a program differ in little else, and LLVM takes longer for these than for all around them: so products
that are large enough for calls share them, compiled once, and their own texts are loops and calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import NamedTuple

from nnc.backends.cpu.kernels.vectors import add_product, masks_of, masks_up_to, read_row, write_row
from nnc.backends.moves import turn
from nnc.backends.printer import Bound, times
from nnc.base import dtypes
from nnc.base.dtypes import DType
from nnc.base.target import Target
from nnc.lower.kernels.builder import Carried, Code, Value
from nnc.lower.kernels.cascade import Cut, pieces, total_dtype
from nnc.lower.kernels.native import Native

TEXTS = 256  # kernels of one form, for tiles and distances, whose texts are remembered


class Tile(NamedTuple):
    """Sums in registers: `rows` by `vectors` of `lanes`, of operands of dtype `dtype`, the right one of which may be `packed`."""

    machine: Target
    dtype: DType
    wide: DType
    lanes: int
    rows: int
    vectors: int
    packed: bool

    @property
    def width(self) -> int:
        """Columns."""
        return self.lanes * self.vectors

    @property
    def row_bytes(self) -> int:
        """Bytes of a term in a packed panel."""
        return self.width * self.wide.itemsize

    def masks(self, code: Code, width: Bound) -> list[Value | None]:
        """Returns masks of the lanes of the vectors that are columns, where there are `width` of these."""
        if isinstance(width, int):
            return masks_of(code, self.lanes, width)
        return masks_up_to(code, self.lanes, self.vectors, width)


class Destination(NamedTuple):
    """The memory that sums are written to: a pointer, and the bytes to the next row and to the next column."""

    pointer: str
    row: Bound
    column: int
    dtype: DType


class TermLoop(NamedTuple):
    """A loop over terms: how many, and how many bytes further each lies in the left operand and the right one."""

    size: Bound
    x: Bound
    y: Bound


class Factors(NamedTuple):
    """The operands: pointers, and how many bytes further the next row of the left one and the next column of the right one lie."""

    x: str
    y: str
    row: Bound
    column: int


# -- sums --------------------------------------------------------------------------------------------------------------


def print_sums(
    code: Code, tile: Tile, factors: Factors, target: Destination, depth: Sequence[TermLoop], masks: Sequence[Value | None], *,
    more: bool, panel: str | None = None, cut: Cut | None = None,
) -> None:  # fmt: skip
    """Prints the sums of one tile.

    Args:
        more: whether the target holds the sums of earlier terms. They are added last, because terms that are added to a large
            sum lose digits.
        cut: the loop over terms that is cut into pieces.
        panel: the buffer in which the terms of the right operand are packed as they are read.
    """
    x, y, row, column = factors
    row = row if isinstance(row, int) else code.integer(row)
    lanes, zero = tile.lanes, code.constant(0, tile.wide, tile.lanes)
    ahead = tile.machine.products.prefetched_terms
    sums = Carried([zero] * (tile.rows * len(masks)))  # row by row
    totals = _Totals.begin(code, tile, len(sums.values)) if cut is not None else None
    packed = Carried([_address(code, panel)] if panel is not None else [])
    with ExitStack() as stack:
        for position, each in enumerate(depth):
            if cut is not None and totals is not None and position == cut.loop:
                begin, end = stack.enter_context(pieces(code, 0, each.size, cut.piece, (packed,)))
                sums.values = [zero] * len(sums.values)
                stack.callback(totals.add, code, sums)
                x, y = (code.offset(at, times(code, begin, step)) for at, step in ((x, each.x), (y, each.y)))
                each = each._replace(size=code.sub(end, begin))
            within = cut is None or position >= cut.loop
            x, y = stack.enter_context(_over(code, each, x, y, (sums, packed) if within else (packed,)))
        terms = [
            code.load(code.offset(y, v * lanes * tile.wide.itemsize), tile.wide, lanes)
            if tile.packed
            else code.convert(read_row(code, y, v * lanes, column, tile.dtype, lanes, mask), tile.wide)
            for v, mask in enumerate(masks)
        ]
        for place in packed.values:
            for v, term in enumerate(terms):
                code.store(code.offset(_pointer(code, place), v * lanes * tile.wide.itemsize), term)
            packed.values = [code.add(place, code.integer(tile.row_bytes))]
            fetch(code, tile.machine, y, times(code, depth[-1].y, ahead), tile.width * tile.dtype.itemsize)
        if row == tile.dtype.itemsize:
            fetch(code, tile.machine, x, times(code, depth[-1].x, ahead), tile.rows * row)
        for i in range(tile.rows):
            factor = code.load(code.offset(x, _several(code, row, i)), tile.dtype)
            factor = code.splat(code.convert(factor, tile.wide), lanes)
            for v, term in enumerate(terms, i * len(terms)):
                sums.values[v] = add_product(code, factor, term, sums.values[v])
    for i in range(tile.rows):
        at = code.offset(target.pointer, times(code, target.row, i))
        for v, mask in enumerate(masks):
            value = sums.values[i * len(masks) + v] if totals is None else totals.read(code, i * len(masks) + v)
            value = code.convert(value, target.dtype)
            if more:
                earlier = read_row(code, at, v * lanes, target.column, target.dtype, lanes, mask)
                value = code.add(earlier, value)
            write_row(code, at, v * lanes, target.column, value, mask, target.dtype.itemsize)


class _Totals(NamedTuple):
    """Totals of pieces of long sums. They stand in memory whose address is hidden from LLVM: it would put variables into
    registers, which hold the sums of a piece, and spill some of both.
    """

    pointer: str
    dtype: DType
    lanes: int

    @classmethod
    def begin(cls, code: Code, tile: Tile, count: int) -> _Totals:
        """Zeros, in so many vectors."""
        dtype = total_dtype(tile.wide)
        room = _pointer(code, _address(code, code.room(count * tile.lanes * dtype.itemsize)))
        totals = cls(room, dtype, tile.lanes)
        for i in range(count):
            code.store(totals._at(code, i), code.constant(0, dtype, tile.lanes))
        return totals

    def _at(self, code: Code, i: int) -> str:
        return code.offset(self.pointer, i * self.lanes * self.dtype.itemsize)

    def read(self, code: Code, i: int) -> Value:
        """One of the totals."""
        return code.load(self._at(code, i), self.dtype, self.lanes)

    def add(self, code: Code, sums: Carried) -> None:
        """Adds sums of a piece."""
        for i, sum_ in enumerate(sums.values):
            code.store(self._at(code, i), code.add(self.read(code, i), code.convert(sum_, self.dtype)))


def fetch(code: Code, machine: Target, place: str, distance: Bound, nbytes: int) -> None:
    """Prefetches elements at a distance: the processor sees no pattern in terms that are far from each other."""
    code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    place = code.offset(place, distance)
    for at in (*range(0, nbytes - 1, machine.memory.line_bytes), nbytes - 1):  # it may begin anywhere in a line
        code.line(f"call void @llvm.prefetch.p0(ptr {code.offset(place, at)}, i32 0, i32 3, i32 1)")


def _address(code: Code, pointer: str) -> Value:
    return Value(code.let(f"ptrtoint ptr {pointer} to i64"), dtypes.int64)


def _pointer(code: Code, address: Value) -> str:
    return code.let(f"inttoptr i64 {address.text} to ptr")


def _several(code: Code, step: Bound, i: int) -> Bound:
    """i · step, as a multiple by 1, 2, 4 or 8 of another distance: so far do instructions reach by themselves."""
    even = min(i & -i, 8) or 1
    return times(code, times(code, step, i // even), even)


@contextmanager
def _over(code: Code, terms: TermLoop, x: str, y: str, carried: Sequence[Carried]) -> Iterator[tuple[str, str]]:
    """The block runs for all terms, with pointers to each.

    Where distances are no constants, they are added to the pointers: beside the instructions that multiply there is room for few.
    """
    size, *steps = terms
    moves = not all(isinstance(step, int) for step in steps)
    places = Carried([_address(code, at) for at in (x, y) if moves])
    with code.loop(0, size, carried=(*carried, places)) as p:
        here = places.values
        if moves:
            x, y = (_pointer(code, place) for place in here)
        else:
            x, y = (code.offset(at, times(code, p, step)) for at, step in zip((x, y), steps, strict=True))
        yield x, y
        places.values = [code.add(place, code.integer(step)) for place, step in zip(here, steps, strict=False)]


# -- panels ------------------------------------------------------------------------------------------------------------


def print_panel(
    code: Code, tile: Tile, source: str, buffer: str, terms: TermLoop, column: Bound, width: Bound, *, whole: bool
) -> None:
    """Packs a panel: for each term a row of vectors. Lanes past the last column hold arbitrary numbers, which are not stored.

    Args:
        column: bytes from one column to the next.
        whole: whether the number of terms is a multiple of a vector's lanes.
    """
    unit, lanes = tile.dtype.itemsize, tile.lanes
    size, _, step = terms
    done: Bound = 0
    if step == unit and column != unit and tile.dtype == tile.wide and unit >= 4:
        even = size // lanes * lanes if isinstance(size, int) else code.and_(code.integer(size), code.integer(-lanes))
        done = size if whole else even
        if done != 0:
            with code.loop(0, done, lanes) as p, code.loop(0, width, lanes) as first:
                _print_turned(code, tile, source, buffer, (p, first), column, width)
    if done == size:
        return
    masks = tile.masks(code, width)
    with code.loop(done, size) as p:
        row = code.offset(source, times(code, p, step))
        target = code.offset(buffer, times(code, p, tile.row_bytes))
        for v, mask in enumerate(masks):
            value = read_row(code, row, v * lanes, column, tile.dtype, lanes, mask)
            code.store(code.offset(target, v * lanes * tile.wide.itemsize), code.convert(value, tile.wide))


def _print_turned(
    code: Code, tile: Tile, source: str, buffer: str, place: tuple[Value, Value], step: Bound, width: Bound
) -> None:
    """Packs as many terms of columns, whose terms are neighbours, as a vector has lanes; past the last column that again. `place`:
    the first term, and the first column.
    """
    p, first = place
    lanes, size = tile.lanes, tile.dtype.itemsize
    word = dtypes.float32 if size == 4 else dtypes.float64
    source = code.offset(code.offset(source, times(code, p, size)), times(code, first, step))
    target = code.offset(code.offset(buffer, times(code, p, tile.width * size)), times(code, first, size))
    if isinstance(width, int) and width % lanes == 0:
        columns = [code.offset(source, _several(code, step, j)) for j in range(lanes)]
    else:
        last = code.sub(code.sub(code.integer(width), code.integer(1)), first)
        columns = [
            code.offset(source, times(code, code.intrinsic("smin", last, code.integer(j)), step)) for j in range(lanes)
        ]
    for t, vector in enumerate(turn(code, [code.load(column, word, lanes) for column in columns])):
        code.store(code.offset(target, t * tile.width * size), vector)


# -- functions that products share -------------------------------------------------------------------------------------


def _arguments(names: Sequence[str]) -> list[Value]:
    return [Value(f"%{name}", dtypes.int64) for name in names]


@lru_cache(maxsize=TEXTS)
def shared_sums(
    tile: Tile, dtype: DType, axes: int, *, masked: bool, more: bool, packs: bool = False, turned: bool = False,
    cut: Cut | None = None,
) -> Native:  # fmt: skip
    """Returns the sums of tiles below each other, written as numbers of `dtype` that are neighbours in a row.

    `kernel(x, y, target, panel, rows, width, row of x, row of the target, *axes)`, with the number of terms and the steps in both
    operands for each of the `axes` of terms, the last of which lies row by row in a packed panel. There are a tile's rows at least;
    where they are no multiple, the last tile lies over its neighbour, and writes the same once more. Without `masked`, `width` is
    is the tile's width. `more` and `cut` as for `print_sums`. `packs`: the right operand is packed to `panel`. `turned`: rows of x
    are neighbours.
    """
    numbers = ["rows", "width", "row.x", "row.out", *(f"{name}{i}" for i in range(axes) for name in ("n", "x", "y"))]
    pointers = ("x", "y", "out", "panel")
    code = Code("KERNEL", [*(("ptr", name) for name in pointers), *(("i64", name) for name in numbers)])
    rows, width, any_row, row_out, *steps = _arguments(numbers)
    row_x: Bound = tile.dtype.itemsize if turned else any_row
    depth = [TermLoop(*steps[i : i + 3]) for i in range(0, 3 * axes, 3)]
    if tile.packed:
        depth[-1] = depth[-1]._replace(y=code.integer(tile.row_bytes))
    masks = tile.masks(code, width if masked else tile.width)
    factors = Factors("%x", "%y", row_x, tile.dtype.itemsize)
    target = Destination("%out", row_out, dtype.itemsize, dtype)
    with code.loop(0, rows, tile.rows) as i:
        first = code.intrinsic("smin", i, code.sub(rows, code.integer(tile.rows)))
        moved = factors._replace(x=code.offset("%x", times(code, first, row_x)))
        place = target._replace(pointer=code.offset("%out", code.mul(first, row_out)))
        panel = "%panel" if packs else None
        print_sums(code, tile, moved, place, depth, masks, more=more, panel=panel, cut=cut)
    return alone(code)


@lru_cache(maxsize=TEXTS)
def shared_panel(tile: Tile, step: int | None, column: int | None, *, masked: bool, whole: bool) -> Native:
    """Returns the packing of a panel: `kernel(source, buffer, terms, step, column, width)`.

    `step` and `column` are the bytes from term to term and from column to column, None where they are arguments. Without `masked`,
    `width` is the panel's width. `whole`: the number of terms is a multiple of a vector's lanes.
    """
    numbers = ["terms", "step", "column", "width"]
    code = Code("KERNEL", [("ptr", "source"), ("ptr", "buffer"), *(("i64", name) for name in numbers)])
    terms, any_step, any_column, any_width = _arguments(numbers)
    width = any_width if masked else tile.width
    along, across = TermLoop(terms, 0, any_step if step is None else step), any_column if column is None else column
    print_panel(code, tile, "%source", "%buffer", along, across, width, whole=whole)
    return alone(code)


def alone(code: Code) -> Native:
    """Returns the kernel of one function `KERNEL`, whose body is printed."""
    code.ret(code.integer(0))
    return Native("\n".join([code.text(), *sorted(code.declarations), ""]))
