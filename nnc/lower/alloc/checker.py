"""An independent check of memory plans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def find_overlap(
    first: Sequence[int], end: Sequence[int], size: Sequence[int], offset: Sequence[int]
) -> tuple[int, int] | None:
    """Two tensors that share bytes while both are live; None where there are no such two.

    Walks the tensors by offset and compares each with those that begin before it ends: O(n · tensors at one place).
    """
    lo, hi, n, at = (np.asarray(x, np.int64) for x in (first, end, size, offset))
    order = np.argsort(at, kind="stable")
    order = order[(n[order] > 0) & (lo[order] < hi[order])]
    lo, hi, start, stop = lo[order], hi[order], at[order], (at + n)[order]
    reach = np.searchsorted(start, stop, side="left")
    for i in range(len(order)):
        j = slice(i + 1, reach[i])
        clash = np.flatnonzero((lo[j] < hi[i]) & (hi[j] > lo[i]))
        if clash.size:
            return int(order[i]), int(order[i + 1 + clash[0]])
    return None
