"""The schedule of a program: the steps of each stream, and which steps wait for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True, order=True)
class Signal:
    """Step `after` begins only when step `before`, which another stream runs, is done; both are positions in `Bound.steps`."""

    before: int
    after: int


@dataclass(frozen=True)
class Schedule:
    """The steps of each stream, in order, as positions in `Bound.steps`. Every step stands in one stream.

    The thread that calls the program runs stream 0. `planned` are the seconds from the start of the call at which each step is
    expected to begin and to end (by position): estimates, by which the schedule was made.
    """

    streams: tuple[tuple[int, ...], ...]
    signals: tuple[Signal, ...]
    planned: tuple[tuple[float, float], ...]

    @cached_property
    def stream_of(self) -> tuple[int, ...]:
        """The stream of each step."""
        found = {position: stream for stream, steps in enumerate(self.streams) for position in steps}
        return tuple(found[position] for position in range(len(found)))

    @cached_property
    def place_of(self) -> tuple[int, ...]:
        """Counts, for each step, the earlier steps of its stream."""
        found = {position: place for steps in self.streams for place, position in enumerate(steps)}
        return tuple(found[position] for position in range(len(found)))

    @property
    def seconds(self) -> float:
        """The expected length of a call."""
        return max((end for _, end in self.planned), default=0.0)


# A function around each step of a run: (stream, position, the function that runs the step). It must call the last. Measured runs
# note times there, tests wait at random.
Around = Callable[[int, int, Callable[[], None]], None]
