"""Finds the waits of a schedule that follow from others: of its signals, of the forks at the beginning, of the joins at the end.

The order of a schedule is a graph of steps, with an edge from each step to the next one of its stream and an edge for each
signal. An edge is implied where another path leads from its first step to its second: the graph without implied edges is the
transitive reduction (Aho, Garey, Ullman, 1972), which is unique for an acyclic graph. O(steps · streams + signals · signals of
one step).
"""

from __future__ import annotations

from nnc.errors import InternalError
from nnc.lower.plan.schedule.races import happened_before
from nnc.lower.plan.schedule.types import Schedule, Signal
from nnc.lower.plan.stages import NDArray


def check_signals(name: str, schedule: Schedule) -> None:
    """Raises InternalError where other signals imply a signal of a schedule: each signal costs an event on a device.

    Args:
        name: the program's name in messages.
        schedule: a schedule without deadlocks.
    """
    found = implied_signals(schedule)
    if found:
        signal = found[0]
        raise InternalError(f"{name}: other signals imply the one from step {signal.before} to step {signal.after}")


def implied_signals(schedule: Schedule) -> list[Signal]:
    """Returns the signals that the other signals and the order of the streams imply.

    Args:
        schedule: a schedule without deadlocks.
    """
    clocks, waits = _clocks(schedule), dict[int, list[Signal]]()
    for signal in schedule.signals:
        waits.setdefault(signal.after, []).append(signal)
    found = []
    for after, signals in waits.items():
        stream, place = schedule.streams[schedule.stream_of[after]], schedule.place_of[after]
        previous = [stream[place - 1]] if place else []
        for k, signal in enumerate(signals):
            others = [*previous, *(other.before for other in signals[:k] + signals[k + 1 :])]
            if any(_follows(schedule, clocks, other, signal.before) for other in others):
                found.append(signal)
    return found


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
    clocks, lasts = _clocks(schedule), {k: steps[-1] for k, steps in enumerate(schedule.streams) if steps}
    return tuple(
        k
        for k, last in lasts.items()
        if k and not any(_follows(schedule, clocks, other, last) for j, other in lasts.items() if j != k)
    )


def _clocks(schedule: Schedule) -> NDArray:
    clocks = happened_before(schedule)
    if clocks is None:
        raise InternalError("streams of the schedule wait for each other")
    return clocks


def _follows(schedule: Schedule, clocks: NDArray, step: int, earlier: int) -> bool:
    """Whether a step is another one, or begins when that is done."""
    return step == earlier or bool(clocks[step, schedule.stream_of[earlier]] > schedule.place_of[earlier])
