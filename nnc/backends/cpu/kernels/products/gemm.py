"""Prints matrix products: tiles of registers that are updated term by term.

A tile is a few rows by a few vectors of columns. For each term of the sums, the vectors are read from a row of the right matrix;
each row multiplies them by its element of the left one (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
2008). The right matrix is packed, a panel of columns at a time, where it is not read as it lies: transposed, or long enough to pay.
The first tile packs its operand for the tiles below it. Where the left matrix stays in no cache near, a few rows of it meet several
panels before the next rows do. Where its terms displace each other, as those of transposed matrices do, these rows are copied.
Where rows lie at uneven distances, as the positions of images do, the product is a loop over
matrices with the same right one, which is packed once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Protocol

from nnc.backends.cpu.kernels.products.tiles import (
    Destination,
    Factors,
    TermLoop,
    alone,
    fetch,
    print_panel,
    print_sums,
    shared_panel,
    shared_sums,
)
from nnc.backends.cpu.kernels.products.tiling import Shape
from nnc.backends.cpu.kernels.vectors import advance, split, write_row
from nnc.backends.printer import Bound, Printer, minus, plus, times
from nnc.backends.products import Axis, Product
from nnc.base import dtypes
from nnc.base.target import Products
from nnc.lower.kernels.builder import Code, Value
from nnc.lower.kernels.cascade import Cut, cut_of
from nnc.lower.kernels.sizes import derived, is_number

_AHEAD = 16  # terms between the one that is copied and the one that is prefetched
_NUMBERS = "first", "end", "width"  # numbers that a kernel takes which finishes rows


class Finish(Protocol):
    """The last computation on a tile's sums, which takes the place of writing them as the result."""

    @property
    def pointers(self) -> Sequence[str]:
        """The tensors that it reads along with the result; `Axis.more` gives their strides."""
        ...

    def fetch(self, code: Code, pointers: Sequence[str], rows: int, width: int) -> None:
        """Prefetches the elements of so many rows, which lie in as many places."""
        ...

    def rows(
        self,
        code: Code,
        sums: Destination,
        pointers: Sequence[str],
        first: Bound,
        end: Bound,
        masks: Sequence[Value | None],
    ) -> None:
        """Finishes the rows first..end of some sums; `masks` has a mask for each of their vectors. Pointers point to row 0."""
        ...


def _as_it_lies(axes: Sequence[Axis]) -> list[TermLoop]:
    """The terms of operands that are not packed."""
    return [TermLoop(axis.size, axis.x, axis.y) for axis in axes]


def _cut(sizes: Sequence[Bound], figures: Products) -> Cut | None:
    """Returns the cut of the terms of a tile that are not packed. Where they would fill a few panels, they go in pieces as long
    as a panel's: to put the sums of a tile aside takes as long as 8 terms.
    """
    few = 8 * figures.panel_terms
    return cut_of(sizes, figures.summands, few) or cut_of(sizes, figures.panel_terms, figures.panel_terms)


# -- parts -------------------------------------------------------------------------------------------------------------


