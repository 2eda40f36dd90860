"""Streams and events of a simulated device.

Work runs when the host waits for it, not when it is queued. Which of the streams that may go on takes the next piece is drawn at
random, so that only events order work in different streams; `nnc.testing.devices.sim.order` proves that they do, when work is
queued.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from nnc.base.context import AT_REST, set_context
from nnc.base.fork import new_rlock
from nnc.base.source import SourceLine
from nnc.device.protocol import Event
from nnc.errors import DeviceError, InternalError, user_error
from nnc.testing.devices.sim.order import Clock, Work, merge

if TYPE_CHECKING:
    from nnc.testing.devices.sim.memory import Lease


class Use(NamedTuple):
    """Bytes of a lease that a piece of work reads or writes.

    Attributes:
        lease: the memory of a block.
        first: the first byte, counted from the beginning of the block.
        end: the byte behind the last one.
        writes: whether the work writes them.
        has_gaps: whether some of them are none of the elements, so that they may hold nothing.

    Example:
        >>> from nnc.testing.devices.sim import SimDevice
        >>> device = SimDevice()
        >>> Use.whole(device.pool.allocate(8, device.stream).owner, writes=True).end
        8
    """

    lease: Lease
    first: int
    end: int
    writes: bool
    has_gaps: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether these are all bytes of the block."""
        return self.first <= 0 and self.end >= self.lease.nbytes

    @classmethod
    def whole(cls, lease: Lease, *, writes: bool) -> Use:
        """Returns the use of all bytes of a block.

        Args:
            lease: the memory of the block.
            writes: whether the work writes them.
        """
        return cls(lease, 0, lease.nbytes, writes)


@dataclass(slots=True, eq=False)
class _Item:
    """An entry of a queue: work to run, an event to mark, or an event to wait for."""

    run: Callable[[], None] | None = None
    mark: SimEvent | None = None
    wait: SimEvent | None = None


