"""Chooses how a matrix product is cut into tiles, panels and parts, from the figures of the machine."""

from __future__ import annotations

import math
from typing import NamedTuple

from nnc.backends.cpu.kernels.products.tiles import Tile
from nnc.backends.products import Axis, Product
from nnc.base.dtypes import DType
from nnc.base.target import Products, Target
from nnc.device.model import tiles
from nnc.lower.kernels.sizes import decided, derived, is_number

_FEW_TILES = 4  # beyond, rows that are computed twice are few


class Shape(NamedTuple):
    """The tiling of a product: parts of `chunk` rows by `group` panels of columns, and those into tiles. `shared`: tiles and
    panels are computed by functions that products share. A part goes through as many iterations of the loops `again` as there
    are `turns`, with the same packed panels. `copied`: so many rows of the left matrix are copied at once, for all
    panels of the part.
    """

    tile: Tile
    chunk: int
    group: int
    shared: bool
    again: tuple[Axis, ...]
    turns: int
    copied: int = 0

    def has_any_rows(self, product: Product) -> bool:
        """Whether one code serves parts of any number of rows: at least a tile of them, with sums that are done at once."""
        if self.copied:
            return False
        if is_number(product.rows.size):
            return not self.is_long(product)
        last = product.rows.size % self.chunk
        return (not last or last >= self.tile.rows) and not self.is_long(product)

    def chunks(self, product: Product) -> int:
        """The number of parts of some rows. Where it is a number of the kernel, each part has at least a tile of rows."""
        rows = product.rows.size
        return (rows + self.chunk - self.tile.rows) // self.chunk if is_number(rows) else -(-rows // self.chunk)

    def is_long(self, product: Product) -> bool:
        """Whether a packed panel holds some of the terms only."""
        return self.tile.packed and product.k > self.tile.machine.products.panel_terms

    def panel_bytes(self, product: Product) -> int:
        """Bytes of a packed panel."""
        return min(product.k, self.tile.machine.products.panel_terms) * self.tile.row_bytes

    def strip_bytes(self, product: Product) -> int:
        """Bytes of the rows of the left matrix that are copied."""
        return min(product.k, self.tile.machine.products.panel_terms) * self.copied * product.dtype.itemsize


def oriented_for_tiles(product: Product) -> Product:
    """Returns the product, or its transpose, so that neighbours in the result are neighbours in a vector."""

    def cost(p: Product) -> tuple[bool, bool, int]:
        unit = p.dtype.itemsize
        return p.columns.size > 1 and p.columns.out != unit, p.columns.y != unit, -p.columns.size

    return min(product, product.turned(), key=cost)