def print_tiles(printer: Printer, product: Product, shape: Shape, finish: Finish | None = None) -> None:
    """The whole product: parts of some panels and some rows, which threads share."""
    tile, full_width = shape.tile, shape.group * shape.tile.width
    groups = -(-product.columns.size // full_width)
    chunks = shape.chunks(product)
    loops = [axis for axis in product.loops if axis not in shape.again]
    turns = int(math.prod(axis.size for axis in shape.again))
    pieces = -(-turns // shape.turns)
    total = math.prod(axis.size for axis in loops) * groups * chunks * pieces
    volume = product.volume * product.count // total
    grain = derived(max, 1, tile.machine.products.part_volume // derived(max, volume, 1))
    tensors = (*product.operands, "%out0", *(finish.pointers if finish is not None else ()))

    def body(code: Code, begin: Bound, end: Bound) -> None:
        buffer = code.room(shape.group * shape.panel_bytes(product)) if tile.packed else ""
        sums = _room_for_sums(code, product, shape) if finish is not None else None
        strip = code.room(shape.strip_bytes(product)) if shape.copied else ""
        with code.loop(begin, end) as part:
            rest, group = split(code, part, groups)
            rest, chunk = split(code, rest, chunks)
            rest, piece = split(code, rest, pieces)
            first, last = times(code, piece, shape.turns), turns - (pieces - 1) * shape.turns
            length = last if pieces == 1 else _pick(code, piece, pieces, shape.turns, last)
            within = first, plus(code, first, length)
            pointers = advance(code, loops, rest, tensors)
            pointers = _moved(code, pointers, product.columns, times(code, group, full_width))
            pointers = _moved(code, pointers, product.rows, times(code, chunk, shape.chunk))
            last_rows = product.rows.size - (chunks - 1) * shape.chunk
            last_width = product.columns.size - (groups - 1) * full_width
            for width in _sizes(code, group, groups, full_width, last_width, any_size=tile.machine.has_masks):
                for rows in _sizes(code, chunk, chunks, shape.chunk, last_rows, any_size=shape.has_any_rows(product)):
                    _Part(
                        printer, code, product, shape, pointers, buffer, rows, width, within, finish, sums, strip
                    ).print()

    printer.parts(total, grain, body)


def _moved(code: Code, pointers: Sequence[str], axis: Axis, index: Bound) -> list[str]:
    """Returns the pointers further along an axis."""
    return [code.offset(at, times(code, index, step)) for at, step in zip(pointers, axis.strides, strict=True)]


def _sizes(code: Code, number: Bound, count: int, full: int, last: int, *, any_size: bool) -> Iterator[Bound]:
    """The sizes of parts; the last part is smaller. Code that takes `any_size` gets a size known at run time; otherwise each
    size has code of its own.
    """
    if not (any_size and is_number(count)) and (count == 1 or full == last):
        yield int(last)
        return
    if any_size:
        yield _pick(code, number, count, full, last)
        return
    is_last = code.compare("eq", code.integer(number), code.integer(count - 1))
    for size, here in ((full, code.not_(is_last)), (last, is_last)):
        with code.when(here):
            yield int(size)


def _pick(code: Code, number: Bound, count: int, full: int, last: int) -> Bound:
    """Returns the size of a part, the last of which is smaller."""
    is_last = code.compare("eq", code.integer(number), code.integer(count - 1))
    return code.select(is_last, code.integer(last), code.integer(full))


def _room_for_sums(code: Code, product: Product, shape: Shape) -> Destination:
    """Memory for the sums that an epilogue reads: of a tile, or of a whole part where panels follow one another."""
    tile = shape.tile
    rows = shape.chunk if shape.is_long(product) else tile.rows
    return Destination(code.room(rows * tile.row_bytes), tile.row_bytes, tile.wide.itemsize, tile.wide)


class _Part(NamedTuple):
    """A part of a product: panels of `width` columns together, and rows, with pointers to the operands, the result and the
    tensors that `finish` reads. `finish` finds the sums at `sums`.
    """

    printer: Printer
    code: Code
    product: Product
    shape: Shape
    pointers: Sequence[str]
    buffer: str
    rows: Bound
    width: Bound
    turns: tuple[Bound, Bound]
    finish: Finish | None
    sums: Destination | None
    strip: str

    def print(self) -> None:
        """Prints the part: all terms at once, or some at a time."""
        code, product, tile = self.code, self.product, self.shape.tile
        x, y = self.pointers[:2]
        if not tile.packed:
            with self._each_turn(x) as (part, x):
                part._tiles(x, y, _as_it_lies(product.depth), more=False)
            return
        if not self.shape.is_long(product):
            self._block(x, y, product.depth, more=False)
            return
        self._zeros()
        at, below, room = len(product.depth) - 1, 1, tile.machine.products.panel_terms
        while (
            at and below * product.depth[at].size <= room
        ):  # these fit in a panel, with some iterations of the one before
            below *= product.depth[at].size
            at -= 1
        outer, cut, inner = product.depth[:at], product.depth[at], product.depth[at + 1 :]
        with ExitStack() as stack:
            for axis in outer:
                i = stack.enter_context(code.loop(0, axis.size))
                x, y = code.offset(x, times(code, i, axis.x)), code.offset(y, times(code, i, axis.y))

            def block(first: Bound, terms: int) -> None:
                a, b = code.offset(x, times(code, first, cut.x)), code.offset(y, times(code, first, cut.y))
                self._block(a, b, [cut._replace(size=terms), *inner], more=True)

            most = room // below
            whole = cut.size // most * most
            if whole:
                with code.loop(0, whole, most) as first:
                    block(first, most)
            if cut.size % most:
                block(whole, cut.size % most)
        if self.finish is not None and self.sums is not None:
            self._end(self.finish, self.sums, self.pointers[3:], 0, self.rows)

    @contextmanager
    def _each_turn(self, x: str) -> Iterator[tuple[_Part, str]]:
        """Runs the block for each turn: yields the part with pointers for it, and the address of the left operand's terms."""
        if not self.shape.again:
            yield self, x
            return
        with self.code.loop(*self.turns) as turn:
            x, *pointers = advance(self.code, self.shape.again, turn, [x, *self.pointers[1:]])
            yield self._replace(pointers=[self.pointers[0], *pointers]), x

    def _block(self, x: str, y: str, axes: Sequence[Axis], *, more: bool) -> None:
        """Multiplies all tiles for these terms. The first one packs them for the others as it reads them; for several turns, and
        where they are to be turned, they are packed before.
        """
        tile, column = self.shape.tile, self.product.columns.y
        step, depth = tile.row_bytes, list[TermLoop]()
        for axis in reversed(axes):
            depth.insert(0, TermLoop(axis.size, axis.x, step))
            step *= axis.size
        is_direct, done = column == tile.dtype.itemsize and not self.shape.again, 0
        if is_direct:
            done = min(tile.rows, self.rows) if isinstance(self.rows, int) else tile.rows
        with self._each_panel(y, tile.width * column) as (part, at):
            if is_direct:
                part._tile(x, at, _as_it_lies(axes), 0, done, done, more=more, packs=True)
            else:
                part._pack(at, axes)
        with self._each_turn(x) as (part, x):
            part._tiles(x, self.buffer, depth, more=more, begin=done)

    @contextmanager
    def _each_panel(self, y: str, step: int) -> Iterator[tuple[_Part, str]]:
        """Runs the block for each panel: yields the part of the panel alone, and the address of its terms, `step` bytes from panel
        to panel.
        """
        code, tile, product = self.code, self.shape.tile, self.product
        if self.shape.group == 1:
            yield self, y
            return
        left = code.add(code.integer(self.width), code.integer(tile.width - 1))
        with code.loop(0, code.div(left, code.integer(tile.width))) as panel:
            column = times(code, panel, tile.width)
            width: Bound = tile.width
            if product.columns.size % tile.width:
                width = code.intrinsic("smin", code.integer(width), code.integer(minus(code, self.width, column)))
            yield (
                self._replace(
                    shape=self.shape._replace(group=1),
                    pointers=_moved(code, self.pointers, product.columns, column),
                    buffer=code.offset(self.buffer, times(code, panel, self.shape.panel_bytes(product))),
                    width=width,
                ),
                code.offset(y, times(code, panel, step)),
            )

    @property
    def masks(self) -> list[Value | None]:
        """Returns masks of the lanes of the panel's vectors that are columns."""
        return self.shape.tile.masks(self.code, self.width)

    @property
    def target(self) -> Destination:
        """The memory that sums are written to."""
        rows, columns = self.product.rows, self.product.columns
        return self.sums or Destination(self.pointers[2], rows.out, columns.out, self.product.dtype)

    @property
    def is_full(self) -> bool:
        """Whether each vector of the panel is full of columns."""
        return self.width == self.shape.tile.width

    def _tiles(self, x: str, y: str, depth: Sequence[TermLoop], *, more: bool, begin: int = 0) -> None:
        """All tiles below each other from the row `begin` on; `more`: the result has the sums of earlier terms."""
        for first, rows, high in self._runs(begin, over=not more):
            block = self.shape.copied // high * high
            if not block or not isinstance(rows, int):
                self._run(x, y, depth, first, rows, high, more=more)
                continue
            rest = rows % block
            if rows > rest:
                with self.code.loop(first, first + rows - rest, block) as i:
                    self._run(*self._copied(x, y, depth, i, block), i, block, high, more=more, lies_near=True)
            if rest:
                count, done = max(rest, high), max(high - rest, 0)
                at = first + rows - count
                left = self._copied(x, y, depth, at, count)
                self._run(*left, at, count, high, more=more, lies_near=True, done=done)

    def _run(
        self, x: str, y: str, depth: Sequence[TermLoop], first: Bound, rows: Bound, high: int, *,
        more: bool, lies_near: bool = False, done: int = 0,
    ) -> None:  # fmt: skip
        """Tiles of `high` rows from `first` on, of which `done` are finished.

        Args:
            lies_near: the left operand does, and meets one panel after the other.
        """
        code, step = self.code, self.shape.panel_bytes(self.product)
        is_one_call = self.shape.shared and (self.shape.group == 1 or lies_near) and (self.finish is None or more)

        def tile(at: Bound, high: int, rows: Bound, done: Bound = 0) -> None:
            with self._each_panel(y, step) as (part, place):
                part._tile(x, place, depth, at, high, rows, more=more, done=done)

        if rows == high or is_one_call:
            tile(first, high, rows, done)
        elif isinstance(rows, int) and rows % high == 0:
            with code.loop(0, rows, high) as i:
                tile(plus(code, first, i), high, high)
        else:
            count = code.div(code.add(code.integer(rows), code.integer(high - 1)), code.integer(high))
            with code.loop(0, count) as i:
                wanted = code.add(code.integer(first), code.mul(i, code.integer(high)))
                last = code.sub(code.add(code.integer(first), code.integer(rows)), code.integer(high))
                at = code.intrinsic("smin", wanted, last)
                tile(at, high, high, code.sub(wanted, at))

    def _copied(
        self, x: str, y: str, depth: Sequence[TermLoop], first: Bound, rows: int
    ) -> tuple[str, str, list[TermLoop]]:
        """Copies some rows, which are neighbours, term by term; returns the operands and terms of tiles that read the copy."""
        code, tile, size = self.code, self.shape.tile, self.product.dtype.itemsize
        begin, terms = times(code, first, size), list[TermLoop]()
        step: Bound = rows * size
        for axis in reversed(depth):
            terms.insert(0, axis._replace(x=step))
            step = times(code, step, axis.size)
        source, target, lanes = code.offset(x, begin), self.strip, min(tile.lanes, rows)
        with ExitStack() as stack:
            for axis, there in zip(depth, terms, strict=True):
                p = stack.enter_context(code.loop(0, axis.size))
                source = code.offset(source, times(code, p, axis.x))
                target = code.offset(target, times(code, p, there.x))
            fetch(code, tile.machine, source, times(code, depth[-1].x, _AHEAD), rows * size)
            for at in (*range(0, rows - lanes, lanes), rows - lanes):
                value = code.load(code.offset(source, at * size), self.product.dtype, lanes)
                code.store(code.offset(target, at * size), value)
        return code.offset(self.strip, minus(code, 0, begin)), y, terms

    def _runs(self, begin: int, *, over: bool) -> list[tuple[int, Bound, int]]:
        """Returns the first row, the number of rows and the rows of a tile, of tiles with equally many, from the row `begin`
        on; where they do not divide the number of rows, the last one lies `over` its neighbour, and writes the same once more,
        if it may.
        """
        most = self.shape.tile.rows
        if not isinstance(self.rows, int):
            return [(begin, self.code.sub(self.rows, self.code.integer(begin)), most)]
        rows = self.rows - begin
        if not rows:
            return []
        if over and self.rows > most:
            return [(begin, rows, most)]
        high = min(rows, most)
        rest = rows % high
        return [(begin, rows - rest, high), *([(begin + rows - rest, rest, rest)] if rest else [])]

    def _tile(
        self, x: str, y: str, depth: Sequence[TermLoop], at: Bound, high: int, rows: Bound, *,
        more: bool, done: Bound = 0, packs: bool = False,
    ) -> None:  # fmt: skip
        """The `rows` from `at` on in tiles of `high`; the first `done` are finished. `packs`: the panel is packed as it is read."""
        code, target, finish = self.code, self.target, self.finish
        x = code.offset(x, times(code, at, self.product.rows.x))
        if finish is None or more:
            target = target._replace(pointer=code.offset(target.pointer, times(code, at, target.row)))
            self._sums(x, y, target, depth, high, rows, more=more, packs=packs)
            return
        steps = self.product.rows.more
        moved = [code.offset(p, times(code, at, k)) for p, k in zip(self.pointers[3:], steps, strict=True)]
        finish.fetch(code, moved, high, self.width if isinstance(self.width, int) else self.shape.tile.width)
        self._sums(x, y, target, depth, high, rows, more=more, packs=packs)
        self._end(finish, target, moved, done, high)

    def _end(self, finish: Finish, sums: Destination, pointers: Sequence[str], first: Bound, end: Bound) -> None:
        """Finishes rows, in a kernel of its own where tiles are: the text around it is light."""
        if not self.shape.shared:
            finish.rows(self.code, sums, pointers, first, end, self.masks)
            return
        tile, names = self.shape.tile, [f"more{k}" for k in range(len(pointers))]
        code = Code("KERNEL", [*(("ptr", name) for name in ("sums", *names)), *(("i64", n) for n in _NUMBERS)])
        start, stop, width = (Value(f"%{name}", dtypes.int64) for name in _NUMBERS)
        masks = tile.masks(code, tile.width if self.is_full else width)
        finish.rows(code, sums._replace(pointer="%sums"), [f"%{name}" for name in names], start, stop, masks)
        self.printer.call(self.code, alone(code), sums.pointer, *pointers, first, end, self.width)

    def _sums(
        self,
        x: str,
        y: str,
        target: Destination,
        depth: Sequence[TermLoop],
        high: int,
        rows: Bound,
        *,
        more: bool,
        packs: bool,
    ) -> None:
        code, product = self.code, self.product
        tile = self.shape.tile._replace(rows=high, packed=self.shape.tile.packed and not packs)
        cut = _cut([terms.size for terms in depth], tile.machine.products) if dtypes.is_float(tile.wide) else None
        if self.shape.shared:
            if self.is_full and tile.dtype == tile.wide:  # a panel is read like any matrix
                tile = tile._replace(packed=False)
            turned, masked = product.rows.x == tile.dtype.itemsize, not self.is_full
            kind = tile, target.dtype, len(depth)
            function = shared_sums(*kind, masked=masked, more=more, packs=packs, turned=turned, cut=cut)
            sizes = [rows, self.width, product.rows.x, target.row, *(number for terms in depth for number in terms)]
            self.printer.call(code, function, x, y, target.pointer, self.buffer if packs else "null", *sizes)
        else:
            factors = Factors(x, y, product.rows.x, product.columns.y)
            panel = self.buffer if packs else None
            print_sums(code, tile, factors, target, depth, self.masks, more=more, panel=panel, cut=cut)

    def _pack(self, y: str, depth: Sequence[Axis]) -> None:
        """Writes the panel of these terms."""
        code, tile, column = self.code, self.shape.tile, self.product.columns.y
        *outer, inner = depth
        buffer, unit = self.buffer, tile.dtype.itemsize
        whole = not is_number(inner.size) and inner.size % tile.lanes == 0
        with ExitStack() as stack:
            step = tile.row_bytes * inner.size
            for axis in reversed(outer):
                i = stack.enter_context(code.loop(0, axis.size))
                y, buffer = code.offset(y, times(code, i, axis.y)), code.offset(buffer, times(code, i, step))
                step *= axis.size
            if self.shape.shared:
                known = [unit if n == unit else None for n in (inner.y, column)]
                function = shared_panel(tile, *known, masked=not self.is_full, whole=whole)
                self.printer.call(code, function, y, buffer, inner.size, inner.y, column, self.width)
            else:
                print_panel(code, tile, y, buffer, TermLoop(inner.size, 0, inner.y), column, self.width, whole=whole)

    def _zeros(self) -> None:
        code, lanes = self.code, self.shape.tile.lanes
        with (
            self._each_turn("") as (turn, _),
            turn._each_panel(self.buffer, 0) as (part, _),
            code.loop(0, self.rows) as i,
        ):
            target = part.target
            row = code.offset(target.pointer, times(code, i, target.row))
            for v, mask in enumerate(part.masks):
                zero = code.constant(0, target.dtype, lanes)
                write_row(code, row, v * lanes, target.column, zero, mask, target.dtype.itemsize)
