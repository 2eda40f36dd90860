"""The integration to given times, in loops of static shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc import tree
from nnc.array.array import Array
from nnc.numpy import elementwise as el
from nnc.numpy.joining import concatenate
from nnc.scipy.integrate.steps import Method, Problem, State, interpolate
from nnc.trace.core.differentiate import stop_gradient
from nnc.trace.loops.control_flow import scan, while_loop


def advance(method: Method, problem: Problem, s: State, t: Any, checkpoint: Any = None) -> State:
    """Steps until time t is reached."""
    last: State = while_loop(
        lambda s: ~s.failed & problem.is_before(stop_gradient(s.t), stop_gradient(t)), lambda s: method.attempt(problem, s), s,
        checkpoint=checkpoint,
    )  # fmt: skip
    return last


def reach(method: Method, problem: Problem, first: State, times: Array, checkpoint: Any = None) -> tuple[Array, State]:
    """Returns the solution at times, (m, n), and the state at the end of the interval.

    After a failure the solution is NaN. A time beyond the ends by more than rounding errors, NaN, or before the one ahead of it
    counts as a failure.
    """
    still, start, end = (problem.direction * stop_gradient(x) for x in (times, first.t, problem.end))
    slack = 4 * float(np.finfo(times.dtype).eps) * el.maximum(el.abs(start), el.abs(end))
    in_order = (still >= concatenate([(start - slack)[None], still[:-1]])) & (still <= end + slack)

    def to_next(s: State, row: tuple[Any, Any]) -> tuple[State, Any]:
        t, in_order = row
        until = el.where(problem.is_before(problem.end, t), problem.end, t)
        s = advance(method, problem, s._replace(failed=s.failed | ~in_order), until, checkpoint)
        y, count = interpolate(method, problem, s, t)
        return s._replace(nfev=s.nfev + count), el.where(s.failed, np.nan, y)

    last, ys = scan(to_next, first, (times, in_order), checkpoint=checkpoint)
    return ys, advance(method, problem, tree.map(stop_gradient, last), problem.end)
