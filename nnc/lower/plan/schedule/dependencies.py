"""Finds the steps that must precede others: two steps that touch the same bytes, where one of them writes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from nnc.lower.plan.schedule.accesses import Access

_NEVER = -1


class _Use:
    """The last step that wrote a range of bytes, and the steps that read it since."""

    __slots__ = ("readers", "writer")

    def __init__(self, writer: int = _NEVER, readers: Iterable[int] = ()) -> None:
        self.writer, self.readers = writer, list(readers)


class _UsedBytes:
    """The users of each range of bytes of one memory: `uses[k]` from `starts[k]` up to `starts[k + 1]`."""

    def __init__(self) -> None:
        self.starts, self.uses = [0], [_Use()]

    def _cut(self, at: int) -> int:
        """Makes a range begin at `at`; returns its number."""
        k = bisect_right(self.starts, at) - 1
        if self.starts[k] == at:
            return k
        self.starts.insert(k + 1, at)
        self.uses.insert(k + 1, _Use(self.uses[k].writer, self.uses[k].readers))
        return k + 1

    def touch(self, step: int, access: Access) -> set[int]:
        """Notes an access; returns the steps that it must wait for."""
        first, end = self._cut(access.first), self._cut(access.end)
        before = {use.writer for use in self.uses[first:end]}
        if access.writes:
            before.update(reader for use in self.uses[first:end] for reader in use.readers)
            self.starts[first:end], self.uses[first:end] = [access.first], [_Use(step)]
        else:
            for use in self.uses[first:end]:
                use.readers.append(step)
        return before - {_NEVER, step}


def find_dependencies(accesses: Sequence[Sequence[Access]]) -> list[tuple[int, ...]]:
    """Returns, for each step, the earlier ones that it must follow, without those that one of the others already follows.

    Args:
        accesses: the bytes that each step touches, in the recorded order.
    """
    memories: dict[int, _UsedBytes] = {}
    before: list[tuple[int, ...]] = []
    for step, touched in enumerate(accesses):
        found: set[int] = set()
        for access in touched:
            found |= memories.setdefault(access.memory, _UsedBytes()).touch(step, access)
        implied = {j for i in found for j in before[i]}
        before.append(tuple(sorted(found - implied)))
    return before
