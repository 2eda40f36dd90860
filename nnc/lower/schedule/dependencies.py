"""Which steps must precede which: those that touch the same bytes, where one of them writes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from nnc.lower.schedule.accesses import Access

_NEVER = -1


@dataclass(frozen=True, slots=True)
class _Use:
    """The last step that wrote a range of bytes, and those that read it since."""

    writer: int = _NEVER
    readers: tuple[int, ...] = ()


class _Memory:
    """Who used which bytes of one memory: `uses[k]` from `starts[k]` up to `starts[k + 1]`."""

    def __init__(self) -> None:
        self.starts, self.uses = [0], [_Use()]

    def _cut(self, at: int) -> int:
        """Makes a range begin at `at`; returns its number."""
        k = bisect_right(self.starts, at) - 1
        if self.starts[k] == at:
            return k
        self.starts.insert(k + 1, at)
        self.uses.insert(k + 1, self.uses[k])
        return k + 1

    def touch(self, step: int, access: Access) -> set[int]:
        """Notes an access; returns the steps that it must wait for."""
        first, end = self._cut(access.first), self._cut(access.end)
        used, before = self.uses[first:end], set()
        for use in used:
            before.add(use.writer)
            if access.writes:
                before.update(use.readers)
        if access.writes:
            self.starts[first:end], self.uses[first:end] = [access.first], [_Use(step)]
        else:
            self.uses[first:end] = [_Use(use.writer, (*use.readers, step)) for use in used]
        return before - {_NEVER, step}


def find_dependencies(accesses: Sequence[Sequence[Access]]) -> list[tuple[int, ...]]:
    """For each step the earlier ones that it must follow, without those that follow from others most directly.

    Args:     accesses: what each step touches, in the recorded order.
    """
    memories: dict[int, _Memory] = {}
    before: list[tuple[int, ...]] = []
    for step, touched in enumerate(accesses):
        found: set[int] = set()
        for access in touched:
            found |= memories.setdefault(access.memory, _Memory()).touch(step, access)
        implied = {j for i in found for j in before[i]}
        before.append(tuple(sorted(found - implied)))
    return before
