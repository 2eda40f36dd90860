"""Which work on a device comes before which: vector clocks, and the last uses of each byte.

A clock says of each stream how many pieces of its work are known to be done. Two uses of a byte, one of which writes, must be
ordered: the clock of the later one must count the earlier one. Only the queues decide about it, so a missing event is found in
any order of the work (Fidge, Mattern, 1988; FastTrack: Flanagan and Freund, 2009).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Clock = dict[int, int]  # by stream: pieces of its work


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work in a stream.

    Attributes:
        stream: the number of the stream.
        number: the work's place in the stream, counted from 1.
        name: the work's name in messages.
    """

    stream: int
    number: int
    name: str

    def is_before(self, clock: Mapping[int, int]) -> bool:
        """Whether a clock counts this work as done."""
        return clock.get(self.stream, 0) >= self.number


def merge(clock: Clock, other: Mapping[int, int]) -> None:
    """Adds the knowledge of another clock to a clock."""
    for stream, number in other.items():
        if clock.get(stream, 0) < number:
            clock[stream] = number


@dataclass(slots=True)
class _Range:
    """Bytes with the same last uses: the last work that wrote them, the work that has read them since, and whether they hold
    anything.
    """

    first: int
    end: int
    writer: Work | None = None
    readers: list[Work] = field(default_factory=list)
    is_filled: bool = False

    def cut(self, at: int) -> _Range:
        """Gives up the bytes from `at` on."""
        rest = _Range(at, self.end, self.writer, list(self.readers), self.is_filled)
        self.end = at
        return rest


class Uses:
    """The last uses of each byte of a block of `nbytes` bytes."""

    def __init__(self, nbytes: int) -> None:
        self._ranges = [_Range(0, nbytes)]

    def find_conflict(self, first: int, end: int, writes: bool, clock: Mapping[int, int]) -> Work | None:
        """Returns earlier work that conflicts with a new use of bytes and that nothing orders before it; None where there is
        none.

        Args:
            first: the first byte of the use.
            end: the byte behind the last one.
            clock: the vector clock of the new use.
        """
        for part in self._part(first, end):
            others: list[Work | None] = [part.writer, *(part.readers if writes else ())]
            for other in others:
                if other is not None and not other.is_before(clock):
                    return other
        return None

    def add(self, work: Work, first: int, end: int, writes: bool, clock: Mapping[int, int]) -> None:
        """Notes a use."""
        for part in self._part(first, end):
            if writes:
                part.writer, part.readers, part.is_filled = work, [], True
            else:
                part.readers = [other for other in part.readers if not other.is_before(clock)]
                part.readers.append(work)

    def is_filled(self, first: int, end: int) -> bool:
        """Whether each of the bytes was written since they were emptied."""
        return all(part.is_filled for part in self._part(first, end))

    def empty(self) -> None:
        """Notes that no byte holds anything. The order of earlier and later work stays of interest."""
        for part in self._ranges:
            part.is_filled = False

    def unfinished(self, clock: Mapping[int, int]) -> list[Work]:
        """Returns the work on any byte that a clock does not count as done."""
        found = [work for part in self._ranges for work in (part.writer, *part.readers) if work is not None]
        return [work for work in dict.fromkeys(found) if not work.is_before(clock)]

    def _part(self, first: int, end: int) -> Iterator[_Range]:
        """Yields the ranges of some bytes, cut where these begin and end."""
        ranges = self._ranges
        for at in (first, end):
            i = bisect_right(ranges, at, key=lambda part: part.first) - 1
            if i >= 0 and ranges[i].first < at < ranges[i].end:
                ranges.insert(i + 1, ranges[i].cut(at))
        i = bisect_right(ranges, first, key=lambda part: part.first) - 1
        while i < len(ranges) and ranges[i].first < end:
            if ranges[i].end > first:
                yield ranges[i]
            i += 1