def shape_of(product: Product, wide: DType, machine: Target, *, finished: bool = False) -> Shape | None:
    """Chooses the tiles of a product whose sums are of dtype `wide`; None where they are too long to go on from a rounded result,
    unless they are `finished` from memory of their own. Tiles are integers; the number of rows may be a kernel's number.
    """
    unit, m, n = product.dtype.itemsize, product.rows.size, product.columns.size
    figures, memory = machine.products, machine.memory
    lanes = machine.vector_bytes // wide.itemsize
    while lanes > 2 and lanes // 2 >= n:
        lanes //= 2
    needed = -(-n // lanes)
    terms = min(product.k, figures.panel_terms)
    near_bytes = memory.second_cache_bytes // 2
    table = {v: rows for v, rows in tiles(machine.registers).items() if v * machine.vector_bytes * terms <= near_bytes}
    m = m if m >= max(table.values()) else int(m)
    is_near = m * product.k * unit <= near_bytes
    narrow = (
        figures.slow_second_cache
        and terms * 4 * machine.vector_bytes > memory.first_cache_bytes * 2 // 3
        and (is_near or product.rows.x % figures.displacing_bytes != 0)
    )
    most = 2 if narrow else max(table)
    options = [v for v in table if v <= min(needed, most) and (table[v] >= 4 or m < 4)] or [1]

    # As few panels' vectors as possible, of tiles that read little for the products they form: rows + vectors for rows · vectors.
    # Where few rows are no whole tiles, some are computed twice.
    def best(m: int) -> int:
        def cost(v: int) -> float:
            rows, doubled = min(table[v], m), 1.0
            if m < _FEW_TILES * max(table.values()):
                count = -(-m // rows)
                rows = -(-m // count)
                doubled = count * rows / m
            read = (rows + v) / (rows * v)  # for a product; cores read no more than they multiply
            return -(-needed // v) * v * doubled * max(read, 1) * (1 + figures.read_cost * read)

        return min(options, key=cost)

    vectors = decided(best, m)
    rows = min(table[vectors], m)
    rows = int(-(-m // -(-m // rows)))  # tiles of nearly equal size
    direct = product.columns.y == unit or n == 1
    again = tuple(axis for axis in product.loops if not axis.y)
    groups = panels = -(-needed // vectors)
    if narrow and not is_near:
        groups = -(-panels // max(near_bytes // (2 * terms * vectors * machine.vector_bytes), 1))
        groups = min(max(groups, -(-figures.parts // (product.count * -(-m // figures.enough_rows)))), panels)
    copied = 0
    if panels > 1 and lies_far(product, figures):
        copied = max(near_bytes // (4 * terms * unit) // rows, 1) * rows
        groups = -(-panels // max(near_bytes // (terms * vectors * machine.vector_bytes), 1))
    groups = int(groups)

    def rows_of_part(turns: int) -> int:
        parts, most = groups * product.count // turns, m * turns
        wanted = most
        if parts < figures.parts and product.volume * turns > figures.part_volume:
            wanted = derived(max, figures.least_rows, -(-most // -(-figures.parts // parts)))
            wanted = -(-wanted // rows) * rows
        return derived(min, most, wanted)

    repeated = int(math.prod(axis.size for axis in again))
    chunk = rows_of_part(repeated)
    # A copy pays where it is read by many rows; sooner where it is converted on the way, or brings far rows together.
    is_far = wide != product.dtype or any(abs(axis.y) >= figures.displacing_bytes for axis in product.depth)
    many = chunk > rows if narrow else m * repeated >= figures.far_rows if is_far else chunk >= figures.packed_rows
    rounds_twice = wide != product.dtype and product.k > figures.panel_terms and not finished
    lies_ready = direct and wide == product.dtype and product.depth[-1].y == n * unit and vectors == needed
    pays = product.k * n * unit > figures.unpacked_bytes and many
    packed = not direct or (pays and not rounds_twice and not lies_ready)
    if packed and rounds_twice:
        return None
    tile = Tile(machine, product.dtype, wide, lanes, rows, vectors, packed)
    group = -(-panels // groups) if packed else 1
    is_long = packed and product.k > figures.panel_terms
    if not (packed or lies_ready) or (finished and is_long) or chunk < m:
        again = ()
    turns = int(-(-chunk // m)) if again else 1
    chunk = m if again else rows_of_part(1)
    if finished and is_long:
        room = figures.sum_bytes // tile.row_bytes
        chunk, group = min(chunk, max(room // rows, 1) * rows), 1
    is_even = product.columns.out == unit and (packed or product.columns.y == unit)
    is_large = (
        product.volume * product.count >= figures.shared_volume and rows * tile.width * product.k > figures.shared_tile
    )
    return Shape(tile, chunk, group, is_even and is_large, again, turns, copied if packed else 0)


def lies_far(product: Product, figures: Products) -> bool:
    """Whether the terms of a large left operand, whose rows are neighbours, displace each other in the caches."""
    rows, unit = product.rows, product.dtype.itemsize
    if is_number(rows.size) or rows.x != unit or product.k * rows.size * unit <= figures.sum_bytes:
        return False
    step = abs(product.depth[-1].x)
    return step >= figures.displacing_bytes and step % figures.displacing_bytes == 0
