from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import nnc
import nnc.numpy as nnp
from nnc.base.source import SourceLine
from nnc.errors import ArgumentError
from nnc.lower.plan.schedule.report import ScheduleReport, ScheduleRow, make_schedule_report
from tests.unit.lower.plan.schedule import tools

LINE = SourceLine("train.py", 41, "loss")
REPORT = ScheduleReport(
    "loss",
    2,
    False,
    (
        ScheduleRow(0, 0, "dot", "numpy", "float32[8,8]", 0.0, 120.25, (), LINE),
        ScheduleRow(1, 1, "sin", "numpy", "float32[8]", 0.0, 20.0, (), LINE),
        ScheduleRow(2, 0, "while", "", "float32[8]", 130.0, 50.0, (1,), None),
    ),
)
GOLDEN = """\
schedule of loss: 3 steps on 2 streams, about 180.0 µs
streams work 170.2 µs, 20.0 µs
step  stream  command  kernel  start µs  µs     waits for  made at
0     0       dot      numpy   0.0       120.2             train.py:41 in loss
1     1       sin      numpy   0.0       20.0              train.py:41 in loss
2     0       while            130.0     50.0   1"""


def test_the_text_of_a_schedule() -> None:
    assert str(REPORT) == GOLDEN


def check_trace(trace: dict[str, Any], report: ScheduleReport) -> None:
    """The rules of the Trace Event format that a viewer relies on."""
    trace = json.loads(json.dumps(trace, allow_nan=False))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events = trace["traceEvents"]
    for event in events:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ph"] in ("M", "X", "s", "f")
        if event["ph"] != "M":
            assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0 and isinstance(event["cat"], str)
    named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert named == {stream: f"stream {stream}" for stream in range(report.streams)}
    slices = [event for event in events if event["ph"] == "X"]
    assert [(event["name"], event["ts"], event["dur"], event["tid"]) for event in slices] == [
        (row.command, row.start, row.duration, row.stream) for row in report.rows
    ]
    for stream in named:
        times = sorted((event["ts"], event["ts"] + event["dur"]) for event in slices if event["tid"] == stream)
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(times))
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(ends) == sum(len(row.waits) for row in report.rows)
    for name, end in ends.items():
        start = starts[name]
        assert (
            end["bp"] == "e" and (start["name"], start["cat"]) == (end["name"], end["cat"]) and start["ts"] <= end["ts"]
        )
        for event in (start, end):  # an arrow is fastened to the slice that it lies in
            assert any(s["tid"] == event["tid"] and s["ts"] <= event["ts"] <= s["ts"] + s["dur"] for s in slices)


def two_chains(x: nnc.Array, y: nnc.Array) -> nnc.Array:
    for _ in range(3):
        x, y = nnp.tanh(x @ x), nnp.exp(-(y @ y))
    return nnp.sum(x + y)


def test_traces_of_planned_and_measured_runs_keep_the_rules_of_the_format(tmp_path: Path) -> None:
    check_trace(REPORT.to_chrome_trace(), REPORT)
    f = nnc.compile(two_chains, streams=2)
    x = nnp.full((64, 64), 0.01)
    planned = f.lower(x, x * 2).compile().schedule
    assert planned.streams == 2 and any(row.waits for row in planned.rows) and not planned.measured
    check_trace(planned.to_chrome_trace(), planned)
    measured = nnc.debug.profile(f, x, x * 2)
    assert measured.measured
    check_trace(measured.to_chrome_trace(), measured)
    for row in planned.rows:
        (other,) = [other for other in measured.rows if other.step == row.step]
        assert (other.command, other.stream, other.waits, other.source) == (
            row.command,
            row.stream,
            row.waits,
            row.source,
        )
    planned.save(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8")) == planned.to_chrome_trace()
    with pytest.raises(ArgumentError, match=r"does not end in \.json"):
        planned.save(tmp_path / "trace.txt")


def test_a_measured_run_waits_for_its_dependencies() -> None:
    f = nnc.compile(two_chains, streams=2)
    x = nnp.full((64, 64), 0.01)
    rows = {row.step: row for row in nnc.debug.profile(f, x, x * 2).rows}
    assert all(rows[i].end <= row.start for row in rows.values() for i in row.waits)


def test_reports_are_in_microseconds() -> None:
    program = tools.compiled(tools.two_chains(), 2)
    report = make_schedule_report(program.bound, program.schedule, lambda step: "numpy")
    assert report.duration == pytest.approx(program.schedule.seconds * 1e6)
    for row in report.rows:
        begin, end = program.schedule.planned[row.step]
        assert (row.start, row.duration) == pytest.approx((begin * 1e6, (end - begin) * 1e6))
        assert 1e-4 < row.duration < 1e6
