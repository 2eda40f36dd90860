"""Simplified Newton iterations, by which implicit methods find their steps: the matrix of the linear systems stays the same (Hairer
and Wanner, "Solving ordinary differential equations II", section IV.8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nnc.array.promote import astype
from nnc.numpy import elementwise as el
from nnc.numpy.reductions import all as all_
from nnc.scipy.integrate.steps import SAFETY, Problem, rms
from nnc.scipy.optimize.problems import integer
from nnc.trace.core.differentiate import stop_gradient
from nnc.trace.core.jacobian import jacfwd
from nnc.trace.loops.control_flow import while_loop


class Iteration(NamedTuple):
    """A point of the simplified Newton iterations."""

    x: Any
    length: Any  # of the last change; 0 before the first
    rate: Any  # of convergence; infinite before the second change
    count: Any
    converged: Any
    stopped: Any  # diverged, or too slow to converge in time


def iterate(change: Callable[[Any], Any], x: Any, scale: Any, tolerance: Any, most: int) -> Iteration:
    """Returns the last of at most `most` iterations.

    Args:
        change: x -> the change of x, of its shape.
        x: where to begin.
        scale: the numbers that divide changes before their norm is taken; they broadcast to x.
        tolerance: largest norm of the error of a solution, a scalar of the dtype of x.
        most: limit of the number of iterations.
    """

    def step(c: Iteration) -> Iteration:
        dx = change(c.x)
        length = rms(dx / scale)
        first = c.count == 0
        rate = el.where(first, np.inf, length / el.where(c.length > 0, c.length, 1))
        left = astype(most - c.count, tolerance.dtype)
        slow = ~first & ((rate >= 1) | (rate**left / (1 - rate) * length > tolerance))
        stopped = ~all_(el.isfinite(dx)) | slow
        converged = ~stopped & ((length == 0) | (~first & (rate / (1 - rate) * length < tolerance)))
        return Iteration(el.where(stopped, c.x, c.x + dx), length, rate, c.count + 1, converged, stopped)

    none = tolerance * 0
    no = none != 0
    start = Iteration(x, none, none + np.inf, integer(0), no, no)
    last: Iteration = while_loop(lambda c: ~(c.converged | c.stopped) & (c.count < most), step, start)
    return last


def tolerance_of(problem: Problem, dtype: Any) -> Any:
    """Returns the largest error of Newton's iterations, relative to the tolerance of a step, as in SciPy."""
    eps = float(np.finfo(dtype).eps)
    return el.maximum(10 * eps / problem.rtol, el.minimum(0.03, el.sqrt(problem.rtol)))


def safety_of(count: Any, most: int, dtype: Any) -> Any:
    """Returns the factor of a step's size that leaves room for errors: smaller after more iterations of `most`."""
    return SAFETY * (2 * most + 1) / (2 * most + astype(count, dtype))


def make_jacobian(problem: Problem, t: Any, y: Any) -> Any:
    """Returns the derivative of the problem's function with regard to y, (n, n), a constant for derivatives."""
    t, y = stop_gradient(t), stop_gradient(y)
    made: Callable[[Any], Any] = jacfwd(lambda y: problem.fun(t, y))
    return stop_gradient(made(y))
