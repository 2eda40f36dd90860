"""Finds the bytes that each top-level step of a planned program reads and writes, with all that runs inside it.

If one of two steps writes bytes that the other touches, they must keep their recorded order; all dependencies of a program on
planned memory are of this kind. Effects and tapes, which have no address, get a place of their own: tapes grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nnc.commands.rules import SILENT_EFFECTS
from nnc.graph import Command
from nnc.graph.registry import effect
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.stages import Branches, Kind, Loop, Planned, Step, View

ARENA, EFFECTS, TAPES = -1, -2, -3  # memories that are no single buffer


class Access(NamedTuple):
    """Bytes from `first` up to `end` of a memory: `ARENA`, `EFFECTS`, `TAPES`, or the number of a buffer outside the arena."""

    memory: int
    first: int
    end: int
    writes: bool


def step_accesses(planned: Planned) -> list[list[Access]]:
    """Returns the accesses of each top-level step. Memory that no step writes is left out; writes stand before reads."""
    touched = [sorted(set(_touched(planned, step)), key=_order) for step in planned.bound.steps]
    written = {access.memory for accesses in touched for access in accesses if access.writes}
    return [[access for access in accesses if access.memory in written] for accesses in touched]


def _order(access: Access) -> tuple[bool, int, int, int]:
    return not access.writes, access.memory, access.first, access.end


def has_effect(step: Step) -> bool:
    """Whether a step, or something inside it, does more than compute its outputs, or runs a user's function."""
    inner = (node.command for graph in step.graphs for node in graph.walk())
    kinds = {effect.get(command, None) for command in (step.command, *inner)}
    return bool(kinds - {None, *SILENT_EFFECTS})


def is_message(command: Command, params: Mapping[str, Any]) -> bool:
    """Whether a command waits for other processes."""
    return effect.get(command, None) == "collective" and bool(params.get("stride", 0))


def _touched(planned: Planned, top: Step) -> Iterator[Access]:
    for step in walk((top,)):
        for views, writes in ((step.inputs, False), (step.outputs, True)):
            for view in views:
                yield from _access(planned, view, writes)
        if has_effect(step):
            yield Access(EFFECTS, 0, 1, True)
        for view in _decided_by(step):
            yield from _access(planned, view, False)
        if isinstance(step.region, Loop) and step.region.counter is not None:
            yield from _access(planned, step.region.counter, True)


def _decided_by(step: Step) -> Iterator[View]:
    """Yields the views that a region reads to find its way: a branch's index, a loop's length and tests."""
    if isinstance(step.region, Branches):
        yield step.region.index
    elif step.region is not None:
        yield from (view for view in (step.region.count, *(c.test for c in step.region.copies)) if view is not None)


def _access(planned: Planned, view: View, writes: bool) -> Iterator[Access]:
    """The range that a view lies in: all of its buffer where it moves from iteration to iteration."""
    buffer, offset = planned.bound.buffers[view.buffer], planned.offsets[view.buffer]
    if buffer.kind is Kind.TAPE:
        yield Access(TAPES, 0, 1, True)  # reading one may move it on
        return
    first, end = (0, buffer.nbytes) if view.advances else view.extent
    if first < end and offset is not None:
        yield Access(ARENA, offset + first, offset + end, writes)
    elif first < end:
        yield Access(view.buffer, first, end, writes)
