"""Proves that a schedule has no race: a step that touches bytes that another step writes does so before or after it, as recorded.

The proof knows nothing of how schedules are made: from streams and signals alone it derives the steps that come before each step
(vector
clocks: Fidge, Mattern, 1988), and checks each access against the last write and the last reads of its bytes (FastTrack: Flanagan
and Freund, 2009). O((steps + accesses) · streams), and for each access the ranges that others cut its bytes into.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnc.errors import InternalError
from nnc.lower.plan.schedule.accesses import Access, step_accesses
from nnc.lower.plan.schedule.types import Schedule
from nnc.lower.plan.stages import NDArray, Planned


def check_schedule(planned: Planned, schedule: Schedule) -> None:
    """Raises InternalError where a schedule leaves out a step, waits for ever, or has a race."""
    name, steps = planned.bound.name, planned.bound.steps
    if sorted(i for stream in schedule.streams for i in stream) != list(range(len(steps))):
        raise InternalError(f"{name}: the schedule does not run each of {len(steps)} steps once")
    clocks = happened_before(schedule)
    if clocks is None:
        raise InternalError(f"{name}: streams of the schedule wait for each other")
    race = find_race(step_accesses(planned), schedule, clocks)
    if race is not None:
        first, second = (f"{i} ({steps[i].command.name}) of stream {schedule.stream_of[i]}" for i in race)
        raise InternalError(
            f"{name}: a race: nothing orders step {first} before step {second}, which touches the same bytes"
        )


def happened_before(schedule: Schedule) -> NDArray | None:
    """(steps, streams): how many steps of each stream are done whenever a step begins; None where that is never."""
    waits: dict[int, list[int]] = {}
    for signal in schedule.signals:
        waits.setdefault(signal.after, []).append(signal.before)
    clocks = np.full((len(schedule.stream_of), len(schedule.streams)), -1, np.int64)
    at = [0] * len(schedule.streams)
    now = np.zeros((len(schedule.streams), len(schedule.streams)), np.int64)  # of the end of each stream so far
    moved = True
    while moved:  # a stream runs on until it waits for a step that has not run
        moved = False
        for k, steps in enumerate(schedule.streams):
            while at[k] < len(steps) and all(clocks[i, 0] >= 0 for i in waits.get(steps[at[k]], ())):
                for i in waits.get(steps[at[k]], ()):
                    np.maximum(now[k], clocks[i], out=now[k])
                    other = schedule.stream_of[i]
                    now[k, other] = max(now[k, other], schedule.place_of[i] + 1)
                clocks[steps[at[k]]] = now[k]
                at[k] += 1
                now[k, k] = at[k]
                moved = True
    return clocks if all(i == len(steps) for i, steps in zip(at, schedule.streams, strict=True)) else None


class _Shadow:
    """For each range of bytes of a memory: the last step that wrote it, and how far each stream has read it since."""

    def __init__(self, accesses: Sequence[Access], streams: int) -> None:
        self.bounds = np.unique([at for access in accesses for at in (access.first, access.end)])
        self.writer = np.full(len(self.bounds), -1, np.int64)
        self.read = np.zeros((streams, len(self.bounds)), np.int64)  # steps of the stream, up to the last reader

    def part(self, access: Access) -> slice:
        """Returns the ranges of an access."""
        first, end = np.searchsorted(self.bounds, (access.first, access.end))
        return slice(int(first), int(end))


def find_race(accesses: Sequence[Sequence[Access]], schedule: Schedule, clocks: NDArray) -> tuple[int, int] | None:
    """Finds two steps that touch the same bytes, one of them writing, where the first may still run when the second begins.

    Args:
        accesses: the buffers that each step touches, in the recorded order, which conflicting steps must keep.
        clocks: see `happened_before`.
    """
    by_memory: dict[int, list[Access]] = {}
    for access in (access for touched in accesses for access in touched):
        by_memory.setdefault(access.memory, []).append(access)
    shadows = {memory: _Shadow(found, len(schedule.streams)) for memory, found in by_memory.items()}
    stream_of, place_of = np.array(schedule.stream_of, np.int64), np.array(schedule.place_of, np.int64)
    for step, touched in enumerate(accesses):
        own, number = schedule.stream_of[step], schedule.place_of[step] + 1
        for access in touched:
            shadow = shadows[access.memory]
            part = shadow.part(access)
            writers = shadow.writer[part]
            writers = writers[(writers >= 0) & (writers != step)]
            racing = writers[place_of[writers] >= clocks[step, stream_of[writers]]]
            if len(racing):
                return int(racing[0]), step
            if not access.writes:
                np.maximum(shadow.read[own, part], number, out=shadow.read[own, part])
                continue
            last = shadow.read[:, part].max(axis=1, initial=0)
            late = np.flatnonzero(last > clocks[step])
            if len(late):
                return schedule.streams[late[0]][last[late[0]] - 1], step
            shadow.writer[part], shadow.read[:, part] = step, 0
    return None
