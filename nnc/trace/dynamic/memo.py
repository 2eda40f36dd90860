"""Results that a dynamic graph has computed before, found by routine (commands, parameters, specs) and operands.

Small operands are compared by their bytes, others by identity: arrays do not change, and re-binding a variable gives it
another one. An entry goes with the first of its operands that nobody holds any more, since it cannot be found after that.
nnc.base.bounded states the rule for all memories of calls.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from nnc.array.array import Array
from nnc.base.bounded import BoundedCache
from nnc.base.dtypes import TAPE

Results = Sequence[Array | None]

_BY_CONTENT = 512  # bytes up to which operands are compared by content
_OVERHEAD = 512  # bytes that an entry takes beside its results
_ENTRIES = 1024  # entries of small operands never grow stale


@dataclass(frozen=True, slots=True)
class MemoStats:
    """Counts of memoisation: commands found (`hits`) and run (`misses`), entries and bytes kept now, and the most allowed."""

    hits: int
    misses: int
    entries: int
    nbytes: int
    limit: int


@dataclass(slots=True, eq=False)
class _Entry:
    results: Results
    nbytes: int
    operands: list[weakref.ref[Array]]


class Memo:
    """A cache of results with a limit in bytes; the entry that was not asked for longest goes first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: BoundedCache[Hashable, _Entry] = BoundedCache(_ENTRIES, limit, attrgetter("nbytes"))
        self._hits = self._misses = 0
        self._stale: deque[Hashable] = deque()  # filled by weak references, whenever an operand dies

    def key(self, what: Hashable, operands: Sequence[Array]) -> tuple[Any, ...] | None:
        """Returns the key of a run; None where nothing is kept."""
        return (what, *map(_identity, operands)) if self.limit else None

    def find(self, key: Hashable) -> Results | None:
        """Returns the results of a run like this one."""
        if self._stale:
            self.drop_stale()
        entry = self._entries.find(key)
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        return entry.results

    def keep(self, key: tuple[Any, ...], operands: Sequence[Array], results: Results, nbytes: int) -> None:
        """Remembers the results of a run, which take so many bytes, as far as the limit allows."""
        nbytes += _OVERHEAD
        if nbytes > self.limit or self._entries.glance(key) is not None:
            return
        stale = self._stale
        drop = lambda _: stale.append(key)
        watched = [weakref.ref(x, drop) for x, by in zip(operands, key[1:], strict=True) if type(by) is int]
        self._entries.keep(key, _Entry(results, nbytes, watched))

    def drop_stale(self) -> None:
        """Drops entries with an operand that is gone, and then entries that had their results as operands, and so on."""
        while self._stale:
            self._entries.drop(self._stale.popleft())

    def stats(self) -> MemoStats:
        """Hits, misses and size."""
        self.drop_stale()
        return MemoStats(self._hits, self._misses, len(self._entries), self._entries.total, self.limit)


def _identity(x: Array) -> Hashable:
    """Returns the elements, if there are few of them or only one, repeated; else which array it is."""
    try:
        data = x.memory
        is_large = data.nbytes > _BY_CONTENT
    except AttributeError:
        if type(x) is not Array:
            return id(x)  # on a device
        is_large = x.data.nbytes > _BY_CONTENT  # says that it was donated
    if is_large:
        return id(x) if any(data.strides) else data[(0,) * data.ndim].tobytes()
    return data.tobytes() if data.size and x.spec.dtype != TAPE else id(x)
