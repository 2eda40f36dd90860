"""A schedule for people, planned or of a run that was measured: as text, and as a trace that Perfetto and Chrome show."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any

from nnc.base.html import format_table, show_text
from nnc.base.source import SourceLine
from nnc.errors import ArgumentError, user_error
from nnc.lower.plan.schedule.types import Schedule
from nnc.lower.plan.stages import Bound, Step

Span = tuple[float, float]  # seconds


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One step: from `start` on it runs in its stream for `duration`, both in microseconds, once the steps in `waits` are done."""

    step: int
    stream: int
    command: str
    backend: str
    outputs: str
    start: float
    duration: float
    waits: tuple[int, ...]
    source: SourceLine | None

    @property
    def end(self) -> float:
        """The time of its end."""
        return self.start + self.duration


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """The times of each step of a call, in the order of `start`: estimates, or the times of one run where `measured`."""

    name: str
    streams: int
    measured: bool
    rows: tuple[ScheduleRow, ...]

    @property
    def duration(self) -> float:
        """Microseconds from the first step's start to the last one's end."""
        return max((row.end for row in self.rows), default=0.0)

    @property
    def busy(self) -> tuple[float, ...]:
        """Microseconds that each stream works."""
        times = [0.0] * self.streams
        for row in self.rows:
            times[row.stream] += row.duration
        return tuple(times)

    def _repr_html_(self) -> str:
        return show_text(self.name, str(self))

    def __str__(self) -> str:
        kind = "measured run" if self.measured else "schedule"
        about = "" if self.measured else "about "
        plural = "" if self.streams == 1 else "s"
        lines = [
            f"{kind} of {self.name}: {len(self.rows)} steps on {self.streams} stream{plural}, {about}{self.duration:.1f} µs"
        ]
        if self.streams > 1:
            lines.append("streams work " + ", ".join(f"{time:.1f} µs" for time in self.busy))
        table = [("step", "stream", "command", "kernel", "start µs", "µs", "waits for", "made at")]
        for row in self.rows:
            times = f"{row.start:.1f}", f"{row.duration:.1f}"
            waits = ", ".join(map(str, row.waits))
            table.append(
                (str(row.step), str(row.stream), row.command, row.backend, *times, waits, str(row.source or ""))
            )
        return "\n".join([*lines, *format_table(table)])

    def to_chrome_trace(self) -> dict[str, Any]:
        """Returns the Trace Event form that https://ui.perfetto.dev and chrome://tracing read: threads are streams, arrows are
        waits.
        """
        kind = "measured" if self.measured else "planned"
        events: list[dict[str, Any]] = [_metadata("process_name", 0, f"{self.name} ({kind})")]
        events += [_metadata("thread_name", stream, f"stream {stream}") for stream in range(self.streams)]
        by_step = {row.step: row for row in self.rows}
        for row in self.rows:
            args = {"step": row.step, "outputs": row.outputs, "kernel": row.backend, "made at": str(row.source or "")}
            place = {"pid": 0, "tid": row.stream}
            event = {"name": row.command, "cat": kind, "ph": "X", "ts": row.start, "dur": row.duration}
            events.append({**event, **place, "args": args})
            for i in row.waits:
                flow = {"name": "wait", "cat": "wait", "id": f"{i}-{row.step}", "pid": 0}
                events.append(
                    {**flow, "ph": "s", "ts": by_step[i].start + by_step[i].duration / 2, "tid": by_step[i].stream}
                )
                events.append({**flow, "ph": "f", "bp": "e", "ts": row.start, "tid": row.stream})
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the trace to a .json file.

        Raises:
            ArgumentError: `path` has another suffix.
        """
        target = Path(path)
        if target.suffix.lower() != ".json":
            problem = f"path is {str(path)!r}, which does not end in .json."
            fix = "end the name in .json; str(schedule) is the text, nnc.view.schedule(...) the picture."
            raise user_error(ArgumentError, "schedule.save", problem, fix=fix)
        target.write_text(json.dumps(self.to_chrome_trace()), encoding="utf-8")


def _metadata(kind: str, stream: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 0, "tid": stream, "args": {"name": name}}


class Watch:
    """Notes when each step of a run began and ended; it is an `Around`."""

    def __init__(self, steps: int) -> None:
        self._spans: list[Span] = [(0.0, 0.0)] * steps

    def __call__(self, stream: int, position: int, run: Callable[[], None]) -> None:
        """Runs a step and notes when."""
        begin = perf_counter()
        run()
        self._spans[position] = begin, perf_counter()

    @property
    def spans(self) -> list[Span]:
        """Seconds, from the first start on."""
        first = min((begin for begin, _ in self._spans), default=0.0)
        return [(begin - first, end - first) for begin, end in self._spans]


def make_schedule_report(
    bound: Bound, schedule: Schedule, backend: Callable[[Step], str], measured: Sequence[Span] | None = None
) -> ScheduleReport:
    """Makes the report of a schedule.

    Args:
        backend: returns the name of the backend that runs a step.
        measured: when each step ran; used instead of the estimates.
    """
    waits: dict[int, list[int]] = {}
    for signal in schedule.signals:
        waits.setdefault(signal.after, []).append(signal.before)
    spans = schedule.planned if measured is None else measured
    rows = [
        ScheduleRow(
            step=i,
            stream=schedule.stream_of[i],
            command=step.command.name,
            backend=backend(step) if step.region is None else "",
            outputs=", ".join(str(view.spec) for view in step.outputs),
            start=begin * 1e6,
            duration=(end - begin) * 1e6,
            waits=tuple(waits.get(i, ())),
            source=step.source,
        )
        for i, (step, (begin, end)) in enumerate(zip(bound.steps, spans, strict=True))
    ]
    rows.sort(key=lambda row: (row.start, row.step))
    return ScheduleReport(bound.name, len(schedule.streams), measured is not None, tuple(rows))
