"""Vector clocks against the definition: queue order and events must join two uses of a byte, one of which writes, by a path."""

from __future__ import annotations

import random

import pytest

from nnc.testing.devices.sim.order import Clock, Uses, Work, merge


class Reference:
    """Keeps every use of every byte, and every edge between pieces of work."""

    def __init__(self) -> None:
        self.before: dict[Work, set[Work]] = {}
        self.uses: list[tuple[Work, range, bool]] = []

    def add(self, work: Work, known: set[Work]) -> None:
        self.before[work] = {earlier for other in known for earlier in (other, *self.before[other])}

    def conflicts(self, work: Work, part: range, writes: bool) -> set[Work]:
        return {
            other
            for other, touched, wrote in self.uses
            if (writes or wrote) and set(part) & set(touched) and other is not work and other not in self.before[work]
        }


@pytest.mark.parametrize("seed", range(200))
def test_a_conflict_is_found_where_no_path_joins_two_uses_and_nowhere_else(seed: int) -> None:
    draw = random.Random(seed)
    uses, reference = Uses(16), Reference()
    clocks: list[Clock] = [{} for _ in range(3)]
    known: list[set[Work]] = [set() for _ in range(3)]
    found = 0
    for _ in range(40):
        stream = draw.randrange(3)
        if draw.random() < 0.4:  # the stream waits for an event that another one records now
            other = draw.randrange(3)
            merge(clocks[stream], clocks[other])
            known[stream] |= known[other]
            continue
        work = Work(stream, clocks[stream].get(stream, 0) + 1, f"work in {stream}")
        reference.add(work, known[stream])
        first, writes = draw.randrange(15), draw.random() < 0.5
        end = draw.randrange(first + 1, 17)
        conflicts = reference.conflicts(work, range(first, end), writes)
        conflict = uses.find_conflict(first, end, writes, clocks[stream])
        assert (conflict in conflicts) if conflicts else conflict is None
        clocks[stream][stream] = work.number
        known[stream].add(work)
        if conflict is None:
            uses.add(work, first, end, writes, clocks[stream])
            reference.uses.append((work, range(first, end), writes))
        found += conflict is not None
    written = {i for _, part, wrote in reference.uses if wrote for i in part}
    assert [uses.is_filled(i, i + 1) for i in range(16)] == [i in written for i in range(16)]
    assert set(uses.unfinished({})) <= {work for work, _, _ in reference.uses}
    assert not uses.unfinished({0: 99, 1: 99, 2: 99})
