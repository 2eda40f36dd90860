"""The schedule of a planned program."""

from __future__ import annotations

from nnc.lower.liveness import walk
from nnc.lower.report import step_bytes, step_flops
from nnc.lower.schedule.accesses import has_effect, step_accesses
from nnc.lower.schedule.assign import choose_streams, estimate_seconds
from nnc.lower.schedule.dependencies import find_dependencies
from nnc.lower.schedule.types import Schedule
from nnc.lower.stages import Loop, Planned, Step
from nnc.options import Options


def make_schedule(planned: Planned, options: Options) -> Schedule:
    """The schedule that `options.streams` asks for; steps that touch the same bytes keep their recorded order."""
    steps = planned.bound.steps
    seconds = [estimate_seconds(step_flops(step), step_bytes(step)) for step in steps]
    must_stay = list(map(is_pinned, steps))
    return choose_streams(lambda: find_dependencies(step_accesses(planned)), seconds, must_stay, options)


def is_pinned(step: Step) -> bool:
    """Whether a step must run in the thread that called: it has an effect, or runs users' rules, or may never end.

    The caller can be interrupted while it runs; other threads cannot.
    """
    return any(
        has_effect(inner) or inner.graphs or (isinstance(inner.region, Loop) and inner.region.length is None)
        for inner in walk((step,))
    )
