"""Runs a schedule on threads: the caller's for stream 0, one worker for each of the others.

A failure leaves memory as the recorded order would have: when a step fails, steps that come after it in that order are not begun
any more, those before it still run, and the error of the first is raised where the program was called.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from threading import Condition
from typing import Any

from nnc.base.fork import undisturbed
from nnc.base.records import record
from nnc.lower.plan.schedule.types import Around, Schedule


@record
class _Item:
    """A step of a stream. `waits` are (stream, how many of its steps must be done); `tells` says whether others wait for it."""

    position: int
    run: Callable[[], None]
    waits: tuple[tuple[int, int], ...]
    tells: bool


class _Progress:
    """The progress of the streams of one call, and the first failure. Steps from `limit` on are not begun any more."""

    def __init__(self, streams: int, steps: int) -> None:
        self.limit = steps
        self.error: BaseException | None = None
        self._done = [0] * streams
        self._changed = Condition()

    def tell(self, stream: int, count: int) -> None:
        """So many steps of a stream are done."""
        with self._changed:
            self._done[stream] = count
            self._changed.notify_all()

    def wait(self, item: _Item) -> None:
        """Returns when a step may begin, or need not any more."""

        def is_over() -> bool:
            return self.limit <= item.position or all(self._done[k] >= count for k, count in item.waits)

        with self._changed:
            self._changed.wait_for(is_over)

    def fail(self, position: int, error: BaseException) -> None:
        """Ends the call at a step; -1 stops everything."""
        with self._changed:
            if position < self.limit:
                self.limit, self.error = position, error
            self._changed.notify_all()


def _started(count: int) -> ThreadPoolExecutor:
    """Returns a pool all of whose threads have begun."""
    pool, met = ThreadPoolExecutor(count, "nnc-stream"), threading.Barrier(count)
    wait([pool.submit(met.wait) for _ in range(count)])
    return pool


class StreamRunner:
    """The threads of a frame, which take one call at a time. They end when the frame is dropped.

    Args:
        steps: for each position, the function that runs the step there.
        around: see `Around`.
    """

    def __init__(self, schedule: Schedule, steps: Sequence[Callable[[], None]], around: Around | None = None) -> None:
        self._steps, self._around = len(steps), around
        places, streams = schedule.place_of, schedule.stream_of
        telling = {signal.before for signal in schedule.signals}
        waits: dict[int, list[tuple[int, int]]] = {}
        for signal in schedule.signals:
            waits.setdefault(signal.after, []).append((streams[signal.before], places[signal.before] + 1))
        self._streams = [
            [_Item(i, steps[i], tuple(waits.get(i, ())), i in telling) for i in stream] for stream in schedule.streams
        ]
        self._owner = -1
        self._pool: ThreadPoolExecutor | None = None

    def __call__(self) -> None:
        """Runs all steps.

        Raises:
            BaseException: the error of the failed step that stands first in the recorded order; an interrupt.
        """
        progress = _Progress(len(self._streams), self._steps)
        jobs: list[Future[None]] = []
        try:
            for k in range(1, len(self._streams)):
                jobs.append(self._workers().submit(copy_context().run, self._run_stream, k, progress))
            self._run_stream(0, progress)
        except BaseException as error:
            progress.fail(-1, error)
        _join(jobs, progress)
        failure, progress.error = progress.error, None  # errors hold frames, which hold the progress: no cycle is left
        if failure is not None:
            try:
                raise failure
            finally:
                del failure

    def _workers(self) -> ThreadPoolExecutor:
        """Returns the threads; new ones in a process that was forked, which has none of them."""
        if self._pool is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._pool = undisturbed(lambda: _started(len(self._streams) - 1))
        return self._pool

    def _run_stream(self, stream: int, progress: _Progress) -> None:
        try:
            self._run_steps(stream, progress)
        except BaseException as error:  # of the waiting itself
            progress.fail(-1, error)

    def _run_steps(self, stream: int, progress: _Progress) -> None:
        around = self._around
        for count, item in enumerate(self._streams[stream], 1):
            if item.waits:
                progress.wait(item)
            if item.position >= progress.limit:
                continue
            try:
                if around is None:
                    item.run()
                else:
                    around(stream, item.position, item.run)
            except BaseException as error:
                progress.fail(item.position if isinstance(error, Exception) else -1, error)
            if item.tells:
                progress.tell(stream, count)


def _join(jobs: Sequence[Future[Any]], progress: _Progress) -> None:
    """Waits for all jobs, which use memory of the call; an interrupt stops them, and waits, too."""
    while not all(job.done() for job in jobs):
        try:
            wait(jobs)
        except BaseException as error:
            progress.fail(-1, error)
