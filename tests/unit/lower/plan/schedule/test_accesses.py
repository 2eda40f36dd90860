"""The declared accesses of a step cover all bytes that it touches in each iteration of its loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nnc
import nnc.numpy as nnp
from nnc.lower.plan.liveness import walk
from nnc.lower.plan.schedule.accesses import ARENA, step_accesses
from nnc.lower.plan.stages import Kind, Loop, Planned, View
from tests.unit.lower.plan.schedule.tools import compiled

ITERATIONS = 6
X = nnc.ShapeDtypeStruct((ITERATIONS, 4), np.float32)


def step(carry: Any, row: Any) -> Any:
    following = nnp.tanh(carry * row)
    return following, following


def rows_in_and_out(x: Any) -> Any:
    """Each round reads one row and writes one; the last ones are read behind the loop."""
    last, rows = nnc.scan(step, x[0], nnp.sin(x))
    return nnp.sum(rows[ITERATIONS - 2 :], axis=0) + last


def backwards(x: Any) -> Any:
    last, rows = nnc.scan(step, x[0], nnp.sin(x), reverse=True)
    return rows[1:3] + last


def nested(x: Any) -> Any:
    def outer(carry: Any, row: Any) -> Any:
        last, rows = nnc.scan(step, carry, nnp.outer(row, row))
        return last, rows

    return nnp.exp(nnc.scan(outer, x[0], nnp.sin(x))[1])


@pytest.mark.parametrize("function", [rows_in_and_out, backwards, nested, nnc.grad(lambda x: nnp.sum(backwards(x)))])
def test_views_that_move_stay_within_the_bytes_that_their_loop_touches(function: Callable[..., Any]) -> None:
    planned = compiled(nnc.make_graph(function)(X), 2).planned
    moving = 0
    for top, accesses in zip(planned.bound.steps, step_accesses(planned), strict=True):
        found = [(view, False) for inner in walk((top,)) for view in inner.inputs]
        found += [(view, True) for inner in walk((top,)) for view in inner.outputs]
        for view, writes in found:
            if not view.advances or planned.bound.buffers[view.buffer].kind is Kind.INPUT:
                continue
            moving += 1
            memory, first, end = place(planned, view)
            known = [a for a in accesses if a.memory == memory and a.first <= first and end <= a.end]
            assert any(a.writes is writes for a in known)
    assert moving > 1


def place(planned: Planned, view: View) -> tuple[int, int, int]:
    """The memory of a view, and the bytes of its buffer that it touches in all iterations: one that is read an iteration later
    than it is written begins in front of the buffer."""
    (first, end), buffer = view.extent, planned.bound.buffers[view.buffer]
    loops = [step.region for step in walk(planned.bound.steps) if isinstance(step.region, Loop)]
    lengths = {loop.number: loop.length for loop in loops if loop.length is not None}
    for number, distance in view.advances:
        reach = (lengths[number] - 1) * distance
        first, end = first + min(reach, 0), end + max(reach, 0)
    first, end, offset = max(first, 0), min(end, buffer.nbytes), planned.offsets[view.buffer]
    return (view.buffer, first, end) if offset is None else (ARENA, offset + first, offset + end)
