"""Results that a dynamic graph has computed before, found again by command, parameters and operands.

Small operands are compared by their bytes, others by identity: arrays do not change, and re-binding a variable gives it
another one. An entry goes with the first of its operands that nobody holds any more, since then it cannot be asked for again.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from nnc.array import Array
from nnc.commands.random import random_bits
from nnc.commands.rules import alias, effect
from nnc.dtypes import TAPE
from nnc.trace.eager import Plan

_BY_CONTENT = 512  # bytes up to which operands are compared by content
_OVERHEAD = 512  # bytes that an entry takes beside its results
_ENTRIES = 1024  # those of small operands never grow stale


@dataclass(frozen=True, slots=True)
class MemoStats:
    """What memoisation did: commands found (`hits`) and run (`misses`), entries and bytes kept now, and the most allowed."""

    hits: int
    misses: int
    entries: int
    nbytes: int
    limit: int


@dataclass(slots=True, eq=False)
class _Entry:
    results: tuple[Array, ...]
    nbytes: int
    operands: list[weakref.ref[Array]]


class Memo:
    """A cache of results with a limit in bytes; what was not asked for longest goes first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._nbytes = self._hits = self._misses = 0
        self._stale: deque[Hashable] = deque()  # filled by weak references, whenever an operand dies

    def key(self, plan: Plan, operands: Sequence[Array]) -> Hashable | None:
        """What identifies a call; None where its results are not kept."""
        if not self.limit or not is_pure(plan):
            return None
        return plan, *[_content(x) or id(x) for x in operands]

    def find(self, key: Hashable) -> tuple[Array, ...] | None:
        """The results of a call that was made before."""
        if self._stale:
            self.drop_stale()
        entry = self._entries.get(key)
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        return entry.results

    def keep(self, key: Hashable, operands: Sequence[Array], results: Sequence[Array]) -> None:
        """Remembers the results of a call, as far as the limit allows."""
        nbytes = _OVERHEAD + sum([x.spec.nbytes for x in results])
        if nbytes > self.limit or key in self._entries:
            return
        stale = self._stale
        watched = [weakref.ref(x, lambda _: stale.append(key)) for x in operands if not _content(x)]
        self._entries[key] = _Entry(tuple(results), nbytes, watched)
        self._nbytes += nbytes
        while self._nbytes > self.limit or len(self._entries) > _ENTRIES:
            self._nbytes -= self._entries.popitem(last=False)[1].nbytes

    def drop_stale(self) -> None:
        """Drops entries with an operand that is gone, and then those that had their results as operands, and so on."""
        while self._stale:
            self._drop(self._stale.popleft())

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._nbytes -= entry.nbytes

    def stats(self) -> MemoStats:
        """Hits, misses and size."""
        self.drop_stale()
        return MemoStats(self._hits, self._misses, len(self._entries), self._nbytes, self.limit)


def _content(x: Array) -> bytes:
    """The elements, if there are few of them or only one, repeated; else nothing."""
    data = x.memory
    if (data.nbytes > _BY_CONTENT and any(data.strides)) or x.spec.dtype == TAPE:
        return b""
    return data.tobytes() if data.nbytes <= _BY_CONTENT else data[(0,) * data.ndim].tobytes()


def is_pure(plan: Plan) -> bool:
    """Whether running the command again would be a waste: it has no effect, draws nothing, and is more than a view."""
    known: bool | None = plan.known.get("pure")
    if known is None:
        inner = (node.command for graph in plan.graphs for node in graph.walk())
        found = all(command not in effect and command is not random_bits for command in (plan.command, *inner))
        known = plan.known["pure"] = found and plan.command not in alias
    return known
