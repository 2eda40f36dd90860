"""The model by which tiles, panels, blocks and parts follow from the facts that a machine's system tells.

It is stated here alone:

- **Tiles.** The sums of a tile, one vector of each of its columns and one element of the other operand fill the registers:
  r · v + v + 1 of 16 or 32. 14 rows hide the latency of additions on every core known, so no tile has more.
- **Panels.** A packed panel takes half of the second-level cache at most; the rows that meet it pass through the other half.
  No panel has more than 1,024 terms. Rows of a left matrix that displace each other are copied, an eighth of that cache at a time.
  A copy of far rows takes as long with any vectors, and the products that it speeds up less with long ones: it pays from 48 rows
  on with 512 bits, from 24 on with 256 (32 × 512 × 2,048 on Zen 4: 40 GFLOP/s without it, 65 with it).
- **Values that stay.** A value takes a quarter of the second-level cache at most to be there when it is read. A row that several
  phases traverse takes an eighth, since its operands lie beside it; a matrix below an eighth needs no copy.
- **The nearest cache.** A quarter of it holds sums that are added to again and again. Rows as far apart as the bytes of one of its
  ways displace each other.
- **Parts.** A product has two parts for each core, and 16 at least, so that the last ones are short.

Sizes above those that were measured (1 MiB of second-level cache) are not used: no gain was seen there.
"""

from __future__ import annotations

from dataclasses import replace

from nnc.base.target import Target

_ROWS = 14  # of a tile
_TERMS = 1024  # of a panel
_PARTS = 16
_PARTS_OF_A_CORE = 2
_SECOND_CACHE = 1 << 20  # bytes, up to which sizes were measured
_NEAR_BYTES = 1 << 13  # two pages
_FLOAT = 4  # bytes
_FAR_ROWS, _VECTOR_BYTES = 48, 64  # measured with vectors of 512 bits


def tile_rows(registers: int, vectors: int, most: int = _ROWS) -> int:
    """Returns the rows of a tile of so many vectors; 0 where none fits.

    Args:
        registers: vector registers of the processor.
        vectors: vectors of columns.
        most: rows at most.
    """
    return max(0, min(most, (registers - 1 - vectors) // vectors))


def tiles(registers: int, most: int = _ROWS) -> dict[int, int]:
    """Returns the rows of tiles by their vectors, for all widths that leave two rows or more."""
    known = {vectors: tile_rows(registers, vectors, most) for vectors in range(1, registers // 3)}
    return {vectors: rows for vectors, rows in known.items() if rows > 1}


def fitted(target: Target) -> Target:
    """Returns a machine whose figures follow from its vectors, cores and caches; those that only trial tells stay."""
    memory, near = target.memory, min(target.memory.second_cache_bytes, _SECOND_CACHE)
    panel = near // 2 // (2 * target.vector_bytes)  # terms, of two vectors of columns
    return replace(
        target,
        memory=memory._replace(cached_bytes=near // 4),
        fusion=target.fusion._replace(row_elements=near // 8 // _FLOAT),
        products=target.products._replace(
            panel_terms=min(_TERMS, 1 << panel.bit_length() - 1),
            sum_bytes=near // 4,
            solved_buffer_bytes=near // 2,
            unpacked_bytes=near // 8,
            far_rows=_FAR_ROWS * target.vector_bytes // _VECTOR_BYTES,
            row_panel_bytes=min(_NEAR_BYTES, memory.first_cache_bytes // 4),
            displacing_bytes=memory.first_cache_bytes // memory.first_cache_ways,
            parts=max(_PARTS, _PARTS_OF_A_CORE * target.cores),
        ),
    )
