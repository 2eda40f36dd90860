"""The schedule of a planned program."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from nnc.base.later import later
from nnc.base.options import Options
from nnc.commands.control import PRINTED
from nnc.device import machine_of
from nnc.lower.plan.costs import step_bytes, step_flops
from nnc.lower.plan.liveness import Timeline, join, max_live, walk
from nnc.lower.plan.schedule.accesses import has_effect, is_message, step_accesses
from nnc.lower.plan.schedule.assign import (
    MESSAGES,
    choose_streams,
    estimate_seconds,
    is_affordable,
    most_streams,
)
from nnc.lower.plan.schedule.types import Schedule
from nnc.lower.plan.stages import Bound, Intervals, Kind, Loop, Planned, Step

find_dependencies = later(f"{__package__}.dependencies", "find_dependencies")


def make_schedule(planned: Planned, options: Options) -> Schedule:
    """Returns the schedule that `options.streams` asks for; steps that touch the same bytes keep their recorded order."""
    steps = planned.bound.steps
    costs = machine_of(options).schedule
    sends = [is_message(step.command, step.params) for step in steps]
    pinned = [
        MESSAGES if to_others else 0 if is_pinned(step) else None for step, to_others in zip(steps, sends, strict=True)
    ]
    seconds = [
        estimate_seconds(step_flops(step), step_bytes(step), costs, to_others)
        for step, to_others in zip(steps, sends, strict=True)
    ]
    return choose_streams(lambda: find_dependencies(step_accesses(planned)), seconds, pinned, options)


def concurrent_lives(bound: Bound, options: Options) -> tuple[Intervals, ...]:
    """Returns the intervals of a program's buffers, each until the steps are over that are expected to run while its last
    reader does.

    Memory planned for them is given to another stream only when that need not wait for it.
    """
    if most_streams(options) == 1 or options.memory_budget is not None:
        return bound.intervals
    schedule = make_schedule(Planned(bound, (None,) * len(bound.buffers), 0, 0), options)
    if len(schedule.streams) == 1:
        return bound.intervals
    timeline = Timeline()
    starts = [0, *accumulate(map(timeline.span, bound.steps))]
    begins = [begin for begin, _ in schedule.planned]

    def after(end: int) -> int:
        """Returns the first point of the first step that begins when the one at point `end - 1` is done."""
        last = bisect_left(starts, end) - 1
        done = schedule.planned[last][1]
        return starts[next((j for j in range(last + 1, len(begins)) if begins[j] >= done), len(begins))]

    later = {end: max(end, after(end)) for lives in bound.intervals for _, end in lives if 0 < end <= starts[-1]}
    longer = tuple(join((first, later.get(end, end)) for first, end in lives) for lives in bound.intervals)
    affordable = is_affordable(options, _live_bytes(bound, bound.intervals), _live_bytes(bound, longer))
    return longer if affordable else bound.intervals


def _live_bytes(bound: Bound, intervals: Sequence[Intervals]) -> int:
    """Returns the largest set of bytes of the arena that is live at once."""
    pairs = zip(bound.buffers, intervals, strict=True)
    rows = [(*life, buffer.nbytes) for buffer, lives in pairs if buffer.kind is Kind.ARENA for life in lives]
    return max_live(*zip(*rows, strict=True)) if rows else 0


def is_pinned(step: Step) -> bool:
    """Whether a step, if no message, must run in the thread that called: it has an effect, or runs users' rules, or may never end.

    The caller can be interrupted while it runs; other threads cannot.
    """
    return any(
        has_effect(inner)
        or (inner.graphs and inner.command not in PRINTED)
        or (isinstance(inner.region, Loop) and inner.region.length is None)
        for inner in walk((step,))
    )
