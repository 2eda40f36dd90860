"""Finds the waits at the beginning and the end of a call that no other wait implies.

The order of a schedule is a graph of steps, with an edge from each step to the next one of its stream and an edge for each
signal; an edge is implied where another path leads from its first step to its second. `assign` leaves out implied signals.
"""

from __future__ import annotations

from nnc.errors import InternalError
from nnc.lower.plan.schedule.races import happened_before
from nnc.lower.plan.schedule.types import Schedule
from nnc.lower.plan.stages import NDArray


def forked_streams(schedule: Schedule) -> tuple[int, ...]:
    """Returns the streams that must wait for the beginning of a call. A stream whose first step waits for another one does not
    need to.

    Args:
        schedule: a schedule in which the first step of stream 0 waits for none.
    """
    waiting = {signal.after for signal in schedule.signals}
    return tuple(k for k, steps in enumerate(schedule.streams) if k and steps and steps[0] not in waiting)


def joined_streams(schedule: Schedule) -> tuple[int, ...]:
    """Returns the streams whose ends the first one must wait for: those whose last step no other stream's last step follows.

    Args:
        schedule: a schedule without deadlocks.
    """
    clocks, lasts = happened_before(schedule), {k: steps[-1] for k, steps in enumerate(schedule.streams) if steps}
    if clocks is None:
        raise InternalError("streams of the schedule wait for each other")
    return tuple(
        k
        for k, last in lasts.items()
        if k and not any(follows(schedule, clocks, other, last) for j, other in lasts.items() if j != k)
    )


def follows(schedule: Schedule, clocks: NDArray, step: int, earlier: int) -> bool:
    """Whether a step is another one, or begins when that is done; `clocks` are those of `happened_before`."""
    return step == earlier or bool(clocks[step, schedule.stream_of[earlier]] > schedule.place_of[earlier])