class Outcome:
    """The outcome of work: done, or failed.

    Attributes:
        error: the error of the work, or of work whose results it reads; None where all is well, or nothing has run yet.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None


class SimEvent:
    """A mark in a stream of a simulated device.

    Args:
        queues: the streams of the device.
        clock: the vector clock of the mark: the work before it.
        outcome: the outcome of the work that the host waits for.

    Example:
        >>> from nnc.testing.devices.sim import SimDevice
        >>> device = SimDevice()
        >>> event = device.stream.record()
        >>> event.wait()
        >>> event.is_done()
        True
    """

    def __init__(self, queues: Queues, clock: Clock, outcome: Outcome | None = None) -> None:
        self.queues, self.clock, self.outcome, self.reached = queues, clock, outcome, False

    def is_done(self) -> bool:
        """Returns whether the mark is reached, without waiting. Time passes with each question."""
        with self.queues.lock:
            self.queues.check("an event")
            self.queues.run_some()
            if self.reached:
                merge(self.queues.host, self.clock)
            return self.reached

    def wait(self) -> None:
        """Waits until the mark is reached.

        Raises:
            DeviceError: the device is lost, or this process was forked from the one that uses it.
            Exception: the work that the host waits for failed.
        """
        self.queues.run_until(self)
        if self.outcome is not None and self.outcome.error is not None:
            raise self.outcome.error.with_traceback(None)


class SimStream:
    """A queue of work of a simulated device.

    Args:
        queues: the streams of the device.
        number: the number of this stream.

    Example:
        >>> from nnc.testing.devices.sim import SimDevice
        >>> device = SimDevice()
        >>> work = device.stream.launch("greet", lambda: print("hello"), [])
        >>> device.stream.synchronize()
        hello
    """

    def __init__(self, queues: Queues, number: int) -> None:
        self.queues, self.number = queues, number
        self.clock: Clock = {}
        self.items: deque[_Item] = deque()

    def known(self) -> Clock:
        """Returns the clock of work that would be queued now."""
        merge(self.clock, self.queues.host)
        return self.clock

    def record(self, outcome: Outcome | None = None) -> SimEvent:
        """Marks the place behind the work that is in the queue now.

        Args:
            outcome: the outcome of the work that the host will wait for: its error is raised then.
        """
        with self.queues.lock:
            self.queues.check("a stream")
            merge(self.clock, self.queues.host)
            event = SimEvent(self.queues, dict(self.clock), outcome)
            self.items.append(_Item(mark=event))
            return event

    def wait_for(self, event: Event) -> None:
        """Lets the work that follows begin only when the event is reached.

        Args:
            event: an event of a stream of the same device, or of another device.
        """
        with self.queues.lock:
            self.queues.check("a stream")
            if not isinstance(event, SimEvent) or event.queues is not self.queues:
                event.wait()
                return
            merge(self.clock, event.clock)
            self.items.append(_Item(wait=event))

    def synchronize(self) -> None:
        """Waits until the queue is empty."""
        self.record().wait()

    def launch(
        self, name: str, run: Callable[[], None], uses: Sequence[Use], source: SourceLine | None = None
    ) -> Outcome:
        """Queues a piece of work.

        Work that fails leaves its error in the memory that it should have written. Work that reads this memory fails as well,
        and the host gets the error when it asks for the elements.

        Returns:
            the outcome, which is known when an event behind the work is reached.

        Args:
            name: the work's name in messages.
            run: does it, on the bytes of the leases.
            uses: the bytes that it reads and writes.
            source: the user's line.

        Raises:
            DeviceError: the work uses memory that was freed, that is another device's or that nothing orders behind work which is
                still under way.
        """
        with self.queues.lock:
            self.queues.check(name)
            merge(self.clock, self.queues.host)
            number = self.clock.get(self.number, 0) + 1
            self._note(Work(self.number, number, name), uses, source)
            self.clock[self.number] = number
            outcome = Outcome()
            written: list[Lease | Outcome] = [outcome, *(use.lease for use in uses if use.writes and use.is_whole)]
            partly = [use.lease for use in uses if use.writes and not use.is_whole]
            read = [use.lease for use in uses if not use.writes]
            self.items.append(_Item(run=lambda: _run(run, read, written, partly, source)))
            self.queues.run_late()
            return outcome

    def _note(self, work: Work, uses: Sequence[Use], source: SourceLine | None) -> None:
        """Checks the uses of work that is about to be queued, and then notes them."""
        clock = self.clock | {work.stream: work.number - 1}
        for lease, first, end, writes, has_gaps in uses:
            lease.check(self.queues, work.name, source)
            if not (writes or has_gaps or lease.uses.is_filled(first, end)):
                problem = f"it reads bytes {first} to {end} of {lease.describe()}, which nothing has written."
                fix = "queue the work that writes them first."
                raise user_error(DeviceError, work.name, problem, fix=fix, source=source)
            other = lease.uses.find_conflict(first, end, writes, clock) if first < end else None
            if other is not None:
                does = "writes" if writes else "reads"
                problem = (
                    f"it {does} bytes {first} to {end} of {lease.describe()} in stream {work.stream}, while {other.name} in stream "
                    f"{other.stream} may still be using them."
                )
                fix = "let the stream wait for an event that is recorded behind that work."
                raise user_error(DeviceError, work.name, problem, fix=fix, source=source)
        for lease, first, end, writes, _ in uses:
            if first < end:
                lease.uses.add(work, first, end, writes, clock)


def _run(
    run: Callable[[], None], read: Iterable[Lease], written: Iterable[Lease | Outcome], partly: Iterable[Lease],
    source: SourceLine | None,
) -> None:  # fmt: skip
    """Runs work, unless its operands failed; the error goes to the memory that it writes. Memory that is written as a whole has no
    error of earlier work any more.
    """
    error = next((lease.error for lease in read if lease.error is not None), None)
    if error is None:
        try:
            with set_context(**AT_REST._replace(source=source)._asdict()):  # not the context of the caller that waits
                run()
        except Exception as failed:
            error = failed
    for place in written:
        place.error = error
    if error is not None:
        for lease in partly:
            lease.error = error


class Queues:
    """All streams of a device: one lock, one clock of the host, and the order in which work runs.

    Args:
        seed: seeds the order in which work runs.
    """

    def __init__(self, device: str, seed: int) -> None:
        self.device, self.lock, self.process = device, new_rlock(), os.getpid()
        self.streams: list[SimStream] = []
        self.host: Clock = {}  # the work that the host has waited for
        self.is_lost = False
        self._random = random.Random(seed)

    def new_stream(self) -> SimStream:
        """Another stream."""
        with self.lock:
            stream = SimStream(self, len(self.streams))
            self.streams.append(stream)
            return stream

    def check(self, who: str) -> None:
        """Raises DeviceError where the device cannot be used any more; `who` is the subject of the message."""
        if os.getpid() != self.process:
            problem = f"{self.device} belongs to the process that this one was forked from."
            fix = 'start processes with multiprocessing.get_context("spawn").'
            raise user_error(DeviceError, who, problem, fix=fix)
        if self.is_lost:
            fix = "restart the process; arrays on the host are as they were."
            raise user_error(DeviceError, who, f"{self.device} does not answer any more.", fix=fix)

    def reseed(self, seed: int) -> None:
        """Begins another order of work, when all queues are empty."""
        self.run_all()
        self._random = random.Random(seed)

    def run_until(self, event: SimEvent) -> None:
        """Runs work until an event is reached; then the host knows of all that is before it."""
        with self.lock:
            self.check("an event")
            while not event.reached:
                if not self._run_one():
                    raise InternalError(f"streams of {self.device} wait for each other")
                self.check("an event")
            merge(self.host, event.clock)

    def run_all(self) -> None:
        """Runs all work; the host knows of it then."""
        with self.lock:
            self.check("synchronize")
            while self._run_one():
                self.check("synchronize")
            if any(stream.items for stream in self.streams):
                raise InternalError(f"streams of {self.device} wait for each other")
            for stream in self.streams:
                merge(self.host, stream.clock)

    def run_some(self) -> None:
        """Runs a few pieces of work."""
        for _ in range(self._random.randrange(4)):
            self._run_one()

    def run_late(self) -> None:
        """Runs work where much of it is queued: a host that never waits must not fill its memory."""
        while sum(len(stream.items) for stream in self.streams) > _MOST_QUEUED and self._run_one():
            pass

    def _run_one(self) -> bool:
        """Runs the next piece of work of a stream that may go on; whether there was one."""
        ready = [s for s in self.streams if s.items and ((wait := s.items[0].wait) is None or wait.reached)]
        if not ready:
            return False
        item = self._random.choice(ready).items.popleft()
        if item.run is not None:
            item.run()
        if item.mark is not None:
            item.mark.reached = True
        return True


_MOST_QUEUED = 1000
