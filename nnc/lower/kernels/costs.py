"""When threads pay: the least work of a part of a loop that is given to a thread of its own.

Measured: a loop in threads that still look out for work costs half a µs more than a plain one. Where they had gone to sleep, to
wake one takes the caller 8 µs, and it comes 40 µs later. Parts of 8 µs keep the first below an eighth; the second is rare within
programs, which have many loops in a row.
"""

from __future__ import annotations

from nnc.device.targets import cpu_target

_THREADS = cpu_target().threads


def grain_of(item_ns: float) -> int:
    """The `grain` for `nnc_parallel_for` on items that take so long each: the least number of items in a part.

    Example:
        >>> grain_of(100.0), grain_of(1e9)
        (80, 1)
    """
    return max(1, round(_THREADS.part_ns / max(item_ns, 1e-3)))
