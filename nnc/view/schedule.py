"""Schedules as pictures: time from left to right, a band for each stream, a rectangle for each step."""

from __future__ import annotations

from collections.abc import Mapping

from nnc.compiled.reports import ScheduleReport, ScheduleRow
from nnc.view.picture import Picture, asset
from nnc.view.svg import Scale, document, element, label, shorten, steps_of_color, title

_WIDTH, _BAND, _GAP, _LEFT, _TOP, _MARGIN = 1200.0, 56.0, 24.0, 80.0, 40.0, 12.0


def draw_schedule(report: ScheduleReport) -> Picture:
    """Draws a planned or measured schedule; lines lead from a step to steps of other streams that wait for it."""
    across = Scale(report.duration or 1.0, _LEFT, _LEFT + _WIDTH)
    bottom = _TOP + report.streams * (_BAND + _GAP)
    kind = "measured run of" if report.measured else "schedule of"
    name = f"{kind} {report.name}"
    colors = steps_of_color(row.command for row in report.rows)
    content = [label(str(report).partition("\n")[0], _LEFT, 16.0)]
    for stream in range(report.streams):
        content.append(label(f"stream {stream}", _LEFT - 6, _top(stream) + _BAND / 2, text_anchor="end"))
    size, unit = (1e3, "ms") if report.duration >= 1e4 else (1.0, "µs")
    for value in across.marks(10):
        x = across(value)
        content.append(element("line", x1=x, x2=x, y1=_TOP, y2=bottom, cls="axis"))
        content.append(label(f"{value / size:g} {unit}", x, bottom + 14))
    content += [_rectangle(row, across, colors) for row in report.rows]
    by_step = {row.step: row for row in report.rows}
    content += [_wait(by_step[i], row, across) for row in report.rows for i in row.waits]
    return Picture(name, document(content, _LEFT + _WIDTH, bottom + 24, asset("schedule.css"), name, margin=_MARGIN))


def _top(stream: int) -> float:
    return _TOP + stream * (_BAND + _GAP)


def _rectangle(row: ScheduleRow, across: Scale, colors: Mapping[str, str]) -> str:
    x, y = across(row.start), _top(row.stream)
    width = across(row.end) - x
    times = f"{row.start:.1f} to {row.end:.1f} µs ({row.duration:.1f} µs), stream {row.stream}"
    about = f"step {row.step}: {row.command} -> {row.outputs}\n{times}"
    if row.backend:
        about += f", kernel {row.backend}"
    if row.waits:
        about += f"\nwaits for steps {', '.join(map(str, row.waits))}"
    if row.source is not None:
        about += f"\nat {row.source.describe()}"
    inside = [title(about), element("rect", x=x, y=y, width=width, height=_BAND, fill=colors[row.command])]
    text = shorten(row.command, width - 4, 9)
    if text:
        inside.append(label(text, x + 2, y + _BAND / 2 + 3))
    return element("g", inside, cls="item", data_key=row.step)


def _wait(before: ScheduleRow, after: ScheduleRow, across: Scale) -> str:
    down = before.stream < after.stream
    y1, y2 = _top(before.stream) + (_BAND if down else 0.0), _top(after.stream) + (0.0 if down else _BAND)
    x1, x2 = across(before.end), across(after.start)
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, cls="wait")
