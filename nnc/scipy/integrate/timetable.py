"""The integration to given times, in loops of static shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnc import tree
from nnc.array import Array
from nnc.numpy import elementwise as el
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
    """The solution at times, (m, n), and the state at the end of the interval. After a failure the solution is NaN."""

    def to_next(s: State, t: Any) -> tuple[State, Any]:
        s = advance(method, problem, s, t, checkpoint)
        y, count = interpolate(method, problem, s, t)
        return s._replace(nfev=s.nfev + count), el.where(s.failed, np.nan, y)

    last, ys = scan(to_next, first, times, checkpoint=checkpoint)
    return ys, advance(method, problem, tree.map(stop_gradient, last), problem.end)
