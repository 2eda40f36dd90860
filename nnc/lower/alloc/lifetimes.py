"""Live ranges of a bound program's buffers."""

from __future__ import annotations

from nnc.lower.stages import Bound, Kind


def live_ranges(bound: Bound) -> list[tuple[int, int]]:
    """For each buffer the half-open range of steps in which its memory must not be another's.

    A range runs from the first step that touches the buffer, through any view, to the one after the last; a result that
    nothing reads still occupies its own step. Memory that the caller gives or gets lives throughout.
    """
    end = max(len(bound.steps), 1)
    first = [end] * len(bound.buffers)
    last = [0] * len(bound.buffers)
    for position, step in enumerate(bound.steps):
        for view in (*step.inputs, *step.outputs):
            first[view.buffer] = min(first[view.buffer], position)
            last[view.buffer] = position + 1
    return [(first[i], last[i]) if buffer.kind is Kind.ARENA else (0, end) for i, buffer in enumerate(bound.buffers)]
