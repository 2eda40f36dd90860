"""Memory plans as pictures: steps from left to right, addresses upwards, a rectangle for each life of a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

from nnc.base.html import format_bytes
from nnc.compiled.reports import MemoryPlan, MemoryRow
from nnc.view.picture import Picture, asset
from nnc.view.svg import Scale, document, element, label, number, shorten, title

_WIDTH, _OUTSIDE, _HEIGHT, _LEFT, _TOP, _MARGIN = 1200.0, 130.0, 480.0, 80.0, 56.0, 12.0
_SHADES = ("#dbe9f6", "#bad6ea", "#89bedc", "#539ecc", "#2b7bba", "#0b559f")  # of tensors in the arena, small to large


def draw_memory(plan: MemoryPlan, name: str = "memory plan") -> Picture:
    """Returns the picture of a plan: the arena with the live bytes as a line, and above it, by another scale, the memory
    outside.
    """
    steps = max((row.last + 1 for row in plan.rows), default=0)
    above = sum(row.size for row in plan.rows if row.offset is None)
    across = Scale(max(steps, 1), _LEFT, _LEFT + _WIDTH)
    outside = Scale(max(above, 1), _TOP + _OUTSIDE, _TOP)
    top = _TOP + _OUTSIDE + 30
    arena = Scale(max(plan.arena_bytes, 1), top + _HEIGHT, top)
    content = [
        label(_headline(plan), _LEFT, 16.0),
        label(_LEGEND, _LEFT, 30.0, fill="#666"),
        label("outside of the arena:", _LEFT, _TOP - 4) if above else "",
        label("arena:", _LEFT, top - 4),
        *_bytes_axis(outside, across, 2),
        *_bytes_axis(arena, across, 8),
        *_steps_axis(across, top + _HEIGHT),
    ]
    for row, bottom in zip(plan.rows, bottoms(plan.rows), strict=True):
        content.append(_rectangle(row, bottom, across, outside if row.offset is None else arena, plan.arena_bytes))
    content.append(element("path", d=_live_line(plan, steps, across, arena), cls="live"))
    shades = "".join(f".shade{i} rect {{ fill: {color}; }}\n" for i, color in enumerate(_SHADES))
    style = asset("memory.css") + shades
    return Picture(name, document(content, _LEFT + _WIDTH, top + _HEIGHT + 34, style, name, margin=_MARGIN))


_LEGEND = (
    "blue: in the arena, darker where larger; orange: outputs; yellow: inputs; grey: constants; purple: tapes; "
    "green: kept between calls; red line: live bytes"
)


def bottoms(rows: Sequence[MemoryRow]) -> list[int]:
    """Returns the address at which each row is drawn: its own in the arena, outside one after the other."""
    places, above = [], 0
    for row in rows:
        places.append(above if row.offset is None else row.offset)
        above += row.size if row.offset is None else 0
    return places


def _headline(plan: MemoryPlan) -> str:
    return (
        f"arena {format_bytes(plan.arena_bytes)}, largest live set {format_bytes(plan.lower_bound)} (ratio {plan.ratio:.4g}); "
        f"inputs {format_bytes(plan.input_bytes)}, outputs {format_bytes(plan.output_bytes)}, "
        f"constants {format_bytes(plan.constant_bytes)}"
    )


def _rectangle(row: MemoryRow, bottom: int, across: Scale, up: Scale, arena: int) -> str:
    x, y = across(row.first), up(bottom + row.size)
    width, height = across(row.last + 1) - x, up(bottom) - y
    kind = f"shade{_shade(row.size, arena)}" if row.kind == "arena" else row.kind
    inside = [title(_about(row)), element("rect", x=x, y=y, width=width, height=height)]
    text = shorten(f"{row.name} {row.spec}", width - 4, 9) if height > 10 else ""
    if text:
        light = "#fff" if kind in ("shade4", "shade5") else None
        inside.append(label(text, x + 2, y + height / 2 + 3, fill=light))
    return element("g", inside, cls=f"item {kind}", data_key=f"{row.name} {row.offset}")


def _shade(size: int, arena: int) -> int:
    """Returns the more of the arena, the darker: a shade for each factor of 4."""
    return max(0, len(_SHADES) - 1 - int(math.log(max(arena, 1) / max(size, 1), 4)))


def _about(row: MemoryRow) -> str:
    place = row.kind if row.offset is None else f"{row.kind}, bytes {row.offset} to {row.offset + row.size}"
    text = (
        f"{row.name}: {row.spec}\n{row.size} bytes ({format_bytes(row.size)}), {place}\nsteps {row.first} to {row.last}"
    )
    return text if row.source is None else f"{text}\nat {row.source.describe()}"


def _bytes_axis(up: Scale, across: Scale, count: int) -> Iterator[str]:
    for value in up.marks(count, base=2):
        y = up(value)
        yield element("line", x1=across.first, x2=across.last, y1=y, y2=y, cls="axis")
        yield label(format_bytes(round(value)), across.first - 4, y + 4, text_anchor="end")


def _steps_axis(across: Scale, y: float) -> Iterator[str]:
    for value in across.marks(12):
        if value == int(value):
            yield label(str(int(value)), across(value), y + 14)
    yield label("step", across.last, y + 28, text_anchor="end")


def _live_line(plan: MemoryPlan, steps: int, across: Scale, up: Scale) -> str:
    path, before = [f"M{number(across(0))} {number(up(0))}"], 0
    for step, live in enumerate(live_bytes(plan.rows, steps)):
        if live != before:
            path += f"H{number(across(step))}", f"V{number(up(live))}"
            before = live
    return "".join([*path, f"H{number(across(steps))}"])


def live_bytes(rows: Sequence[MemoryRow], steps: int) -> list[int]:
    """Returns the bytes of the arena that are live at each step."""
    changes = [0] * (steps + 1)
    for row in rows:
        if row.offset is not None:
            changes[row.first] += row.size
            changes[row.last + 1] -= row.size
    return list(accumulate(changes))[:steps]
