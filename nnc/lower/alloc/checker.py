"""An independent check of memory plans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnc.lower.alloc.problem import Block, Ints, block_rows


def find_overlap(
    first: Sequence[int], end: Sequence[int], size: Sequence[int], offset: Sequence[int]
) -> tuple[int, int] | None:
    """Two tensors that share bytes while both are live; None where there are no such two."""
    lo, hi, nbytes, at = (np.asarray(column, np.int64) for column in (first, end, size, offset))
    return _find_clash(lo, hi, nbytes, at, np.arange(len(nbytes)))


def find_block_overlap(blocks: Sequence[Block], offsets: Sequence[int]) -> tuple[int, int] | None:
    """Two blocks that share bytes while both are live; None where there are no such two."""
    size, lo, hi, owner = block_rows(blocks)
    return _find_clash(lo, hi, size[owner], np.asarray(offsets, np.int64)[owner], owner)


def _find_clash(lo: Ints, hi: Ints, nbytes: Ints, at: Ints, owner: Ints) -> tuple[int, int] | None:
    """Walks the rows by offset and compares each with the rows that begin before it ends: O(n · rows at one place)."""
    order = np.argsort(at, kind="stable")
    order = order[(nbytes[order] > 0) & (lo[order] < hi[order])]
    lo, hi, start, stop, owner = lo[order], hi[order], at[order], (at + nbytes)[order], owner[order]
    reach = np.searchsorted(start, stop, side="left")
    for i in range(len(order)):
        j = slice(i + 1, reach[i])
        clash = np.flatnonzero((lo[j] < hi[i]) & (hi[j] > lo[i]))
        if clash.size:
            return int(owner[i]), int(owner[i + 1 + clash[0]])
    return None
